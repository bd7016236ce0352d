/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* run_salts: the file next to a manifest of version 2 that has the salts of its sums over lines
 * (line_sum.h), and what was erased since. It has the form of a manifest (manifest.h):
 *
 *   {
 *     "object": "quern.salts",
 *     "version": 1,
 *     "manifest_sha256": "…",                 the manifest that it belongs to
 *     "salts": {"input": ["0 0 …"], "output": ["0 0 …"]},
 *     "erasures": [{"erased_at": 1796000000, "reason": "…", "requests": 1,
 *                   "files": {"input": ["7 LEAF"], "output": ["7 LEAF"]},
 *                   "others": [{"name": "judgements.jsonl", "lines": 2}]}],
 *     "signature": "…"
 *   }
 *
 * A file is known by its member in the manifest. The leaf of a line stands next to its number, from
 * 1. `others` are files that the manifest does not name. It is valid if (1) it is such a text, (2)
 * its salts are (line_salts.h), and (3) no line of a file was erased twice.
 *
 * Thread: one at a time; pure.
 * Memory: run_salts_release wipes and frees all. */

#include "proof/line_sum.h"
#include "proof/manifest.h"

#define RUN_SALTS_OBJECT "quern.salts"
#define RUN_SALTS_VERSION 1
#define RUN_SALTS_FILES_MAX 4 /* input, requests, output, rest */
#define RUN_SALTS_NAME_BYTES 16

struct run_salts_file {
    char what[RUN_SALTS_NAME_BYTES];
    struct line_salts salts;
    struct line_erased *erased; /* (erased_count) by all erasures, in the order of lines */
    size_t erased_count;
};

struct run_salts {
    struct run_salts_file files[RUN_SALTS_FILES_MAX];
    size_t file_count;
    json_t *erasures; /* a list */
    char manifest_sha256[SHA256_HEX_BYTES];
    bool is_signed;
    unsigned char public[SSH_PUBLIC_BYTES];
};

/* Takes the members `salts` and `erasures`, as they are in the file. ERR_CORRUPT if they are not
 * valid. After OK the caller releases it. */
enum err run_salts_take(struct run_salts *ret_salts, json_t *lists, json_t *erasures,
                        struct error *error) MUST_CHECK;
/* The path of the salts of a manifest. False if it is too long. */
bool run_salts_path(const char *manifest, char *ret_path, size_t bytes);
/* Salts of a new run, without a file. */
void run_salts_init(struct run_salts *salts);
/* Adds a file with new salts; `what` is its member in the manifest. */
struct run_salts_file *run_salts_add(struct run_salts *salts, const char *what);
/* NULL: there are no salts of such a file. */
struct run_salts_file *run_salts_find(struct run_salts *salts, const char *what);
void run_salts_release(struct run_salts *salts);

/* Takes the salts of lines out and notes their leaves; they are in the order of lines, and were not
 * erased before. */
void run_salts_erase(struct run_salts_file *file, const struct line_erased *lines, size_t count);
/* Appends the text; `key` NULL: without a signature. */
void run_salts_write(struct buf *out, const struct run_salts *salts, const struct ssh_key *key);
/* ERR_CORRUPT: it is damaged; ERR_INVALID: it is of a later version. After OK the caller releases
 * it. */
enum err run_salts_read(struct run_salts *ret_salts, struct str text,
                        struct error *error) MUST_CHECK;
/* Whether a text begins as such a file does. */
bool run_salts_is_one(struct str text);
/* {"input": ["7 LEAF"]} of the lines that one erasure takes out; the caller owns it. */
json_t *run_salts_lines_json(const struct line_erased *lines, size_t count);
