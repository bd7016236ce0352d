/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include "base/utf8.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* U+0080 to U+009F, which some terminals obey. */
static bool is_late_control(const char *at) {
    return (unsigned char)at[0] == 0xC2 && ((unsigned char)at[1] & 0xE0) == 0x80;
}

/* Sentences quote names out of strangers' files; such a name must not break a line of a log, nor
 * command a terminal. */
static void make_printable(char *text) {
    for (char *at = text; *at; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7F) *at = ' ';
        if (is_late_control(at)) at[0] = at[1] = '?';
    }
    struct str rest = str_from(text);
    for (size_t valid; (valid = utf8_valid_prefix(rest)) < rest.bytes;) {
        text += valid;
        *text = '?';
        rest = str_from(text);
    }
}

enum err(err_set)(struct error *error, enum err code, const char *format, ...) {
    assert(code != OK);
    if (!error) return code;
    va_list args;
    va_start(args, format);
    error->code = code;
    error->is_system = false;
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    make_printable(error->text);
    return code;
}

static enum err code_of_errno(int errno_value) {
    switch (errno_value) {
    case ENOSPC:
    case EDQUOT: return ERR_UNAVAILABLE;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS: return ERR_EXHAUSTED;
    case ENOENT: return ERR_NOT_FOUND;
    default: return ERR_IO;
    }
}

enum err(err_from_errno)(struct error *error, int errno_value, const char *format, ...) {
    enum err code = code_of_errno(errno_value);
    if (!error) return code;
    char sentence[ERROR_TEXT_BYTES / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    char reason[128];
    /* The GNU strerror_r returns the text, which may or may not lie in the buffer. */
    (void)err_set(error, code, "%s: %s", sentence, strerror_r(errno_value, reason, sizeof reason));
    error->is_system = true;
    return code;
}

enum err(err_prefix)(struct error *error, const char *format, ...) {
    assert(error->code != OK);
    char prefix[ERROR_TEXT_BYTES / 4];
    va_list args;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    char old[ERROR_TEXT_BYTES];
    memcpy(old, error->text, sizeof old);
    snprintf(error->text, sizeof error->text, "%s: %.*s", prefix,
             (int)(sizeof error->text - sizeof prefix - 4), old);
    make_printable(error->text);
    return error->code;
}

const char *err_name(enum err code) {
    switch (code) {
    case OK: return "ok";
    case ERR_INVALID: return "invalid";
    case ERR_NOT_FOUND: return "not_found";
    case ERR_CONFLICT: return "conflict";
    case ERR_LIMIT: return "limit";
    case ERR_CANCELLED: return "cancelled";
    case ERR_UNAVAILABLE: return "unavailable";
    case ERR_EXHAUSTED: return "exhausted";
    case ERR_DENIED: return "denied";
    case ERR_IO: return "io";
    case ERR_CORRUPT: return "corrupt";
    }
    return "unknown";
}
