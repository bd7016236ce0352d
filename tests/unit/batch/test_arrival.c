/* SPDX-License-Identifier: Apache-2.0 */
#include "../store/scratch.h"

#include "batch/arrival.h"

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
    struct arrival_builder builder;
    arrival_init(&builder, 4);
    arrival_add(&builder, 4, false, 0);
    arrival_add(&builder, 1, false, 2);
    arrival_add(&builder, 3, true, 0);
    arrival_add(&builder, 0, true, 2);
    assert_int_equal(arrival_bytes(&builder), 64 + 5 * 8);
    assert_int_equal(arrival_write(&builder, f->s.store, ID, &f->s.error), OK);
    arrival_release(&builder);
    snprintf(f->path, sizeof f->path, "%s/batches/" ID "/" STORE_ORDER_NAME, f->s.dir);
}

static enum err ask(struct fixture *f, struct arrival_page page, struct buf *buf,
                    uint64_t *ret_last, bool *ret_more) {
    if (page.lines_max == 0) page.lines_max = 100;
    if (page.bytes_max == 0) page.bytes_max = 1000;
    if (page.now_unix_s == 0) page.now_unix_s = 200;
    buf_clear(buf);
    return arrival_read(f->s.store, &f->batch, &page, buf, ret_last, ret_more, &f->s.error);
}

static void check(struct fixture *f, struct arrival_page page, const char *text, uint64_t last,
                  bool more) {
    struct buf buf;
    uint64_t got_last;
    bool got_more;
    buf_init(&buf, 4096);
    assert_int_equal(ask(f, page, &buf, &got_last, &got_more), OK);
    assert_string_equal(buf.bytes ? buf.at : "", text);
    assert_int_equal(got_last, last);
    assert_int_equal(got_more, more);
    buf_release(&buf);
}

static void fails(struct fixture *f, struct arrival_page page, enum err wanted) {
    struct buf buf;
    uint64_t last;
    bool more;
    buf_init(&buf, 4096);
    assert_int_equal(ask(f, page, &buf, &last, &more), wanted);
    buf_release(&buf);
}

static void lines_come_in_the_order_of_their_records(void **state) {
    (void)state;
    struct fixture f;
    fill(&f);
    check(&f, (struct arrival_page){0}, "b\nE\na\nnever\n", 5, false);
    check(&f, (struct arrival_page){.lines_max = 1}, "b\n", 1, true);
    check(&f, (struct arrival_page){.after = 1, .lines_max = 1}, "E\n", 3, true);
    check(&f, (struct arrival_page){.after = 3, .bytes_max = 2}, "a\n", 4, true);
    check(&f, (struct arrival_page){.after = 4}, "never\n", 5, false);
    check(&f, (struct arrival_page){.after = 5}, "", 5, false);
    check(&f, (struct arrival_page){.after = UINT64_MAX}, "", 5, false);
    scratch_remove(&f.s);
}

static void an_expired_file_and_a_missing_order_are_not_found(void **state) {
    (void)state;
    struct fixture f;
    fill(&f);
    fails(&f, (struct arrival_page){.now_unix_s = 5001}, ERR_NOT_FOUND);
    check(&f, (struct arrival_page){.now_unix_s = 5001, .lines_max = 1}, "b\n", 1, true);
    assert_int_equal(unlink(f.path), 0);
    fails(&f, (struct arrival_page){0}, ERR_NOT_FOUND);
    f.batch.output_file_id[0] = f.batch.error_file_id[0] = '\0';
    check(&f, (struct arrival_page){0}, "", 0, false);
    scratch_remove(&f.s);
}

static void damage_is_told_and_never_read_as_a_line(void **state) {
    (void)state;
    struct fixture f;
    fill(&f);
    /* Every byte of the header and of the first place, one after another. */
    for (off_t at = 0; at < 64 + 8; at++) {
        unsigned char byte, other;
        int fd = open(f.path, O_RDWR);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        other = (unsigned char)(byte ^ 0x40);
        assert_int_equal(pwrite(fd, &other, 1, at), 1);
        fails(&f, (struct arrival_page){0}, ERR_CORRUPT);
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
    }
    check(&f, (struct arrival_page){.lines_max = 1}, "b\n", 1, true);
    assert_int_equal(truncate(f.path, 64 + 7), 0);
    fails(&f, (struct arrival_page){0}, ERR_CORRUPT);
    scratch_remove(&f.s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_come_in_the_order_of_their_records),
        cmocka_unit_test(an_expired_file_and_a_missing_order_are_not_found),
        cmocka_unit_test(damage_is_told_and_never_read_as_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
