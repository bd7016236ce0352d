/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/table_file.h"

#include "base/os.h"
#include "base/str.h"
#include "base/whole_file.h"
#include "json/json.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SCHEMA_BYTES_MAX ((size_t)1 << 20)

/* Reads a schema, raw; the caller frees *ret_text. */
static enum err read_schema(const char *path, char **ret_text, struct str *ret_schema,
                            struct error *error) {
    size_t bytes;
    json_t *value;
    enum err err = os_read_file(path, SCHEMA_BYTES_MAX, ret_text, &bytes, error);
    if (err != OK) return err_prefix(error, "--schema");
    os_drop_mark(*ret_text, &bytes);
    *ret_schema = str_trim((struct str){*ret_text, bytes});
    err = json_read(&value, *ret_schema, error);
    if (err != OK) {
        err = err_prefix(error, "--schema %s", path);
    } else {
        bool has_columns = json_object_size(json_member(value, "properties")) > 0;
        if (!has_columns)
            err = err_set(error, ERR_INVALID, "--schema %s: it has no properties to be columns",
                          path);
        json_decref(value);
    }
    if (err != OK) free(*ret_text);
    return err;
}

static enum err check_schema(const struct table_file *file, struct error *error) {
    char *text;
    struct str schema;
    if (!file->schema) return OK;
    enum err err = read_schema(file->schema, &text, &schema, error);
    if (err == OK) free(text);
    return err;
}

enum err table_file_check(const struct table_file *file, struct error *error) {
    bool exists = false;
    enum err err = check_schema(file, error);
    if (err != OK || !file->path) return err;
    err = whole_file_check(file->path, &exists, error);
    if (err != OK || !exists || file->overwrite) return err;
    return err_set(error, ERR_CONFLICT, "%s exists; name another file, or --overwrite it",
                   file->path);
}

enum err table_file_make(const struct table_file *file,
                         enum err (*write)(void *context, int fd, struct error *error),
                         void *context, struct error *error) {
    char part[PATH_MAX], rows[PATH_MAX];
    struct error ignored;
    int fd;
    bool is_parquet = file->form.kind == TABLE_PARQUET;
    if (!file->path) return write(context, STDOUT_FILENO, error);
    if (snprintf(part, sizeof part, "%s.part", file->path) >= (int)sizeof part - 8)
        return err_set(error, ERR_INVALID, "-o: the name is too long");
    snprintf(rows, sizeof rows, "%.*s%s", PATH_MAX - 8, part, is_parquet ? ".rows" : "");
    enum err err = table_file_check(file, error);
    if (err == OK) err = os_create(&fd, rows, 0644, error);
    if (err != OK) return err;
    err = write(context, fd, error);
    if (err == OK) err = os_fsync(fd, error);
    os_close(fd);
    if (err == OK && is_parquet) err = parquet_write(rows, part, NULL, error);
    if (err == OK) err = whole_file_place(part, file->path, file->overwrite, error);
    enum err left = os_unlink(part, err == OK ? error : &ignored);
    if (is_parquet && os_unlink(rows, &ignored) != OK) return err;
    return err == OK ? left : err;
}

/* --- requests and results --- */

struct joining {
    const struct table_file *file;
    const struct table_join *join;
    struct table_join_report *report;
    char rest[PATH_MAX]; /* empty: nowhere */
    bool has_rest;       /* the rest has its name */
};

/* Gives the rest its name, if it has any line. */
static enum err place_rest(struct joining *is, const char *part, int fd, struct error *error) {
    uint64_t bytes = 0;
    enum err err = os_file_bytes(fd, &bytes, error);
    if (err != OK || bytes == 0) return err;
    err = os_fsync(fd, error);
    if (err == OK) err = whole_file_place(part, is->rest, is->file->overwrite, error);
    is->has_rest = err == OK;
    return err == ERR_CONFLICT ? err_set(error, err,
                                         "%s exists, which has the place of the results that the "
                                         "table does not show; move it away, or --overwrite it",
                                         is->rest)
                               : err;
}

static enum err write_joined(void *context, int fd, struct error *error) {
    struct joining *is = context;
    char part[PATH_MAX];
    struct error ignored;
    int rest;
    if (!*is->rest) return table_join_write(is->join, fd, -1, is->report, error);
    snprintf(part, sizeof part, "%.*s.part", PATH_MAX - 8, is->rest);
    enum err err = os_create(&rest, part, 0644, error);
    if (err != OK) return err;
    err = table_join_write(is->join, fd, rest, is->report, error);
    if (err == OK) err = place_rest(is, part, rest, error);
    os_close(rest);
    enum err left = os_unlink(part, err == OK ? error : &ignored);
    return err == OK ? left : err;
}

enum err table_file_join(const struct table_file *file, const struct table_join *join,
                         struct table_join_report *ret_report, struct error *error) {
    struct table_join whole = *join;
    struct joining joining = {.file = file, .join = &whole, .report = ret_report};
    char *schema = NULL;
    struct error ignored;
    *ret_report = (struct table_join_report){0};
    if (file->path && snprintf(joining.rest, PATH_MAX, TABLE_REST, file->path) >= PATH_MAX - 8)
        return err_set(error, ERR_INVALID, "-o: the name is too long");
    enum err err =
        file->schema ? read_schema(file->schema, &schema, &whole.form.schema, error) : OK;
    if (err != OK) return err;
    err = table_file_make(file, write_joined, &joining, error);
    free(schema);
    if (err != OK && joining.has_rest) (void)!os_unlink(joining.rest, &ignored);
    return err;
}

/* Says a sentence, without the control characters of foreign texts. */
static void tell(table_say_fn say, void *context, const char *format, ...) PRINTF_LIKE(3, 4);
static void tell(table_say_fn say, void *context, const char *format, ...) {
    char text[ERROR_TEXT_BYTES];
    struct error note;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    (void)(err_set)(&note, ERR_INVALID, "%s", text);
    say(context, note.text);
}

bool table_file_say(const struct table_file *file, const struct table_join_report *report,
                    table_say_fn say, void *context) {
    if (report->missing > 0)
        tell(say, context, "%" PRIu64 " %s no result", report->missing,
             plural(report->missing, "request has", "requests have"));
    if (report->unreadable > 0)
        tell(say, context, "%" PRIu64 " %s be read as results; the first is %s", report->unreadable,
             plural(report->unreadable, "line cannot", "lines cannot"), report->unreadable_at);
    if (report->foreign > 0)
        tell(say, context, "%" PRIu64 " %s to no request; the first is %s", report->foreign,
             plural(report->foreign, "result belongs", "results belong"), report->foreign_at);
    if (report->partial > 0)
        tell(say, context, "%" PRIu64 " %s more than the row shows, such as a second choice",
             report->partial, plural(report->partial, "result has", "results have"));
    bool has_rest = report->unreadable + report->foreign + report->partial > 0;
    if (has_rest && file->path)
        tell(say, context, "these lines stand whole in " TABLE_REST, file->path);
    else if (has_rest)
        tell(say, context, "with -o the table gets a second file, which has these lines whole");
    return report->missing + report->unreadable + report->foreign > 0;
}
