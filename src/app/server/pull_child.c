/* SPDX-License-Identifier: Apache-2.0 */
#include "server/pull_child.h"

#include "base/child.h"
#include "json/json.h"

#define LINE_BYTES_MAX ((size_t)64 << 10)

struct reading {
    const struct api_pull *pull;
    struct buf line; /* start of a line, until its LF has come */
};

static bool is_stopped(void *context) {
    const struct reading *reading = context;
    return reading->pull->stopped(reading->pull->context);
}

bool pull_child_read_line(struct str line, uint64_t *ret_done, uint64_t *ret_total) {
    json_t *object = NULL;
    struct error error;
    if (line.bytes == 0 || json_read(&object, line, &error) != OK) return false;
    json_int_t done = json_integer_value(json_object_get(object, "bytes_done"));
    json_int_t total = json_integer_value(json_object_get(object, "bytes"));
    bool is_progress = json_object_get(object, "progress") && done >= 0 && total >= done;
    json_decref(object);
    if (!is_progress) return false;
    *ret_done = (uint64_t)done;
    *ret_total = (uint64_t)total;
    return true;
}

/* Lines of other kinds, and malformed ones, are passed over. */
static void take_line(const struct reading *reading, struct str line) {
    uint64_t done, total;
    if (pull_child_read_line(line, &done, &total))
        reading->pull->progress(reading->pull->context, done, total);
}

static void take_output(void *context, struct str bytes) {
    struct reading *reading = context;
    while (bytes.bytes > 0) {
        size_t end = str_find_byte(bytes, '\n', 0);
        buf_add(&reading->line, bytes.at, end == SIZE_MAX ? bytes.bytes : end);
        if (end == SIZE_MAX) return;
        if (!reading->line.overflowed) take_line(reading, buf_str(&reading->line));
        buf_release(&reading->line);
        buf_init(&reading->line, LINE_BYTES_MAX);
        bytes = str_skip(bytes, end + 1);
    }
}

enum err pull_child_run(void *context, const struct api_pull *pull, struct error *error) {
    const char *const arguments[] = {
        "quern",   "pull",     pull->name, /* no option: api/pulls.c has looked at it */
        "--quiet", "--events", "--end-with-parent", NULL};
    struct reading reading = {.pull = pull};
    struct child_end end;
    if (is_stopped(&reading)) return err_set(error, ERR_CANCELLED, "stopped");
    buf_init(&reading.line, LINE_BYTES_MAX);
    const struct child_options options = {.command = "pull",
                                          .arguments = arguments,
                                          .context = &reading,
                                          .stopped = is_stopped,
                                          .output = take_output};
    enum err err = child_run(&options, &end, error);
    buf_release(&reading.line);
    if (err == OK && end.status != 0) err = err_set(error, ERR_UNAVAILABLE, "%s", end.sentence);
    return err == OK ? node_adopt(context, pull->name, error) : err;
}
