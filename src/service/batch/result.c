/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/result.h"

#include "json/span.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

static const struct {
    const char *code, *message;
} outcomes[] = {
    [BATCH_NOT_IN_WINDOW] = {"batch_expired",
                             "This request could not be executed before the completion window "
                             "expired."},
    [BATCH_WAS_CANCELLED] = {"batch_cancelled",
                             "This request was not executed because the batch was cancelled."},
    [BATCH_TIMED_OUT] = {"request_timeout", "The model did not answer this request in time."},
    [BATCH_SERVER_FAULTED] = {"batch_failed",
                              "This request was not executed because of a server fault that ended "
                              "the batch."},
};

void batch_result_write(struct buf *buf, const struct batch_result *result) {
    /* The id is made of the batch's 32 digits and the request's number: unique, and equal in every
     * run. */
    const char *digits = strchr(result->batch_id, '_');
    buf_printf(buf, "{\"id\":\"batch_req_%s%08" PRIx64 "\",\"custom_id\":",
               digits ? digits + 1 : result->batch_id, result->line);
    buf_add_str(buf, result->custom_id);
    if (result->outcome == BATCH_RAN) {
        buf_printf(buf, ",\"response\":{\"status_code\":%d,\"request_id\":\"%.*s\",\"body\":",
                   result->status, STR_ARGS(result->request_id));
        buf_add_str(buf, result->body);
        buf_add_text(buf, "},\"error\":null}\n");
        return;
    }
    buf_printf(buf, ",\"response\":null,\"error\":{\"code\":\"%s\",\"message\":\"%s\"}}\n",
               outcomes[result->outcome].code, outcomes[result->outcome].message);
}

enum seglog_kind batch_result_kind(int32_t status) {
    return status >= 200 && status < 300 ? SEGLOG_SUCCESS : SEGLOG_ERROR;
}

void batch_custom_id_write(struct buf *buf, struct str string) {
    assert(json_span_is_string(string));
    json_span_add_ascii(buf, string);
}

bool batch_body_read(struct str text, struct buf *scratch, struct str *ret_body) {
    struct str value;
    if (!json_span_read(text, &value) || !json_span_is_object(value)) return false;
    bool plain = true;
    for (size_t i = 0; i < value.bytes; i++)
        if ((unsigned char)value.at[i] >= 0x80 || value.at[i] == '\n' || value.at[i] == '\r')
            plain = false;
    if (plain) {
        *ret_body = value;
        return true;
    }
    if (!json_span_is_utf8(value)) return false;
    buf_clear(scratch);
    json_span_add_ascii(scratch, value);
    if (scratch->overflowed) return false;
    /* In valid JSON, line breaks are only space between values. */
    for (size_t i = 0; i < scratch->bytes; i++)
        if (scratch->at[i] == '\n' || scratch->at[i] == '\r') scratch->at[i] = ' ';
    *ret_body = buf_str(scratch);
    return true;
}
