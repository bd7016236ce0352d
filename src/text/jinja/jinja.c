/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/jinja.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "jinja/eval.h"
#include "jinja/template.h"

#include <stdlib.h>
#include <string.h>

/* Nodes and tokens take a few dozen times the bytes of the densest source. */
#define TEMPLATE_BYTES_MAX ((size_t)96 << 20)
#define OUTPUT_BYTES_DEFAULT ((size_t)8 << 20)
#define MEMORY_BYTES_DEFAULT ((size_t)64 << 20)
#define STEPS_DEFAULT ((size_t)4000000)

/* A copy with \r\n and \r made \n, and without one final newline. */
static struct str normalise(struct arena *arena, struct str source) {
    char *copy = arena_alloc(arena, source.bytes + 1);
    size_t bytes = 0;
    for (size_t i = 0; copy && i < source.bytes; i++) {
        char byte = source.at[i];
        if (byte == '\r') {
            if (i + 1 < source.bytes && source.at[i + 1] == '\n') i++;
            byte = '\n';
        }
        copy[bytes++] = byte;
    }
    if (bytes > 0 && copy[bytes - 1] == '\n') bytes--;
    return (struct str){copy, bytes};
}

enum err jinja_template_open(struct jinja_template **ret_template, struct str source,
                             struct error *error) {
    if (source.bytes > JINJA_SOURCE_BYTES_MAX)
        return err_set(error, ERR_LIMIT, "the template is larger than %zu bytes",
                       JINJA_SOURCE_BYTES_MAX);
    size_t valid = utf8_valid_prefix(source);
    if (valid < source.bytes)
        return err_set(error, ERR_INVALID, "the template is not UTF-8 at byte %zu", valid);
    struct jinja_template *template = mem_new(1, sizeof *template);
    arena_init(&template->arena, TEMPLATE_BYTES_MAX);
    template->source = normalise(&template->arena, source);
    enum err err = template_parse(template, error);
    if (err) {
        jinja_template_close(template);
        return err;
    }
    *ret_template = template;
    return OK;
}

void jinja_template_close(struct jinja_template *template) {
    if (!template) return;
    arena_release(&template->arena);
    free(template);
}

static size_t or_default(size_t limit, size_t fallback) {
    return limit > 0 ? limit : fallback;
}

enum err jinja_template_render(const struct jinja_template *template, json_t *context,
                               const struct jinja_options *options, struct buf *buf,
                               struct text_ranges *given, struct error *error) {
    const struct jinja_limits *limits = &options->limits;
    size_t steps = or_default(limits->steps_max, STEPS_DEFAULT);
    size_t output_max = or_default(limits->output_bytes_max, OUTPUT_BYTES_DEFAULT);
    size_t buf_max = buf->bytes_max;
    if (output_max < buf_max - buf->bytes) buf->bytes_max = buf->bytes + output_max;
    struct render render = {
        .template = template,
        .context = context,
        .model_context = options->model_context,
        .now_unix_s = options->now_unix_s,
        .utc_offset_s = options->utc_offset_s,
        .is_strict = options->is_strict,
        .out = buf,
        .error = error,
        .units_left = steps < SIZE_MAX / UNITS_PER_STEP ? steps * UNITS_PER_STEP : SIZE_MAX,
        .line = 1,
    };
    arena_init(&render.arena, or_default(limits->memory_bytes_max, MEMORY_BYTES_DEFAULT));
    render.top = render_array(&render, template->symbol_count + 1, sizeof *render.top);
    enum err err = render.top ? eval_body(&render, NULL, template->body) : ERR_LIMIT;
    if (!err) err = render_check(&render);
    for (size_t i = 0; !err && given && i < render.origin.count; i++)
        text_ranges_add(given, render.origin.at[i].start, render.origin.at[i].end);
    arena_release(&render.arena);
    buf->bytes_max = buf_max;
    return err;
}

bool jinja_template_takes_parts(const struct jinja_template *template) {
    return template->takes_parts;
}

bool jinja_template_knows_role(const struct jinja_template *template, const char *role) {
    struct str name = str_from(role);
    for (size_t at = 0; (at = str_find(template->source, name, at)) != SIZE_MAX; at++) {
        size_t end = at + name.bytes;
        char before = at > 0 ? template->source.at[at - 1] : ' ';
        char after = end < template->source.bytes ? template->source.at[end] : ' ';
        if (before == after && (before == '\'' || before == '"')) return true;
    }
    return false;
}

struct str jinja_template_source(const struct jinja_template *template) {
    return template->source;
}
