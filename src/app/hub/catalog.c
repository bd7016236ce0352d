/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/catalog.h"

#include "base/mem.h"
#include "checkpoint/gguf_split.h"
#include "hub/catalog_path.h"
#include "hub/hub_internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* The models that quern knows by name: file or folder in the model folder, and their names. */
static const struct known_model {
    const char *file;
    const char *names[MODEL_NAMES_MAX];
    const char *how_to_get;
} known_models[] = {
    {"SmolLM2-135M-Instruct.Q4_1.gguf",
     {"smollm2", "smollm2:135m", "HuggingFaceTB/SmolLM2-135M-Instruct"},
     "`quern pull smollm2` fetches it once"},
    {"all-MiniLM-L6-v2",
     {"all-minilm", "all-minilm:22m", "sentence-transformers/all-MiniLM-L6-v2", "all-MiniLM-L6-v2"},
     "`quern pull all-minilm` fetches it once"},
};
#define KNOWN_COUNT (sizeof known_models / sizeof *known_models)

bool catalog_folder(char ret_path[PATH_MAX]) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache) return snprintf(ret_path, PATH_MAX, "%s/quern/models", cache) < PATH_MAX;
    if (home && *home)
        return snprintf(ret_path, PATH_MAX, "%s/.cache/quern/models", home) < PATH_MAX;
    return false;
}

static bool is_file(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

/* A folder as Hugging Face's tools write it. It counts without weights, too: a run with made-up
 * weights (dummy_weights) needs none. */
static bool is_model_folder(const char *path) {
    char config[PATH_MAX];
    return snprintf(config, sizeof config, "%s/config.json", path) < (int)sizeof config &&
           is_file(config);
}

static bool is_model(const char *path) {
    return is_file(path) || is_model_folder(path);
}

static void add_name(struct model_choice *choice, const char *name) {
    for (size_t i = 0; i < choice->name_count; i++)
        if (strcmp(choice->names[i], name) == 0) return;
    if (choice->name_count == MODEL_NAMES_MAX) return;
    snprintf(choice->names[choice->name_count++], MODEL_NAME_BYTES, "%.*s", MODEL_NAME_BYTES - 1,
             name);
}

static const struct known_model *find_known(const char *name) {
    for (size_t i = 0; i < KNOWN_COUNT; i++)
        for (size_t j = 0; j < MODEL_NAMES_MAX && known_models[i].names[j]; j++)
            if (strcasecmp(known_models[i].names[j], name) == 0) return &known_models[i];
    return NULL;
}

static bool choose_known(const struct known_model *known, struct model_choice *choice) {
    char folder[PATH_MAX];
    if (!known || !catalog_folder(folder)) return false;
    int bytes = snprintf(choice->path, sizeof choice->path, "%s/%s", folder, known->file);
    if (bytes >= (int)sizeof choice->path || !is_model(choice->path)) return false;
    for (size_t j = 0; j < MODEL_NAMES_MAX && known->names[j]; j++)
        add_name(choice, known->names[j]);
    return true;
}

static void cut_slashes(char *path) {
    for (size_t bytes = strlen(path); bytes > 1 && path[bytes - 1] == '/'; bytes--)
        path[bytes - 1] = '\0';
}

/* Names a model that is given by its path: the file name without folder and ".gguf". */
static void add_stem(struct model_choice *choice) {
    const char *slash = strrchr(choice->path, '/');
    char stem[MODEL_NAME_BYTES];
    snprintf(stem, sizeof stem, "%.*s", MODEL_NAME_BYTES - 1, slash ? slash + 1 : choice->path);
    struct gguf_part_name part;
    char *dot = strrchr(stem, '.');
    if (gguf_part_name(stem, &part)) { /* a model in several files has its name without the part */
        char whole[MODEL_NAME_BYTES];
        snprintf(whole, sizeof whole, "%.*s", (int)part.stem_bytes, stem);
        add_name(choice, whole);
    }
    if (dot && strcmp(dot, ".gguf") == 0) *dot = '\0';
    add_name(choice, stem);
}

static bool choose_in_folder(const char *name, struct model_choice *choice) {
    static const char *const endings[] = {"", ".gguf"};
    char folder[PATH_MAX];
    if (!catalog_is_part(str_from(name)) || !catalog_folder(folder)) return false;
    for (size_t i = 0; i < 2; i++) {
        int bytes =
            snprintf(choice->path, sizeof choice->path, "%s/%s%s", folder, name, endings[i]);
        if (bytes < (int)sizeof choice->path && is_model(choice->path)) {
            add_stem(choice);
            return true;
        }
    }
    return false;
}

/* --- the stores --- */

/* The best file for a name, and the first match that cannot be served. */
struct match {
    struct str wanted;
    bool gguf_too; /* a repository of that name with "-GGUF" behind it matches, too */
    bool found;
    int rank; /* lower is better */
    struct model_file best;
    struct model_file refused;
};

static bool is_same(struct str a, struct str b) {
    return a.bytes == b.bytes && strncasecmp(a.at, b.at, a.bytes) == 0;
}

/* Cuts a tag off: the text behind a ':' of the last part. */
static struct str cut_tag(struct str name, struct str *ret_tag) {
    *ret_tag = (struct str){"", 0};
    for (size_t i = name.bytes; i > 0 && name.at[i - 1] != '/'; i--)
        if (name.at[i - 1] == ':') {
            *ret_tag = str_skip(name, i);
            return (struct str){name.at, i - 1};
        }
    return name;
}

static struct str last_part(struct str name) {
    for (size_t i = name.bytes; i > 0; i--)
        if (name.at[i - 1] == '/') return str_skip(name, i);
    return name;
}

/* Whether a repository is `wanted`, or, if gguf_too, the one that holds it as GGUF. */
static bool is_repository(const struct match *match, struct str wanted, struct str repository) {
    if (is_same(wanted, repository)) return true;
    struct str name = last_part(repository);
    const size_t ending = strlen("-GGUF");
    if (!match->gguf_too || name.bytes <= ending ||
        !is_same(str_skip(name, name.bytes - ending), STR("-GGUF")))
        return false;
    return is_same(last_part(wanted), (struct str){name.at, name.bytes - ending});
}

static void take_match(void *context, const struct model_file *file) {
    struct match *match = context;
    struct str tag, wanted_tag, name = cut_tag(str_from(file->name), &tag);
    struct str wanted = cut_tag(match->wanted, &wanted_tag);
    int rank = 0;
    if (file->source == SOURCE_OLLAMA) {
        if (wanted_tag.bytes == 0) wanted_tag = STR("latest");
        /* A host, a namespace or both in front of the wanted name change nothing. */
        bool is_it =
            is_same(wanted, name) ||
            (wanted.bytes > name.bytes && wanted.at[wanted.bytes - name.bytes - 1] == '/' &&
             is_same(str_skip(wanted, wanted.bytes - name.bytes), name));
        if (!is_it || !is_same(tag, wanted_tag)) return;
    } else {
        if (!is_repository(match, wanted, name)) return;
        if (wanted_tag.bytes > 0 && !is_same(tag, wanted_tag)) return;
        if (wanted_tag.bytes == 0) rank = catalog_rank(tag);
    }
    if (*file->why_not) {
        if (!*match->refused.name) match->refused = *file;
    } else if (!match->found || rank < match->rank) {
        match->found = true;
        match->rank = rank;
        match->best = *file;
    }
}

static void search_stores(struct match *match, const char *wanted, bool gguf_too) {
    match->wanted = str_from(wanted);
    match->gguf_too = gguf_too;
    if (!match->found) catalog_ollama(take_match, match);
    if (!match->found) catalog_hub(take_match, match);
}

static void take_file(const struct model_file *file, struct model_choice *choice) {
    struct str tag, name = cut_tag(str_from(file->name), &tag);
    char repository[MODEL_NAME_BYTES];
    memcpy(choice->path, file->path, sizeof choice->path);
    add_name(choice, file->name);
    if (file->source != SOURCE_HUB) return;
    snprintf(repository, sizeof repository, "%.*s", STR_ARGS(name));
    add_name(choice, repository);
}

/* Searches by the name itself, then by its other names, then for a repository of GGUF files. */
static bool choose_in_stores(const char *name, struct model_choice *choice, struct match *match) {
    const struct known_name *known = names_known(str_from(name));
    const char *other;
    search_stores(match, name, false);
    for (size_t i = 0; known && !match->found && (other = names_of_known(known, i)); i++)
        search_stores(match, other, false);
    if (!match->found) search_stores(match, known ? known->repository : name, true);
    if (!match->found) return false;
    add_name(choice, name);
    take_file(&match->best, choice);
    return true;
}

static enum err not_found(const char *name, const struct known_model *known,
                          const struct match *match, struct error *error) {
    char folder[PATH_MAX];
    if (*match->refused.name)
        return err_set(error, ERR_INVALID, "model '%.100s': %.200s cannot be served: %s", name,
                       match->refused.path, match->refused.why_not);
    if (!catalog_folder(folder))
        return err_set(error, ERR_NOT_FOUND,
                       "model '%.100s': neither XDG_CACHE_HOME nor HOME is set", name);
    if (known)
        return err_set(error, ERR_NOT_FOUND, "model '%s' is not in %.200s; %s", name, folder,
                       known->how_to_get);
    return err_set(error, ERR_NOT_FOUND,
                   "model '%.100s' is neither a file, nor in %.200s, nor in Ollama's store or the "
                   "Hugging Face cache; `quern models` lists what is there, and `quern pull` "
                   "fetches it from a hub",
                   name, folder);
}

static enum err choose(const char *name, struct model_choice *choice, struct error *error) {
    const struct known_model *known = find_known(name);
    if (strcmp(name, "echo") == 0) {
        choice->is_echo = true;
        add_name(choice, "echo");
        return OK;
    }
    if (choose_known(known, choice)) return OK;
    if (!known && is_model(name) && strlen(name) < PATH_MAX) {
        snprintf(choice->path, sizeof choice->path, "%s", name);
        cut_slashes(choice->path);
        add_stem(choice);
        return OK;
    }
    if (!known && choose_in_folder(name, choice)) return OK;
    struct match *match = mem_new(1, sizeof *match);
    enum err err = OK;
    if (!choose_in_stores(name, choice, match)) err = not_found(name, known, match, error);
    free(match);
    return err;
}

/* --- names of repositories --- */

static bool copy_repository(char ret_repository[MODEL_NAME_BYTES], struct str name) {
    if (name.bytes == 0 || name.bytes >= MODEL_NAME_BYTES) return false;
    memcpy(ret_repository, name.at, name.bytes);
    ret_repository[name.bytes] = '\0';
    return true;
}

/* The repository among the names of a known model; NULL if none is one. */
static const char *repository_of(const struct known_model *known) {
    for (size_t i = 0; known && i < MODEL_NAMES_MAX && known->names[i]; i++)
        if (strchr(known->names[i], '/')) return known->names[i];
    return NULL;
}

enum err catalog_repository(const char *name, char ret_repository[MODEL_NAME_BYTES],
                            struct str *ret_quantisation, struct error *error) {
    struct str text = str_from(name), tag, bare = cut_tag(text, &tag);
    const char *own = repository_of(find_known(name));
    const struct known_name *known = names_known(text);
    *ret_quantisation = (struct str){"", 0};
    if (!own && known) own = known->repository;
    if (own && copy_repository(ret_repository, str_from(own))) return OK;
    *ret_quantisation = tag;
    if (str_find_byte(bare, '/', 0) != SIZE_MAX && copy_repository(ret_repository, bare)) return OK;
    return err_set(error, ERR_NOT_FOUND,
                   "no repository is known for '%.100s'; name one as ORG/NAME or ORG/NAME:Q4_K_M",
                   name);
}

const char *catalog_name_of(const char *argument) {
    const char *equals = is_model(argument) ? NULL : strchr(argument, '=');
    return equals ? equals + 1 : argument;
}

/* --- the two calls --- */

enum err catalog_choose(const char *argument, struct model_choice *ret_choice,
                        struct error *error) {
    struct model_choice choice = {.name_count = 0};
    const char *equals = strchr(argument, '='), *name = argument;
    if (equals && !is_model(argument)) {
        char alias[MODEL_NAME_BYTES];
        if (equals == argument || equals - argument >= MODEL_NAME_BYTES)
            return err_set(error, ERR_INVALID,
                           "--model '%s': the alias before '=' has %d bytes, not 1 to %d", argument,
                           (int)(equals - argument), MODEL_NAME_BYTES - 1);
        snprintf(alias, sizeof alias, "%.*s", (int)(equals - argument), argument);
        add_name(&choice, alias);
        name = equals + 1;
    }
    enum err err = choose(name, &choice, error);
    if (err == OK) *ret_choice = choice;
    return err;
}

static int may_be_model(const struct dirent *entry) {
    return entry->d_name[0] != '.' && (str_ends_with(str_from(entry->d_name), STR(".gguf")) ||
                                       catalog_is_part(str_from(entry->d_name)));
}

static bool describe(const char *folder, const char *file_name, struct model_file *ret_file) {
    int bytes = snprintf(ret_file->path, sizeof ret_file->path, "%s/%s", folder, file_name);
    if (bytes >= (int)sizeof ret_file->path) return false;
    struct gguf_part_name part;
    bool is_gguf = is_file(ret_file->path) && str_ends_with(str_from(file_name), STR(".gguf"));
    if (is_gguf && gguf_part_name(file_name, &part) && part.part > 1) return false;
    if (!is_gguf && !is_model_folder(ret_file->path)) return false;
    ret_file->bytes = catalog_bytes(ret_file->path);
    ret_file->source = SOURCE_FOLDER;
    snprintf(ret_file->name, sizeof ret_file->name, "%.*s", MODEL_NAME_BYTES - 1, file_name);
    for (size_t i = 0; i < KNOWN_COUNT; i++)
        if (strcmp(known_models[i].file, file_name) == 0)
            snprintf(ret_file->name, sizeof ret_file->name, "%s", known_models[i].names[0]);
    return true;
}

static enum err list_folder(model_file_fn found, void *context, struct error *error) {
    char folder[PATH_MAX];
    if (!catalog_folder(folder)) return OK;
    struct dirent **entries;
    int count = scandir(folder, &entries, may_be_model, alphasort);
    if (count < 0)
        return errno == ENOENT ? OK : err_from_errno(error, errno, "cannot list %s", folder);
    for (int i = 0; i < count; i++) {
        struct model_file file = {.source = SOURCE_FOLDER};
        if (describe(folder, entries[i]->d_name, &file)) found(context, &file);
        free(entries[i]);
    }
    free(entries);
    return OK;
}

enum err catalog_list(model_file_fn found, void *context, struct error *error) {
    enum err err = list_folder(found, context, error);
    if (err != OK) return err;
    catalog_ollama(found, context);
    catalog_hub(found, context);
    return OK;
}

const char *model_source_name(enum model_source source) {
    static const char *const names[] = {"quern", "ollama", "huggingface"};
    return names[source];
}

/* --- where a path lies --- */

/* Whether a path lies below a folder; false if the folder does not exist. */
static bool is_below(const char *folder, const char *path) {
    char root[PATH_MAX];
    return catalog_root(folder, root) && strncmp(path, root, strlen(root)) == 0 &&
           path[strlen(root)] == '/';
}

enum model_source catalog_source_of(const char *path) {
    char hub[PATH_MAX], real[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (catalog_hub_root(hub) && realpath(path, real) && is_below(hub, real)) return SOURCE_HUB;
    if (slash && strncmp(slash, "/sha256-", 8) == 0) return SOURCE_OLLAMA;
    return SOURCE_FOLDER;
}
