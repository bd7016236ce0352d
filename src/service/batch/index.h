/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* index: where the requests of an input file are, and the order in which they run.
 *
 * The file is lines.idx next to a batch's segments; integers are little-endian (the machine's own
 * order). Validating the input file once more makes the same index again.
 *
 *   offset  size  field
 *        0     4  magic, "QIDX"
 *        4     4  version
 *        8     8  count of requests, n
 *       16     8  bytes of the input file
 *       24    32  SHA-256 of the input file
 *       56     4  CRC-32C of everything after the header
 *       60    64  zero
 *      124     4  CRC-32C of the 124 bytes before it
 *      128  16·n  entries, in the order of the input:
 *                   0  8  low 40 bits: offset of the line; high 24 bits: group
 *                   8  4  bytes of the line
 *                  12  4  number of the line in the file, from 1
 *            4·n  sums, in the order of the input: the CRC-32C of the bytes of the line
 *            4·n  places, in the order of running: the index of the request
 *
 * An index is valid if (1) magic, version and both checksums are right, (2) the SHA-256 is that of
 * the input file, (3) the file is as long as its count says, and (4) every entry lies in the input
 * file and every place names a request.
 *
 * The order is coarse. Requests stand together by model, then by url and by the first 256, 1024 and
 * 4096 bytes of their messages (or prompt, or input). Groups are in the order of their first
 * request. Models are in the order of their names, so that every file asks for its models in the
 * same order and a server that loads models on demand loads each once. Making the order needs no
 * model; engines that keep prefixes gain most by it. Requests with the same first 1024 bytes have
 * the same group number in every batch.
 *
 * A line that is read later is compared with its sum, so that a request which has rotted on the
 * disk since it was validated is not run.
 *
 * Thread: a builder belongs to one thread; an open index may be read by any.
 * Memory: a builder holds 12 bytes per request, 20 while sorting; an open index is mapped. */

#include "store/files.h"

struct index_entry {
    uint64_t offset;
    uint32_t bytes;
    uint32_t number;
    uint32_t crc; /* CRC-32C of the line's bytes; index_builder_get leaves it out */
};

struct index_builder;

#define INDEX_MODELS_MAX 16

/* A key in which equal beginnings have equal bits: 20 bits for each of the three lengths. */
uint64_t index_prefix_key(struct str model, struct str url, struct str prompt);

enum err index_builder_open(struct index_builder **ret_builder, const char *path,
                            struct error *error) MUST_CHECK;
/* Sets the model of the entries that follow. The INDEX_MODELS_MAXth name and those after it share
 * one rank: their requests may alternate. */
void index_builder_set_model(struct index_builder *builder, struct str model);
enum err index_builder_add(struct index_builder *builder, const struct index_entry *entry,
                           uint64_t prefix_key, struct error *error) MUST_CHECK;
/* Reads back an entry that was added before. */
enum err index_builder_get(struct index_builder *builder, uint64_t index,
                           struct index_entry *ret_entry, struct error *error) MUST_CHECK;
/* Writes order and header, syncs, and frees the builder, also on failure. */
enum err index_builder_finish(struct index_builder *builder, uint64_t file_bytes,
                              const unsigned char input_sha256[SHA256_BYTES],
                              struct error *error) MUST_CHECK;
void index_builder_abort(struct index_builder *builder); /* NULL is allowed */

/* Sorts requests into the coarse order: ret_order[place] is a request. Overwrites `keys`, whose
 * highest four bits are the rank of the model. */
void index_order(uint64_t *keys, uint32_t count, uint32_t *ret_order);

struct line_index;

/* ERR_CORRUPT if it is not a valid index of this file, ERR_NOT_FOUND if none exists. */
enum err index_open(struct line_index **ret_index, const char *path,
                    const unsigned char input_sha256[SHA256_BYTES], struct error *error) MUST_CHECK;
void index_close(struct line_index *index); /* NULL is allowed */
uint32_t index_count(const struct line_index *index);
struct index_entry index_entry(const struct line_index *index, uint32_t line);
uint32_t index_line_at(const struct line_index *index, uint32_t place);
/* The group of the request at this place: equal for equal beginnings in all batches, never 0. */
uint32_t index_group_at(const struct line_index *index, uint32_t place);
