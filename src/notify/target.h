/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* target: reads the URL of a receiver once, with the parser of the library that will fetch it, so
 * that checker and fetcher never disagree about what it says.
 *
 * What a name resolves to is not looked at here, since it may be another address a moment later:
 * delivery checks each address it is about to connect to (address.h).
 *
 * Thread: any.  Memory: the caller cleans the handle up with curl_url_cleanup. */

#include "base/err.h"
#include "base/str.h"

#include <curl/curl.h>

#define TARGET_URL_BYTES_MAX 2048

/* ERR_INVALID, with a sentence that does not repeat the URL, unless it is an https URL with a host,
 * without user or password, and not an address or a name that is known to be private.
 * `allow_private` lets those and plain http pass. *ret_handle may be NULL. */
enum err target_read(CURLU **ret_handle, struct str url, bool allow_private,
                     struct error *error) MUST_CHECK;
