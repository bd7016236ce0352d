/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "checkpoint/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A file of a header, whose length may lie, and `data_bytes` bytes that count up from 0. */
static void build(struct buf *file, struct str header, uint64_t length_add, size_t data_bytes) {
    buf_init(file, (size_t)256 << 20);
    uint64_t length = header.bytes + length_add;
    buf_add(file, &length, sizeof length);
    buf_add_str(file, header);
    for (size_t i = 0; i < data_bytes; i++) buf_add_byte(file, (char)i);
}

/* Opens a copy of the exact size, so that a sanitizer sees one byte too far. */
static enum err open_copy(const struct buf *file, char **ret_copy, struct safetensors **ret_file,
                          struct error *error) {
    *ret_copy = malloc(file->bytes > 0 ? file->bytes : 1);
    if (file->bytes > 0) memcpy(*ret_copy, file->at, file->bytes);
    return safetensors_open_bytes(ret_file, *ret_copy, file->bytes, error);
}

static const struct safetensors_tensor *find(const struct safetensors *file, struct str name) {
    for (size_t i = 0; i < safetensors_tensor_count(file); i++)
        if (str_equals(safetensors_tensor_at(file, i)->name, name))
            return safetensors_tensor_at(file, i);
    return NULL;
}

static void every_tensor_is_found_with_its_type_shape_and_bytes(void **state) {
    (void)state;
    struct buf file;
    struct error error = {0};
    struct safetensors *opened;
    char *copy;
    build(&file,
          STR(" {\"__metadata__\":{\"format\":\"pt\"},"
              "\"b.weight\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
              "\"\\u0061\\/x\":{\"data_offsets\":[0,4],\"later\":[{}],\"shape\":[],"
              "\"dtype\":\"F32\"},"
              "\"none\":{\"dtype\":\"I64\",\"shape\":[7,0],\"data_offsets\":[16,16]}}   "),
          0, 16);
    assert_int_equal(open_copy(&file, &copy, &opened, &error), OK);
    assert_int_equal(safetensors_tensor_count(opened), 3);
    assert_int_equal(safetensors_file_bytes(opened), file.bytes);
    const struct safetensors_tensor *matrix = find(opened, STR("b.weight"));
    assert_non_null(matrix);
    assert_int_equal(matrix->type, SAFETENSORS_BF16);
    assert_string_equal(safetensors_type_name(matrix->type), "BF16");
    assert_int_equal(matrix->axis_count, 2);
    assert_int_equal(matrix->axes[0], 2);
    assert_int_equal(matrix->axes[1], 3);
    assert_int_equal(matrix->axes[2], 1);
    assert_int_equal(matrix->bytes, 12);
    assert_int_equal(matrix->at[0], 4);
    const struct safetensors_tensor *scalar = find(opened, STR("a/x"));
    assert_non_null(scalar);
    assert_int_equal(scalar->axis_count, 0);
    assert_int_equal(scalar->bytes, 4);
    assert_int_equal(scalar->at[3], 3);
    const struct safetensors_tensor *empty = find(opened, STR("none"));
    assert_non_null(empty);
    assert_int_equal(empty->bytes, 0);
    assert_ptr_equal(safetensors_tensor_at(opened, 0), matrix);
    assert_null(find(opened, STR("__metadata__")));
    safetensors_drop_pages(opened, matrix);
    safetensors_close(opened);
    free(copy);
    buf_release(&file);
}

/* Each breach: words of its sentence, the header, bytes of data, and the number added to its
 * length. */
static const struct breach {
    const char *says;
    const char *header;
    size_t data_bytes;
    uint64_t length_add;
} breaches[] = {
    {"a header of", "{}", 0, UINT64_MAX / 2},
    {"a header of 100000001 bytes", "{}", 0, 100000001 - 2},
    {"the header claims 3 bytes, more than the 2", "{}", 0, 1},
    {"the header claims 18", "{}", 15, 16},
    {"not valid JSON", "", 0, 0},
    {"not valid JSON", "   ", 0, 0},
    {"not valid JSON", "{", 0, 0},
    {"not valid JSON", "{} x", 0, 0},
    {"not valid JSON", "{}{}", 0, 0},
    {"not valid JSON", "{\"a\":{\"dtype\":\"U8\",}}", 0, 0},
    {"not valid JSON", "{\"a\nb\":1}", 0, 0},
    {"not valid JSON", "{\"a\":{\"shape\":[01]}}", 0, 0},
    {"not valid UTF-8", "{\"\xFF\":1}", 0, 0},
    {"no JSON object", "[]", 0, 0},
    {"no JSON object", "7", 0, 0},
    {"no JSON object", "null", 0, 0},
    {"__metadata__ is no object", "{\"__metadata__\":[\"x\"]}", 0, 0},
    {"__metadata__ is no object", "{\"__metadata__\":{\"x\":1}}", 0, 0},
    {"__metadata__ is there twice", "{\"__metadata__\":{},\"\\u005f_metadata__\":{}}", 0, 0},
    {"tensor 0 is not 1 to 512", "{\"\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1,
     0},
    {"tensor 0 is not printable",
     "{\"a\\u0000\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, 0},
    {"tensor 0 is not printable",
     "{\"a\\n\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, 0},
    {"tensor a is there twice",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},"
     "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[1,2]}}",
     2, 0},
    {"a is described by no object", "{\"a\":7}", 0, 0},
    {"a is described by no object", "{\"a\":[]}", 0, 0},
    {"a has no dtype", "{\"a\":{\"shape\":[],\"data_offsets\":[0,1]}}", 1, 0},
    {"a has no shape", "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, 0},
    {"a has no data_offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[]}}", 1, 0},
    {"a has its shape twice",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"shape\":[],\"data_offsets\":[0,1]}}", 1, 0},
    {"unknown dtype \"Q4\"", "{\"a\":{\"dtype\":\"Q4\",\"shape\":[],\"data_offsets\":[0,1]}}", 1,
     0},
    {"its dtype is no string", "{\"a\":{\"dtype\":[\n],\"shape\":[],\"data_offsets\":[0,1]}}", 1,
     0},
    {"no list of up to 8 counts", "{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}",
     1, 0},
    {"no list of up to 8 counts",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", 1, 0},
    {"no list of up to 8 counts",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1.0],\"data_offsets\":[0,1]}}", 1, 0},
    {"no list of up to 8 counts",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1e0],\"data_offsets\":[0,1]}}", 1, 0},
    {"no list of up to 8 counts",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[\"1\"],\"data_offsets\":[0,1]}}", 1, 0},
    {"no list of up to 8 counts",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":{\"x\":1},\"data_offsets\":[0,1]}}", 1, 0},
    {"no list of up to 8 counts",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1, 0},
    {"no list of up to 8 counts",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[18446744073709551616],\"data_offsets\":[0,1]}}", 1, 0},
    {"product of its shape overflows",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,1]}}", 1, 0},
    {"product of its shape overflows",
     "{\"a\":{\"dtype\":\"F64\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 1, 0},
    {"do not fill whole bytes", "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}",
     1, 0},
    {"no two counts", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, 0},
    {"no two counts", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1, 0},
    {"no two counts", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[-1,0]}}", 1, 0},
    {"not within the 1 bytes", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,0]}}", 1,
     0},
    {"not within the 1 bytes", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 1,
     0},
    {"not within the 1 bytes",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
     "\"data_offsets\":[18446744073709551615,18446744073709551615]}}",
     1, 0},
    {"span 1 bytes, but its shape takes 2",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1, 0},
    {"span 2 bytes, but its shape takes 1",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,2]}}", 2, 0},
    {"span 2 bytes, but its shape takes 0",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[5,0],\"data_offsets\":[0,2]}}", 2, 0},
    {"a has a hole before it", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2,
     0},
    {"c has a hole before it",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
     "\"c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
     3, 0},
    {"overlaps another",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
     3, 0},
    {"overlaps another",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
     2, 0},
    {"the last 1 bytes of the file",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 2, 0},
    {"the last 3 bytes of the file", "{}", 3, 0},
};

static void each_breach_of_the_format_is_refused_by_its_own_sentence(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof breaches / sizeof *breaches; i++) {
        const struct breach *breach = &breaches[i];
        struct buf file;
        struct error error = {0};
        struct safetensors *opened;
        char *copy;
        build(&file, str_from(breach->header), breach->length_add, breach->data_bytes);
        enum err err = open_copy(&file, &copy, &opened, &error);
        if (err != ERR_INVALID || !strstr(error.text, breach->says))
            print_message("# breach %zu: %s\n", i, error.text);
        assert_int_equal(err, ERR_INVALID);
        assert_non_null(strstr(error.text, breach->says));
        assert_null(strchr(error.text, '\n'));
        free(copy);
        buf_release(&file);
    }
}

static void a_file_cut_short_anywhere_is_refused(void **state) {
    (void)state;
    struct buf file;
    build(&file,
          STR("{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
              "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]}}"),
          0, 5);
    for (size_t bytes = 0; bytes < file.bytes; bytes++) {
        struct error error = {0};
        struct safetensors *opened;
        char *copy;
        struct buf cut = {.at = file.at, .bytes = bytes};
        assert_int_equal(open_copy(&cut, &copy, &opened, &error), ERR_INVALID);
        free(copy);
    }
    buf_release(&file);
}

/* A header of `count` tensors with names of `name_bytes`, all empty. */
static void put_many(struct buf *header, size_t count, int name_bytes) {
    buf_init(header, (size_t)128 << 20);
    for (size_t i = 0; i < count; i++)
        buf_printf(header, "%s\"%0*zu\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                   i ? "," : "{", name_bytes, i);
    buf_add_byte(header, '}');
}

static enum err open_many(size_t count, int name_bytes, struct error *error) {
    struct buf header, file;
    struct safetensors *opened;
    put_many(&header, count, name_bytes);
    build(&file, buf_str(&header), 0, 0);
    enum err err = safetensors_open_bytes(&opened, file.at, file.bytes, error);
    if (err == OK) safetensors_close(opened);
    buf_release(&file);
    buf_release(&header);
    return err;
}

static void the_number_of_tensors_and_the_length_of_names_are_bounded(void **state) {
    (void)state;
    struct error error = {0};
    assert_int_equal(open_many(SAFETENSORS_TENSORS_MAX, 8, &error), OK);
    assert_int_equal(open_many(SAFETENSORS_TENSORS_MAX + 1, 8, &error), ERR_INVALID);
    assert_non_null(strstr(error.text, "more than 65536 tensors"));
    assert_int_equal(open_many(1, SAFETENSORS_NAME_BYTES_MAX, &error), OK);
    assert_int_equal(open_many(1, SAFETENSORS_NAME_BYTES_MAX + 1, &error), ERR_INVALID);
    assert_non_null(strstr(error.text, "not 1 to 512 bytes"));
}

static void nesting_without_end_is_refused_and_costs_no_stack(void **state) {
    (void)state;
    struct buf header, file;
    struct error error = {0};
    struct safetensors *opened;
    buf_init(&header, (size_t)8 << 20);
    buf_add_text(&header, "{\"a\":");
    for (size_t i = 0; i < (size_t)4 << 20; i++) buf_add_byte(&header, '[');
    build(&file, buf_str(&header), 0, 0);
    assert_int_equal(safetensors_open_bytes(&opened, file.at, file.bytes, &error), ERR_INVALID);
    assert_non_null(strstr(error.text, "not valid JSON"));
    buf_release(&file);
    buf_release(&header);
}

static void a_file_is_opened_by_its_path_and_what_is_none_is_refused(void **state) {
    (void)state;
    struct error error = {0};
    struct safetensors *opened;
    char path[] = "/tmp/quern-safetensors-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(safetensors_open(&opened, path, &error), ERR_INVALID); /* empty */
    struct buf file;
    build(&file, STR("{\"a\":{\"dtype\":\"U8\",\"shape\":[9000],\"data_offsets\":[0,9000]}}"), 0,
          9000);
    assert_int_equal(write(fd, file.at, file.bytes), file.bytes);
    close(fd);
    assert_int_equal(safetensors_open(&opened, path, &error), OK);
    const struct safetensors_tensor *tensor = find(opened, STR("a"));
    safetensors_drop_pages(opened, tensor);
    assert_int_equal(tensor->at[8999], (unsigned char)8999); /* dropped pages come back */
    safetensors_close(opened);
    unlink(path);
    buf_release(&file);
    assert_int_equal(safetensors_open(&opened, path, &error), ERR_NOT_FOUND);
    assert_int_equal(safetensors_open(&opened, "/dev/null", &error), ERR_INVALID);
    assert_int_equal(safetensors_open(&opened, "/tmp", &error), ERR_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_is_found_with_its_type_shape_and_bytes),
        cmocka_unit_test(each_breach_of_the_format_is_refused_by_its_own_sentence),
        cmocka_unit_test(a_file_cut_short_anywhere_is_refused),
        cmocka_unit_test(the_number_of_tensors_and_the_length_of_names_are_bounded),
        cmocka_unit_test(nesting_without_end_is_refused_and_costs_no_stack),
        cmocka_unit_test(a_file_is_opened_by_its_path_and_what_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
