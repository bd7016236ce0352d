/* SPDX-License-Identifier: Apache-2.0 */
#include "scratch.h"

#include "store/seglog_format.h"
#include "store/seglog_reader.h"
#include "store/seglog_writer.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

#define LINES 3000

static void ignore(void *context, const struct seglog_done *done, size_t count) {
    (void)context, (void)done, (void)count;
}

static void silent(void *context, const char *sentence) {
    (void)context, (void)sentence;
}

static struct seglog *open_log(struct scratch *s) {
    struct seglog *log = NULL;
    struct seglog_options options = {
        .batch_id = "batch_one", .batch_sequence = 1, .line_count = LINES, .report = silent};
    assert_int_equal(seglog_open(&log, s->store, &options, &s->error), OK);
    return log;
}

static struct seglog_writer *open_writer(struct scratch *s) {
    struct seglog_writer *writer;
    assert_int_equal(seglog_writer_open(&writer, s->store, ignore, NULL, &s->error), OK);
    return writer;
}

/* A permutation of the lines, so that the order of writing is not theirs. */
static uint64_t nth_line(uint64_t index) {
    return index * 7 % LINES;
}

static void put(struct seglog_writer *writer, struct seglog *log, uint64_t line) {
    char text[300];
    snprintf(text, sizeof text, "{\"line\":%llu,\"text\":\"%0200d\"}\n", (unsigned long long)line,
             1);
    struct seglog_record record = {
        .line = line, .kind = SEGLOG_SUCCESS, .usage = {1, 0, 1, 0, 0, 0}, .text = str_from(text)};
    seglog_put(writer, log, &record, line + 1);
}

static void write_lines(struct scratch *s, struct seglog *log, uint64_t from, uint64_t to) {
    struct seglog_writer *writer = open_writer(s);
    for (uint64_t i = from; i < to; i++) put(writer, log, nth_line(i));
    seglog_writer_close(writer);
}

/* Reads on; the record behind sequence number i must be that of the i-th line written. */
static uint64_t read_on(struct scratch *s, struct seglog *log, uint64_t after) {
    struct seglog_reader reader;
    struct seglog_part found = {.room = SIZE_MAX};
    struct buf buf;
    bool more = true;
    buf_init(&buf, 1 << 20);
    assert_int_equal(seglog_reader_open(&reader, log, after, &s->error), OK);
    while (seglog_reader_next(&reader, &found, &buf, &more, &s->error) == OK && more) {
        char start[40];
        assert_true(seglog_has(log, found.line));
        assert_int_equal(found.sequence, after + 1);
        assert_int_equal(found.line, nth_line(after));
        snprintf(start, sizeof start, "{\"line\":%llu,", (unsigned long long)found.line);
        assert_memory_equal(buf.at, start, strlen(start));
        assert_int_equal(buf.at[buf.bytes - 1], '\n');
        buf_clear(&buf);
        after++;
    }
    assert_false(more);
    seglog_reader_close(&reader);
    buf_release(&buf);
    return after;
}

static void records_come_in_the_order_of_writing_from_any_place_on(void **state) {
    (void)state;
    struct scratch s;
    scratch_open(&s);
    struct seglog *log = open_log(&s);
    assert_int_equal(read_on(&s, log, 0), 0);
    assert_int_equal(read_on(&s, log, 17), 17);
    write_lines(&s, log, 0, 1000); /* several segments of 64 KiB */
    assert_int_equal(seglog_last_sequence(log), 1000);
    for (uint64_t after = 0; after <= 1000; after += 37)
        assert_int_equal(read_on(&s, log, after), 1000);
    seglog_close(log);
    log = open_log(&s);
    assert_int_equal(read_on(&s, log, 400), 1000);
    write_lines(&s, log, 1000, 1500);
    assert_int_equal(read_on(&s, log, 999), 1500);
    assert_int_equal(read_on(&s, log, 1500), 1500);
    seglog_close(log);
    scratch_remove(&s);
}

struct beside {
    struct scratch *s;
    struct seglog *log;
    atomic_bool done;
    uint64_t seen;
};

static void *read_beside(void *context) {
    struct beside *beside = context;
    uint64_t after = 0;
    for (bool last = false; !last;) {
        last = atomic_load(&beside->done);
        after = read_on(beside->s, beside->log, after);
    }
    beside->seen = after;
    return NULL;
}

static void two_readers_beside_the_writer_miss_nothing(void **state) {
    (void)state;
    struct scratch s;
    scratch_open(&s);
    struct seglog *log = open_log(&s);
    struct beside a = {.s = &s, .log = log}, b = {.s = &s, .log = log};
    pthread_t threads[2];
    assert_int_equal(pthread_create(&threads[0], NULL, read_beside, &a), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, read_beside, &b), 0);
    write_lines(&s, log, 0, LINES);
    atomic_store(&a.done, true);
    atomic_store(&b.done, true);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    assert_int_equal(a.seen, LINES);
    assert_int_equal(b.seen, LINES);
    seglog_close(log);
    scratch_remove(&s);
}

static void doubles_and_forgotten_records_are_left_out(void **state) {
    (void)state;
    struct scratch s;
    scratch_open(&s);
    struct seglog *log = open_log(&s);
    struct seglog_writer *writer = open_writer(&s);
    put(writer, log, 5); /* 1 */
    put(writer, log, 6); /* 2 */
    put(writer, log, 5); /* 3: a double */
    put(writer, log, 8); /* 4 */
    seglog_writer_close(writer);
    seglog_forget(log, 6);
    writer = open_writer(&s);
    put(writer, log, 6); /* 5 */
    seglog_writer_close(writer);
    const uint64_t lines[] = {5, 8, 6}, sequences[] = {1, 4, 5};
    struct seglog_reader reader;
    struct seglog_part found = {.room = SIZE_MAX};
    struct buf buf;
    bool more;
    buf_init(&buf, 1 << 20);
    for (uint64_t after = 0, first = 0; after < 5; after++) {
        assert_int_equal(seglog_reader_open(&reader, log, after, &s.error), OK);
        while (first < 3 && sequences[first] <= after) first++;
        for (uint64_t i = first; i < 3; i++) {
            assert_int_equal(seglog_reader_next(&reader, &found, &buf, &more, &s.error), OK);
            assert_true(more);
            assert_int_equal(found.line, lines[i]);
            assert_int_equal(found.sequence, sequences[i]);
        }
        assert_int_equal(seglog_reader_next(&reader, &found, &buf, &more, &s.error), OK);
        assert_false(more);
        seglog_reader_close(&reader);
    }
    buf_release(&buf);
    seglog_close(log);
    scratch_remove(&s);
}

/* A text of 100 KB, which takes many reads. */
static void put_long(struct seglog_writer *writer, struct seglog *log, uint64_t line) {
    static char text[100001];
    for (size_t i = 0; i < sizeof text - 1; i++) text[i] = (char)('a' + i * 7 % 26);
    text[sizeof text - 2] = '\n';
    struct seglog_record record = {
        .line = line, .kind = SEGLOG_SUCCESS, .usage = {1, 0, 1, 0, 0, 0}, .text = str_from(text)};
    seglog_put(writer, log, &record, line + 1);
}

static void a_long_text_comes_in_parts_of_any_size(void **state) {
    (void)state;
    const size_t rooms[] = {1, 4000, 8144, 8145, 16384, 99999, 100000, SIZE_MAX};
    struct scratch s;
    scratch_open(&s);
    struct seglog *log = open_log(&s);
    struct seglog_writer *writer = open_writer(&s);
    put_long(writer, log, 0);
    put(writer, log, 1);
    seglog_writer_close(writer);
    struct seglog_reader reader;
    struct buf whole, part;
    bool more;
    buf_init(&whole, 1 << 20);
    buf_init(&part, 1 << 20);
    struct seglog_part all = {.room = SIZE_MAX};
    assert_int_equal(seglog_reader_open(&reader, log, 0, &s.error), OK);
    assert_int_equal(seglog_reader_next(&reader, &all, &whole, &more, &s.error), OK);
    seglog_reader_close(&reader);
    assert_int_equal(whole.bytes, 100000);
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        const uint64_t skips[] = {0, 1, 50000, 99999, 100000};
        for (size_t j = 0; j < sizeof skips / sizeof *skips; j++) {
            struct seglog_part found = {.skip = skips[j], .room = rooms[i]};
            size_t left = whole.bytes - (size_t)skips[j];
            buf_clear(&part);
            assert_int_equal(seglog_reader_open(&reader, log, 0, &s.error), OK);
            assert_int_equal(seglog_reader_next(&reader, &found, &part, &more, &s.error), OK);
            assert_int_equal(found.text_bytes, whole.bytes);
            assert_int_equal(part.bytes, left < rooms[i] ? left : rooms[i]);
            if (part.bytes > 0) assert_memory_equal(part.at, whole.at + skips[j], part.bytes);
            found = (struct seglog_part){.room = 4}; /* the reader stands behind the record */
            buf_clear(&part);
            assert_int_equal(seglog_reader_next(&reader, &found, &part, &more, &s.error), OK);
            assert_int_equal(found.line, 1);
            assert_memory_equal(part.at, "{\"li", 4);
            seglog_reader_close(&reader);
        }
    }
    buf_release(&whole);
    buf_release(&part);
    seglog_close(log);
    scratch_remove(&s);
}

/* Reads on from the start with so much room; the sequence number of the first record. */
static uint64_t first_of(struct scratch *s, struct seglog *log, size_t room) {
    struct seglog_reader reader;
    struct seglog_part found = {.room = room};
    struct buf buf;
    bool more;
    buf_init(&buf, 1 << 20);
    assert_int_equal(seglog_reader_open(&reader, log, 0, &s->error), OK);
    assert_int_equal(seglog_reader_next(&reader, &found, &buf, &more, &s->error), OK);
    assert_true(more);
    assert_int_equal(buf.bytes, room < found.text_bytes ? room : found.text_bytes);
    seglog_reader_close(&reader);
    buf_release(&buf);
    return found.sequence;
}

static void a_damaged_record_is_counted_until_it_is_read(void **state) {
    (void)state;
    struct scratch s;
    scratch_open(&s);
    struct seglog *log = open_log(&s);
    write_lines(&s, log, 0, 3);
    char path[200];
    snprintf(path, sizeof path, "%s/batches/batch_one/seg-000001.log", s.dir);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, SEGLOG_HEADER_BYTES + SEGLOG_RECORD_BYTES + 4), 1);
    close(fd);
    assert_int_equal(first_of(&s, log, 0), 1);
    assert_true(seglog_has(log, 0));
    assert_int_equal(first_of(&s, log, 5), 2);
    assert_false(seglog_has(log, 0));
    assert_int_equal(first_of(&s, log, 0), 2);
    assert_true(seglog_has(log, nth_line(1)));
    seglog_close(log);
    scratch_remove(&s);
}

static void a_damaged_record_is_stepped_over_and_a_removed_log_is_not_found(void **state) {
    (void)state;
    struct scratch s;
    scratch_open(&s);
    struct seglog *log = open_log(&s);
    write_lines(&s, log, 0, 3);
    char path[200];
    snprintf(path, sizeof path, "%s/batches/batch_one/seg-000001.log", s.dir);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, SEGLOG_HEADER_BYTES + SEGLOG_RECORD_BYTES + 4), 1);
    close(fd);
    struct seglog_reader reader;
    struct seglog_part found = {.room = SIZE_MAX};
    struct buf buf;
    bool more;
    buf_init(&buf, 1 << 20);
    assert_int_equal(seglog_reader_open(&reader, log, 0, &s.error), OK);
    assert_int_equal(seglog_reader_next(&reader, &found, &buf, &more, &s.error), OK);
    assert_true(more);
    assert_int_equal(found.sequence, 2);
    seglog_reader_close(&reader);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(seglog_reader_open(&reader, log, 0, &s.error), OK);
    assert_int_equal(seglog_reader_next(&reader, &found, &buf, &more, &s.error), ERR_NOT_FOUND);
    seglog_reader_close(&reader);
    buf_release(&buf);
    seglog_close(log);
    scratch_remove(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_come_in_the_order_of_writing_from_any_place_on),
        cmocka_unit_test(two_readers_beside_the_writer_miss_nothing),
        cmocka_unit_test(doubles_and_forgotten_records_are_left_out),
        cmocka_unit_test(a_long_text_comes_in_parts_of_any_size),
        cmocka_unit_test(a_damaged_record_is_counted_until_it_is_read),
        cmocka_unit_test(a_damaged_record_is_stepped_over_and_a_removed_log_is_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
