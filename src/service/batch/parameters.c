/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/parameters.h"

#include "base/mem.h"
#include "base/no_memory.h"
#include "base/utf8.h"
#include "batch/extras.h"
#include "json/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METADATA_PAIRS_MAX 16
#define METADATA_KEY_CHARACTERS_MAX 64
#define METADATA_VALUE_CHARACTERS_MAX 512
#define EXPIRES_AFTER_S_MIN 3600
#define EXPIRES_AFTER_S_MAX 2592000
#define WINDOW_S_MIN 60
#define WINDOW_S_MAX (30 * 86400)
#define URL_BYTES_MAX 2048
#define OPENAI_LINES_MAX 50000 /* from tests/contract */
#define SHOWN_BYTES 60         /* bytes of a client's value that a message shows */

static const char *const tiers[] = {"auto",     "default", "flex", "scale",
                                    "priority", "fast",    "batch"};
struct batch_rules batch_rules_default(void) {
    return (struct batch_rules){.lines_max = BATCH_LINES_MAX,
                                .line_bytes_max = BATCH_LINE_BYTES_MAX,
                                .errors_max = BATCH_ERRORS_MAX};
}

bool batch_rules_of_profile(const char *profile, struct batch_rules *ret_rules) {
    struct batch_rules rules = batch_rules_default();
    bool is_openai = strcmp(profile, "openai") == 0;
    if (!is_openai && strcmp(profile, "quern") != 0) return false;
    if (is_openai) {
        rules.lines_max = OPENAI_LINES_MAX;
        rules.strict_url = rules.strict_single_model = rules.needs_model = true;
        rules.no_decisions = true;
    }
    *ret_rules = rules;
    return true;
}

/* The start of a value, cut at a character. */
static struct str shown(struct str text) {
    struct str part = {text.at, text.bytes < SHOWN_BYTES ? text.bytes : SHOWN_BYTES};
    part.bytes = utf8_valid_prefix(part);
    return part;
}

static bool refuse_type(struct refusal *refusal, const char *param, const char *wanted,
                        const json_t *value) {
    return refuse(refusal, "invalid_type", param,
                  "Invalid type for '%s': expected %s, but got %s instead.", param, wanted,
                  json_kind_name(value));
}

static bool read_required(const json_t *body, const char *name, struct str *ret_text,
                          struct refusal *refusal) {
    const json_t *value = json_member(body, name);
    if (!value) return refuse_missing(refusal, name);
    if (!json_is_string(value)) return refuse_type(refusal, name, "a string", value);
    *ret_text = json_str(value);
    return true;
}

static bool read_input(struct batch_parameters *parameters, const json_t *body,
                       struct refusal *refusal) {
    struct str id = {0};
    if (!read_required(body, "input_file_id", &id, refusal)) return false;
    /* Validation reports a missing file; this refuses only an id that no file can have. */
    if (id.bytes == 0 || id.bytes >= sizeof parameters->input_file_id ||
        memchr(id.at, '\0', id.bytes))
        return refuse(refusal, "invalid_value", "input_file_id",
                      "Invalid value for 'input_file_id': '%.*s' is not the id of a file.",
                      STR_ARGS(shown(id)));
    memcpy(parameters->input_file_id, id.at, id.bytes);
    return true;
}

static bool read_endpoint(struct batch_parameters *parameters, const json_t *body,
                          const struct batch_rules *rules, struct refusal *refusal) {
    struct str path = {0};
    if (!read_required(body, "endpoint", &path, refusal)) return false;
    enum endpoint found;
    if (endpoint_find(path, &found)) { /* also without /v1, as Azure has it, as in a line's url */
        if (endpoint_is_decision(found) && rules->no_decisions)
            return refuse(refusal, "invalid_value", "endpoint",
                          "Invalid value for 'endpoint': '%s' is not in the profile 'openai' of "
                          "this server.",
                          endpoint_path(found));
        parameters->endpoint = found;
        return true;
    }
    return refuse(refusal, "invalid_value", "endpoint",
                  "Invalid value for 'endpoint': '%.*s'. Supported values are: '%s', '%s', '%s', "
                  "'%s', '%s', '%s', '%s', '%s', '%s', '%s', and '%s'.",
                  STR_ARGS(shown(path)), endpoint_path(ENDPOINT_CHAT),
                  endpoint_path(ENDPOINT_COMPLETIONS), endpoint_path(ENDPOINT_EMBEDDINGS),
                  endpoint_path(ENDPOINT_SCORE), endpoint_path(ENDPOINT_DECISIONS),
                  endpoint_path(ENDPOINT_SYSTEMONE), endpoint_path(ENDPOINT_RERANK),
                  endpoint_path(ENDPOINT_POOLING), endpoint_path(ENDPOINT_RESPONSES),
                  endpoint_path(ENDPOINT_MESSAGES), endpoint_path(ENDPOINT_CLASSIFY));
}

/* The seconds of "90m", "24h" or "7d"; 0 for any other text. */
static int64_t window_seconds(struct str text) {
    int64_t count;
    if (text.bytes < 2 || text.bytes > 8 || text.at[0] < '1' || text.at[0] > '9') return 0;
    if (!str_to_i64((struct str){text.at, text.bytes - 1}, &count)) return 0;
    switch (text.at[text.bytes - 1]) {
    case 'm': return count * 60;
    case 'h': return count * 3600;
    case 'd': return count * 86400;
    default: return 0;
    }
}

static bool read_window(struct batch_parameters *parameters, const json_t *body,
                        const struct batch_rules *rules, struct refusal *refusal) {
    struct str window = {0};
    if (!read_required(body, "completion_window", &window, refusal)) return false;
    int64_t seconds = window_seconds(window);
    bool good = str_is(window, "24h") ||
                (rules->extended_windows && seconds >= WINDOW_S_MIN && seconds <= WINDOW_S_MAX);
    if (!good)
        return refuse(refusal, "invalid_value", "completion_window",
                      "Invalid value for 'completion_window': '%.*s'. Supported values are: %s.",
                      STR_ARGS(shown(window)),
                      rules->extended_windows ? "'1m' to '30d', in whole minutes (m), hours (h) or "
                                                "days (d)"
                                              : "'24h'");
    snprintf(parameters->completion_window, sizeof parameters->completion_window, "%.*s",
             STR_ARGS(window));
    parameters->window_s = seconds;
    return true;
}

static bool check_pair(const char *key, const json_t *value, struct refusal *refusal) {
    char param[sizeof "metadata." + 4 * METADATA_KEY_CHARACTERS_MAX];
    struct str name = str_from(key);
    if (utf8_count(name) > METADATA_KEY_CHARACTERS_MAX)
        return refuse(refusal, "string_above_max_length", "metadata",
                      "Invalid 'metadata': the key '%.*s…' has %zu characters; at most %d are "
                      "allowed.",
                      STR_ARGS(shown(name)), utf8_count(name), METADATA_KEY_CHARACTERS_MAX);
    snprintf(param, sizeof param, "metadata.%s", key);
    if (!json_is_string(value)) return refuse_type(refusal, param, "a string", value);
    size_t characters = utf8_count(json_str(value));
    if (characters > METADATA_VALUE_CHARACTERS_MAX)
        return refuse(refusal, "string_above_max_length", param,
                      "Invalid '%s': the value has %zu characters; at most %d are allowed.", param,
                      characters, METADATA_VALUE_CHARACTERS_MAX);
    return true;
}

static bool read_metadata(struct batch_parameters *parameters, const json_t *body,
                          struct refusal *refusal) {
    json_t *metadata = json_member(body, "metadata");
    if (!metadata) return true;
    if (!json_is_object(metadata)) return refuse_type(refusal, "metadata", "an object", metadata);
    if (json_object_size(metadata) > METADATA_PAIRS_MAX)
        return refuse(refusal, "object_above_max_properties", "metadata",
                      "Invalid 'metadata': it has %zu pairs; at most %d are allowed.",
                      json_object_size(metadata), METADATA_PAIRS_MAX);
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value) {
        if (!check_pair(key, value, refusal)) return false;
    }
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    json_write(&text, metadata);
    parameters->metadata = mem_text(text.at);
    buf_release(&text);
    return true;
}

static bool read_expiry(struct batch_parameters *parameters, const json_t *body,
                        struct refusal *refusal) {
    const json_t *expiry = json_member(body, "output_expires_after");
    if (!expiry) return true;
    if (!json_is_object(expiry))
        return refuse_type(refusal, "output_expires_after", "an object", expiry);
    const json_t *anchor = json_member(expiry, "anchor");
    const json_t *seconds = json_member(expiry, "seconds");
    if (!anchor || !seconds)
        return refuse_missing(refusal, anchor ? "output_expires_after.seconds"
                                              : "output_expires_after.anchor");
    if (!json_is_string(anchor))
        return refuse_type(refusal, "output_expires_after.anchor", "a string", anchor);
    if (!str_is(json_str(anchor), "created_at"))
        return refuse(refusal, "invalid_value", "output_expires_after.anchor",
                      "Invalid value for 'output_expires_after.anchor': '%.*s'. Supported values "
                      "are: 'created_at'.",
                      STR_ARGS(shown(json_str(anchor))));
    if (!json_is_integer(seconds))
        return refuse_type(refusal, "output_expires_after.seconds", "an integer", seconds);
    int64_t value = json_integer_value(seconds);
    if (value < EXPIRES_AFTER_S_MIN || value > EXPIRES_AFTER_S_MAX)
        return refuse(refusal,
                      value < EXPIRES_AFTER_S_MIN ? "integer_below_min_value"
                                                  : "integer_above_max_value",
                      "output_expires_after.seconds",
                      "Invalid 'output_expires_after.seconds': %" PRId64 " is outside %d to %d.",
                      value, EXPIRES_AFTER_S_MIN, EXPIRES_AFTER_S_MAX);
    parameters->output_expires_after_s = value;
    return true;
}

static bool read_priority(struct batch_parameters *parameters, const json_t *body,
                          struct refusal *refusal) {
    const json_t *priority = json_member(body, "priority");
    if (!priority) return true;
    if (!json_is_integer(priority)) return refuse_type(refusal, "priority", "an integer", priority);
    int64_t value = json_integer_value(priority);
    if (value < INT32_MIN || value > INT32_MAX)
        return refuse(refusal, value < 0 ? "integer_below_min_value" : "integer_above_max_value",
                      "priority", "Invalid 'priority': %" PRId64 " does not fit in 32 bits.",
                      value);
    parameters->priority = (int32_t)value;
    return true;
}

static bool read_webhook(struct batch_parameters *parameters, const json_t *body,
                         const struct batch_rules *rules, struct refusal *refusal) {
    const json_t *url = json_member(body, "webhook_url");
    if (!url) return true;
    if (!json_is_string(url)) return refuse_type(refusal, "webhook_url", "a string", url);
    struct str text = json_str(url);
    bool is_http = rules->webhook_http && str_starts_with(text, STR("http://"));
    bool good = (is_http || str_starts_with(text, STR("https://"))) &&
                text.bytes > strlen("https://") && text.bytes <= URL_BYTES_MAX;
    for (size_t i = 0; i < text.bytes; i++)
        if ((unsigned char)text.at[i] <= ' ' || text.at[i] == 0x7F) good = false;
    if (!good)
        return refuse(refusal, "invalid_value", "webhook_url",
                      "Invalid value for 'webhook_url': '%.*s' is not an https URL of at most %d "
                      "bytes.",
                      STR_ARGS(shown(text)), URL_BYTES_MAX);
    parameters->webhook_url = mem_text(json_string_value(url));
    return true;
}

static bool read_tier(struct batch_parameters *parameters, const json_t *body,
                      struct refusal *refusal) {
    const json_t *tier = json_member(body, "service_tier");
    if (!tier) return true;
    if (!json_is_string(tier)) return refuse_type(refusal, "service_tier", "a string", tier);
    for (size_t i = 0; i < sizeof tiers / sizeof *tiers; i++) {
        if (!str_is(json_str(tier), tiers[i])) continue;
        snprintf(parameters->service_tier, sizeof parameters->service_tier, "%s", tiers[i]);
        return true;
    }
    return refuse(refusal, "invalid_value", "service_tier",
                  "Invalid value for 'service_tier': '%.*s'. Supported values are: 'auto', "
                  "'default', 'flex', 'scale', 'priority', 'fast', and 'batch'.",
                  STR_ARGS(shown(json_str(tier))));
}

static bool read_key(struct batch_parameters *parameters, const json_t *body,
                     struct refusal *refusal) {
    const json_t *key = json_member(body, "idempotency_key");
    if (!key) return true;
    if (!json_is_string(key)) return refuse_type(refusal, "idempotency_key", "a string", key);
    struct str text = json_str(key);
    bool good = text.bytes > 0 && text.bytes < sizeof parameters->idempotency_key;
    for (size_t i = 0; i < text.bytes && good; i++) good = (unsigned char)text.at[i] >= ' ';
    if (!good)
        return refuse(refusal, "invalid_value", "idempotency_key",
                      "Invalid 'idempotency_key': it has %zu bytes, not 1 to %zu, or control "
                      "characters.",
                      text.bytes, sizeof parameters->idempotency_key - 1);
    memcpy(parameters->idempotency_key, text.at, text.bytes);
    return true;
}

static void hash_parameters(struct batch_parameters *parameters, const json_t *body) {
    json_t *copy = json_copy((json_t *)(uintptr_t)body);
    if (!copy) no_memory();
    json_object_del(copy, "idempotency_key");
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    json_write_canonical(&text, copy);
    struct sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, text.at, text.bytes);
    sha256_end(&hash, parameters->sha256);
    buf_release(&text);
    json_decref(copy);
}

bool batch_parameters_read(struct batch_parameters *ret_parameters, const json_t *body,
                           const struct batch_rules *rules, struct refusal *ret_refusal) {
    struct batch_parameters parameters = {0};
    if (!json_is_object(body))
        return refuse(ret_refusal, "invalid_type", "",
                      "Invalid request: expected a JSON object, but got %s instead.",
                      json_kind_name(body));
    bool good = read_input(&parameters, body, ret_refusal) &&
                read_endpoint(&parameters, body, rules, ret_refusal) &&
                read_window(&parameters, body, rules, ret_refusal) &&
                read_metadata(&parameters, body, ret_refusal) &&
                read_expiry(&parameters, body, ret_refusal) &&
                read_priority(&parameters, body, ret_refusal) &&
                read_webhook(&parameters, body, rules, ret_refusal) &&
                read_tier(&parameters, body, ret_refusal) &&
                read_key(&parameters, body, ret_refusal) &&
                batch_extras_read(body, &parameters.extras, ret_refusal);
    if (!good) {
        batch_parameters_release(&parameters);
        return false;
    }
    hash_parameters(&parameters, body);
    *ret_parameters = parameters;
    return true;
}

static void write_choices(struct buf *buf, const char *const *texts, size_t count) {
    for (size_t i = 0; i < count; i++) buf_printf(buf, "%s\"%s\"", i ? "," : "", texts[i]);
}

/* The schema leaves out the windows, which depend on the operator's rules. */
void batch_parameters_write_schema(struct buf *buf) {
    const char *paths[ENDPOINT_COUNT];
    for (int i = 0; i < ENDPOINT_COUNT; i++) paths[i] = endpoint_path((enum endpoint)i);
    buf_printf(buf,
               "{\"type\":\"object\",\"required\":[\"input_file_id\",\"endpoint\","
               "\"completion_window\"],\"properties\":{\"input_file_id\":{\"type\":\"string\","
               "\"minLength\":1,\"maxLength\":%d},\"endpoint\":{\"type\":\"string\",\"enum\":[",
               STORE_ID_BYTES - 1);
    write_choices(buf, paths, ENDPOINT_COUNT);
    buf_printf(buf,
               "]},\"completion_window\":{\"type\":\"string\",\"examples\":[\"24h\"]},"
               "\"metadata\":{\"type\":[\"object\",\"null\"],\"maxProperties\":%d,"
               "\"propertyNames\":{\"maxLength\":%d},\"additionalProperties\":{\"type\":"
               "\"string\",\"maxLength\":%d}},",
               METADATA_PAIRS_MAX, METADATA_KEY_CHARACTERS_MAX, METADATA_VALUE_CHARACTERS_MAX);
    buf_printf(buf,
               "\"output_expires_after\":{\"type\":[\"object\",\"null\"],\"required\":["
               "\"anchor\",\"seconds\"],\"properties\":{\"anchor\":{\"type\":\"string\",\"enum\":["
               "\"created_at\"]},\"seconds\":{\"type\":\"integer\",\"minimum\":%d,\"maximum\":%d}}}"
               ",\"priority\":{\"type\":[\"integer\",\"null\"],\"minimum\":%" PRId32
               ",\"maximum\":%" PRId32 "},",
               EXPIRES_AFTER_S_MIN, EXPIRES_AFTER_S_MAX, INT32_MIN, INT32_MAX);
    buf_printf(buf,
               "\"webhook_url\":{\"type\":[\"string\",\"null\"],\"format\":\"uri\","
               "\"maxLength\":%d},\"idempotency_key\":{\"type\":[\"string\",\"null\"],"
               "\"minLength\":1,\"maxLength\":%zu},\"service_tier\":{\"enum\":[",
               URL_BYTES_MAX, sizeof((struct batch_parameters *)NULL)->idempotency_key - 1);
    write_choices(buf, tiers, sizeof tiers / sizeof *tiers);
    buf_add_text(buf, ",null]}}}");
}

void batch_parameters_release(struct batch_parameters *parameters) {
    free(parameters->metadata);
    free(parameters->webhook_url);
    free(parameters->extras);
    parameters->metadata = parameters->webhook_url = parameters->extras = NULL;
}
