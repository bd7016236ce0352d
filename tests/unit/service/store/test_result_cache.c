/* SPDX-License-Identifier: Apache-2.0 */
#include "store/result_cache.h"

#include "scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

struct cached {
    char dir[64];
    struct result_cache *cache;
    struct buf body;
    struct result_cache_facts facts;
};

static void open_cache(struct cached *c, uint64_t bytes_max) {
    struct error error;
    if (result_cache_open(&c->cache, c->dir, bytes_max, &error) != OK) fail_msg("%s", error.text);
}

static void set_up(struct cached *c, uint64_t bytes_max) {
    *c = (struct cached){0};
    snprintf(c->dir, sizeof c->dir, "/tmp/quern-cache-XXXXXX");
    assert_non_null(mkdtemp(c->dir));
    buf_init(&c->body, 64 * MIB);
    open_cache(c, bytes_max);
}

static void tear_down(struct cached *c) {
    result_cache_close(c->cache);
    buf_release(&c->body);
    tree_remove(c->dir);
}

static void key_of(uint64_t number, unsigned char ret_key[RESULT_CACHE_KEY_BYTES]) {
    struct sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, &number, sizeof number);
    sha256_end(&hash, ret_key);
}

static void put(struct cached *c, uint64_t number, struct str body) {
    unsigned char key[RESULT_CACHE_KEY_BYTES];
    const struct result_cache_facts facts = {{.input_tokens = number, .output_tokens = 7},
                                             SHAPE_TRUNCATED};
    key_of(number, key);
    result_cache_put(c->cache, key, number % 2 ? "batch_odd" : "batch_even", body, &facts);
}

static bool get(struct cached *c, uint64_t number) {
    unsigned char key[RESULT_CACHE_KEY_BYTES];
    key_of(number, key);
    buf_clear(&c->body);
    return result_cache_get(c->cache, key, &c->body, &c->facts);
}

static int count_files(const struct cached *c) {
    char path[80];
    snprintf(path, sizeof path, "%s/cache", c->dir);
    DIR *folder = opendir(path);
    int count = 0;
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder));) count += *entry->d_name != '.';
    closedir(folder);
    return count;
}

static void what_was_put_comes_back_also_after_a_reopen(void **state) {
    (void)state;
    struct cached c;
    char text[32];
    set_up(&c, 64 * MIB);
    for (uint64_t i = 0; i < 5000; i++) {
        int bytes = snprintf(text, sizeof text, "{\"n\":%llu}", (unsigned long long)i);
        put(&c, i, (struct str){text, (size_t)bytes});
    }
    put(&c, 5000, STR(""));
    for (int again = 0; again < 2; again++) {
        for (uint64_t i = 0; i < 5000; i++) {
            snprintf(text, sizeof text, "{\"n\":%llu}", (unsigned long long)i);
            assert_true(get(&c, i));
            assert_true(str_is(buf_str(&c.body), text));
            assert_int_equal(c.facts.usage.input_tokens, i);
            assert_int_equal(c.facts.usage.output_tokens, 7);
            assert_int_equal(c.facts.shape, SHAPE_TRUNCATED);
        }
        assert_true(get(&c, 5000));
        assert_int_equal(c.body.bytes, 0);
        assert_false(get(&c, 5001));
        result_cache_close(c.cache);
        open_cache(&c, 64 * MIB);
    }
    tear_down(&c);
}

static void the_oldest_go_when_the_bytes_are_used_up(void **state) {
    (void)state;
    struct cached c;
    char *body = calloc(MIB, 1);
    set_up(&c, 32 * MIB);
    for (uint64_t i = 0; i < 100; i++) put(&c, i, (struct str){body, MIB - 64});
    assert_true(count_files(&c) <= 2); /* 16 MiB per file */
    assert_false(get(&c, 0));
    assert_false(get(&c, 60));
    for (uint64_t i = 90; i < 100; i++) assert_true(get(&c, i));
    result_cache_close(c.cache);
    open_cache(&c, 32 * MIB);
    assert_true(get(&c, 99));
    put(&c, 200, (struct str){body, MIB + 1}); /* over the limit of one body */
    assert_false(get(&c, 200));
    free(body);
    tear_down(&c);
}

static void a_damaged_or_planted_record_is_a_miss(void **state) {
    (void)state;
    struct cached c;
    char path[128], byte;
    set_up(&c, 32 * MIB);
    put(&c, 1, STR("{\"score\":70}"));
    put(&c, 2, STR("{\"score\":60}"));
    snprintf(path, sizeof path, "%s/cache/00000001.seg", c.dir);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    /* Another answer under the first key; another key over the second answer. */
    assert_int_equal(pwrite(fd, "9", 1, 128 + 9), 1);
    assert_int_equal(pread(fd, &byte, 1, 144 + 8), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, 144 + 8), 1);
    close(fd);
    assert_false(get(&c, 1));
    assert_false(get(&c, 2));
    put(&c, 1, STR("{\"score\":70}"));
    assert_true(get(&c, 1));
    assert_true(str_is(buf_str(&c.body), "{\"score\":70}"));
    tear_down(&c);
}

static enum err count_batches(void *context, const char *file, const char *batch_id,
                              struct error *error) {
    int *counts = context;
    (void)error;
    assert_string_equal(file, "cache/00000001.seg");
    counts[strcmp(batch_id, "batch_odd") == 0 ? 0 : strcmp(batch_id, "batch_ode") == 0 ? 1 : 2]++;
    return OK;
}

static void a_torn_record_names_no_batch(void **state) {
    (void)state;
    struct cached c;
    struct error error;
    char path[128];
    int all[3] = {0}, whole[3] = {0};
    set_up(&c, 32 * MIB);
    for (uint64_t i = 1; i <= 3; i++) put(&c, i, STR("{}")); /* odd, even, odd */
    snprintf(path, sizeof path, "%s/cache/00000001.seg", c.dir);
    int fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, "batch_ode", 9, 64), 9);
    close(fd);
    assert_int_equal(result_cache_tell(c.dir, false, count_batches, all, &error), OK);
    assert_true(all[0] == 1 && all[1] == 1 && all[2] == 1);
    assert_int_equal(result_cache_tell(c.dir, true, count_batches, whole, &error), OK);
    assert_true(whole[0] == 1 && whole[1] == 0 && whole[2] == 1);
    tear_down(&c);
}

static void a_file_that_ends_anywhere_is_read_up_to_there(void **state) {
    (void)state;
    struct cached c;
    char path[128];
    set_up(&c, 32 * MIB);
    for (uint64_t i = 0; i < 10; i++) put(&c, i, STR("{\"a\":\"0123456789\"}"));
    result_cache_close(c.cache);
    snprintf(path, sizeof path, "%s/cache/00000001.seg", c.dir);
    for (off_t bytes = 1600; bytes >= 0; bytes -= 37) {
        assert_int_equal(truncate(path, bytes), 0);
        open_cache(&c, 32 * MIB);
        for (uint64_t i = 0; i < 10; i++)
            assert_int_equal(get(&c, i), (off_t)i * 160 + 128 + 18 <= bytes);
        result_cache_close(c.cache);
    }
    open_cache(&c, 32 * MIB);
    tear_down(&c);
}

static void a_batch_is_forgotten_and_others_stay(void **state) {
    (void)state;
    struct cached c;
    struct error error;
    char *body = calloc(MIB, 1);
    set_up(&c, 64 * MIB);
    for (uint64_t i = 0; i < 40; i++) put(&c, i, (struct str){body, MIB - 200}); /* three files */
    put(&c, 100, STR("last"));
    assert_int_equal(result_cache_forget(c.cache, "batch_none", &error), OK);
    assert_int_equal(result_cache_forget(c.cache, "batch_odd", &error), OK);
    for (int again = 0; again < 2; again++) {
        for (uint64_t i = 0; i < 40; i++) assert_int_equal(get(&c, i), i % 2 == 0);
        assert_true(get(&c, 100));
        result_cache_close(c.cache);
        open_cache(&c, 64 * MIB);
    }
    assert_int_equal(result_cache_forget(c.cache, "batch_even", &error), OK);
    for (uint64_t i = 0; i <= 100; i++) assert_false(get(&c, i));
    put(&c, 7, STR("new"));
    put(&c, 8, STR("newer"));
    assert_true(get(&c, 7) && get(&c, 8));
    assert_int_equal(result_cache_forget(c.cache, "batch_even", &error), OK);
    assert_true(get(&c, 7) && !get(&c, 8));
    assert_int_equal(result_cache_forget(NULL, "batch_even", &error), OK);
    result_cache_close(c.cache);
    assert_int_equal(result_cache_remove(c.dir, &error), OK);
    assert_int_equal(count_files(&c), 0);
    open_cache(&c, 64 * MIB);
    assert_false(get(&c, 7));
    free(body);
    tear_down(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_put_comes_back_also_after_a_reopen),
        cmocka_unit_test(the_oldest_go_when_the_bytes_are_used_up),
        cmocka_unit_test(a_damaged_or_planted_record_is_a_miss),
        cmocka_unit_test(a_batch_is_forgotten_and_others_stay),
        cmocka_unit_test(a_torn_record_names_no_batch),
        cmocka_unit_test(a_file_that_ends_anywhere_is_read_up_to_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
