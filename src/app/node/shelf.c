/* SPDX-License-Identifier: Apache-2.0 */
#include "node/shelf.h"

#include "base/arena.h"
#include "base/child.h"
#include "base/log.h"
#include "base/mem.h"
#include "json/json.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LINE_BYTES_MAX ((size_t)1 << 20)   /* a template of 64 KiB, each byte escaped, and more */
#define TEXTS_BYTES_MAX ((size_t)32 << 20) /* SHELF_MODELS_MAX templates, and more */

struct shelf {
    struct shelf_model *models; /* (count) */
    size_t count;
    struct arena texts;
    struct buf line; /* the begin of the line that comes */
    const volatile bool *stop;
};

/* --- one line --- */

static const char *text_of(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

static uint64_t number_of(const json_t *object, const char *name) {
    json_int_t number = json_integer_value(json_object_get(object, name));
    return number > 0 ? (uint64_t)number : 0;
}

static uint32_t count_of(const json_t *object, const char *name) {
    uint64_t number = number_of(object, name);
    return number <= UINT32_MAX ? (uint32_t)number : 0;
}

static bool flag_of(const json_t *object, const char *name) {
    return json_is_true(json_object_get(object, name));
}

static struct str keep(struct shelf *shelf, const char *text) {
    struct str copy = arena_copy(&shelf->texts, str_from(text));
    return copy.at ? copy : (struct str){"", 0};
}

/* The name of the mixture, or else the type that has the most bytes, which comes first. */
static const char *quantization_of(const json_t *object) {
    const char *name = text_of(object, "quantization");
    if (*name) return name;
    void *first = json_object_iter(json_object_get(object, "types"));
    return first ? json_object_iter_key(first) : "";
}

static void fill_foretold(struct shelf *shelf, struct shelf_model *model, const json_t *object) {
    struct wire_ready *foretold = &model->foretold;
    struct stat file = {0};
    bool is_encoder = model->token_bytes == 0;
    *foretold = (struct wire_ready){
        .created_unix_s = stat(model->choice.path, &file) == 0 ? (int64_t)file.st_mtim.tv_sec : 0,
        .context_tokens_max = count_of(object, "context"),
        .vocabulary_count = count_of(object, "vocabulary"),
        .generates = !is_encoder,
        .embeds = is_encoder || flag_of(object, "embeds"),
        .decides = !is_encoder && flag_of(object, "chat_template"),
        .about = {.architecture = keep(shelf, text_of(object, "family")),
                  .title = keep(shelf, text_of(object, "title")),
                  .format = S_ISDIR(file.st_mode) ? STR("safetensors") : STR("gguf"),
                  .quantization = keep(shelf, quantization_of(object)),
                  .parameters = number_of(object, "parameters"),
                  .file_bytes = number_of(object, "bytes"),
                  .memory_bytes = model->needed_bytes,
                  .context_tokens = count_of(object, "context"),
                  .layers = count_of(object, "layers"),
                  .width = count_of(object, "width"),
                  .template = keep(shelf, text_of(object, "template")),
                  .knows_template = is_encoder || json_object_get(object, "takes_tools"),
                  .takes_tools = flag_of(object, "takes_tools"),
                  .thinks = flag_of(object, "thinks")}};
    foretold->names.at[foretold->names.count++] = keep(shelf, model->choice.names[0]);
}

/* True if another name of the same files came before: that model gets this name, too. Names of
 * Ollama's store share their files after `ollama cp`. */
static bool is_further_name(struct shelf *shelf, const struct model_choice *choice) {
    for (size_t i = 0; i < shelf->count; i++) {
        struct model_choice *first = &shelf->models[i].choice;
        if (strcmp(first->path, choice->path) != 0) continue;
        for (size_t j = 0; j < first->name_count; j++)
            if (strcmp(first->names[j], choice->names[0]) == 0) return true;
        if (first->name_count < MODEL_NAMES_MAX)
            memcpy(first->names[first->name_count++], choice->names[0], MODEL_NAME_BYTES);
        return true;
    }
    return false;
}

static void add(struct shelf *shelf, const json_t *object) {
    struct shelf_model model = {.needed_bytes = number_of(object, "memory_needed_bytes"),
                                .least_bytes = number_of(object, "memory_least_bytes"),
                                .token_bytes = number_of(object, "kv_bytes_per_token") +
                                               number_of(object, "state_bytes")};
    struct error error;
    const char *name = text_of(object, "model");
    if (!flag_of(object, "servable") || !*text_of(object, "family") || !*name) return;
    if (catalog_choose(name, &model.choice, &error) != OK) return;
    if (model.choice.is_echo || is_further_name(shelf, &model.choice)) return;
    if (shelf->count == SHELF_MODELS_MAX) {
        log_warn("event=model_left_out model=\"%s\" reason=\"more than %d models\"", name,
                 SHELF_MODELS_MAX);
        return;
    }
    fill_foretold(shelf, &model, object);
    shelf->models[shelf->count++] = model;
}

void shelf_add_line(struct shelf *shelf, struct str line) {
    json_t *object = NULL;
    struct error error;
    if (line.bytes == 0 || json_read(&object, line, &error) != OK) return;
    if (json_is_object(object)) add(shelf, object);
    json_decref(object);
}

/* --- the child --- */

static bool is_stopped(void *context) {
    const struct shelf *shelf = context;
    return *shelf->stop;
}

static void take_output(void *context, struct str bytes) {
    struct shelf *shelf = context;
    while (bytes.bytes > 0) {
        size_t end = str_find_byte(bytes, '\n', 0);
        bool is_whole = end != SIZE_MAX;
        buf_add_str(&shelf->line, (struct str){bytes.at, is_whole ? end : bytes.bytes});
        if (!is_whole) return;
        if (!shelf->line.overflowed) shelf_add_line(shelf, buf_str(&shelf->line));
        buf_release(&shelf->line);
        buf_init(&shelf->line, LINE_BYTES_MAX);
        bytes = str_skip(bytes, end + 1);
    }
}

struct shelf *shelf_new(void) {
    struct shelf *shelf = mem_new(1, sizeof *shelf);
    shelf->models = mem_new(SHELF_MODELS_MAX, sizeof *shelf->models);
    arena_init(&shelf->texts, TEXTS_BYTES_MAX);
    buf_init(&shelf->line, LINE_BYTES_MAX);
    return shelf;
}

/* `arguments`: of the command that lists. */
static enum err open_listing(struct shelf **ret_shelf, const char *const *arguments,
                             const volatile bool *stop, struct error *error) {
    struct shelf *shelf = shelf_new();
    struct child_end end;
    shelf->stop = stop;
    const struct child_options options = {.command = "models",
                                          .arguments = arguments,
                                          .context = shelf,
                                          .stopped = is_stopped,
                                          .output = take_output};
    enum err err = child_run(&options, &end, error);
    if (err == OK && end.status != 0) err = err_set(error, ERR_IO, "%s", end.sentence);
    if (err == OK)
        *ret_shelf = shelf;
    else
        shelf_close(shelf);
    return err;
}

enum err shelf_open(struct shelf **ret_shelf, const volatile bool *stop, struct error *error) {
    static const char *const arguments[] = {"quern",  "models",      "list",
                                            "--json", "--templates", NULL};
    enum err err = open_listing(ret_shelf, arguments, stop, error);
    return err == OK ? OK : err_prefix(error, "the models of this machine cannot be listed");
}

enum err shelf_open_one(struct shelf **ret_shelf, const char *name, struct error *error) {
    static const volatile bool never = false;
    const char *const arguments[] = {"quern",  "models",      "inspect", name,
                                     "--json", "--templates", NULL};
    return open_listing(ret_shelf, arguments, &never, error);
}

void shelf_close(struct shelf *shelf) {
    if (!shelf) return;
    buf_release(&shelf->line);
    arena_release(&shelf->texts);
    free(shelf->models);
    free(shelf);
}

size_t shelf_count(const struct shelf *shelf) {
    return shelf->count;
}

const struct shelf_model *shelf_at(const struct shelf *shelf, size_t index) {
    return &shelf->models[index];
}

const struct shelf_model *shelf_find(const struct shelf *shelf, const char *path) {
    for (size_t i = 0; i < shelf->count; i++)
        if (strcmp(shelf->models[i].choice.path, path) == 0) return &shelf->models[i];
    return NULL;
}
