/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/chain.h"

#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAUSE_MS 500
#define PAUSE_STEP_MS 50
#define SAY_NS INT64_C(60000000000) /* between two sentences about one name that cannot be read */
#define LATE_MAX 16    /* hints among which the newest base's is: a fenced server writes one */
#define STALE_MAX 1000 /* hints of servers that were paused before they wrote them */

void chain_log_name(uint64_t number, char ret_name[ENTRY_NAME_BYTES]) {
    snprintf(ret_name, ENTRY_NAME_BYTES, "log/%016" PRIu64, number);
}

static void base_name(uint64_t count, char ret_name[ENTRY_NAME_BYTES]) {
    snprintf(ret_name, ENTRY_NAME_BYTES, "base/%012" PRIu64, count);
}

bool chain_may_pass(enum err err) {
    return err == ERR_UNAVAILABLE || err == ERR_IO || err == ERR_EXHAUSTED;
}

bool chain_pause(const volatile bool *stop) {
    for (int ms = 0; ms < PAUSE_MS && !*stop; ms += PAUSE_STEP_MS) clock_sleep_ms(PAUSE_STEP_MS);
    return !*stop;
}

static enum err read_patiently(struct bucket *bucket, const char *name, const volatile bool *stop,
                               struct buf *ret_bytes, struct error *error) {
    int64_t say_ns = 0;
    for (;;) {
        buf_clear(ret_bytes);
        enum err err = bucket_read(bucket, name, ret_bytes, error);
        if (err == OK || !chain_may_pass(err)) return err;
        int64_t now_ns = clock_monotonic_ns();
        if (now_ns >= say_ns) {
            log_warn("event=copy_unread error=\"%s\"; trying again", error->text);
            say_ns = now_ns + SAY_NS;
        }
        if (!chain_pause(stop)) return err_set(error, ERR_CANCELLED, "stopped");
    }
}

enum err chain_read(struct bucket *bucket, const char *name, uint64_t number,
                    const volatile bool *stop, struct buf *ret_bytes,
                    struct entry_header *ret_header, struct error *error) {
    enum err err = read_patiently(bucket, name, stop, ret_bytes, error);
    if (err != OK) return err;
    err = entry_open(buf_str(ret_bytes), ret_header, error);
    if (err == OK && ret_header->number != number)
        err = err_set(error, ERR_CORRUPT, "it has the number %" PRIu64, ret_header->number);
    return err == OK ? OK : err_prefix(error, "the copy is damaged: %s", name);
}

/* Whether the name exists. */
static enum err look(struct bucket *bucket, void (*name_of)(uint64_t, char *), uint64_t number,
                     const volatile bool *stop, bool *ret_exists, struct error *error) {
    char name[ENTRY_NAME_BYTES];
    struct buf bytes;
    buf_init(&bytes, ENTRY_BYTES_MAX);
    name_of(number, name);
    enum err err = read_patiently(bucket, name, stop, &bytes, error);
    buf_release(&bytes);
    *ret_exists = err == OK;
    return err == ERR_NOT_FOUND ? OK : err;
}

/* The last of the names `from`, from + 1, … without a gap, of which the first exists (or is 0). */
static enum err find_last(struct bucket *bucket, void (*name_of)(uint64_t, char *), uint64_t from,
                          const volatile bool *stop, uint64_t *ret_last, struct error *error) {
    uint64_t there = from, step = 1, gone = 0;
    while (!gone) {
        bool exists;
        enum err err = look(bucket, name_of, there + step, stop, &exists, error);
        if (err != OK) return err;
        if (!exists) gone = there + step;
        if (exists) there += step;
        step *= 2;
    }
    while (gone - there > 1) {
        bool exists;
        uint64_t middle = there + (gone - there) / 2;
        enum err err = look(bucket, name_of, middle, stop, &exists, error);
        if (err != OK) return err;
        if (exists)
            there = middle;
        else
            gone = middle;
    }
    *ret_last = there;
    return OK;
}

static enum err read_hint(struct bucket *bucket, uint64_t count, const volatile bool *stop,
                          uint64_t *ret_number, struct error *error) {
    char name[ENTRY_NAME_BYTES];
    struct buf text;
    buf_init(&text, 64);
    base_name(count, name);
    enum err err = read_patiently(bucket, name, stop, &text, error);
    if (err == OK && !str_to_u64(buf_str(&text), ret_number))
        err = err_set(error, ERR_CORRUPT, "the copy is damaged: %s is no number", name);
    buf_release(&text);
    return err;
}

/* The number of an entry that exists, by the hints; 0: none is known. A late hint may name an entry
 * that a newer base should have removed, behind which there is a gap: so the highest number of the
 * last LATE_MAX hints counts. */
static enum err find_entry(struct bucket *bucket, uint64_t base_count, const volatile bool *stop,
                           uint64_t *ret_number, struct error *error) {
    enum err err = OK;
    uint64_t best = 0;
    for (uint64_t i = base_count; err == OK && i > 0 && base_count - i < STALE_MAX; i--) {
        uint64_t number;
        bool exists = false;
        if (best > 0 && base_count - i >= LATE_MAX) break;
        err = read_hint(bucket, i, stop, &number, error);
        if (err == OK && number > best)
            err = look(bucket, chain_log_name, number, stop, &exists, error);
        if (err == OK && exists) best = number;
    }
    *ret_number = best;
    return err;
}

enum err chain_find(struct bucket *bucket, const volatile bool *stop, struct chain_end *ret_end,
                    struct error *error) {
    char name[ENTRY_NAME_BYTES];
    struct chain_end end = {0};
    uint64_t known = 0;
    struct buf bytes;
    enum err err = find_last(bucket, base_name, 0, stop, &end.base_count, error);
    if (err == OK) err = find_entry(bucket, end.base_count, stop, &known, error);
    if (err == OK) err = find_last(bucket, chain_log_name, known, stop, &end.number, error);
    if (err == OK && end.number > 0) {
        buf_init(&bytes, ENTRY_BYTES_MAX);
        chain_log_name(end.number, name);
        err = chain_read(bucket, name, end.number, stop, &bytes, &end.header, error);
        buf_release(&bytes);
    }
    /* The hint of a new base is written before what the old one needs is removed. */
    end.base = known > end.header.base ? known : end.header.base;
    if (err == OK) *ret_end = end;
    return err;
}

enum err chain_note_base(struct bucket *bucket, uint64_t *count, uint64_t number,
                         struct error *error) {
    char name[ENTRY_NAME_BYTES], text[24];
    snprintf(text, sizeof text, "%" PRIu64, number);
    for (;;) {
        base_name(*count + 1, name);
        enum err err = bucket_write(bucket, name, str_from(text), true, error);
        if (err == OK || err == ERR_CONFLICT) ++*count;
        if (err != ERR_CONFLICT) return err;
    }
}
