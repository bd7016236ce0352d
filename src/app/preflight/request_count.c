/* SPDX-License-Identifier: Apache-2.0 */
#include "preflight/request_count.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/os.h"
#include "batch/jsonl_file.h"
#include "batch/parameters.h"
#include "batch/request_key.h"
#include "engine/decision.h"
#include "engine/embedding.h"
#include "engine/prep.h"
#include "engine/score.h"
#include "json/span.h"
#include "preflight/hash_set.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BLOCK_TOKENS 16              /* the engine's size of a KV block */
#define BLOCKS_MAX ((size_t)1 << 20) /* hashes until only the starts of prompts are remembered */
#define BLOCKS_GROWTH 8              /* blocks per prompt that are remembered from then on */
#define LAYOUT_REQUESTS 2000         /* requests in the sample of the layout, at least */
#define BYTES_PER_TOKEN 4            /* for guesses without a tokenizer */
#define THREADS_MAX 64

struct count_work {
    const struct request_count_options *options;
    struct request_count *counted;
    struct prep_options prep;
    pthread_mutex_t reading; /* guards `file` and `requests_read` */
    struct jsonl_file file;
    uint64_t requests_read;
    pthread_mutex_t adding; /* guards `counted` and the fields below */
    size_t capacity;
    struct hash_set keys, blocks;
    struct token_layout layout;
    uint64_t layout_stride; /* doubles when the sample is full */
};

/* The request that one thread is reading. */
struct item {
    uint64_t index;  /* the request's, from 0 */
    uint64_t number; /* its line's, from 1 */
    struct buf text;
    struct batch_line line;
    uint32_t prompt_tokens, answer_tokens, sequence_tokens;
    bool has_key; /* its answer is determined, so that `key` counts duplicates */
    uint64_t key;
    struct request request; /* parsed if the model is here */
    bool is_parsed;
    struct prompt *prompts;
    struct decision decision; /* its prompts, if the line asks questions */
    bool is_too_long;         /* faulty, but its tokens are counted */
    struct line_fault fault;
};

static bool read_item(struct count_work *work, struct item *item) {
    struct str line;
    pthread_mutex_lock(&work->reading);
    bool there = jsonl_file_next(&work->file, &line);
    if (there) {
        item->index = work->requests_read++;
        item->number = work->file.lines.number;
        buf_clear(&item->text);
        buf_add_str(&item->text, line);
    }
    pthread_mutex_unlock(&work->reading);
    return there;
}

/* The key of requests that the runner would run once (batch/request_key.h). A preflight
 * counts for one owner with one model, so neither is part of the key. */
static void read_key(struct item *item) {
    unsigned char key[SHA256_BYTES];
    item->has_key = batch_request_key(&item->line, STR(""), key);
    if (item->has_key) memcpy(&item->key, key, sizeof item->key);
}

static bool fault(struct item *item, const struct refusal *refusal) {
    snprintf(item->fault.code, sizeof item->fault.code, "%s", refusal->code ? refusal->code : "");
    snprintf(item->fault.message, sizeof item->fault.message, "%.399s", refusal->message);
    return false;
}

/* False for a line that the batch refuses; its fault is that of the check, if it is still known. */
static bool read_line(const struct count_work *work, struct item *item) {
    const struct line_check *check = work->options->check;
    if (line_check_refuses(check, item->number)) {
        for (size_t i = 0; i < LINE_CHECK_FAULTS_MAX && i < check->count; i++)
            if (check->faults[i].number == item->number) item->fault = check->faults[i];
        return false;
    }
    /* The check has read this line, and the file may have changed since. */
    if (batch_line_read(buf_str(&item->text), &item->line) == BATCH_LINE_READ &&
        batch_line_endpoint(&item->line, &item->line.endpoint))
        return true;
    snprintf(item->fault.message, sizeof item->fault.message, "The file has changed.");
    return false;
}

static uint32_t add_capped(uint64_t a, uint64_t b) {
    return a + b < UINT32_MAX ? (uint32_t)(a + b) : UINT32_MAX;
}

static bool guess(struct item *item) {
    struct str max = json_span_get(item->line.body, "max_completion_tokens");
    uint64_t tokens = 0;
    if (!max.at) max = json_span_get(item->line.body, "max_tokens");
    if (!str_to_u64(max, &tokens) || tokens > UINT32_MAX) tokens = 0;
    item->prompt_tokens = (uint32_t)(batch_line_prompt(&item->line).bytes / BYTES_PER_TOKEN);
    item->answer_tokens = (uint32_t)tokens;
    item->sequence_tokens = add_capped(item->prompt_tokens, tokens);
    return true;
}

/* Samples the messages before prep changes them. */
static void sample_layout(struct count_work *work, struct item *item) {
    pthread_mutex_lock(&work->adding);
    if (item->index % work->layout_stride == 0) {
        token_layout_add(&work->layout, item->request.messages, item->request.prompt);
        if (work->layout.requests % LAYOUT_REQUESTS == 0) work->layout_stride *= 2;
    }
    pthread_mutex_unlock(&work->adding);
}

static bool count_texts(const struct count_work *work, struct item *item) {
    const struct served_model *model = work->options->model;
    const struct score_question question = {.endpoint = item->line.endpoint,
                                            .body = item->line.body,
                                            .model = model,
                                            .text_tokens_max = work->options->text_tokens_max};
    const bool is_score =
        question.endpoint == ENDPOINT_SCORE || question.endpoint == ENDPOINT_RERANK;
    struct embedding embedding = {.given = 0};
    struct score score = {.pairs = 0};
    struct refusal refusal;
    bool is_good = is_score ? score_prepare(&score, &embedding, &question, &refusal)
                            : embedding_prepare(&embedding, question.body, model,
                                                question.text_tokens_max, &refusal);
    item->prompt_tokens = item->sequence_tokens = (uint32_t)embedding.ids.count;
    item->answer_tokens = 0;
    embedding_release(&embedding);
    score_release(&score);
    return is_good || fault(item, &refusal);
}

/* Counts a prompt per read, as the usage of the answer will. */
static bool count_reads(const struct count_work *work, struct item *item) {
    struct refusal refusal;
    struct ids ids = {.at = NULL};
    uint64_t tokens = 0;
    bool is_good = decision_prepare(&item->decision, item->line.endpoint, item->line.body,
                                    work->options->model, &work->prep, NULL, &refusal);
    item->sequence_tokens = 0;
    for (uint32_t i = 0; i < item->decision.read_count; i++) {
        decision_read_tokens(&item->decision, &item->decision.reads[i], &ids);
        tokens += ids.count;
        if (ids.count >= item->sequence_tokens) item->sequence_tokens = add_capped(ids.count, 1);
    }
    ids_release(&ids);
    item->prompt_tokens = add_capped(tokens, 0);
    item->answer_tokens = 0;
    return is_good || fault(item, &refusal);
}

/* Counts the tokens of prompts that were encoded, also if they are too long. */
static void sum_tokens(struct item *item) {
    uint64_t answer = (uint64_t)item->request.max_tokens, tokens = 0, longest = 0;
    for (size_t i = 0; i < item->request.prompt_count; i++) {
        tokens += item->prompts[i].ids.count;
        if (item->prompts[i].ids.count > longest) longest = item->prompts[i].ids.count;
    }
    item->prompt_tokens = add_capped(tokens, 0);
    item->answer_tokens =
        add_capped(answer * (uint64_t)item->request.choices * item->request.prompt_count, 0);
    item->sequence_tokens = add_capped(longest, answer);
}

static bool count_exactly(struct count_work *work, struct item *item) {
    const struct served_model *model = work->options->model;
    struct refusal refusal;
    uint32_t room;
    enum endpoint endpoint = item->line.endpoint;
    if (!served_model_does(model, endpoint, &refusal)) return fault(item, &refusal);
    if (endpoint_is_pooled(endpoint)) return count_texts(work, item);
    if (endpoint_is_decision(endpoint)) return count_reads(work, item);
    if (!request_parse(&item->request, endpoint, item->line.body,
                       (uint32_t)tokenizer_count(model->vocabulary.tokenizer), &refusal))
        return fault(item, &refusal);
    item->is_parsed = true;
    sample_layout(work, item);
    item->prompts = mem_new(item->request.prompt_count, sizeof *item->prompts);
    if (prep_prompts(&item->request, model, &work->prep, item->prompts, &room, &refusal)) {
        sum_tokens(item);
        return true;
    }
    item->is_too_long = refusal.code && strcmp(refusal.code, "context_length_exceeded") == 0;
    if (item->is_too_long) sum_tokens(item);
    return fault(item, &refusal);
}

/* Counts the tokens at the start of a prompt that an earlier prompt began with, and remembers its
 * blocks. A block's hash covers all blocks before it, so a known block is always part of a known
 * beginning. */
static uint64_t share_prefix(struct count_work *work, const struct ids *ids) {
    uint64_t hash = 1, shared = 0;
    size_t fresh = 0, blocks = ids->count / BLOCK_TOKENS;
    for (size_t i = 0; i < blocks; i++) {
        for (size_t j = 0; j < BLOCK_TOKENS; j++) {
            hash = (hash ^ (uint32_t)ids->at[i * BLOCK_TOKENS + j]) * 0xD6E8FEB86659FD93u;
            hash ^= hash >> 32;
        }
        if (fresh == 0 && hash_set_has(&work->blocks, hash)) {
            shared += BLOCK_TOKENS;
            continue;
        }
        fresh++;
        if (work->blocks.count >= BLOCKS_MAX && fresh > BLOCKS_GROWTH) break;
        hash_set_add(&work->blocks, hash);
    }
    return shared;
}

static void share_reads(struct count_work *work, const struct decision *decision) {
    struct ids ids = {.at = NULL};
    for (uint32_t i = 0; i < decision->read_count; i++) {
        decision_read_tokens(decision, &decision->reads[i], &ids);
        work->counted->shared_tokens += share_prefix(work, &ids);
    }
    ids_release(&ids);
}

static void grow(struct count_work *work, uint64_t index) {
    struct request_count *counted = work->counted;
    if (index < work->capacity) return;
    size_t capacity = work->capacity ? work->capacity : 1024;
    while (capacity <= index) capacity *= 2;
    counted->prompt_tokens =
        mem_resize(counted->prompt_tokens, capacity, sizeof *counted->prompt_tokens);
    counted->answer_tokens =
        mem_resize(counted->answer_tokens, capacity, sizeof *counted->answer_tokens);
    counted->sequence_tokens =
        mem_resize(counted->sequence_tokens, capacity, sizeof *counted->sequence_tokens);
    work->capacity = capacity;
}

/* Keeps the first faults of the file, in its order. */
static void keep_fault(struct request_count *counted, const struct item *item) {
    size_t at =
        counted->faulty < LINE_CHECK_FAULTS_MAX ? (size_t)counted->faulty : LINE_CHECK_FAULTS_MAX;
    counted->faulty++;
    while (at > 0 && counted->faults[at - 1].number > item->number) {
        if (at < LINE_CHECK_FAULTS_MAX) counted->faults[at] = counted->faults[at - 1];
        at--;
    }
    if (at == LINE_CHECK_FAULTS_MAX) return;
    counted->faults[at] = item->fault;
    counted->faults[at].number = item->number;
}

static void add_item(struct count_work *work, const struct item *item, bool is_good) {
    struct request_count *counted = work->counted;
    bool is_counted = is_good || item->is_too_long;
    pthread_mutex_lock(&work->adding);
    grow(work, item->index);
    counted->prompt_tokens[item->index] = is_good ? item->prompt_tokens : 0;
    counted->answer_tokens[item->index] = is_good ? item->answer_tokens : 0;
    counted->sequence_tokens[item->index] = is_counted ? item->sequence_tokens : 0;
    counted->requests++;
    counted->bytes += item->text.bytes + 1;
    if (is_good) {
        counted->prompt_tokens_sum += item->prompt_tokens;
        bool is_duplicate = item->has_key && !hash_set_add(&work->keys, item->key);
        uint64_t shared_before = counted->shared_tokens;
        for (size_t i = 0; item->prompts && i < item->request.prompt_count; i++)
            counted->shared_tokens += share_prefix(work, &item->prompts[i].ids);
        share_reads(work, &item->decision);
        if (is_duplicate) {
            counted->duplicates++;
            counted->duplicate_prompt_tokens += item->prompt_tokens;
            counted->duplicate_answer_tokens += item->answer_tokens;
            counted->duplicate_shared_tokens += counted->shared_tokens - shared_before;
        }
    } else {
        counted->too_long += item->is_too_long;
        keep_fault(counted, item);
    }
    pthread_mutex_unlock(&work->adding);
}

static void clear_item(struct item *item) {
    for (size_t i = 0; item->prompts && i < item->request.prompt_count; i++)
        prompt_release(&item->prompts[i]);
    free(item->prompts);
    if (item->is_parsed) request_release(&item->request);
    decision_release(&item->decision);
    item->prompts = NULL;
    item->is_parsed = item->is_too_long = false;
    item->fault = (struct line_fault){.number = 0};
}

static void *count_main(void *context) {
    struct count_work *work = context;
    struct item item = {0};
    buf_init(&item.text, (size_t)BATCH_LINE_BYTES_MAX + 1);
    while (read_item(work, &item)) {
        bool is_good = read_line(work, &item);
        if (is_good) read_key(&item);
        if (is_good) is_good = work->options->model ? count_exactly(work, &item) : guess(&item);
        add_item(work, &item, is_good);
        clear_item(&item);
    }
    buf_release(&item.text);
    return NULL;
}

static void run_threads(struct count_work *work) {
    pthread_t threads[THREADS_MAX];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t wanted = work->options->threads, count = 0;
    if (wanted == 0) wanted = cores > 0 ? (uint32_t)cores : 1;
    if (wanted > THREADS_MAX) wanted = THREADS_MAX;
    while (count + 1 < wanted && pthread_create(&threads[count], NULL, count_main, work) == 0)
        count++;
    count_main(work);
    while (count > 0) pthread_join(threads[--count], NULL);
}

enum err request_count_file(const struct request_count_options *options,
                            struct request_count *ret_counted, struct error *error) {
    struct request_count counted = {0};
    struct count_work work = {.options = options, .counted = &counted, .layout_stride = 1};
    int64_t started_ns = clock_monotonic_ns();
    time_t now = (time_t)clock_unix_s();
    struct tm local;
    work.prep = (struct prep_options){.context_tokens_max = options->context_tokens_max,
                                      .now_unix_s = now,
                                      .trusts_templates = options->trusts_templates};
    if (localtime_r(&now, &local)) work.prep.utc_offset_s = (int32_t)local.tm_gmtoff;
    enum err err = jsonl_file_open(&work.file, options->path, error);
    if (err == OK) {
        pthread_mutex_init(&work.reading, NULL);
        pthread_mutex_init(&work.adding, NULL);
        run_threads(&work);
        pthread_mutex_destroy(&work.reading);
        pthread_mutex_destroy(&work.adding);
    }
    err = jsonl_file_end(&work.file, options->path, err, error);
    counted.advice = token_layout_look(&work.layout);
    counted.seconds = (double)(clock_monotonic_ns() - started_ns) / 1e9;
    hash_set_release(&work.keys);
    hash_set_release(&work.blocks);
    token_layout_release(&work.layout);
    if (err != OK)
        request_count_release(&counted);
    else
        *ret_counted = counted;
    return err;
}

void request_count_release(struct request_count *counted) {
    free(counted->prompt_tokens);
    free(counted->answer_tokens);
    free(counted->sequence_tokens);
    *counted = (struct request_count){0};
}
