/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gcp_name: the name of a secret in Google Cloud's Secret Manager, as a place may have it.
 *
 *     gcp-secret://projects/P/secrets/S/versions/V
 *
 *     P  a project's id (6 to 30 lower-case letters, digits and hyphens) or its number
 *     S  1 to 255 letters, digits, hyphens and underscores
 *     V  a version's number, `latest`, or an alias (at most 63 letters, digits, hyphens and
 *        underscores, a letter first)
 *
 * Only names by these rules become part of a URL.
 *
 * Thread: any; pure.
 * Memory: the caller's buffer. */

#include "base/err.h"

#include <stdbool.h>

#define GCP_NAME_SCHEME "gcp-secret://"
#define GCP_NAME_BYTES 400 /* the longest name has 377 characters */

/* Whether a place is meant as such a name. */
bool gcp_name_is(const char *place);
/* Writes the resource's name, which begins with "projects/". ERR_INVALID with the rule that the
 * place breaks. */
enum err gcp_name_read(const char *place, char ret_name[GCP_NAME_BYTES],
                       struct error *error) MUST_CHECK;
