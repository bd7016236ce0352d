/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/manifest.h"

#include "base/mem.h"
#include "store/batches.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAGIC "quern-backup"

void backup_time_text(int64_t unix_s, char ret_text[BACKUP_TIME_BYTES]) {
    struct tm parts;
    time_t when = (time_t)unix_s;
    if (!gmtime_r(&when, &parts) ||
        strftime(ret_text, BACKUP_TIME_BYTES, "%Y-%m-%d %H:%M:%S UTC", &parts) == 0)
        snprintf(ret_text, BACKUP_TIME_BYTES, "an unknown time");
}

/* --- paths --- */

static bool take_start(struct str *rest, struct str start) {
    if (!str_starts_with(*rest, start)) return false;
    *rest = str_skip(*rest, start.bytes);
    return true;
}

static bool segment_name_is_sane(struct str name) {
    if (name.bytes != 14 || !take_start(&name, STR("seg-")) || !str_ends_with(name, STR(".log")))
        return false;
    for (size_t i = 0; i < 6; i++)
        if (name.at[i] < '0' || name.at[i] > '9') return false;
    return true;
}

bool backup_path_is_sane(struct str path) {
    struct str rest = path;
    if (str_is(path, "meta.db") || str_is(path, "keys.jsonl") || str_is(path, "keys.made") ||
        str_is(path, STORE_NOTES_NAME))
        return true;
    if (take_start(&rest, STR("parts/"))) return store_id_is_sane(rest);
    if (take_start(&rest, STR("files/"))) {
        if (rest.bytes < 3 || rest.at[2] != '/') return false;
        struct str folder = {rest.at, 2}, id = str_skip(rest, 3);
        return store_id_is_sane(id) && str_ends_with(id, folder);
    }
    if (!take_start(&rest, STR("batches/"))) return false;
    size_t slash = str_find_byte(rest, '/', 0);
    if (slash == SIZE_MAX || !store_id_is_sane((struct str){rest.at, slash})) return false;
    struct str name = str_skip(rest, slash + 1);
    return str_is(name, "lines.idx") || store_order_is_name(name) || segment_name_is_sane(name);
}

/* --- objects --- */

void backup_manifest_release(struct backup_manifest *manifest) {
    free(manifest->objects);
    *manifest = (struct backup_manifest){0};
}

struct backup_object *backup_manifest_add(struct backup_manifest *manifest, const char *path) {
    size_t bytes = strlen(path);
    assert(bytes < BACKUP_PATH_BYTES && backup_path_is_sane((struct str){path, bytes}));
    manifest->objects = vec_grow(manifest->objects, manifest->count, &manifest->capacity,
                                 sizeof *manifest->objects);
    struct backup_object *object = &manifest->objects[manifest->count++];
    *object = (struct backup_object){0};
    memcpy(object->path, path, bytes + 1);
    return object;
}

/* The sort keeps no order of equal paths, so that the place in the array decides. */
struct ranked {
    struct backup_object object;
    size_t place;
};

static int compare_ranked(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    int order = strcmp(x->object.path, y->object.path);
    return order ? order : (x->place > y->place) - (x->place < y->place);
}

void backup_manifest_sort(struct backup_manifest *manifest) {
    if (manifest->count == 0) return;
    struct ranked *ranked = mem_new(manifest->count, sizeof *ranked);
    for (size_t i = 0; i < manifest->count; i++)
        ranked[i] = (struct ranked){manifest->objects[i], i};
    qsort(ranked, manifest->count, sizeof *ranked, compare_ranked);
    size_t kept = 0;
    for (size_t i = 0; i < manifest->count; i++) {
        if (kept && strcmp(manifest->objects[kept - 1].path, ranked[i].object.path) == 0) kept--;
        manifest->objects[kept++] = ranked[i].object;
    }
    manifest->count = kept;
    free(ranked);
}

static int compare_path(const void *path, const void *object) {
    return strcmp(path, ((const struct backup_object *)object)->path);
}

const struct backup_object *backup_manifest_find(const struct backup_manifest *manifest,
                                                 const char *path) {
    if (manifest->count == 0) return NULL;
    return bsearch(path, manifest->objects, manifest->count, sizeof *manifest->objects,
                   compare_path);
}

uint64_t backup_manifest_bytes(const struct backup_manifest *manifest) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < manifest->count; i++) bytes += manifest->objects[i].bytes;
    return bytes;
}

/* --- writing --- */

void backup_manifest_write(const struct backup_manifest *manifest, struct buf *buf) {
    char hex[SHA256_HEX_BYTES];
    unsigned char sum[SHA256_BYTES];
    size_t from = buf->bytes;
    buf_printf(buf,
               MAGIC " 1\ngeneration %" PRIu64 "\nversion %s\nschema %" PRId64 "\nbegun %" PRId64
                     "\nended %" PRId64 "\nmoved %d\nbatches %" PRIu64 "\nunfinished %" PRIu64 "\n",
               manifest->generation, manifest->version, manifest->schema, manifest->begun_unix_s,
               manifest->ended_unix_s, manifest->is_moved, manifest->batches, manifest->unfinished);
    for (size_t i = 0; i < manifest->count; i++) {
        const struct backup_object *object = &manifest->objects[i];
        sha256_hex(object->sha256, hex);
        buf_printf(buf, "object %" PRIu64 " %" PRIu64 " %016" PRIx64 " %s %s\n", object->generation,
                   object->bytes, object->stamp, hex, object->path);
    }
    struct sha256 hash;
    sha256_init(&hash);
    if (buf->bytes > from) sha256_add(&hash, buf->at + from, buf->bytes - from);
    sha256_end(&hash, sum);
    sha256_hex(sum, hex);
    buf_printf(buf, "end %zu %s\n", manifest->count, hex);
}

/* --- reading --- */

struct reader {
    struct str text;
    size_t at;
    uint64_t line; /* number of the current line, from 1 on */
};

static enum err refuse(const struct reader *reader, const char *why, struct error *error) {
    return err_set(error, ERR_CORRUPT, "line %" PRIu64 " of the manifest %s", reader->line, why);
}

/* The next line without its LF. False at the end, and for a line that has no LF. */
static bool next_line(struct reader *reader, struct str *ret_line) {
    size_t end = str_find_byte(reader->text, '\n', reader->at);
    reader->line++;
    if (end == SIZE_MAX) return false;
    *ret_line = (struct str){reader->text.at + reader->at, end - reader->at};
    reader->at = end + 1;
    return true;
}

static bool next_word(struct str *rest, struct str *ret_word) {
    size_t end = str_find_byte(*rest, ' ', 0);
    if (end == SIZE_MAX) end = rest->bytes;
    if (end == 0) return false;
    *ret_word = (struct str){rest->at, end};
    *rest = str_skip(*rest, end < rest->bytes ? end + 1 : end);
    return true;
}

/* A number as backup_manifest_write prints it: without a sign or a zero in front. */
static bool read_number(struct str word, uint64_t *ret_value) {
    if (word.bytes == 0 || (*word.at == '0' && word.bytes > 1) || *word.at < '0' || *word.at > '9')
        return false;
    return str_to_u64(word, ret_value) && *ret_value <= INT64_MAX;
}

static bool read_hex(struct str word, unsigned char *ret_bytes, size_t count) {
    if (word.bytes != 2 * count) return false;
    for (size_t i = 0; i < word.bytes; i++) {
        char c = word.at[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return false;
        ret_bytes[i / 2] = (unsigned char)(i % 2 ? ret_bytes[i / 2] << 4 | digit : digit);
    }
    return true;
}

/* "<name> <number>" */
static enum err read_field(struct reader *reader, const char *name, uint64_t *ret_value,
                           struct error *error) {
    struct str line, word;
    bool good = next_line(reader, &line) && next_word(&line, &word) && str_is(word, name) &&
                read_number(line, ret_value);
    return good ? OK : refuse(reader, "is not the one that belongs there", error);
}

static enum err read_head(struct reader *reader, struct backup_manifest *manifest,
                          struct error *error) {
    struct str line;
    uint64_t version = 0, schema = 0, begun = 0, ended = 0, moved = 0;
    enum err err = read_field(reader, MAGIC, &version, error);
    if (err == OK && version != 1)
        return err_set(error, version ? ERR_CONFLICT : ERR_CORRUPT,
                       "the manifest has version %" PRIu64 "; this quern knows version 1", version);
    if (err == OK) err = read_field(reader, "generation", &manifest->generation, error);
    if (err == OK && manifest->generation == 0) err = refuse(reader, "has no generation", error);
    if (err != OK) return err;
    if (!next_line(reader, &line) || !take_start(&line, STR("version ")) || line.bytes == 0 ||
        line.bytes >= sizeof manifest->version)
        return refuse(reader, "names no version", error);
    for (size_t i = 0; i < line.bytes; i++)
        if (line.at[i] <= ' ' || line.at[i] > '~') return refuse(reader, "names no version", error);
    memcpy(manifest->version, line.at, line.bytes);
    err = read_field(reader, "schema", &schema, error);
    if (err == OK) err = read_field(reader, "begun", &begun, error);
    if (err == OK) err = read_field(reader, "ended", &ended, error);
    if (err == OK) err = read_field(reader, "moved", &moved, error);
    if (err == OK && moved > 1) err = refuse(reader, "is neither 0 nor 1", error);
    if (err == OK) err = read_field(reader, "batches", &manifest->batches, error);
    if (err == OK) err = read_field(reader, "unfinished", &manifest->unfinished, error);
    manifest->schema = (int64_t)schema;
    manifest->begun_unix_s = (int64_t)begun;
    manifest->ended_unix_s = (int64_t)ended;
    manifest->is_moved = moved;
    return err;
}

/* Reads what follows "object ". */
static enum err read_object(struct reader *reader, struct str rest,
                            struct backup_manifest *manifest, struct error *error) {
    struct str words[4];
    struct backup_object object = {0};
    unsigned char stamp[8];
    for (size_t i = 0; i < 4; i++)
        if (!next_word(&rest, &words[i])) return refuse(reader, "is cut off", error);
    if (!read_number(words[0], &object.generation) || !read_number(words[1], &object.bytes) ||
        !read_hex(words[2], stamp, sizeof stamp) ||
        !read_hex(words[3], object.sha256, SHA256_BYTES))
        return refuse(reader, "has a number or a sum that is none", error);
    if (object.generation == 0 || object.generation > manifest->generation)
        return refuse(reader, "names a generation that is not there yet", error);
    if (rest.bytes >= BACKUP_PATH_BYTES || !backup_path_is_sane(rest))
        return refuse(reader, "names a path that no state directory has", error);
    for (size_t i = 0; i < sizeof stamp; i++) object.stamp = object.stamp << 8 | stamp[i];
    memcpy(object.path, rest.at, rest.bytes);
    if (manifest->count && strcmp(manifest->objects[manifest->count - 1].path, object.path) >= 0)
        return refuse(reader, "is not in its turn", error);
    *backup_manifest_add(manifest, object.path) = object;
    return OK;
}

/* Checks the last line, `rest` without "end ", which begins at `from`. */
static enum err read_end(struct reader *reader, struct str rest, size_t from,
                         const struct backup_manifest *manifest, struct error *error) {
    struct str word;
    uint64_t count = 0;
    unsigned char stated[SHA256_BYTES], sum[SHA256_BYTES];
    if (!next_word(&rest, &word) || !read_number(word, &count) ||
        !read_hex(rest, stated, sizeof stated) || reader->at != reader->text.bytes)
        return refuse(reader, "is no end", error);
    struct sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, reader->text.at, from);
    sha256_end(&hash, sum);
    if (count == manifest->count && memcmp(sum, stated, sizeof sum) == 0) return OK;
    return refuse(reader, "has another count or sum than the lines before it", error);
}

enum err backup_manifest_read(struct str text, struct backup_manifest *ret_manifest,
                              struct error *error) {
    struct reader reader = {.text = text};
    struct backup_manifest manifest = {0};
    enum err err = read_head(&reader, &manifest, error);
    for (bool ended = false; err == OK && !ended;) {
        size_t from = reader.at;
        struct str line;
        if (!next_line(&reader, &line)) {
            err = refuse(&reader, "is missing: it is cut off", error);
        } else if (take_start(&line, STR("object "))) {
            err = read_object(&reader, line, &manifest, error);
        } else if (take_start(&line, STR("end "))) {
            err = read_end(&reader, line, from, &manifest, error);
            ended = true;
        } else {
            err = refuse(&reader, "is not the one that belongs there", error);
        }
    }
    if (err == OK)
        *ret_manifest = manifest;
    else
        backup_manifest_release(&manifest);
    return err;
}
