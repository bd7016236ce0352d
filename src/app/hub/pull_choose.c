/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/pull_choose.h"

#include "hub/hub_internal.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define PARTS_MAX 1024

static bool ends_with(const char *path, struct str ending) {
    return str_ends_with(str_from(path), ending);
}

static struct pull_file *find(const struct pull_listing *listing, const char *path) {
    for (size_t i = 0; i < listing->count; i++)
        if (strcmp(listing->files[i].path, path) == 0) return &listing->files[i];
    return NULL;
}

static bool want(const struct pull_listing *listing, const char *path) {
    struct pull_file *file = find(listing, path);
    if (file) file->is_wanted = true;
    return file != NULL;
}

/* Marks a file and, if it is the first of several parts, the other parts. */
static enum err want_parts(const struct pull_listing *listing, const char *path, const char *ending,
                           struct error *error) {
    size_t bytes = strlen(path) - strlen(ending);
    unsigned part, parts;
    if (!catalog_part(str_from(path), ending, &part, &parts) || parts == 1) {
        (void)want(listing, path);
        return OK;
    }
    if (parts > PARTS_MAX)
        return err_set(error, ERR_INVALID, "%.200s is one of %u parts, more than %d", path, parts,
                       PARTS_MAX);
    for (unsigned i = 1; i <= parts; i++) {
        char name[PULL_PATH_BYTES_MAX + 32];
        snprintf(name, sizeof name, "%.*s-%05u-of-%05u%s", (int)(bytes - CATALOG_PART_BYTES), path,
                 i, parts, ending);
        if (!want(listing, name))
            return err_set(error, ERR_NOT_FOUND, "the repository lacks %.300s", name);
    }
    return OK;
}

/* --- GGUF --- */

/* Whether a path is a GGUF model or the first of its parts, at most one folder deep. */
static bool is_gguf_head(const char *path, struct str *ret_quantisation) {
    unsigned part, parts;
    const char *slash = strchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!ends_with(path, STR(".gguf")) || strchr(name, '/')) return false;
    if (strstr(name, "mmproj") || strstr(name, "imatrix")) return false;
    struct str stem = {name, strlen(name) - strlen(".gguf")};
    if (catalog_part(str_from(name), ".gguf", &part, &parts) && parts > 1) {
        if (part != 1) return false;
        stem.bytes -= CATALOG_PART_BYTES;
    }
    *ret_quantisation = catalog_quantisation(stem);
    return true;
}

/* A sentence followed by the names of the GGUF files, as many as fit. */
static enum err list_gguf(const struct pull_listing *listing, enum err code, const char *sentence,
                          struct error *error) {
    char text[ERROR_TEXT_BYTES - 160] = "";
    size_t used = 0, more = 0;
    struct str label;
    for (size_t i = 0; i < listing->count; i++) {
        const char *path = listing->files[i].path;
        if (!is_gguf_head(path, &label)) continue;
        size_t bytes = strlen(path);
        if (used + bytes + 3 > sizeof text) {
            more++;
            continue;
        }
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? ", " : "", path);
    }
    if (more > 0) return err_set(error, code, "%s: %s and %zu more", sentence, text, more);
    return err_set(error, code, "%s: %s", sentence, text);
}

struct gguf_choice {
    const char *path;
    size_t heads; /* GGUF models in the repository */
    size_t equal; /* models of the best rank */
    int rank;
};

static struct gguf_choice best_gguf(const struct pull_listing *listing, struct str wanted) {
    struct gguf_choice best = {.rank = CATALOG_RANKS + 1};
    for (size_t i = 0; i < listing->count; i++) {
        struct str label;
        const char *path = listing->files[i].path;
        if (!is_gguf_head(path, &label)) continue;
        best.heads++;
        bool is_it =
            label.bytes == wanted.bytes && strncasecmp(label.at, wanted.at, wanted.bytes) == 0;
        if (wanted.bytes > 0 && !is_it) continue;
        int rank = wanted.bytes > 0 ? 0 : catalog_rank(label);
        if (rank == best.rank) best.equal++;
        if (rank >= best.rank) continue;
        best.path = path;
        best.rank = rank;
        best.equal = 1;
    }
    return best;
}

static enum err choose_gguf(const struct pull_listing *listing, struct str wanted,
                            struct error *error) {
    char sentence[200];
    struct gguf_choice best = best_gguf(listing, wanted);
    if (!best.path) {
        snprintf(sentence, sizeof sentence, "there is no %.*s; the repository has",
                 (int)(wanted.bytes < 60 ? wanted.bytes : 60), wanted.at);
        return list_gguf(listing, ERR_NOT_FOUND, sentence, error);
    }
    if (best.heads == 1 || (best.equal == 1 && best.rank < CATALOG_RANKS))
        return want_parts(listing, best.path, ".gguf", error);
    return list_gguf(listing, ERR_INVALID,
                     "say which, as NAME:Q4_K_M or with --include; the repository has", error);
}

/* --- safetensors --- */

static bool is_weights(const char *path) {
    return ends_with(path, STR(".safetensors")) && !strchr(path, '/') &&
           strncmp(path, "consolidated", 12) != 0;
}

/* Marks the weights: model-*-of-* if an index exists, else model.safetensors, else all
 * .safetensors files at the top. */
static enum err choose_weights(const struct pull_listing *listing, struct error *error) {
    bool has_index = want(listing, "model.safetensors.index.json");
    if (!has_index && want(listing, "model.safetensors")) return OK;
    for (size_t i = 0; i < listing->count; i++) {
        const char *path = listing->files[i].path;
        unsigned part, parts;
        if (!is_weights(path)) continue;
        bool is_one_of_several = catalog_part(str_from(path), ".safetensors", &part, &parts);
        if (has_index && (!is_one_of_several || strncmp(path, "model-", 6) != 0)) continue;
        if (is_one_of_several && part != 1) continue;
        enum err err = want_parts(listing, path, ".safetensors", error);
        if (err != OK) return err;
    }
    return OK;
}

/* Marks the numbered folders next to modules.json: the stages of sentence-transformers behind the
 * encoder. */
static void want_modules(const struct pull_listing *listing) {
    if (!want(listing, "modules.json")) return;
    for (size_t i = 0; i < listing->count; i++) {
        const char *path = listing->files[i].path;
        size_t digits = strspn(path, "0123456789");
        if (digits == 0 || path[digits] != '_') continue;
        if (fnmatch("*/config.json", path, FNM_PATHNAME) == 0 ||
            fnmatch("*/model.safetensors", path, FNM_PATHNAME) == 0)
            listing->files[i].is_wanted = true;
    }
}

static enum err choose_folder(const struct pull_listing *listing, struct error *error) {
    static const char *const always[] = {
        "config.json",
        "generation_config.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "chat_template.jinja",
        "chat_template.json",
        "additional_chat_templates/tool_use.jinja",
        "quantize_config.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
    };
    static const char *const vocabularies[] = {
        "tekken.json", "tokenizer.model", "sentencepiece.bpe.model", "tiktoken.model", "vocab.json",
        "merges.txt",  "vocab.txt",       "added_tokens.json",
    };
    for (size_t i = 0; i < sizeof always / sizeof *always; i++) (void)want(listing, always[i]);
    if (!want(listing, "tokenizer.json"))
        for (size_t i = 0; i < sizeof vocabularies / sizeof *vocabularies; i++)
            (void)want(listing, vocabularies[i]);
    want_modules(listing);
    return choose_weights(listing, error);
}

/* --- the choice --- */

static enum err choose_included(const struct pull_listing *listing, const struct pull_wish *wish,
                                struct error *error) {
    for (size_t i = 0; i < wish->include_count; i++) {
        size_t found = 0;
        for (size_t j = 0; j < listing->count; j++)
            if (fnmatch(wish->includes[i], listing->files[j].path, 0) == 0) {
                listing->files[j].is_wanted = true;
                found++;
            }
        if (found == 0)
            return err_set(error, ERR_NOT_FOUND, "--include '%.200s': no file of the repository",
                           wish->includes[i]);
    }
    return OK;
}

/* A sentence that names a file of another format, if the repository has one. */
static enum err no_model(const struct pull_listing *listing, struct error *error) {
    static const char *const others[] = {".bin", ".pt",   ".pth",     ".onnx",
                                         ".h5",  ".ckpt", ".msgpack", ".safetensors"};
    for (size_t i = 0; i < listing->count; i++)
        for (size_t j = 0; j < sizeof others / sizeof *others; j++)
            if (ends_with(listing->files[i].path, str_from(others[j])))
                return err_set(error, ERR_NOT_FOUND,
                               "the repository has no GGUF file and no config.json with "
                               "safetensors, but %.200s; --include takes what you name",
                               listing->files[i].path);
    return err_set(error, ERR_NOT_FOUND, "the repository has no model in %zu files",
                   listing->count);
}

enum err pull_choose(struct pull_listing *listing, const struct pull_wish *wish,
                     struct error *error) {
    bool has_weights = false;
    for (size_t i = 0; i < listing->count; i++)
        if (is_weights(listing->files[i].path)) has_weights = true;
    if (wish->include_count > 0) return choose_included(listing, wish, error);
    bool has_gguf = best_gguf(listing, STR("")).heads > 0;
    bool has_folder = has_weights && find(listing, "config.json");
    if (has_gguf && (wish->quantisation.bytes > 0 || !has_folder))
        return choose_gguf(listing, wish->quantisation, error);
    if (wish->quantisation.bytes > 0)
        return err_set(error, ERR_NOT_FOUND, "the repository has no GGUF files, so no %.*s",
                       (int)(wish->quantisation.bytes < 60 ? wish->quantisation.bytes : 60),
                       wish->quantisation.at);
    return has_folder ? choose_folder(listing, error) : no_model(listing, error);
}
