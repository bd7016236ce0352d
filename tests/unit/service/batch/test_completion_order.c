/* SPDX-License-Identifier: Apache-2.0 */
#include "../store/scratch.h"

#include "base/crc.h"
#include "batch/completion_order.h"

#include <fcntl.h>

#define ID "batch_0123456789abcdef0123456789abcdef"

struct fixture {
    struct scratch s;
    struct store_batch batch;
    char path[200];
};

/* Output "a\nb\n", errors "E\nnever\n"; written in the order b, (gap), E, a. */
static void fill(struct fixture *f) {
    scratch_open(&f->s);
    struct store_file output = scratch_put(&f->s, "a\nb\n", "batch_output", 100, 0);
    struct store_file errors = scratch_put(&f->s, "E\nnever\n", "batch_output", 100, 5000);
    f->batch = (struct store_batch){.id = ID};
    memcpy(f->batch.output_file_id, output.id, sizeof output.id);
    memcpy(f->batch.error_file_id, errors.id, sizeof errors.id);
    struct order_builder builder;
    completion_order_init(&builder, 4);
    completion_order_add(&builder, 4, false, 0, STR("a\n"));
    completion_order_add(&builder, 1, false, 2, STR("b\n"));
    completion_order_add(&builder, 3, true, 0, STR("E\n"));
    completion_order_add(&builder, 0, true, 2, STR("never\n"));
    assert_int_equal(completion_order_bytes(&builder), 64 + 5 * 16);
    assert_int_equal(completion_order_write(&builder, f->s.store, ID, &f->s.error), OK);
    completion_order_release(&builder);
    snprintf(f->path, sizeof f->path, "%s/batches/" ID "/" STORE_ORDER_NAME, f->s.dir);
}

/* Makes the order one of version 2, which has no sums of lines, or 1, which has no sizes either. */
static void make_older(const struct fixture *f, unsigned char version) {
    unsigned char header[64];
    int fd = open(f->path, O_RDWR);
    assert_int_equal(pread(fd, header, sizeof header, 0), sizeof header);
    header[4] = version;
    uint32_t crc = crc32c(0, header, 60);
    memcpy(header + 60, &crc, sizeof crc);
    assert_int_equal(pwrite(fd, header, sizeof header, 0), sizeof header);
    assert_int_equal(ftruncate(fd, 64 + 5 * (version == 1 ? 8 : 12)), 0);
    close(fd);
}

/* What a test asks for; zeros stand for no bound. */
struct question {
    uint64_t after, skip, lines_max, bytes_max;
    size_t room;
    bool part; /* a piece that is not counted to the page's end */
    int64_t now_unix_s;
};

static enum err ask(struct fixture *f, struct question question, struct buf *buf,
                    struct page_read *ret_read) {
    struct page page = {.from = {question.after, question.skip},
                        .lines_max = question.lines_max ? question.lines_max : 100,
                        .bytes_max = question.bytes_max ? question.bytes_max : 1000,
                        .room = question.room ? question.room : 1000,
                        .counts = !question.part};
    buf_clear(buf);
    struct order_reader reader;
    enum err err = completion_order_open(&reader, f->s.store, &f->batch, &f->s.error);
    if (err == OK)
        err = completion_order_read(&reader, &page, question.now_unix_s ? question.now_unix_s : 200,
                                    buf, ret_read, &f->s.error);
    completion_order_close(&reader);
    return err;
}

static void check(struct fixture *f, struct question question, const char *text, uint64_t last,
                  bool more) {
    struct buf buf;
    struct page_read read;
    buf_init(&buf, 4096);
    assert_int_equal(ask(f, question, &buf, &read), OK);
    assert_string_equal(buf.bytes ? buf.at : "", text);
    assert_int_equal(read.last, last);
    assert_int_equal(read.more, more);
    buf_release(&buf);
}

static void fails(struct fixture *f, struct question question, enum err wanted) {
    struct buf buf;
    struct page_read read;
    buf_init(&buf, 4096);
    assert_int_equal(ask(f, question, &buf, &read), wanted);
    buf_release(&buf);
}

static void lines_come_in_the_order_of_their_records(void **state) {
    (void)state;
    struct fixture f;
    fill(&f);
    check(&f, (struct question){0}, "b\nE\na\nnever\n", 5, false);
    check(&f, (struct question){.lines_max = 1}, "b\n", 1, true);
    check(&f, (struct question){.after = 1, .lines_max = 1}, "E\n", 3, true);
    check(&f, (struct question){.after = 3, .bytes_max = 2}, "a\n", 4, true);
    check(&f, (struct question){.after = 4}, "never\n", 5, false);
    check(&f, (struct question){.after = 5}, "", 5, false);
    check(&f, (struct question){.after = UINT64_MAX}, "", 5, false);
    scratch_remove(&f.s);
}

static void check_pieces(struct fixture *f) {
    static const char text[] = "b\nE\na\nnever\n";
    struct buf piece, all;
    buf_init(&piece, 4096);
    buf_init(&all, 4096);
    for (size_t room = 1; room < sizeof text; room++) {
        struct page_read read;
        assert_int_equal(ask(f, (struct question){.room = room}, &all, &read), OK);
        assert_int_equal(all.bytes, room);
        assert_int_equal(read.bytes, sizeof text - 1);
        assert_int_equal(read.lines, 4);
        assert_int_equal(read.last, 5);
        while (read.next.after < 5) {
            struct question next = {read.next.after, read.next.skip, .room = room, .part = true};
            assert_int_equal(ask(f, next, &piece, &read), OK);
            assert_in_range(piece.bytes, 1, room);
            assert_int_equal(read.more, read.next.after < 5);
            buf_add_str(&all, buf_str(&piece));
        }
        assert_string_equal(all.at, text);
    }
    fails(f, (struct question){.after = 1, .skip = 1}, ERR_CORRUPT); /* place 2 has no line */
    buf_release(&piece);
    buf_release(&all);
}

/* A page in pieces of every size is the page, and it was measured before. */
static void a_page_comes_in_pieces_of_any_size(void **state) {
    (void)state;
    struct fixture f;
    fill(&f);
    check_pieces(&f);
    make_older(&f, 2);
    check_pieces(&f);
    make_older(&f, 1);
    check_pieces(&f);
    scratch_remove(&f.s);
}

static void an_expired_file_and_a_missing_order_are_not_found(void **state) {
    (void)state;
    struct fixture f;
    fill(&f);
    fails(&f, (struct question){.now_unix_s = 5001}, ERR_NOT_FOUND);
    check(&f, (struct question){.now_unix_s = 5001, .lines_max = 1}, "b\n", 1, true);
    assert_int_equal(unlink(f.path), 0);
    fails(&f, (struct question){0}, ERR_NOT_FOUND);
    f.batch.output_file_id[0] = f.batch.error_file_id[0] = '\0';
    check(&f, (struct question){0}, "", 0, false);
    scratch_remove(&f.s);
}

static void damage_is_told_and_never_read_as_a_line(void **state) {
    (void)state;
    struct fixture f;
    fill(&f);
    /* Every byte of the header, of the first place, its line's size and its sum, one after another.
     */
    for (off_t i = 0; i < 64 + 8 + 4 + 4; i++) {
        off_t at = i < 64 + 8       ? i
                   : i < 64 + 8 + 4 ? 64 + 5 * 8 + (i - 64 - 8)
                                    : 64 + 5 * 12 + (i - 64 - 8 - 4);
        unsigned char byte, other;
        int fd = open(f.path, O_RDWR);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        other = (unsigned char)(byte ^ 0x40);
        assert_int_equal(pwrite(fd, &other, 1, at), 1);
        fails(&f, (struct question){0}, ERR_CORRUPT);
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
    }
    check(&f, (struct question){.lines_max = 1}, "b\n", 1, true);
    assert_int_equal(truncate(f.path, 64 + 7), 0);
    fails(&f, (struct question){0}, ERR_CORRUPT);
    scratch_remove(&f.s);
}

/* A letter of the output file has rotted: the lines before it are given, and none of its bytes. */
static void a_line_that_has_rotted_is_not_given(void **state) {
    (void)state;
    struct fixture f;
    char path[300];
    fill(&f);
    const char *id = f.batch.output_file_id;
    snprintf(path, sizeof path, "%s/files/%s/%s", f.s.dir, id + strlen(id) - 2, id);
    assert_int_equal(chmod(path, 0600), 0);
    int fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, "x", 1, 0), 1);
    close(fd);
    check(&f, (struct question){.lines_max = 2}, "b\nE\n", 3, true);
    fails(&f, (struct question){.after = 3}, ERR_CORRUPT);
    check(&f, (struct question){.after = 4}, "never\n", 5, false);
    scratch_remove(&f.s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_come_in_the_order_of_their_records),
        cmocka_unit_test(a_page_comes_in_pieces_of_any_size),
        cmocka_unit_test(an_expired_file_and_a_missing_order_are_not_found),
        cmocka_unit_test(damage_is_told_and_never_read_as_a_line),
        cmocka_unit_test(a_line_that_has_rotted_is_not_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
