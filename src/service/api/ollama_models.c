/* SPDX-License-Identifier: Apache-2.0 */

/* What Ollama's API says about models: tags, ps and show. It comes from the runner: what a model is
 * called and does, and what its files say (protocol/model_about.h). */

#include "api/api_internal.h"
#include "base/clock.h"
#include "base/digest.h"
#include "dialects/ollama.h"
#include "dialects/ollama_preset.h"
#include "json/span.h"

#include <inttypes.h>
#include <math.h>

#define NS_PER_S INT64_C(1000000000)
#define NS_PER_MS INT64_C(1000000)

/* --- the parts of a model's object --- */

/* Appends a name that has a tag, as all names of Ollama's have. */
static void add_name(struct buf *body, struct str name) {
    struct buf tagged;
    buf_init(&tagged, BUF_UNLIMITED);
    buf_add_str(&tagged, name);
    if (str_find_byte(name, ':', 0) == SIZE_MAX) buf_add_text(&tagged, ":latest");
    json_write_string(body, buf_str(&tagged));
    buf_release(&tagged);
}

/* A digest that names the model as it is served now: Ollama's is that of a manifest. */
static void add_digest(struct buf *body, const struct runner_model *model) {
    struct buf text;
    struct digest digest;
    char hex[DIGEST_HEX_BYTES];
    buf_init(&text, BUF_UNLIMITED);
    buf_add_str(&text, model->served.name);
    buf_printf(&text, " %" PRId64 " %" PRIu64, model->served.created_unix_s,
               model->served.about.file_bytes);
    digest_begin(&digest, DIGEST_SHA256);
    digest_add(&digest, text.at, text.bytes);
    digest_end_hex(&digest, hex);
    buf_release(&text);
    buf_printf(body, ",\"digest\":\"%s\"", hex);
}

static void add_capabilities(struct buf *body, const struct worker_model *served) {
    const struct {
        bool is_there;
        const char *name;
    } rows[] = {{served->generates || !served->embeds, "completion"},
                {served->about.takes_tools, "tools"},
                {served->about.thinks, "thinking"},
                {served->embeds, "embedding"}};
    const char *before = "";
    buf_add_text(body, ",\"capabilities\":[");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].is_there) continue;
        buf_printf(body, "%s\"%s\"", before, rows[i].name);
        before = ",";
    }
    buf_add_byte(body, ']');
}

/* Appends `,"name":"text"`; no text is empty, because clients read each. */
static void add_text(struct buf *body, const char *name, struct str text) {
    buf_printf(body, ",\"%s\":", name);
    json_write_string(body, text.bytes > 0 ? text : STR("unknown"));
}

/* "4.3B", "134.52M", "23K", as Ollama writes them. */
static void add_parameter_size(struct buf *body, uint64_t parameters) {
    static const struct {
        double unit;
        int decimals;
        char letter;
    } rows[] = {{1e9, 1, 'B'}, {1e6, 2, 'M'}, {1e3, 0, 'K'}};
    buf_add_text(body, ",\"parameter_size\":");
    if (parameters == 0) {
        buf_add_text(body, "\"unknown\"");
        return;
    }
    size_t row = parameters >= 1000000000 ? 0 : parameters >= 1000000 ? 1 : 2;
    double number = (double)parameters / rows[row].unit;
    int decimals = number == floor(number) ? 0 : rows[row].decimals;
    buf_printf(body, "\"%.*f%c\"", decimals, number, rows[row].letter);
}

static void add_details(struct buf *body, const struct runner_model *model) {
    const struct model_about *about = &model->served.about;
    uint32_t context = model->served.context_tokens_max;
    buf_add_text(body, ",\"details\":{\"parent_model\":\"\"");
    add_text(body, "format", about->format.bytes > 0 ? about->format : STR("gguf"));
    add_text(body, "family", about->architecture);
    buf_add_text(body, ",\"families\":[");
    json_write_string(body, about->architecture.bytes > 0 ? about->architecture : STR("unknown"));
    buf_add_byte(body, ']');
    add_parameter_size(body, about->parameters);
    add_text(body, "quantization_level", about->quantization);
    if (context > 0) buf_printf(body, ",\"context_length\":%" PRIu32, context);
    if (about->width > 0) buf_printf(body, ",\"embedding_length\":%" PRIu32, about->width);
    buf_add_byte(body, '}');
    add_capabilities(body, &model->served);
}

static void add_modified(struct buf *body, const struct runner_model *model) {
    buf_add_text(body, ",\"modified_at\":");
    dialect_add_time(body, model->served.created_unix_s * NS_PER_S);
}

/* --- lists --- */

/* The models written so far. */
struct listing {
    struct buf *body;
    size_t count;
    bool only_loaded;
};

/* What only the list of loaded models has. */
static void add_loaded(struct buf *body, const struct runner_model *model) {
    buf_add_text(body, ",\"expires_at\":");
    if (model->leaves_ms == 0)
        buf_add_text(body, "\"2318-01-01T00:00:00Z\""); /* it stays: as Ollama says for ever */
    else
        dialect_add_time(body, (clock_unix_ms() + model->leaves_ms) * NS_PER_MS);
    buf_printf(body, ",\"size_vram\":%" PRIu64 ",\"context_length\":%" PRIu32, model->card_bytes,
               model->served.context_tokens_max);
}

/* The bytes of a model's files, or of the memory that it takes while it is loaded. */
static uint64_t size_of(const struct runner_model *model, bool is_loaded) {
    uint64_t memory_bytes = model->card_bytes ? model->card_bytes : model->memory_bytes;
    return is_loaded && memory_bytes > 0 ? memory_bytes : model->served.about.file_bytes;
}

static void add_model(void *context, const struct runner_model *model) {
    struct listing *listing = context;
    struct buf *body = listing->body;
    if (listing->only_loaded && model->state != MODEL_LOADED) return;
    if (listing->count++ > 0) buf_add_byte(body, ',');
    buf_add_text(body, "{\"name\":");
    add_name(body, model->name);
    buf_add_text(body, ",\"model\":");
    add_name(body, model->name);
    add_modified(body, model);
    buf_printf(body, ",\"size\":%" PRIu64, size_of(model, listing->only_loaded));
    add_digest(body, model);
    add_details(body, model);
    if (listing->only_loaded) add_loaded(body, model);
    buf_add_byte(body, '}');
}

static void list(struct api *api, struct http_request *request, bool only_loaded) {
    struct buf body;
    buf_init(&body, BUF_UNLIMITED);
    buf_add_text(&body, "{\"models\":[");
    runner_models(api->options.runner, add_model,
                  &(struct listing){.body = &body, .only_loaded = only_loaded});
    buf_add_text(&body, "]}");
    api_answer_json(request, &body);
}

void ollama_get_tags(void *context, struct http_request *request) {
    runner_look(((struct api *)context)->options.runner);
    list(context, request, false);
}

void ollama_get_ps(void *context, struct http_request *request) {
    list(context, request, true);
}

/* --- one model --- */

/* The object that is being written, and the request that asked. */
struct showing {
    struct buf *body;
    struct str asked; /* the model as the client wrote it */
    bool names_it;    /* the client shows `general.basename` to people */
    const struct ollama_preset *preset;
};

/* Appends `,"prefix.name":number`, unless it is not known. */
static void add_number(struct buf *body, struct str prefix, const char *name, uint64_t number) {
    struct buf key;
    if (number == 0) return;
    buf_init(&key, BUF_UNLIMITED);
    buf_add_str(&key, prefix);
    buf_printf(&key, ".%s", name);
    buf_add_byte(body, ',');
    json_write_string(body, buf_str(&key));
    buf_printf(body, ":%" PRIu64, number);
    buf_release(&key);
}

static void add_info(const struct showing *showing, const struct runner_model *model) {
    const struct model_about *about = &model->served.about;
    struct buf *body = showing->body;
    struct str family = about->architecture.bytes > 0 ? about->architecture : STR("unknown");
    struct str title = about->title.bytes > 0 ? about->title : model->served.name;
    buf_add_text(body, ",\"model_info\":{\"general.architecture\":");
    json_write_string(body, family);
    buf_add_text(body, ",\"general.basename\":");
    json_write_string(body, showing->names_it ? showing->asked : title);
    add_number(body, STR("general"), "parameter_count", about->parameters);
    add_number(body, family, "context_length", model->served.context_tokens_max);
    add_number(body, family, "embedding_length", about->width);
    add_number(body, family, "block_count", about->layers);
    buf_add_byte(body, '}');
}

static void add_modelfile(const struct showing *showing, const struct runner_model *model) {
    struct buf modelfile;
    buf_init(&modelfile, BUF_UNLIMITED);
    buf_add_text(&modelfile, "FROM ");
    buf_add_str(&modelfile, model->served.name);
    buf_add_byte(&modelfile, '\n');
    if (showing->preset->system.bytes > 0) {
        buf_add_text(&modelfile, "SYSTEM \"\"\"");
        json_span_decode(&modelfile, buf_str(&showing->preset->system));
        buf_add_text(&modelfile, "\"\"\"\n");
    }
    ollama_preset_write_lines(showing->preset, "PARAMETER ", &modelfile);
    json_write_string(showing->body, buf_str(&modelfile));
    buf_release(&modelfile);
}

static void add_shown(void *context, const struct runner_model *model) {
    const struct showing *showing = context;
    struct buf *body = showing->body, lines;
    buf_init(&lines, BUF_UNLIMITED);
    ollama_preset_write_lines(showing->preset, "", &lines);
    buf_add_text(body, "{\"license\":\"\",\"modelfile\":");
    add_modelfile(showing, model);
    buf_add_text(body, ",\"parameters\":");
    json_write_string(body, str_trim(buf_str(&lines)));
    buf_add_text(body, ",\"template\":");
    json_write_string(body, model->served.about.template);
    buf_add_text(body, ",\"system\":");
    buf_add_str(body, showing->preset->system.bytes > 0 ? buf_str(&showing->preset->system)
                                                        : STR("\"\""));
    add_details(body, model);
    add_info(showing, model);
    add_modified(body, model);
    buf_add_byte(body, '}');
    buf_release(&lines);
}

/* The name of the body's `model`, or of the older `name`. */
static bool read_name(struct http_request *request, struct str object, struct buf *name) {
    struct refusal refusal;
    struct str model, older;
    const struct member places[] = {{"model", &model}, {"name", &older}};
    if (!members_read(object, places, 2, &refusal)) {
        api_refuse(request, &refusal);
        return false;
    }
    if (!model.at) model = older;
    if (!json_span_is_string(model) || member_is_empty(model)) {
        api_fail_param(request, "missing_required_parameter", "model", "model is required");
        return false;
    }
    json_span_decode(name, model);
    return true;
}

void ollama_post_show(void *context, struct http_request *request) {
    struct api *api = context;
    struct str object, agent = http_request_header(request, "user-agent");
    struct buf body, name;
    struct ollama_preset preset;
    ollama_preset_init(&preset);
    buf_init(&body, BUF_UNLIMITED);
    buf_init(&name, BUF_UNLIMITED);
    if (api_find_object(request, http_request_body(request), &object) &&
        read_name(request, object, &name)) {
        struct showing showing = {.body = &body,
                                  .asked = buf_str(&name),
                                  .names_it = str_starts_with(agent, STR("GitHubCopilotChat/")),
                                  .preset = &preset};
        if (api->options.preset)
            (void)api->options.preset(api->options.pull_context, buf_str(&name), &preset);
        if (runner_model_find_anew(api->options.runner, buf_str(&name), add_shown, &showing))
            api_answer_json(request, &body);
        else
            api_fail(request, 404, "model_not_found", "model", "model '%.300s' not found",
                     api_text(request, buf_str(&name)));
    }
    buf_release(&body);
    buf_release(&name);
    ollama_preset_release(&preset);
}
