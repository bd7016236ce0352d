/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/result_check.h"

#include "base/str.h"
#include "json/lines.h"
#include "json/span.h"

#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

void result_check_init(struct result_check *check) {
    *check = (struct result_check){.lines = 0};
    map_init(&check->ids);
    buf_init(&check->id, BUF_UNLIMITED);
}

void result_check_release(struct result_check *check) {
    map_release(&check->ids);
    buf_release(&check->id);
}

void result_check_add(struct result_check *check, struct str line) {
    if (check->lines == 0 && str_starts_with(line, STR("\xEF\xBB\xBF"))) line = str_skip(line, 3);
    line = json_span_trim(line);
    if (line.bytes == 0) return;
    check->lines++;
    struct str id = json_span_get(line, "custom_id");
    if (!json_span_is_string(id) || !json_span_is_utf8(line) || !json_span_read(line, NULL)) {
        if (check->unreadable++ == 0) check->first_unreadable = check->lines;
        return;
    }
    buf_clear(&check->id);
    json_span_decode(&check->id, id);
    check->repeated += !map_put_new(&check->ids, buf_str(&check->id), 0, NULL);
}

enum err result_check_add_file(struct result_check *check, int fd, struct error *error) {
    struct lines lines;
    if (lseek(fd, 0, SEEK_SET) < 0) return err_from_errno(error, errno, "cannot read the results");
    lines_init(&lines, fd);
    enum err err = lines_next(&lines, error);
    while (err == OK && lines.line.at) {
        result_check_add(check, lines.line);
        err = lines_next(&lines, error);
    }
    lines_release(&lines);
    return err;
}

/* As many results as the server says that it has: all of them if the batch completed. */
static uint64_t wanted_of(const struct batch_object *batch) {
    uint64_t ended = batch->completed + batch->failed;
    return batch->state == STATE_COMPLETED && batch->total > ended ? batch->total : ended;
}

bool result_check_say(const struct result_check *check, struct session *session,
                      const struct batch_object *batch) {
    uint64_t wanted = wanted_of(batch), got = check->ids.count;
    if (check->unreadable > 0)
        session_say(session,
                    "%" PRIu64 " of %" PRIu64
                    " lines cannot be read as %s; the first is line %" PRIu64,
                    check->unreadable, check->lines,
                    plural(check->unreadable, "a result", "results"), check->first_unreadable);
    if (check->repeated > 0)
        session_say(session, "%" PRIu64 " %s the custom_id of an earlier one", check->repeated,
                    plural(check->repeated, "line has", "lines have"));
    if (got < wanted)
        session_say(session,
                    "%" PRIu64 " %s missing: request_counts of %.100s says %" PRIu64
                    " completed and %" PRIu64 " failed of %" PRIu64 ", and %" PRIu64 " came%s",
                    wanted - got, plural(wanted - got, "result is", "results are"), batch->id,
                    batch->completed, batch->failed, batch->total, got,
                    *batch->output_file_id || *batch->error_file_id
                        ? ""
                        : "; the server names no file of results");
    return got >= wanted && check->unreadable == 0;
}
