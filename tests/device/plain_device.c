/* SPDX-License-Identifier: Apache-2.0 */
#include "plain_device.h"

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
    case FAULT_LOST: return err_set(error, ERR_IO, "plain device: the card is lost");
    default:
        return err_set(error, ERR_IO, "plain device: call %u of %s fails, as the test asks", number,
                       call_names[call]);
    }
}

/* The beginning of every call on a device. */
static enum err enter(struct device *device, enum plain_call call, bool *ret_is_nan,
                      struct error *error) {
    if (device->is_broken)
        return err_set(error, ERR_CONFLICT,
                       "plain device: a call failed before; the device can only be closed");
    if (call > PLAIN_PREPARE) MUST(device->is_prepared, "%s before prepare", call_names[call]);
    if (call > PLAIN_WARM) MUST(device->is_warm, "%s before warm", call_names[call]);
    uint32_t number = ++device->calls[call];
    enum err err = strike(&device->fault, call, number, ret_is_nan, error);
    device->is_broken = err != OK && (call > PLAIN_WARM || device->fault.kind == FAULT_LOST);
    return err;
}

/* ---- cards ---- */

static enum err list(struct device_info *ret_infos, uint32_t room, uint32_t *ret_count,
                     struct error *error) {
    struct plain_fault fault = fault_of_environment();
    enum err err = strike(&fault, PLAIN_LIST, 1, NULL, error);
    if (err != OK) return err;
    const char *cards = getenv("QUERN_PLAIN_CARDS");
    if (cards && strcmp(cards, "none") == 0)
        return err_set(error, ERR_UNAVAILABLE, "no driver of plain cards; unset QUERN_PLAIN_CARDS");
    *ret_count = (uint32_t)number_of("QUERN_PLAIN_CARDS", 1);
    for (uint32_t i = 0; i < room && i < *ret_count; i++) {
        struct device_info *info = &ret_infos[i];
        *info = (struct device_info){.index = i,
                                     .multiprocessors = PLAIN_MULTIPROCESSORS,
                                     .memory_bytes = memory_of_card(),
                                     .free_bytes = memory_of_card()};
        (void)snprintf(info->name, sizeof info->name, "plain card %u", i);
        (void)snprintf(info->uuid, sizeof info->uuid, "GPU-00000000-0000-0000-0000-%012u", i);
    }
    return OK;
}

static enum err open_device(struct device **ret_device, const struct device_options *options,
                            struct error *error) {
    struct plain_fault fault = fault_of_environment();
    enum err err = strike(&fault, PLAIN_OPEN, 1, NULL, error);
    if (err != OK) return err;
    if (options->index >= number_of("QUERN_PLAIN_CARDS", 1))
        return err_set(error, ERR_UNAVAILABLE, "there is no plain card %u", options->index);
    if (options->library && access(options->library, R_OK) != 0)
        return err_set(error, ERR_UNAVAILABLE, "the library %s cannot be read", options->library);
    if (options->memory_bytes > memory_of_card())
        return err_set(error, ERR_LIMIT, "plain card %u has %llu MiB free, not %llu",
                       options->index, (unsigned long long)memory_of_card() >> 20,
                       (unsigned long long)options->memory_bytes >> 20);
    struct device *device = mem_new(1, sizeof *device);
    device->index = options->index;
    device->fault = fault;
    device->poison = (int32_t)number_of("QUERN_PLAIN_POISON", INT32_MAX);
    device->measures_ops = options->measures_ops;
    device->careful_steps = options->careful_steps;
    device->ledger.limit = options->memory_bytes;
    *ret_device = device;
    return OK;
}

static void close_device(struct device *device) {
    if (!device) return;
    for (uint32_t i = 0; i < DEVICE_STEPS_MAX; i++) plain_heap_release(&device->steps[i].heap);
    plain_heap_release(&device->heap);
    free(device);
}

/* ---- calls before the first step ---- */

static enum err prepare(struct device *device, const struct device_program *program,
                        const struct device_limits *limits, struct device_ledger *ret_ledger,
                        struct error *error) {
    enum err err = enter(device, PLAIN_PREPARE, NULL, error);
    return err == OK ? plain_prepare(device, program, limits, ret_ledger, error) : err;
}

static enum err fill(struct device *device, const struct device_rows *rows, struct error *error) {
    enum err err = enter(device, PLAIN_FILL, NULL, error);
    return err == OK ? plain_fill(device, rows, error) : err;
}

static enum err warm(struct device *device, struct error *error) {
    enum err err = enter(device, PLAIN_WARM, NULL, error);
    return err == OK ? plain_warm(device, error) : err;
}

/* Computes nothing: the time is as the environment says. */
static enum err trial(struct device *device, uint32_t rows, uint64_t *ret_ns, struct error *error) {
    enum err err = enter(device, PLAIN_TRIAL, NULL, error);
    MUST(rows <= device->limits.rows_max, "a trial of %u rows, of %u", rows,
         device->limits.rows_max);
    const char *step_ns = getenv("QUERN_PLAIN_STEP_NS");
    unsigned long long fixed = 0, each = 0;
    if (step_ns) MUST(sscanf(step_ns, "%llu+%llu", &fixed, &each) == 2, "QUERN_PLAIN_STEP_NS");
    *ret_ns = fixed + each * rows;
    return err;
}

/* ---- steps ---- */

static enum err submit(struct device *device, const struct device_step *step,
                       const struct device_samples *samples, struct error *error) {
    bool is_nan;
    enum err err = enter(device, PLAIN_SUBMIT, &is_nan, error);
    return err == OK ? plain_submit(device, step, samples, is_nan, error) : err;
}

static enum err sample(struct device *device, const struct device_samples *samples,
                       struct error *error) {
    bool is_nan;
    enum err err = enter(device, PLAIN_SAMPLE, &is_nan, error);
    return err == OK ? plain_late(device, samples, is_nan, error) : err;
}

/* Copies keys, values and their stamps in all places. */
static void copy_page(struct device *device, struct device_page_copy copy) {
    const size_t slots = plain_slots(device), kv_width = device->kv_width;
    const size_t slot_bytes = 2 * kv_width * plain_form_bytes(device->limits.kv_form);
    const size_t slot_scales = 2 * (size_t)device->program.kv_heads;
    for (size_t place = 0; place < device->limits.layer_places; place++) {
        size_t from = place * slots + copy.from * DEVICE_PAGE_TOKENS;
        size_t to = place * slots + copy.to * DEVICE_PAGE_TOKENS;
        memcpy(device->kv + to * slot_bytes, device->kv + from * slot_bytes,
               DEVICE_PAGE_TOKENS * slot_bytes);
        memcpy(device->stamps + to, device->stamps + from,
               DEVICE_PAGE_TOKENS * sizeof *device->stamps);
        if (device->kv_scales)
            memcpy(device->kv_scales + to * slot_scales, device->kv_scales + from * slot_scales,
                   DEVICE_PAGE_TOKENS * slot_scales * sizeof *device->kv_scales);
    }
}

/* The forward pass of a step; its logits are then the device's. */
static void compute(struct device *device, const struct plain_step *step) {
    struct plain_pass pass = {.device = device,
                              .step = &step->in,
                              .row_count = step->in.row_count,
                              .x = device->x,
                              .h = device->h,
                              .wide = device->wide,
                              .attended = device->attended,
                              .logits = device->logits};
    for (uint32_t i = 0; i < step->in.copy_count; i++) copy_page(device, step->in.copies[i]);
    plain_begin(&pass);
    for (uint32_t i = 0; i < device->program.op_count && pass.row_count > 0; i++) {
        int64_t start = device->measures_ops ? clock_monotonic_ns() : 0;
        plain_op(&pass, i);
        if (device->measures_ops)
            device->counters.op_ns[device->program.ops[i].kind] +=
                (uint64_t)(clock_monotonic_ns() - start);
    }
    MUST(pass.row_count == step->in.wanted_count, "the program has no KEEP before its end");
    device->logit_rows = step->in.wanted_count;
    size_t logits = (size_t)device->logit_rows * device->program.vocab_rows;
    for (size_t i = 0; step->is_nan && i < logits; i++) device->logits[i] = __builtin_nanf("");
}

/* A careful step names the operation that reads the token. */
static enum err read_tokens(struct device *device, const struct plain_step *step,
                            struct error *error) {
    const bool is_careful = device->calls[PLAIN_WAIT] <= device->careful_steps;
    for (uint32_t i = 0; i < step->in.row_count; i++) {
        if (step->in.tokens[i] != device->poison) continue;
        device->is_broken = true;
        return err_set(error, ERR_IO, "plain device: step %llu: %sillegal access at token %d",
                       (unsigned long long)step->number, is_careful ? "operation 0 (embed): " : "",
                       device->poison);
    }
    return OK;
}

static enum err wait_step(struct device *device, uint64_t number, struct device_result *result,
                          struct error *error) {
    bool is_nan;
    enum err err = enter(device, PLAIN_WAIT, &is_nan, error);
    if (err != OK) return err;
    struct plain_step *step = &device->steps[device->step_first];
    MUST(device->step_count > 0, "wait for step %llu, and none is under way",
         (unsigned long long)number);
    MUST(step->number == number, "wait for step %llu, and the oldest under way is %llu",
         (unsigned long long)number, (unsigned long long)step->number);
    step->is_nan |= is_nan;
    err = read_tokens(device, step, error);
    if (err != OK) return err;
    int64_t start = clock_monotonic_ns();
    compute(device, step);
    memset(device->is_drawn, 0, device->limits.logit_rows_max * sizeof *device->is_drawn);
    uint32_t answers = 0, named = 0;
    for (const struct plain_draws *draws = step->draws; draws; draws = draws->next)
        plain_samples(device, &draws->in, result, &answers, &named);
    for (uint32_t i = 0; i < device->logit_rows; i++)
        if (device->is_drawn[i]) result->tokens[i] = device->tokens[i];
    result->nonfinite_rows = plain_nonfinite_rows(device, device->logit_rows);
    device->counters.steps++;
    device->counters.rows += step->in.row_count;
    device->counters.busy_ns += (uint64_t)(clock_monotonic_ns() - start);
    device->number_waited = number;
    plain_heap_release(&step->heap);
    device->step_first = (device->step_first + 1) % DEVICE_STEPS_MAX;
    device->step_count--;
    return OK;
}

static enum err logits_of(struct device *device, uint32_t first, uint32_t count, float *ret_logits,
                          struct error *error) {
    enum err err = enter(device, PLAIN_LOGITS, NULL, error);
    if (err != OK) return err;
    MUST(device->step_count == 0 && device->number_waited == device->number_last &&
             device->number_last > 0,
         "logits while a step is under way, or before the first");
    MUST(first <= device->logit_rows && count <= device->logit_rows - first,
         "logits of rows %u..%u, and the step has %u", first, first + count, device->logit_rows);
    size_t vocab = device->program.vocab_rows;
    memcpy(ret_logits, device->logits + first * vocab, count * vocab * sizeof *ret_logits);
    return OK;
}

static enum err run_op(struct device *device, const struct device_op_call *call,
                       struct error *error) {
    enum err err = enter(device, PLAIN_RUN_OP, NULL, error);
    if (err != OK) return err;
    MUST(device->step_count == 0, "run_op while a step is under way");
    MUST(call->op < device->program.op_count, "run_op of operation %u, and there are %u", call->op,
         device->program.op_count);
    plain_check_step(device, call->step);
    struct plain_pass pass = {.device = device,
                              .step = call->step,
                              .is_kept = call->is_behind_keep,
                              .row_count = call->is_behind_keep ? call->step->wanted_count
                                                                : call->step->row_count,
                              .x = call->x,
                              .h = call->h,
                              .wide = call->wide,
                              .attended = call->attended,
                              .logits = call->logits};
    plain_begin(&pass);
    plain_op(&pass, call->op);
    return OK;
}

static enum err counters(struct device *device, struct device_counters *ret_counters,
                         struct error *error) {
    enum err err = enter(device, PLAIN_COUNTERS, NULL, error);
    if (err == OK) *ret_counters = device->counters;
    return err;
}

static const struct device_table table = {
    .abi = DEVICE_ABI,
    .bytes = sizeof(struct device_table),
    .version = QUERN_VERSION,
    .kind = "plain",
    .tile_rows_heads = PLAIN_TILE_HEADS,
    .split_tokens = PLAIN_SPLIT_TOKENS,
    .list = list,
    .open = open_device,
    .close = close_device,
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

const struct device_table *quern_device_table(void) {
    return &table;
}
