/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* listing: one page of S3's list of objects (ListObjectsV2), read from its XML.
 *
 * A page ends with a token that asks for the next one. Keys that do not begin with the wanted
 * prefix are passed over: a storage that ignores it would else give those of others.
 *
 * Thread: any.
 * Memory: none; a key is on the reader's stack while `each` has it.
 * Invariant: the bytes are read a fixed number of times. */

#include "s3/s3.h"

/* Calls `each` with what follows the prefix in each key of the page. *ret_token is empty on the
 * last page. ERR_CORRUPT for an answer that is no such page. */
enum err s3_listing_read(struct str xml, const char *prefix, s3_name_fn each, void *context,
                         char ret_token[S3_TOKEN_BYTES], struct error *error) MUST_CHECK;
