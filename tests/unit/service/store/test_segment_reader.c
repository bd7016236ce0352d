/* SPDX-License-Identifier: Apache-2.0 */
#include "scratch.h"

#include "store/segment_reader.h"

#include <fcntl.h>

struct segment {
    int fd;
    size_t ends[8]; /* where each record ends */
};

/* Five records in a file, with room of zeros behind them. */
static void segment_open(struct segment *segment) {
    struct segment_header header = {.index = 1, .first_sequence = 1, .batch_sequence = 7};
    unsigned char head[SEGLOG_HEADER_BYTES];
    struct buf bytes;
    struct error error;
    memcpy(header.batch_id, "batch_0123", 10);
    segment_header_write(head, &header);
    buf_init(&bytes, BUF_UNLIMITED);
    buf_add(&bytes, head, sizeof head);
    for (uint32_t line = 0; line < 5; line++) {
        struct seglog_record record = {
            .line = line, .kind = SEGLOG_SUCCESS, .text = STR("{\"answer\":1}\n")};
        size_t at = bytes.bytes;
        record_write(&bytes, &record, 7);
        record_seal(bytes.at + at, bytes.bytes - at, line + 1);
        segment->ends[line] = bytes.bytes;
    }
    for (int i = 0; i < 1000; i++) buf_add_byte(&bytes, '\0');
    segment->fd = open("/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    assert_true(segment->fd >= 0);
    assert_int_equal(os_write_all(segment->fd, bytes.at, bytes.bytes, &error), OK);
    buf_release(&bytes);
}

static uint64_t measured(const struct segment *segment) {
    uint64_t bytes = 0;
    struct error error;
    assert_int_equal(segment_measure(segment->fd, &bytes, &error), OK);
    return bytes;
}

static void put(const struct segment *segment, size_t at, const char *text) {
    assert_int_equal(pwrite(segment->fd, text, strlen(text), (off_t)at), strlen(text));
}

static void a_segment_is_worth_its_records_and_not_its_room(void **state) {
    (void)state;
    struct segment segment;
    segment_open(&segment);
    assert_int_equal(measured(&segment), segment.ends[4]);
    /* A record that is being written. */
    put(&segment, segment.ends[4], "QREC12345678");
    assert_int_equal(measured(&segment), segment.ends[4]);
    assert_int_equal(ftruncate(segment.fd, (off_t)segment.ends[4] - 1), 0);
    assert_int_equal(measured(&segment), segment.ends[3]);
    close(segment.fd);
}

static void damage_between_records_is_part_of_a_copy_and_behind_them_is_not(void **state) {
    (void)state;
    struct segment segment;
    segment_open(&segment);
    put(&segment, segment.ends[1] + 60, "x");
    assert_int_equal(measured(&segment), segment.ends[4]);
    put(&segment, segment.ends[3] + 60, "x");
    assert_int_equal(measured(&segment), segment.ends[3]);
    close(segment.fd);
}

static void a_segment_without_a_header_is_still_being_made(void **state) {
    (void)state;
    struct segment segment;
    segment_open(&segment);
    put(&segment, 40, "x");
    assert_int_equal(measured(&segment), 0);
    assert_int_equal(ftruncate(segment.fd, 0), 0);
    assert_int_equal(measured(&segment), 0);
    close(segment.fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_segment_is_worth_its_records_and_not_its_room),
        cmocka_unit_test(damage_between_records_is_part_of_a_copy_and_behind_them_is_not),
        cmocka_unit_test(a_segment_without_a_header_is_still_being_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
