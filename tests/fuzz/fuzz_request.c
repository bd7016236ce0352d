/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/messages.h"
#include "engine/request.h"
#include "json/json.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define VOCABULARY 1000

static void check_list(const struct token_list *list) {
    for (uint32_t i = 0; i < list->count; i++) assert(list->at[i] >= 0 && list->at[i] < VOCABULARY);
}

/* The promises of request.h for an accepted request. */
static void check(const struct request *request) {
    assert(request->temperature >= 0 && request->temperature <= 2);
    assert(request->top_p >= 0 && request->top_p <= 1);
    assert(request->min_p >= 0 && request->min_p <= 1);
    assert(request->top_k >= -1);
    assert(request->choices >= 1 && request->choices <= REQUEST_CHOICES_MAX);
    assert(request->prompt_count >= 1 && request->prompt_count <= REQUEST_SEQUENCES_MAX);
    assert(request->prompt_count * (size_t)request->choices <= REQUEST_SEQUENCES_MAX);
    assert(request->max_tokens >= 0 && request->min_tokens >= 0);
    assert(request->top_logprobs >= 0 && request->top_logprobs <= REQUEST_TOP_LOGPROBS_MAX);
    assert(request->stop_count <= REQUEST_STOPS_MAX);
    for (size_t i = 0; i < request->stop_count; i++) assert(request->stops[i].bytes > 0);
    check_list(&request->stop_tokens);
    check_list(&request->allowed_tokens);
    check_list(&request->logprob_tokens);
    assert(request->candidates >= request->choices && request->candidates <= REQUEST_CHOICES_MAX);
    assert(request->prompt_count * (size_t)request->candidates <= REQUEST_SEQUENCES_MAX);
    assert(request->prompt_logprobs >= 0 && request->prompt_logprobs <= REQUEST_TOP_LOGPROBS_MAX);
    assert(!request->bad_words || json_is_array(request->bad_words));
    assert(request->request_id.bytes <= REQUEST_ID_BYTES_MAX);
    for (size_t i = 0; i < request->bias_count; i++)
        assert(request->biases[i].bias >= -100 && request->biases[i].bias <= 100);
}

/* The first byte chooses the endpoint, the rest is the body. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    char *body = malloc(size);
    if (!body) abort();
    memcpy(body, data + 1, size - 1);
    enum endpoint endpoint = data[0] & 1 ? ENDPOINT_COMPLETIONS : ENDPOINT_CHAT;
    struct request request;
    struct refusal refusal;
    if (request_parse(&request, endpoint, (struct str){body, size - 1}, VOCABULARY, &refusal)) {
        check(&request);
        if (endpoint == ENDPOINT_CHAT) {
            messages_clean(request.messages,
                           (struct messages_options){data[0] & 2, data[0] & 4, data[0] & 8});
            (void)messages_last_text(request.messages);
        }
        request_release(&request);
    } else {
        struct buf text;
        buf_init(&text, 1 << 20);
        refusal_write(&text, &refusal);
        json_t *value;
        enum err err = json_read(&value, buf_str(&text), NULL);
        assert(err == OK); /* an answer is JSON for every question */
        json_decref(value);
        buf_release(&text);
    }
    free(body);
    return 0;
}
