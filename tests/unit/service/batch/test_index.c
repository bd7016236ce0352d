/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/idset.h"
#include "batch/index.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT 3000

static uint64_t key_of(const char *prefix, unsigned number) {
    char text[600];
    snprintf(text, sizeof text, "%-300s%u", prefix, number);
    return index_prefix_key(STR("\"m\""), STR("\"u\""), str_from(text));
}

static void the_order_is_a_permutation_with_equal_beginnings_together(void **state) {
    (void)state;
    static uint64_t keys[COUNT];
    static uint32_t order[COUNT];
    static uint8_t seen[COUNT], group[COUNT];
    struct rng rng = {1};
    for (uint32_t i = 0; i < COUNT; i++) {
        char prefix[32];
        group[i] = (uint8_t)rng_below(&rng, 7);
        snprintf(prefix, sizeof prefix, "rubric %d", group[i]);
        keys[i] = key_of(prefix, i);
    }
    index_order(keys, COUNT, order);
    unsigned changes = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        seen[order[i]]++;
        if (i > 0 && group[order[i]] != group[order[i - 1]]) changes++;
    }
    for (uint32_t i = 0; i < COUNT; i++) assert_int_equal(seen[i], 1);
    assert_int_equal(changes, 6);
    /* Groups come in the order of their first request. */
    assert_int_equal(order[0], 0);
}

static void requests_that_share_nothing_stay_in_the_order_of_the_file(void **state) {
    (void)state;
    static uint64_t keys[COUNT];
    static uint32_t order[COUNT];
    for (uint32_t i = 0; i < 100; i++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "%u", i);
        keys[i] = key_of(prefix, i);
    }
    index_order(keys, 100, order);
    for (uint32_t i = 0; i < 100; i++) assert_int_equal(order[i], i);
}

static void make_path(char ret_path[64]) {
    snprintf(ret_path, 64, "/tmp/quern-index-XXXXXX");
    int fd = mkstemp(ret_path);
    assert_true(fd >= 0);
    close(fd);
}

static void build(const char *path, const unsigned char *sha) {
    struct index_builder *builder;
    struct error error;
    assert_int_equal(index_builder_open(&builder, path, &error), OK);
    for (uint32_t i = 0; i < 10000; i++) {
        struct index_entry entry = {i * 100ull, 99, i + 1, i * 7}, found;
        assert_int_equal(index_builder_add(builder, &entry, i, &error), OK);
        assert_int_equal(index_builder_get(builder, i / 2, &found, &error), OK);
        assert_int_equal(found.offset, i / 2 * 100ull);
    }
    assert_int_equal(index_builder_finish(builder, 1000000, sha, &error), OK);
}

static void an_index_is_read_back_and_belongs_to_one_file(void **state) {
    (void)state;
    char path[64];
    unsigned char sha[SHA256_BYTES] = {1}, other[SHA256_BYTES] = {2};
    struct line_index *index;
    struct error error;
    make_path(path);
    build(path, sha);
    assert_int_equal(index_open(&index, path, sha, &error), OK);
    assert_int_equal(index_count(index), 10000);
    assert_int_equal(index_entry(index, 77).offset, 7700);
    assert_int_equal(index_entry(index, 77).number, 78);
    assert_int_equal(index_entry(index, 77).bytes, 99);
    assert_int_equal(index_entry(index, 9999).crc, 9999 * 7);
    assert_true(index_line_at(index, 9999) < 10000);
    index_close(index);
    assert_int_equal(index_open(&index, path, other, &error), ERR_CORRUPT);
    unlink(path);
    assert_int_equal(index_open(&index, path, sha, &error), ERR_NOT_FOUND);
}

static void requests_for_one_model_stand_together_in_the_order_of_names(void **state) {
    (void)state;
    static const char *const models[] = {"b", "c", "a"};
    char path[64];
    unsigned char sha[SHA256_BYTES] = {1};
    struct index_builder *builder;
    struct line_index *index;
    struct error error;
    make_path(path);
    assert_int_equal(index_builder_open(&builder, path, &error), OK);
    for (uint32_t i = 0; i < 300; i++) {
        struct index_entry entry = {i * 100ull, 99, i + 1, 0};
        char prompt[32];
        snprintf(prompt, sizeof prompt, "%u", i / 6);
        struct str model = str_from(models[i % 3]);
        index_builder_set_model(builder, model);
        uint64_t key = index_prefix_key(model, STR("url"), str_from(prompt));
        assert_int_equal(index_builder_add(builder, &entry, key, &error), OK);
    }
    assert_int_equal(index_builder_finish(builder, 1000000, sha, &error), OK);
    assert_int_equal(index_open(&index, path, sha, &error), OK);
    static const uint32_t model_at[] = {2, 0, 1};
    for (uint32_t place = 0; place < 300; place++) {
        uint32_t line = index_line_at(index, place);
        assert_int_equal(line % 3, model_at[place / 100]);
        /* Inside a model nothing changes: two requests with each prompt, in the file's order. */
        assert_int_equal(line / 3, place % 100);
    }
    index_close(index);
    unlink(path);
}

static void more_models_than_can_be_ranked_are_all_there(void **state) {
    (void)state;
    char path[64], model[32];
    unsigned char sha[SHA256_BYTES] = {1};
    bool seen[40] = {false};
    struct index_builder *builder;
    struct line_index *index;
    struct error error;
    make_path(path);
    assert_int_equal(index_builder_open(&builder, path, &error), OK);
    for (uint32_t i = 0; i < 40; i++) {
        struct index_entry entry = {i * 100ull, 99, i + 1, 0};
        snprintf(model, sizeof model, "model-%u", i);
        index_builder_set_model(builder, str_from(model));
        assert_int_equal(index_builder_add(builder, &entry, i, &error), OK);
    }
    assert_int_equal(index_builder_finish(builder, 1000000, sha, &error), OK);
    assert_int_equal(index_open(&index, path, sha, &error), OK);
    for (uint32_t place = 0; place < 40; place++) seen[index_line_at(index, place)] = true;
    for (uint32_t i = 0; i < 40; i++) assert_true(seen[i]);
    index_close(index);
    unlink(path);
}

static void a_changed_or_cut_index_is_refused(void **state) {
    (void)state;
    char path[64];
    unsigned char sha[SHA256_BYTES] = {1};
    struct line_index *index;
    struct error error;
    make_path(path);
    build(path, sha);
    for (long at = 0; at < 200128; at += 9973) {
        FILE *file = fopen(path, "r+e");
        fseek(file, at, SEEK_SET);
        int byte = fgetc(file);
        fseek(file, at, SEEK_SET);
        fputc(byte ^ 0x10, file);
        fclose(file);
        assert_int_equal(index_open(&index, path, sha, &error), ERR_CORRUPT);
        file = fopen(path, "r+e");
        fseek(file, at, SEEK_SET);
        fputc(byte, file);
        fclose(file);
    }
    assert_int_equal(truncate(path, 5000), 0);
    assert_int_equal(index_open(&index, path, sha, &error), ERR_CORRUPT);
    assert_int_equal(truncate(path, 5), 0);
    assert_int_equal(index_open(&index, path, sha, &error), ERR_CORRUPT);
    unlink(path);
}

static char ids[20000][16];
static struct str asked;

static bool is_same(void *context, uint32_t line) {
    (void)context;
    return str_is(asked, ids[line]);
}

static void the_set_finds_every_repetition_and_no_other(void **state) {
    (void)state;
    struct idset set;
    uint32_t first;
    idset_init(&set);
    for (uint32_t i = 0; i < 20000; i++) {
        snprintf(ids[i], sizeof ids[i], "id-%u", i);
        asked = str_from(ids[i]);
        assert_true(idset_add(&set, asked, i, is_same, NULL, &first));
    }
    for (uint32_t i = 0; i < 20000; i += 17) {
        asked = str_from(ids[i]);
        assert_false(idset_add(&set, asked, 1, is_same, NULL, &first));
        assert_int_equal(first, i);
    }
    /* At most 20 bytes an id. */
    assert_true(((size_t)8 << set.bits) <= 20000 * 20);
    idset_release(&set);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order_is_a_permutation_with_equal_beginnings_together),
        cmocka_unit_test(requests_that_share_nothing_stay_in_the_order_of_the_file),
        cmocka_unit_test(an_index_is_read_back_and_belongs_to_one_file),
        cmocka_unit_test(a_changed_or_cut_index_is_refused),
        cmocka_unit_test(requests_for_one_model_stand_together_in_the_order_of_names),
        cmocka_unit_test(more_models_than_can_be_ranked_are_all_there),
        cmocka_unit_test(the_set_finds_every_repetition_and_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
