/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* attention_latent: attention over entries that all heads share (kernels/latent.h), decode and
 * tiles alike.
 *
 * A block has 16 queries, as in attention_wide.cuh, whose work it does: here all heads of a row
 * read the same entries, so the queries are heads. An entry has room for 512 + 64 numbers in shared
 * memory; those of smaller ones are filled with zeros there, and not in the cache. It is read once,
 * for its score and for the sum: scores are of all its numbers, 144 for each warp, and sums of the
 * first 512, of which each warp has 128 columns.
 *
 * Copies, page p of a ring of three:
 *   wait for page p, meet | ask for page p + 2 | parts of the scores, meet | softmax | sums
 * so nothing is asked for into a page before the meeting that follows its last reader.
 *
 * More than 16 heads of a row are more blocks, each of which reads the entries, from the L2 but for
 * the first. */

#include "gpu/cuda/attention_wide.cuh"

#define LATENT_ROOM (CUDA_LATENT_RANK + CUDA_LATENT_TURNED)
#define LATENT_PAGES 3

using latent_page = cuda_page<CUDA_KV_BF16, LATENT_ROOM, true>;

struct latent_memory {
    char queries[WIDE_ROWS * latent_page::ROW_BYTES];
    char entries[LATENT_PAGES][latent_page::BYTES];
    float parts[WIDE_WARPS][WIDE_ROWS][CUDA_PAGE_TOKENS]; /* parts of scores */
    struct wide_query rows[WIDE_ROWS];
};

/* Numbers of an entry, or of a query. */
__device__ static inline uint32_t latent_dim(const struct cuda_attention *call) {
    return call->head_dim + call->turned_dim;
}

/* Where in an entry a chunk of the room begins, in bytes; false: the entry has no such numbers. */
__device__ static inline bool latent_chunk(const struct cuda_attention *call, uint32_t chunk,
                                           uint32_t *ret_at) {
    const bool is_value = chunk < CUDA_LATENT_RANK / 8;
    const uint32_t at = (is_value ? chunk : chunk - CUDA_LATENT_RANK / 8) * 8;
    *ret_at = (is_value ? at : call->head_dim + at) * 2;
    return at < (is_value ? call->head_dim : call->turned_dim);
}

/* Asks for a page; what no row of the block sees, and what entries do not have, becomes zero. */
__device__ static inline void latent_fetch(const struct wide_work *work,
                                           const struct cuda_attention *call, int page, char *to) {
    const int begin = work->begin - page * CUDA_PAGE_TOKENS;
    const int end = work->end - page * CUDA_PAGE_TOKENS;
    if (end > 0) {
        const char *from = work->keys + (size_t)__ldg(work->pages + page) * work->page_bytes;
        const uint32_t shared = cuda_shared_address(to), row_bytes = latent_dim(call) * 2;
#pragma unroll
        for (int i = 0; i < latent_page::BYTES / 16; i += WIDE_THREADS) {
            const uint32_t index = i + threadIdx.x;
            const uint32_t row = index / latent_page::CHUNKS, chunk = index % latent_page::CHUNKS;
            uint32_t at;
            const bool is_there = latent_chunk(call, chunk, &at);
            cuda_copy16_if(shared + latent_page::place(row, chunk),
                           from + (is_there ? row * row_bytes + at : 0),
                           is_there && (int)row >= begin && (int)row < end);
        }
    }
    cuda_copy_commit();
}

/* The queries of the block's rows; zero where there is none. */
__device__ static inline void latent_queries(const struct cuda_attention *call,
                                             struct latent_memory *memory) {
    for (uint32_t i = threadIdx.x; i < WIDE_ROWS * latent_page::CHUNKS; i += WIDE_THREADS) {
        const uint32_t row = i / latent_page::CHUNKS, chunk = i % latent_page::CHUNKS;
        const struct wide_query *query = &memory->rows[row];
        uint4 x = make_uint4(0, 0, 0, 0);
        uint32_t at;
        if (latent_chunk(call, chunk, &at) && query->first != INT32_MAX)
            x = __ldcg((const uint4 *)((const char *)call->q +
                                       (query->row * call->q_stride +
                                        (size_t)query->head * latent_dim(call)) *
                                           2 +
                                       at));
        *(uint4 *)(memory->queries + latent_page::place(row, chunk)) = x;
    }
}

__device__ static inline void latent_step(struct wide_work *work, const struct cuda_attention *call,
                                          const struct cuda_scoring *scoring,
                                          struct latent_memory *memory, int page) {
    const char *entries = memory->entries[page % LATENT_PAGES];
    float s[2][4];
    uint32_t weights[4];
    cuda_copy_wait<1>();
    __syncthreads();
    latent_fetch(work, call, page + 2, memory->entries[(page + 2) % LATENT_PAGES]);
    wide_parts<latent_page>(work, memory, entries);
    __syncthreads();
    wide_scores(work, scoring, memory, page, s);
    wide_raise(work, scoring, s);
    wide_weigh(work, scoring, s, weights);
    wide_sums<latent_page>(work, entries, weights);
}

/* The block's rows stand in memory->rows, and all threads have met behind that. */
__device__ static inline void latent_run(const struct cuda_attention *call, const uint32_t *pages,
                                         struct latent_memory *memory) {
    const struct cuda_scoring scoring = cuda_scoring_of<latent_page>(call);
    struct wide_work work = {};
    work.lane = threadIdx.x % 32, work.warp = threadIdx.x / 32;
    work.keys = (const char *)call->k;
    work.page_bytes = CUDA_PAGE_TOKENS * latent_dim(call) * 2;
    work.pages = pages;
    wide_begin(&work, memory);
    cuda_attention_begin(call);
    latent_queries(call, memory);
    if (work.begin < work.end) {
        int page = work.begin / CUDA_PAGE_TOKENS;
        latent_fetch(&work, call, page, memory->entries[page % LATENT_PAGES]);
        latent_fetch(&work, call, page + 1, memory->entries[(page + 1) % LATENT_PAGES]);
        for (; page * CUDA_PAGE_TOKENS < work.end; page++)
            latent_step(&work, call, &scoring, memory, page);
    }
    wide_end<true>(&work, call, memory);
}
