/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/modelfile.h"

#include "base/log.h"
#include "base/os.h"
#include "base/utf8.h"
#include "hub/catalog_path.h"
#include "hub/hub_internal.h"
#include "json/json.h"
#include "json/span.h"

#include <stdlib.h>

#define PLACE_BYTES 400 /* NAMESPACE/MODEL/TAG, each part of at most 128 bytes */

/* What is looked for, and what was found. */
struct looking {
    char place[PLACE_BYTES];
    uint64_t weights_bytes;
    const char *root;
    char manifests[PATH_MAX]; /* the folder of all hosts */
    struct ollama_preset *preset;
    bool is_found;
};

/* Makes NAMESPACE/MODEL/TAG of a name; false if none is meant. */
static bool find_place(struct str name, char ret_place[PLACE_BYTES]) {
    size_t slash = str_find_byte(name, '/', 0), colon = str_find_byte(name, ':', 0);
    struct str space = STR("library"), model = name, tag = STR("latest");
    if (colon != SIZE_MAX) {
        tag = str_skip(name, colon + 1);
        model.bytes = colon;
    }
    if (slash != SIZE_MAX && slash < model.bytes) {
        space = (struct str){model.at, slash};
        model = str_skip(model, slash + 1);
    }
    if (!catalog_is_part(space) || !catalog_is_part(model) || !catalog_is_part(tag)) return false;
    snprintf(ret_place, PLACE_BYTES, "%.*s/%.*s/%.*s", STR_ARGS(space), STR_ARGS(model),
             STR_ARGS(tag));
    return true;
}

/* Reads a blob as text; false with a line in the log. The caller frees *ret_text. */
static bool read_blob(const struct looking *looking, const char *digest, char **ret_text,
                      size_t *ret_bytes) {
    char path[PATH_MAX + 80], real[PATH_MAX];
    struct error error;
    snprintf(path, sizeof path, "%s/blobs/sha256-%s", looking->root, digest);
    if (!catalog_inside(looking->root, path, false, real, NULL))
        err_set(&error, ERR_NOT_FOUND, "sha256-%.12s is not in the store", digest);
    else if (os_read_file(real, MODELFILE_BYTES_MAX, ret_text, ret_bytes, &error) == OK)
        return true;
    log_warn("event=modelfile_not_read model=\"%s\" error=\"%s\"", looking->place, error.text);
    return false;
}

static void take_params(struct looking *looking, struct str text) {
    struct str value;
    json_t *tree = NULL;
    struct error error;
    bool is_good = json_read(&tree, text, &error) == OK && json_is_object(tree) &&
                   json_span_read(text, &value);
    json_decref(tree);
    if (is_good)
        buf_add_str(&looking->preset->params, value);
    else
        log_warn("event=modelfile_not_read model=\"%s\" error=\"its parameters are no object\"",
                 looking->place);
}

static void take_system(struct looking *looking, struct str text) {
    if (text.bytes == 0) return;
    if (utf8_is_valid(text))
        json_write_string(&looking->preset->system, text);
    else
        log_warn("event=modelfile_not_read model=\"%s\" error=\"its system text is not UTF-8\"",
                 looking->place);
}

static void take_layers(struct looking *looking, const struct ollama_manifest *manifest) {
    const struct {
        const char *digest;
        void (*take)(struct looking *looking, struct str text);
    } layers[] = {{manifest->params_digest, take_params}, {manifest->system_digest, take_system}};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        char *text;
        size_t bytes;
        if (!*layers[i].digest || !read_blob(looking, layers[i].digest, &text, &bytes)) continue;
        layers[i].take(looking, (struct str){text, bytes});
        free(text);
    }
}

static void look_at_host(void *context, const char *host) {
    struct looking *looking = context;
    char path[PATH_MAX + 200 + PLACE_BYTES], real[PATH_MAX], *text;
    struct ollama_manifest manifest;
    struct error error;
    size_t bytes;
    if (looking->is_found) return;
    snprintf(path, sizeof path, "%s/%s/%s", looking->manifests, host, looking->place);
    if (!catalog_inside(looking->root, path, false, real, NULL)) return;
    if (os_read_file(real, OLLAMA_MANIFEST_BYTES_MAX, &text, &bytes, &error) != OK) return;
    if (ollama_manifest_read((struct str){text, bytes}, &manifest, &error) == OK &&
        manifest.bytes == looking->weights_bytes) {
        looking->is_found = true;
        take_layers(looking, &manifest);
    }
    free(text);
}

static void look_in(void *context, const char *root) {
    struct looking *looking = context;
    char path[PATH_MAX + 16];
    looking->root = root;
    snprintf(path, sizeof path, "%s/manifests", root);
    if (!looking->is_found && catalog_inside(root, path, true, looking->manifests, NULL))
        catalog_each(looking->manifests, look_at_host, looking);
}

bool modelfile_read(struct str name, uint64_t weights_bytes, struct ollama_preset *ret_preset) {
    struct looking looking = {.weights_bytes = weights_bytes, .preset = ret_preset};
    if (weights_bytes == 0 || !find_place(name, looking.place)) return false;
    catalog_ollama_roots(look_in, &looking);
    return ret_preset->params.bytes + ret_preset->system.bytes > 0;
}
