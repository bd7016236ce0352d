/* SPDX-License-Identifier: Apache-2.0 */
#include "masks.h"

#include "base/buf.h"
#include "base/rng.h"
#include "json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NOTHINGS 10000
#define STEPS_MAX 2000 /* tokens of one answer */

/* Time of this thread on a core, so that other processes do not count. */
static int64_t cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static double ms_since(int64_t start) {
    return (double)(cpu_ns() - start) / 1e6;
}

static json_t *read_file(const char *path) {
    struct buf text;
    struct error error;
    json_t *value;
    char part[4096];
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    buf_init(&text, BUF_UNLIMITED);
    for (size_t count; (count = fread(part, 1, sizeof part, file)) > 0;)
        buf_add_str(&text, (struct str){part, count});
    fclose(file);
    if (json_read(&value, buf_str(&text), &error) != OK) value = NULL;
    buf_release(&text);
    return value;
}

/* A token that may come: the first from a random place on. So the draw takes hardly any time. */
static int32_t draw(const uint32_t *mask, uint32_t count, struct rng *rng) {
    uint32_t words = (count + 31) / 32, at = (uint32_t)rng_below(rng, words);
    while (!mask[at]) at = (at + 1) % words;
    return (int32_t)(at * 32 + (uint32_t)__builtin_ctz(mask[at]));
}

struct figures {
    uint64_t steps;
    double ms, longest_ms;
    double empty_ms; /* time of a measurement of nothing */
};

static double measure_nothing(void) {
    double sum = 0;
    for (int i = 0; i < NOTHINGS; i++) {
        int64_t start = cpu_ns();
        sum += ms_since(start);
    }
    return sum / NOTHINGS;
}

static bool is_end(const struct vocabulary_tokens *tokens, int32_t token) {
    return tokens->at[token].bytes == 0;
}

/* One answer. False if it could not go on. */
static bool answer(const struct vocabulary_tokens *tokens, struct grammar_masks *masks,
                   struct grammar *grammar, struct rng *rng, struct figures *figures) {
    struct grammar_state state;
    bool is_good = true;
    grammar_state_init(&state, grammar);
    int32_t token = -1;
    for (int i = 0; i < STEPS_MAX && is_good; i++) {
        int64_t start = cpu_ns();
        if (token >= 0) is_good = grammar_accept(&state, tokens->at[token]) == GRAMMAR_ACCEPTED;
        const uint32_t *mask = is_good ? grammar_mask(masks, &state) : NULL;
        double ms = ms_since(start) - figures->empty_ms;
        figures->steps++;
        figures->ms += ms;
        if (ms > figures->longest_ms) figures->longest_ms = ms;
        is_good = mask != NULL;
        if (!is_good) break;
        token = draw(mask, tokens->count, rng);
        if (is_end(tokens, token)) break;
    }
    grammar_state_release(&state);
    return is_good;
}

int masks_bench(const struct vocabulary_tokens *tokens, const char *schema_path, uint32_t answers) {
    struct rng rng = {1};
    struct error error;
    struct grammar *grammar;
    json_t *schema = read_file(schema_path);
    if (!schema) {
        fprintf(stderr, "masks: '%s' is not JSON\n", schema_path);
        return 1;
    }
    int64_t start = cpu_ns();
    enum err err = grammar_open(&grammar, GRAMMAR_SCHEMA, schema, &error);
    double compile_ms = ms_since(start);
    json_decref(schema);
    if (err != OK) {
        fprintf(stderr, "masks: %s\n", error.text);
        return 1;
    }
    start = cpu_ns();
    struct grammar_masks *masks = masks_of(tokens);
    double tree_ms = ms_since(start);
    struct figures figures = {.empty_ms = measure_nothing()}, first = {0};
    uint32_t lost = 0;
    for (uint32_t i = 0; i < answers; i++) {
        if (!answer(tokens, masks, grammar, &rng, &figures)) lost++;
        if (i == 0) first = figures;
    }
    struct grammar_mask_stats stats = grammar_mask_stats(masks);
    printf("tokens %u, tree %.1f ms, compile %.2f ms, first answer %.1f ms (%llu steps)\n",
           tokens->count, tree_ms, compile_ms, first.ms, (unsigned long long)first.steps);
    printf("steps %llu, %.2f us per step, masks made %llu, longest step %.2f ms, "
           "most work %llu, lost %u\n",
           (unsigned long long)figures.steps, figures.ms * 1e3 / (double)figures.steps,
           (unsigned long long)stats.made, figures.longest_ms, (unsigned long long)stats.work_max,
           lost);
    grammar_masks_close(masks);
    grammar_drop(grammar);
    return 0;
}
