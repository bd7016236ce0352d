/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* index: where the requests of an input file are, and the order in which they run; lines.idx beside
 * a batch's segments. It can be made again from the file by validating it once more.
 *
 *   header of 128 bytes: 0 magic u32 "QIDX" | 4 version u32 | 8 count u64 | 16 file bytes u64
 *   24 input sha256 | 56 crc32c u32 of what follows the header | 60 zero | 124 crc32c u32 of the
 * 124 bytes before it count entries of 16 bytes: offset in the low 40 bits of a u64, group in the
 * high 24 | bytes u32 | number u32 (of the line in the file, from 1) count places of 4 bytes: the
 * index of the request that runs at this place
 *
 * The order is coarse: requests whose messages (or prompt, or input) begin with the same bytes
 * stand together, by their first 256, 1024 and 4096 bytes, with the same model and url; groups are
 * in the order of their first request. Before all that stands the model, by its name, so that a
 * file, and several of them, ask for one model after the other: what loads models on demand then
 * loads each once. It needs no model, and is worth most to engines that keep
 * prefixes. Requests that agree in the first 1024 bytes have the same group number in every batch.
 *
 * Thread: a builder belongs to one; an open index may be read by any.  Memory: a builder holds 8
 * bytes a request, 16 while sorting; an open index is mapped. */

#include "store/files.h"

struct index_entry {
    uint64_t offset;
    uint32_t bytes;
    uint32_t number;
};

struct index_builder;

#define INDEX_MODELS_MAX 16

/* Where equal beginnings have equal bits: 20 bits for each of the three lengths. */
uint64_t index_prefix_key(struct str model, struct str url, struct str prompt);

enum err index_builder_open(struct index_builder **ret_builder, const char *path,
                            struct error *error) MUST_CHECK;
/* The model of the entries that are added from now on. Names from the INDEX_MODELS_MAXth on stand
 * among each other. */
void index_builder_set_model(struct index_builder *builder, struct str model);
enum err index_builder_add(struct index_builder *builder, const struct index_entry *entry,
                           uint64_t prefix_key, struct error *error) MUST_CHECK;
/* An entry that was added before. */
enum err index_builder_get(struct index_builder *builder, uint64_t index,
                           struct index_entry *ret_entry, struct error *error) MUST_CHECK;
/* Writes order and header, syncs; the builder is gone whatever is returned. */
enum err index_builder_finish(struct index_builder *builder, uint64_t file_bytes,
                              const unsigned char input_sha256[SHA256_BYTES],
                              struct error *error) MUST_CHECK;
void index_builder_abort(struct index_builder *builder); /* NULL is allowed */

/* Sorts places into the coarse order: ret_order[place] is a request. Overwrites `keys`, of which
 * the highest four bits are the rank of the model. */
void index_order(uint64_t *keys, uint32_t count, uint32_t *ret_order);

struct line_index;

/* ERR_CORRUPT when it is not the index of this file, ERR_NOT_FOUND when there is none. */
enum err index_open(struct line_index **ret_index, const char *path,
                    const unsigned char input_sha256[SHA256_BYTES], struct error *error) MUST_CHECK;
void index_close(struct line_index *index); /* NULL is allowed */
uint32_t index_count(const struct line_index *index);
struct index_entry index_entry(const struct line_index *index, uint32_t line);
uint32_t index_line_at(const struct line_index *index, uint32_t place);
/* The group of the request at this place: equal for equal beginnings, in all batches; never 0. */
uint32_t index_group_at(const struct line_index *index, uint32_t place);
