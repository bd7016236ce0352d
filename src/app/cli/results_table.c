/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/results_table.h"

#include "base/os.h"
#include "client/fetched_lines.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Names of the fetched files. */
struct places {
    char folder[PATH_MAX]; /* made for them; empty if they lie next to the table */
    char results[PATH_MAX], requests[PATH_MAX];
};

static enum err find_places(const char *output, struct places *ret_places, struct error *error) {
    const char *temporary = getenv("TMPDIR");
    int bytes = 0;
    *ret_places = (struct places){.folder = ""};
    if (!output) {
        bytes = snprintf(ret_places->folder, PATH_MAX - 16, "%s/quern-results-XXXXXX",
                         temporary && *temporary ? temporary : "/tmp");
        if (bytes < PATH_MAX - 16 && !mkdtemp(ret_places->folder))
            return err_from_errno(error, errno, "cannot make a folder for the results");
    }
    const char *start = output ? output : ret_places->folder, *mark = output ? ".quern-" : "/";
    if (bytes >= PATH_MAX - 16 || strlen(start) >= PATH_MAX - 16)
        return err_set(error, ERR_INVALID, "the name of the table is too long");
    snprintf(ret_places->results, PATH_MAX, "%.*s%sresults", PATH_MAX - 16, start, mark);
    snprintf(ret_places->requests, PATH_MAX, "%.*s%srequests", PATH_MAX - 16, start, mark);
    return OK;
}

static void drop_places(const struct places *places) {
    struct error ignored;
    const char *const paths[] = {places->results, places->requests};
    for (size_t i = 0; i < 2; i++)
        if (access(paths[i], F_OK) == 0 && os_unlink(paths[i], &ignored) != OK) return;
    if (*places->folder) (void)rmdir(places->folder);
}

/* Fetches the results, or the requests, of a batch into a new file. */
static enum err fetch(struct session *session, const struct batch_object *batch,
                      enum fetched_part part, const char *path, struct error *error) {
    int fd;
    enum err err = os_create(&fd, path, 0600, error);
    if (err != OK) return err;
    err = fetched_lines(session->remote, batch, part, fd, error);
    os_close(fd);
    return err == OK || part != FETCHED_REQUESTS
               ? err
               : err_prefix(error, "the input file, which has the rows of the table");
}

static void say(void *context, const char *sentence) {
    session_say(context, "%s", sentence);
}

enum err results_table(struct session *session, const struct table_file *file,
                       const struct batch_object *batch, bool *ret_is_whole, struct error *error) {
    struct places places;
    struct table_join_report report;
    if (!batch_object_is_over(batch))
        return err_set(error, ERR_CONFLICT,
                       "%.100s is %s: a table is made of all results; `quern watch` waits for them",
                       batch->id, batch->status);
    if (batch->state == STATE_FAILED)
        return err_set(error, ERR_INVALID,
                       "%.100s has no results: its file was refused; see quern status %.100s",
                       batch->id, batch->id);
    enum err err = table_file_check(file, error);
    if (err == OK) err = find_places(file->path, &places, error);
    if (err != OK) return err;
    err = fetch(session, batch, FETCHED_RESULTS, places.results, error);
    if (err == OK) err = fetch(session, batch, FETCHED_REQUESTS, places.requests, error);
    const struct table_join join = {.requests = places.requests,
                                    .results = {places.results},
                                    .result_count = 1,
                                    .name = "the results",
                                    .form = file->form};
    if (err == OK) err = table_file_join(file, &join, &report, error);
    drop_places(&places);
    if (err == OK) *ret_is_whole = !table_file_say(file, &report, say, session);
    return err;
}
