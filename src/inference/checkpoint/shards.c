/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/shards.h"

#include "base/mem.h"
#include "base/os.h"
#include "json/span.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"
#define INDEX_BYTES_MAX ((size_t)64 * 1024 * 1024)
#define FILE_NAME_BYTES_MAX 128
#define TENSORS_MAX 262144 /* tensors of all files together */

struct path {
    char text[PATH_MAX];
};

static bool join(struct path *path, const char *folder, const char *name) {
    return snprintf(path->text, sizeof path->text, "%s/%s", folder, name) < (int)sizeof path->text;
}

static bool is_there(const char *folder, const char *name) {
    struct path path;
    return join(&path, folder, name) && access(path.text, F_OK) == 0;
}

/* Names of files that the index has named so far. */
struct file_names {
    char at[SHARDS_MAX][FILE_NAME_BYTES_MAX + 1];
    size_t count;
};

/* A plain name of a file in the folder: the index is foreign, and no path is made of anything else.
 */
static bool is_plain_name(struct str name) {
    if (name.bytes == 0 || name.bytes > FILE_NAME_BYTES_MAX || name.at[0] == '.') return false;
    for (size_t i = 0; i < name.bytes; i++) {
        char c = name.at[i];
        bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_word && c != '-' && c != '_' && c != '.') return false;
    }
    return str_ends_with(name, STR(".safetensors"));
}

static enum err add_name(struct file_names *names, struct map *seen, struct str raw,
                         struct error *error) {
    /* Its raw spelling, for no escape is in a plain name. */
    struct str name = {raw.at + 1, raw.bytes - 2};
    if (!json_span_is_string(raw) || !is_plain_name(name))
        return err_set(error, ERR_INVALID,
                       INDEX ": weight_map names a file that is no .safetensors in the folder");
    if (!map_put_new(seen, name, 0, NULL)) return OK;
    if (names->count == SHARDS_MAX)
        return err_set(error, ERR_INVALID, INDEX ": weight_map names more than %d files",
                       SHARDS_MAX);
    snprintf(names->at[names->count++], sizeof names->at[0], "%.*s", STR_ARGS(name));
    return OK;
}

/* The different files of weight_map, in order of their first tensor. Which tensor is in which file
 * the files themselves say. */
static enum err read_names(struct file_names *names, struct str text, struct error *error) {
    struct str root, key, value;
    struct json_span_iter iter;
    if (!json_span_is_utf8(text) || !json_span_read(text, &root) || !json_span_is_object(root))
        return err_set(error, ERR_INVALID, INDEX " is no JSON object");
    struct str weight_map = json_span_get(root, "weight_map");
    if (!json_span_is_object(weight_map) || !json_span_enter(&iter, weight_map))
        return err_set(error, ERR_INVALID, INDEX " has no weight_map");
    struct map seen;
    map_init(&seen);
    enum err err = OK;
    while (err == OK && json_span_member(&iter, &key, &value))
        err = add_name(names, &seen, value, error);
    map_release(&seen);
    if (err == OK && names->count == 0)
        err = err_set(error, ERR_INVALID, INDEX ": weight_map is empty");
    return err;
}

static enum err list_files(struct file_names *names, const char *folder, struct error *error) {
    struct path path;
    char *text;
    size_t bytes;
    if (!is_there(folder, INDEX)) {
        if (!is_there(folder, SINGLE))
            return err_set(error, ERR_INVALID,
                           "the folder has neither " SINGLE " nor " INDEX
                           " (weights in other formats are not read)");
        snprintf(names->at[names->count++], sizeof names->at[0], SINGLE);
        return OK;
    }
    if (!join(&path, folder, INDEX))
        return err_set(error, ERR_INVALID, "the path of the folder is too long");
    enum err err = os_read_file(path.text, INDEX_BYTES_MAX, &text, &bytes, error);
    if (err != OK) return err;
    err = read_names(names, (struct str){text, bytes}, error);
    free(text);
    return err;
}

/* Adds a file's tensors to the common table. */
static enum err add_tensors(struct shards *shards, const struct safetensors *file,
                            struct error *error) {
    size_t count = safetensors_tensor_count(file);
    if (count > TENSORS_MAX - shards->tensor_count)
        return err_set(error, ERR_INVALID, "the files hold more than %d tensors", TENSORS_MAX);
    struct shard_tensor *tensors =
        mem_resize(shards->tensors, shards->tensor_count + count + 1, sizeof *tensors);
    shards->tensors = tensors;
    for (size_t i = 0; i < count; i++) {
        const struct safetensors_tensor *tensor = safetensors_tensor_at(file, i);
        if (!map_put_new(&shards->by_name, tensor->name, shards->tensor_count, NULL))
            return err_set(error, ERR_INVALID, "tensor %.*s is in two files",
                           STR_ARGS(tensor->name));
        tensors[shards->tensor_count++] = (struct shard_tensor){file, tensor};
    }
    return OK;
}

static enum err open_files(struct shards *shards, const struct file_names *names,
                           const char *folder, struct error *error) {
    for (size_t i = 0; i < names->count; i++) {
        struct path path;
        struct safetensors *file;
        if (!join(&path, folder, names->at[i]))
            return err_set(error, ERR_INVALID, "the path of the folder is too long");
        enum err err = safetensors_open(&file, path.text, error);
        if (err != OK) return err_prefix(error, "%s", names->at[i]);
        shards->files[shards->count++] = file;
        err = add_tensors(shards, file, error);
        if (err != OK) return err_prefix(error, "%s", names->at[i]);
    }
    return OK;
}

enum err shards_open_bytes(struct shards *ret_shards, const void *bytes, size_t count,
                           struct error *error) {
    *ret_shards = (struct shards){.count = 0};
    map_init(&ret_shards->by_name);
    enum err err = safetensors_open_bytes(&ret_shards->files[0], bytes, count, error);
    if (err != OK) return err;
    ret_shards->count = 1;
    return add_tensors(ret_shards, ret_shards->files[0], error);
}

enum err shards_open(struct shards *ret_shards, const char *folder, struct error *error) {
    struct file_names *names = mem_new(1, sizeof *names);
    *ret_shards = (struct shards){.count = 0};
    map_init(&ret_shards->by_name);
    enum err err = list_files(names, folder, error);
    if (err == OK) err = open_files(ret_shards, names, folder, error);
    if (err != OK) shards_close(ret_shards);
    free(names);
    return err;
}

void shards_close(struct shards *shards) {
    for (size_t i = 0; i < shards->count; i++) safetensors_close(shards->files[i]);
    free(shards->tensors);
    map_release(&shards->by_name);
    *shards = (struct shards){.count = 0};
}

struct shard_tensor shards_find(const struct shards *shards, struct str name) {
    uint64_t index;
    if (!map_get(&shards->by_name, name, &index)) return (struct shard_tensor){NULL, NULL};
    assert(index < shards->tensor_count);
    return shards->tensors[index];
}

uint64_t shards_file_bytes(const struct shards *shards) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < shards->count; i++) bytes += safetensors_file_bytes(shards->files[i]);
    return bytes;
}
