/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/erased_copy.h"

#include "base/mem.h"
#include "base/os.h"
#include "json/lines.h"
#include "json/span.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES ((size_t)1 << 20)
#define REQUEST_DIGITS 8 /* they end a result's id (batch/result.c) */

/* --- ids --- */

void erased_ids_init(struct erased_ids *ids, const struct str *texts, size_t count) {
    *ids = (struct erased_ids){.places = mem_new(count + 1, sizeof *ids->places),
                               .requests = mem_new(count + 1, sizeof *ids->requests)};
    map_init(&ids->numbers);
    buf_init(&ids->scratch, BUF_UNLIMITED);
    for (size_t i = 0; i < count; i++)
        if (map_put_new(&ids->numbers, texts[i], ids->count, NULL)) ids->places[ids->count++] = i;
}

void erased_ids_release(struct erased_ids *ids) {
    map_release(&ids->numbers);
    buf_release(&ids->scratch);
    free(ids->places);
    free(ids->requests);
}

void erased_ids_restart(struct erased_ids *ids) {
    memset(ids->requests, 0, ids->count * sizeof *ids->requests);
}

/* --- one line --- */

struct copying {
    const struct erased_copy_wish *wish;
    struct erased_copy *copy;
    struct run_salts_file *salts;
    struct line_summer summer;
    struct lines lines;
    struct buf out;
    uint64_t request; /* requests that were taken, from 0 on */
    size_t earlier;   /* the next one in wish->earlier */
    bool is_input;
};

/* The number of the request that a result answers, from 1; 0: its id does not tell. */
static uint64_t request_of(struct str record) {
    struct str id = json_span_get(record, "id");
    uint64_t number = 0;
    if (!json_span_is_string(id) || id.bytes < REQUEST_DIGITS + 2) return 0;
    const char *digits = id.at + id.bytes - 1 - REQUEST_DIGITS;
    for (size_t i = 0; i < REQUEST_DIGITS; i++) {
        char c = digits[i];
        if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f')) return 0;
        number = number << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return number + 1;
}

static enum erased_result result_of(const struct copying *copying, struct str record) {
    if (strcmp(copying->wish->what, "output") == 0) return ERASED_COMPLETED;
    struct str status = json_span_get(json_span_get(record, "response"), "status_code");
    return status.at ? ERASED_FAILED : ERASED_UNRUN;
}

/* Whether the object has one of the ids; then its place. */
static bool is_chosen(struct erased_ids *ids, struct str object, uint64_t *ret_at) {
    struct str id = json_span_get(object, "custom_id");
    if (!id.at || !json_span_is_string(id)) return false;
    return map_get(&ids->numbers, json_span_text(id, &ids->scratch), ret_at);
}

static enum err note(struct copying *copying, struct str line, struct str object, uint64_t at,
                     struct error *error) {
    struct erased_copy *copy = copying->copy;
    struct erased_ids *ids = copying->wish->ids;
    unsigned char salt[SHA256_BYTES];
    struct erased_spot spot = {.proof = {.line = copying->lines.number},
                               .offset = copying->lines.offset,
                               .bytes = line.bytes,
                               .request =
                                   copying->is_input ? copying->request + 1 : request_of(object)};
    if (!copying->is_input) spot.result = result_of(copying, object);
    if (spot.request == 0 || (ids->requests[at] && ids->requests[at] != spot.request) ||
        !line_salts_get(&copying->salts->salts, copying->lines.number - 1, salt))
        return err_set(error, ERR_CORRUPT, "line %" PRIu64 " of %s cannot be what it was",
                       copying->lines.number, copying->wish->file->id);
    ids->requests[at] = spot.request;
    line_sum_leaf(salt, line, spot.proof.leaf);
    copy->spots = vec_grow(copy->spots, copy->count, &copy->capacity, sizeof *copy->spots);
    copy->spots[copy->count++] = spot;
    return OK;
}

static enum err flush(struct copying *copying, struct error *error) {
    struct erased_copy *copy = copying->copy;
    enum err err = OK;
    if (copying->wish->is_written && copying->out.bytes > 0) {
        if (!copy->spool) err = store_spool_open(&copy->spool, copying->wish->store, error);
        if (err == OK)
            err = store_spool_write(copy->spool, copying->out.at, copying->out.bytes, error);
    }
    buf_clear(&copying->out);
    return err;
}

/* Takes the current line, with its LF. */
static enum err take_line(struct copying *copying, struct error *error) {
    struct str line = copying->lines.line, text = line;
    uint64_t at;
    enum err err = line_summer_add(&copying->summer, line, error);
    if (err != OK) return err;
    if (copying->lines.number == 1 && str_starts_with(text, STR("\xEF\xBB\xBF")))
        text = str_skip(text, 3);
    text = json_span_trim(text);
    bool goes = false;
    if (text.bytes > 0) {
        if (copying->is_input)
            store_erased_skip(copying->wish->earlier, &copying->earlier, &copying->request);
        if (!json_span_read(text, NULL) || !json_span_is_object(text))
            return err_set(error, ERR_CORRUPT, "line %" PRIu64 " of %s is no JSON object",
                           copying->lines.number, copying->wish->file->id);
        goes = is_chosen(copying->wish->ids, text, &at);
        if (goes) err = note(copying, line, text, at, error);
        copying->request++;
    }
    buf_add_str(&copying->out, goes ? STR("\n") : line);
    return err == OK && copying->out.bytes >= PIECE_BYTES ? flush(copying, error) : err;
}

/* --- the file --- */

static enum err copy_lines(struct copying *copying, struct error *error) {
    struct lines *lines = &copying->lines;
    enum err err;
    while ((err = lines_next_whole(lines, error)) == OK && lines->line.at) {
        err = take_line(copying, error);
        if (err != OK) return err;
    }
    return err == OK ? flush(copying, error) : err_prefix(error, "%s", copying->wish->file->id);
}

/* Compares what was read with the proof. */
static enum err check_sum(struct copying *copying, const struct store_proof *row,
                          struct error *error) {
    struct line_sum sum;
    char wanted[SHA256_HEX_BYTES];
    enum err err = line_summer_end(&copying->summer, &sum, error);
    if (err != OK) return err;
    sha256_hex(row->lines_sha256, wanted);
    if (sum.lines == row->lines && strcmp(sum.hex, wanted) == 0) return OK;
    return err_set(error, ERR_CORRUPT, "%s is not what it was when its batch ended",
                   copying->wish->file->id);
}

enum err erased_copy_make(const struct erased_copy_wish *wish, struct erased_copy *ret_copy,
                          struct error *error) {
    struct store_proof *row = batch_proofs_row(wish->proofs, wish->what);
    struct run_salts_file *salts = run_salts_find(&wish->proofs->salts, wish->what);
    if (!row || !salts)
        return err_set(error, ERR_CORRUPT, "the proof of %s is missing", wish->file->id);
    struct erased_copy copy = {.spool = NULL};
    struct copying copying = {
        .wish = wish, .copy = &copy, .salts = salts, .is_input = strcmp(wish->what, "input") == 0};
    lines_init(&copying.lines, wish->fd);
    buf_init(&copying.out, BUF_UNLIMITED);
    line_summer_begin(&copying.summer, &salts->salts, salts->erased, salts->erased_count);
    enum err err = copy_lines(&copying, error);
    if (err == OK) err = check_sum(&copying, row, error);
    line_summer_release(&copying.summer);
    lines_release(&copying.lines);
    buf_release(&copying.out);
    if (err == OK && copy.count == 0) {
        store_spool_abort(copy.spool);
        copy.spool = NULL;
    }
    if (err == OK)
        *ret_copy = copy;
    else
        erased_copy_release(&copy);
    return err;
}

void erased_copy_release(struct erased_copy *copy) {
    store_spool_abort(copy->spool);
    free(copy->spots);
    *copy = (struct erased_copy){.spool = NULL};
}
