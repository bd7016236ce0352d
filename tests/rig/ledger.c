/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger.h"

#include "base/clock.h"
#include "base/crc.h"
#include "base/os.h"
#include "batch/state.h"
#include "calls.h"
#include "store/batches_remove.h"
#include "world.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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
        if (!own->may_be_erased && (strcmp(own->output_id, row->output_file_id) != 0 ||
                                    strcmp(own->error_id, row->error_file_id) != 0))
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

static bool has_bit(uint64_t bits, uint32_t line) {
    return bits >> line & 1;
}

/* Whether these are the bytes of the input without the lines of `gone`. */
static bool is_input(uint32_t batch, uint64_t gone, struct str found) {
    const struct ledger_batch *own = &world->ledger.batches[batch];
    size_t bytes;
    char *whole = ledger_input(batch, own->lines, &bytes), *line = whole;
    struct buf expected;
    buf_init(&expected, BUF_UNLIMITED);
    for (uint32_t i = 0; i < own->lines; i++) {
        char *end = memchr(line, '\n', bytes - (size_t)(line - whole));
        if (!has_bit(gone, i)) buf_add(&expected, line, (size_t)(end - line));
        buf_add_byte(&expected, '\n');
        line = end + 1;
    }
    bool is = str_equals(buf_str(&expected), found);
    buf_release(&expected);
    free(whole);
    return is;
}

/* An erasure gives the input another id; the client may not have been told. */
static void find_input(struct runner *runner, const struct ledger_batch *own,
                       char ret_id[STORE_ID_BYTES]) {
    struct store_batch row;
    struct error error;
    memcpy(ret_id, own->file_id, STORE_ID_BYTES);
    if (!own->may_be_erased || runner_batch_get(runner, str_from(own->id), &row, &error) != OK)
        return;
    memcpy(ret_id, row.input_file_id, STORE_ID_BYTES);
    store_batch_release(&row);
}

static void check_input(struct store *store, struct runner *runner, uint32_t batch) {
    const struct ledger_batch *own = &world->ledger.batches[batch];
    char id[STORE_ID_BYTES];
    size_t bytes;
    if (!own->is_uploaded || own->may_be_deleted) return;
    find_input(runner, own, id);
    char *found = read_file(store, id, &bytes);
    struct str text = {found, bytes};
    /* All lines of an erasure are gone, or none. */
    if (!is_input(batch, own->erased, text) && !is_input(batch, own->may_be_erased, text))
        world_fail("%s is not what was uploaded (I1)", id);
    free(found);
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
        check_input(store, runner, i);
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
        if (!ledger_custom_id((struct str){at, (size_t)(next - at)}, &of, &number)) continue;
        if (of == batch && has_bit(world->ledger.batches[batch].erased, number))
            world_fail("line %u of b%u was erased and is there (erasure)", number + 1, batch);
        found += of == batch && world->backup.batches[batch].is_seen[number] &&
                 !has_bit(world->ledger.batches[batch].may_be_erased, number);
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
        for (uint32_t line = 0; line < LEDGER_LINES_MAX; line++)
            seen += own->is_seen[line] && !has_bit(own->may_be_erased, line);
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
    if (has_bit(own->erased, number))
        world_fail("%s line %u was erased and is there (erasure)", own->id, number + 1);
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
        if (end > at) check_line(tally, (struct str){at, (size_t)(end - at)}); /* else erased */
    free(text);
    return tally->lines;
}

/* The order of results fits the files, which an erasure has written anew. */
static void check_order(struct runner *runner, const struct ledger_batch *own, uint64_t lines) {
    struct runner_results *results;
    struct page_read read;
    struct error error;
    struct buf text;
    uint64_t found = 0;
    const struct page page = {
        .lines_max = LEDGER_LINES_MAX, .bytes_max = PAGE_BYTES, .room = PAGE_BYTES};
    buf_init(&text, BUF_UNLIMITED);
    runner_results_open(&results, runner, str_from(own->id));
    if (runner_results_read(results, &page, &text, &read, &error) != OK)
        world_fail("results of %s cannot be read: %s (erasure)", own->id, error.text);
    runner_results_close(results);
    for (size_t i = 0; i < text.bytes; i++) found += text.at[i] == '\n';
    ledger_read((uint32_t)(own - world->ledger.batches), buf_str(&text));
    buf_release(&text);
    if (found != lines)
        world_fail("%s shows %" PRIu64 " of %" PRIu64 " results (erasure)", own->id, found, lines);
}

static void check_end(struct store *store, struct runner *runner, uint32_t batch,
                      const struct store_batch *row) {
    struct ledger_batch *own = &world->ledger.batches[batch];
    struct tally tally = {.batch = batch, .is_output = true};
    if (row->status == BATCH_FAILED ||
        (row->status == BATCH_EXPIRED && !world->ledger.may_expire) ||
        (row->status == BATCH_CANCELLED && !own->may_be_cancelled))
        world_fail("%s is %s: %s", row->id, batch_status_name(row->status),
                   row->errors ? row->errors : "nobody asked for it");
    uint64_t good = check_file(store, &tally, row->output_file_id);
    tally.is_output = false;
    uint64_t bad = check_file(store, &tally, row->error_file_id), gone = 0;
    for (uint32_t i = 0; i < own->lines && row->total > 0; i++) {
        if (tally.found[i] == 0 && has_bit(own->may_be_erased, i))
            gone++;
        else if (tally.found[i] != 1)
            world_fail("%s line %u has no result (I2)", row->id, i + 1);
    }
    if (own->may_be_erased && !world->ledger.may_expire) check_order(runner, own, good + bad);
    /* The counts have the erased lines still, which the client knows only together. */
    uint64_t lost = row->completed - good;
    if (good > row->completed || lost > gone)
        world_fail("%s counts %" PRIu64 " of %" PRIu64 " good lines (I4)", row->id, row->completed,
                   good);
    if (row->status == BATCH_COMPLETED && bad + (gone - lost) != row->failed)
        world_fail("%s counts %" PRIu64 " of %" PRIu64 " bad lines (I4)", row->id, row->failed,
                   bad);
}

/* --- what was erased --- */

#define ERASED_TRIES 40 /* a sweep of another thread may be between a row and its file */

/* Whether a file has an erased line; then *ret_line and *ret_batch. */
static bool has_erased(const char *path, uint32_t *ret_batch, uint32_t *ret_line) {
    char *bytes, text[24];
    size_t size;
    struct error error;
    bool has = false;
    if (os_read_file(path, (size_t)64 << 20, &bytes, &size, &error) != OK) return false;
    for (uint32_t batch = 0; batch < PLAN_BATCHES_MAX && !has; batch++) {
        const struct ledger_batch *own = &world->ledger.batches[batch];
        for (uint32_t line = 0; line < own->lines && !has; line++) {
            if (own->uploads > 1 || !has_bit(own->erased, line)) continue;
            int count = snprintf(text, sizeof text, "\"b%u-%u\"", batch, line);
            has = memmem(bytes, size, text, (size_t)count) != NULL;
            *ret_batch = batch;
            *ret_line = line;
        }
    }
    free(bytes);
    return has;
}

static bool look_at_folder(const char *path, int depth, bool is_last) {
    char inside[512];
    struct stat status;
    uint32_t batch, line;
    bool is_clean = true;
    DIR *dir = os_opendir(path);
    if (!dir) return true;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(inside, sizeof inside, "%.200s/%.200s", path, entry->d_name);
        if (lstat(inside, &status) != 0) continue;
        if (S_ISDIR(status.st_mode) && depth > 0)
            is_clean = look_at_folder(inside, depth - 1, is_last) && is_clean;
        if (!S_ISREG(status.st_mode) || !has_erased(inside, &batch, &line)) continue;
        if (is_last)
            world_fail("%s has line %u of b%u, which was erased (erasure)", inside, line + 1,
                       batch);
        is_clean = false;
    }
    closedir(dir);
    return is_clean;
}

void ledger_check_erased(struct store *store) {
    uint64_t erased = 0;
    struct error error;
    bool has_more;
    for (uint32_t i = 0; i < PLAN_BATCHES_MAX; i++) erased |= world->ledger.batches[i].erased;
    if (!erased || store_batch_sweep(store, clock_unix_s(), 1000, &has_more, &error) != OK) return;
    for (int i = 0; i < ERASED_TRIES && !look_at_folder(RIG_DIR, 3, i + 1 == ERASED_TRIES); i++)
        clock_sleep_ms(250);
}

/* --- the end of all --- */

void ledger_check_ends(struct store *store, struct runner *runner) {
    for (uint32_t i = 0; i < PLAN_BATCHES_MAX; i++) {
        struct store_batch row;
        if (!world->ledger.batches[i].is_created || !get_row(runner, i, &row)) continue;
        ledger_show(i, &row);
        check_end(store, runner, i, &row);
        store_batch_release(&row);
    }
}
