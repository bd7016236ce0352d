/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/cpu_notes.h"

#include "base/log.h"
#include "base/os.h"

#include <cpuid.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX 128 /* more than any such file has */
#define NAME_HEX 16   /* digits of the hash of machine and settings in the file's name */
#define FILE_MODE 0600
#define RELEASE QUERN_VERSION

#define BRAND_FIRST 0x80000002u
#define BRAND_LAST 0x80000004u

/* Model, family and stepping, and the name that the maker gave it: "AMD EPYC 9B14 …". */
static void add_processor(struct sha256 *hash) {
    unsigned int facts[4] = {0};
    for (unsigned int leaf = BRAND_FIRST; leaf <= BRAND_LAST; leaf++)
        if (__get_cpuid(leaf, &facts[0], &facts[1], &facts[2], &facts[3]))
            sha256_add(hash, facts, sizeof facts);
    if (__get_cpuid(1, &facts[0], &facts[1], &facts[2], &facts[3]))
        sha256_add(hash, &facts[0], sizeof facts[0]); /* the others tell one core from another */
}

static void add_number(struct sha256 *hash, uint32_t number) {
    sha256_add(hash, &number, sizeof number);
}

static void end_in_hex(struct sha256 *hash, char ret_hex[SHA256_HEX_BYTES]) {
    unsigned char digest[SHA256_BYTES];
    sha256_end(hash, digest);
    sha256_hex(digest, ret_hex);
}

bool cpu_notes_open(struct cpu_notes *notes, const char *dir, const struct cpu_notes_key *key) {
    struct sha256 hash;
    char machine[SHA256_HEX_BYTES];
    if (!dir || !*dir) return false;
    sha256_init(&hash);
    add_processor(&hash);
    sha256_add(&hash, key->kernels, strlen(key->kernels) + 1);
    add_number(&hash, key->threads);
    add_number(&hash, key->most);
    add_number(&hash, key->least);
    end_in_hex(&hash, machine);
    sha256_init(&hash);
    sha256_add(&hash, machine, sizeof machine);
    sha256_add(&hash, RELEASE, sizeof RELEASE);
    sha256_add(&hash, key->model, key->model_bytes);
    end_in_hex(&hash, notes->key);
    const int length =
        snprintf(notes->path, sizeof notes->path, "%s/cpu-%.*s.notes", dir, NAME_HEX, machine);
    return length > 0 && length < (int)sizeof notes->path;
}

static void write_text(const struct cpu_notes *notes, uint32_t rows, char ret_text[BYTES_MAX]) {
    (void)snprintf(ret_text, BYTES_MAX, "quern: rows of a step by trials\nkey %s\nrows %u\n",
                   notes->key, rows);
}

bool cpu_notes_say(const struct cpu_notes *notes, uint32_t rows) {
    char text[BYTES_MAX], *found = NULL;
    size_t bytes;
    struct error error;
    write_text(notes, rows, text);
    if (os_read_file(notes->path, BYTES_MAX, &found, &bytes, &error) != OK) return false;
    const bool is_equal = bytes == strlen(text) && memcmp(found, text, bytes) == 0;
    free(found);
    return is_equal;
}

/* A file of another name becomes the notes, so that nobody reads a part of them. */
static enum err replace(const struct cpu_notes *notes, const char *text, struct error *error) {
    char next[PATH_MAX + sizeof ".tmp"];
    int fd = -1;
    (void)snprintf(next, sizeof next, "%s.tmp", notes->path);
    enum err err = os_create(&fd, next, FILE_MODE, error);
    if (err == OK) err = os_write_all(fd, text, strlen(text), error);
    os_close(fd);
    return err == OK ? os_rename(next, notes->path, error) : err;
}

void cpu_notes_keep(const struct cpu_notes *notes, uint32_t rows) {
    char text[BYTES_MAX];
    struct error error;
    write_text(notes, rows, text);
    if (replace(notes, text, &error) != OK)
        log_warn("event=cpu_notes file=%s error=\"%s\"", notes->path, error.text);
}
