/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* normalize: Unicode normalization form C as Hugging Face tokenizers computes it.
 *
 * It has the tables of Unicode 9.0, so newer marks do not move. The data is libutf8proc's. The
 * order of marks is computed here, because libutf8proc needs quadratic time for a run of marks.
 *
 * Thread: any.
 * Memory: the caller's buf. */

#include "base/buf.h"

/* True when a quick look shows that `text` (valid UTF-8) is in form C. */
bool nfc_is_plain(struct str text);
/* Appends the form C of `text` (valid UTF-8). */
void nfc_add(struct buf *buf, struct str text);
