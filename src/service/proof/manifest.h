/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* manifest: what a run was made of, as a small signed file: the sums of its input, models, template
 * and output, its settings, the program and what it computed on.
 *
 * A manifest is a JSON object with its members on lines of their own, two spaces before each. The
 * last member is the signature of all others (ssh_signature.h):
 *
 *   {
 *     "object": "quern.manifest",
 *     "version": 2,
 *     …
 *     "signature": "-----BEGIN SSH SIGNATURE-----\n…"
 *   }
 *
 * What is signed is the text without that line and without the comma before it, which
 * `jq 'del(.signature)'` prints. A manifest is valid if (1) it is such a text, of no more than
 * MANIFEST_BYTES_MAX, (2) no object in it has two members of one name, (3) the first two members
 * are those above, and (4) a signature, if there is one, is of the text.
 *
 * Version 2 has the sums of input and output over their lines (line_sum.h), whose salts are in a
 * file of their own (run_salts.h). Version 1 has the sums of whole files: older runs and batches
 * have it, and batches whose sums over lines could not be made.
 *
 * Thread: any; pure.
 * Memory: the tree belongs to the caller. */

#include "json/json.h"
#include "proof/ssh_key.h"

#define MANIFEST_OBJECT "quern.manifest"
#define MANIFEST_VERSION 2
#define MANIFEST_VERSION_OF_FILES 1 /* with the sums of whole files */
#define MANIFEST_BYTES_MAX ((size_t)16 << 20)
#define MANIFEST_NAME "%s.manifest.json" /* for printf, of an output */

struct manifest {
    json_t *content; /* an object, without the signature */
    bool is_signed;
    unsigned char public[SSH_PUBLIC_BYTES]; /* the signer */
};

/* Appends the text of the content, signed; `key` NULL: without a signature. */
void manifest_write(struct buf *out, const json_t *content, const struct ssh_key *key);
/* ERR_CORRUPT: it is no valid manifest. ERR_INVALID: it is of a later version. After OK the caller
 * releases it. */
enum err manifest_read(struct manifest *ret_manifest, struct str text,
                       struct error *error) MUST_CHECK;
/* As manifest_read, for a text of the same form that is another object. */
enum err manifest_read_as(struct manifest *ret_manifest, const char *object, int version_max,
                          struct str text, struct error *error) MUST_CHECK;
bool manifest_begins_as(struct str text, const char *object);
void manifest_release(struct manifest *manifest);
/* Whether a text begins as a manifest does. */
bool manifest_is_one(struct str text);
