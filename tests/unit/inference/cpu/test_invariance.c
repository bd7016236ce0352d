/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "step_runner.h"
#include "tap.h"

#include <stdio.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define SEQUENCES 8u
#define TOKENS_MAX 140u

static const uint32_t lengths[SEQUENCES] = {1, 15, 16, 17, 33, 64, 65, 140};
/* One model of each kind of weights, the one with windows and two ropes, one with experts, and one
 * with states. */
static const char *const files[] = {"llama3/model-bf16.gguf", "llama3/model-q8_0.gguf",
                                    "gemma3/model-q8_0.gguf", "qwen3/model-bf16.gguf",
                                    "../tiny_next/qwen3_moe", "../tiny_next/qwen3_5"};

static bool find_file(const char *file, char path[512]) {
    const char *shared = getenv("QUERN_SHARED");
    snprintf(path, 512, "%s/tiny/%s", shared ? shared : "shared", file);
    return access(path, R_OK) == 0;
}

static void make_tokens(int32_t tokens[SEQUENCES][TOKENS_MAX], uint32_t vocab) {
    struct rng rng = {.state = 11};
    for (uint32_t i = 0; i < SEQUENCES; i++)
        for (uint32_t j = 0; j < TOKENS_MAX; j++) tokens[i][j] = (int32_t)rng_below(&rng, vocab);
}

static struct runner_sequence sequence_of(int32_t tokens[SEQUENCES][TOKENS_MAX], uint32_t index,
                                          uint32_t chunk) {
    struct runner_sequence sequence = {
        .tokens = tokens[index], .count = lengths[index], .chunk = chunk, .slot = index};
    /* Blocks 5, 16, 27, …: neither neighbours nor in order. 96 blocks, 9 for each sequence. */
    for (uint32_t i = 0; i < 9; i++) sequence.blocks[i] = (index * 9 + i) * 11 % 96;
    return sequence;
}

/* Every sequence alone, in one piece. */
static void run_alone(struct rig *rig, int32_t tokens[SEQUENCES][TOKENS_MAX],
                      float *ret_logits[SEQUENCES]) {
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        struct runner_sequence sequence = sequence_of(tokens, i, TOKENS_MAX);
        run_sequences(rig, &sequence, 1);
        ret_logits[i] = sequence.logits;
    }
}

/* Every position that has logits: all from `cached` on, or the last of each piece. */
static void assert_same(const struct rig *rig, const struct runner_sequence *sequence,
                        const float *alone) {
    size_t vocab = rig->config.vocab_rows;
    for (uint32_t i = sequence->cached; i < sequence->count; i++) {
        bool ends_a_piece = (i + 1) % sequence->chunk == 0 || i + 1 == sequence->count;
        if (sequence->last_only && !ends_a_piece) continue;
        assert_memory_equal(sequence->logits + i * vocab, alone + i * vocab, vocab * sizeof(float));
    }
}

/* All at once, in pieces of `chunk` rows (0: each its own), starting at different steps. */
static void check_mixed(struct rig *rig, int32_t tokens[SEQUENCES][TOKENS_MAX],
                        float *const alone[SEQUENCES], uint32_t chunk) {
    static const uint32_t own_chunks[SEQUENCES] = {1, 4, 7, 16, 5, 64, 1, 31};
    struct runner_sequence sequences[SEQUENCES];
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        sequences[i] = sequence_of(tokens, i, chunk ? chunk : own_chunks[i]);
        sequences[i].start = chunk ? i % 3 : 0;
        sequences[i].last_only = chunk > 0;
    }
    run_sequences(rig, sequences, SEQUENCES);
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        assert_same(rig, &sequences[i], alone[i]);
        free(sequences[i].logits);
    }
}

#define FORK_TOKENS 100

/* Makes a prompt of the first `common` tokens of sequence 7, then those of 6. Returns its logits.
 */
static float *run_fork(struct rig *rig, int32_t tokens[SEQUENCES][TOKENS_MAX], uint32_t common,
                       int32_t ret_fork[FORK_TOKENS]) {
    for (uint32_t i = 0; i < FORK_TOKENS; i++) ret_fork[i] = tokens[i < common ? 7 : 6][i];
    struct runner_sequence alone = sequence_of(tokens, 6, TOKENS_MAX);
    alone.tokens = ret_fork;
    alone.count = FORK_TOKENS;
    run_sequences(rig, &alone, 1);
    return alone.logits;
}

/* A second sequence with the same first 48 tokens takes the first one's blocks for them, in the
 * very step that writes them, whichever stands first in the list. */
static void check_shared(struct rig *rig, int32_t tokens[SEQUENCES][TOKENS_MAX]) {
    int32_t fork[FORK_TOKENS];
    float *alone = run_fork(rig, tokens, 48, fork);
    struct runner_sequence pair[2] = {sequence_of(tokens, 5, TOKENS_MAX),
                                      sequence_of(tokens, 7, TOKENS_MAX)};
    pair[0].tokens = fork;
    pair[0].count = FORK_TOKENS;
    pair[0].cached = 48;
    memcpy(pair[0].blocks, pair[1].blocks, 3 * sizeof(uint32_t));
    run_sequences(rig, pair, 2);
    assert_same(rig, &pair[0], alone);
    free(alone);
    free(pair[0].logits);
    free(pair[1].logits);
}

/* A sequence with the same first `common` tokens takes the whole blocks of the first one, which has
 * been computed in pieces of `chunk` rows, a copy of the next one, and the state saved there. */
static void check_continued(struct rig *rig, int32_t tokens[SEQUENCES][TOKENS_MAX],
                            const float *whole, uint32_t common, uint32_t chunk) {
    int32_t fork[FORK_TOKENS];
    float *alone = run_fork(rig, tokens, common, fork);
    struct runner_sequence first = sequence_of(tokens, 7, chunk);
    struct runner_sequence second = sequence_of(tokens, 5, TOKENS_MAX);
    const uint32_t blocks = common / KV_BLOCK_TOKENS;
    first.save_at = common;
    first.save_to = second.state_from = SEQUENCES;
    run_sequences(rig, &first, 1);
    assert_same(rig, &first, whole);
    second.tokens = fork;
    second.count = FORK_TOKENS;
    second.cached = common;
    memcpy(second.blocks, first.blocks, blocks * sizeof(uint32_t));
    second.copy = (struct page_copy){.from = first.blocks[blocks], .to = second.blocks[blocks]};
    run_sequences(rig, &second, 1);
    assert_same(rig, &second, alone);
    /* The saved state is as it was: a third one goes on from it. */
    free(second.logits);
    run_sequences(rig, &second, 1);
    assert_same(rig, &second, alone);
    free(alone);
    free(first.logits);
    free(second.logits);
}

/* The state is saved within a piece, after its first row, and after its last. */
static void check_copied(struct rig *rig, int32_t tokens[SEQUENCES][TOKENS_MAX],
                         float *const alone[SEQUENCES]) {
    check_continued(rig, tokens, alone[7], 43, TOKENS_MAX);
    if (!config_is_recurrent(&rig->config)) return;
    check_continued(rig, tokens, alone[7], 43, 21);
    check_continued(rig, tokens, alone[7], 48, 16);
    check_continued(rig, tokens, alone[7], 2, 1);
}

/* The sequence that passes the steps of the others, and its expected tokens. */
struct passing {
    const struct runner_sequence *sequence;
    const float *alone;
    uint32_t count; /* times it passed */
};

static void pass(struct rig *rig, void *context) {
    struct passing *passing = context;
    struct forward *under_way = rig->forward;
    struct runner_sequence sequence = *passing->sequence;
    rig->forward = rig->beside;
    rig->between = NULL;
    run_sequences(rig, &sequence, 1);
    assert_same(rig, &sequence, passing->alone);
    free(sequence.logits);
    rig->forward = under_way;
    rig->between = pass;
    passing->count++;
}

/* One sequence is computed from its beginning to its end between any two slices of the others. */
static void check_passed(struct rig *rig, int32_t tokens[SEQUENCES][TOKENS_MAX],
                         float *const alone[SEQUENCES]) {
    struct runner_sequence urgent = sequence_of(tokens, 4, 31);
    static const uint32_t which[] = {1, 3, 5, 6};
    struct runner_sequence others[4];
    struct passing passing = {.sequence = &urgent, .alone = alone[4]};
    for (uint32_t i = 0; i < 4; i++) {
        others[i] = sequence_of(tokens, which[i], 64);
        others[i].last_only = i % 2 == 0;
    }
    rig->between = pass;
    rig->context = &passing;
    run_sequences(rig, others, 4);
    rig->between = NULL;
    assert_true(passing.count >= 2 * rig->config.layers);
    for (uint32_t i = 0; i < 4; i++) {
        assert_same(rig, &others[i], alone[which[i]]);
        free(others[i].logits);
    }
}

static void free_all(float *logits[SEQUENCES]) {
    for (uint32_t i = 0; i < SEQUENCES; i++) free(logits[i]);
}

static void check_file(const char *path, const struct kernels *kernels) {
    static int32_t tokens[SEQUENCES][TOKENS_MAX];
    struct error error = {0};
    struct rig rig;
    float *alone[SEQUENCES], *other[SEQUENCES];
    assert_int_equal(rig_open(&rig, path, kernels, 1, &error), OK);
    make_tokens(tokens, rig.config.token_count);
    run_alone(&rig, tokens, alone);
    check_mixed(&rig, tokens, alone, 0);
    check_mixed(&rig, tokens, alone, 13);
    if (!config_is_recurrent(&rig.config)) check_shared(&rig, tokens);
    check_copied(&rig, tokens, alone);
    check_passed(&rig, tokens, alone);
    rig_close(&rig);
    for (uint32_t threads = 2; threads <= 3; threads++) {
        assert_int_equal(rig_open(&rig, path, kernels, threads, &error), OK);
        if (threads == 2) {
            run_alone(&rig, tokens, other);
            size_t row_bytes = rig.config.vocab_rows * sizeof(float);
            for (uint32_t i = 0; i < SEQUENCES; i++)
                assert_memory_equal(alone[i], other[i], lengths[i] * row_bytes);
            free_all(other);
        }
        check_mixed(&rig, tokens, alone, 0);
        if (threads == 3) check_passed(&rig, tokens, alone);
        rig_close(&rig);
    }
    free_all(alone);
}

static void logits_do_not_depend_on_company_cutting_threads_sharing_or_who_passes(void **state) {
    (void)state;
    /* Every other file where each instruction costs ten: see tools/sanitize. */
    size_t stride = getenv("QUERN_TEST_SMALL") ? 2 : 1;
    uint64_t seed = 1;
    const double share = report_share(&seed);
    struct rng rng = {.state = seed};
    for (size_t i = 0; i < sizeof files / sizeof *files; i += stride) {
        char path[512];
        if (!find_file(files[i], path)) {
            print_message("# skipped: %s is not there\n", path);
            skip();
        }
        /* Kernels that a model surely has, and a share of the others. */
        size_t count = 0;
        while (kernels_at(count)) count++;
        const size_t sure = (size_t)rng_below(&rng, count);
        for (size_t j = 0; j < count; j++)
            if (rng_unit(&rng) < share || j == sure) check_file(path, kernels_at(j));
    }
}

/* Without this, the test above could pass with logits that are all the same. */
static void logits_depend_on_every_earlier_token(void **state) {
    (void)state;
    char path[512];
    if (!find_file(files[0], path)) skip();
    static int32_t tokens[SEQUENCES][TOKENS_MAX];
    struct error error = {0};
    struct rig rig;
    assert_int_equal(rig_open(&rig, path, kernels_choose("ref"), 1, &error), OK);
    make_tokens(tokens, rig.config.token_count);
    struct runner_sequence one = sequence_of(tokens, 4, TOKENS_MAX), two = one;
    run_sequences(&rig, &one, 1);
    tokens[4][0] = (tokens[4][0] + 1) % (int32_t)rig.config.token_count;
    run_sequences(&rig, &two, 1);
    size_t vocab = rig.config.vocab_rows;
    for (uint32_t i = 0; i < one.count; i++)
        assert_memory_not_equal(one.logits + i * vocab, two.logits + i * vocab,
                                vocab * sizeof(float));
    free(one.logits);
    free(two.logits);
    rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_do_not_depend_on_company_cutting_threads_sharing_or_who_passes),
        cmocka_unit_test(logits_depend_on_every_earlier_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
