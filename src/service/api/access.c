/* SPDX-License-Identifier: Apache-2.0 */
#include "api/access.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

#define PATH_BYTES 256    /* limit for a path in a line */
#define CLOSED_STATUS 499 /* as nginx names a connection that ended before an answer */

/* Lines per second, and at once after a pause. At about 250 bytes per line the three together are
 * at most 3 GB per day. */
static const struct {
    double per_s, at_once;
} rates[ACCESS_KINDS] = {
    [ACCESS_SERVED] = {100, 2000}, [ACCESS_REFUSED] = {20, 200}, [ACCESS_UNKNOWN] = {10, 100}};

void access_init(struct access *access, bool leaves_out_served, const char *left_out) {
    *access = (struct access){.leaves_out_served = leaves_out_served, .left_out = left_out};
    pthread_mutex_init(&access->lock, NULL);
    for (int kind = 0; kind < ACCESS_KINDS; kind++)
        access->buckets[kind].lines = rates[kind].at_once;
}

void access_release(struct access *access) {
    pthread_mutex_destroy(&access->lock);
}

bool access_take(struct access *access, enum access_kind kind, int64_t now_ns,
                 uint64_t *ret_skipped) {
    pthread_mutex_lock(&access->lock);
    struct access_bucket *bucket = &access->buckets[kind];
    if (now_ns > bucket->filled_ns) {
        bucket->lines += (double)(now_ns - bucket->filled_ns) / 1e9 * rates[kind].per_s;
        if (bucket->lines > rates[kind].at_once) bucket->lines = rates[kind].at_once;
        bucket->filled_ns = now_ns;
    }
    bool may = bucket->lines >= 1;
    *ret_skipped = may ? bucket->skipped : 0;
    if (may) {
        bucket->lines -= 1;
        bucket->skipped = 0;
    } else {
        bucket->skipped++;
        atomic_fetch_add(&access->skipped_total, 1);
    }
    pthread_mutex_unlock(&access->lock);
    return may;
}

/* Counts a line that standard error did not take; `lines` counts it and those that it was to tell
 * of. */
static void give_up(struct access *access, enum access_kind kind, uint64_t lines) {
    pthread_mutex_lock(&access->lock);
    access->buckets[kind].skipped += lines;
    atomic_fetch_add(&access->skipped_total, 1);
    pthread_mutex_unlock(&access->lock);
}

/* --- sentences --- */

static bool is_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("._:/[]$-", c));
}

/* True for a quotation that may stand in the log. */
static bool may_stand(const struct http_note *note, struct str quoted) {
    if (str_is(quoted, note->param)) return true;
    if (note->is_foreign || quoted.bytes > 64) return false;
    if (str_find(quoted, STR("//"), 0) != SIZE_MAX) return false; /* a URL may hold a secret */
    for (size_t i = 0; i < quoted.bytes; i++)
        if (!is_name_byte(quoted.at[i])) return false;
    return true;
}

void access_sentence(const struct http_note *note, char ret_text[HTTP_NOTE_BYTES]) {
    const size_t most = HTTP_NOTE_BYTES - 8;
    size_t bytes = 0;
    const char *at = note->sentence;
    while (*at && bytes < most) {
        /* An apostrophe inside a word opens no quotation. */
        bool opens = (*at == '\'' || *at == '"') &&
                     (at == note->sentence || !is_name_byte(at[-1]) || at[-1] == ':');
        if (!opens) {
            ret_text[bytes++] = *at++;
            continue;
        }
        const char *end = strchr(at + 1, *at);
        struct str quoted = {at + 1, end ? (size_t)(end - at - 1) : strlen(at + 1)};
        bool stands = end && may_stand(note, quoted);
        if (stands && quoted.bytes + 2 <= most - bytes) {
            memcpy(ret_text + bytes, at, quoted.bytes + 2);
            bytes += quoted.bytes + 2;
        } else {
            memcpy(ret_text + bytes, "'…'", sizeof "'…'" - 1);
            bytes += sizeof "'…'" - 1;
            if (!end || note->is_foreign || bytes >= most) break;
        }
        at = end + 1;
    }
    ret_text[bytes] = '\0';
}

/* --- lines --- */

static bool is_left_out(const struct access *access, struct str path) {
    struct str rest = str_from(access->left_out);
    while (rest.bytes > 0) {
        size_t end = str_find_byte(rest, ',', 0);
        struct str one = {rest.at, end == SIZE_MAX ? rest.bytes : end};
        if (str_equals(str_trim(one), path)) return true;
        rest = str_skip(rest, end == SIZE_MAX ? rest.bytes : end + 1);
    }
    return false;
}

static enum access_kind kind_of(const struct http_done *done, int status) {
    bool is_refusal = (status >= 400 && status < 500) || status == 503;
    if (!is_refusal) return ACCESS_SERVED;
    return done->is_known ? ACCESS_REFUSED : ACCESS_UNKNOWN;
}

static enum log_level level_of(const struct access *access, int status, bool is_probe) {
    if (status >= 500 && status != 503) return LOG_WARN;
    if (status >= 400 && !(is_probe && status == 503)) return LOG_INFO;
    return access->leaves_out_served || is_probe ? LOG_DEBUG : LOG_INFO;
}

static bool tell_skipped(enum access_kind kind, uint64_t skipped) {
    static const char *const names[ACCESS_KINDS] = {"served", "refused", "unknown"};
    return skipped == 0 ||
           log_offer(LOG_INFO, "event=access_log_skipped kind=%s lines=%llu; too many to log",
                     names[kind], (unsigned long long)skipped);
}

static bool tell(const struct http_done *done, enum log_level level, int status) {
    static const struct http_note none;
    const struct http_note *note = done->note ? done->note : &none;
    char peer[ADDRESS_TEXT_BYTES], sentence[HTTP_NOTE_BYTES];
    int path_bytes = done->path.bytes < PATH_BYTES ? (int)done->path.bytes : PATH_BYTES;
    const char *owner = *done->owner ? done->owner : "default";
    double ms = (double)done->duration_ns / 1e6;
    address_write(done->peer, peer);
    if (status < 400)
        return log_offer(level,
                         "request_id=%s event=request method=%s path=%.*s status=%d bytes=%llu "
                         "body_bytes=%llu ms=%.1f peer=%s owner=%s key=%s",
                         done->request_id, done->method, path_bytes, done->path.at, status,
                         (unsigned long long)done->answer_bytes,
                         (unsigned long long)done->body_bytes, ms, peer,
                         done->is_known ? owner : "", done->is_known ? done->key_id : "");
    access_sentence(note, sentence);
    return log_offer(
        level,
        "request_id=%s event=request method=%s path=%.*s status=%d bytes=%llu "
        "body_bytes=%llu ms=%.1f peer=%s owner=%s key=%s code=%s param=%s error=\"%s\"",
        done->request_id, done->method, path_bytes, done->path.at, status,
        (unsigned long long)done->answer_bytes, (unsigned long long)done->body_bytes, ms, peer,
        done->is_known ? owner : "", done->is_known ? done->key_id : "", note->code, note->param,
        sentence);
}

void access_log(struct access *access, const struct http_done *done, bool is_probe,
                int64_t now_ns) {
    int status = done->status != 0 ? done->status : CLOSED_STATUS;
    enum log_level level = level_of(access, status, is_probe);
    enum access_kind kind = kind_of(done, status);
    uint64_t skipped;
    if (level > log_level() || is_left_out(access, done->path)) return;
    if (!access_take(access, kind, now_ns, &skipped)) return;
    if (!tell_skipped(kind, skipped))
        give_up(access, kind, skipped + 1);
    else if (!tell(done, level, status))
        give_up(access, kind, 1);
}

void access_log_gate(struct access *access, const struct http_refused *refused, int64_t now_ns) {
    char peer[ADDRESS_TEXT_BYTES];
    uint64_t skipped;
    if (LOG_INFO > log_level() || !access_take(access, ACCESS_UNKNOWN, now_ns, &skipped)) return;
    if (!tell_skipped(ACCESS_UNKNOWN, skipped))
        give_up(access, ACCESS_UNKNOWN, skipped + 1);
    else if (!log_offer(LOG_INFO,
                        "request_id=%s event=connection_refused status=%d peer=%s error=\"%s\"",
                        refused->request_id, refused->status, address_write(refused->peer, peer),
                        refused->sentence))
        give_up(access, ACCESS_UNKNOWN, 1);
}
