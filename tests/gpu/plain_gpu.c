/* SPDX-License-Identifier: Apache-2.0 */
#include "plain_gpu.h"

#include "base/clock.h"
#include "base/mem.h"
#include "plain_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const call_names[PLAIN_CALLS] = {"list", "open",   "prepare", "fill",
                                                    "warm", "trial",  "submit",  "sample",
                                                    "wait", "logits", "run_op",  "counters"};
static const char *const fault_names[] = {"none", "error", "hang", "lost", "nan"};

_Noreturn void plain_refuse(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)fputs("plain device: ", stderr);
    (void)vfprintf(stderr, format, arguments);
    (void)fputc('\n', stderr);
    va_end(arguments);
    abort();
}

/* ---- memory ---- */

void *plain_new(struct plain_heap *heap, size_t count, size_t item_bytes) {
    heap->at = vec_grow(heap->at, heap->count, &heap->capacity, sizeof *heap->at);
    return heap->at[heap->count++] = mem_new(count ? count : 1, item_bytes);
}

void *plain_copy(struct plain_heap *heap, const void *from, size_t count, size_t item_bytes) {
    if (!from || count == 0) return NULL;
    return memcpy(plain_new(heap, count, item_bytes), from, count * item_bytes);
}

void plain_heap_release(struct plain_heap *heap) {
    for (size_t i = 0; i < heap->count; i++) free(heap->at[i]);
    free(heap->at);
    *heap = (struct plain_heap){0};
}

/* ---- environment and faults ---- */

static uint64_t number_of(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static uint64_t memory_of_card(void) {
    return number_of("QUERN_PLAIN_MEMORY_MIB", 4096) << 20;
}

/* The index of the name that ends at the next ":" or the end; *at moves behind it. */
static uint32_t index_of(const char **at, const char *const *names, uint32_t count) {
    size_t bytes = strcspn(*at, ":");
    uint32_t index = 0;
    while (index < count && (strlen(names[index]) != bytes || memcmp(names[index], *at, bytes)))
        index++;
    *at += bytes + ((*at)[bytes] == ':');
    return index;
}

static struct plain_fault fault_of_environment(void) {
    struct plain_fault fault = {.kind = FAULT_NONE};
    const char *text = getenv("QUERN_PLAIN_FAULT"), *at = text;
    if (!text || !*text) return fault;
    uint32_t call = index_of(&at, call_names, PLAIN_CALLS);
    char *end = NULL;
    fault.call = (enum plain_call)call;
    fault.number = (uint32_t)strtoul(at, &end, 10);
    at = end + (*end == ':');
    uint32_t kind = index_of(&at, fault_names, 5);
    fault.kind = (enum plain_fault_kind)kind;
    MUST(call < PLAIN_CALLS && kind < 5 && fault.number > 0 && *at == 0,
         "QUERN_PLAIN_FAULT is \"call:n:kind\", not \"%s\"", text);
    return fault;
}

/* The fault that the environment asks for at this call. *ret_is_nan may be NULL. */
static enum err strike(const struct plain_fault *fault, enum plain_call call, uint32_t number,
                       bool *ret_is_nan, struct error *error) {
    if (ret_is_nan) *ret_is_nan = false;
    if (fault->kind == FAULT_NONE || fault->call != call || fault->number != number) return OK;
    switch (fault->kind) {
    case FAULT_HANG:
        for (;;) (void)pause();
    case FAULT_NAN:
        MUST(ret_is_nan, "%s knows no NaN", call_names[call]);
        *ret_is_nan = true;
        return OK;
    case FAULT_LOST: return err_set(error, ERR_IO, "plain device: the GPU is lost");
    default:
        return err_set(error, ERR_IO, "plain device: call %u of %s fails, as the test asks", number,
                       call_names[call]);
    }
}

/* The beginning of every call on a device. */
static enum err enter(struct gpu *gpu, enum plain_call call, bool *ret_is_nan,
                      struct error *error) {
    if (gpu->is_broken)
        return err_set(error, ERR_CONFLICT,
                       "plain device: a call failed before; the device can only be closed");
    if (call > PLAIN_PREPARE) MUST(gpu->is_prepared, "%s before prepare", call_names[call]);
    if (call > PLAIN_WARM) MUST(gpu->is_warm, "%s before warm", call_names[call]);
    uint32_t number = ++gpu->calls[call];
    enum err err = strike(&gpu->fault, call, number, ret_is_nan, error);
    gpu->is_broken = err != OK && (call > PLAIN_WARM || gpu->fault.kind == FAULT_LOST);
    return err;
}

/* ---- GPUs ---- */

static enum err list(struct gpu_info *ret_infos, uint32_t room, uint32_t *ret_count,
                     struct error *error) {
    struct plain_fault fault = fault_of_environment();
    enum err err = strike(&fault, PLAIN_LIST, 1, NULL, error);
    if (err != OK) return err;
    const char *cards = getenv("QUERN_PLAIN_CARDS");
    if (cards && strcmp(cards, "none") == 0)
        return err_set(error, ERR_UNAVAILABLE, "no driver of plain cards; unset QUERN_PLAIN_CARDS");
    *ret_count = (uint32_t)number_of("QUERN_PLAIN_CARDS", 1);
    for (uint32_t i = 0; i < room && i < *ret_count; i++) {
        struct gpu_info *info = &ret_infos[i];
        *info = (struct gpu_info){.index = i,
                                  .multiprocessors = PLAIN_MULTIPROCESSORS,
                                  .memory_bytes = memory_of_card(),
                                  .free_bytes = memory_of_card()};
        (void)snprintf(info->name, sizeof info->name, "plain card %u", i);
        (void)snprintf(info->uuid, sizeof info->uuid, "GPU-00000000-0000-0000-0000-%012u", i);
    }
    return OK;
}

static enum err open_gpu(struct gpu **ret_gpu, const struct gpu_options *options,
                         struct error *error) {
    struct plain_fault fault = fault_of_environment();
    enum err err = strike(&fault, PLAIN_OPEN, 1, NULL, error);
    if (err != OK) return err;
    if (options->index >= number_of("QUERN_PLAIN_CARDS", 1))
        return err_set(error, ERR_UNAVAILABLE, "there is no plain card %u", options->index);
    if (options->more_count > 0)
        return err_set(error, ERR_UNAVAILABLE, "plain cards compute alone, not %u together",
                       options->more_count + 1);
    if (options->library && access(options->library, R_OK) != 0)
        return err_set(error, ERR_UNAVAILABLE, "the library %s cannot be read", options->library);
    if (options->memory_bytes > memory_of_card())
        return err_set(error, ERR_LIMIT, "plain card %u has %llu MiB free, not %llu",
                       options->index, (unsigned long long)memory_of_card() >> 20,
                       (unsigned long long)options->memory_bytes >> 20);
    struct gpu *gpu = mem_new(1, sizeof *gpu);
    gpu->index = options->index;
    gpu->fault = fault;
    gpu->poison = (int32_t)number_of("QUERN_PLAIN_POISON", INT32_MAX);
    gpu->measures_ops = options->measures_ops;
    gpu->careful_steps = options->careful_steps;
    gpu->ledger.limit = options->memory_bytes;
    *ret_gpu = gpu;
    return OK;
}

static void close_gpu(struct gpu *gpu) {
    if (!gpu) return;
    for (uint32_t i = 0; i < GPU_STEPS_MAX; i++) plain_heap_release(&gpu->steps[i].heap);
    plain_heap_release(&gpu->heap);
    free(gpu);
}

/* ---- calls before the first step ---- */

static enum err prepare(struct gpu *gpu, const struct gpu_program *program,
                        const struct gpu_limits *limits, struct memory_ledger *ret_ledger,
                        struct error *error) {
    enum err err = enter(gpu, PLAIN_PREPARE, NULL, error);
    return err == OK ? plain_prepare(gpu, program, limits, ret_ledger, error) : err;
}

static enum err fill(struct gpu *gpu, const struct gpu_rows *rows, struct error *error) {
    enum err err = enter(gpu, PLAIN_FILL, NULL, error);
    return err == OK ? plain_fill(gpu, rows, error) : err;
}

static enum err warm(struct gpu *gpu, struct error *error) {
    enum err err = enter(gpu, PLAIN_WARM, NULL, error);
    return err == OK ? plain_warm(gpu, error) : err;
}

/* Computes nothing: the time is as the environment says. */
static enum err trial(struct gpu *gpu, uint32_t rows, uint64_t *ret_ns, struct error *error) {
    enum err err = enter(gpu, PLAIN_TRIAL, NULL, error);
    MUST(rows <= gpu->limits.rows_max, "a trial of %u rows, of %u", rows, gpu->limits.rows_max);
    const char *step_ns = getenv("QUERN_PLAIN_STEP_NS");
    unsigned long long fixed = 0, each = 0;
    if (step_ns) MUST(sscanf(step_ns, "%llu+%llu", &fixed, &each) == 2, "QUERN_PLAIN_STEP_NS");
    *ret_ns = fixed + each * rows;
    return err;
}

/* ---- steps ---- */

static enum err submit(struct gpu *gpu, const struct gpu_step *step,
                       const struct gpu_samples *samples, struct error *error) {
    bool is_nan;
    enum err err = enter(gpu, PLAIN_SUBMIT, &is_nan, error);
    return err == OK ? plain_submit(gpu, step, samples, is_nan, error) : err;
}

static enum err sample(struct gpu *gpu, const struct gpu_samples *samples, struct error *error) {
    bool is_nan;
    enum err err = enter(gpu, PLAIN_SAMPLE, &is_nan, error);
    return err == OK ? plain_late(gpu, samples, is_nan, error) : err;
}

/* Copies keys, values and their stamps in all places. */
static void copy_page(struct gpu *gpu, struct gpu_page_copy copy) {
    const size_t slots = plain_slots(gpu), kv_width = gpu->kv_width;
    const size_t slot_bytes =
        gpu_kv_planes(&gpu->program) * kv_width * plain_form_bytes(gpu->limits.kv_form);
    const size_t slot_scales = 2 * (size_t)gpu->kv_heads_most;
    for (size_t place = 0; place < gpu->limits.layer_places; place++) {
        size_t from = place * slots + copy.from * GPU_PAGE_TOKENS;
        size_t to = place * slots + copy.to * GPU_PAGE_TOKENS;
        memcpy(gpu->kv + to * slot_bytes, gpu->kv + from * slot_bytes,
               GPU_PAGE_TOKENS * slot_bytes);
        memcpy(gpu->stamps + to, gpu->stamps + from, GPU_PAGE_TOKENS * sizeof *gpu->stamps);
        if (gpu->kv_scales)
            memcpy(gpu->kv_scales + to * slot_scales, gpu->kv_scales + from * slot_scales,
                   GPU_PAGE_TOKENS * slot_scales * sizeof *gpu->kv_scales);
    }
}

/* The forward pass of a step; its logits are then the GPU's. */
static void compute(struct gpu *gpu, const struct plain_step *step) {
    struct plain_pass pass = {.gpu = gpu,
                              .step = &step->in,
                              .row_count = step->in.row_count,
                              .x = gpu->x,
                              .h = gpu->h,
                              .wide = gpu->wide,
                              .narrow = gpu->narrow,
                              .shared = gpu->shared,
                              .attended = gpu->attended,
                              .logits = gpu->logits};
    for (uint32_t i = 0; i < step->in.copy_count; i++) copy_page(gpu, step->in.copies[i]);
    plain_begin(&pass);
    for (uint32_t i = 0; i < gpu->program.op_count && pass.row_count > 0; i++) {
        int64_t start = gpu->measures_ops ? clock_monotonic_ns() : 0;
        plain_op(&pass, i);
        if (gpu->measures_ops)
            gpu->counters.op_ns[gpu->program.ops[i].kind] +=
                (uint64_t)(clock_monotonic_ns() - start);
    }
    MUST(pass.row_count == step->in.wanted_count, "the program has no KEEP before its end");
    gpu->logit_rows = step->in.wanted_count;
    size_t logits = gpu->program.pools ? step->in.pool_count : gpu->logit_rows;
    logits *= gpu->program.vocab_rows;
    for (size_t i = 0; step->is_nan && i < logits; i++) gpu->logits[i] = __builtin_nanf("");
}

/* A careful step names the operation that reads the token. */
static enum err read_tokens(struct gpu *gpu, const struct plain_step *step, struct error *error) {
    const bool is_careful = gpu->calls[PLAIN_WAIT] <= gpu->careful_steps;
    for (uint32_t i = 0; i < step->in.row_count; i++) {
        if (step->in.tokens[i] != gpu->poison) continue;
        gpu->is_broken = true;
        return err_set(error, ERR_IO, "plain device: step %llu: %sillegal access at token %d",
                       (unsigned long long)step->number, is_careful ? "operation 0 (embed): " : "",
                       gpu->poison);
    }
    return OK;
}

static enum err wait_step(struct gpu *gpu, uint64_t number, struct gpu_result *result,
                          struct error *error) {
    bool is_nan;
    enum err err = enter(gpu, PLAIN_WAIT, &is_nan, error);
    if (err != OK) return err;
    struct plain_step *step = &gpu->steps[gpu->step_first];
    MUST(gpu->step_count > 0, "wait for step %llu, and none is under way",
         (unsigned long long)number);
    MUST(step->number == number, "wait for step %llu, and the oldest under way is %llu",
         (unsigned long long)number, (unsigned long long)step->number);
    step->is_nan |= is_nan;
    err = read_tokens(gpu, step, error);
    if (err != OK) return err;
    int64_t start = clock_monotonic_ns();
    compute(gpu, step);
    memset(gpu->is_drawn, 0, gpu->limits.logit_rows_max * sizeof *gpu->is_drawn);
    uint32_t answers = 0, named = 0;
    for (const struct plain_draws *draws = step->draws; draws; draws = draws->next)
        plain_samples(gpu, &draws->in, result, &answers, &named);
    for (uint32_t i = 0; i < gpu->logit_rows; i++)
        if (gpu->is_drawn[i]) result->tokens[i] = gpu->tokens[i];
    if (gpu->program.pools)
        memcpy(result->vectors, gpu->logits,
               (size_t)step->in.pool_count * gpu->program.width * sizeof *gpu->logits);
    result->nonfinite_rows = gpu->program.pools ? 0 : plain_nonfinite_rows(gpu, gpu->logit_rows);
    gpu->counters.steps++;
    gpu->counters.rows += step->in.row_count;
    gpu->counters.busy_ns += (uint64_t)(clock_monotonic_ns() - start);
    gpu->number_waited = number;
    plain_heap_release(&step->heap);
    gpu->step_first = (gpu->step_first + 1) % GPU_STEPS_MAX;
    gpu->step_count--;
    return OK;
}

static enum err logits_of(struct gpu *gpu, uint32_t first, uint32_t count, float *ret_logits,
                          struct error *error) {
    enum err err = enter(gpu, PLAIN_LOGITS, NULL, error);
    if (err != OK) return err;
    MUST(gpu->step_count == 0 && gpu->number_waited == gpu->number_last && gpu->number_last > 0,
         "logits while a step is under way, or before the first");
    MUST(first <= gpu->logit_rows && count <= gpu->logit_rows - first,
         "logits of rows %u..%u, and the step has %u", first, first + count, gpu->logit_rows);
    size_t vocab = gpu->program.vocab_rows;
    memcpy(ret_logits, gpu->logits + first * vocab, count * vocab * sizeof *ret_logits);
    return OK;
}

static enum err run_op(struct gpu *gpu, const struct gpu_op_call *call, struct error *error) {
    enum err err = enter(gpu, PLAIN_RUN_OP, NULL, error);
    if (err != OK) return err;
    MUST(gpu->step_count == 0, "run_op while a step is under way");
    MUST(call->op < gpu->program.op_count, "run_op of operation %u, and there are %u", call->op,
         gpu->program.op_count);
    plain_check_step(gpu, call->step);
    struct plain_pass pass = {.gpu = gpu,
                              .step = call->step,
                              .is_kept = call->is_behind_keep,
                              .row_count = call->is_behind_keep ? call->step->wanted_count
                                                                : call->step->row_count,
                              .x = call->x,
                              .h = call->h,
                              .wide = call->wide,
                              .narrow = call->narrow,
                              .shared = call->shared,
                              .attended = call->attended,
                              .logits = call->logits};
    plain_begin(&pass);
    plain_op(&pass, call->op);
    return OK;
}

static enum err counters(struct gpu *gpu, struct gpu_counters *ret_counters, struct error *error) {
    enum err err = enter(gpu, PLAIN_COUNTERS, NULL, error);
    if (err == OK) *ret_counters = gpu->counters;
    return err;
}

static const struct gpu_table table = {
    .abi = GPU_ABI,
    .bytes = sizeof(struct gpu_table),
    .version = QUERN_VERSION,
    .kind = "plain",
    .tile_rows_heads = PLAIN_TILE_HEADS,
    .split_tokens = PLAIN_SPLIT_TOKENS,
    .list = list,
    .open = open_gpu,
    .close = close_gpu,
    .prepare = prepare,
    .fill = fill,
    .recall = plain_recall,
    .warm = warm,
    .tell = plain_tell,
    .trial = trial,
    .submit = submit,
    .sample = sample,
    .wait = wait_step,
    .logits = logits_of,
    .run_op = run_op,
    .counters = counters,
};

const struct gpu_table *quern_gpu_table(void) {
    return &table;
}
