/* SPDX-License-Identifier: Apache-2.0 */
/* Files of judgements, and columns of requests: a byte of settings, the judgements or requests, a
 * NUL, the answers that they are about. The file that is made has as many lines as the counts say,
 * each an answer with a custom_id of its own; with less memory it is the same, or refused as such.
 */
#include "batch/jsonl_file.h"
#include "compare/result_line.h"
#include "evaluate/judged.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static char folder[] = "/tmp/fuzz_judged.XXXXXX";
static char made[PATH_MAX], made_again[PATH_MAX];

static void end(void) {
    unlink(made);
    unlink(made_again);
    rmdir(folder);
}

static void begin(void) {
    if (made[0]) return;
    if (!mkdtemp(folder)) abort();
    snprintf(made, sizeof made, "%s/made", folder);
    snprintf(made_again, sizeof made_again, "%s/again", folder);
    atexit(end);
}

/* A file without a name; its path in *ret_path. The caller closes it. */
static int file_of(struct str text, char ret_path[64]) {
    int fd = memfd_create("judged", MFD_CLOEXEC);
    if (fd < 0 || write(fd, text.at, text.bytes) != (ssize_t)text.bytes) abort();
    snprintf(ret_path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

static uint64_t check_lines(void) {
    struct jsonl_file file;
    struct result_line line;
    struct str text;
    struct error error;
    struct buf id;
    uint64_t count = 0;
    json_t *seen = json_object();
    buf_init(&id, BUF_UNLIMITED);
    assert(jsonl_file_open(&file, made, &error) == OK);
    while (jsonl_file_next(&file, &text)) {
        assert(result_line_read(&line, text, true, &id, &error) == OK && line.is_answered);
        assert(!json_object_getn(seen, id.at ? id.at : "", id.bytes));
        json_object_setn_new_nocheck(seen, id.at ? id.at : "", id.bytes, json_true());
        result_line_release(&line);
        count++;
    }
    jsonl_file_close(&file);
    buf_release(&id);
    json_decref(seen);
    return count;
}

static enum err make(struct judged *judged, const char *from, const char *path) {
    struct error error;
    enum err err = judged->column_count ? judged_from_columns(judged, from, path, &error)
                                        : judged_from_file(judged, from, path, &error);
    assert((err == OK) == judged->is_made && (err == OK || error.text[0]));
    return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const char *const columns[] = {"a", "b.c=score"};
    char from[64], answers[64];
    if (bytes == 0) return 0;
    begin();
    struct str rest = {(const char *)data + 1, bytes - 1};
    size_t at = str_find_byte(rest, '\0', 0);
    struct str first = {rest.at, at == SIZE_MAX ? rest.bytes : at};
    int from_fd = file_of(first, from);
    int answers_fd = file_of(str_skip(rest, first.bytes + (at != SIZE_MAX)), answers);
    struct judged judged = {.answers = at == SIZE_MAX ? NULL : answers,
                            .field = data[0] & 1 ? "score" : NULL,
                            .columns = columns,
                            .column_count = data[0] & 2 ? 2 : 0};
    struct judged narrow = judged;
    narrow.memory_max = (size_t)(data[0] >> 2) << 8;
    (void)judged_is(from);
    enum err err = make(&judged, from, made);
    if (err == OK) assert(judged.lines > 0 && check_lines() == judged.lines);
    enum err again = make(&narrow, from, made_again);
    assert(again == err || again == ERR_LIMIT);
    if (again == OK)
        assert(narrow.lines == judged.lines && narrow.disputed == judged.disputed &&
               narrow.skipped == judged.skipped);
    close(from_fd);
    close(answers_fd);
    return 0;
}
