/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* normalize: Unicode normalization form C as Hugging Face tokenizers has it (the tables of Unicode
 * 9.0: newer marks are left where they are). The data is libutf8proc's; the ordering of marks is
 * ours, because libutf8proc's is quadratic in their run.
 *
 * Thread: any.  Memory: the caller's buf. */

#include "base/buf.h"

/* True when `text` (valid UTF-8) can be seen to be in form C already, without normalising it. */
bool nfc_is_plain(struct str text);
/* Appends the form C of `text` (valid UTF-8). */
void nfc_add(struct buf *buf, struct str text);
