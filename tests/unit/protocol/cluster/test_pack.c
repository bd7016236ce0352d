/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "cluster/pack.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct worker_job a_job = {.id = 7,
                                        .endpoint = ENDPOINT_CHAT,
                                        .tier = TIER_BATCH,
                                        .priority = -3,
                                        .is_line = true,
                                        .model = {"tiny", 4},
                                        .body = {"{\"a\":1}", 7},
                                        .owner = "amy",
                                        .line = {"batch_1:77", 10},
                                        .deadline_unix_s = 1700000000,
                                        .keep_ms = -1};
static const struct worker_result a_result = {.id = 9,
                                              .outcome = OUTCOME_TRY_AGAIN,
                                              .status = 503,
                                              .body = {"{}", 2},
                                              .usage = {1, 2, 3, 4, 0, 0},
                                              .times = {0, 5, 6, 7},
                                              .shape = SHAPE_VALID,
                                              .retry_after_ms = 8};

static struct buf all_kinds(void) {
    static const uint64_t ids[] = {1, 1ull << 60};
    struct buf pack;
    buf_init(&pack, PACK_BYTES_MAX);
    pack_begin(&pack);
    pack_sync(&pack, 5ull << 24 | 1, true, true);
    pack_job(&pack, 2, &a_job);
    pack_result(&pack, 3, &a_result, STR("batch_1:78"));
    pack_text(&pack, PACK_DOWN, 1, 0, STR("it died"));
    pack_want(&pack, 4, TIER_FLEX, 99);
    pack_held(&pack, ids, 2, true);
    pack_bare(&pack, PACK_BYE, 0, 0);
    pack_seal(&pack, 5ull << 24 | 1, 77);
    return pack;
}

static void records_come_back_as_they_were_put(void **state) {
    (void)state;
    struct buf pack = all_kinds();
    struct pack_reader reader;
    struct pack_head head;
    struct pack_record record;
    struct worker_job job;
    struct worker_result result;
    struct str text = {0}, ids = {0}, line = {0};
    size_t count = 0;
    bool flag = false, adopts = false;
    enum tier tier = TIER_BATCH;
    int64_t deadline = 0;
    assert_true(pack_open(&reader, &head, buf_str(&pack)));
    assert_int_equal(head.round, 5ull << 24 | 1);
    assert_int_equal(head.seq, 77);
    assert_true(pack_next(&reader, &record) && record.kind == PACK_SYNC);
    assert_true(record.id == (5ull << 24 | 1));
    assert_true(pack_read_sync(&record, &flag, &adopts) && flag && adopts);
    assert_true(pack_next(&reader, &record) && record.kind == PACK_JOB && record.worker == 2);
    assert_true(pack_read_job(&record, &job));
    assert_true(job.id == 7 && job.endpoint == ENDPOINT_CHAT && job.tier == TIER_BATCH);
    assert_true(job.priority == -3 && job.is_line && !job.stream && job.keep_ms == -1);
    assert_true(str_is(job.model, "tiny") && str_equals(job.body, a_job.body));
    assert_string_equal(job.owner, "amy");
    assert_true(str_is(job.line, "batch_1:77"));
    assert_int_equal(job.deadline_unix_s, 1700000000);
    assert_true(pack_next(&reader, &record) && pack_read_result(&record, &result, &line));
    assert_true(str_is(line, "batch_1:78"));
    assert_true(record.worker == 3 && result.id == 9 && result.outcome == OUTCOME_TRY_AGAIN);
    assert_true(result.status == 503 && result.shape == SHAPE_VALID && result.retry_after_ms == 8);
    assert_memory_equal(&result.usage, &a_result.usage, sizeof result.usage);
    assert_memory_equal(&result.times, &a_result.times, sizeof result.times);
    assert_true(str_is(result.body, "{}"));
    assert_true(pack_next(&reader, &record) && pack_read_text(&record, &text));
    assert_true(str_is(text, "it died"));
    assert_true(pack_next(&reader, &record) && pack_read_want(&record, &tier, &deadline));
    assert_true(tier == TIER_FLEX && deadline == 99);
    assert_true(pack_next(&reader, &record) && pack_read_held(&record, &ids, &count, &flag));
    assert_true(count == 2 && flag && pack_held_id(ids, 1) == 1ull << 60);
    assert_true(pack_next(&reader, &record) && record.kind == PACK_BYE);
    assert_false(pack_next(&reader, &record));
    assert_false(reader.is_bad);
    buf_release(&pack);
}

/* The layout is frozen: other releases have these bytes. */
static void the_layout_is_the_documented_one(void **state) {
    (void)state;
    struct buf pack;
    buf_init(&pack, PACK_BYTES_MAX);
    pack_begin(&pack);
    pack_bare(&pack, PACK_CANCEL, 3, 0x0807060504030201);
    pack_seal(&pack, 0x1112131415161718, 2);
    static const unsigned char wanted[] = {1,    0,    0,    0,    0,    0,    0, 0, 0x18, 0x17,
                                           0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 2, 0, 0,    0,
                                           0,    0,    0,    0,    0,    0,    0, 0};
    static const unsigned char record[] = {2, 3, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8};
    assert_int_equal(pack.bytes, PACK_HEAD_BYTES + PACK_RECORD_BYTES);
    assert_memory_equal(pack.at, wanted, sizeof wanted);
    assert_memory_equal(pack.at + PACK_HEAD_BYTES + 8, record, sizeof record);
    buf_release(&pack);
}

static size_t count_records(struct str bytes, bool *ret_is_bad) {
    struct pack_reader reader;
    struct pack_head head;
    struct pack_record record;
    size_t count = 0;
    *ret_is_bad = !pack_open(&reader, &head, bytes);
    while (pack_next(&reader, &record)) count++;
    *ret_is_bad = *ret_is_bad || reader.is_bad;
    return count;
}

static void no_changed_bit_of_a_record_is_taken(void **state) {
    (void)state;
    struct buf pack = all_kinds();
    bool is_bad;
    size_t whole = count_records(buf_str(&pack), &is_bad);
    assert_false(is_bad);
    for (size_t bit = PACK_HEAD_BYTES * 8; bit < pack.bytes * 8; bit++) {
        pack.at[bit / 8] = (char)(pack.at[bit / 8] ^ (1 << bit % 8));
        assert_true(count_records(buf_str(&pack), &is_bad) < whole);
        assert_true(is_bad);
        pack.at[bit / 8] = (char)(pack.at[bit / 8] ^ (1 << bit % 8));
    }
    for (size_t cut = 0; cut < pack.bytes; cut++)
        assert_true(count_records((struct str){pack.at, cut}, &is_bad) < whole);
    buf_release(&pack);
}

static void fields_of_a_later_version_are_skipped(void **state) {
    (void)state;
    struct buf pack;
    struct pack_record record;
    buf_init(&pack, PACK_BYTES_MAX);
    pack_begin(&pack);
    pack_want(&pack, 0, TIER_FLEX, 5);
    char longer[64] = {0};
    size_t bytes = pack.bytes - PACK_HEAD_BYTES - PACK_RECORD_BYTES;
    memcpy(longer, pack.at + PACK_HEAD_BYTES + PACK_RECORD_BYTES, bytes);
    enum tier tier;
    int64_t deadline;
    record = (struct pack_record){.kind = PACK_WANT, .payload = {longer, bytes + 9}};
    assert_true(pack_read_want(&record, &tier, &deadline));
    assert_int_equal(deadline, 5);
    record.payload.bytes = bytes - 1;
    assert_false(pack_read_want(&record, &tier, &deadline));
    buf_release(&pack);
}

/* A release before names of lines ended its records sooner. */
static void records_without_names_of_lines_are_read(void **state) {
    (void)state;
    struct buf pack;
    struct pack_reader reader;
    struct pack_head head;
    struct pack_record record;
    struct worker_job job, plain = a_job;
    struct worker_result result;
    struct str line;
    bool keeps = false, adopts = true;
    buf_init(&pack, PACK_BYTES_MAX);
    pack_begin(&pack);
    plain.line = (struct str){0};
    pack_sync(&pack, 5ull << 24 | 1, true, true);
    pack_job(&pack, 0, &plain);
    pack_result(&pack, 0, &a_result, (struct str){0});
    assert_true(pack_open(&reader, &head, buf_str(&pack)));
    assert_true(pack_next(&reader, &record));
    record.payload.bytes -= 1;
    assert_true(pack_read_sync(&record, &keeps, &adopts) && keeps && !adopts);
    assert_true(pack_next(&reader, &record));
    record.payload.bytes -= 4;
    assert_true(pack_read_job(&record, &job) && job.line.bytes == 0);
    assert_true(str_equals(job.body, a_job.body));
    assert_true(pack_next(&reader, &record));
    record.payload.bytes -= 4;
    assert_true(pack_read_result(&record, &result, &line) && line.bytes == 0);
    assert_true(str_is(result.body, "{}"));
    record.payload.bytes -= 1;
    assert_false(pack_read_result(&record, &result, &line));
    buf_release(&pack);
}

static void a_record_without_room_leaves_no_half(void **state) {
    (void)state;
    struct buf pack;
    bool is_bad;
    buf_init(&pack, PACK_HEAD_BYTES + PACK_RECORD_BYTES + 8);
    pack_begin(&pack);
    pack_bare(&pack, PACK_ROOM, 0, 0);
    pack_job(&pack, 0, &a_job);
    assert_true(pack.overflowed);
    assert_int_equal(count_records(buf_str(&pack), &is_bad), 1);
    assert_false(is_bad);
    buf_release(&pack);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_come_back_as_they_were_put),
        cmocka_unit_test(the_layout_is_the_documented_one),
        cmocka_unit_test(no_changed_bit_of_a_record_is_taken),
        cmocka_unit_test(fields_of_a_later_version_are_skipped),
        cmocka_unit_test(records_without_names_of_lines_are_read),
        cmocka_unit_test(a_record_without_room_leaves_no_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
