/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_notes.h"

#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define UUID "GPU-01234567-89ab-cdef-0123-456789abcdef"

/* What the GPU was brought, and what it tells. */
static char recalled[64];
static uint32_t recall_count;
static const char *told;

static void recall(struct gpu *gpu, const char *notes, size_t bytes) {
    (void)gpu;
    assert_true(bytes < sizeof recalled);
    memcpy(recalled, notes, bytes);
    recalled[bytes] = '\0';
    recall_count++;
}

static bool tell(struct gpu *gpu, const char **ret_notes, size_t *ret_bytes) {
    (void)gpu;
    if (!told) return false;
    *ret_notes = told, *ret_bytes = strlen(told);
    return true;
}

static const struct gpu_table table = {.kind = "stub", .recall = recall, .tell = tell};
static char dir[] = "/tmp/quern-notes-XXXXXX";
static char path[sizeof dir + sizeof "/stub-" UUID ".notes"];

static int make_dir(void **state) {
    (void)state;
    if (!mkdtemp(dir)) return -1;
    (void)snprintf(path, sizeof path, "%s/stub-%s.notes", dir, UUID);
    return 0;
}

static int remove_dir(void **state) {
    (void)state;
    struct error error;
    return os_unlink(path, &error) == OK && rmdir(dir) == 0 ? 0 : -1;
}

static void notes_reach_the_next_load(void **state) {
    (void)state;
    gpu_notes_recall(&table, NULL, dir, UUID);
    assert_int_equal(recall_count, 0); /* there is no file */
    told = NULL;
    gpu_notes_keep(&table, NULL, dir, UUID);
    assert_int_equal(access(path, F_OK), -1); /* nothing new, so no file */
    told = "the first";
    gpu_notes_keep(&table, NULL, dir, UUID);
    gpu_notes_recall(&table, NULL, dir, UUID);
    assert_string_equal(recalled, "the first");
    told = "replaced";
    gpu_notes_keep(&table, NULL, dir, UUID);
    told = NULL;
    gpu_notes_keep(&table, NULL, dir, UUID); /* nothing new: the file stays */
    gpu_notes_recall(&table, NULL, dir, UUID);
    assert_string_equal(recalled, "replaced");
    assert_int_equal(recall_count, 2);
}

static void without_folder_card_or_notes_nothing_happens(void **state) {
    (void)state;
    const struct gpu_table silent = {.kind = "stub"};
    const uint32_t before = recall_count;
    told = "notes";
    gpu_notes_recall(&silent, NULL, dir, UUID);
    gpu_notes_keep(&silent, NULL, dir, UUID);
    for (size_t i = 0; i < 4; i++) {
        const char *folders[] = {NULL, dir, dir, "/tmp/quern-notes-of-nobody"};
        const char *cards[] = {UUID, "", ("../" UUID), UUID};
        gpu_notes_keep(&table, NULL, folders[i], cards[i]);
        gpu_notes_recall(&table, NULL, folders[i], cards[i]);
    }
    assert_int_equal(recall_count, before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(notes_reach_the_next_load),
        cmocka_unit_test(without_folder_card_or_notes_nothing_happens),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
