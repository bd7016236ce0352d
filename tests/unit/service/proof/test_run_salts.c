/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over lines and the record of erasures: what was erased stays proven, every changed byte is
 * found, and a damaged record is refused. */
#include "proof/run_salts.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TEXT "alpha\r\nbravo\n\ncharlie\ndelta"
#define LINES 5

struct text {
    char bytes[64];
    size_t count;
};

static enum err sum_of(const struct text *text, struct run_salts_file *file, struct line_sum *ret) {
    char path[] = "/tmp/quern-lines-XXXXXX";
    struct error error;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(write(fd, text->bytes, text->count), (ssize_t)text->count);
    enum err err =
        line_sum_file(fd, &file->salts, file->erased, file->erased_count, NULL, ret, &error);
    assert_int_equal(close(fd), 0);
    return err;
}

/* Begin and end of a line, counted from 1. */
static struct str line_of(const struct text *text, uint64_t number) {
    struct str rest = {text->bytes, text->count};
    for (;;) {
        size_t end = str_find_byte(rest, '\n', 0);
        end = end == SIZE_MAX ? rest.bytes : end + 1;
        if (--number == 0) return (struct str){rest.at, end};
        rest = str_skip(rest, end);
    }
}

static void erase(struct text *text, struct run_salts_file *file, uint64_t number) {
    struct line_erased erased = {.line = number};
    unsigned char salt[SHA256_BYTES];
    struct text after = {.count = 0};
    struct str line = line_of(text, number);
    assert_true(line_salts_get(&file->salts, number - 1, salt));
    line_sum_leaf(salt, line, erased.leaf);
    size_t begin = (size_t)(line.at - text->bytes), end = begin + line.bytes;
    memcpy(after.bytes, text->bytes, begin);
    after.bytes[begin] = '\n';
    memcpy(after.bytes + begin + 1, text->bytes + end, text->count - end);
    after.count = text->count - line.bytes + 1;
    *text = after;
    run_salts_erase(file, &erased, 1);
}

static void make(struct text *text, struct run_salts *salts, struct line_sum *ret_sum) {
    memcpy(text->bytes, TEXT, strlen(TEXT));
    text->count = strlen(TEXT);
    run_salts_init(salts);
    memset(salts->manifest_sha256, 'a', SHA256_HEX_BYTES - 1);
    assert_int_equal(sum_of(text, run_salts_add(salts, "input"), ret_sum), OK);
    assert_int_equal(ret_sum->lines, LINES);
}

/* True if the text has that sum. */
static bool is(const struct text *text, struct run_salts_file *file, const struct line_sum *sum) {
    struct line_sum now;
    return sum_of(text, file, &now) == OK && now.lines == sum->lines &&
           strcmp(now.hex, sum->hex) == 0;
}

static void a_sum_is_that_of_salted_lines(void **state) {
    (void)state;
    struct text text;
    struct run_salts salts;
    struct line_sum sum;
    struct digest whole;
    char hex[DIGEST_HEX_BYTES];
    unsigned char salt[SHA256_BYTES];
    make(&text, &salts, &sum);
    digest_begin(&whole, DIGEST_SHA256);
    for (uint64_t i = 1; i <= LINES; i++) {
        assert_true(line_salts_get(&salts.files[0].salts, i - 1, salt));
        line_sum_leaf(salt, line_of(&text, i), hex);
        digest_add(&whole, hex, strlen(hex));
        digest_add(&whole, "\n", 1);
    }
    digest_end_hex(&whole, hex);
    assert_string_equal(hex, sum.hex);
    run_salts_release(&salts);
}

static void any_lines_are_erased_in_any_order_and_the_sum_stays(void **state) {
    (void)state;
    struct text text;
    struct run_salts salts;
    struct line_sum sum;
    srand(11);
    for (int round = 0; round < 40; round++) {
        bool is_erased[LINES + 1] = {false};
        make(&text, &salts, &sum);
        for (int i = 0; i < LINES; i++) {
            uint64_t number = 1 + (uint64_t)rand() % LINES;
            while (is_erased[number]) number = number % LINES + 1;
            is_erased[number] = true;
            erase(&text, &salts.files[0], number);
            if (!is(&text, &salts.files[0], &sum))
                fail_msg("round %d, line %d", round, (int)number);
        }
        assert_int_equal(text.count, LINES);
        run_salts_release(&salts);
    }
}

static void each_changed_byte_after_an_erasure_is_found(void **state) {
    (void)state;
    struct text text;
    struct run_salts salts;
    struct line_sum sum;
    make(&text, &salts, &sum);
    erase(&text, &salts.files[0], 2);
    erase(&text, &salts.files[0], 5);
    for (size_t i = 0; i < text.count; i++)
        for (int bit = 1; bit < 256; bit++) {
            struct text other = text;
            other.bytes[i] = (char)(other.bytes[i] ^ bit);
            if (is(&other, &salts.files[0], &sum)) fail_msg("byte %zu, bits %d", i, bit);
        }
    for (size_t i = 0; i <= text.count; i++) {
        struct text longer = text;
        memmove(longer.bytes + i + 1, longer.bytes + i, text.count - i);
        longer.bytes[i] = '\n';
        longer.count++;
        if (is(&longer, &salts.files[0], &sum)) fail_msg("an LF before byte %zu", i);
        struct text shorter = text;
        shorter.count = i;
        if (i < text.count && is(&shorter, &salts.files[0], &sum)) fail_msg("cut to %zu", i);
    }
    run_salts_release(&salts);
}

static json_t *record_of(const struct line_erased *lines, size_t count) {
    return json_pack("{s:i,s:s,s:i,s:{s:o},s:[]}", "erased_at", 1796000000, "reason", "asked",
                     "requests", (int)count, "files", "input", run_salts_lines_json(lines, count),
                     "others");
}

static void the_file_reads_back_with_its_record(void **state) {
    (void)state;
    struct text text;
    struct run_salts salts, again;
    struct line_sum sum;
    struct buf out;
    struct ssh_key key;
    struct error error;
    make(&text, &salts, &sum);
    erase(&text, &salts.files[0], 4);
    erase(&text, &salts.files[0], 1);
    json_array_append_new(salts.erasures, record_of(salts.files[0].erased, 2));
    ssh_key_make(&key);
    buf_init(&out, BUF_UNLIMITED);
    run_salts_write(&out, &salts, &key);
    assert_true(run_salts_is_one(buf_str(&out)));
    assert_false(manifest_is_one(buf_str(&out)));
    if (run_salts_read(&again, buf_str(&out), &error) != OK) fail_msg("%s", error.text);
    assert_true(again.is_signed);
    assert_memory_equal(again.public, key.public, sizeof key.public);
    assert_true(is(&text, run_salts_find(&again, "input"), &sum));
    assert_null(run_salts_find(&again, "output"));
    run_salts_release(&again);
    srand(13);
    for (size_t i = 0; i < out.bytes; i++) {
        char was = out.at[i];
        out.at[i] = (char)(was ^ (1 + rand() % 255));
        if (run_salts_read(&again, buf_str(&out), &error) == OK) {
            if (again.is_signed) fail_msg("byte %zu", i);
            run_salts_release(&again);
        }
        out.at[i] = was;
    }
    buf_release(&out);
    run_salts_release(&salts);
}

/* Reads a record whose only erased line is this text. */
static enum err read_with(const char *one, const char *other) {
    struct run_salts salts, again;
    struct buf out;
    struct error error;
    run_salts_init(&salts);
    memset(salts.manifest_sha256, 'a', SHA256_HEX_BYTES - 1);
    (void)run_salts_add(&salts, "input");
    json_array_append_new(salts.erasures,
                          json_pack("{s:i,s:s,s:i,s:{s:[s,s]},s:[]}", "erased_at", 1, "reason", "",
                                    "requests", 1, "files", "input", one, other, "others"));
    buf_init(&out, BUF_UNLIMITED);
    run_salts_write(&out, &salts, NULL);
    enum err err = run_salts_read(&again, buf_str(&out), &error);
    if (err == OK) run_salts_release(&again);
    buf_release(&out);
    run_salts_release(&salts);
    return err;
}

static void a_damaged_record_is_refused(void **state) {
    (void)state;
#define LEAF "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
    static const char *const bad[] = {"",         LEAF,          "0 " LEAF,  "7 " LEAF,
                                      "07 " LEAF, "8 " LEAF "0", "8  " LEAF, "8 A" LEAF};
    assert_int_equal(read_with("7 " LEAF, "8 " LEAF), OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (read_with("7 " LEAF, bad[i]) != ERR_CORRUPT) fail_msg("%s", bad[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_is_that_of_salted_lines),
        cmocka_unit_test(any_lines_are_erased_in_any_order_and_the_sum_stays),
        cmocka_unit_test(each_changed_byte_after_an_erasure_is_found),
        cmocka_unit_test(the_file_reads_back_with_its_record),
        cmocka_unit_test(a_damaged_record_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
