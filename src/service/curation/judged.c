/* SPDX-License-Identifier: Apache-2.0 */
#include "curation/judged.h"

#include "base/map.h"
#include "base/mem.h"
#include "json/json.h"
#include "json/span.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 64            /* rows per read */
#define CURATORS_MAX 10000 /* a summary lists no more; a batch of today has 1,000 at most */

const char *const judged_verdicts[] = {"accepted", "corrected", "skipped", NULL};

struct judged {
    struct store *store;
    char batch_id[STORE_ID_BYTES];
    struct store_judgement_walk walk;
    struct store_judgement page[PAGE]; /* rows from `at` on are not told yet */
    size_t at, count;
    bool is_last_page;
    struct store_judgement opinion; /* the first one on the line; all zero: none */
};

void judged_open(struct judged **ret_judged, struct store *store, const char *batch_id,
                 uint64_t first, uint64_t last) {
    struct judged *judged = mem_new(1, sizeof *judged);
    judged->store = store;
    memcpy(judged->batch_id, batch_id, strnlen(batch_id, sizeof judged->batch_id - 1));
    judged->walk = (struct store_judgement_walk){
        .batch_id = judged->batch_id, .line = first, .line_last = last};
    *ret_judged = judged;
}

void judged_close(struct judged *judged) {
    if (!judged) return;
    store_judgements_release(judged->page + judged->at, judged->count - judged->at);
    store_judgement_release(&judged->opinion);
    free(judged);
}

/* Makes sure that judged->page[judged->at] is a row; false behind the last row. */
static bool has_row(struct judged *judged, enum err *ret_err, struct error *error) {
    bool has_more;
    *ret_err = OK;
    while (judged->at == judged->count && !judged->is_last_page) {
        judged->at = judged->count = 0;
        *ret_err = store_judgement_newest(judged->store, &judged->walk, PAGE, judged->page,
                                          &judged->count, &has_more, error);
        if (*ret_err != OK) return false;
        judged->is_last_page = !has_more;
    }
    return judged->at < judged->count;
}

static bool same_fields(const struct store_judgement *a, const struct store_judgement *b) {
    return !a->fields || !b->fields || strcmp(a->fields, b->fields) == 0;
}

/* Counts a row of the line, and takes it over. */
static void count_opinion(struct judged *judged, struct judged_line *line,
                          struct store_judgement *row) {
    struct store_judgement *opinion = &judged->opinion;
    line->count++;
    if (row->verdict != VERDICT_SKIPPED && line->opinions++ == 0) {
        *opinion = *row;
        return;
    }
    if (row->verdict != VERDICT_SKIPPED &&
        (row->verdict != opinion->verdict || !same_fields(row, opinion)))
        line->is_agreed = false;
    store_judgement_release(row);
}

enum err judged_next(struct judged *judged, judged_row_fn each, void *context,
                     struct judged_line *ret_line, struct error *error) {
    struct judged_line line = {.is_agreed = true};
    enum err err;
    store_judgement_release(&judged->opinion);
    while (has_row(judged, &err, error)) {
        struct store_judgement *row = &judged->page[judged->at];
        if (line.count > 0 && row->line != line.line) break;
        if (each) err = each(context, row, error);
        if (err != OK) return err;
        line.line = row->line;
        count_opinion(judged, &line, row);
        judged->at++;
    }
    if (line.opinions > 0) line.opinion = &judged->opinion;
    if (err == OK) *ret_line = line;
    return err;
}

/* --- JSON --- */

static void write_text(struct buf *buf, const char *name, const char *text) {
    buf_printf(buf, ",\"%s\":", name);
    if (text && *text)
        json_write_string(buf, str_from(text));
    else
        buf_add_text(buf, "null");
}

void judged_write(struct buf *buf, const struct store_judgement *judgement) {
    buf_add_text(buf, "{\"object\":\"batch.judgement\"");
    write_text(buf, "id", judgement->id);
    buf_printf(buf, ",\"seq\":%" PRIu64, judgement->seq);
    write_text(buf, "batch_id", judgement->batch_id);
    write_text(buf, "custom_id", judgement->custom_id);
    buf_printf(buf, ",\"line\":%" PRIu64, judgement->line);
    write_text(buf, "curator", judgement->curator);
    write_text(buf, "key_id", judgement->key_id);
    buf_printf(buf, ",\"created_at\":%" PRId64 ",\"version\":%" PRIu32 ",\"verdict\":\"%s\"",
               judgement->created_unix_s, judgement->version, judged_verdicts[judgement->verdict]);
    buf_printf(buf, ",\"flagged\":%s,\"fields\":", judgement->flagged ? "true" : "false");
    json_span_add_ascii(buf, judgement->fields ? str_from(judgement->fields) : STR("null"));
    buf_add_text(buf, ",\"rating\":");
    if (judgement->rating)
        buf_printf(buf, "%" PRId32, judgement->rating);
    else
        buf_add_text(buf, "null");
    write_text(buf, "comment", judgement->comment);
    buf_add_byte(buf, '}');
}

/* --- the summary --- */

/* Newest judgements of one curator, or of all. */
struct tally {
    char *curator; /* NULL: all */
    uint64_t lines, verdicts[VERDICT_COUNT], flagged;
};

struct summary {
    struct tally all;
    struct tally *curators;
    size_t count, capacity;
    struct map places; /* curator → place in `curators` */
    uint64_t compared, agreed;
};

static void count_row(struct tally *tally, const struct store_judgement *row) {
    tally->verdicts[row->verdict]++;
    tally->flagged += row->flagged;
}

/* The tally of a curator; NULL if there are too many. */
static struct tally *tally_of(struct summary *summary, const char *curator) {
    uint64_t place = summary->count;
    if (summary->count == CURATORS_MAX)
        return map_get(&summary->places, str_from(curator), &place) ? &summary->curators[place]
                                                                    : NULL;
    if (map_put_new(&summary->places, str_from(curator), place, &place)) {
        summary->curators = vec_grow(summary->curators, summary->count, &summary->capacity,
                                     sizeof *summary->curators);
        summary->curators[summary->count++] = (struct tally){.curator = mem_text(curator)};
        place = summary->count - 1;
    }
    return &summary->curators[place];
}

static enum err count_judgement(void *context, const struct store_judgement *row,
                                struct error *error) {
    struct summary *summary = context;
    struct tally *tally = tally_of(summary, row->curator);
    (void)error;
    count_row(&summary->all, row);
    if (!tally) return OK;
    tally->lines++;
    count_row(tally, row);
    return OK;
}

static void count_line(struct summary *summary, const struct judged_line *line) {
    summary->all.lines++;
    if (line->opinions < 2) return;
    summary->compared++;
    summary->agreed += line->is_agreed;
}

static void write_tally(struct buf *buf, const struct tally *tally) {
    buf_printf(buf, "\"judged\":%" PRIu64, tally->lines);
    for (size_t i = 0; i < VERDICT_COUNT; i++)
        buf_printf(buf, ",\"%s\":%" PRIu64, judged_verdicts[i], tally->verdicts[i]);
    buf_printf(buf, ",\"flagged\":%" PRIu64, tally->flagged);
}

static void write_summary(struct buf *buf, const struct summary *summary) {
    buf_add_text(buf, "{\"object\":\"batch.judgements\",");
    write_tally(buf, &summary->all);
    buf_add_text(buf, ",\"by_curator\":[");
    for (size_t i = 0; i < summary->count; i++) {
        buf_add_text(buf, i > 0 ? ",{\"curator\":" : "{\"curator\":");
        json_write_string(buf, str_from(summary->curators[i].curator));
        buf_add_byte(buf, ',');
        write_tally(buf, &summary->curators[i]);
        buf_add_byte(buf, '}');
    }
    buf_printf(buf, "],\"compared\":%" PRIu64 ",\"agreement\":", summary->compared);
    if (summary->compared)
        buf_printf(buf, "%.6f}", (double)summary->agreed / (double)summary->compared);
    else
        buf_add_text(buf, "null}");
}

enum err judged_write_summary(struct buf *buf, struct store *store, const char *batch_id,
                              bool (*is_gone)(void *context), void *context, struct error *error) {
    struct summary summary = {.count = 0};
    struct judged *judged;
    struct judged_line line;
    enum err err;
    map_init(&summary.places);
    judged_open(&judged, store, batch_id, 0, UINT64_MAX);
    while ((err = judged_next(judged, count_judgement, &summary, &line, error)) == OK &&
           line.count > 0) {
        count_line(&summary, &line);
        if (is_gone && is_gone(context)) {
            err = err_set(error, ERR_CANCELLED, "The client has gone.");
            break;
        }
    }
    judged_close(judged);
    if (err == OK) write_summary(buf, &summary);
    for (size_t i = 0; i < summary.count; i++) free(summary.curators[i].curator);
    free(summary.curators);
    map_release(&summary.places);
    return err;
}
