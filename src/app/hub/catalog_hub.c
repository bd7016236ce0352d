/* SPDX-License-Identifier: Apache-2.0 */

/* The cache of Hugging Face's tools, as the "Hub Local Cache" reference lays it out:
 *
 *     models--ORG--NAME/refs/main             a commit
 *     models--ORG--NAME/snapshots/COMMIT/     its files: links into blobs/ of the folder, or of the
 *                                             whole cache */

#include "base/mem.h"
#include "base/os.h"
#include "checkpoint/gguf_split.h"
#include "hub/catalog_path.h"
#include "hub/hub_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The repository that the walk has reached. */
struct repository {
    model_file_fn found;
    void *context;
    const char *root;            /* the cache, real */
    char name[MODEL_NAME_BYTES]; /* ORG/NAME */
    char snapshot[PATH_MAX];     /* real */
    char folder[PATH_MAX];       /* the folder being read: the snapshot, or one in it */
    bool is_below;               /* `folder` is one in the snapshot */
    uint64_t safetensors_bytes;
    unsigned shards, shards_wanted; /* parts found, and parts that the names count */
    bool has_config, has_tokenizer, has_safetensors;
};

/* --- names of files --- */

bool catalog_part(struct str name, const char *ending, unsigned *ret_part, unsigned *ret_parts) {
    unsigned part, parts;
    char tail[24];
    const size_t bytes = CATALOG_PART_BYTES;
    if (!str_ends_with(name, str_from(ending))) return false;
    name.bytes -= strlen(ending);
    if (name.bytes <= bytes || name.bytes - bytes > 4096) return false;
    snprintf(tail, sizeof tail, "%.*s", (int)bytes, name.at + name.bytes - bytes);
    if (sscanf(tail, "-%5u-of-%5u", &part, &parts) != 2 || part == 0 || parts < part) return false;
    *ret_part = part;
    *ret_parts = parts;
    return true;
}

static bool is_quantisation(struct str word) {
    static const char *const whole[] = {"F16", "BF16", "F32", "MXFP4"};
    char text[16];
    if (word.bytes < 2 || word.bytes >= sizeof text) return false;
    snprintf(text, sizeof text, "%.*s", STR_ARGS(word));
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (strcasecmp(text, whole[i]) == 0) return true;
    const char *at = text;
    if (*at == 'i' || *at == 'I') at++;
    return (*at == 'q' || *at == 'Q') && at[1] >= '1' && at[1] <= '8';
}

struct str catalog_quantisation(struct str stem) {
    struct str found = {"", 0};
    for (size_t from = 0; from < stem.bytes;) {
        size_t to = from;
        while (to < stem.bytes && stem.at[to] != '-' && stem.at[to] != '.') to++;
        struct str word = {stem.at + from, to - from};
        if (is_quantisation(word)) found = word;
        from = to + 1;
    }
    return found;
}

int catalog_rank(struct str quantisation) {
    static const char *const usual[CATALOG_RANKS] = {"Q4_K_M", "Q4_0", "Q8_0", "Q5_K_M",
                                                     "Q6_K",   "F16",  "BF16"};
    for (int i = 0; i < CATALOG_RANKS; i++)
        if (quantisation.bytes == strlen(usual[i]) &&
            strncasecmp(quantisation.at, usual[i], quantisation.bytes) == 0)
            return i;
    return CATALOG_RANKS;
}

/* --- files --- */

/* The sum of the sizes of all parts; false if one is missing. */
static bool sum_parts(const struct repository *repository, const char *first, unsigned parts,
                      uint64_t *ret_bytes) {
    struct gguf_part_name name;
    char path[PATH_MAX], real[PATH_MAX];
    *ret_bytes = 0;
    if (!gguf_part_name(first, &name)) return false;
    for (unsigned i = 1; i <= parts; i++) {
        uint64_t bytes;
        if (!gguf_part_path(first, &name, i, path)) return false;
        if (!catalog_inside(repository->root, path, false, real, &bytes)) return false;
        *ret_bytes += bytes;
    }
    return true;
}

static void take_gguf(const struct repository *repository, const char *name, const char *real,
                      uint64_t bytes) {
    struct model_file file = {.source = SOURCE_HUB, .bytes = bytes};
    struct str text = str_from(name), stem = {name, text.bytes - strlen(".gguf")};
    unsigned part, parts;
    char first[PATH_MAX];
    if (strstr(name, "mmproj")) return; /* a projector for pictures, not a model */
    if (catalog_part(text, ".gguf", &part, &parts) && parts > 1) {
        if (part != 1) return;
        stem.bytes -= CATALOG_PART_BYTES;
        /* The parts find each other by their names, which their blobs do not have. */
        if (snprintf(first, sizeof first, "%s/%s", repository->folder, name) >= (int)sizeof first)
            return;
        real = first;
        if (!sum_parts(repository, first, parts, &file.bytes))
            snprintf(file.why_not, sizeof file.why_not, "not all of its files are here");
    }
    struct str quantisation = catalog_quantisation(stem);
    int written = snprintf(file.name, sizeof file.name, "%s%s%.*s", repository->name,
                           quantisation.bytes ? ":" : "", STR_ARGS(quantisation));
    if (written >= (int)sizeof file.name) return;
    memcpy(file.path, real, strlen(real) + 1);
    repository->found(repository->context, &file);
}

static void take_shard(struct repository *repository, struct str name, uint64_t bytes) {
    unsigned part, parts;
    repository->has_safetensors = true;
    repository->safetensors_bytes += bytes;
    if (!catalog_part(name, ".safetensors", &part, &parts)) return;
    repository->shards++;
    repository->shards_wanted = parts;
}

static bool is_tokenizer(const char *name) {
    static const char *const names[] = {"tokenizer.json", "tekken.json", "tokenizer.model",
                                        "sentencepiece.bpe.model", "tiktoken.model"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static void take_file(void *context, const char *name) {
    struct repository *repository = context;
    struct str text = str_from(name);
    char path[PATH_MAX + 160], real[PATH_MAX];
    uint64_t bytes;
    snprintf(path, sizeof path, "%s/%s", repository->folder, name);
    if (!catalog_inside(repository->root, path, false, real, &bytes)) {
        if (repository->is_below || !catalog_inside(repository->root, path, true, real, NULL))
            return;
        memcpy(repository->folder, real, strlen(real) + 1);
        repository->is_below = true;
        catalog_each(real, take_file, repository); /* no deeper: is_below is set */
        repository->is_below = false;
        memcpy(repository->folder, repository->snapshot, sizeof repository->folder);
        return;
    }
    if (str_ends_with(str_from(real), STR(".incomplete"))) return;
    if (str_ends_with(text, STR(".gguf"))) take_gguf(repository, name, real, bytes);
    if (repository->is_below) return;
    if (strcmp(name, "config.json") == 0) repository->has_config = true;
    if (is_tokenizer(name)) repository->has_tokenizer = true;
    if (str_ends_with(text, STR(".safetensors"))) take_shard(repository, text, bytes);
}

static void take_safetensors(const struct repository *repository) {
    if (!repository->has_config || !repository->has_safetensors) return;
    struct model_file file = {.source = SOURCE_HUB, .bytes = repository->safetensors_bytes};
    memcpy(file.name, repository->name, sizeof file.name);
    memcpy(file.path, repository->snapshot, sizeof file.path);
    const char *why_not = repository->shards < repository->shards_wanted
                              ? "not all of its files are here"
                          : !repository->has_tokenizer ? "it has no tokenizer.json"
                                                       : "";
    snprintf(file.why_not, sizeof file.why_not, "%s", why_not);
    repository->found(repository->context, &file);
}

/* --- repositories --- */

/* Reads models--ORG--NAME, or models--NAME, as some old repositories are called. */
static bool read_name(const char *folder, char ret_name[MODEL_NAME_BYTES]) {
    struct str rest = str_skip(str_from(folder), strlen("models--"));
    size_t at = str_find(rest, STR("--"), 0);
    if (at == SIZE_MAX) {
        snprintf(ret_name, MODEL_NAME_BYTES, "%.*s", STR_ARGS(rest));
        return catalog_is_part(rest);
    }
    struct str org = {rest.at, at}, name = str_skip(rest, at + 2);
    if (!catalog_is_part(org) || !catalog_is_part(name)) return false;
    return snprintf(ret_name, MODEL_NAME_BYTES, "%.*s/%.*s", STR_ARGS(org), STR_ARGS(name)) <
           MODEL_NAME_BYTES;
}

bool catalog_hub_commit(const char *root, const char *folder,
                        char ret_commit[CATALOG_COMMIT_BYTES]) {
    char path[PATH_MAX + 32], real[PATH_MAX], *text;
    size_t bytes;
    struct error error;
    snprintf(path, sizeof path, "%s/refs/main", folder);
    if (!catalog_inside(root, path, false, real, NULL)) return false;
    if (os_read_file(real, 256, &text, &bytes, &error) != OK) return false;
    struct str commit = str_trim((struct str){text, bytes});
    bool is_good = catalog_is_hex(commit, CATALOG_COMMIT_BYTES - 1);
    if (is_good) memcpy(ret_commit, commit.at, commit.bytes);
    ret_commit[CATALOG_COMMIT_BYTES - 1] = '\0';
    free(text);
    return is_good;
}

void catalog_hub_folder_name(const char *repository, char ret_name[CATALOG_FOLDER_BYTES]) {
    const char *slash = strchr(repository, '/');
    if (slash)
        snprintf(ret_name, CATALOG_FOLDER_BYTES, "models--%.*s--%s", (int)(slash - repository),
                 repository, slash + 1);
    else
        snprintf(ret_name, CATALOG_FOLDER_BYTES, "models--%s", repository);
}

static void take_repository(void *context, const char *name) {
    struct repository *repository = context;
    char path[2 * PATH_MAX], folder[PATH_MAX], commit[CATALOG_COMMIT_BYTES];
    if (strncmp(name, "models--", 8) != 0 || !read_name(name, repository->name)) return;
    snprintf(path, sizeof path, "%s/%s", repository->root, name);
    if (!catalog_inside(repository->root, path, true, folder, NULL) ||
        !catalog_hub_commit(repository->root, folder, commit))
        return;
    snprintf(path, sizeof path, "%s/snapshots/%s", folder, commit);
    if (!catalog_inside(repository->root, path, true, repository->snapshot, NULL)) return;
    memcpy(repository->folder, repository->snapshot, sizeof repository->folder);
    repository->is_below = repository->has_config = repository->has_safetensors = false;
    repository->has_tokenizer = false;
    repository->safetensors_bytes = repository->shards = repository->shards_wanted = 0;
    catalog_each(repository->snapshot, take_file, repository);
    take_safetensors(repository);
}

bool catalog_hub_root(char ret_path[PATH_MAX]) {
    const char *hub = getenv("HF_HUB_CACHE"), *home = getenv("HF_HOME");
    const char *cache = getenv("XDG_CACHE_HOME"), *user = getenv("HOME");
    int bytes = PATH_MAX;
    if (hub && *hub)
        bytes = snprintf(ret_path, PATH_MAX, "%s", hub);
    else if (home && *home)
        bytes = snprintf(ret_path, PATH_MAX, "%s/hub", home);
    else if (cache && *cache)
        bytes = snprintf(ret_path, PATH_MAX, "%s/huggingface/hub", cache);
    else if (user && *user)
        bytes = snprintf(ret_path, PATH_MAX, "%s/.cache/huggingface/hub", user);
    return bytes < PATH_MAX;
}

void catalog_hub(model_file_fn found, void *context) {
    char path[PATH_MAX], root[PATH_MAX];
    if (!catalog_hub_root(path) || !catalog_root(path, root)) return;
    struct repository *repository = mem_new(1, sizeof *repository);
    repository->found = found;
    repository->context = context;
    repository->root = root;
    catalog_each(root, take_repository, repository);
    free(repository);
}
