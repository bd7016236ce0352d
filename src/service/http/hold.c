/* SPDX-License-Identifier: Apache-2.0 */
#include "http/server.h"

bool http_request_is_held(struct http_request *request) {
    const struct http_options *options = &request->server->options;
    const struct http_route *route = request->match.route;
    const char *sentence =
        options->hold && route ? options->hold(options->context, route, true) : NULL;
    if (sentence) http_request_fail(request, 503, sentence, "copy_unavailable");
    return sentence != NULL;
}

bool http_request_is_refused(struct http_request *request) {
    const struct http_options *options = &request->server->options;
    const char *sentence =
        options->hold ? options->hold(options->context, request->match.route, false) : NULL;
    if (sentence) http_request_fail(request, 503, sentence, "copy_unavailable");
    return sentence != NULL;
}
