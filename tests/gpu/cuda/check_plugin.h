/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* check_device: a plugin of gpu/table.h is checked and timed through its table alone. Lines of
 * TAP are those of tap.h.
 *
 * Thread: one.
 * Memory: the plugin stays loaded to the end. */

#include "gpu/table.h"
#include "tap.h"

/* Ends the program unless OK. */
void must(enum err err, const struct error *error, const char *what);

/* Opens and warms up a GPU, or ends the program. */
void open_checked(const struct gpu_table *table, struct gpu_options options, struct gpu **ret_gpu);
void warm_checked(const struct gpu_table *table, struct gpu *gpu);
/* For runs under compute-sanitizer: from here on GPUs clear their memory, and warm_checked recalls
 * the choices that the file has and leaves new ones there. There need not be one yet. `path` lives
 * to the end. */
void notes_read(const char *path);

/* From here on so many GPUs compute together: the first ones, or the first one so many times.
 * are_in_host: their sums go through memory of the host. */
void ranks_want(uint32_t count, bool are_one, bool are_in_host);

struct world;
struct world_step;
struct world_traits;

/* Calls of the plugin that end the program unless they succeed. */
void submit_checked(struct world *world, const struct world_step *step,
                    const struct gpu_samples *samples);
void sample_checked(struct world *world, const struct gpu_samples *samples);
void wait_checked(struct world *world, uint64_t number, struct gpu_result *result);
/* For the first `count` wanted rows of the step waited for last; the caller frees them. */
float *logits_checked(struct world *world, uint32_t count);

/* The draws of this many steps. */
#define CHECK_DRAWS_STEPS 7u
void check_draws(struct world *world);

/* Steps of few rows as graphs and without. With is_refused the plugin must have refused graphs. */
void check_graphs(const struct gpu_table *table, const struct world_traits *traits,
                  uint64_t memory_bytes, bool is_refused);

/* What a GPU takes of a GPU's memory, for each of `count` traits. */
void check_ledger(const struct gpu_table *table, const struct world_traits *traits, size_t count,
                  uint64_t memory_bytes);

/* The same of the first of several GPUs, for one of the traits. */
void check_ledger_of_ranks(const struct gpu_table *table, const struct world_traits *traits,
                           uint32_t ranks, uint64_t memory_bytes);

/* The notes that a GPU tells after warm, recalled by others. */
void check_notes(const struct gpu_table *table, const struct world_traits *traits,
                 uint64_t memory_bytes);

/* Experts in the host's memory against the same ones in the GPU's, with the same choices. */
void check_away(const struct gpu_table *table, const struct world_traits *traits,
                uint64_t memory_bytes);

/* Encoders over whole texts. */
void check_texts(const struct gpu_table *table, uint64_t seed, uint64_t memory_bytes);

/* Milliseconds per step and the share of each kind of operation, for the shapes of models whose
 * names begin with `name`. */
void bench_gpu(const struct gpu_table *table, const char *name);
