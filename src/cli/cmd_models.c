/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sandbox.h"
#include "cli/command.h"
#include "cli/models_show.h"
#include "cli/options.h"
#include "cli/stop.h"
#include "hub/catalog_add.h"
#include "hub/catalog_path.h"
#include "hub/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct choice {
    const char *words[2];
    const char *name;
    int64_t max_model_len;
    bool json;
    size_t count; /* of models listed */
};

static int exit_of(enum err err) {
    switch (err) {
    case OK: return EXIT_GOOD;
    case ERR_IO:
    case ERR_UNAVAILABLE:
    case ERR_CORRUPT: return EXIT_MACHINE;
    case ERR_CANCELLED: return 130;
    default: return EXIT_WRONG_INPUT;
    }
}

/* --- list --- */

static void print_file(void *context, const struct model_file *file) {
    struct choice *choice = context;
    struct model_facts facts;
    models_read_facts(&facts, file, (uint32_t)choice->max_model_len);
    if (!choice->json && choice->count == 0) models_show_head();
    choice->count++;
    if (choice->json)
        models_show_json(&facts);
    else
        models_show_line(&facts);
}

static enum err list(struct choice *choice, struct error *error) {
    char folder[PATH_MAX];
    enum err err = catalog_list(print_file, choice, error);
    if (err == OK && choice->count == 0 && catalog_folder(folder))
        fprintf(stderr,
                "quern models: none in %s nor elsewhere; `quern pull` fetches one, and "
                "tools/fetch-model the default one\n",
                folder);
    return err;
}

/* --- inspect --- */

/* A model of a store that goes by a name. */
struct search {
    const char *name;
    bool found;
    struct model_file file;
};

static void match_name(void *context, const struct model_file *file) {
    struct search *search = context;
    if (search->found || strcasecmp(search->name, file->name) != 0) return;
    search->found = true;
    search->file = *file;
}

/* What --model takes; or what cannot be served, which has more need of being looked at. */
static enum err find_model(const char *name, struct model_file *ret_file, struct error *error) {
    struct model_choice model;
    struct search search = {.name = name};
    struct error listing;
    enum err err = catalog_choose(name, &model, error);
    if (err == OK && model.is_echo) return err_set(error, ERR_INVALID, "echo is no file");
    *ret_file = (struct model_file){.source = SOURCE_FOLDER};
    if (err == OK || catalog_is_model_path(name)) {
        const char *path = err == OK ? model.path : name;
        snprintf(ret_file->name, sizeof ret_file->name, "%.255s",
                 err == OK ? model.names[0] : name);
        snprintf(ret_file->path, sizeof ret_file->path, "%s", path);
        ret_file->source = catalog_source_of(path);
        return OK;
    }
    if (catalog_list(match_name, &search, &listing) != OK || !search.found) return err;
    *ret_file = search.file;
    return OK;
}

static enum err inspect(const struct choice *choice, struct error *error) {
    struct model_file file;
    struct model_facts facts;
    enum err err = find_model(choice->words[1], &file, error);
    if (err != OK) return err;
    models_read_facts(&facts, &file, (uint32_t)choice->max_model_len);
    if (!facts.is_read) return err_set(error, ERR_INVALID, "%s", facts.why_not);
    if (choice->json)
        models_show_json(&facts);
    else
        models_show_page(&facts);
    return OK;
}

/* --- verify --- */

static void print_verified(void *context, const struct verified *file) {
    char real[PATH_MAX];
    const char *path = realpath(file->path, real) ? real : file->path;
    (void)context;
    if (file->err != OK)
        printf("UNREADABLE %s: %s\n", path, file->why);
    else if (!*file->wanted)
        printf("no sum     %s: nobody told one; its SHA-256 is %s\n", path, file->sum);
    else
        printf("%s %s\n", file->is_good ? "good      " : "DAMAGED   ", path);
}

static bool is_going_on(void *context, uint64_t bytes) {
    const volatile bool *const *stopping = context;
    (void)bytes;
    return !**stopping;
}

static enum err verify(const struct choice *choice, struct error *error) {
    const volatile bool *stopping = stop_on_signals();
    const struct verify_options options = {.name = choice->words[1],
                                           .context = (void *)&stopping,
                                           .file = print_verified,
                                           .progress = is_going_on};
    return verify_model(&options, error);
}

/* --- the command --- */

/* Files of strangers are read from here on: all may be read, and nothing else can be done. */
static void enter_sandbox(void) {
    struct sandbox_state state;
    const struct sandbox_path all = {.path = "/"};
    sandbox_enter(&all, 1, &state);
}

static enum err act(struct choice *choice, struct error *error) {
    const char *word = choice->words[0] ? choice->words[0] : "list";
    bool is_list = strcmp(word, "list") == 0, is_add = strcmp(word, "add") == 0;
    if (is_list && choice->words[1])
        return err_set(error, ERR_INVALID, "'%.80s' is one argument too many; see --help",
                       choice->words[1]);
    if (is_list) {
        enter_sandbox();
        return list(choice, error);
    }
    if (!is_add && strcmp(word, "inspect") != 0 && strcmp(word, "verify") != 0)
        return err_set(error, ERR_INVALID, "'%.80s' is none of list, inspect, verify, add", word);
    if (!choice->words[1])
        return err_set(error, ERR_INVALID, "%s needs %s", word,
                       is_add ? "the path of a GGUF file or of a folder"
                              : "the name or the path of a model");
    if (is_add) return catalog_add(choice->words[1], choice->name, error);
    enter_sandbox();
    return strcmp(word, "verify") == 0 ? verify(choice, error) : inspect(choice, error);
}

static int run(int argc, char **argv) {
    struct choice choice = {0};
    struct error error = {0};
    bool done = false;
    const struct option options[] = {
        {.name = "json",
         .kind = OPTION_SWITCH,
         .target = &choice.json,
         .help = "one JSON object a model"},
        {.name = "max-model-len",
         .kind = OPTION_INTEGER,
         .target = &choice.max_model_len,
         .value = "N",
         .help = "tokens of the sequences that are counted; the model's context",
         .min = 1,
         .max = 1 << 24},
        {.name = "name",
         .kind = OPTION_TEXT,
         .target = &choice.name,
         .value = "N",
         .help = "of what is added; the file's own"},
    };
    const struct options_help help = {
        "models [list] | inspect NAME | verify NAME | add PATH [--name N]",
        "list: the models in ${XDG_CACHE_HOME:-~/.cache}/quern/models, in Ollama's store and in\n"
        "the Hugging Face cache: the name --model takes, size, family, context, KV-cache bytes a\n"
        "token, how many sequences fit into the memory that is free, and why one cannot be\n"
        "served. --model takes the path of any other GGUF file or folder too.\n"
        "inspect: all that a model's head says.  verify: whether its files are what was fetched.\n"
        "add: makes a file or a folder known under a name, by a link in quern's folder.\n"};
    enum err err = options_read(options, sizeof options / sizeof *options, &help, argc, argv,
                                choice.words, 2, &done, &error);
    if (done && err == OK) return EXIT_GOOD;
    if (err == OK) err = act(&choice, &error);
    if (err != OK) fprintf(stderr, "quern models: %s\n", error.text);
    return exit_of(err);
}

const struct command cmd_models = {"models", "what can be run here, where it lies, how large it is",
                                   false, run};
