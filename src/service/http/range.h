/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* range: which bytes of a stored file a GET asks for (RFC 9110 §13, §14): Range with one range,
 * If-Range and If-None-Match against a strong entity tag.
 *
 * Thread: any; pure.
 * Memory: none. */

#include "base/str.h"

enum range_answer {
    RANGE_WHOLE,         /* 200 */
    RANGE_PART,          /* 206 */
    RANGE_UNSATISFIABLE, /* 416 */
    RANGE_NOT_MODIFIED,  /* 304 */
};

struct range {
    uint64_t offset;
    uint64_t bytes;
};

/* Decides the answer. Absent headers are empty strs; `etag` has its quotes. It ignores a Range that
 * is malformed, has another unit or names several ranges, as the RFC allows. */
enum range_answer range_read(struct str range, struct str if_range, struct str if_none_match,
                             struct str etag, uint64_t file_bytes, struct range *ret_range);
