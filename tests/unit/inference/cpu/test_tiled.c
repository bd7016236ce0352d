/* SPDX-License-Identifier: Apache-2.0 */

/* The file of tiled weights: written sections come back, damaged ones do not. */

#include "../checkpoint/gguf_builder.h"
#include "base/hash.h"
#include "base/os.h"
#include "cpu/tiled_format.h"
#include "kernels/kernels.h"
#include "tiled_folder.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define LARGE ((size_t)(5u << 19)) /* two and a half MiB: three checksums with the others */

static unsigned char large[LARGE];
static const struct tiled_key some_key = {{1, 2, 3}};
static const struct tiled_section some_sections[] = {{"first", "0123456789", 10},
                                                     {"empty", "", 0},
                                                     {"blk.0.attn_q.weight", large, LARGE},
                                                     {"last", "x", 1}};

#define SOME_COUNT (sizeof some_sections / sizeof *some_sections)

static int fill_large(void **state) {
    (void)state;
    struct rng rng = {.state = 3};
    for (size_t i = 0; i < LARGE; i++) large[i] = (unsigned char)rng_next(&rng);
    return 0;
}

/* A sound file in memory that is aligned to pages. */
static unsigned char *make_file(size_t *ret_count) {
    char folder[64], path[128];
    struct error error;
    int fd;
    make_folder(folder);
    snprintf(path, sizeof path, "%s/w", folder);
    assert_int_equal(tiled_write(path, &some_key, some_sections, SOME_COUNT, NULL, &error), OK);
    size_t count = (size_t)tiled_file_bytes(some_sections, SOME_COUNT);
    unsigned char *bytes = aligned_alloc(TILED_PAGE, tiled_page_up(count));
    assert_int_equal(os_open(&fd, path, O_RDONLY, 0, &error), OK);
    uint64_t there;
    assert_int_equal(os_file_bytes(fd, &there, &error), OK);
    assert_int_equal(there, count);
    assert_int_equal(os_pread_all(fd, bytes, count, 0, &error), OK);
    os_close(fd);
    assert_int_equal(count_files(folder, true), 1); /* no other file was left */
    *ret_count = count;
    return bytes;
}

/* Opens and closes; the sections must be the written ones when it opens. */
static enum err try_bytes(const unsigned char *bytes, size_t count, const struct tiled_key *key,
                          struct error *error) {
    struct tiled *tiled;
    enum err err = tiled_open_bytes(&tiled, bytes, count, key, NULL, error);
    if (err != OK) return err;
    for (size_t i = 0; i < SOME_COUNT; i++) {
        const struct tiled_section *found = tiled_find(tiled, some_sections[i].name);
        assert_non_null(found);
        assert_int_equal(found->bytes, some_sections[i].bytes);
        assert_memory_equal(found->at, some_sections[i].at, found->bytes);
        assert_int_equal((uintptr_t)found->at % TILED_PAGE, 0);
    }
    assert_null(tiled_find(tiled, "none"));
    tiled_close(tiled);
    return OK;
}

static void sections_come_back_from_the_file(void **state) {
    (void)state;
    char folder[64], path[128];
    struct tiled *tiled;
    struct pool *pool;
    struct error error = {0};
    make_folder(folder);
    snprintf(path, sizeof path, "%s/w", folder);
    assert_int_equal(pool_open(&pool, 2, &error), OK);
    assert_int_equal(tiled_open(&tiled, path, &some_key, pool, &error), ERR_NOT_FOUND);
    assert_int_equal(tiled_write(path, &some_key, some_sections, SOME_COUNT, NULL, &error), OK);
    assert_int_equal(tiled_open(&tiled, path, &some_key, pool, &error), OK);
    assert_int_equal(count_files(folder, true), 1);
    /* Removed, and still there for who has it. */
    assert_memory_equal(tiled_find(tiled, "blk.0.attn_q.weight")->at, large, LARGE);
    tiled_close(tiled);
    pool_close(pool);
}

static void a_file_of_another_key_is_as_none(void **state) {
    (void)state;
    size_t count;
    struct error error;
    unsigned char *bytes = make_file(&count);
    struct tiled_key other = some_key;
    other.bytes[31] ^= 1;
    assert_int_equal(try_bytes(bytes, count, &some_key, &error), OK);
    assert_int_equal(try_bytes(bytes, count, &other, &error), ERR_NOT_FOUND);
    free(bytes);
}

static void every_flipped_bit_is_noticed(void **state) {
    (void)state;
    size_t count;
    struct error error = {0};
    unsigned char *bytes = make_file(&count);
    struct tiled_head head;
    memcpy(&head, bytes, sizeof head);
    /* Each bit of head and tables, then some of the body: near its borders and elsewhere. */
    size_t tables = sizeof head + SOME_COUNT * sizeof(struct tiled_entry) + 3 * 4u;
    for (size_t bit = 0; bit < 8 * tables; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_equal(try_bytes(bytes, count, &some_key, &error), ERR_CORRUPT);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    size_t places[] = {head.head_bytes - 1,
                       head.head_bytes,
                       head.head_bytes + 4095,
                       head.head_bytes + TILED_SUMMED_BYTES - 1,
                       head.head_bytes + TILED_SUMMED_BYTES,
                       count - 2,
                       count - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        bytes[places[i]] ^= 0x10;
        assert_int_equal(try_bytes(bytes, count, &some_key, &error), ERR_CORRUPT);
        bytes[places[i]] ^= 0x10;
    }
    assert_int_equal(try_bytes(bytes, count, &some_key, &error), OK);
    free(bytes);
}

static void a_file_cut_short_or_grown_is_noticed(void **state) {
    (void)state;
    size_t count;
    struct error error = {0};
    unsigned char *bytes = make_file(&count);
    size_t lengths[] = {0, 1, 127, 128, 4095, 4096, 4097, count / 2, count - 1, count + 1};
    unsigned char *longer = aligned_alloc(TILED_PAGE, tiled_page_up(count + 1));
    memcpy(longer, bytes, count);
    longer[count] = 0;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        assert_int_equal(try_bytes(longer, lengths[i], &some_key, &error), ERR_CORRUPT);
    free(longer);
    free(bytes);
}

/* The head with another value at `at` and its checksum put right. */
static enum err try_head(unsigned char *bytes, size_t count, size_t at, uint64_t value,
                         size_t value_bytes, struct error *error) {
    struct tiled_head head;
    uint64_t kept = 0;
    memcpy(&head, bytes, sizeof head);
    memcpy(&kept, bytes + at, value_bytes);
    memcpy(bytes + at, &value, value_bytes);
    uint32_t crc = tiled_head_crc(bytes, (size_t)head.head_bytes), kept_crc = head.crc;
    memcpy(bytes + offsetof(struct tiled_head, crc), &crc, sizeof crc);
    enum err err = try_bytes(bytes, count, &some_key, error);
    memcpy(bytes + at, &kept, value_bytes);
    memcpy(bytes + offsetof(struct tiled_head, crc), &kept_crc, sizeof kept_crc);
    return err;
}

static void lengths_that_lie_are_refused_although_the_checksum_is_right(void **state) {
    (void)state;
    size_t count;
    struct error error = {0};
    unsigned char *bytes = make_file(&count);
    const size_t entry = sizeof(struct tiled_head);
    const size_t offset_at = offsetof(struct tiled_entry, offset);
    const size_t bytes_at = offsetof(struct tiled_entry, bytes);
    const struct {
        size_t at;
        uint64_t value;
        size_t value_bytes;
    } lies[] = {
        {offsetof(struct tiled_head, version), TILED_VERSION + 1, 4},
        {offsetof(struct tiled_head, head_bytes), 0, 8},
        {offsetof(struct tiled_head, head_bytes), UINT64_MAX - 4095, 8},
        {offsetof(struct tiled_head, body_bytes), UINT64_MAX, 8},
        {offsetof(struct tiled_head, body_bytes), 0, 8},
        {offsetof(struct tiled_head, section_count), UINT32_MAX, 4},
        {offsetof(struct tiled_head, section_count), SOME_COUNT + 1, 4},
        {offsetof(struct tiled_head, sum_count), UINT32_MAX, 4},
        {entry, 0, 8}, /* no name */
        {entry + offset_at, 64, 8},
        {entry + offset_at, UINT64_MAX - 4095, 8},
        {entry + bytes_at, UINT64_MAX, 8},
        {entry + bytes_at, 4097, 8}, /* into the next one */
        {entry + 3 * sizeof(struct tiled_entry) + offset_at, 0, 8},
        {entry + 3 * sizeof(struct tiled_entry) + bytes_at, 2, 8},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        enum err err =
            try_head(bytes, count, lies[i].at, lies[i].value, lies[i].value_bytes, &error);
        if (err != ERR_CORRUPT) fail_msg("lie %zu gives %s", i, err_name(err));
    }
    assert_int_equal(try_bytes(bytes, count, &some_key, &error), OK);
    free(bytes);
}

static void a_write_that_fails_leaves_the_folder_as_it_was(void **state) {
    (void)state;
    static const char *const plans[] = {"open:1:EMFILE",   "pwrite:1:ENOSPC", "pwrite:3:EIO",
                                        "pwrite:4:ENOSPC", "fsync:1:EIO",     "rename:1:EIO"};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        char folder[64], path[128];
        make_folder(folder);
        snprintf(path, sizeof path, "%s/w", folder);
        pid_t child = fork();
        if (child == 0) { /* a plan is for a whole process */
            struct error error;
            if (os_fault_plan(plans[i], &error) != OK) _exit(2);
            enum err err = tiled_write(path, &some_key, some_sections, SOME_COUNT, NULL, &error);
            _exit(err == OK ? 1 : 0);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        assert_int_equal(count_files(folder, true), 0);
    }
}

static void a_writer_told_to_stop_leaves_nothing(void **state) {
    (void)state;
    char folder[64], path[128];
    struct error error;
    atomic_bool stop;
    atomic_init(&stop, true);
    make_folder(folder);
    snprintf(path, sizeof path, "%s/w", folder);
    assert_int_equal(tiled_write(path, &some_key, some_sections, SOME_COUNT, &stop, &error),
                     ERR_CANCELLED);
    assert_int_equal(count_files(folder, true), 0);
}

static void processes_that_write_at_once_leave_one_sound_file(void **state) {
    (void)state;
    char folder[64], path[128];
    pid_t children[4];
    struct tiled *tiled;
    struct error error = {0};
    make_folder(folder);
    snprintf(path, sizeof path, "%s/w", folder);
    for (int i = 0; i < 4; i++) {
        children[i] = fork();
        if (children[i] != 0) continue;
        for (int times = 0; times < 5; times++) {
            if (tiled_write(path, &some_key, some_sections, SOME_COUNT, NULL, &error) != OK)
                _exit(1);
            if (tiled_open(&tiled, path, &some_key, NULL, &error) != OK) _exit(2);
            tiled_close(tiled);
        }
        _exit(0);
    }
    for (int i = 0; i < 4; i++) {
        int status = -1;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    assert_int_equal(tiled_open(&tiled, path, &some_key, NULL, &error), OK);
    tiled_close(tiled);
    assert_int_equal(count_files(folder, true), 1);
}

/* A failure means that tiled bytes have changed their meaning. Then raise MATRIX_TILING
 * (kernels.h), so that no release maps the tiles of another, and put the new hash here. */
static void the_bytes_of_a_tiled_matrix_are_those_of_its_version(void **state) {
    (void)state;
    static const char *const wanted[] = {"avx2", "avx512", "avx512-bf16"};
    static const char *const hashes[] = {
        "d19461a22ae1bb1fb7113e52d9759613eafeb48a4848e41a068775863ae84ef8",
        "141d024967c1100ea5ec361df828a4565d11194545cc87e6a595ba85163886b7",
        "efaea39924dd6598a22e43945c54a9e235a9dee1f11fd45c1d0256fe6bf13180"};
    assert_int_equal(MATRIX_TILING, 1);
    for (size_t t = 0; t < sizeof wanted / sizeof *wanted; t++) {
        const struct kernels *kernels = kernels_choose(wanted[t]);
        if (!kernels) continue;
        struct sha256 hash;
        struct rng rng = {.state = 11};
        sha256_init(&hash);
        for (uint32_t type = 0; type < 64; type++) {
            static unsigned char blocks[40 * 512 * 4];
            struct matrix *matrix;
            struct error error;
            if (!tensor_type_is_known(type) || type == TENSOR_MXFP4_PAIRS) continue; /* newer */
            for (size_t i = 0; i < sizeof blocks; i++) blocks[i] = (unsigned char)rng_next(&rng);
            /* No NaN, whose bits no calculation promises. */
            size_t block = tensor_type_block_bytes((enum tensor_type)type);
            for (size_t i = 0; i + block <= sizeof blocks; i += block) calm_block(type, blocks + i);
            struct matrix_part part = {(enum tensor_type)type, blocks, 40, NULL};
            assert_int_equal(matrix_open(&matrix, kernels, &part, 1, 512, &error), OK);
            matrix_fill(matrix, &part, 0, matrix->tile_count);
            sha256_add(&hash, matrix->memory, matrix->bytes);
            matrix_close(matrix);
        }
        unsigned char digest[SHA256_BYTES];
        char hex[SHA256_HEX_BYTES];
        sha256_end(&hash, digest);
        sha256_hex(digest, hex);
        assert_string_equal(hex, hashes[t]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections_come_back_from_the_file),
        cmocka_unit_test(a_file_of_another_key_is_as_none),
        cmocka_unit_test(every_flipped_bit_is_noticed),
        cmocka_unit_test(a_file_cut_short_or_grown_is_noticed),
        cmocka_unit_test(lengths_that_lie_are_refused_although_the_checksum_is_right),
        cmocka_unit_test(a_write_that_fails_leaves_the_folder_as_it_was),
        cmocka_unit_test(a_writer_told_to_stop_leaves_nothing),
        cmocka_unit_test(processes_that_write_at_once_leave_one_sound_file),
        cmocka_unit_test(the_bytes_of_a_tiled_matrix_are_those_of_its_version),
    };
    return cmocka_run_group_tests(tests, fill_large, NULL);
}
