/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/request.h"

#include "base/mem.h"
#include "base/rng.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS_MIN 1024u
#define GENERATED_ROOM_MIN 64u

/* Copies an array to *at and moves it on. */
static void *place(char **at, const void *from, size_t bytes) {
    void *to = *at;
    if (bytes > 0) memcpy(to, from, bytes);
    *at += bytes;
    return to;
}

struct live_request *live_request_open(const struct scheduler_request *from,
                                       uint32_t sequence_count, uint32_t tokens_max,
                                       uint64_t seed) {
    const struct sampling *sampling = &from->sampling;
    size_t head = sizeof(struct live_request) + sequence_count * sizeof(struct sequence);
    size_t biases = sampling->bias_count * sizeof *sampling->biases;
    size_t stops = sampling->stop_token_count * sizeof *sampling->stop_tokens;
    size_t ends = sampling->end_token_count * sizeof *sampling->end_tokens;
    size_t allowed = sampling->allowed_token_count * sizeof *sampling->allowed_tokens;
    size_t bad = sampling->bad_word_ints * sizeof *sampling->bad_words;
    size_t named = sampling->logprob_token_count * sizeof *sampling->logprob_tokens;
    size_t prompt = (size_t)from->prompt_count * sizeof *from->prompt;
    struct live_request *request =
        mem_alloc(head + biases + stops + ends + allowed + bad + named + prompt);
    memset(request, 0, head);

    char *at = (char *)request + head;
    request->sampling = *sampling;
    request->sampling.biases = place(&at, sampling->biases, biases);
    request->sampling.stop_tokens = place(&at, sampling->stop_tokens, stops);
    request->sampling.end_tokens = place(&at, sampling->end_tokens, ends);
    request->sampling.allowed_tokens = place(&at, sampling->allowed_tokens, allowed);
    request->sampling.bad_words = place(&at, sampling->bad_words, bad);
    request->sampling.logprob_tokens = place(&at, sampling->logprob_tokens, named);
    request->prompt = place(&at, from->prompt, prompt);
    request->prompt_count = from->prompt_count;
    request->id = from->id;
    request->seed = seed;
    request->is_constrained = from->is_constrained;
    request->cache_salt = from->cache_salt;
    request->tokens_max = tokens_max;
    request->sequence_count = request->open_count = sequence_count;
    for (uint32_t i = 0; i < sequence_count; i++) {
        request->sequences[i].request = request;
        request->sequences[i].index = i;
    }
    request->is_urgent = from->is_urgent;
    request->waiting.priority = from->priority;
    request->waiting.tokens = request->prompt;
    /* Urgent requests wait in the order of arrival: without tokens all are equal. */
    request->waiting.token_count = from->is_urgent ? 0 : request->prompt_count;
    return request;
}

void live_request_close(struct live_request *request) {
    for (uint32_t i = 0; i < request->sequence_count; i++) free(request->sequences[i].generated);
    free(request);
}

void sequence_tokens(const struct sequence *sequence, uint32_t first, uint32_t count,
                     int32_t *ret_tokens) {
    uint32_t prompt_count = sequence->request->prompt_count;
    assert(first + count <= prompt_count + sequence->generated_count);
    uint32_t from_prompt = 0;
    if (first < prompt_count) {
        from_prompt = prompt_count - first < count ? prompt_count - first : count;
        memcpy(ret_tokens, sequence->request->prompt + first, from_prompt * sizeof *ret_tokens);
    }
    if (from_prompt == count) return;
    memcpy(ret_tokens + from_prompt, sequence->generated + (first + from_prompt - prompt_count),
           (count - from_prompt) * sizeof *ret_tokens);
}

/* Makes room for `count` tokens behind those that were generated. */
static void need_room(struct sequence *sequence, uint32_t count) {
    uint32_t room = sequence->generated_room;
    if (sequence->generated_count + count <= room) return;
    if (room == 0) room = GENERATED_ROOM_MIN;
    while (room < sequence->generated_count + count) room *= 2;
    sequence->generated = mem_resize(sequence->generated, room, sizeof *sequence->generated);
    sequence->generated_room = room;
}

void sequence_append(struct sequence *sequence, int32_t token) {
    need_room(sequence, 1);
    sequence->generated[sequence->generated_count++] = token;
}

void sequence_foresee(struct sequence *sequence, const int32_t *tokens, uint32_t count) {
    if (count == 0) return;
    need_room(sequence, count);
    memcpy(sequence->generated + sequence->generated_count, tokens, count * sizeof *tokens);
}

static struct live_request **bucket_of(const struct request_table *table, uint64_t id) {
    return &table->buckets[rng_at(0, id) & (table->bucket_count - 1)];
}

void request_table_release(struct request_table *table) {
    for (uint32_t i = 0; i < table->bucket_count; i++) {
        struct live_request *request = table->buckets[i];
        while (request) {
            struct live_request *next = request->next;
            live_request_close(request);
            request = next;
        }
    }
    free(table->buckets);
    *table = (struct request_table){0};
}

struct live_request *request_table_find(const struct request_table *table, uint64_t id) {
    if (table->count == 0) return NULL;
    struct live_request *request = *bucket_of(table, id);
    while (request && request->id != id) request = request->next;
    return request;
}

static void grow(struct request_table *table) {
    struct request_table old = *table;
    table->bucket_count = old.bucket_count > 0 ? old.bucket_count * 2 : BUCKETS_MIN;
    table->buckets = mem_new(table->bucket_count, sizeof(struct live_request *));
    for (uint32_t i = 0; i < old.bucket_count; i++) {
        struct live_request *request = old.buckets[i];
        while (request) {
            struct live_request *next = request->next;
            struct live_request **bucket = bucket_of(table, request->id);
            request->next = *bucket;
            *bucket = request;
            request = next;
        }
    }
    free(old.buckets);
}

void request_table_add(struct request_table *table, struct live_request *request) {
    if (table->count >= table->bucket_count) grow(table);
    struct live_request **bucket = bucket_of(table, request->id);
    request->next = *bucket;
    *bucket = request;
    table->count++;
}

void request_table_remove(struct request_table *table, struct live_request *request) {
    struct live_request **link = bucket_of(table, request->id);
    while (*link != request) link = &(*link)->next;
    *link = request->next;
    table->count--;
}
