/* SPDX-License-Identifier: Apache-2.0 */

/* pipeline_bench: how fast the durable line pipeline is without a model: spools an input file,
 * creates a batch, runs it with the echo worker and says what each phase took.
 *
 *   pipeline_bench INPUT.jsonl STATE_DIR        (STATE_DIR must not exist; it is left for fsck) */

#include "base/clock.h"
#include "base/os.h"
#include "batch/create.h"
#include "batch/fsck.h"
#include "batch/state.h"
#include "runner/runner.h"
#include "workers/echo/worker_echo.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void die(const struct error *error) {
    fprintf(stderr, "pipeline_bench: %s\n", error->text);
    exit(1);
}

static double seconds_since(int64_t from_ns) {
    return (double)(clock_monotonic_ns() - from_ns) / 1e9;
}

static void upload(struct store *store, const char *path, struct store_file *file) {
    static char piece[1 << 18];
    struct error error;
    struct store_spool *spool;
    int fd;
    size_t count;
    if (os_open(&fd, path, O_RDONLY, 0, &error) != OK) die(&error);
    if (store_spool_open(&spool, store, &error) != OK) die(&error);
    do {
        if (os_read(fd, piece, sizeof piece, &count, &error) != OK) die(&error);
        if (store_spool_write(spool, piece, count, &error) != OK) die(&error);
    } while (count > 0);
    os_close(fd);
    *file = (struct store_file){
        .purpose = "batch", .filename = "in.jsonl", .created_unix_s = clock_unix_s()};
    if (store_spool_commit(spool, file, &error) != OK) die(&error);
}

static void print_violation(void *context, const char *sentence) {
    (void)context;
    printf("violation: %s\n", sentence);
}

/* Counts the time of all threads, so that a busy machine does not hide what the work costs. */
static double cpu_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static uint64_t current_rss_bytes(void) {
    char text[256];
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file && fgets(text, sizeof text, file)) sscanf(text, "%*d %ld", &pages);
    if (file) fclose(file);
    return (uint64_t)pages * 4096;
}

/* Waits until the batch leaves `status`; returns what it became. */
static struct store_batch wait_past(struct runner *runner, const char *id,
                                    enum batch_status status) {
    struct store_batch batch;
    struct error error;
    for (;;) {
        if (runner_batch_get(runner, str_from(id), &batch, &error) != OK) die(&error);
        if (batch.status > status) return batch;
        store_batch_release(&batch);
        usleep(2000);
    }
}

int main(int argc, char **argv) {
    struct error error;
    struct store *store;
    struct runner *runner;
    struct worker *worker;
    struct worker_events events;
    uint32_t seat;
    if (argc != 3) {
        fprintf(stderr, "usage: pipeline_bench INPUT.jsonl STATE_DIR\n");
        return 2;
    }
    if (store_open(&store, &(struct store_options){.dir = argv[2]}, &error) != OK) die(&error);
    if (runner_open(&runner, store, &(struct runner_options){0}, &error) != OK) die(&error);
    if (!runner_worker_seat(runner, &events, &seat)) return 1;
    if (worker_echo_open(&worker, &(struct worker_echo_options){0}, &events, &error) != OK)
        die(&error);
    runner_worker_attach(runner, seat, worker);
    if (runner_start(runner, &error) != OK) die(&error);
    int64_t from_ns = clock_monotonic_ns();
    struct store_file file;
    upload(store, argv[1], &file);
    printf("upload    %7.2f s  %.0f MB, CPU %.2f s\n", seconds_since(from_ns),
           (double)file.bytes / 1e6, cpu_s());
    struct batch_parameters parameters = {
        .endpoint = ENDPOINT_CHAT, .completion_window = "24h", .window_s = 86400};
    memcpy(parameters.input_file_id, file.id, sizeof file.id);
    struct store_batch batch;
    bool existing;
    if (batch_create(store, &parameters, clock_unix_s(), &batch, &existing, &error) != OK)
        die(&error);
    char id[STORE_ID_BYTES];
    memcpy(id, batch.id, sizeof id);
    store_batch_release(&batch);
    from_ns = clock_monotonic_ns();
    runner_kick(runner, id);
    batch = wait_past(runner, id, BATCH_VALIDATING);
    store_batch_release(&batch);
    printf("validate  %7.2f s  CPU so far %.2f s, RSS %.1f MiB, peak %.1f MiB\n",
           seconds_since(from_ns), cpu_s(), (double)current_rss_bytes() / 1048576,
           (double)os_peak_rss_bytes() / 1048576);
    int64_t run_ns = clock_monotonic_ns();
    batch = wait_past(runner, id, BATCH_IN_PROGRESS);
    store_batch_release(&batch);
    printf("lines     %7.2f s  CPU so far %.2f s, RSS %.1f MiB, peak %.1f MiB\n",
           seconds_since(run_ns), cpu_s(), (double)current_rss_bytes() / 1048576,
           (double)os_peak_rss_bytes() / 1048576);
    int64_t publish_ns = clock_monotonic_ns();
    batch = wait_past(runner, id, BATCH_CANCELLING);
    printf("publish   %7.2f s  CPU so far %.2f s, RSS %.1f MiB, peak %.1f MiB\n",
           seconds_since(publish_ns), cpu_s(), (double)current_rss_bytes() / 1048576,
           (double)os_peak_rss_bytes() / 1048576);
    double run_s = seconds_since(run_ns);
    printf("run       %7.2f s  %.0f lines/s, %llu completed, %llu failed, %s\n", run_s,
           (double)batch.total / run_s, (unsigned long long)batch.completed,
           (unsigned long long)batch.failed, batch_status_name(batch.status));
    printf("RSS now %.1f MiB, peak %.1f MiB\n", (double)current_rss_bytes() / 1048576,
           (double)os_peak_rss_bytes() / 1048576);
    store_batch_release(&batch);
    runner_close(runner);
    store_close(store);
    struct fsck_found found;
    if (fsck_run(argv[2], print_violation, NULL, &found, &error) != OK) die(&error);
    printf("fsck: %llu violations\n", (unsigned long long)found.violations);
    return found.violations != 0;
}
