/* SPDX-License-Identifier: Apache-2.0 */
#include "preflight/sample_run.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/os.h"
#include "batch/create.h"
#include "batch/jsonl_file.h"
#include "batch/line.h"
#include "batch/state.h"
#include "json/span.h"
#include "node/folder.h"
#include "node/node_power.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POLL_MS 5
#define DRAIN_MS 1000
#define WAIT_SHARE_MAX 0.95   /* a thread takes 20 times as long: more is no measure */
#define SMALL_SAMPLE_LINES 24 /* fewer lines are dealt to fewer groups */
#define SMALL_SAMPLE_GROUPS 4

/* Shares of the groups in the sample, for each number of groups. */
static const uint32_t shares[] = {24, 12, 5, 3, 2, 2}, small_shares[] = {4, 2, 1, 1};

/* A request of the sample. */
struct pick {
    uint64_t index;
    uint32_t group;
};

struct sample_work {
    const struct sample_run_options *options;
    struct pick *picks; /* (count) sorted by index */
    uint32_t count;
    struct buf inputs[SAMPLE_RUN_GROUPS];
    uint32_t lines[SAMPLE_RUN_GROUPS];
    uint64_t answer_tokens[SAMPLE_RUN_GROUPS]; /* sum of max_tokens */
    bool is_open[SAMPLE_RUN_GROUPS];           /* some request sets no max_tokens */
    struct model_choice *choice;
    struct node *node;
    struct node_power power;
};

static int compare_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int compare_picks(const void *a, const void *b) {
    const struct pick *x = a, *y = b;
    return (x->index > y->index) - (x->index < y->index);
}

/* Deals the picks, which are in the order of their lengths, so that each group has its share of
 * each range of lengths: the next pick goes to the group that lags most behind its share. */
static void deal(struct sample_work *work) {
    bool is_small = work->count < SMALL_SAMPLE_LINES;
    const uint32_t *parts = is_small ? small_shares : shares;
    uint32_t groups = is_small ? SMALL_SAMPLE_GROUPS : SAMPLE_RUN_GROUPS, sum = 0;
    uint32_t dealt[SAMPLE_RUN_GROUPS] = {0};
    for (uint32_t i = 0; i < groups; i++) sum += parts[i];
    for (uint32_t i = 0; i < work->count; i++) {
        int64_t most = INT64_MIN;
        uint32_t to = 0;
        for (uint32_t group = 0; group < groups; group++) {
            int64_t lag = (int64_t)parts[group] * (i + 1) - (int64_t)dealt[group] * sum;
            if (lag <= most) continue;
            most = lag;
            to = group;
        }
        dealt[to]++;
        work->picks[i].group = to;
    }
}

/* Picks requests evenly over the lengths and deals them to the groups. */
static enum err choose(struct sample_work *work, struct error *error) {
    const struct sample_run_options *options = work->options;
    uint64_t *sorted = mem_new((size_t)options->requests + 1, sizeof *sorted), count = 0;
    for (uint64_t i = 0; i < options->requests; i++) {
        uint32_t tokens = options->prompt_tokens[i];
        if (tokens > 0 && tokens <= options->prompt_tokens_max)
            sorted[count++] = (uint64_t)tokens << 32 | i;
    }
    qsort(sorted, (size_t)count, sizeof *sorted, compare_u64);
    work->count = count < options->lines ? (uint32_t)count : options->lines;
    work->picks = mem_new((size_t)work->count + 1, sizeof *work->picks);
    for (uint32_t i = 0; i < work->count; i++) {
        uint64_t rank = (2 * (uint64_t)i + 1) * count / (2 * (uint64_t)work->count);
        work->picks[i].index = sorted[rank] & UINT32_MAX;
    }
    free(sorted);
    deal(work);
    qsort(work->picks, work->count, sizeof *work->picks, compare_picks);
    if (work->count > 0) return OK;
    return err_set(error, ERR_INVALID, "%s has no request that could be run", options->path);
}

/* The engine of the sample run answers to every model that a sampled line names. */
static void add_name(struct model_choice *choice, struct str raw) {
    struct buf name;
    buf_init(&name, MODEL_NAME_BYTES);
    struct str text = json_span_text(raw, &name);
    bool known =
        text.bytes == 0 || text.bytes >= MODEL_NAME_BYTES || choice->name_count == MODEL_NAMES_MAX;
    for (size_t i = 0; i < choice->name_count; i++) known = known || str_is(text, choice->names[i]);
    if (!known) {
        char *at = choice->names[choice->name_count++];
        memset(at, 0, MODEL_NAME_BYTES);
        memcpy(at, text.at, text.bytes);
    }
    buf_release(&name);
}

static enum err copy_lines(struct sample_work *work, struct error *error) {
    struct jsonl_file file;
    struct str line;
    struct batch_line parsed;
    uint32_t at = 0;
    enum err err = jsonl_file_open(&file, work->options->path, error);
    for (uint64_t index = 0; err == OK && at < work->count && jsonl_file_next(&file, &line);
         index++) {
        if (index != work->picks[at].index) continue;
        uint32_t group = work->picks[at++].group;
        buf_add_str(&work->inputs[group], line);
        buf_add_byte(&work->inputs[group], '\n');
        work->lines[group]++;
        work->answer_tokens[group] += work->options->answer_tokens[index];
        if (work->options->answer_tokens[index] == 0) work->is_open[group] = true;
        if (batch_line_read(line, &parsed) == BATCH_LINE_READ) add_name(work->choice, parsed.model);
    }
    err = jsonl_file_end(&file, work->options->path, err, error);
    if (err == OK && at < work->count)
        err = err_set(error, ERR_CONFLICT, "%s changed while it was read", work->options->path);
    return err;
}

static enum err create(struct sample_work *work, uint32_t group, struct store_batch *ret_batch,
                       struct error *error) {
    struct store *store = node_store(work->node);
    struct store_spool *spool;
    struct store_file file = {.purpose = "batch", .filename = "sample.jsonl"};
    file.created_unix_s = clock_unix_s();
    enum err err = store_spool_open(&spool, store, error);
    if (err != OK) return err;
    err = store_spool_write(spool, work->inputs[group].at, work->inputs[group].bytes, error);
    if (err != OK) {
        store_spool_abort(spool);
        return err;
    }
    err = store_spool_commit(spool, &file, error);
    struct batch_parameters parameters = {.endpoint = ENDPOINT_CHAT, .window_s = 86400};
    snprintf(parameters.input_file_id, sizeof parameters.input_file_id, "%s", file.id);
    snprintf(parameters.completion_window, sizeof parameters.completion_window, "24h");
    bool existing;
    if (err == OK)
        err = batch_create(store, &parameters, file.created_unix_s, ret_batch, &existing, error);
    return err;
}

/* The tokens of the longest answer in the output file of a batch. */
static enum err find_longest(struct store *store, const struct store_batch *batch,
                             uint64_t *ret_tokens, struct error *error) {
    struct jsonl_file file;
    struct store_file output;
    struct str line;
    int fd;
    *ret_tokens = 0;
    if (!*batch->output_file_id) return OK;
    jsonl_file_init(&file);
    enum err err = store_file_open(store, str_from(batch->output_file_id), clock_unix_s(), &fd,
                                   &output, error);
    if (err == OK) jsonl_file_take(&file, fd, output.bytes);
    while (err == OK && jsonl_file_next(&file, &line)) {
        static const char *const path[] = {"response", "body", "usage", "completion_tokens"};
        struct str value = line;
        uint64_t tokens;
        for (size_t i = 0; i < sizeof path / sizeof *path && value.at; i++)
            value = json_span_is_object(value) ? json_span_get(value, path[i]) : (struct str){0};
        if (value.at && str_to_u64(value, &tokens) && tokens > *ret_tokens) *ret_tokens = tokens;
    }
    return jsonl_file_end(&file, batch->output_file_id, err, error);
}

/* Takes the figures of a group that has ended. A reused answer has its first run's cached tokens
 * once more, so these count for computed answers only. */
static enum err take_group(struct sample_work *work, uint32_t group,
                           const struct store_batch *batch, double seconds,
                           struct sample_run *sample, struct error *error) {
    const struct usage *usage = &batch->usage;
    struct sample_group *is = &sample->group[sample->groups++];
    double input = (double)usage->input_tokens;
    *is = (struct sample_group){
        .lines = work->lines[group],
        .seconds = seconds,
        .computed_prompt_tokens = (input - (double)usage->reused_input_tokens) *
                                  (input > 0 ? 1 - (double)usage->cached_tokens / input : 1),
        .computed_output_tokens = (double)(usage->output_tokens - usage->reused_output_tokens),
        .output_tokens = usage->output_tokens,
        .answer_tokens = work->is_open[group] ? 0 : work->answer_tokens[group]};
    sample->lines += work->lines[group];
    sample->failed += (uint32_t)batch->failed;
    sample->prompt_tokens += usage->input_tokens;
    sample->cached_tokens += usage->cached_tokens;
    return find_longest(node_store(work->node), batch, &is->longest_output, error);
}

static enum err run_group(struct sample_work *work, uint32_t group, struct sample_run *sample,
                          struct error *error) {
    struct store_batch batch;
    struct runner *runner = node_runner(work->node);
    enum err err = create(work, group, &batch, error);
    if (err != OK) return err;
    int64_t started_ns = clock_monotonic_ns();
    runner_kick(runner, batch.id);
    while (err == OK && !batch_status_is_terminal(batch.status)) {
        char id[STORE_ID_BYTES];
        memcpy(id, batch.id, sizeof id);
        clock_sleep_ms(POLL_MS);
        if (*work->options->stop) err = err_set(error, ERR_CANCELLED, "stopped");
        store_batch_release(&batch);
        batch = (struct store_batch){0};
        if (err == OK) err = runner_batch_get(runner, str_from(id), &batch, error);
    }
    if (err == OK && batch.status != BATCH_COMPLETED)
        err = err_set(error, ERR_INVALID, "the sample was refused: %.300s",
                      batch.errors ? batch.errors : "");
    double seconds = (double)(clock_monotonic_ns() - started_ns) / 1e9;
    node_power_look(&work->power, work->node);
    if (err == OK) err = take_group(work, group, &batch, seconds, sample, error);
    store_batch_release(&batch);
    return err;
}

/* The share of the time in which an engine's thread waited for a processor. */
static double find_wait_share(const struct sample_work *work, int64_t started_ns) {
    struct worker_status *statuses = mem_new(RUNNER_WORKERS_MAX, sizeof *statuses);
    size_t count = runner_worker_statuses(node_runner(work->node), statuses, RUNNER_WORKERS_MAX);
    uint64_t waited_ns = 0;
    for (size_t i = 0; i < count; i++) {
        if (statuses[i].process == 0) continue;
        uint64_t ns = os_processor_wait_ns(statuses[i].process);
        if (ns > waited_ns) waited_ns = ns;
    }
    free(statuses);
    return fmin((double)waited_ns / (double)(clock_monotonic_ns() - started_ns), WAIT_SHARE_MAX);
}

static enum err run_groups(struct sample_work *work, const struct node_options *node,
                           struct sample_run *sample, struct error *error) {
    int64_t started_ns = clock_monotonic_ns();
    enum err err = node_open(&work->node, node, error);
    if (err != OK) return err;
    err = node_wait_ready(work->node, work->options->stop, error);
    /* The count has opened the model before, so the machine is to blame, not the input. */
    if (err == ERR_INVALID) err = error->code = ERR_IO;
    sample->load_seconds = (double)(clock_monotonic_ns() - started_ns) / 1e9;
    if (err == OK) err = node_start(work->node, error);
    node_power_begin(&work->power);
    for (uint32_t group = 0; err == OK && group < SAMPLE_RUN_GROUPS; group++)
        if (work->lines[group] > 0) err = run_group(work, group, sample, error);
    sample->watts = node_power_watts(&work->power);
    sample->wait_share = find_wait_share(work, started_ns);
    node_close(work->node, err == OK ? 0 : DRAIN_MS);
    return err;
}

enum err sample_run(const struct sample_run_options *options, struct sample_run *ret_sample,
                    struct error *error) {
    struct sample_run sample = {.watts = NAN};
    struct node_options node = options->node;
    struct sample_work work = {.options = options, .choice = &node.models[0]};
    node.watches_cards = true;
    char folder[PATH_MAX];
    const char *parent = getenv("TMPDIR");
    for (size_t i = 0; i < SAMPLE_RUN_GROUPS; i++) buf_init(&work.inputs[i], BUF_UNLIMITED);
    snprintf(folder, sizeof folder, "%.2000s/quern-sample-XXXXXX", parent ? parent : "/tmp");
    enum err err = choose(&work, error);
    if (err == OK) err = copy_lines(&work, error);
    if (err == OK && !mkdtemp(folder)) err = err_set(error, ERR_IO, "cannot make %s", folder);
    if (err == OK) {
        node.store.dir = folder;
        node.store.ballast_bytes = 1 << 20;
        err = run_groups(&work, &node, &sample, error);
        folder_remove(folder);
    }
    for (size_t i = 0; i < SAMPLE_RUN_GROUPS; i++) buf_release(&work.inputs[i]);
    free(work.picks);
    if (err == OK) *ret_sample = sample;
    return err;
}
