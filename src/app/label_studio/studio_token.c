/* SPDX-License-Identifier: Apache-2.0 */
#include "label_studio/studio_token.h"

#include "base/base64.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/no_memory.h"
#include "json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAYLOAD_BYTES_MAX 4096
#define EARLY_S 30           /* s; the most that a call takes to arrive */
#define LIFETIME_S_USUAL 300 /* s; assumed for a token without `exp` or `iat` */

int64_t studio_token_claim(struct str text, const char *name) {
    unsigned char payload[PAYLOAD_BYTES_MAX];
    size_t first = str_find_byte(text, '.', 0), bytes;
    size_t second = first == SIZE_MAX ? SIZE_MAX : str_find_byte(text, '.', first + 1);
    json_t *object = NULL;
    struct error ignored;
    struct buf part; /* in the alphabet and with the padding that base64_read wants */
    int64_t value = 0;
    if (second == SIZE_MAX) return 0;
    buf_init(&part, 2 * (size_t)PAYLOAD_BYTES_MAX);
    for (size_t i = first + 1; i < second; i++) {
        char c = text.at[i];
        buf_add_byte(&part, c == '-' ? '+' : c == '_' ? '/' : c);
    }
    while (part.bytes % 4 != 0) buf_add_byte(&part, '=');
    if (!part.overflowed && base64_read(buf_str(&part), payload, sizeof payload, &bytes) &&
        json_read(&object, (struct str){(const char *)payload, bytes}, &ignored) == OK) {
        const json_t *claim = json_member(object, name);
        if (json_is_integer(claim)) value = (int64_t)json_integer_value(claim);
    }
    json_decref(object);
    buf_release(&part);
    return value;
}

static void wipe(char **text) {
    if (*text) explicit_bzero(*text, strlen(*text));
    free(*text);
    *text = NULL;
}

static void set_line(struct studio_token *token, const char *scheme, struct str text) {
    wipe(&token->line);
    if (asprintf(&token->line, "Authorization: %s %.*s", scheme, STR_ARGS(text)) < 0) no_memory();
}

void studio_token_init(struct studio_token *ret_token, const char *text) {
    *ret_token = (struct studio_token){.text = mem_text(text)};
    ret_token->is_personal = studio_token_claim(str_from(text), "exp") != 0;
    if (!ret_token->is_personal) set_line(ret_token, "Token", str_from(text));
}

void studio_token_release(struct studio_token *token) {
    wipe(&token->text);
    wipe(&token->line);
}

bool studio_token_forget(struct studio_token *token) {
    if (token->is_personal) wipe(&token->line);
    return token->is_personal;
}

/* True if the text may stand in a header. */
static bool is_word(struct str text) {
    for (size_t i = 0; i < text.bytes; i++)
        if (text.at[i] <= ' ' || text.at[i] > '~') return false;
    return text.bytes > 0;
}

static enum err take_answer(struct studio_token *token, const struct remote_answer *answer,
                            struct error *error) {
    json_t *object = NULL;
    struct error ignored;
    (void)!json_read(&object, answer->body, &ignored);
    struct str access = json_member_str(object, "access");
    bool is_good = is_word(access);
    if (is_good) {
        int64_t ends = studio_token_claim(access, "exp"),
                begins = studio_token_claim(access, "iat");
        int64_t lasts_s = ends > begins && begins > 0 ? ends - begins : LIFETIME_S_USUAL;
        int64_t early_s = lasts_s > 2 * EARLY_S ? EARLY_S : lasts_s / 2;
        if (lasts_s > 86400) lasts_s = 86400;
        set_line(token, "Bearer", access);
        token->renew_ns = clock_monotonic_ns() + (lasts_s - early_s) * 1000000000;
    }
    json_decref(object);
    return is_good ? OK
                   : err_set(error, ERR_CORRUPT, "Label Studio gives no token for the one sent");
}

enum err studio_token_ready(struct studio_token *token, struct remote *remote,
                            struct error *error) {
    bool is_valid = token->line && (token->renew_ns == 0 || clock_monotonic_ns() < token->renew_ns);
    struct remote_answer answer;
    struct buf body;
    if (is_valid) return OK;
    buf_init(&body, BUF_UNLIMITED);
    buf_add_text(&body, "{\"refresh\":");
    json_write_string(&body, str_from(token->text));
    buf_add_byte(&body, '}');
    const struct remote_call call = {.path = "/api/token/refresh/", .body = buf_str(&body)};
    enum err err = remote_get(remote, &call, &answer, error);
    explicit_bzero(body.at, body.bytes);
    buf_release(&body);
    if (err == OK) err = remote_judge(remote, &answer, error);
    return err == OK ? take_answer(token, &answer, error)
                     : err_prefix(error, "the personal access token");
}
