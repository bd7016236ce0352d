/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger.h"

#include "base/clock.h"
#include "base/crc.h"
#include "base/os.h"
#include "batch/state.h"
#include "world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES ((size_t)512 << 10)

void ledger_question(uint32_t batch, uint32_t line, char ret_text[24]) {
    if (world->plan.questions)
        snprintf(ret_text, 24, "q%u", line % world->plan.questions);
    else
        snprintf(ret_text, 24, "b%u-%u", batch, line);
}

char *ledger_input(uint32_t batch, uint32_t lines, size_t *ret_bytes) {
    struct buf text;
    char question[24];
    buf_init(&text, BUF_UNLIMITED);
    for (uint32_t i = 0; i < lines; i++) {
        uint64_t same = world->plan.questions ? i % world->plan.questions : 1000 * batch + i;
        ledger_question(batch, i, question);
        buf_printf(&text,
                   "{\"custom_id\":\"b%u-%u\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\","
                   "\"body\":{\"model\":\"m\",\"temperature\":0,\"messages\":[{\"role\":\"user\","
                   "\"content\":\"ask %s. ",
                   batch, i, question);
        for (uint32_t at = 0; at < world->plan.line_padding; at += 8)
            buf_printf(&text, "%07x ", (unsigned)rng_at(same, at) & 0xfffffff);
        buf_add_text(&text, "\"}]}}\n");
    }
    *ret_bytes = text.bytes;
    return text.at;
}

bool ledger_custom_id(struct str text, uint32_t *ret_batch, uint32_t *ret_line) {
    static const char mark[] = "\"custom_id\":\"";
    const char *at = memmem(text.at, text.bytes, mark, sizeof mark - 1);
    return at && sscanf(at + sizeof mark - 1, "b%" SCNu32 "-%" SCNu32, ret_batch, ret_line) == 2 &&
           *ret_batch < PLAN_BATCHES_MAX && *ret_line < LEDGER_LINES_MAX;
}

void ledger_answer(struct str body, struct buf *ret_answer) {
    const char *ask = memmem(body.at, body.bytes, "ask ", 4);
    if (!ask) world_fail("a worker got a body that no client wrote (I3)");
    size_t bytes = strcspn(ask + 4, ".");
    buf_clear(ret_answer);
    buf_printf(ret_answer,
               "{\"id\":\"c\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"m\","
               "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\""
               "told %.*s.",
               (int)bytes, ask + 4);
    for (uint32_t at = 0; at < world->plan.line_padding; at += 8)
        buf_add_text(ret_answer, " padding");
    buf_add_text(ret_answer, "\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,"
                             "\"completion_tokens\":2,\"total_tokens\":5}}");
}

struct ledger_batch *ledger_find(struct str id) {
    for (uint32_t i = 0; i < PLAN_BATCHES_MAX; i++)
        if (world->ledger.batches[i].is_created && str_is(id, world->ledger.batches[i].id))
            return &world->ledger.batches[i];
    return NULL;
}

/* --- what is shown --- */

/* How far a state is on the way. */
static int rank(enum batch_status status) {
    switch (status) {
    case BATCH_VALIDATING: return 0;
    case BATCH_IN_PROGRESS: return 1;
    case BATCH_FINALIZING:
    case BATCH_CANCELLING: return 2;
    default: return 3;
    }
}

static void show_end(struct ledger_batch *own, const struct store_batch *row) {
    if (rank(own->status) == 3) {
        if (own->status != row->status)
            world_fail("%s was %s and is %s (I8)", row->id, batch_status_name(own->status),
                       batch_status_name(row->status));
        if (strcmp(own->output_id, row->output_file_id) != 0 ||
            strcmp(own->error_id, row->error_file_id) != 0)
            world_fail("%s has other result files than before (I7)", row->id);
    }
    memcpy(own->output_id, row->output_file_id, sizeof own->output_id);
    memcpy(own->error_id, row->error_file_id, sizeof own->error_id);
}

void ledger_show(uint32_t batch, const struct store_batch *row) {
    struct ledger_batch *own = &world->ledger.batches[batch];
    uint64_t ended = row->completed + row->failed;
    if (rank(row->status) < rank(own->status))
        world_fail("%s was %s and is %s (I8)", row->id, batch_status_name(own->status),
                   batch_status_name(row->status));
    if (ended < own->ended)
        world_fail("%s had %" PRIu64 " results and has %" PRIu64 " (I5)", row->id, own->ended,
                   ended);
    if (row->total > 0 && row->total != own->lines)
        world_fail("%s has %" PRIu64 " lines of %u (I4)", row->id, row->total, own->lines);
    if (own->is_cancelled && row->status != BATCH_CANCELLING && row->status != BATCH_CANCELLED)
        world_fail("%s was cancelled and is %s (I9)", row->id, batch_status_name(row->status));
    if (rank(row->status) == 3) show_end(own, row);
    own->status = row->status;
    own->ended = ended;
    own->shows++;
}

void ledger_note_cancel(uint32_t batch) {
    struct ledger_batch *own = &world->ledger.batches[batch];
    own->is_cancelled = true;
    own->shows++;
}

static void read_line(uint32_t batch, struct str line) {
    struct ledger_batch *own = &world->ledger.batches[batch];
    uint32_t of, number, crc = crc32c(0, line.at, line.bytes);
    if (!ledger_custom_id(line, &of, &number) || of != batch || number >= own->lines)
        world_fail("a page of %s has a line of nobody: %.*s (I3)", own->id,
                   (int)(line.bytes < 80 ? line.bytes : 80), line.at);
    if (own->is_seen[number] && own->seen_crc[number] != crc)
        world_fail("%s line %u reads otherwise than before (I7)", own->id, number + 1);
    own->is_seen[number] = true;
    own->seen_crc[number] = crc;
}

void ledger_read(uint32_t batch, struct str lines) {
    while (lines.bytes > 0) {
        const char *end = memchr(lines.at, '\n', lines.bytes);
        if (!end) return; /* the page ends inside of a line */
        size_t bytes = (size_t)(end - lines.at);
        read_line(batch, (struct str){lines.at, bytes});
        lines.at += bytes + 1;
        lines.bytes -= bytes + 1;
    }
}

/* --- what is there --- */

static char *read_file(struct store *store, const char *id, size_t *ret_bytes) {
    struct error error;
    struct store_file file;
    unsigned char sum[SHA256_BYTES];
    struct sha256 hash;
    int fd;
    if (store_file_open(store, str_from(id), clock_unix_s(), &fd, &file, &error) != OK)
        world_fail("%s was acknowledged and cannot be opened: %s (I1)", id, error.text);
    char *bytes = malloc(file.bytes + 1);
    if (!bytes) abort();
    if (os_pread_all(fd, bytes, file.bytes, 0, &error) != OK)
        world_fail("%s was acknowledged and cannot be read: %s (I1)", id, error.text);
    os_close(fd);
    sha256_init(&hash);
    sha256_add(&hash, bytes, file.bytes);
    sha256_end(&hash, sum);
    if (memcmp(sum, file.sha256, sizeof sum) != 0) world_fail("%s has other bytes (I1)", id);
    *ret_bytes = file.bytes;
    return bytes;
}

static void check_input(struct store *store, uint32_t batch) {
    const struct ledger_batch *own = &world->ledger.batches[batch];
    if (!own->is_uploaded || own->may_be_deleted) return;
    size_t bytes, expected_bytes;
    char *found = read_file(store, own->file_id, &bytes);
    char *expected = ledger_input(batch, own->lines, &expected_bytes);
    if (bytes != expected_bytes || memcmp(found, expected, bytes) != 0)
        world_fail("%s is not what was uploaded (I1)", own->file_id);
    free(found);
    free(expected);
}

/* False: it is deleted, as was asked for. */
static bool get_row(struct runner *runner, uint32_t batch, struct store_batch *ret_row) {
    const struct ledger_batch *own = &world->ledger.batches[batch];
    struct error error;
    /* What was asked for before a deletion was told may be answered behind it. */
    const bool was_deleted = own->is_deleted;
    enum err err = runner_batch_get(runner, str_from(own->id), ret_row, &error);
    if (err == OK && was_deleted) world_fail("%s was deleted and is there (I15)", own->id);
    if (err == OK) return true;
    if (err != ERR_NOT_FOUND || !own->may_be_deleted)
        world_fail("%s was acknowledged: %s (I5)", own->id, error.text);
    return false;
}

bool ledger_look(struct runner *runner, uint32_t batch, bool *ret_ended) {
    const struct ledger_batch *own = &world->ledger.batches[batch];
    uint32_t shows = own->shows;
    struct store_batch row;
    *ret_ended = false;
    if (!get_row(runner, batch, &row)) return false;
    if (shows == own->shows) {
        ledger_show(batch, &row);
        *ret_ended = batch_status_is_terminal(row.status);
    }
    store_batch_release(&row);
    return true;
}

void ledger_check(struct store *store, struct runner *runner) {
    for (uint32_t i = 0; i < PLAN_BATCHES_MAX; i++) {
        bool has_ended;
        check_input(store, i);
        if (world->ledger.batches[i].is_created) (void)ledger_look(runner, i, &has_ended);
    }
}

/* Counts how often the client's results of a batch are among the lines. */
static uint32_t count_seen(uint32_t batch, struct str lines) {
    uint32_t of, number, found = 0;
    ledger_read(batch, lines); /* those that were seen read the same */
    for (const char *at = lines.at, *end = lines.at + lines.bytes, *next; at < end; at = next) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        next = line_end ? line_end + 1 : end;
        if (ledger_custom_id((struct str){at, (size_t)(next - at)}, &of, &number))
            found += of == batch && world->backup.batches[batch].is_seen[number];
    }
    return found;
}

void ledger_check_seen(struct runner *runner) {
    for (uint32_t i = 0; i < PLAN_BATCHES_MAX; i++) {
        struct ledger_batch *own = &world->ledger.batches[i];
        struct runner_results *results;
        struct page_read read;
        struct error error;
        struct buf text;
        uint32_t seen = 0;
        for (uint32_t line = 0; line < LEDGER_LINES_MAX; line++) seen += own->is_seen[line];
        if (seen == 0 || own->may_be_deleted || world->ledger.may_expire) continue;
        const struct page page = {
            .lines_max = LEDGER_LINES_MAX, .bytes_max = PAGE_BYTES, .room = PAGE_BYTES};
        buf_init(&text, BUF_UNLIMITED);
        runner_results_open(&results, runner, str_from(own->id));
        if (runner_results_read(results, &page, &text, &read, &error) != OK)
            world_fail("results of %s cannot be read: %s (I5)", own->id, error.text);
        uint32_t found = count_seen(i, buf_str(&text));
        runner_results_close(results);
        buf_release(&text);
        if (found != seen)
            world_fail("%s has %u of %u results that the client has (I5)", own->id, found, seen);
    }
}

/* --- the end --- */

struct tally {
    uint32_t batch;
    bool is_output;
    uint32_t found[LEDGER_LINES_MAX];
    uint32_t last; /* lines of a file come in the order of the input */
    uint64_t lines;
};

static void check_line(struct tally *tally, struct str line) {
    struct ledger_batch *own = &world->ledger.batches[tally->batch];
    uint32_t number, of;
    char told[32], question[24];
    if (!ledger_custom_id(line, &of, &number) || of != tally->batch)
        world_fail("%s has a line of nobody (I3)", own->id);
    read_line(tally->batch, line);
    if (tally->found[number]++) world_fail("%s line %u is there twice (I2)", own->id, number + 1);
    if (tally->lines > 0 && number < tally->last)
        world_fail("%s line %u is out of order (I3)", own->id, number + 1);
    tally->last = number;
    tally->lines++;
    if (!tally->is_output && world->plan.failing && world->plan.workers > 1 &&
        memmem(line.at, line.bytes, "trouble", 7))
        world_fail("%s line %u has an error of one worker, and the other is well (tries)", own->id,
                   number + 1);
    if (!tally->is_output) return;
    ledger_question(of, number, question);
    snprintf(told, sizeof told, "told %s.", question);
    if (!memmem(line.at, line.bytes, told, strlen(told)))
        world_fail("%s line %u has the answer of another line (I3)", own->id, number + 1);
}

static uint64_t check_file(struct store *store, struct tally *tally, const char *id) {
    size_t bytes;
    if (!*id) return 0;
    char *text = read_file(store, id, &bytes);
    tally->lines = 0;
    for (const char *at = text, *end; (end = memchr(at, '\n', bytes - (size_t)(at - text)));
         at = end + 1)
        check_line(tally, (struct str){at, (size_t)(end - at)});
    free(text);
    return tally->lines;
}

static void check_end(struct store *store, uint32_t batch, const struct store_batch *row) {
    struct ledger_batch *own = &world->ledger.batches[batch];
    struct tally tally = {.batch = batch, .is_output = true};
    if (row->status == BATCH_FAILED ||
        (row->status == BATCH_EXPIRED && !world->ledger.may_expire) ||
        (row->status == BATCH_CANCELLED && !own->may_be_cancelled))
        world_fail("%s is %s: %s", row->id, batch_status_name(row->status),
                   row->errors ? row->errors : "nobody asked for it");
    uint64_t good = check_file(store, &tally, row->output_file_id);
    tally.is_output = false;
    uint64_t bad = check_file(store, &tally, row->error_file_id);
    if (good != row->completed)
        world_fail("%s counts %" PRIu64 " of %" PRIu64 " good lines (I4)", row->id, row->completed,
                   good);
    if (row->status == BATCH_COMPLETED && bad != row->failed)
        world_fail("%s counts %" PRIu64 " of %" PRIu64 " bad lines (I4)", row->id, row->failed,
                   bad);
    for (uint32_t i = 0; i < own->lines && row->total > 0; i++)
        if (tally.found[i] != 1) world_fail("%s line %u has no result (I2)", row->id, i + 1);
}

void ledger_check_ends(struct store *store, struct runner *runner) {
    for (uint32_t i = 0; i < PLAN_BATCHES_MAX; i++) {
        struct store_batch row;
        if (!world->ledger.batches[i].is_created || !get_row(runner, i, &row)) continue;
        ledger_show(i, &row);
        check_end(store, i, &row);
        store_batch_release(&row);
    }
}
