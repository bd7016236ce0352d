/* SPDX-License-Identifier: Apache-2.0 */
#include "server/offline.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/os.h"
#include "base/whole_file.h"
#include "batch/create.h"
#include "batch/input.h"
#include "batch/shape_ends.h"
#include "batch/state.h"
#include "json/json.h"
#include "node/folder.h"
#include "node/node_power.h"
#include "server/merge.h"
#include "server/offline_note.h"
#include "server/offline_output.h"
#include "server/offline_table.h"
#include "server/open_files.h"
#include "store/state_marks.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define POLL_MS 10
#define REPORTS_EVERY_NS ((int64_t)100000000)
#define DRAIN_MS 2000

/* One call of offline_run. */
struct offline {
    const struct offline_options *options;
    struct node *node;
    char folder[PATH_MAX];
    struct store_batch batch; /* the folder's only batch; its id is empty until it is created */
    bool is_resumed;          /* the folder had the batch before this call */
    uint64_t done_before;
    uint64_t output_tokens_before;
    int64_t started_ns, ready_ns, ended_ns;
    struct node_power power;
    struct offline_note note;
    /* The results that a table does not show in whole: in the folder, and next to the output. */
    char rest[PATH_MAX], rest_path[PATH_MAX];
    uint64_t rest_lines;
};

static double seconds_between(int64_t from_ns, int64_t to_ns) {
    return from_ns && to_ns > from_ns ? (double)(to_ns - from_ns) / 1e9 : 0;
}

static enum err add_to_spool(void *context, const void *bytes, size_t count, struct error *error) {
    return store_spool_write(context, bytes, count, error);
}

/* Copies the input into the store, so that a later change of the file has no effect. */
static enum err store_input(struct offline *offline, struct store_file *ret_file,
                            struct error *error) {
    struct store_spool *spool;
    enum err err = store_spool_open(&spool, node_store(offline->node), error);
    if (err != OK) return err;
    struct table_sink sink = {spool, add_to_spool};
    err = offline_input_write(&offline->options->input, &sink, error);
    if (err == OK) err = batch_spool_look(spool, error);
    if (err != OK) {
        store_spool_abort(spool);
        return err;
    }
    *ret_file = (struct store_file){.created_unix_s = clock_unix_s()};
    snprintf(ret_file->purpose, sizeof ret_file->purpose, "batch");
    snprintf(ret_file->filename, sizeof ret_file->filename, "input.jsonl");
    return store_spool_commit(spool, ret_file, error);
}

static enum err create(struct offline *offline, struct error *error) {
    struct store_file file;
    enum err err = store_input(offline, &file, error);
    if (err != OK) return err;
    /* The window is a year, so that no line expires between two calls. */
    struct batch_parameters parameters = {.endpoint = ENDPOINT_CHAT, .window_s = 366ll * 86400};
    snprintf(parameters.input_file_id, sizeof parameters.input_file_id, "%s", file.id);
    snprintf(parameters.completion_window, sizeof parameters.completion_window, "366d");
    bool existing;
    return batch_create(node_store(offline->node), &parameters, clock_unix_s(), &offline->batch,
                        &existing, error);
}

/* Takes up the batch of an earlier call, if its input is this one. */
static enum err resume(struct offline *offline, bool *ret_found, struct error *error) {
    struct store_batch batch;
    size_t count;
    bool more;
    enum err err = store_batch_list(node_store(offline->node), NULL, (struct str){NULL, 0}, 1,
                                    &batch, &count, &more, error);
    *ret_found = err == OK && count > 0;
    if (!*ret_found) return err;
    offline->batch = batch;
    int fd;
    struct store_file file;
    unsigned char digest[SHA256_BYTES];
    err = store_input_open(node_store(offline->node), str_from(batch.input_file_id),
                           batch.created_unix_s, &fd, &file, error);
    if (err != OK) return err;
    os_close(fd);
    err = offline_input_sha256(&offline->options->input, digest, error);
    if (err == OK && memcmp(digest, file.sha256, sizeof digest) != 0)
        err = err_set(error, ERR_CONFLICT,
                      "%s holds results of another input than %s; remove it to start anew",
                      offline->folder, offline->options->input.path);
    return err;
}

static void report(struct offline *offline, const char *engine) {
    struct worker_status workers[RUNNER_WORKERS_MAX];
    size_t count = runner_worker_statuses(node_runner(offline->node), workers, RUNNER_WORKERS_MAX);
    struct offline_progress progress = {
        .batch = &offline->batch,
        .engine = engine,
        .seconds = seconds_between(offline->ready_ns, clock_monotonic_ns()),
        .done_before = offline->done_before,
    };
    for (size_t i = 0; i < count; i++) {
        progress.running += workers[i].running;
        progress.prompt_tokens += workers[i].prompt_tokens;
        progress.generated_tokens += workers[i].completion_tokens;
    }
    if (offline->options->progress)
        offline->options->progress(offline->options->context, &progress);
}

static void report_bad_lines(struct offline *offline) {
    json_t *errors;
    struct error ignored;
    if (!offline->batch.errors || !offline->options->bad_line ||
        json_read(&errors, str_from(offline->batch.errors), &ignored) != OK)
        return;
    for (size_t i = 0; i < json_array_size(errors); i++) {
        const json_t *one = json_array_get(errors, i);
        offline->options->bad_line(offline->options->context,
                                   (uint64_t)json_integer_value(json_object_get(one, "line")),
                                   json_string_value(json_object_get(one, "code")),
                                   json_string_value(json_object_get(one, "message")));
    }
    json_decref(errors);
}

static enum err look(struct offline *offline, struct error *error) {
    struct store_batch now;
    enum err err =
        runner_batch_get(node_runner(offline->node), str_from(offline->batch.id), &now, error);
    if (err != OK) return err;
    store_batch_release(&offline->batch);
    offline->batch = now;
    return OK;
}

/* Remembers what earlier calls have done. */
static void note_before(struct offline *offline) {
    offline->done_before = offline->batch.completed + offline->batch.failed;
    offline->output_tokens_before = offline->batch.usage.output_tokens;
}

static void note_time(const struct offline *offline) {
    offline_note_write(&offline->note, seconds_between(offline->ready_ns, clock_monotonic_ns()));
}

static enum err say_stopped(const struct offline *offline, struct error *error) {
    return err_set(
        error, ERR_CANCELLED,
        "stopped with %" PRIu64 " of %" PRIu64 " requests done, all kept in %s; the same "
        "command goes on from here",
        offline->batch.completed + offline->batch.failed, offline->batch.total, offline->folder);
}

/* The number is that of the next call: nothing becomes durable after it was read. */
static enum err stop_lines(struct offline *offline, struct error *error) {
    node_halt(offline->node, DRAIN_MS);
    enum err err = look(offline, error);
    return err == OK ? say_stopped(offline, error) : err;
}

static void take_window(void *context, const struct runner_model *model) {
    uint32_t *least = context, window = model->served.context_tokens_max;
    if (window > 0 && (*least == 0 || window < *least)) *least = window;
}

/* Runs the batch to its end. */
static enum err run_batch(struct offline *offline, struct error *error) {
    offline_proof_note(&offline->options->proof, offline->node, &offline->options->node,
                       offline->folder);
    enum err err = node_start(offline->node, error);
    if (err != OK) return err;
    runner_kick(node_runner(offline->node), offline->batch.id);
    offline->ready_ns = clock_monotonic_ns();
    node_power_begin(&offline->power);
    /* A resumed batch tells what it has done once its log was read. */
    bool first = offline->is_resumed;
    int64_t report_due_ns = 0;
    while ((err = look(offline, error)) == OK) {
        if (first && offline->batch.status != BATCH_VALIDATING) {
            note_before(offline);
            first = false;
        }
        const bool has_ended = batch_status_is_terminal(offline->batch.status);
        if (has_ended || clock_monotonic_ns() >= report_due_ns) {
            report(offline, NULL);
            runner_models(node_runner(offline->node), take_window, &offline->note.window);
            node_power_look(&offline->power, offline->node);
            report_due_ns = clock_monotonic_ns() + REPORTS_EVERY_NS;
        }
        note_time(offline);
        if (has_ended) break;
        if (*offline->options->stop) {
            err = stop_lines(offline, error);
            note_time(offline);
            return err;
        }
        clock_sleep_ms(POLL_MS);
    }
    offline->ended_ns = clock_monotonic_ns();
    if (err != OK || offline->batch.status == BATCH_COMPLETED) return err;
    report_bad_lines(offline);
    return err_set(error, ERR_INVALID, "%s: nothing was run", offline->options->input.path);
}

static enum err open_result(struct offline *offline, const char *id, int *ret_fd,
                            struct error *error) {
    *ret_fd = -1;
    if (!*id) return OK;
    return store_file_open(node_store(offline->node), str_from(id), clock_unix_s(), ret_fd, NULL,
                           error);
}

/* Writes the results in the form of the output. */
static enum err write_results(struct offline *offline, const int fds[3], int out,
                              struct error *error) {
    const struct offline_input *input = &offline->options->input;
    struct offline_table table;
    if (input->form.kind == TABLE_NONE)
        return merge_results(fds[0], fds[1], fds[2], out, NULL, error);
    enum err err = offline_table_open(&table, &input->form, offline->rest, error);
    if (err != OK) return err;
    struct merge_form form = {&table, offline_table_write};
    err = merge_results(fds[0], fds[1], fds[2], out, &form, error);
    if (err == OK) err = offline_table_finish(&table, error);
    offline->rest_lines = table.rest_lines;
    offline_table_close(&table);
    return err;
}

/* Makes the output under the name `path`, and opens it. A Parquet file is made of its rows. */
static enum err make_output(struct offline *offline, const int fds[3], const char *path,
                            int *ret_fd, struct error *error) {
    const struct offline_input *input = &offline->options->input;
    char rows[PATH_MAX];
    if (input->form.kind != TABLE_PARQUET) {
        enum err err = os_create(ret_fd, path, 0644, error);
        return err == OK ? write_results(offline, fds, *ret_fd, error) : err;
    }
    snprintf(rows, sizeof rows, "%.*s/rows.jsonl", PATH_MAX - 16, offline->folder);
    enum err err = os_create(ret_fd, rows, 0600, error);
    if (err == OK) err = write_results(offline, fds, *ret_fd, error);
    os_close(*ret_fd);
    *ret_fd = -1;
    if (err == OK) err = parquet_write(rows, path, input->has_types ? input->path : NULL, error);
    return err == OK ? os_open(ret_fd, path, O_RDWR, 0, error) : err;
}

/* Gives the results that the table does not show their name, before the table gets its own. */
static enum err place_rest(const struct offline *offline,
                           const unsigned char requests_sha256[SHA256_BYTES], bool may_replace,
                           struct error *error) {
    int fd;
    if (offline->rest_lines == 0) return OK;
    enum err err = os_open(&fd, offline->rest, O_RDWR, 0, error);
    if (err != OK) return err;
    offline_output_mark(fd, &offline->options->input, requests_sha256, offline->batch.failed);
    os_close(fd);
    err = whole_file_place(offline->rest, offline->rest_path, may_replace, error);
    return err == ERR_CONFLICT ? offline_output_came(offline->rest_path, error) : err;
}

/* Leaves the manifest of the output. */
static void prove(const struct offline *offline, const struct store_file *file) {
    const struct offline_options *options = offline->options;
    struct store_file ignored_file;
    struct error ignored;
    int requests = -1;
    if (store_input_open(node_store(offline->node), str_from(offline->batch.input_file_id),
                         offline->batch.created_unix_s, &requests, &ignored_file, &ignored) != OK)
        return;
    const struct offline_made made = {.input = &options->input,
                                      .requests = file,
                                      .requests_fd = requests,
                                      .output = options->output_path,
                                      .rest = offline->rest_lines ? offline->rest_path : NULL,
                                      .folder = offline->folder,
                                      .completed = offline->batch.completed,
                                      .failed = offline->batch.failed};
    offline_proof_write(&options->proof, &made);
    os_close(requests);
}

/* Writes the two result files as one, syncs it, and gives it its final name. */
static enum err publish(struct offline *offline, struct error *error) {
    char path[PATH_MAX];
    int input = -1, output = -1, errors = -1, out = -1;
    struct store_file file;
    const struct offline_options *options = offline->options;
    snprintf(path, sizeof path, OFFLINE_OUTPUT_MADE, PATH_MAX - 16, offline->folder);
    snprintf(offline->rest, PATH_MAX, "%.*s/rest.jsonl", PATH_MAX - 16, offline->folder);
    snprintf(offline->rest_path, PATH_MAX, TABLE_REST, options->output_path);
    bool may_replace =
        options->overwrite || offline_output_is_own(&options->input, options->output_path, path);
    bool may_replace_rest =
        options->overwrite ||
        offline_output_is_own(&options->input, offline->rest_path, offline->rest);
    enum err err =
        store_input_open(node_store(offline->node), str_from(offline->batch.input_file_id),
                         offline->batch.created_unix_s, &input, &file, error);
    if (err == OK) err = open_result(offline, offline->batch.output_file_id, &output, error);
    if (err == OK) err = open_result(offline, offline->batch.error_file_id, &errors, error);
    if (err == OK) err = make_output(offline, (int[]){input, output, errors}, path, &out, error);
    if (err == OK) offline_output_mark(out, &options->input, file.sha256, offline->batch.failed);
    if (err == OK) err = os_fsync(out, error);
    os_close(input);
    os_close(output);
    os_close(errors);
    os_close(out);
    if (err == OK) err = place_rest(offline, file.sha256, may_replace_rest, error);
    if (err != OK) return err;
    err = whole_file_place(path, options->output_path, may_replace, error);
    if (err == OK) prove(offline, &file);
    return err == ERR_CONFLICT ? offline_output_came(options->output_path, error) : err;
}

static enum err work(struct offline *offline, struct error *error) {
    bool found;
    enum err err = resume(offline, &found, error);
    offline->is_resumed = found;
    if (err == OK && !found) err = create(offline, error);
    if (err != OK) return err;
    offline_note_begin(&offline->note, offline->folder, found);
    note_before(offline);
    if (offline->batch.status != BATCH_COMPLETED) {
        report(offline, "loading");
        err = node_wait_ready(offline->node, offline->options->stop, error);
        offline->ready_ns = clock_monotonic_ns();
        if (err == OK) err = run_batch(offline, error);
    }
    return err == OK ? publish(offline, error) : err;
}

static void summarize(const struct offline *offline, struct offline_summary *ret_summary) {
    *ret_summary = (struct offline_summary){
        .requests = offline->batch.total,
        .completed = offline->batch.completed,
        .failed = offline->batch.failed,
        .seconds = seconds_between(offline->ready_ns, offline->ended_ns),
        .seconds_before = offline->note.seconds_before,
        .load_seconds = seconds_between(offline->started_ns, offline->ready_ns),
        .usage = offline->batch.usage,
        .done_before = offline->done_before,
        .watts = offline->ended_ns ? node_power_watts(&offline->power) : NAN,
        .rest_lines = offline->rest_lines,
        .context_tokens = offline->note.window,
        .output_tokens_now = offline->batch.usage.output_tokens - offline->output_tokens_before,
    };
    shape_ends_read(offline->batch.quality, ret_summary->shapes);
}

static enum err name_folder(const struct offline_options *options, char ret_folder[PATH_MAX],
                            struct error *error) {
    int bytes = snprintf(ret_folder, PATH_MAX, "%s.quern", options->output_path);
    if (bytes < PATH_MAX - 32) return OK; /* TABLE_REST has room, too */
    return err_set(error, ERR_INVALID, "the name of the output file has %zu bytes",
                   strlen(options->output_path));
}

enum err offline_check(const struct offline_options *options, struct offline_summary *ret_summary,
                       struct error *error) {
    char folder[PATH_MAX];
    struct offline_found found = {false, 0};
    enum err err = name_folder(options, folder, error);
    if (err == OK)
        err = offline_output_check(&options->input, options->output_path, folder,
                                   options->overwrite, &found, error);
    *ret_summary =
        (struct offline_summary){.was_finished = found.is_finished, .failed = found.failed};
    return err;
}

/* Removes the state directory, under its lock: another run that begins now must not have it half. A
 * run that has the lock already finds all requests done, and removes the directory itself. */
static void remove_state(const char *folder) {
    struct error ignored;
    int lock;
    if (state_lock(folder, false, &lock, &ignored) != OK) return;
    folder_remove_but(folder, STATE_LOCK_NAME);
    os_close(lock);
}

enum err offline_run(const struct offline_options *options, struct offline_summary *ret_summary,
                     struct error *error) {
    struct offline offline = {
        .options = options, .started_ns = clock_monotonic_ns(), .note.fd = -1};
    struct node_options node = options->node;
    enum err err = name_folder(options, offline.folder, error);
    if (err != OK) return err;
    node.store.dir = offline.folder;
    node.runner.skips_proofs = true; /* offline_proof.h proves the files under their final names */
    open_files_raise();
    err = node_open(&offline.node, &node, error);
    if (err != OK) return err;
    err = work(&offline, error);
    summarize(&offline, ret_summary);
    offline_note_end(&offline.note);
    node_close(offline.node, err == OK || err == ERR_CANCELLED ? 0 : DRAIN_MS);
    /* A refused file leaves no folder, so that the corrected file is a new start. */
    bool is_refused =
        err == ERR_INVALID && (!offline.batch.id[0] || offline.batch.status == BATCH_FAILED);
    if (err == OK || is_refused) remove_state(offline.folder);
    store_batch_release(&offline.batch);
    return err;
}
