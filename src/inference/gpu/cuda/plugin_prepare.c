/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/plugin_walk.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

static uint32_t round_up(uint32_t value, uint32_t to) {
    return (value + to - 1) / to * to;
}

static size_t largest(size_t a, size_t b) {
    return a > b ? a : b;
}

/* ---- buffers ---- */

static size_t codes_bytes(const struct gpu_program *program) {
    size_t most = program->pools ? program->width * form_bytes(GPU_BF16) : 0;
    for (uint32_t i = 0; i < program->matrix_count; i++)
        most = largest(most, program->matrices[i].cols * form_bytes(program->matrices[i].form));
    return most;
}

/* The largest matrix that is unpacked before its products, or what blocks of products with few rows
 * leave for each other. */
static size_t unpacked_bytes(const struct gpu_program *program) {
    size_t most = 0;
    for (uint32_t i = 0; i < program->matrix_count; i++) {
        const struct gpu_matrix *matrix = &program->matrices[i];
        if (matrix->form != GPU_BLOCKS || matrix->grouping != GROUPED_NOT) continue;
        const size_t bytes =
            (size_t)round_up(matrix->rows, PRODUCT_ALIGN) * matrix->cols * form_bytes(GPU_BF16);
        most = largest(most, largest(bytes, grouped_room_bytes(matrix->rows, matrix->cols)));
    }
    return most;
}

/* Rows between the last one of a matrix and the padded ones are zero before the first product and
 * whatever a larger matrix had there later: numbers all the same, and nobody reads their sums. */
static void place_unpacked(struct layout *layout) {
    const size_t bytes = unpacked_bytes(layout->program);
    if (bytes == 0) return;
    layout->gpu->unpacked = memory_take(&layout->memory, MEMORY_ACTIVATIONS, bytes);
    if (layout->gpu->unpacked && layout->code == cudaSuccess)
        layout->code = cudaMemset(layout->gpu->unpacked, 0, bytes);
}

static void place_buffers(struct layout *layout) {
    struct gpu *gpu = layout->gpu;
    const struct gpu_program *program = layout->program;
    const struct gpu_limits *limits = &gpu->limits;
    struct memory *memory = &layout->memory;
    const size_t rows = gpu->row_bucket, kept = gpu->logit_bucket;
    const size_t q_width =
        largest((size_t)program->heads * program->head_dim, program->recurrent.width);
    const size_t partials = (size_t)limits->partials_max * program->heads;
    enum memory_part part = MEMORY_ACTIVATIONS;
    gpu->x = memory_take(memory, part, rows * program->width * sizeof(float));
    gpu->x_kept = memory_take(memory, part, kept * program->width * sizeof(float));
    gpu->h_bytes = rows * product_bytes(program, TO_H);
    gpu->wide_bytes =
        rows * largest(product_bytes(program, TO_WIDE), product_bytes(program, TO_INPUTS));
    gpu->narrow_bytes = rows * product_bytes(program, TO_NARROW);
    gpu->narrow = memory_take(memory, part, gpu->narrow_bytes);
    gpu->h = memory_take(memory, part, gpu->h_bytes);
    gpu->wide = memory_take(memory, part, gpu->wide_bytes);
    gpu->q_bytes = rows * q_width * 2;
    gpu->q_kept_bytes = kept * q_width * 2;
    gpu->q = memory_take(memory, part, gpu->q_bytes);
    gpu->q_kept = memory_take(memory, part, gpu->q_kept_bytes);
    gpu->attended = memory_take(memory, part, gpu->q_bytes);
    gpu->codes = memory_take(memory, part, rows * codes_bytes(program));
    for (int i = 0; i < 2; i++)
        gpu->row_scales[i] = memory_take(memory, part, rows * sizeof(float));
    gpu->partial_o = memory_take(memory, part, partials * program->head_dim * sizeof(float));
    gpu->partial_ml = memory_take(memory, part, partials * 2 * sizeof(float));
    gpu->last_token = memory_take(memory, part, limits->sequences_max * sizeof(int32_t));
}

/* ---- steps ---- */

static size_t align_16(size_t bytes) {
    return (bytes + 15) / 16 * 16;
}

static size_t tokens_bytes(const struct gpu_limits *limits) {
    return align_16(((size_t)limits->logit_rows_max + 1) * sizeof(int32_t));
}

static size_t answers_bytes(const struct gpu_program *program, const struct gpu_limits *limits) {
    return program->pools ? (size_t)limits->sequences_max * program->width * sizeof(float)
                          : limits->logit_rows_max * sizeof(struct gpu_answer);
}

static size_t results_bytes(const struct gpu_program *program, const struct gpu_limits *limits) {
    return tokens_bytes(limits) + answers_bytes(program, limits) +
           limits->named_max * sizeof(float);
}

static struct results results_at(const struct gpu_program *program, const struct gpu_limits *limits,
                                 char *at) {
    char *answers = at + tokens_bytes(limits);
    char *named = answers + answers_bytes(program, limits);
    return (struct results){.tokens = (void *)at,
                            .answers = program->pools ? NULL : (void *)answers,
                            .named = (void *)named,
                            .vectors = program->pools ? (void *)answers : NULL};
}

static void place_flights(struct layout *layout) {
    struct gpu *gpu = layout->gpu;
    const struct gpu_limits *limits = &gpu->limits;
    const size_t rows = limits->logit_rows_max, vocab = layout->program->vocab_rows;
    struct memory *memory = &layout->memory;
    for (uint32_t i = 0; i < limits->steps_max; i++) {
        struct flight *flight = &gpu->flights[i];
        flight->block.room = step_block_bytes(layout->program, limits);
        flight->block.card = memory_take(memory, MEMORY_STEPS, flight->block.room);
        char *card = memory_take(memory, MEMORY_STEPS, results_bytes(layout->program, limits));
        if (card) flight->card = results_at(layout->program, limits, card);
        flight->logits = memory_take(memory, MEMORY_LOGITS,
                                     gpu->logit_bucket * gpu->logit_stride * sizeof(float));
        flight->stats = memory_take(memory, MEMORY_LOGITS, rows * sizeof(struct cuda_stat));
    }
    gpu->stats_partial = memory_take(memory, MEMORY_LOGITS,
                                     cuda_sample_partial_bytes((uint32_t)rows, (uint32_t)vocab));
    gpu->kept = memory_take(memory, MEMORY_LOGITS, limits->edits_max * sizeof(float));
    for (int i = 0; i < FILL_SLICES; i++)
        gpu->fill_card[i] = memory_take(memory, MEMORY_WORKSPACE, gpu->fill_bytes);
}

/* Pinned memory and events. Results begin as zeros on both sides: a fetch copies all rows of a
 * step, some of which later calls draw, and whole answers. */
static cudaError_t make_flights(struct gpu *gpu) {
    const struct gpu_limits *limits = &gpu->limits;
    cudaError_t code = cudaSuccess;
    for (uint32_t i = 0; i < limits->steps_max && code == cudaSuccess; i++) {
        struct flight *flight = &gpu->flights[i];
        void *results = NULL;
        code = cudaMemset(flight->card.tokens, 0, results_bytes(&gpu->program, limits));
        if (code == cudaSuccess)
            code = cudaHostAlloc((void **)&flight->block.host, flight->block.room, 0);
        if (code == cudaSuccess)
            code = cudaHostAlloc(&results, results_bytes(&gpu->program, limits), 0);
        if (code == cudaSuccess) {
            memset(results, 0, results_bytes(&gpu->program, limits));
            flight->host = results_at(&gpu->program, limits, results);
            code = cudaEventCreate(&flight->begun);
        }
        if (code == cudaSuccess) code = cudaEventCreate(&flight->ended);
        if (code == cudaSuccess)
            code = cudaEventCreateWithFlags(&flight->done,
                                            cudaEventBlockingSync | cudaEventDisableTiming);
        if (!gpu->is_measuring || code != cudaSuccess) continue;
        flight->op_ended = calloc(gpu->program.op_count, sizeof *flight->op_ended);
        if (!flight->op_ended) return cudaErrorMemoryAllocation;
        for (uint32_t k = 0; k < gpu->program.op_count && code == cudaSuccess; k++)
            code = cudaEventCreate(&flight->op_ended[k]);
    }
    for (int i = 0; i < FILL_SLICES && code == cudaSuccess; i++) {
        code = cudaHostAlloc((void **)&gpu->fill_host[i], gpu->fill_bytes, 0);
        if (code == cudaSuccess)
            code = cudaEventCreateWithFlags(&gpu->fill_done[i], cudaEventDisableTiming);
    }
    return code;
}

/* ---- the KV cache ---- */

static size_t place_bytes(const struct gpu_program *program, enum gpu_form form) {
    return (size_t)gpu_kv_width(program) * GPU_PAGE_TOKENS * form_bytes(form);
}

/* The most heads that a page has room for. */
static uint32_t page_heads_most(const struct gpu_program *program) {
    uint32_t most = gpu_kv_width(program) / program->head_dim;
    for (uint32_t i = 0; i < program->op_count; i++)
        if (program->ops[i].kind == OP_ATTENTION)
            most = (uint32_t)largest(most, gpu_page_heads(program, &program->ops[i]));
    return most;
}

/* A page has so many at a place for layers with heads of any size: they may share the place. */
static size_t scales_bytes(const struct gpu_program *program, enum gpu_form form) {
    return form == GPU_BF16 ? 0 : (size_t)page_heads_most(program) * 2 * GPU_PAGE_TOKENS * 2;
}

static void place_cache(struct layout *layout) {
    struct gpu *gpu = layout->gpu;
    const enum gpu_form form = gpu->limits.kv_form;
    const size_t pages = gpu->page_count, each = place_bytes(layout->program, form);
    const size_t scales = scales_bytes(layout->program, form);
    gpu->scale_heads = page_heads_most(layout->program);
    for (uint32_t i = 0; i < gpu->limits.layer_places; i++) {
        struct card_place *at = &gpu->places[i];
        at->k = memory_take(&layout->memory, MEMORY_KV, pages * each);
        if (gpu_kv_planes(layout->program) > 1)
            at->v = memory_take(&layout->memory, MEMORY_KV, pages * each);
        if (scales > 0) at->scales = memory_take(&layout->memory, MEMORY_KV, pages * scales);
    }
    const struct card_place *place = gpu->places;
    gpu->pages = (struct cuda_pages){.k = place->k,
                                     .v = place->v,
                                     .scales = place->scales,
                                     .places = gpu->limits.layer_places,
                                     .bytes = (uint32_t)each,
                                     .scale_bytes = (uint32_t)scales};
    /* Each place takes the same, so all are as far from each other as the first two. */
    for (uint32_t i = 1; i < gpu->limits.layer_places; i++) {
        size_t stride = (uintptr_t)place[i].k - (uintptr_t)place[i - 1].k;
        assert(i == 1 || stride == gpu->pages.place_stride);
        gpu->pages.place_stride = stride;
    }
}

/* ---- prepare ---- */

static void lay_out(struct layout *layout) {
    vectors_place(layout);
    place_buffers(layout);
    place_unpacked(layout);
    ranks_place(layout->gpu, layout->program, &layout->memory, &layout->code);
    grouped_place(layout);
    experts_place(layout->gpu, layout->program, &layout->memory);
    unfold_place(layout->gpu, layout->program);
    side_place(layout->gpu, layout->program, &layout->memory);
    recurrent_place(layout->gpu, layout->program, &layout->memory);
    place_flights(layout);
    place_cache(layout);
}

/* The ledger of a layout with the cache's pages. */
static void tell(const struct gpu *gpu, const struct memory *memory, size_t page_bytes,
                 struct memory_ledger *ret_ledger) {
    const size_t *parts = memory->parts;
    *ret_ledger = (struct memory_ledger){
        .limit = gpu->context_bytes + WORKSPACE_BYTES + gpu->memory.room,
        .used = gpu->context_bytes + WORKSPACE_BYTES + memory->used,
        .context = gpu->context_bytes,
        .weights = parts[MEMORY_WEIGHTS],
        .activations = parts[MEMORY_ACTIVATIONS],
        .logits = parts[MEMORY_LOGITS],
        .steps = parts[MEMORY_STEPS],
        .workspace = parts[MEMORY_WORKSPACE] + WORKSPACE_BYTES,
        .states = parts[MEMORY_STATES],
        .kv = parts[MEMORY_KV],
        .page_bytes = page_bytes,
        .state_bytes = recurrent_state_bytes(gpu),
        .page_count = gpu->page_count,
        .state_places = gpu->limits.state_places,
    };
}

static unsigned long long mib(uint64_t bytes) {
    return (bytes + MIB - 1) / MIB;
}

static enum err refuse(const struct memory_ledger *ledger, struct error *error) {
    return err_set(
        error, ERR_LIMIT,
        "the model needs %llu MiB of the GPU's memory and may have %llu: weights %llu, "
        "buffers %llu, logits %llu, steps %llu, workspace %llu, driver %llu, states %llu, "
        "and the least KV cache %llu (%u pages)",
        mib(ledger->used), mib(ledger->limit), mib(ledger->weights), mib(ledger->activations),
        mib(ledger->logits), mib(ledger->steps), mib(ledger->workspace), mib(ledger->context),
        mib(ledger->states), mib(ledger->kv), ledger->page_count);
}

static enum err set_sizes(struct gpu *gpu, const struct gpu_program *program,
                          const struct gpu_limits *limits, struct error *error) {
    gpu->program = *program;
    gpu->limits = *limits;
    gpu->logit_matrix = GPU_NONE;
    gpu->row_bucket = row_bucket(limits->rows_max);
    gpu->logit_bucket = row_bucket(limits->logit_rows_max);
    gpu->logit_stride = round_up(program->vocab_rows, PRODUCT_ALIGN);
    size_t row_bytes = 0;
    for (uint32_t i = 0; i < program->matrix_count; i++)
        row_bytes = largest(row_bytes, program->matrices[i].cols * sizeof(float));
    gpu->fill_bytes = largest(FILL_BYTES, row_bytes);
    if (program->matrix_count == 0 || program->op_count == 0 || limits->layer_places == 0)
        return err_set(error, ERR_INVALID, "a program of %u operations over %u matrices",
                       program->op_count, program->matrix_count);
    gpu->matrices = calloc(program->matrix_count, sizeof *gpu->matrices);
    gpu->ops = calloc(program->op_count, sizeof *gpu->ops);
    gpu->places = calloc(limits->layer_places, sizeof *gpu->places);
    gpu->unfold.owners = calloc(limits->rows_max, sizeof *gpu->unfold.owners);
    gpu->unfold.runs = calloc(limits->rows_max, sizeof *gpu->unfold.runs);
    if (gpu->matrices && gpu->ops && gpu->places && gpu->unfold.owners && gpu->unfold.runs)
        return OK;
    return err_set(error, ERR_LIMIT, "no memory for a program");
}

/* Forgets the program, so that another may be prepared. */
static void drop_sizes(struct gpu *gpu) {
    free(gpu->matrices);
    free(gpu->ops);
    free(gpu->places);
    free(gpu->unfold.owners);
    free(gpu->unfold.runs);
    gpu->matrices = NULL;
    gpu->ops = NULL;
    gpu->places = NULL;
    gpu->unfold.owners = NULL;
    gpu->unfold.runs = NULL;
}

enum err prepare_one(struct gpu *gpu, const struct gpu_program *program,
                     const struct gpu_limits *limits, struct memory_ledger *ret_ledger,
                     struct error *error) {
    assert(!gpu->is_prepared && !gpu->ops);
    enum err err = program_check(program, limits, error);
    if (err == OK) err = set_sizes(gpu, program, limits, error);
    if (err == OK) err = away_choose(gpu, program, error);
    if (err != OK) return err;
    const size_t page_bytes =
        limits->layer_places * (gpu_kv_planes(program) * place_bytes(program, limits->kv_form) +
                                scales_bytes(program, limits->kv_form));
    struct layout counted = {.gpu = gpu, .program = program};
    gpu->page_count = limits->page_count_min;
    lay_out(&counted);
    tell(gpu, &counted.memory, page_bytes, ret_ledger);
    ret_ledger->away = counted.host.used;
    if (counted.memory.used > gpu->memory.room) {
        drop_sizes(gpu);
        return refuse(ret_ledger, error);
    }
    /* Pools of pages begin at multiples: the least layout has the same gaps. */
    size_t left = gpu->memory.room - counted.memory.used;
    uint64_t pages = limits->page_count_min;
    size_t gaps = (size_t)limits->layer_places * 3 * 256;
    if (left > gaps) pages += (left - gaps) / page_bytes;
    gpu->page_count = pages < limits->page_count_max ? (uint32_t)pages : limits->page_count_max;
    if (gpu->page_count < limits->page_count_min) gpu->page_count = limits->page_count_min;
    err = away_open(gpu, counted.host.used, error);
    if (err != OK) {
        drop_sizes(gpu);
        return err;
    }
    struct layout placed = {.gpu = gpu,
                            .program = program,
                            .memory = gpu->memory,
                            .host = {.base = gpu->away.host, .room = counted.host.used}};
    lay_out(&placed);
    gpu->memory = placed.memory;
    tell(gpu, &placed.memory, page_bytes, ret_ledger);
    ret_ledger->away = placed.host.used;
    if (placed.code == cudaSuccess) placed.code = make_flights(gpu);
    /* A copy from plain memory returns before the GPU has it. */
    if (placed.code == cudaSuccess) placed.code = cudaDeviceSynchronize();
    gpu->program.ops = NULL, gpu->program.matrices = NULL;
    gpu->program.frequencies[0] = gpu->program.frequencies[1] = NULL;
    gpu->is_prepared = placed.code == cudaSuccess;
    return gpu->is_prepared ? OK : card_error(placed.code, error, "laying out the program");
}
