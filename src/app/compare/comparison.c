/* SPDX-License-Identifier: Apache-2.0 */
#include "compare/comparison.h"

#include "base/map.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/os_pipe.h"
#include "batch/jsonl_file.h"
#include "compare/field_figures.h"
#include "json/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define ID_BYTES_MAX ((size_t)64 << 10)
#define STOP_EVERY 64 /* rows between two looks at the stop flag */

/* A row of file A, and the line of B that has its custom_id. */
struct row {
    uint64_t at[COMPARISON_SIDES];    /* offset of the line */
    uint32_t bytes[COMPARISON_SIDES]; /* 0: the file has no such line */
    bool is_compared;
};

struct joining {
    struct comparison *is;
    const struct comparison_options *options;
    int fds[COMPARISON_SIDES];
    struct map row_of; /* custom_id → place in `rows` */
    struct row *rows;
    size_t row_count, row_capacity;
    struct row_distance *distances; /* (row_count) */
    struct map field_of;            /* name → place in is->fields */
    size_t field_capacity;
    struct map seen_b; /* custom_ids that only B has, to find one that it has twice */
    struct buf text, ids[COMPARISON_SIDES];
    enum comparison_side_index side; /* the file that is read now */
    uint64_t number;                 /* number of its line */
    struct error *error;
};

static enum err wrong(struct joining *join, const char *what) {
    return err_set(join->error, ERR_INVALID, "%s, line %" PRIu64 ": %s",
                   join->options->paths[join->side], join->number, what);
}

/* --- files --- */

typedef enum err (*line_fn)(struct joining *join, struct str text, uint64_t offset);

static bool is_stopped(const struct joining *join) {
    return join->options->stop && join->number % STOP_EVERY == 0 && *join->options->stop;
}

/* Calls `take` for each line of a file, and keeps the file open. */
static enum err read_file(struct joining *join, enum comparison_side_index side, line_fn take) {
    const char *path = join->options->paths[side];
    struct jsonl_file file;
    struct str text;
    uint64_t bytes;
    join->side = side;
    jsonl_file_init(&file);
    enum err err = os_open_plain(&join->fds[side], path, join->error);
    if (err == OK) err = os_file_bytes(join->fds[side], &bytes, join->error);
    if (err == OK) jsonl_file_borrow(&file, join->fds[side], bytes);
    while (err == OK && jsonl_file_next(&file, &text)) {
        join->number = file.lines.number;
        err = text.bytes > UINT32_MAX ? wrong(join, "it is too long")
                                      : take(join, text, file.lines.offset);
        if (err == OK && is_stopped(join)) err = err_set(join->error, ERR_CANCELLED, "stopped");
    }
    if (err == OK && file.failed) {
        *join->error = file.why;
        err = file.why.code;
    }
    jsonl_file_close(&file);
    return err;
}

/* Reads the line of one side of a row again, with its values. */
static enum err read_again(struct joining *join, const struct row *row,
                           enum comparison_side_index side, struct result_line *ret_line) {
    struct error why;
    buf_clear(&join->text);
    char *room = buf_reserve(&join->text, row->bytes[side]);
    if (!room) return err_set(join->error, ERR_LIMIT, "a line is too long");
    enum err err =
        os_pread_all(join->fds[side], room, row->bytes[side], row->at[side], join->error);
    if (err != OK) return err;
    buf_commit(&join->text, row->bytes[side]);
    err = result_line_read(ret_line, buf_str(&join->text), true, &join->ids[side], &why);
    return err == OK ? OK
                     : err_set(join->error, err, "%s: %s", join->options->paths[side], why.text);
}

/* --- file A: its rows --- */

static enum err index_line(struct joining *join, struct str text, uint64_t offset) {
    struct comparison_side *side = &join->is->sides[COMPARISON_A];
    struct result_line line;
    struct error why;
    if (result_line_read(&line, text, false, &join->ids[COMPARISON_A], &why) != OK)
        return wrong(join, why.text);
    if (!map_put_new(&join->row_of, line.custom_id, join->row_count, NULL))
        return wrong(join, "an earlier line has its custom_id");
    join->rows = vec_grow(join->rows, join->row_count, &join->row_capacity, sizeof *join->rows);
    join->rows[join->row_count++] = (struct row){.at = {offset}, .bytes = {(uint32_t)text.bytes}};
    side->rows++;
    side->answered += line.is_answered;
    return OK;
}

/* --- file B: joined with A --- */

/* The field of that name; NULL if it would be one too many. */
static struct comparison_field *find_field(struct joining *join, struct str name) {
    struct comparison *is = join->is;
    uint64_t place = is->field_count;
    if (map_get(&join->field_of, name, &place)) return &is->fields[place];
    if (is->field_count == COMPARISON_FIELDS_MAX) return NULL;
    map_put(&join->field_of, name, place);
    is->fields = vec_grow(is->fields, is->field_count, &join->field_capacity, sizeof *is->fields);
    is->fields[is->field_count] = (struct comparison_field){.name = mem_str(name)};
    kappa_init(&is->fields[is->field_count].labels);
    return &is->fields[is->field_count++];
}

/* Compares one value of each answer. Returns whether they are equal. */
static bool add_value(struct joining *join, uint32_t row, struct str name, const json_t *a,
                      const json_t *b) {
    struct comparison_field *field = find_field(join, name);
    if (field) return field_figures_add(field, row, a, b, &join->distances[row]);
    join->is->values_left_out++;
    return a && b && json_equal(a, b);
}

static void add_values(struct joining *join, uint32_t row, json_t *of_a, json_t *of_b) {
    bool is_equal = true;
    const char *key;
    size_t bytes;
    json_t *value;
    json_object_keylen_foreach(of_a, key, bytes, value) {
        const json_t *other = json_object_getn(of_b, key, bytes);
        is_equal &= add_value(join, row, (struct str){key, bytes}, value, other);
    }
    json_object_keylen_foreach(of_b, key, bytes, value) {
        if (!join->options->has_parts_in_a && !json_object_getn(of_a, key, bytes))
            is_equal &= add_value(join, row, (struct str){key, bytes}, NULL, value);
    }
    join->is->equal += is_equal;
}

static void add_usage(struct result_usage *sum, const struct result_usage *more) {
    sum->prompt_tokens += more->prompt_tokens;
    sum->cached_tokens += more->cached_tokens;
    sum->completion_tokens += more->completion_tokens;
}

static void add_row(struct joining *join, uint32_t place, struct result_line *a,
                    struct result_line *b) {
    struct comparison *is = join->is;
    is->joined++;
    if (a->is_answered) add_usage(&is->sides[COMPARISON_A].usage, &a->usage);
    if (b->is_answered) add_usage(&is->sides[COMPARISON_B].usage, &b->usage);
    is->answered_in[COMPARISON_A] += a->is_answered && !b->is_answered;
    is->answered_in[COMPARISON_B] += b->is_answered && !a->is_answered;
    if (!a->is_answered || !b->is_answered) return;
    is->answered_in_both++;
    is->json_in_both += a->is_json && b->is_json;
    is->json_in[COMPARISON_A] += a->is_json && !b->is_json;
    is->json_in[COMPARISON_B] += b->is_json && !a->is_json;
    join->rows[place].is_compared = true;
    add_values(join, place, a->values, b->values);
}

static enum err join_line(struct joining *join, struct str text, uint64_t offset) {
    struct comparison_side *side = &join->is->sides[COMPARISON_B];
    struct result_line a = {.is_answered = false}, b = a;
    struct error why;
    uint64_t place;
    if (result_line_read(&b, text, true, &join->ids[COMPARISON_B], &why) != OK)
        return wrong(join, why.text);
    side->rows++;
    side->answered += b.is_answered;
    enum err err = OK;
    if (!map_get(&join->row_of, b.custom_id, &place)) {
        side->alone++;
        if (!map_put(&join->seen_b, b.custom_id, 0))
            err = wrong(join, "an earlier line has its custom_id");
    } else if (join->rows[place].bytes[COMPARISON_B] > 0) {
        err = wrong(join, "an earlier line has its custom_id");
    } else {
        struct row *row = &join->rows[place];
        row->at[COMPARISON_B] = offset;
        row->bytes[COMPARISON_B] = (uint32_t)text.bytes;
        err = read_again(join, row, COMPARISON_A, &a);
        if (err == OK) {
            add_row(join, (uint32_t)place, &a, &b);
            result_line_release(&a);
        }
    }
    result_line_release(&b);
    return err;
}

/* --- the rows that differ most --- */

/* A row with its distance, for the order of them. */
struct candidate {
    double distance, words_distance;
    size_t place;
};

static struct candidate candidate_of(const struct joining *join, size_t place) {
    const struct row_distance *is = &join->distances[place];
    return (struct candidate){is->count > 0 ? (double)is->sum / is->count : 0,
                              is->words_count > 0 ? (double)is->words_sum / is->words_count : 0,
                              place};
}

/* The row that differs more first, then the earlier one. */
static int by_distance(const void *left, const void *right) {
    const struct candidate *x = left, *y = right;
    if (x->distance != y->distance) return x->distance > y->distance ? -1 : 1;
    if (x->words_distance != y->words_distance)
        return x->words_distance > y->words_distance ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

/* Keeps `top` candidates in a list of twice that room, which is sorted and cut when it is full.
 * Returns how many there are. */
static size_t find_most(const struct joining *join, struct candidate *list) {
    size_t top = join->options->top, count = 0;
    for (size_t i = 0; i < join->row_count; i++) {
        if (!join->rows[i].is_compared) continue;
        struct candidate candidate = candidate_of(join, i);
        if (candidate.distance <= 0 && candidate.words_distance <= 0) continue;
        list[count++] = candidate;
        if (count < 2 * top) continue;
        qsort(list, count, sizeof *list, by_distance);
        count = top;
    }
    qsort(list, count, sizeof *list, by_distance);
    return count < top ? count : top;
}

static enum err read_answers(struct joining *join, const struct candidate *candidate,
                             struct comparison_row *row) {
    enum err err = OK;
    for (int i = 0; i < COMPARISON_SIDES && err == OK; i++) {
        struct result_line line = {.is_answered = false};
        struct buf out;
        enum comparison_side_index side = (enum comparison_side_index)i;
        err = read_again(join, &join->rows[candidate->place], side, &line);
        if (err != OK) return err;
        buf_init(&out, BUF_UNLIMITED);
        result_line_write_answer(&out, &line);
        row->answers[side] = mem_str(buf_str(&out));
        if (side == COMPARISON_A) row->custom_id = mem_str(line.custom_id);
        buf_release(&out);
        result_line_release(&line);
    }
    row->distance = candidate->distance;
    row->words_distance = candidate->words_distance;
    return err;
}

static enum err keep_most(struct joining *join) {
    struct comparison *is = join->is;
    if (join->options->top == 0 || join->row_count == 0) return OK;
    struct candidate *list = mem_new(2 * join->options->top, sizeof *list);
    size_t count = find_most(join, list);
    enum err err = OK;
    is->most = mem_new(count, sizeof *is->most);
    while (err == OK && is->most_count < count) {
        err = read_answers(join, &list[is->most_count], &is->most[is->most_count]);
        is->most_count++;
    }
    free(list);
    return err;
}

/* --- the whole --- */

static enum err join_files(struct joining *join) {
    struct comparison *is = join->is;
    enum err err = read_file(join, COMPARISON_A, index_line);
    if (err == OK && join->row_count > UINT32_MAX)
        err = err_set(join->error, ERR_LIMIT, "%s has too many lines",
                      join->options->paths[COMPARISON_A]);
    join->distances = mem_new(join->row_count, sizeof *join->distances);
    if (err == OK) err = read_file(join, COMPARISON_B, join_line);
    if (err != OK) return err;
    is->sides[COMPARISON_A].alone = is->sides[COMPARISON_A].rows - is->joined;
    for (size_t i = 0; i < is->field_count; i++) field_figures_end(&is->fields[i], join->distances);
    return keep_most(join);
}

enum err comparison_run(struct comparison *comparison, const struct comparison_options *options,
                        struct error *error) {
    struct joining join = {.is = comparison, .options = options, .fds = {-1, -1}, .error = error};
    map_init(&join.row_of);
    map_init(&join.field_of);
    map_init(&join.seen_b);
    buf_init(&join.text, BUF_UNLIMITED);
    for (int i = 0; i < COMPARISON_SIDES; i++) buf_init(&join.ids[i], ID_BYTES_MAX);
    enum err err = join_files(&join);
    for (int i = 0; i < COMPARISON_SIDES; i++) {
        os_close(join.fds[i]);
        buf_release(&join.ids[i]);
    }
    buf_release(&join.text);
    map_release(&join.row_of);
    map_release(&join.field_of);
    map_release(&join.seen_b);
    free(join.rows);
    free(join.distances);
    return err;
}

void comparison_release(struct comparison *comparison) {
    for (size_t i = 0; i < comparison->field_count; i++) {
        free(comparison->fields[i].name);
        free(comparison->fields[i].pairs);
        kappa_release(&comparison->fields[i].labels);
    }
    for (size_t i = 0; i < comparison->most_count; i++) {
        free(comparison->most[i].custom_id);
        for (int side = 0; side < COMPARISON_SIDES; side++) free(comparison->most[i].answers[side]);
    }
    free(comparison->fields);
    free(comparison->most);
    *comparison = (struct comparison){.fields = NULL};
}

double comparison_agreement(const struct comparison *comparison) {
    uint64_t all = 0, equal = 0;
    for (size_t i = 0; i < comparison->field_count; i++) {
        const struct comparison_field *field = &comparison->fields[i];
        if (field->kind == COMPARISON_PROSE) continue;
        all += field->both + field->only_in[COMPARISON_A] + field->only_in[COMPARISON_B];
        equal += field->equal;
    }
    return all > 0 ? (double)equal / (double)all : 1;
}
