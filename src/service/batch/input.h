/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* input: a first look at an upload that is to be the input of a batch: is it JSONL?
 *
 * The file's name does not tell, because OpenAI's upload helper names every file `upload`.
 *
 * Thread: any.
 * Memory: one line. */

#include "store/files.h"

/* Looks at the start of an upload with the purpose batch, before its spool is committed.
 * ERR_INVALID, with the sentence for the client, for zero bytes and for a first line that is not
 * JSON. */
enum err batch_spool_look(struct store_spool *spool, struct error *error) MUST_CHECK;
