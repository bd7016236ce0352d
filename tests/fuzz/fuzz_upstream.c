/* SPDX-License-Identifier: Apache-2.0 */
#include "json/json.h"
#include "net/sse.h"
#include "workers/upstream/models.h"
#include "workers/upstream/reader.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Everything that is read from an upstream, on an exact-size copy. For any bytes the result is one
 * JSON object in ASCII on one line, and a stream means the same for any cut. */

static void check_object(struct str text) {
    json_t *value;
    struct error error;
    for (size_t i = 0; i < text.bytes; i++)
        assert((unsigned char)text.at[i] < 0x80 && text.at[i] != '\n' && text.at[i] != '\r');
    if (json_read(&value, text, &error) != OK) {
        /* Numbers that no double holds and a NUL in a key pass through the span reader. */
        assert(strstr(error.text, "cannot hold") || strstr(error.text, "NUL in a key") ||
               strstr(error.text, "\\u0000"));
        return;
    }
    assert(json_is_object(value));
    json_decref(value);
}

struct listener {
    struct buf chunk;
    struct buf all;
    struct upstream_stream_end end;
};

static bool take(void *context, struct str data) {
    struct listener *listener = context;
    enum upstream_event event = upstream_read_event(&listener->chunk, data, "ours", &listener->end);
    if (event == UPSTREAM_EVENT_CHUNK || event == UPSTREAM_EVENT_USAGE ||
        event == UPSTREAM_EVENT_ERROR)
        check_object(buf_str(&listener->chunk));
    buf_add_byte(&listener->all, (char)('0' + event));
    buf_add_str(&listener->all, data);
    return event != UPSTREAM_EVENT_BAD;
}

static bool listen(struct listener *listener, struct str text, size_t cut) {
    struct net_sse sse = {.has_data = false};
    *listener = (struct listener){.end = {.has_choice = false}};
    buf_init(&listener->chunk, 1 << 20);
    buf_init(&listener->all, 1 << 20);
    buf_init(&sse.line, 1 << 16);
    buf_init(&sse.data, 1 << 16);
    bool good = net_sse_feed(&sse, (struct str){text.at, cut}, take, listener) &&
                net_sse_feed(&sse, str_skip(text, cut), take, listener);
    buf_release(&sse.line);
    buf_release(&sse.data);
    buf_release(&listener->chunk);
    return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int statuses[] = {200, 201, 204, 302, 400, 404, 422, 429, 500, 503, 0, 999};
    if (size < 2) return 0;
    int status = statuses[data[0] % (sizeof statuses / sizeof *statuses)];
    size_t bytes = size - 2;
    char *copy = malloc(bytes ? bytes : 1);
    if (!copy) abort();
    memcpy(copy, data + 2, bytes);
    struct str text = {copy, bytes};
    struct buf buf;
    struct upstream_reading reading;
    buf_init(&buf, 1 << 20);
    const struct upstream_asked asked = {.endpoint = data[1] % ENDPOINT_ALL_COUNT,
                                         .request = text,
                                         .model = data[0] & 0x80 ? "ours" : NULL,
                                         .name = "up"};
    upstream_read_answer(&buf, status, text, &asked, &reading);
    check_object(reading.body);
    assert(reading.usage.cached_tokens <= reading.usage.input_tokens);
    buf_release(&buf);

    struct listener whole, parts;
    bool good = listen(&whole, text, 0);
    bool same = listen(&parts, text, bytes ? data[1] % bytes : 0);
    assert(good == same && str_equals(buf_str(&whole.all), buf_str(&parts.all)));
    assert(memcmp(&whole.end.usage, &parts.end.usage, sizeof whole.end.usage) == 0);
    buf_release(&whole.all);
    buf_release(&parts.all);

    struct upstream_models *models = calloc(1, sizeof *models);
    static const struct upstream_spec spec;
    struct error error;
    if (!models) abort();
    upstream_models_init(models, &spec);
    assert((upstream_models_read(models, text, &error) == OK) == models->is_known);
    upstream_models_release(models);
    free(models);
    free(copy);
    return 0;
}
