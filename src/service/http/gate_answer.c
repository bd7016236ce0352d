/* SPDX-License-Identifier: Apache-2.0 */
#include "http/gate_answer.h"

#include "json/envelope.h"

static const char *reason_phrase(int status) {
    switch (status) {
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 417: return "Expectation Failed";
    case 431: return "Request Header Fields Too Large";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return status < 500 ? "Error" : "Server Error";
    }
}

void gate_answer_write(struct buf *buf, int status, const char *sentence, const char *request_id) {
    struct buf body;
    buf_init(&body, 4096);
    envelope_write(&body, status, NULL, NULL, str_from(sentence));
    buf_printf(buf,
               "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
               "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
               "x-request-id: %s\r\n%sConnection: close\r\n\r\n%.*s",
               status, reason_phrase(status), body.bytes, request_id,
               status == 503 ? "retry-after: 1\r\n" : "", STR_ARGS(buf_str(&body)));
    buf_release(&body);
}
