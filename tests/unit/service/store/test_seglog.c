/* SPDX-License-Identifier: Apache-2.0 */
#include "scratch.h"

#include "base/clock.h"
#include "store/seglog_format.h"
#include "store/seglog_writer.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define LINES 1000

struct durable {
    pthread_mutex_t lock;
    size_t count;
    uint64_t last_cookie;
};

static void note(void *context, const struct seglog_done *done, size_t count) {
    struct durable *durable = context;
    pthread_mutex_lock(&durable->lock);
    durable->count += count;
    durable->last_cookie = done[count - 1].cookie;
    pthread_mutex_unlock(&durable->lock);
}

static int reports;

static void count_report(void *context, const char *sentence) {
    (void)context;
    (void)sentence;
    reports++;
}

static struct seglog *open_log(struct scratch *s, const char *batch, uint64_t sequence) {
    struct seglog *log = NULL;
    struct seglog_options options = {
        .batch_id = batch, .batch_sequence = sequence, .line_count = LINES, .report = count_report};
    assert_int_equal(seglog_open(&log, s->store, &options, &s->error), OK);
    return log;
}

/* The text of a line's record; about 400 bytes. */
static void text_of(uint64_t line, char ret_text[512]) {
    snprintf(ret_text, 512, "{\"line\":%llu,\"text\":\"%0360llu\"}\n", (unsigned long long)line,
             (unsigned long long)line * 7919);
}

/* Each end of a shape in turn; those of an error on the lines that are errors. */
static enum shape_end shape_of(uint64_t line) {
    if (line % 10 == 9) return line % 20 == 9 ? SHAPE_REFUSED : SHAPE_FAILED;
    return (enum shape_end)(line % 10 % 4); /* SHAPE_NONE to SHAPE_UNCHECKED */
}

static void put(struct seglog_writer *writer, struct seglog *log, uint64_t line) {
    char text[512];
    text_of(line, text);
    struct seglog_record record = {.line = line,
                                   .kind = line % 10 == 9 ? SEGLOG_ERROR : SEGLOG_SUCCESS,
                                   .usage = {1, 2, 3, 4, 0, 0},
                                   .shape = shape_of(line),
                                   .text = str_from(text)};
    seglog_put(writer, log, &record, line + 1);
}

/* Writes lines from … to - 1 and waits for them by closing the writer. */
static void write_lines(struct scratch *s, struct seglog *log, uint64_t from, uint64_t to) {
    struct durable durable = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct seglog_writer *writer;
    assert_int_equal(seglog_writer_open(&writer, s->store, note, &durable, &s->error), OK);
    for (uint64_t line = from; line < to; line++) put(writer, log, line);
    seglog_writer_close(writer);
    assert_int_equal(durable.count, to - from);
    assert_int_equal(durable.last_cookie, to);
}

static size_t count_readable(struct scratch *s, struct seglog *log) {
    size_t count = 0;
    struct buf buf;
    buf_init(&buf, 4096);
    for (uint64_t line = 0; line < LINES; line++) {
        char text[512];
        struct seglog_found found;
        if (!seglog_has(log, line)) continue;
        buf_clear(&buf);
        if (seglog_read_record(log, line, &buf, &found, &s->error) != OK) continue;
        text_of(line, text);
        assert_string_equal(buf.at, text);
        assert_int_equal(found.kind, line % 10 == 9 ? SEGLOG_ERROR : SEGLOG_SUCCESS);
        assert_int_equal(found.usage.reasoning_tokens, 4);
        assert_int_equal(found.shape, shape_of(line));
        count++;
    }
    buf_release(&buf);
    return count;
}

static void segment_path(const struct scratch *s, unsigned index, char ret_path[160]) {
    snprintf(ret_path, 160, "%s/batches/batch_one/seg-%06u.log", s->dir, index);
}

static off_t segment_bytes(const struct scratch *s, unsigned index) {
    char path[160];
    struct stat status;
    segment_path(s, index, path);
    return stat(path, &status) == 0 ? status.st_size : -1;
}

static void overwrite(const struct scratch *s, unsigned index, off_t at, const void *bytes,
                      size_t count) {
    char path[160];
    segment_path(s, index, path);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, count, at), count);
    close(fd);
}

/* The counts of ten lines, times the tens of LINES. */
static void assert_shapes(const struct seglog_counts *counts) {
    static const uint64_t in_twenty[SHAPE_END_COUNT] = {[SHAPE_VALID] = 4,
                                                        [SHAPE_TRUNCATED] = 4,
                                                        [SHAPE_UNCHECKED] = 4,
                                                        [SHAPE_REFUSED] = 1,
                                                        [SHAPE_FAILED] = 1};
    for (size_t i = 0; i < SHAPE_END_COUNT; i++)
        assert_int_equal(counts->shapes[i], in_twenty[i] * (LINES / 20));
}

static void records_survive_a_restart_over_several_segments(void **state) {
    (void)state;
    struct scratch s;
    scratch_open(&s);
    struct seglog *log = open_log(&s, "batch_one", 1);
    write_lines(&s, log, 0, LINES);
    assert_true(segment_bytes(&s, 3) > 0);
    struct seglog_counts counts = seglog_counts(log);
    assert_int_equal(counts.successes, LINES / 10 * 9);
    assert_int_equal(counts.errors, LINES / 10);
    assert_int_equal(counts.usage.output_tokens, 3 * (LINES / 10 * 9));
    assert_shapes(&counts);
    seglog_close(log);
    reports = 0;
    log = open_log(&s, "batch_one", 1);
    counts = seglog_counts(log);
    assert_int_equal(counts.recovered, LINES);
    assert_shapes(&counts);
    assert_int_equal(counts.successes, LINES / 10 * 9);
    assert_int_equal(counts.usage.output_tokens, 3 * (LINES / 10 * 9));
    assert_int_equal(count_readable(&s, log), LINES);
    assert_int_equal(reports, 0);
    seglog_close(log);
    scratch_remove(&s);
}

static void the_first_record_of_a_line_wins_and_others_are_counted(void **state) {
    (void)state;
    struct scratch s;
    scratch_open(&s);
    struct seglog *log = open_log(&s, "batch_one", 1);
    write_lines(&s, log, 0, 10);
    write_lines(&s, log, 5, 20);
    assert_int_equal(seglog_counts(log).duplicates, 5);
    assert_int_equal(seglog_counts(log).successes, 18);
    seglog_close(log);
    log = open_log(&s, "batch_one", 1);
    assert_int_equal(seglog_counts(log).duplicates, 5);
    assert_int_equal(seglog_counts(log).recovered, 20);
    seglog_close(log);
    scratch_remove(&s);
}

static void a_torn_tail_is_cut_off_at_every_length_and_the_log_goes_on(void **state) {
    (void)state;
    struct scratch s;
    scratch_open(&s);
    struct seglog *log = open_log(&s, "batch_one", 1);
    write_lines(&s, log, 0, 3);
    char text[512], path[160];
    text_of(0, text);
    off_t record = SEGLOG_RECORD_BYTES + (off_t)strlen(text) + SEGLOG_USAGE_BYTES;
    off_t two = SEGLOG_HEADER_BYTES + 2 * record;
    seglog_close(log);
    segment_path(&s, 1, path);
    for (off_t keep = record - 1; keep >= 0; keep -= 7) {
        assert_int_equal(truncate(path, two + keep), 0);
        reports = 0;
        log = open_log(&s, "batch_one", 1);
        assert_int_equal(seglog_counts(log).recovered, 2);
        assert_int_equal(reports, 0);
        write_lines(&s, log, 2, 3);
        assert_int_equal(count_readable(&s, log), 3);
        seglog_close(log);
    }
    /* Garbage behind the last record, as a torn page leaves it. */
    overwrite(&s, 1, two + record, "QRECgarbage", 11);
    log = open_log(&s, "batch_one", 1);
    assert_int_equal(seglog_counts(log).recovered, 3);
    assert_int_equal(segment_bytes(&s, 1), two + record);
    seglog_close(log);
    scratch_remove(&s);
}

static void damage_in_the_middle_is_kept_and_counted_and_costs_only_its_lines(void **state) {
    (void)state;
    struct scratch s;
    scratch_open(&s);
    struct seglog *log = open_log(&s, "batch_one", 1);
    write_lines(&s, log, 0, 20);
    seglog_close(log);
    char text[512];
    text_of(0, text);
    off_t record = SEGLOG_RECORD_BYTES + (off_t)strlen(text) + SEGLOG_USAGE_BYTES;
    off_t size = segment_bytes(&s, 1);
    overwrite(&s, 1, SEGLOG_HEADER_BYTES + 4 * record + 100, "X", 1);
    reports = 0;
    log = open_log(&s, "batch_one", 1);
    assert_true(reports >= 1);
    assert_true(seglog_counts(log).corrupt >= 1);
    assert_true(!seglog_has(log, 4) && seglog_has(log, 3) && seglog_has(log, 5));
    assert_true(seglog_counts(log).recovered >= 18);
    assert_int_equal(segment_bytes(&s, 1), size);
    /* Lines without a record run again, into the same log. */
    for (uint64_t line = 0; line < 20; line++)
        if (!seglog_has(log, line)) write_lines(&s, log, line, line + 1);
    assert_int_equal(count_readable(&s, log), 20);
    seglog_close(log);
    scratch_remove(&s);
}

/* A power cut leaves sectors of the last group in any order. */
static void a_group_whose_first_sectors_were_never_written_is_no_damage(void **state) {
    (void)state;
    static const char zeros[512];
    struct scratch s;
    scratch_open(&s);
    struct seglog *log = open_log(&s, "batch_one", 1);
    write_lines(&s, log, 0, 8);
    seglog_close(log);
    char text[512];
    text_of(0, text);
    off_t record = SEGLOG_RECORD_BYTES + (off_t)strlen(text) + SEGLOG_USAGE_BYTES;
    off_t at = SEGLOG_HEADER_BYTES + 2 * record;
    overwrite(&s, 1, at, zeros, (size_t)(512 - at % 512));
    reports = 0;
    log = open_log(&s, "batch_one", 1);
    assert_int_equal(reports, 0);
    assert_int_equal(seglog_counts(log).corrupt, 0);
    assert_true(seglog_has(log, 1) && !seglog_has(log, 2) && seglog_has(log, 7));
    seglog_close(log);
    /* The same place with other bytes has rotted. */
    overwrite(&s, 1, at, "rot", 3);
    log = open_log(&s, "batch_one", 1);
    assert_true(reports >= 1);
    seglog_close(log);
    scratch_remove(&s);
}

static void every_single_flipped_bit_is_noticed(void **state) {
    (void)state;
    struct scratch s;
    scratch_open(&s);
    struct seglog *log = open_log(&s, "batch_one", 1);
    write_lines(&s, log, 0, 4);
    seglog_close(log);
    char path[160], bytes[4096];
    segment_path(&s, 1, path);
    int fd = open(path, O_RDWR);
    ssize_t got = pread(fd, bytes, sizeof bytes, 0);
    char text[512];
    text_of(0, text);
    size_t record = SEGLOG_RECORD_BYTES + strlen(text) + SEGLOG_USAGE_BYTES;
    assert_true(got > (ssize_t)(SEGLOG_HEADER_BYTES + 2 * record));
    for (size_t at = SEGLOG_HEADER_BYTES; at < SEGLOG_HEADER_BYTES + record; at += 3) {
        char flipped = (char)(bytes[at] ^ (1 << (at % 8)));
        assert_int_equal(pwrite(fd, &flipped, 1, (off_t)at), 1);
        log = open_log(&s, "batch_one", 1);
        assert_false(seglog_has(log, 0));
        assert_true(seglog_has(log, 1) && seglog_has(log, 3));
        seglog_close(log);
        assert_int_equal(pwrite(fd, &bytes[at], 1, (off_t)at), 1);
    }
    close(fd);
    scratch_remove(&s);
}

static void a_record_that_rots_after_opening_is_found_when_it_is_read(void **state) {
    (void)state;
    struct scratch s;
    struct buf buf;
    struct seglog_found found;
    scratch_open(&s);
    struct seglog *log = open_log(&s, "batch_one", 1);
    write_lines(&s, log, 0, 2);
    overwrite(&s, 1, SEGLOG_HEADER_BYTES + 200, "X", 1);
    buf_init(&buf, 4096);
    assert_int_equal(seglog_read_record(log, 0, &buf, &found, &s.error), ERR_CORRUPT);
    assert_int_equal(buf.bytes, 0);
    seglog_forget(log, 0);
    assert_int_equal(seglog_read_record(log, 0, &buf, &found, &s.error), ERR_NOT_FOUND);
    write_lines(&s, log, 0, 1);
    assert_int_equal(count_readable(&s, log), 2);
    buf_release(&buf);
    seglog_close(log);
    scratch_remove(&s);
}

static void a_segment_of_another_batch_is_left_alone(void **state) {
    (void)state;
    struct scratch s;
    scratch_open(&s);
    struct seglog *log = open_log(&s, "batch_one", 1);
    write_lines(&s, log, 0, 5);
    seglog_close(log);
    reports = 0;
    log = open_log(&s, "batch_one", 2);
    assert_int_equal(seglog_counts(log).recovered, 0);
    assert_int_equal(reports, 1);
    write_lines(&s, log, 0, 5);
    assert_int_equal(count_readable(&s, log), 5);
    assert_true(segment_bytes(&s, 2) > 0);
    seglog_close(log);
    scratch_remove(&s);
}

static void a_full_disk_pauses_the_writer_and_loses_nothing(void **state) {
    (void)state;
    static const char *const plans[] = {"pwrite:2:ENOSPC", "fallocate:1:ENOSPC",
                                        "fallocate:2:ENOSPC", "open:1:ENOSPC"};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            struct scratch s;
            alarm(120);
            scratch_open(&s);
            struct seglog *log = open_log(&s, "batch_one", 1);
            struct durable durable = {.lock = PTHREAD_MUTEX_INITIALIZER};
            struct seglog_writer *writer;
            if (os_fault_plan(plans[i], &s.error) != OK) _exit(2);
            if (seglog_writer_open(&writer, s.store, note, &durable, &s.error) != OK) _exit(2);
            for (uint64_t line = 0; line < 300; line++) put(writer, log, line);
            for (size_t count = 0; count < 300;) {
                pthread_mutex_lock(&durable.lock);
                count = durable.count;
                pthread_mutex_unlock(&durable.lock);
                clock_sleep_ms(1);
            }
            seglog_writer_close(writer);
            struct store_status status;
            store_status(s.store, &status);
            size_t readable = count_readable(&s, log);
            seglog_close(log);
            scratch_remove(&s);
            _exit(readable == 300 && !status.disk_full ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fail_msg("%s: status %x", plans[i], (unsigned)status);
    }
}

static void a_failed_sync_ends_the_process(void **state) {
    (void)state;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct scratch s;
        scratch_open(&s);
        struct seglog *log = open_log(&s, "batch_one", 1);
        if (os_fault_plan("fdatasync:1:EIO", &s.error) != OK) _exit(2);
        write_lines(&s, log, 0, 5);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_survive_a_restart_over_several_segments),
        cmocka_unit_test(the_first_record_of_a_line_wins_and_others_are_counted),
        cmocka_unit_test(a_torn_tail_is_cut_off_at_every_length_and_the_log_goes_on),
        cmocka_unit_test(damage_in_the_middle_is_kept_and_counted_and_costs_only_its_lines),
        cmocka_unit_test(a_group_whose_first_sectors_were_never_written_is_no_damage),
        cmocka_unit_test(every_single_flipped_bit_is_noticed),
        cmocka_unit_test(a_record_that_rots_after_opening_is_found_when_it_is_read),
        cmocka_unit_test(a_segment_of_another_batch_is_left_alone),
        cmocka_unit_test(a_full_disk_pauses_the_writer_and_loses_nothing),
        cmocka_unit_test(a_failed_sync_ends_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
