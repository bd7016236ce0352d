/* SPDX-License-Identifier: Apache-2.0 */

/* Ollama's store:
 *
 *     manifests/HOST/NAMESPACE/MODEL/TAG    JSON, whose layers name blobs by their SHA-256
 *     blobs/sha256-HEX                      the blobs
 *
 * HOST is the server that a model was pulled from. A model's name here leaves it out, and the
 * namespace "library", too. */

#include "base/mem.h"
#include "base/os.h"
#include "hub/catalog_path.h"
#include "hub/hub_internal.h"
#include "json/json.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS_MAX 4096
#define SYSTEM_ROOT "/usr/share/ollama/.ollama/models"

/* --- one manifest --- */

static bool read_digest(struct str text, char ret_digest[64 + 1]) {
    struct str hex = str_skip(text, strlen("sha256:"));
    if (!str_starts_with(text, STR("sha256:")) && !str_starts_with(text, STR("sha256-")))
        return false;
    if (!catalog_is_hex(hex, 64)) return false;
    memcpy(ret_digest, hex.at, 64);
    ret_digest[64] = '\0';
    return true;
}

static enum err read_layer(const json_t *layer, struct ollama_manifest *manifest,
                           struct error *error) {
    struct str type = json_member_str(layer, "mediaType");
    if (str_ends_with(type, STR(".image.adapter"))) manifest->has_adapter = true;
    if (str_ends_with(type, STR(".image.tensor"))) manifest->has_tensors = true;
    if (str_ends_with(type, STR(".image.params")))
        (void)read_digest(json_member_str(layer, "digest"), manifest->params_digest);
    if (str_ends_with(type, STR(".image.system")))
        (void)read_digest(json_member_str(layer, "digest"), manifest->system_digest);
    if (!str_ends_with(type, STR(".image.model"))) return OK;
    json_int_t bytes = json_integer_value(json_member(layer, "size"));
    if (*manifest->digest) return err_set(error, ERR_INVALID, "it names two files with weights");
    if (bytes <= 0 || !read_digest(json_member_str(layer, "digest"), manifest->digest))
        return err_set(error, ERR_INVALID, "the digest or the size of its weights is none");
    manifest->bytes = (uint64_t)bytes;
    return OK;
}

enum err ollama_manifest_read(struct str text, struct ollama_manifest *ret_manifest,
                              struct error *error) {
    struct ollama_manifest manifest = {.bytes = 0};
    json_t *value;
    enum err err = json_read(&value, text, error);
    if (err != OK) return err;
    const json_t *layers = json_is_object(value) ? json_member(value, "layers") : NULL;
    size_t count = json_is_array(layers) ? json_array_size(layers) : 0;
    if (count == 0 || count > LAYERS_MAX)
        err = err_set(error, ERR_INVALID, "it has no layers, or too many");
    for (size_t i = 0; i < count && err == OK; i++) {
        const json_t *layer = json_array_get(layers, i);
        err = json_is_object(layer) ? read_layer(layer, &manifest, error)
                                    : err_set(error, ERR_INVALID, "a layer is no object");
    }
    json_decref(value);
    if (err == OK) *ret_manifest = manifest;
    return err;
}

/* --- the store --- */

/* The walk down to a manifest, with one name per level. */
struct walk {
    model_file_fn found;
    void *context;
    char root[PATH_MAX];
    char folder[4][PATH_MAX]; /* manifests, then the folders below it */
    char names[4][130];       /* host, namespace, model, tag */
    int depth;
};

static void say(struct model_file *file, const char *why) {
    snprintf(file->why_not, sizeof file->why_not, "%s", why);
}

/* Finds the blob of the weights. Checks its size and its four magic bytes, and reads no more. */
static void find_blob(const struct walk *walk, const struct ollama_manifest *manifest,
                      struct model_file *file) {
    char path[PATH_MAX + 80], magic[4];
    uint64_t bytes;
    int fd;
    struct error error;
    snprintf(path, sizeof path, "%s/blobs/sha256-%s", walk->root, manifest->digest);
    if (!catalog_inside(walk->root, path, false, file->path, &bytes)) {
        say(file, "its file is not in the store");
        return;
    }
    file->bytes = bytes;
    if (bytes != manifest->bytes) {
        say(file, "its file is not complete");
        return;
    }
    if (os_open(&fd, file->path, O_RDONLY | O_NOFOLLOW, 0, &error) != OK) {
        say(file, "its file cannot be read");
        return;
    }
    if (os_pread_all(fd, magic, sizeof magic, 0, &error) != OK || memcmp(magic, "GGUF", 4) != 0)
        say(file, "its file is not GGUF");
    os_close(fd);
}

static void take_manifest(const struct walk *walk, const char *path) {
    struct model_file file = {.source = SOURCE_OLLAMA};
    struct ollama_manifest manifest;
    struct error error;
    char *text;
    size_t bytes;
    bool is_plain = strcmp(walk->names[1], "library") == 0;
    int written = snprintf(file.name, sizeof file.name, "%s%s%s:%s", is_plain ? "" : walk->names[1],
                           is_plain ? "" : "/", walk->names[2], walk->names[3]);
    if (written >= (int)sizeof file.name) return;
    memcpy(file.path, path, strlen(path) + 1);
    if (os_read_file(path, OLLAMA_MANIFEST_BYTES_MAX, &text, &bytes, &error) != OK) return;
    if (ollama_manifest_read((struct str){text, bytes}, &manifest, &error) != OK)
        snprintf(file.why_not, sizeof file.why_not, "its manifest is damaged: %.100s", error.text);
    else if (manifest.has_tensors)
        say(&file, "not a GGUF model: not yet");
    else if (manifest.has_adapter)
        say(&file, "with an adapter: not yet");
    else if (!*manifest.digest)
        say(&file, "it has no weights");
    else
        find_blob(walk, &manifest, &file);
    free(text);
    walk->found(walk->context, &file);
}

/* Takes an entry of the folder at the walk's depth: at depth 3 a manifest, above it a folder. */
static void take_entry(void *context, const char *name) {
    struct walk *walk = context;
    char path[PATH_MAX + 140], real[PATH_MAX];
    int depth = walk->depth;
    bool is_last = depth == 3;
    snprintf(path, sizeof path, "%s/%s", walk->folder[depth], name);
    if (!catalog_inside(walk->root, path, !is_last, real, NULL)) return;
    snprintf(walk->names[depth], sizeof walk->names[depth], "%s", name);
    if (is_last) {
        take_manifest(walk, real);
        return;
    }
    memcpy(walk->folder[depth + 1], real, strlen(real) + 1);
    walk->depth++;
    catalog_each(real, take_entry, walk); /* at most four levels deep */
    walk->depth--;
}

/* What a walk calls for each model. */
struct finding {
    model_file_fn found;
    void *context;
};

static void walk_root(void *context, const char *root) {
    const struct finding *finding = context;
    char path[PATH_MAX + 16];
    struct walk *walk = mem_new(1, sizeof *walk);
    walk->found = finding->found;
    walk->context = finding->context;
    memcpy(walk->root, root, strlen(root) + 1);
    snprintf(path, sizeof path, "%s/manifests", root);
    if (catalog_inside(root, path, true, walk->folder[0], NULL))
        catalog_each(walk->folder[0], take_entry, walk);
    free(walk);
}

static void find_root(const char *path, void (*found)(void *context, const char *root),
                      void *context) {
    char root[PATH_MAX];
    if (catalog_root(path, root)) found(context, root);
}

void catalog_ollama_roots(void (*found)(void *context, const char *root), void *context) {
    const char *models = getenv("OLLAMA_MODELS"), *home = getenv("HOME");
    char path[PATH_MAX];
    if (models && *models) {
        find_root(models, found, context);
        return;
    }
    if (home && *home && snprintf(path, sizeof path, "%s/.ollama/models", home) < PATH_MAX)
        find_root(path, found, context);
    find_root(SYSTEM_ROOT, found, context);
}

void catalog_ollama(model_file_fn found, void *context) {
    catalog_ollama_roots(walk_root, &(struct finding){found, context});
}
