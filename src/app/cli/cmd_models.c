/* SPDX-License-Identifier: Apache-2.0 */
#include "base/free_memory.h"
#include "base/printable.h"
#include "base/sandbox.h"
#include "cli/command.h"
#include "cli/models_fit.h"
#include "cli/models_show.h"
#include "hub/catalog_add.h"
#include "hub/catalog_find.h"
#include "hub/catalog_path.h"
#include "hub/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct models_command {
    const char *name;
    int64_t max_model_len, device_memory_mib, tensor_parallel_size, sequences;
    bool json, templates;
};

#define AT(field) offsetof(struct models_command, field)
static const struct option rows[] = {
    {"json", OPTION_SWITCH, AT(json), .help = "print one JSON object per model"},
    {"templates", OPTION_SWITCH, AT(templates),
     .help = "with --json: print the chat template of each model, too"},
    {"max-model-len", OPTION_INTEGER, AT(max_model_len), "N",
     .help = "tokens of the sequences that are counted (default: the context; on a GPU 4096)",
     .min = 1, .max = 1 << 24, .is_size = true},
    {"device-memory-mib", OPTION_INTEGER, AT(device_memory_mib), "N",
     .help = "memory of a GPU that the engine may take, to see how models fit it (default: 0.9 of "
             "this machine's largest GPU)",
     .min = 1, .max = 1 << 28, .is_size = true},
    {"tensor-parallel-size", OPTION_INTEGER, AT(tensor_parallel_size), "N",
     .help = "with inspect: GPUs that compute the model together (default 1); the memory is that "
             "of each",
     .min = 1, .max = GPU_RANKS_MAX},
    {"sequences", OPTION_INTEGER, AT(sequences), "N",
     .help = "with fit: sequences that run at once (default 1)", .min = 1, .max = 65536},
    {"name", OPTION_TEXT, AT(name), "N",
     .help = "with add: the model's new name (default: the file's)"},
    {0},
};

/* What to ask about the GPU. */
static struct models_card_query card_query(const struct models_command *chosen, uint32_t ranks) {
    return (struct models_card_query){.memory_bytes = (uint64_t)chosen->device_memory_mib << 20,
                                      .host_bytes = free_memory_bytes(),
                                      .ranks = ranks,
                                      .sequence_tokens = (uint32_t)chosen->max_model_len};
}

/* --- list --- */

struct listing {
    const struct models_command *chosen;
    const volatile bool *stop;
    size_t count;
};

static void print_file(void *context, const struct model_file *file) {
    struct listing *listing = context;
    const struct models_command *chosen = listing->chosen;
    struct model_facts facts;
    struct models_card card = {0};
    if (*listing->stop) return;
    model_facts_read(&facts, file, (uint32_t)chosen->max_model_len);
    const bool has_card = chosen->device_memory_mib > 0;
    const struct models_card_query query = card_query(chosen, 1);
    struct error unread;
    if (has_card && facts.is_read && !*facts.why_not &&
        models_card_read(&card, file->path, &query, &unread) != OK)
        card.memory_bytes = 0; /* the list goes on */
    if (!chosen->json && listing->count == 0) models_show_head(has_card);
    listing->count++;
    if (chosen->json)
        models_show_json(&facts, &card, chosen->templates);
    else
        models_show_line(&facts, &card, has_card);
    model_facts_release(&facts);
}

static enum err list(struct command_call *call, struct error *error) {
    struct listing listing = {.chosen = call->chosen, .stop = call->stop};
    char folder[PATH_MAX];
    enum err err = catalog_list(print_file, &listing, error);
    if (*call->stop) return err_set(error, ERR_CANCELLED, "stopped");
    if (err == OK && listing.count == 0 && catalog_folder(folder))
        fprintf(stderr,
                "quern models: none in %s nor elsewhere; `quern pull ORG/NAME` fetches one, and "
                "`quern pull smollm2` a small one\n",
                folder);
    return err;
}

/* --- inspect --- */

static enum err inspect(struct command_call *call, struct error *error) {
    const struct models_command *chosen = call->chosen;
    struct model_file file;
    struct model_facts facts;
    struct models_card card = {0};
    enum err err = catalog_find(call->operands[1], &file, error);
    if (err != OK) return err;
    model_facts_read(&facts, &file, (uint32_t)chosen->max_model_len);
    if (!facts.is_read) return err_set(error, ERR_INVALID, "%s", facts.why_not);
    const struct models_card_query query = card_query(
        chosen, chosen->tensor_parallel_size > 0 ? (uint32_t)chosen->tensor_parallel_size : 1);
    if (chosen->device_memory_mib > 0 && !*facts.why_not)
        err = models_card_read(&card, file.path, &query, error);
    if (err == OK && chosen->json)
        models_show_json(&facts, &card, chosen->templates);
    else if (err == OK)
        models_show_page(&facts, &card);
    model_facts_release(&facts);
    return err;
}

/* --- fit --- */

#define FIT_TOKENS 4096

static enum err fit(struct command_call *call, struct error *error) {
    const struct models_command *chosen = call->chosen;
    const struct models_fit query = {
        .name = call->operands[1],
        .sequences = chosen->sequences > 0 ? (uint32_t)chosen->sequences : 1,
        .sequence_tokens = chosen->max_model_len > 0 ? (uint32_t)chosen->max_model_len : FIT_TOKENS,
        .card_bytes = (uint64_t)chosen->device_memory_mib << 20,
        .json = chosen->json};
    return models_fit_show(&query, error);
}

/* --- verify --- */

static void print_verified(void *context, const struct verified *file) {
    char real[PATH_MAX];
    const char *path = realpath(file->path, real) ? real : file->path;
    (void)context;
    if (file->err != OK)
        printf("UNREADABLE %s: %s\n", printable(path).text, printable(file->why).text);
    else if (!*file->wanted)
        printf("no sum     %s: none is known; its SHA-256 is %s\n", printable(path).text,
               file->sum);
    else
        printf("%s %s\n", file->is_good ? "good      " : "DAMAGED   ", printable(path).text);
}

static bool goes_on(void *context, uint64_t bytes) {
    const struct command_call *call = context;
    (void)bytes;
    return !*call->stop;
}

static enum err verify(struct command_call *call, struct error *error) {
    const struct verify_options options = {
        .name = call->operands[1], .context = call, .file = print_verified, .progress = goes_on};
    enum err err = verify_model(&options, error);
    if (err != ERR_CORRUPT) return err;
    /* The check has done its work: damage is what it found. */
    fprintf(stderr, "quern models: %s\n", error->text);
    call->status = EXIT_DAMAGED;
    return OK;
}

/* --- the command --- */

static enum err add(struct command_call *call, struct error *error) {
    const struct models_command *chosen = call->chosen;
    return catalog_add(call->operands[1], chosen->name, error);
}

static const struct action {
    const char *word;
    const char *operand; /* the meaning of the second word; NULL: no second word */
    bool may_lack_operand;
    bool reads_only;
    bool has_card; /* shows how models fit a GPU */
    enum err (*run)(struct command_call *call, struct error *error);
} actions[] = {
    {"list", NULL, false, true, true, list},
    {"fit", "the name of a model", true, true, true, fit},
    {"inspect", "the name or the path of a model", false, true, true, inspect},
    {"verify", "the name or the path of a model", false, true, false, verify},
    {"add", "the path of a GGUF file or of a folder", false, false, false, add},
};

static const struct action *find_action(const struct command_call *call) {
    const char *word = call->operands[0] ? call->operands[0] : "list";
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (strcmp(word, actions[i].word) == 0) return &actions[i];
    return NULL;
}

static enum err check(struct command_call *call, struct error *error) {
    const struct action *action = find_action(call);
    if (!action)
        return err_set(error, ERR_INVALID, "'%.80s' is none of list, fit, inspect, verify, add",
                       call->operands[0]);
    if (!action->operand && call->operands[1])
        return err_set(error, ERR_INVALID, "'%.80s' is one argument too many; see --help",
                       call->operands[1]);
    const struct models_command *chosen = call->chosen;
    if (chosen->tensor_parallel_size > 0 && action->run != inspect)
        return err_set(error, ERR_INVALID, "--tensor-parallel-size goes with inspect");
    if (chosen->sequences > 0 && action->run != fit)
        return err_set(error, ERR_INVALID, "--sequences goes with fit");
    if (action->operand && !action->may_lack_operand && !call->operands[1])
        return err_set(error, ERR_INVALID, "%s needs %s", action->word, action->operand);
    return OK;
}

/* The files come from strangers: from here on the process can read any file, and do nothing
 * else. */
static void enter_sandbox(void) {
    struct sandbox_state state;
    const struct sandbox_path all = {.path = "/"};
    sandbox_enter(SANDBOX_FILES, &all, 1, &state);
}

static enum err run(struct command_call *call, struct error *error) {
    const struct action *action = find_action(call);
    struct models_command *chosen = call->chosen;
    if (action->has_card && chosen->device_memory_mib == 0)
        chosen->device_memory_mib = models_card_mib(); /* now: the sandbox opens no library */
    if (chosen->tensor_parallel_size > 0 && chosen->device_memory_mib == 0)
        return err_set(error, ERR_INVALID,
                       "--tensor-parallel-size needs --device-memory-mib: this machine has no GPU");
    if (action->reads_only) enter_sandbox();
    return action->run(call, error);
}

static const struct option_table tables[] = {{rows, 0}};

const struct command cmd_models = {
    .name = "models",
    .summary = "list, inspect, verify and add models, and tell which fit",
    .usage = "models [list] | fit [NAME] | inspect NAME | verify NAME | add PATH [--name N]",
    .help =
        "list: the models in ${XDG_CACHE_HOME:-~/.cache}/quern/models, in Ollama's store and in\n"
        "the Hugging Face cache, with the name for --model, size, family, context, KV-cache bytes\n"
        "per token, the sequences that fit into the free memory and onto the GPU, and the reason\n"
        "if one cannot be served. --model also takes the path of any other GGUF file or folder.\n"
        "fit: which of the models that quern pull knows by name fit this machine, and how, before\n"
        "they are fetched.\n"
        "inspect: everything that a model's head says.\n"
        "verify: compares a model's files with the sums they were fetched with.\n"
        "add: gives a GGUF file or a folder a name, by a link in quern's folder.\n",
    .tables = tables,
    .table_count = 1,
    .chosen_bytes = sizeof(struct models_command),
    .operands_max = 2,
    .words = "list|fit|inspect|verify|add",
    .stops = true,
    .check = check,
    .run = run,
};
