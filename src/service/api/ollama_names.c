/* SPDX-License-Identifier: Apache-2.0 */

/* POST /api/copy and DELETE /api/delete: a further name of a model, and its end. */

#include "api/api_internal.h"
#include "dialects/members.h"
#include "json/span.h"

#include <string.h>

/* Whether a text may be the name of a model here and in Ollama. */
static bool is_name(struct str name) {
    if (name.bytes == 0 || name.bytes >= MODEL_NAME_BYTES || strchr("-./:", *name.at)) return false;
    for (size_t i = 0; i < name.bytes; i++) {
        char c = name.at[i];
        bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_plain && (c == '\0' || !strchr("._-:/", c))) return false;
    }
    return true;
}

/* Decodes a name; false, and answered with 400, if it is none. */
static bool read_name(struct http_request *request, const char *param, struct str value,
                      struct buf *name) {
    if (!value.at || !json_span_is_string(value) || member_is_empty(value)) {
        api_fail_param(request, "missing_required_parameter", param, "%s is required", param);
        return false;
    }
    json_span_decode(name, value);
    if (is_name(buf_str(name))) return true;
    api_fail_param(request, "invalid_value", param, "%s: invalid model name", param);
    return false;
}

/* Answers with what became of it, as Ollama does: with an empty body. */
static void answer(struct api *api, struct http_request *request, const char *action,
                   const char *subject, enum err err, const struct error *error) {
    if (err == OK) {
        http_answer(request, &(struct http_answer){.status = 200});
        return;
    }
    api_audit_failed(api, request, action, subject, error);
    if (err == ERR_NOT_FOUND && !error->is_system)
        api_fail(request, 404, "model_not_found", "model", "%s", error->text);
    else
        api_fail_err(request, err, error, "model");
}

static void copy(struct api *api, struct http_request *request, struct str source,
                 struct str destination) {
    struct error error;
    const char *subject = api_text(request, destination);
    if (!api_audit(api, request, "model.copy", subject)) return;
    enum err err = api->options.copy_model(api->options.pull_context, source, destination, &error);
    answer(api, request, "model.copy", subject, err, &error);
}

/* Finds the members of the body's object; false, and answered with 400, if there is none. */
static bool find_members(struct http_request *request, const struct member *places, size_t count) {
    struct str object;
    struct refusal refusal;
    if (!api_find_object(request, http_request_body(request), &object)) return false;
    if (members_read(object, places, count, &refusal)) return true;
    api_refuse(request, &refusal);
    return false;
}

void ollama_post_copy(void *context, struct http_request *request) {
    struct str source, destination;
    const struct member places[] = {{"source", &source}, {"destination", &destination}};
    struct buf from, to;
    buf_init(&from, BUF_UNLIMITED);
    buf_init(&to, BUF_UNLIMITED);
    if (find_members(request, places, 2) && read_name(request, "source", source, &from) &&
        read_name(request, "destination", destination, &to))
        copy(context, request, buf_str(&from), buf_str(&to));
    buf_release(&from);
    buf_release(&to);
}

static void delete_named(struct api *api, struct http_request *request, struct str name) {
    struct error error;
    const char *subject = api_text(request, name);
    if (!api_audit(api, request, "model.delete", subject)) return;
    enum err err = api->options.delete_model(api->options.pull_context, name, &error);
    answer(api, request, "model.delete", subject, err, &error);
}

void ollama_delete(void *context, struct http_request *request) {
    struct str model, older;
    const struct member places[] = {{"model", &model}, {"name", &older}};
    struct buf name;
    buf_init(&name, BUF_UNLIMITED);
    if (find_members(request, places, 2) &&
        read_name(request, "model", model.at ? model : older, &name))
        delete_named(context, request, buf_str(&name));
    buf_release(&name);
}
