/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/pull_fetch.h"

#include "base/clock.h"
#include "base/mem.h"
#include "hub/pull_partial.h"
#include "hub/pull_sum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIES_MAX 9  /* tries of one part in a row that bring no new byte */
#define ROUNDS_MAX 2 /* downloads of one file that end with a wrong sum */
#define POLL_MS 100
#define TELL_NS ((int64_t)200 * 1000000)

/* The state of a part; pull_partial.h counts its bytes. */
struct part {
    bool is_busy;
    uint8_t tries;
    int64_t not_before_ns;
};

struct file {
    const struct pull_file *is;
    size_t index;
    bool is_open, is_done;
    bool one_stream; /* the server ignores ranges: one request brings the whole file */
    uint32_t running;
    uint32_t rounds;
    char *location; /* the URL that the hub redirected to; NULL: the hub is asked */
    char blob[PATH_MAX];
    struct pull_partial partial;
    struct part *parts;
    struct pull_sum_job job;
};

/* A request under way. */
struct transfer {
    struct file *file; /* NULL: the place is free */
    uint32_t part;
    uint64_t at, to; /* the next byte, and the byte behind the last */
    bool is_stream;
    bool has_begun;     /* its head was read */
    bool is_given_back; /* ended on this side, for a request of another kind */
};

struct fetch {
    struct pull_fetch_options options;
    struct pull_web *web;
    struct pull_summer *summer;
    struct file *files; /* (count) */
    struct transfer *transfers;
    uint32_t running;
    int64_t start_ns, told_ns, pause_until_ns;
    struct pull_progress progress;
    struct error error; /* OK: the fetch goes on */
};

static void fail(struct fetch *fetch, const struct error *error) {
    if (fetch->error.code == OK) fetch->error = *error;
}

static void note(struct fetch *fetch, const char *sentence) {
    if (fetch->options.note) fetch->options.note(fetch->options.context, sentence);
}

/* --- files --- */

static void open_file(struct fetch *fetch, struct file *file) {
    struct error error;
    enum err err = pull_store_blob_path(fetch->options.store, file->is->digest, file->blob, &error);
    if (err == OK) err = pull_partial_open(&file->partial, file->blob, file->is->bytes, &error);
    if (err != OK) {
        fail(fetch, &error);
        return;
    }
    file->is_open = true;
    file->parts = mem_new(file->partial.part_count + 1, sizeof *file->parts);
    file->job = (struct pull_sum_job){
        .fd = file->partial.fd, .bytes = file->is->bytes, .is_git = strlen(file->is->digest) == 40};
    pull_summer_add(fetch->summer, &file->job);
    pull_summer_tell(fetch->summer, &file->job, pull_partial_ready(&file->partial));
}

static void close_file(struct file *file) {
    struct error error;
    if (file->is_open) {
        /* Without this journal, the next fetch repeats the bytes since the last one. */
        enum err err = pull_partial_save(&file->partial, &error);
        (void)err;
        pull_partial_close(&file->partial);
    }
    file->is_open = false;
    free(file->parts);
    free(file->location);
    file->parts = NULL;
    file->location = NULL;
}

/* Throws a file away whose sum is not the hub's: no byte of it can be trusted. */
static void start_over(struct fetch *fetch, struct file *file) {
    char sentence[700];
    struct error error;
    if (++file->rounds == ROUNDS_MAX) {
        (void)err_set(&error, ERR_CORRUPT,
                      "%.150s: what comes has the sum %.64s, not %.64s; nothing of it is kept",
                      file->is->path, file->job.sum, file->is->digest);
        fail(fetch, &error);
    } else {
        snprintf(sentence, sizeof sentence, "%.500s: its sum is wrong; it is fetched again",
                 file->is->path);
        note(fetch, sentence);
    }
    fetch->progress.bytes_done -= file->partial.done_bytes;
    if (pull_partial_restart(&file->partial, &error) != OK) fail(fetch, &error);
    free(file->location);
    file->location = NULL;
    file->one_stream = false;
    memset(file->parts, 0, file->partial.part_count * sizeof *file->parts);
    file->job.next = NULL;
    pull_summer_add(fetch->summer, &file->job);
}

/* Puts a whole file into the cache once its sum is right. */
static void check_file(struct fetch *fetch, struct file *file) {
    struct error error;
    if (!file->is_open || file->is_done || file->running > 0) return;
    if (!pull_partial_is_whole(&file->partial)) return;
    if (!pull_summer_is_done(fetch->summer, &file->job)) return;
    if (file->job.err != OK) {
        fail(fetch, &file->job.error);
    } else if (strcmp(file->job.sum, file->is->digest) != 0) {
        start_over(fetch, file);
    } else if (pull_partial_finish(&file->partial, file->blob, &error) != OK) {
        fail(fetch, &error);
    } else {
        file->partial.unsaved_bytes = 0; /* its journals are cut off */
        close_file(file);
        file->is_done = true;
        fetch->progress.files_done++;
        fetch->options.file_done(fetch->options.context, file->index);
    }
}

/* --- requests --- */

static void start_transfer(struct fetch *fetch, struct file *file, uint32_t part) {
    const struct pull_partial *partial = &file->partial;
    struct transfer *transfer = fetch->transfers;
    struct error error;
    char url[PULL_URL_BYTES];
    while (transfer->file) transfer++;
    *transfer = (struct transfer){.file = file,
                                  .part = part,
                                  .at = pull_partial_from(partial, part) + partial->done[part],
                                  .to = pull_partial_to(partial, part),
                                  .is_stream = file->one_stream};
    if (file->one_stream) {
        transfer->at = 0;
        transfer->to = partial->bytes;
    }
    if (!file->location &&
        pull_api_file_url(fetch->options.source, file->is->path, url, &error) != OK) {
        fail(fetch, &error);
        transfer->file = NULL;
        return;
    }
    file->parts[part].is_busy = true;
    file->running++;
    fetch->running++;
    pull_web_start(fetch->web, &(struct pull_request){.owner = transfer,
                                                      .url = file->location ? file->location : url,
                                                      .wants_bytes = true,
                                                      .from = transfer->at,
                                                      .to = file->one_stream ? 0 : transfer->to});
}

/* The next part of a file to ask for; false if none is due now. */
static bool find_part(const struct file *file, int64_t now_ns, uint32_t *ret_part) {
    const struct pull_partial *partial = &file->partial;
    if (file->one_stream) {
        *ret_part = 0;
        return file->running == 0 && !pull_partial_is_whole(partial) &&
               file->parts[0].not_before_ns <= now_ns;
    }
    for (uint32_t i = 0; i < partial->part_count; i++) {
        uint64_t bytes = pull_partial_to(partial, i) - pull_partial_from(partial, i);
        if (file->parts[i].is_busy || partial->done[i] == bytes ||
            file->parts[i].not_before_ns > now_ns)
            continue;
        *ret_part = i;
        return true;
    }
    return false;
}

/* Starts requests until all connections are in use, file by file. */
static void start_more(struct fetch *fetch) {
    int64_t now_ns = clock_monotonic_ns();
    uint32_t part;
    if (now_ns < fetch->pause_until_ns) return;
    for (size_t i = 0; i < fetch->options.count; i++) {
        struct file *file = &fetch->files[i];
        if (fetch->running == fetch->options.connections) return;
        if (!file->is_open && !file->is_done) open_file(fetch, file);
        if (fetch->error.code != OK) return;
        while (!file->is_done && fetch->running < fetch->options.connections &&
               find_part(file, now_ns, &part)) {
            start_transfer(fetch, file, part);
            if (fetch->error.code != OK) return;
        }
    }
}

/* Reads the head of an answer. False: its bytes are not the ones asked for. */
static bool begin(struct transfer *transfer, const struct pull_head *head) {
    struct file *file = transfer->file;
    bool is_asked = head->status == 206 && head->has_range && head->from == transfer->at &&
                    (head->total == file->is->bytes || head->total == UINT64_MAX);
    transfer->has_begun = true;
    if (head->status == 206) return is_asked && !transfer->is_stream;
    /* Status 200: the whole file from its start. It serves if the first byte is the next one. */
    if (!transfer->is_stream && transfer->to - transfer->at != file->is->bytes)
        file->one_stream = true;
    if (transfer->at > 0) {
        transfer->is_given_back = true;
        return false;
    }
    transfer->to = file->is->bytes;
    return true;
}

static bool on_bytes(void *context, void *owner, const struct pull_head *head, struct str piece) {
    struct fetch *fetch = context;
    struct transfer *transfer = owner;
    struct file *file = transfer->file;
    struct error error;
    if (fetch->error.code != OK) return false;
    if (!transfer->has_begun && !begin(transfer, head)) return false;
    if (piece.bytes > transfer->to - transfer->at) return false; /* more bytes than asked for */
    uint64_t before = file->partial.done_bytes;
    if (pull_partial_put(&file->partial, transfer->at, piece.at, piece.bytes, &error) != OK) {
        fail(fetch, &error);
        return false;
    }
    transfer->at += piece.bytes;
    /* Only new bytes count as progress: a stream that always breaks at one place would be tried
     * for ever. */
    if (file->partial.done_bytes > before) file->parts[transfer->part].tries = 0;
    fetch->progress.bytes_fetched += piece.bytes;
    fetch->progress.bytes_done += file->partial.done_bytes - before;
    pull_summer_tell(fetch->summer, &file->job, pull_partial_ready(&file->partial));
    return true;
}

/* Whether a signed URL that the hub redirected to has expired; it is valid for some hours. */
static bool is_stale(const struct pull_answer *answer) {
    return answer->end == PULL_END_WHOLE && !answer->is_home &&
           (answer->status == 400 || answer->status == 401 || answer->status == 403 ||
            answer->status == 404 || answer->status == 410);
}

/* Plans another try, or fails after the last one. */
static void try_again(struct fetch *fetch, struct file *file, struct part *part,
                      const struct pull_answer *answer) {
    struct error error;
    int64_t now_ns = clock_monotonic_ns();
    if (++part->tries == TRIES_MAX) {
        if (answer->end == PULL_END_STOPPED ||
            (answer->end == PULL_END_WHOLE && answer->status < 300))
            (void)err_set(&error, ERR_UNAVAILABLE,
                          "the hub sends other bytes than it was asked for");
        else
            (void)pull_api_explain(fetch->options.source, answer, &error);
        (void)err_prefix(&error, "%.200s, tried %d times", file->is->path, TRIES_MAX);
        fail(fetch, &error);
        return;
    }
    int64_t wait_ns = pull_answer_wait_ms(answer, part->tries) * 1000000;
    part->not_before_ns = now_ns + wait_ns;
    /* A server that names a time wants no request until then, for any part. */
    if (answer->retry_after_ms >= 0 && now_ns + wait_ns > fetch->pause_until_ns)
        fetch->pause_until_ns = now_ns + wait_ns;
}

static void keep_location(struct file *file, const struct pull_answer *answer) {
    bool is_good =
        answer->end == PULL_END_WHOLE && (answer->status == 200 || answer->status == 206);
    if (is_stale(answer)) {
        free(file->location);
        file->location = NULL;
    } else if (is_good && !answer->is_home && !file->location) {
        file->location = mem_text(answer->url);
    }
}

static void on_done(void *context, void *owner, const struct pull_answer *answer) {
    struct fetch *fetch = context;
    struct transfer ended = *(struct transfer *)owner;
    struct file *file = ended.file;
    struct part *part = &file->parts[ended.part];
    struct error error;
    bool is_success = answer->end == PULL_END_WHOLE && answer->status < 300;
    ((struct transfer *)owner)->file = NULL;
    part->is_busy = false;
    file->running--;
    fetch->running--;
    if (fetch->error.code != OK || ended.is_given_back) return;
    keep_location(file, answer);
    if (is_success && ended.at == ended.to) return;
    if (is_success || answer->end == PULL_END_STOPPED || is_stale(answer) ||
        pull_answer_is_passing(answer)) {
        try_again(fetch, file, part, answer);
        return;
    }
    (void)pull_api_explain(fetch->options.source, answer, &error);
    fail(fetch, &error);
}

/* --- the whole --- */

static bool has_all(const struct file *file) {
    return file->is_done || (file->is_open && pull_partial_is_whole(&file->partial));
}

static void tell_progress(struct fetch *fetch, bool is_last) {
    int64_t now_ns = clock_monotonic_ns();
    if (!is_last && now_ns - fetch->told_ns < TELL_NS) return;
    fetch->told_ns = now_ns;
    fetch->progress.seconds = (double)(now_ns - fetch->start_ns) / 1e9;
    fetch->progress.file = NULL;
    for (size_t i = 0; i < fetch->options.count && !fetch->progress.file; i++)
        if (!has_all(&fetch->files[i])) fetch->progress.file = fetch->files[i].is->path;
    if (fetch->options.progress) fetch->options.progress(fetch->options.context, &fetch->progress);
}

static void run(struct fetch *fetch) {
    struct error error;
    while (fetch->error.code == OK && fetch->progress.files_done < fetch->progress.files) {
        start_more(fetch);
        pull_web_poll(fetch->web, POLL_MS);
        for (size_t i = 0; i < fetch->options.count && fetch->error.code == OK; i++)
            check_file(fetch, &fetch->files[i]);
        if (fetch->options.stop && *fetch->options.stop) {
            (void)err_set(&error, ERR_CANCELLED, "stopped; the same command goes on from here");
            fail(fetch, &error);
        }
        tell_progress(fetch, false);
    }
    tell_progress(fetch, true);
}

static enum err open_fetch(struct fetch *fetch, struct error *error) {
    const struct pull_fetch_options *options = &fetch->options;
    const struct pull_web_options web = {.hub = options->source->hub,
                                         .exchanges_max = options->connections,
                                         .context = fetch,
                                         .bytes = on_bytes,
                                         .done = on_done};
    fetch->files = mem_new(options->count + 1, sizeof *fetch->files);
    fetch->transfers = mem_new(options->connections, sizeof *fetch->transfers);
    for (size_t i = 0; i < options->count; i++) {
        char blob[PATH_MAX];
        fetch->files[i].is = options->files[i];
        fetch->files[i].index = i;
        fetch->progress.bytes += options->files[i]->bytes;
        enum err err = pull_store_blob_path(options->store, options->files[i]->digest, blob, error);
        if (err != OK) return err;
        fetch->progress.bytes_done += pull_partial_left(blob, options->files[i]->bytes);
    }
    fetch->progress.files = (uint32_t)options->count;
    enum err err = pull_summer_open(&fetch->summer, error);
    if (err == OK) err = pull_web_open(&fetch->web, &web, error);
    return err;
}

enum err pull_fetch(const struct pull_fetch_options *options, struct pull_progress *ret_progress,
                    struct error *error) {
    struct fetch *fetch = mem_new(1, sizeof *fetch);
    fetch->options = *options;
    fetch->start_ns = clock_monotonic_ns();
    enum err err = open_fetch(fetch, error);
    if (err == OK) {
        run(fetch);
        err = fetch->error.code;
        if (err != OK) *error = fetch->error;
    }
    pull_web_close(fetch->web);
    pull_summer_close(fetch->summer); /* before the descriptors it reads from */
    for (size_t i = 0; i < options->count; i++) close_file(&fetch->files[i]);
    fetch->progress.file = NULL;
    *ret_progress = fetch->progress;
    free(fetch->files);
    free(fetch->transfers);
    free(fetch);
    return err;
}
