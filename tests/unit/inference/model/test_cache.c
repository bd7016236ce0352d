/* SPDX-License-Identifier: Apache-2.0 */

/* Loads of a model with a cache of tiled weights: what the first one leaves, the second one maps.
 */

#include "../checkpoint/gguf_builder.h"
#include "../cpu/tiled_folder.h"
#include "base/os.h"
#include "cpu/cpu_notes.h"
#include "cpu/tiled_cache.h"
#include "kernels/kernels.h"
#include "model/model.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define VOCAB 8u

struct scene {
    char folder[64];
    char model[128];  /* a file in there */
    char packed[128]; /* a folder in there */
};

static void make_model(const char *path, uint32_t type) {
    struct recipe recipe = {.times = 8, .type = type};
    struct buf file;
    buf_init(&file, 1 << 26);
    build_gguf(&recipe, &file);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(file.at, 1, file.bytes, out), file.bytes);
    assert_int_equal(fclose(out), 0);
    buf_release(&file);
}

static void make_scene(struct scene *scene) {
    make_folder(scene->folder);
    snprintf(scene->model, sizeof scene->model, "%s/m.gguf", scene->folder);
    snprintf(scene->packed, sizeof scene->packed, "%s/packed", scene->folder);
    assert_int_equal(mkdir(scene->packed, 0700), 0);
    make_model(scene->model, TENSOR_Q4_K);
}

static void drop_scene(const struct scene *scene) {
    (void)count_files(scene->packed, true);
    (void)count_files(scene->folder, true);
}

/* Loads, computes and closes, which waits for the writing. Whether the weights were mapped. */
static bool load(const struct scene *scene, const char *kernels, uint64_t bytes_max,
                 float ret_logits[VOCAB]) {
    static const int32_t ids[] = {0, 5, 3};
    static const uint32_t positions[] = {2};
    struct model *model;
    struct error error = {0};
    struct model_description description;
    const struct model_options options = {.kernels = kernels,
                                          .threads = 2,
                                          .block_count = 1,
                                          .packed_dir = scene->packed,
                                          .packed_bytes_max = bytes_max};
    if (model_open(&model, scene->model, &options, &error) != OK) fail_msg("%s", error.text);
    model_describe(model, &description);
    const struct logits_request request = {ids, 3, positions, 1};
    assert_int_equal(model_logits(model, &request, ret_logits, &error), OK);
    model_close(model);
    return description.is_from_packed;
}

static void a_second_load_maps_what_the_first_one_left(void **state) {
    (void)state;
    struct scene scene;
    float first[VOCAB], second[VOCAB];
    make_scene(&scene);
    for (size_t table = 1; kernels_at(table); table++) {
        const char *name = kernels_at(table)->name;
        assert_false(load(&scene, name, UINT64_MAX, first)); /* each CPU has its own */
        assert_true(load(&scene, name, UINT64_MAX, second));
        assert_memory_equal(first, second, sizeof first);
        assert_int_equal(count_files(scene.packed, false), table);
    }
    int before = count_files(scene.packed, false);
    assert_false(load(&scene, "ref", UINT64_MAX, first)); /* has nothing to save */
    assert_int_equal(count_files(scene.packed, false), before);
    drop_scene(&scene);
}

static void a_model_that_was_written_anew_is_tiled_anew(void **state) {
    (void)state;
    struct scene scene;
    float first[VOCAB], second[VOCAB];
    if (!kernels_at(1)) skip();
    make_scene(&scene);
    assert_false(load(&scene, NULL, UINT64_MAX, first));
    make_model(scene.model, TENSOR_Q5_K);
    assert_false(load(&scene, NULL, UINT64_MAX, second));
    assert_true(memcmp(first, second, sizeof first) != 0);
    make_model(scene.model, TENSOR_Q4_K); /* the bytes of the first file, at another time */
    assert_false(load(&scene, NULL, UINT64_MAX, second));
    assert_memory_equal(first, second, sizeof first);
    drop_scene(&scene);
}

/* The one file of the folder. */
static void find_packed(const struct scene *scene, char ret_path[512]) {
    DIR *open = opendir(scene->packed);
    *ret_path = '\0';
    for (const struct dirent *entry; (entry = readdir(open));)
        if (*entry->d_name != '.') snprintf(ret_path, 512, "%s/%s", scene->packed, entry->d_name);
    closedir(open);
    assert_true(*ret_path);
}

static void a_damaged_file_is_not_used_and_made_anew(void **state) {
    (void)state;
    struct scene scene;
    char path[512];
    float first[VOCAB], second[VOCAB];
    struct error error;
    if (!kernels_at(1)) skip();
    make_scene(&scene);
    assert_false(load(&scene, NULL, UINT64_MAX, first));
    for (int damage = 0; damage < 3; damage++) {
        int fd;
        uint64_t bytes;
        find_packed(&scene, path);
        assert_int_equal(os_open(&fd, path, O_RDWR, 0, &error), OK);
        assert_int_equal(os_file_bytes(fd, &bytes, &error), OK);
        if (damage < 2)
            assert_int_equal(os_pwrite_all(fd, "quern", 5, damage ? bytes / 2 : 3, &error), OK);
        else
            assert_int_equal(os_ftruncate(fd, bytes / 2, &error), OK);
        os_close(fd);
        assert_false(load(&scene, NULL, UINT64_MAX, second));
        assert_memory_equal(first, second, sizeof first);
        assert_true(load(&scene, NULL, UINT64_MAX, second));
        assert_memory_equal(first, second, sizeof first);
        assert_int_equal(count_files(scene.packed, false), 1);
    }
    drop_scene(&scene);
}

static void what_is_over_the_limit_is_not_kept(void **state) {
    (void)state;
    struct scene scene;
    float logits[VOCAB];
    if (!kernels_at(1)) skip();
    make_scene(&scene);
    assert_false(load(&scene, NULL, 100000, logits));
    assert_false(load(&scene, NULL, 0, logits));
    assert_int_equal(count_files(scene.packed, false), 0);
    assert_false(load(&scene, NULL, UINT64_MAX, logits));
    assert_true(load(&scene, NULL, 0, logits)); /* an existing file is used */
    drop_scene(&scene);
}

/* The rows of a step of a model that was opened with `threads` threads. */
static uint32_t rows_of(const struct scene *scene, uint32_t threads, uint32_t rows_max) {
    struct model *model;
    struct error error = {0};
    const struct model_options options = {.threads = threads,
                                          .rows_max = rows_max,
                                          .sequences_max = 16,
                                          .packed_dir = scene->packed,
                                          .packed_bytes_max = UINT64_MAX};
    if (model_open(&model, scene->model, &options, &error) != OK) fail_msg("%s", error.text);
    const struct backend_caps caps = model_backend(model)->caps;
    assert_true(caps.urgent_rows_max <= caps.rows_max);
    model_close(model);
    return caps.rows_max;
}

static void notes_of_trials_hold_for_their_model_and_threads(void **state) {
    (void)state;
    struct scene scene;
    struct tiled_key stamp;
    struct cpu_notes notes;
    struct error error = {0};
    make_scene(&scene);
    assert_int_equal(tiled_cache_stamp(scene.model, &stamp, &error), OK);
    const struct cpu_notes_key key = {.model = stamp.bytes,
                                      .model_bytes = sizeof stamp.bytes,
                                      .kernels = kernels_choose(NULL)->name,
                                      .threads = 2,
                                      .most = 512,
                                      .least = 16 + 64};
    assert_true(cpu_notes_open(&notes, scene.packed, &key));
    assert_int_equal(rows_of(&scene, 2, 0), 512);
    assert_false(cpu_notes_say(&notes, 512)); /* a toy is not tried */
    cpu_notes_keep(&notes, 128);
    assert_true(cpu_notes_say(&notes, 128) && !cpu_notes_say(&notes, 256));
    assert_int_equal(rows_of(&scene, 2, 0), 128);
    assert_int_equal(rows_of(&scene, 1, 0), 512);
    assert_int_equal(rows_of(&scene, 2, 300), 300);
    make_model(scene.model, TENSOR_Q5_K);
    assert_int_equal(rows_of(&scene, 2, 0), 512);
    drop_scene(&scene);
}

static void notes_that_are_no_such_text_are_as_good_as_none(void **state) {
    (void)state;
    static const char *const texts[] = {"", "quern: rows of a step by trials\n", "x"};
    struct scene scene;
    struct cpu_notes notes;
    struct error error = {0};
    make_scene(&scene);
    const struct cpu_notes_key key = {
        .model = (const unsigned char *)"m", .model_bytes = 1, .kernels = "k", .most = 512};
    assert_false(cpu_notes_open(&notes, NULL, &key));
    assert_true(cpu_notes_open(&notes, scene.packed, &key));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int fd;
        assert_int_equal(os_create(&fd, notes.path, 0600, &error), OK);
        assert_int_equal(os_write_all(fd, texts[i], strlen(texts[i]), &error), OK);
        os_close(fd);
        assert_false(cpu_notes_say(&notes, 0) || cpu_notes_say(&notes, 512));
    }
    cpu_notes_keep(&notes, 256);
    assert_true(cpu_notes_say(&notes, 256));
    drop_scene(&scene);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_load_maps_what_the_first_one_left),
        cmocka_unit_test(a_model_that_was_written_anew_is_tiled_anew),
        cmocka_unit_test(a_damaged_file_is_not_used_and_made_anew),
        cmocka_unit_test(what_is_over_the_limit_is_not_kept),
        cmocka_unit_test(notes_of_trials_hold_for_their_model_and_threads),
        cmocka_unit_test(notes_that_are_no_such_text_are_as_good_as_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
