/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "cli/options.h"
#include "cli/pull_show.h"
#include "cli/stop.h"
#include "hub/catalog.h"
#include "json/json.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct choice {
    const char *name, *revision;
    struct option_list includes;
    int64_t connections;
    bool json, quiet;
};

static int exit_of(enum err err) {
    switch (err) {
    case OK: return EXIT_GOOD;
    case ERR_INVALID:
    case ERR_NOT_FOUND:
    case ERR_CONFLICT: return EXIT_WRONG_INPUT;
    case ERR_CANCELLED: return 130;
    default: return EXIT_MACHINE;
    }
}

/* Whether --model takes it now, and if not, why: `error` is empty then. */
static bool is_servable(const struct choice *choice, struct error *error) {
    struct model_choice model;
    return catalog_choose(choice->name, &model, error) == OK;
}

static void print_json(const struct choice *choice, const struct pull_summary *is) {
    struct error error = {0};
    struct buf line;
    bool servable = is_servable(choice, &error);
    buf_init(&line, 1 << 16);
    buf_add_text(&line, "{\"model\": ");
    json_write_string(&line, str_from(choice->name));
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

static void print_summary(const struct choice *choice, const struct pull_summary *is) {
    struct error error = {0};
    if (!choice->quiet)
        fprintf(stderr, "%u files, %s, of which %s fetched in %.1f s and %s there before\n",
                is->files, pull_show_bytes(is->bytes).text, pull_show_bytes(is->bytes_fetched).text,
                is->seconds, pull_show_bytes(is->bytes_there + is->bytes_resumed).text);
    if (!choice->quiet && is_servable(choice, &error))
        fprintf(stderr, "serve it with: quern serve --model %s\n", choice->name);
    else if (*error.text)
        fprintf(stderr, "quern pull: it is there, but %s\n", error.text);
    puts(is->folder);
}

static enum err pull(const struct choice *choice, struct error *error) {
    struct pull_show show = {
        .command = "pull", .quiet = choice->quiet, .terminal = isatty(STDERR_FILENO)};
    struct pull_summary summary;
    const struct pull_options options = {.name = choice->name,
                                         .revision = choice->revision,
                                         .includes = choice->includes.values,
                                         .include_count = choice->includes.count,
                                         .connections = (uint32_t)choice->connections,
                                         .stop = stop_on_signals(),
                                         .context = &show,
                                         .progress = pull_show_progress,
                                         .note = pull_show_note};
    enum err err = pull_run(&options, &summary, error);
    pull_show_end(&show);
    if (err != OK) return err;
    if (choice->json)
        print_json(choice, &summary);
    else
        print_summary(choice, &summary);
    return OK;
}

static int run(int argc, char **argv) {
    struct choice choice = {0};
    struct error error = {0};
    bool done = false;
    const struct option options[] = {
        {.name = "revision",
         .kind = OPTION_TEXT,
         .target = &choice.revision,
         .value = "R",
         .help = "a branch, tag or commit; main"},
        {.name = "include",
         .kind = OPTION_LIST,
         .target = &choice.includes,
         .value = "PATTERN",
         .help = "files to fetch in the place of quern's choice; may be repeated"},
        {.name = "connections",
         .kind = OPTION_INTEGER,
         .target = &choice.connections,
         .value = "N",
         .help = "at a time; 8",
         .min = 1,
         .max = PULL_CONNECTIONS_MAX},
        {.name = "json",
         .kind = OPTION_SWITCH,
         .target = &choice.json,
         .help = "the summary as one JSON object on standard output"},
        {.name = "quiet",
         .letter = 'q',
         .kind = OPTION_SWITCH,
         .target = &choice.quiet,
         .help = "no progress"},
    };
    const struct options_help help = {
        "pull NAME [options]",
        "Fetches a model from Hugging Face, or the hub HF_ENDPOINT names, into the cache that all\n"
        "of Hugging Face's tools share. NAME is ORG/NAME, ORG/NAME:Q4_K_M or a name of Ollama's.\n"
        "The same command again goes on where it was. HF_TOKEN is for gated models.\n\n"
        "example:  quern pull bartowski/SmolLM2-360M-Instruct-GGUF:Q4_K_M\n"};
    enum err err = options_read(options, sizeof options / sizeof *options, &help, argc, argv,
                                &choice.name, 1, &done, &error);
    if (done && err == OK) return EXIT_GOOD;
    if (err == OK && !choice.name)
        err = err_set(&error, ERR_INVALID, "say which model: ORG/NAME, or a name of Ollama's");
    if (err == OK) err = pull(&choice, &error);
    if (err != OK) fprintf(stderr, "quern pull: %s\n", error.text);
    return exit_of(err);
}

const struct command cmd_pull = {"pull", "fetches a model from a Hugging Face hub", false, run};
