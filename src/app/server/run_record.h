/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* run_record: what computes the answers of this process, as JSON for a manifest: the program, the
 * instruction set or the GPUs, the settings, the models with their files, and upstreams.
 *
 * It is made when the models are ready. The sums of large files take seconds, so they are added
 * once the work is done, to files that are still the same then.
 *
 *   {"quern": {"version", "sha256"}, "instructions": "avx512", "gpus": ["GPU-…"],
 *    "settings": ["--threads", "4"],
 *    "models": [{"names": [], "path", "chat_template_sha256",
 *                "files": [{"name", "bytes", "sha256"}]}],
 *    "aliases": {"NAME": "MODEL"}, "upstreams": [{"name", "url"}],
 *    "has_nodes": true,     lines may have run on other machines
 *    "on_demand": true}     models may have run that are not listed
 *
 * Thread: any.
 * Memory: the tree belongs to the caller. */

#include "json/json.h"
#include "node/node.h"

/* `settings`: a list of options and their values, or NULL. Files have `changed_ns` and `inode`
 * instead of a sum. */
json_t *run_record_make(struct node *node, const struct node_options *options,
                        const json_t *settings);
/* Gives each file of the record its sum; null for one that is another file by now. False if *stop
 * became true first; NULL is allowed. */
bool run_record_add_sums(json_t *record, const volatile bool *stop);
bool run_record_has_sums(const json_t *record);
/* Takes out what a sum makes needless. */
void run_record_drop_facts(json_t *record);
/* Appends a line of notes to a file, durably; makes the file. */
enum err run_record_append(const char *path, struct str line, struct error *error) MUST_CHECK;
/* Whether two records are equal but for the sums of models' files. */
bool run_record_is_same(const json_t *a, const json_t *b);
/* A text as a JSON string; bytes that are no UTF-8 become U+FFFD. */
json_t *run_record_text(const char *text);
