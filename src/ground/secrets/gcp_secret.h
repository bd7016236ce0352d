/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gcp_secret: one read of a secret in Google Cloud's Secret Manager.
 *
 * The machine's metadata server gives a token of its service account; with this token Secret
 * Manager gives the version's bytes, which are compared with their CRC-32C. No client's URL ever
 * leads to the metadata server: this is the one request that goes there.
 *
 *     the metadata server  169.254.169.254, or $GCE_METADATA_HOST; plain HTTP, never by a proxy
 *     Secret Manager       https://secretmanager.googleapis.com/, or
 *                          $CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER, which may be plain HTTP
 *                          for a loopback address only; by the proxy of the environment
 *
 * No redirect is followed. An answer of 429 or 5xx, no answer, and a damaged answer are asked for
 * again, at most 3 times within 30 s. A refused token is replaced once.
 *
 * Thread: main; waits.
 * Memory: token and answer lie in buffers that never move and are wiped. Buffers inside libcurl
 * and OpenSSL are theirs. */

#include "base/err.h"

#include <stddef.h>

/* Reads the version that `place` names (gcp_name.h). The caller wipes and frees *ret_text, which
 * ends in NUL. The sentence of an error has the resource's name and no byte of an answer.
 *
 *     ERR_INVALID      the name, a variable or an answer has another form; a redirect
 *     ERR_NOT_FOUND    no such secret or version
 *     ERR_DENIED       the service account may not read it, or a certificate is not trusted
 *     ERR_LIMIT        an answer is too long
 *     ERR_CORRUPT      the bytes do not have their CRC
 *     ERR_UNAVAILABLE  all other failures, which may pass */
enum err gcp_secret_read(const char *place, char **ret_text, size_t *ret_bytes,
                         struct error *error) MUST_CHECK;
