/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "cli/options.h"
#include "server/catalog.h"
#include "json/json.h"

#include <stdio.h>

struct listing {
    bool json;
    size_t count;
};

static void print_file(void *context, const struct model_file *file) {
    struct listing *listing = context;
    listing->count++;
    if (!listing->json) {
        printf("%-40s %9.1f MB  %-11s  %s%s%s\n", file->name, (double)file->bytes / 1e6,
               model_source_name(file->source), file->path,
               *file->why_not ? "  cannot be served: " : "", file->why_not);
        return;
    }
    struct buf line;
    buf_init(&line, 1 << 16);
    buf_add_text(&line, "{\"model\": ");
    json_write_string(&line, str_from(file->name));
    buf_printf(&line,
               ", \"source\": \"%s\", \"bytes\": %llu, \"path\": ", model_source_name(file->source),
               (unsigned long long)file->bytes);
    json_write_string(&line, str_from(file->path));
    buf_printf(&line, ", \"servable\": %s, \"reason\": ", *file->why_not ? "false" : "true");
    if (*file->why_not)
        json_write_string(&line, str_from(file->why_not));
    else
        buf_add_text(&line, "null");
    buf_add_text(&line, "}");
    puts(line.at);
    buf_release(&line);
}

static int run(int argc, char **argv) {
    struct listing listing = {0};
    const struct option options[] = {
        {.name = "json",
         .kind = OPTION_SWITCH,
         .target = &listing.json,
         .help = "one JSON object a model"},
    };
    const struct options_help help = {
        "models [--json]",
        "Lists the models in ${XDG_CACHE_HOME:-~/.cache}/quern/models, in Ollama's store and in "
        "the\n"
        "Hugging Face cache: the name --model takes, the size, where it lies, and why it cannot\n"
        "be served. --model takes the path of any other GGUF file too.\n"};
    struct error error;
    bool done;
    char folder[PATH_MAX];
    if (options_read(options, 1, &help, argc, argv, NULL, 0, &done, &error) != OK) {
        fprintf(stderr, "quern models: %s\n", error.text);
        return EXIT_WRONG_INPUT;
    }
    if (done) return EXIT_GOOD;
    if (catalog_list(print_file, &listing, &error) != OK) {
        fprintf(stderr, "quern models: %s\n", error.text);
        return EXIT_MACHINE;
    }
    if (listing.count == 0 && catalog_folder(folder))
        fprintf(
            stderr,
            "quern models: none in %s nor elsewhere; tools/fetch-model fetches the default one\n",
            folder);
    return EXIT_GOOD;
}

const struct command cmd_models = {"models", "what can be run here, where it lies, how large it is",
                                   false, run};
