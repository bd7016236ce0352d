/* SPDX-License-Identifier: Apache-2.0 */
#include "evaluate/top_k.h"

#include "base/mem.h"
#include "base/os.h"
#include "batch/jsonl_file.h"
#include "evaluate/requests.h"
#include "evaluate/short_request.h"
#include "evaluate/summed.h"
#include "json/span.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define PIECE_MIN 64 /* requests: below, loading a model takes longer than they do */

enum state { STATE_WAITS, STATE_SHORT, STATE_WHOLE };

/* A request of the file. */
struct one {
    double bound; /* largest value it can have */
    double value; /* NAN: it has none, or is not computed yet; short without a value: the bound */
    uint64_t offset;
    uint32_t place;
    uint16_t round; /* whose results have its answer, at `offset` */
    uint8_t state;
    bool has_short;
    bool is_taken; /* by the round that is made */
};

struct search {
    struct top_k *top;
    const struct top_k_options *options;
    const struct candidate *candidate;
    struct one *all; /* (count) in the order of the file */
    size_t count, capacity;
    struct one **best; /* (best_count) with a value, the best first; all of them */
    size_t best_count;
    struct candidate *rounds; /* (top->rounds) */
    uint64_t round_requests[TOP_ROUNDS_MAX];
    uint64_t whole_tokens, whole_count;
    size_t finals; /* rounds that computed wholes */
};

/* --- the requests --- */

static enum err read_requests(struct search *search, struct error *error) {
    const struct top_k_options *options = search->options;
    struct jsonl_file file;
    struct str line;
    struct buf brief;
    enum err err = jsonl_file_open(&file, options->requests, error);
    buf_init(&brief, BUF_UNLIMITED);
    while (err == OK && jsonl_file_next(&file, &line)) {
        struct one one = {.value = NAN, .place = (uint32_t)search->count};
        buf_clear(&brief);
        one.has_short =
            short_request_write(&brief, line, options->by, options->is_remote, &one.bound);
        search->all = vec_grow(search->all, search->count, &search->capacity, sizeof one);
        search->all[search->count++] = one;
    }
    buf_release(&brief);
    return jsonl_file_end(&file, options->requests, err, error);
}

/* --- what a round takes --- */

static int by_rank(const void *left, const void *right) {
    const struct one *a = *(struct one *const *)left, *b = *(struct one *const *)right;
    if (a->value != b->value) return a->value < b->value ? 1 : -1;
    return (a->place > b->place) - (a->place < b->place);
}

static void rank(struct search *search) {
    search->best_count = 0;
    for (size_t i = 0; i < search->count; i++)
        if (!isnan(search->all[i].value)) search->best[search->best_count++] = &search->all[i];
    qsort(search->best, search->best_count, sizeof *search->best, by_rank);
}

/* Whether a request that waits could be among the best with its bound. */
static bool can_enter(const struct search *search, const struct one *one) {
    uint64_t wanted = search->options->count;
    if (search->best_count < wanted) return true;
    const struct one *last = search->best[wanted - 1];
    return one->bound > last->value || (one->bound == last->value && one->place < last->place);
}

/* Takes requests that wait and can enter; without a bound all of them at once. */
static size_t take_waiting(struct search *search) {
    size_t taken = 0, known = search->best_count;
    uint64_t piece = 4 * search->options->count;
    if (piece < PIECE_MIN) piece = PIECE_MIN;
    if (piece < known) piece = known;
    for (size_t i = 0; i < search->count; i++) {
        struct one *one = &search->all[i];
        bool is_wanted = one->state == STATE_WAITS && can_enter(search, one);
        one->is_taken = is_wanted && (taken < piece || isinf(one->bound));
        taken += one->is_taken;
    }
    return taken;
}

/* Takes short requests among the best; more each time, since their wholes may have no value. */
static size_t take_best(struct search *search) {
    size_t wanted = search->options->count, end = wanted, taken = 0;
    bool has_short = false;
    for (size_t i = 0; i < search->best_count && i < wanted; i++)
        has_short |= search->best[i]->state == STATE_SHORT;
    if (!has_short) return 0;
    for (size_t i = 0; i < search->finals && end < search->best_count; i++) end *= 2;
    search->finals++;
    for (size_t i = 0; i < search->best_count && i < end; i++) {
        search->best[i]->is_taken = search->best[i]->state == STATE_SHORT;
        taken += search->best[i]->is_taken;
    }
    return taken;
}

/* --- a round --- */

static enum err write_taken(struct search *search, int fd, struct error *error) {
    const struct top_k_options *options = search->options;
    struct jsonl_file file;
    struct str line;
    struct buf out;
    double bound;
    size_t i = 0;
    enum err err = jsonl_file_open(&file, options->requests, error);
    buf_init(&out, BUF_UNLIMITED);
    for (; err == OK && i < search->count && jsonl_file_next(&file, &line); i++) {
        const struct one *one = &search->all[i];
        if (!one->is_taken) continue;
        buf_clear(&out);
        bool is_short = one->state == STATE_WAITS && one->has_short;
        if (!is_short ||
            !short_request_write(&out, line, options->by, options->is_remote, &bound)) {
            buf_clear(&out);
            buf_add_str(&out, line);
        }
        buf_add_byte(&out, '\n');
        err = os_write_all(fd, out.at, out.bytes, error);
    }
    buf_release(&out);
    err = jsonl_file_end(&file, options->requests, err, error);
    return err == OK ? os_fsync(fd, error) : err;
}

static enum err place_round(struct search *search, const struct candidate *round,
                            struct error *error) {
    char fresh[PATH_MAX + 8];
    int fd = -1;
    snprintf(fresh, sizeof fresh, "%s.part", round->own_requests);
    enum err err = os_create(&fd, fresh, 0600, error);
    if (err == OK) err = write_taken(search, fd, error);
    os_close(fd);
    return err == OK ? requests_place(fresh, round->own_requests, error) : err;
}

/* Takes the answer of a request over. */
static enum err take_answer(struct search *search, struct one *one, struct str result,
                            struct error *error) {
    struct result_usage usage;
    bool is_short = one->state == STATE_WAITS && one->has_short;
    enum err err =
        short_request_read(result, search->options->by, is_short, &one->value, &usage, error);
    if (err != OK) return err;
    uint64_t cached = usage.cached_tokens < usage.prompt_tokens ? usage.cached_tokens : 0;
    uint64_t tokens = usage.prompt_tokens - cached + usage.completion_tokens;
    search->top->computed_tokens += tokens;
    if (is_short && isnan(one->value)) one->value = one->bound;
    if (!is_short) search->whole_tokens += tokens;
    if (!is_short) search->whole_count++;
    one->state = is_short ? STATE_SHORT : STATE_WHOLE;
    return OK;
}

static enum err read_round(struct search *search, const struct candidate *round,
                           struct error *error) {
    struct jsonl_file file;
    struct str result;
    enum err err = jsonl_file_open(&file, round->results, error);
    for (size_t i = 0; err == OK && i < search->count; i++) {
        struct one *one = &search->all[i];
        if (!one->is_taken) continue;
        one->is_taken = false;
        if (!jsonl_file_next(&file, &result)) {
            if (!file.failed)
                err = err_set(error, ERR_CORRUPT,
                              "%s has not one result per request; choose another folder (-o)",
                              round->results);
            break;
        }
        one->round = (uint16_t)search->top->rounds;
        one->offset = file.lines.offset;
        err = take_answer(search, one, result, error);
        if (err != OK) err = err_prefix(error, "%s", round->results);
    }
    return jsonl_file_end(&file, round->results, err, error);
}

static enum err run_round(struct search *search, size_t taken, struct error *error) {
    size_t number = search->top->rounds;
    if (number == TOP_ROUNDS_MAX)
        return err_set(error, ERR_LIMIT, "the best are not found after %d rounds", TOP_ROUNDS_MAX);
    struct candidate *round = &search->rounds[number];
    snprintf(round->name, sizeof round->name, "%.90s.round-%zu", search->candidate->name,
             number + 1);
    round->arguments = search->candidate->arguments;
    round->warned = search->candidate->warned;
    round->context = search->candidate->context;
    candidate_place(round, search->options->folder);
    search->round_requests[number] = taken;
    enum err err = place_round(search, round, error);
    if (err == OK) err = candidate_run(round, round->own_requests, search->options->stop, error);
    if (err == OK) err = candidate_read(round, error);
    if (err == OK) err = read_round(search, round, error);
    search->top->rounds++;
    return err;
}

/* --- the best --- */

/* Copies the line at an offset of a file. */
static enum err copy_line(const struct candidate *round, uint64_t offset, struct buf *line, int fd,
                          struct error *error) {
    struct jsonl_file file;
    struct str text;
    enum err err = jsonl_file_open(&file, round->results, error);
    jsonl_file_skip_to(&file, offset);
    if (err == OK && jsonl_file_next(&file, &text)) {
        buf_clear(line);
        buf_add_str(line, text);
        buf_add_byte(line, '\n');
        err = os_write_all(fd, line->at, line->bytes, error);
    } else if (err == OK && !file.failed) {
        err = err_set(error, ERR_CORRUPT, "%s has become shorter", round->results);
    }
    return jsonl_file_end(&file, round->results, err, error);
}

static enum err write_best(struct search *search, struct error *error) {
    const char *path = search->candidate->results;
    char fresh[PATH_MAX + 8];
    struct buf line;
    int fd = -1;
    buf_init(&line, BUF_UNLIMITED);
    snprintf(fresh, sizeof fresh, "%s.part", path);
    enum err err = os_create(&fd, fresh, 0644, error);
    for (size_t i = 0; err == OK && i < search->top->best; i++)
        err = copy_line(&search->rounds[search->best[i]->round], search->best[i]->offset, &line, fd,
                        error);
    if (err == OK) err = os_fsync(fd, error);
    os_close(fd);
    buf_release(&line);
    return err == OK ? os_rename(fresh, path, error) : err;
}

/* What became of one request. */
static void write_fate(struct buf *out, const struct one *one, struct str line, size_t rank) {
    static const char *const fates[] = {
        [STATE_WAITS] = "left_out", [STATE_SHORT] = "short", [STATE_WHOLE] = "whole"};
    struct str whole, id = {NULL, 0};
    if (json_span_read(line, &whole)) id = json_span_get(whole, "custom_id");
    buf_clear(out);
    buf_add_text(out, "{\"custom_id\":");
    buf_add_str(out, id.at ? id : STR("null"));
    buf_printf(out, ",\"computed\":\"%s\"", fates[one->state]);
    if (isfinite(one->value))
        buf_printf(out, ",\"value\":%.17g", one->value);
    else
        buf_add_text(out, ",\"value\":null");
    if (rank > 0)
        buf_printf(out, ",\"rank\":%zu}\n", rank);
    else
        buf_add_text(out, ",\"rank\":null}\n");
}

static enum err write_fates(const struct search *search, struct error *error) {
    const char *path = search->candidate->lines_path;
    char fresh[PATH_MAX + 8];
    struct jsonl_file file;
    struct str line;
    struct buf out;
    int fd = -1;
    size_t *ranks = mem_new(search->count, sizeof *ranks);
    for (size_t i = 0; i < search->top->best; i++) ranks[search->best[i] - search->all] = i + 1;
    snprintf(fresh, sizeof fresh, "%s.part", path);
    buf_init(&out, BUF_UNLIMITED);
    enum err err = jsonl_file_open(&file, search->options->requests, error);
    if (err == OK) err = os_create(&fd, fresh, 0644, error);
    for (size_t i = 0; err == OK && i < search->count && jsonl_file_next(&file, &line); i++) {
        write_fate(&out, &search->all[i], line, ranks[i]);
        err = os_write_all(fd, out.at, out.bytes, error);
    }
    err = jsonl_file_end(&file, search->options->requests, err, error);
    os_close(fd);
    buf_release(&out);
    free(ranks);
    return err == OK ? os_rename(fresh, path, error) : err;
}

static enum err write_summary(const struct search *search, struct error *error) {
    struct summed_part parts[TOP_ROUNDS_MAX];
    for (size_t i = 0; i < search->top->rounds; i++)
        parts[i] = (struct summed_part){&search->rounds[i], search->round_requests[i]};
    return summed_write(search->candidate->summary_path, search->top->requests, parts,
                        search->top->rounds, error);
}

static enum err end(struct search *search, struct error *error) {
    struct top_k *top = search->top;
    top->best =
        search->best_count < search->options->count ? search->best_count : search->options->count;
    if (top->best == 0)
        return err_set(error, ERR_INVALID, "--by: no answer of %s has '%s' as a number",
                       search->candidate->name, search->options->by);
    for (size_t i = 0; i < search->count; i++) {
        top->left_out += search->all[i].state == STATE_WAITS;
        top->short_only += search->all[i].state == STATE_SHORT;
        top->whole += search->all[i].state == STATE_WHOLE;
    }
    top->tokens_per_whole = search->whole_count > 0
                                ? (double)search->whole_tokens / (double)search->whole_count
                                : (double)NAN;
    enum err err = write_fates(search, error);
    if (err == OK) err = write_best(search, error);
    return err == OK ? write_summary(search, error) : err;
}

/* --- the whole --- */

enum err top_k_run(struct top_k *top, const struct top_k_options *options,
                   const struct candidate *candidate, struct error *error) {
    struct search search = {.top = top, .options = options, .candidate = candidate};
    size_t taken = 1;
    assert(options->count > 0);
    *top = (struct top_k){.tokens_per_whole = NAN};
    char what[PATH_MAX];
    snprintf(what, sizeof what, "best %" PRIu64 " by %.1000s", options->count, options->by);
    enum err err = candidate_keep(candidate, what, error);
    if (err == OK) err = read_requests(&search, error);
    top->requests = search.count;
    search.best = mem_new(search.count, sizeof(struct one *));
    search.rounds = mem_new(TOP_ROUNDS_MAX, sizeof *search.rounds);
    while (err == OK && taken > 0) {
        rank(&search);
        taken = take_waiting(&search);
        if (taken == 0) taken = take_best(&search);
        if (taken > 0) err = run_round(&search, taken, error);
    }
    if (err == OK) err = end(&search, error);
    for (size_t i = 0; i < TOP_ROUNDS_MAX; i++) candidate_release(&search.rounds[i]);
    free(search.rounds);
    free(search.best);
    free(search.all);
    return err;
}

double top_k_share(const struct top_k *top) {
    return (double)top->computed_tokens / ((double)top->requests * top->tokens_per_whole);
}
