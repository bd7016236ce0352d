/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger.h"

#include "base/rng.h"
#include "sim.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMITS_MAX 20000u
#define SERVED_MAX 200u
#define TEXT_MAX (512u << 10)

struct commit {
    struct state state;
    uint32_t parent, served;
    int64_t told_ns; /* 0: no client knows of it */
};

static struct commit *commits; /* [0] is no commit */
static uint32_t commit_count;
static struct served all_served[SERVED_MAX];
static uint32_t served_count;
static uint32_t keys_told;
static int64_t keys_told_ns, last_told_ns;

/* --- what is in a state --- */

static void put_u32(char *at, uint32_t value) {
    memcpy(at, &value, sizeof value);
}

static uint32_t get_u32(const char *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void fill(char *bytes, size_t count, uint64_t a, uint64_t b) {
    for (size_t i = 0; i + 8 <= count; i += 8) {
        uint64_t word = rng_at(a * 1000003 + b, i);
        memcpy(bytes + i, &word, 8);
    }
}

#define HEAD_AT 24u
#define STATE_WORDS (sizeof(struct state) / 4)

void ledger_page(const struct state *state, uint32_t index, char ret_page[LEDGER_PAGE_BYTES]) {
    memset(ret_page, 0, LEDGER_PAGE_BYTES);
    if (index > 0) {
        fill(ret_page, LEDGER_PAGE_BYTES, state->page_of[index], index);
        put_u32(ret_page, state->page_of[index]);
        return;
    }
    memcpy(ret_page, "quern simulated", 16);
    ret_page[16] = LEDGER_PAGE_BYTES >> 8; /* where SQLite has it */
    memcpy(ret_page + HEAD_AT, state, sizeof *state);
}

uint32_t ledger_file(uint32_t file, char ret_bytes[LEDGER_LARGE_BYTES]) {
    uint32_t bytes = file % 2 ? LEDGER_LARGE_BYTES : LEDGER_SMALL_BYTES;
    memset(ret_bytes, 'f', bytes);
    fill(ret_bytes, 64, file, bytes);
    return bytes;
}

void ledger_file_path(const char *dir, uint32_t file, char ret_path[160]) {
    snprintf(ret_path, 160, "%.100s/files/%02u/file-%06u", dir, file % 100, file);
}

void ledger_segment_path(const char *dir, uint32_t index, char ret_path[160]) {
    snprintf(ret_path, 160, "%.100s/batches/batch_1/seg-%06u.log", dir, index);
}

uint32_t ledger_segment_bytes(void) {
    return sim->plan.has_large ? 66000 : 4096;
}

/* --- what happens --- */

static uint32_t read_whole(const char *path, char *ret_bytes, uint32_t bytes_max) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return UINT32_MAX;
    ssize_t bytes = read(fd, ret_bytes, bytes_max);
    close(fd);
    return bytes < 0 ? UINT32_MAX : (uint32_t)bytes;
}

static uint32_t read_text(const char *dir, char *ret_text) {
    char path[160];
    uint32_t at = 0, segment_bytes = ledger_segment_bytes();
    for (uint32_t i = 1; at + segment_bytes <= TEXT_MAX; i++) {
        ledger_segment_path(dir, i, path);
        uint32_t bytes = read_whole(path, ret_text + at, segment_bytes);
        if (bytes == UINT32_MAX) return at;
        at += bytes;
        if (bytes < segment_bytes) return at;
    }
    return at;
}

uint32_t ledger_serve(const char *dir) {
    assert(served_count < SERVED_MAX);
    struct served *served = &all_served[served_count];
    served->text = malloc(TEXT_MAX);
    served->text_bytes = read_text(dir, served->text);
    return served_count++;
}

struct served *ledger_served(uint32_t number) {
    return &all_served[number];
}

void ledger_commit(uint32_t served, struct state *state) {
    if (!commits) commits = calloc(COMMITS_MAX, sizeof *commits);
    assert(commits && commit_count + 1 < COMMITS_MAX);
    uint32_t number = ++commit_count, parent = state->commit;
    struct rng rng = sim_rng(number * 4 + 1);
    state->commit = number;
    state->text_bytes = all_served[served].text_bytes;
    if (state->page_count < 2) state->page_count = 2;
    if (state->page_count < LEDGER_PAGES_MAX && rng_below(&rng, 8) == 0) state->page_count++;
    for (uint32_t i = 1; i < state->page_count; i++)
        if (state->page_of[i] == 0 || rng_below(&rng, 3) == 0) state->page_of[i] = number;
    commits[number] = (struct commit){*state, parent, served, 0};
}

void ledger_tell(uint32_t commit) {
    if (commits[commit].told_ns == 0) commits[commit].told_ns = sim->now_ns;
    last_told_ns = sim->now_ns;
}

void ledger_tell_text(uint32_t served, uint32_t bytes) {
    if (all_served[served].told_bytes < bytes) all_served[served].told_bytes = bytes;
}

void ledger_tell_keys(uint32_t version) {
    if (version <= keys_told) return;
    keys_told = version;
    keys_told_ns = sim->now_ns;
}

int64_t ledger_told_ns(void) {
    return last_told_ns;
}

uint32_t ledger_commits(void) {
    return commit_count;
}

/* --- what a directory has --- */

static void read_database(const char *dir, struct state *ret_state) {
    char path[160], pages[LEDGER_PAGES_MAX * LEDGER_PAGE_BYTES + 1], page[LEDGER_PAGE_BYTES];
    snprintf(path, sizeof path, "%.100s/meta.db", dir);
    uint32_t bytes = read_whole(path, pages, sizeof pages);
    if (bytes == UINT32_MAX || bytes < LEDGER_PAGE_BYTES) sim_fail("no database (fsck)");
    memcpy(ret_state, pages + HEAD_AT, sizeof *ret_state);
    uint32_t number = ret_state->commit;
    if (number == 0 || number > commit_count ||
        memcmp(ret_state, &commits[number].state, sizeof *ret_state) != 0)
        sim_fail("the database says commit %u, which is none (fsck)", number);
    if (bytes != ret_state->page_count * LEDGER_PAGE_BYTES)
        sim_fail("the database of commit %u has %u bytes (fsck)", number, bytes);
    for (uint32_t i = 0; i < ret_state->page_count; i++) {
        ledger_page(ret_state, i, page);
        if (memcmp(page, pages + i * LEDGER_PAGE_BYTES, sizeof page) != 0)
            sim_fail("page %u of commit %u was written by commit %u, not %u (fsck)", i + 1, number,
                     get_u32(pages + i * LEDGER_PAGE_BYTES), ret_state->page_of[i]);
    }
}

static void check_files(const char *dir, const struct state *state) {
    static char wanted[LEDGER_LARGE_BYTES], found[LEDGER_LARGE_BYTES + 1];
    char path[160];
    for (uint32_t i = 0; i < state->file_count; i++) {
        uint32_t bytes = ledger_file(state->files[i], wanted);
        ledger_file_path(dir, state->files[i], path);
        if (read_whole(path, found, sizeof found) != bytes || memcmp(found, wanted, bytes) != 0)
            sim_fail("file %u of commit %u is damaged (fsck)", state->files[i], state->commit);
    }
}

static void check_text(const char *dir, const struct state *state) {
    static char text[TEXT_MAX];
    uint32_t bytes = read_text(dir, text);
    const struct commit *commit = &commits[state->commit];
    if (bytes < state->text_bytes ||
        memcmp(text, all_served[commit->served].text, state->text_bytes) != 0)
        sim_fail("the results of commit %u are not there (fsck)", state->commit);
    for (uint32_t i = 0; i < served_count; i++)
        if (all_served[i].told_bytes > bytes ||
            memcmp(text, all_served[i].text, all_served[i].told_bytes) != 0)
            sim_fail("results that a client has counted are gone: %u bytes of process %u, and "
                     "there are %u (results)",
                     all_served[i].told_bytes, i + 1, bytes);
}

static void check_keys(const char *dir, int64_t told_ns) {
    char path[160], text[32] = {0};
    snprintf(path, sizeof path, "%.100s/keys.jsonl", dir);
    bool has_any = read_whole(path, text, sizeof text - 1) != UINT32_MAX;
    uint32_t version = has_any ? (uint32_t)strtoul(text, NULL, 10) : 0;
    if (keys_told_ns <= told_ns && version < keys_told)
        sim_fail("keys of version %u are gone, there is %u (keys)", keys_told, version);
}

/* All that clients were told of must be the state or one of its ancestors. */
static void check_told(const struct state *state, int64_t told_ns) {
    bool *is_below = calloc(commit_count + 1, sizeof *is_below);
    for (uint32_t at = state->commit; at; at = commits[at].parent) is_below[at] = true;
    for (uint32_t i = 1; i <= commit_count; i++)
        if (commits[i].told_ns && commits[i].told_ns <= told_ns && !is_below[i])
            sim_fail("commit %u of process %u was acknowledged at %lld ms, and is not below "
                     "commit %u of process %u (acknowledged)",
                     i, commits[i].served + 1, (long long)(commits[i].told_ns / 1000000),
                     state->commit, commits[state->commit].served + 1);
    free(is_below);
}

void ledger_check(const char *dir, int64_t told_ns, struct state *ret_state) {
    read_database(dir, ret_state);
    check_files(dir, ret_state);
    if (told_ns > 0) check_told(ret_state, told_ns);
    check_keys(dir, told_ns);
    if (told_ns == INT64_MAX) check_text(dir, ret_state);
}
