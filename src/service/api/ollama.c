/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/ollama.h"

#include "api/api_internal.h"
#include "api/dialects.h"

/* Ollama's own API: the routes that answer. Requests go through dialects/ollama.h; ollama_models.c
 * has what it says about models. */

/* The version of Ollama whose API this is. Clients refuse older ones, and read numbers and dots
 * only; quern's own version is in /version. */
#define OLLAMA_VERSION "0.33.0"

void ollama_post_chat(void *context, struct http_request *request) {
    api_answer_in(context, request, &ollama_chat);
}

void ollama_post_generate(void *context, struct http_request *request) {
    api_answer_in(context, request, &ollama_generate);
}

void ollama_post_embed(void *context, struct http_request *request) {
    api_answer_in(context, request, &ollama_embed);
}

void ollama_post_embeddings(void *context, struct http_request *request) {
    api_answer_in(context, request, &ollama_embeddings);
}

void ollama_get_version(void *context, struct http_request *request) {
    (void)context;
    http_answer(request, &(struct http_answer){.status = 200,
                                               .body = STR("{\"version\":\"" OLLAMA_VERSION "\"}"),
                                               .is_static = true});
}

/* Clients ask whether models may run elsewhere: none does. */
void ollama_get_status(void *context, struct http_request *request) {
    (void)context;
    http_answer(request, &(struct http_answer){
                             .status = 200,
                             .body = STR("{\"cloud\":{\"disabled\":true,\"source\":\"env\"}}"),
                             .is_static = true});
}

/* Routes of Ollama's hosted service. */
void ollama_hosted(void *context, struct http_request *request) {
    (void)context;
    api_fail(request, 501, "unsupported_endpoint", NULL,
             "%s is not supported by this server: it has no accounts and asks no other service",
             http_request_route(request)->pattern);
}

void ollama_unsupported(void *context, struct http_request *request) {
    (void)context;
    api_fail(request, 501, "unsupported_endpoint", NULL,
             "%s is not supported by this server: models are made with the tools of their makers, "
             "and fetched with 'quern pull'",
             http_request_route(request)->pattern);
}
