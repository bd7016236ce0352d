/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "protocol/wire_messages.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static bool same(struct str a, struct str b) {
    return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.at, b.at, a.bytes) == 0);
}

/* Hands `bytes` to the reader in pieces of `piece` bytes and counts the frames. */
static enum err feed(struct wire_reader *reader, struct str bytes, size_t piece, size_t *ret_frames,
                     struct error *error) {
    *ret_frames = 0;
    for (size_t at = 0; at < bytes.bytes; at += piece) {
        size_t count = bytes.bytes - at < piece ? bytes.bytes - at : piece;
        size_t room_bytes;
        char *room = wire_reader_room(reader, &room_bytes);
        assert_true(room_bytes >= count);
        memcpy(room, bytes.at + at, count);
        wire_reader_filled(reader, count);
        for (;;) {
            struct wire_frame frame;
            bool found;
            enum err err = wire_reader_next(reader, &frame, &found, error);
            if (err != OK) return err;
            if (!found) break;
            (*ret_frames)++;
        }
    }
    return OK;
}

static struct buf one_frame(void) {
    struct buf out;
    buf_init(&out, WIRE_PAYLOAD_BYTES_MAX + WIRE_HEADER_BYTES);
    wire_write(&out, WIRE_DELTA, 0x1122334455667788u, 7, STR("hello"));
    return out;
}

static void a_header_lies_in_the_stream_as_documented(void **state) {
    (void)state;
    struct buf out = one_frame();
    assert_int_equal(out.bytes, WIRE_HEADER_BYTES + 5);
    static const unsigned char head[20] = {'Q',  'W',  'F',  '1',  17,   7,    0, 0, 0x88, 0x77,
                                           0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 5, 0, 0,    0};
    assert_memory_equal(out.at, head, sizeof head);
    assert_memory_equal(out.at + WIRE_HEADER_BYTES, "hello", 5);
    buf_release(&out);
}

static void frames_come_back_whatever_the_pieces_they_arrive_in(void **state) {
    (void)state;
    struct buf out;
    buf_init(&out, 1 << 20);
    struct rng rng = {1};
    char payload[300];
    for (size_t i = 0; i < sizeof payload; i++) payload[i] = (char)rng_next(&rng);
    for (size_t i = 0; i < 40; i++)
        wire_write(&out, WIRE_RESULT, i, (uint8_t)i, (struct str){payload, (i * 37) % 300});
    for (size_t piece = 1; piece < 400; piece += 13) {
        struct wire_reader reader;
        wire_reader_init(&reader);
        size_t frames;
        assert_int_equal(feed(&reader, buf_str(&out), piece, &frames, NULL), OK);
        assert_int_equal(frames, 40);
        wire_reader_release(&reader);
    }
    buf_release(&out);
}

static void a_frame_keeps_its_id_flags_and_payload(void **state) {
    (void)state;
    struct buf out = one_frame();
    struct wire_reader reader;
    wire_reader_init(&reader);
    size_t room_bytes;
    memcpy(wire_reader_room(&reader, &room_bytes), out.at, out.bytes);
    wire_reader_filled(&reader, out.bytes);
    struct wire_frame frame;
    bool found;
    assert_int_equal(wire_reader_next(&reader, &frame, &found, NULL), OK);
    assert_true(found);
    assert_int_equal(frame.kind, WIRE_DELTA);
    assert_int_equal(frame.flags, 7);
    assert_true(frame.id == 0x1122334455667788u);
    assert_true(str_is(frame.payload, "hello"));
    assert_int_equal(wire_reader_next(&reader, &frame, &found, NULL), OK);
    assert_false(found);
    wire_reader_release(&reader);
    buf_release(&out);
}

static void a_frame_with_any_one_bit_flipped_is_refused_or_waits_for_more(void **state) {
    (void)state;
    struct buf out = one_frame();
    for (size_t bit = 0; bit < out.bytes * 8; bit++) {
        out.at[bit / 8] = (char)(out.at[bit / 8] ^ 1 << bit % 8);
        struct wire_reader reader;
        wire_reader_init(&reader);
        size_t frames = 0;
        struct error error = {0};
        enum err err = feed(&reader, buf_str(&out), out.bytes, &frames, &error);
        assert_int_equal(frames, 0);
        /* A longer payload is believed until it is there. */
        bool is_length = bit / 8 >= 16 && bit / 8 < 20;
        if (!is_length) assert_int_equal(err, ERR_CORRUPT);
        if (err != OK) assert_true(error.text[0] != '\0');
        wire_reader_release(&reader);
        out.at[bit / 8] = (char)(out.at[bit / 8] ^ 1 << bit % 8);
    }
    buf_release(&out);
}

static void a_payload_over_the_limit_is_refused_from_its_header_alone(void **state) {
    (void)state;
    struct buf out = one_frame();
    out.at[19] = 0x7F;
    struct wire_reader reader;
    wire_reader_init(&reader);
    size_t frames;
    struct error error;
    assert_int_equal(
        feed(&reader, (struct str){out.at, WIRE_HEADER_BYTES}, WIRE_HEADER_BYTES, &frames, &error),
        ERR_CORRUPT);
    assert_non_null(strstr(error.text, "over the limit"));
    wire_reader_release(&reader);
    buf_release(&out);
}

static void a_reader_stays_broken_after_a_bad_frame(void **state) {
    (void)state;
    struct wire_reader reader;
    wire_reader_init(&reader);
    struct buf out = one_frame();
    size_t frames;
    static const char garbage[WIRE_HEADER_BYTES] = "GET / HTTP/1.1\r\nHost: x\r";
    assert_int_equal(feed(&reader, (struct str){garbage, sizeof garbage}, 64, &frames, NULL),
                     ERR_CORRUPT);
    assert_int_equal(feed(&reader, buf_str(&out), 64, &frames, NULL), ERR_CORRUPT);
    wire_reader_release(&reader);
    buf_release(&out);
}

static struct wire_hello a_hello(void) {
    struct wire_hello hello = {.version = WIRE_VERSION,
                               .model_path = STR("/models/m.gguf"),
                               .threads = 3,
                               .prep_threads = 2,
                               .max_num_seqs = 64,
                               .max_num_batched_tokens = 512,
                               .num_speculative_tokens = 6,
                               .max_model_len = 2048,
                               .kv_bytes = 1ull << 40,
                               .state_bytes = 1ull << 39,
                               .weight_bytes = 1ull << 38,
                               .prefix_caching = true,
                               .pooling = STR("last"),
                               .kernels = STR("avx2"),
                               .chat_template = STR("{{ messages }}"),
                               .tool_call_parser = STR("hermes"),
                               .packed_dir = STR("/cache/packed"),
                               .packed_bytes_max = 1ull << 41,
                               .device = {.name = STR("cuda:1"),
                                          .plugin = STR("/x.so"),
                                          .dtype = STR("bfloat16"),
                                          .kv_cache_dtype = STR("fp8"),
                                          .state_dtype = STR("float32"),
                                          .quantization = STR("int8"),
                                          .memory_share = 0.75,
                                          .memory_bytes = 1ull << 42,
                                          .tensor_parallel_size = 2},
                               .is_careful = true};
    hello.names.at[0] = STR("m");
    hello.names.at[1] = STR("alias");
    hello.names.count = 2;
    return hello;
}

static void a_hello_comes_back(void **state) {
    (void)state;
    struct wire_hello in = a_hello(), out;
    struct buf buf;
    buf_init(&buf, 1000);
    wire_put_hello(&buf, &in);
    assert_int_equal(wire_get_hello(buf_str(&buf), &out, NULL), OK);
    assert_true(same(in.model_path, out.model_path));
    assert_int_equal(out.names.count, 2);
    assert_true(same(in.names.at[1], out.names.at[1]));
    assert_true(out.threads == 3 && out.prep_threads == 2 && out.max_num_seqs == 64);
    assert_true(out.num_speculative_tokens == 6);
    assert_true(out.max_num_batched_tokens == 512 && out.max_model_len == 2048);
    assert_true(out.kv_bytes == 1ull << 40 && out.state_bytes == 1ull << 39 &&
                out.weight_bytes == 1ull << 38);
    assert_true(out.prefix_caching && !out.reference);
    assert_true(same(in.kernels, out.kernels));
    assert_true(same(in.chat_template, out.chat_template));
    assert_true(same(in.tool_call_parser, out.tool_call_parser));
    assert_true(same(in.pooling, out.pooling));
    assert_true(same(in.packed_dir, out.packed_dir) && out.packed_bytes_max == 1ull << 41);
    assert_true(same(in.device.name, out.device.name));
    assert_true(same(in.device.plugin, out.device.plugin));
    assert_true(same(in.device.dtype, out.device.dtype));
    assert_true(same(in.device.kv_cache_dtype, out.device.kv_cache_dtype));
    assert_true(same(in.device.state_dtype, out.device.state_dtype));
    assert_true(same(in.device.quantization, out.device.quantization));
    assert_true(out.device.memory_share == 0.75 && out.device.memory_bytes == 1ull << 42);
    assert_int_equal(out.device.tensor_parallel_size, 2);
    assert_true(out.is_careful);
    buf_release(&buf);
}

static void a_hello_of_another_version_is_refused_by_name(void **state) {
    (void)state;
    struct wire_hello in = a_hello(), out;
    in.version = WIRE_VERSION + 1;
    struct buf buf;
    buf_init(&buf, 1000);
    wire_put_hello(&buf, &in);
    struct error error;
    assert_int_equal(wire_get_hello(buf_str(&buf), &out, &error), ERR_INVALID);
    char named[32];
    snprintf(named, sizeof named, "version %d", WIRE_VERSION + 1);
    assert_non_null(strstr(error.text, named));
    buf_release(&buf);
}

static void a_ready_comes_back(void **state) {
    (void)state;
    struct wire_ready in = {.version = WIRE_VERSION,
                            .created_unix_s = -5,
                            .context_tokens_max = 8192,
                            .vocabulary_count = 49152,
                            .kv_tokens = 1ull << 33,
                            .embeds = true,
                            .decides = true,
                            .description = STR("135M")};
    in.names.at[0] = STR("m");
    in.names.count = 1;
    in.device = STR("cuda:GPU-1");
    in.ledger =
        (struct card_ledger){.limit_bytes = 1ull << 34, .part_bytes = {1, 2, 3, 4, 5, 6, 7}};
    in.about = (struct model_about){.architecture = STR("llama"),
                                    .title = STR("SmolLM"),
                                    .format = STR("gguf"),
                                    .quantization = STR("Q4_K_M"),
                                    .template = STR("{{ messages }}"),
                                    .parameters = 1ull << 37,
                                    .file_bytes = 1ull << 36,
                                    .memory_bytes = 1ull << 35,
                                    .context_tokens = 4096,
                                    .layers = 30,
                                    .width = 576,
                                    .knows_template = true,
                                    .takes_tools = true};
    struct wire_ready out;
    struct buf buf;
    buf_init(&buf, 1000);
    wire_put_ready(&buf, &in);
    assert_int_equal(wire_get_ready(buf_str(&buf), &out, NULL), OK);
    assert_true(out.created_unix_s == -5 && out.context_tokens_max == 8192);
    assert_true(out.vocabulary_count == 49152 && out.kv_tokens == 1ull << 33);
    assert_true(out.embeds && out.decides && !out.generates);
    assert_true(same(in.description, out.description) && same(in.names.at[0], out.names.at[0]));
    assert_true(same(in.device, out.device));
    assert_memory_equal(&in.ledger, &out.ledger, sizeof in.ledger);
    assert_true(same(in.about.architecture, out.about.architecture) &&
                same(in.about.title, out.about.title) && same(in.about.format, out.about.format) &&
                same(in.about.quantization, out.about.quantization) &&
                same(in.about.template, out.about.template));
    assert_true(out.about.parameters == 1ull << 37 && out.about.file_bytes == 1ull << 36 &&
                out.about.memory_bytes == 1ull << 35 && out.about.context_tokens == 4096);
    assert_true(out.about.layers == 30 && out.about.width == 576 && out.about.knows_template &&
                out.about.takes_tools && !out.about.thinks);
    buf_release(&buf);
}

static void a_job_comes_back(void **state) {
    (void)state;
    struct wire_job in = {ENDPOINT_SCORE, TIER_BATCH,       true,       true,
                          INT32_MIN,      STR("{\"a\":1}"), STR("team")};
    struct wire_job out;
    struct buf buf;
    buf_init(&buf, 1000);
    wire_put_job(&buf, &in);
    assert_int_equal(wire_get_job(buf_str(&buf), &out, NULL), OK);
    assert_true(out.endpoint == in.endpoint && out.tier == in.tier && out.stream && out.is_line);
    assert_true(out.priority == INT32_MIN && same(in.body, out.body) && same(in.owner, out.owner));
    buf_release(&buf);
}

static void a_result_and_stats_come_back(void **state) {
    (void)state;
    struct wire_result in = {503,       OUTCOME_TRY_AGAIN, {1, 2, 3, 4, 0, 0},
                             STR("{}"), SHAPE_TRUNCATED,   {0, 5, 1ll << 40, 7}},
                       out;
    struct buf buf;
    buf_init(&buf, WIRE_STATS_BYTES_MAX);
    wire_put_result(&buf, &in);
    assert_int_equal(wire_get_result(buf_str(&buf), &out, NULL), OK);
    assert_true(out.status == 503 && out.outcome == OUTCOME_TRY_AGAIN &&
                out.usage.input_tokens == 1);
    assert_true(out.usage.cached_tokens == 2 && out.usage.output_tokens == 3);
    assert_true(out.usage.reasoning_tokens == 4);
    assert_true(same(in.body, out.body) && out.shape == SHAPE_TRUNCATED);
    assert_true(out.times.queue_ns == 5 && out.times.prefill_ns == 1ll << 40 &&
                out.times.decode_ns == 7);
    buf_clear(&buf);

    struct wire_stats stats = {1,  2,  12,   3,  4,  5,  11,
                               17, 18, 19,   13, 14, 15, 16,
                               6,  7,  0.25, 8,  9,  10, .timings = {.ends = {{0}}}},
                      got;
    for (int timing = 0; timing < TIMING_COUNT; timing++)
        timings_add(&stats.timings, TIMING_LINE, timing, 1e9 + timing); /* above every bound */
    timings_add_ns(&stats.timings, TIMING_CLIENT, TIMING_QUEUE, 1000);
    stats.timings.ends[TIMING_CLIENT][ENDED_ERROR] = 5;
    histogram_add(&stats.timings.step_tokens, &timing_step_bounds, 8);
    wire_put_stats(&buf, &stats);
    assert_int_equal(wire_get_stats(buf_str(&buf), &got, NULL), OK);
    assert_true(got.steps == 1 && got.prompt_tokens == 2 && got.cached_tokens == 3);
    assert_true(got.completion_tokens == 4 && got.preemptions == 5 && got.running == 6);
    assert_true(got.nonfinite_rows == 11 && got.prefix_queries == 12);
    assert_true(got.state_saves == 13 && got.state_hits == 14 && got.state_evictions == 15);
    assert_true(got.states_stored == 16 && got.drafts == 17);
    assert_true(got.draft_tokens == 18 && got.accepted_tokens == 19);
    assert_memory_equal(&got.timings, &stats.timings, sizeof got.timings);
    assert_true(got.waiting == 7 && got.kv_used == 0.25 && got.step_age_ms == 8);
    assert_true(got.step_ms_max == 9 && got.token_age_ms == 10);
    buf_release(&buf);
}

/* Every decoder on every proper prefix of a good message, on one byte too many, and on noise. */
static void a_message_that_is_cut_or_too_long_is_refused(void **state) {
    (void)state;
    struct buf messages[5];
    for (size_t i = 0; i < 5; i++) buf_init(&messages[i], WIRE_STATS_BYTES_MAX);
    struct wire_hello hello = a_hello();
    wire_put_hello(&messages[0], &hello);
    struct wire_ready ready = {.version = WIRE_VERSION, .generates = true, .description = STR("d")};
    ready.names.at[0] = STR("m");
    ready.names.count = 1;
    wire_put_ready(&messages[1], &ready);
    wire_put_job(&messages[2], &(struct wire_job){.body = STR("x")});
    wire_put_result(&messages[3], &(struct wire_result){.status = 200, .body = STR("x")});
    wire_put_stats(&messages[4], &(struct wire_stats){.steps = 1});

    union {
        struct wire_hello hello;
        struct wire_ready ready;
        struct wire_job job;
        struct wire_result result;
        struct wire_stats stats;
    } got;
    for (size_t kind = 0; kind < 5; kind++) {
        size_t whole = messages[kind].bytes;
        buf_add_byte(&messages[kind], 0);
        for (size_t bytes = 0; bytes <= whole + 1; bytes++) {
            /* An exact-size copy, so that a read past the end is seen. */
            char *copy = malloc(bytes ? bytes : 1);
            memcpy(copy, messages[kind].at, bytes);
            struct str payload = {copy, bytes};
            struct error error = {0};
            enum err err;
            switch (kind) {
            case 0: err = wire_get_hello(payload, &got.hello, &error); break;
            case 1: err = wire_get_ready(payload, &got.ready, &error); break;
            case 2: err = wire_get_job(payload, &got.job, &error); break;
            case 3: err = wire_get_result(payload, &got.result, &error); break;
            default: err = wire_get_stats(payload, &got.stats, &error); break;
            }
            assert_int_equal(err, bytes == whole ? OK : ERR_CORRUPT);
            free(copy);
        }
        buf_release(&messages[kind]);
    }
}

static void values_outside_their_range_are_refused(void **state) {
    (void)state;
    struct buf buf;
    buf_init(&buf, WIRE_STATS_BYTES_MAX);
    wire_put_job(&buf, &(struct wire_job){.body = STR("x")});
    struct wire_job job;
    buf.at[0] = ENDPOINT_ALL_COUNT;
    assert_int_equal(wire_get_job(buf_str(&buf), &job, NULL), ERR_CORRUPT);
    buf.at[0] = 0;
    buf.at[1] = TIER_COUNT;
    assert_int_equal(wire_get_job(buf_str(&buf), &job, NULL), ERR_CORRUPT);
    buf.at[1] = 0;
    buf.at[2] = 2; /* a bool */
    assert_int_equal(wire_get_job(buf_str(&buf), &job, NULL), ERR_CORRUPT);

    buf_clear(&buf);
    wire_put_stats(&buf, &(struct wire_stats){.kv_used = 1.5});
    struct wire_stats stats;
    assert_int_equal(wire_get_stats(buf_str(&buf), &stats, NULL), ERR_CORRUPT);
    buf_clear(&buf);
    struct wire_stats negative = {.timings = {.step_tokens = {.sum = -1}}};
    wire_put_stats(&buf, &negative);
    assert_int_equal(wire_get_stats(buf_str(&buf), &stats, NULL), ERR_CORRUPT);
    buf_clear(&buf);
    negative.timings.step_tokens.sum = INFINITY;
    wire_put_stats(&buf, &negative);
    assert_int_equal(wire_get_stats(buf_str(&buf), &stats, NULL), ERR_CORRUPT);
    buf_clear(&buf);
    wire_put_result(&buf, &(struct wire_result){.status = 17});
    struct wire_result result;
    assert_int_equal(wire_get_result(buf_str(&buf), &result, NULL), ERR_CORRUPT);
    buf_clear(&buf);
    wire_put_result(&buf, &(struct wire_result){.status = 499, .outcome = OUTCOME_RETURNED});
    assert_int_equal(wire_get_result(buf_str(&buf), &result, NULL), ERR_CORRUPT);
    buf_release(&buf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_lies_in_the_stream_as_documented),
        cmocka_unit_test(frames_come_back_whatever_the_pieces_they_arrive_in),
        cmocka_unit_test(a_frame_keeps_its_id_flags_and_payload),
        cmocka_unit_test(a_frame_with_any_one_bit_flipped_is_refused_or_waits_for_more),
        cmocka_unit_test(a_payload_over_the_limit_is_refused_from_its_header_alone),
        cmocka_unit_test(a_reader_stays_broken_after_a_bad_frame),
        cmocka_unit_test(a_hello_comes_back),
        cmocka_unit_test(a_hello_of_another_version_is_refused_by_name),
        cmocka_unit_test(a_ready_comes_back),
        cmocka_unit_test(a_job_comes_back),
        cmocka_unit_test(a_result_and_stats_come_back),
        cmocka_unit_test(a_message_that_is_cut_or_too_long_is_refused),
        cmocka_unit_test(values_outside_their_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
