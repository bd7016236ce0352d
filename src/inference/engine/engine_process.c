/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine_process.h"

#include "base/free_memory.h"
#include "base/log.h"
#include "base/no_memory.h"
#include "base/os.h"
#include "base/signals.h"
#include "base/stacks.h"
#include "engine/engine.h"
#include "engine/model_sandbox.h"
#include "json/refusal.h"
#include "protocol/wire_messages.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Frames waiting for the writer thread. */
struct out {
    int fd;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct buf waiting;
    bool is_stopped; /* no more frames; the writer ends when all are sent */
    bool is_broken;  /* the server has gone; frames are dropped */
    pthread_t writer;
};

struct process {
    struct out out;
    struct wire_reader reader;
    struct loaded_gpu device;
    struct served_model model;
    bool has_model;
    struct engine *engine;
    bool lacks_card; /* it fails because a GPU, or the GPU's memory, is not to be had */
    atomic_bool has_failed;
    bool is_draining;
};

#define KV_BYTES_USUAL ((uint64_t)1 << 30) /* the KV cache without an option, at most */
#define OTHER_BYTES ((uint64_t)768 << 20)  /* workspace, vocabulary, masks */

/* The time between two looks whether a draining engine is empty. */
#define DRAIN_POLL_MS 20

static void out_add_flagged(struct out *out, enum wire_kind kind, uint64_t id, uint8_t flags,
                            struct str payload) {
    pthread_mutex_lock(&out->lock);
    size_t bytes = payload.bytes + WIRE_HEADER_BYTES;
    while (!out->is_broken && out->waiting.bytes + bytes > ENGINE_OUT_BYTES_MAX)
        pthread_cond_wait(&out->changed, &out->lock);
    if (!out->is_broken) wire_write(&out->waiting, kind, id, flags, payload);
    pthread_cond_broadcast(&out->changed);
    pthread_mutex_unlock(&out->lock);
}

static void out_add(struct out *out, enum wire_kind kind, uint64_t id, struct str payload) {
    out_add_flagged(out, kind, id, 0, payload);
}

static bool send_all(int fd, struct str bytes) {
    while (bytes.bytes > 0) {
        ssize_t count = send(fd, bytes.at, bytes.bytes, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return false;
        bytes = str_skip(bytes, (size_t)count);
    }
    return true;
}

static void *writer_main(void *user) {
    struct out *out = user;
    struct buf sending;
    pthread_setname_np(pthread_self(), "quern-write");
    buf_init(&sending, ENGINE_OUT_BYTES_MAX);
    pthread_mutex_lock(&out->lock);
    for (;;) {
        while (out->waiting.bytes == 0 && !out->is_stopped)
            pthread_cond_wait(&out->changed, &out->lock);
        if (out->waiting.bytes == 0) break;
        struct buf taken = out->waiting;
        out->waiting = sending;
        sending = taken;
        pthread_cond_broadcast(&out->changed);
        pthread_mutex_unlock(&out->lock);
        bool is_sent = send_all(out->fd, buf_str(&sending));
        buf_clear(&sending);
        pthread_mutex_lock(&out->lock);
        if (is_sent) continue;
        out->is_broken = true;
        buf_clear(&out->waiting);
        pthread_cond_broadcast(&out->changed);
    }
    pthread_mutex_unlock(&out->lock);
    buf_release(&sending);
    return NULL;
}

static void out_open(struct out *out, int fd) {
    out->fd = fd;
    buf_init(&out->waiting, ENGINE_OUT_BYTES_MAX);
    pthread_mutex_init(&out->lock, NULL);
    pthread_cond_init(&out->changed, NULL);
}

/* Starts the writer; frames wait until then. */
static void out_start(struct out *out) {
    if (pthread_create(&out->writer, NULL, writer_main, out) != 0) no_memory();
}

static void out_close(struct out *out) {
    pthread_mutex_lock(&out->lock);
    out->is_stopped = true;
    pthread_cond_broadcast(&out->changed);
    pthread_mutex_unlock(&out->lock);
    pthread_join(out->writer, NULL);
    pthread_cond_destroy(&out->changed);
    pthread_mutex_destroy(&out->lock);
    buf_release(&out->waiting);
}

static void send_fatal(struct process *process, uint8_t flags, const char *sentence) {
    /* Only info: the server tells the failure once, to its clients or in its log. */
    log_info("event=fatal reason=\"%s\"", sentence);
    out_add_flagged(&process->out, WIRE_FATAL, 0, flags, str_from(sentence));
}

static void on_delta(void *context, uint64_t id, struct str chunk) {
    struct process *process = context;
    out_add(&process->out, WIRE_DELTA, id, chunk);
}

static void on_result(void *context, uint64_t id, const struct wire_result *result) {
    struct process *process = context;
    struct buf payload;
    buf_init(&payload, WIRE_PAYLOAD_BYTES_MAX);
    wire_put_result(&payload, result);
    out_add(&process->out, WIRE_RESULT, id, buf_str(&payload));
    buf_release(&payload);
}

static void on_stats(void *context, uint64_t ping, const struct wire_stats *stats) {
    struct process *process = context;
    struct buf payload;
    buf_init(&payload, WIRE_STATS_BYTES_MAX);
    wire_put_stats(&payload, stats);
    out_add(&process->out, WIRE_STATS, ping, buf_str(&payload));
    buf_release(&payload);
}

/* Sends FATAL for a step that failed. The reader sleeps in recv; shutting its half of the socket
 * wakes it. */
static void on_fatal(void *context, const char *sentence) {
    struct process *process = context;
    send_fatal(process, process->device.gpu ? WIRE_FLAG_CARD_FAILED : 0, sentence);
    atomic_store(&process->has_failed, true);
    shutdown(process->out.fd, SHUT_RD);
}

/* Waits for bytes of the server. False if the engine drains and its last job is done. */
static bool wait_for_bytes(const struct process *process) {
    while (process->is_draining) {
        if (engine_drain(process->engine, 0)) return false;
        struct pollfd waiting = {.fd = process->out.fd, .events = POLLIN};
        if (poll(&waiting, 1, DRAIN_POLL_MS) > 0) break;
    }
    return true;
}

/* Reads the next frame. False at the end of the socket or of a drain, or, with *ret_err set, after
 * a bad frame. */
static bool next_frame(struct process *process, struct wire_frame *ret_frame, enum err *ret_err,
                       struct error *error) {
    for (;;) {
        bool found;
        *ret_err = wire_reader_next(&process->reader, ret_frame, &found, error);
        if (*ret_err != OK) return false;
        if (found) return true;
        if (!wait_for_bytes(process)) return false;
        size_t room_bytes, count;
        char *room = wire_reader_room(&process->reader, &room_bytes);
        *ret_err = os_read(process->out.fd, room, room_bytes, &count, error);
        if (*ret_err != OK || count == 0) return false;
        wire_reader_filled(&process->reader, count);
    }
}

static void refuse_at_the_door(struct process *process, uint64_t id) {
    struct refusal refusal;
    refuse_status(&refusal, 503, NULL, NULL, "The engine takes no more requests now.");
    struct buf body;
    buf_init(&body, 4096);
    refusal_write(&body, &refusal);
    on_result(
        process, id,
        &(struct wire_result){.status = 503, .outcome = OUTCOME_NOT_RUN, .body = buf_str(&body)});
    buf_release(&body);
}

/* Acts on a frame. False if the process must end. */
static bool take_frame(struct process *process, const struct wire_frame *frame,
                       struct error *error) {
    struct wire_job job;
    switch (frame->kind) {
    case WIRE_JOB:
        if (wire_get_job(frame->payload, &job, error) != OK) return false;
        if (!engine_submit(process->engine, frame->id, &job))
            refuse_at_the_door(process, frame->id);
        return true;
    case WIRE_CANCEL: engine_cancel(process->engine, frame->id); return true;
    case WIRE_PING: engine_ping(process->engine, frame->id); return true;
    case WIRE_DRAIN:
        process->is_draining = true;
        engine_drain(process->engine, 0); /* refuses jobs from here on */
        return true;
    default:
        err_set(error, ERR_CORRUPT, "wire: a %s frame from the server",
                wire_kind_name(frame->kind));
        return false;
    }
}

/* Serves until the socket ends. ERR_CORRUPT after a bad frame. */
static enum err serve(struct process *process, struct error *error) {
    struct wire_frame frame;
    enum err err;
    error->code = OK;
    while (next_frame(process, &frame, &err, error))
        if (!take_frame(process, &frame, error)) return error->code;
    return err;
}

/* Reads HELLO. Its strings lie in the reader until the next frame. */
static enum err read_hello(struct process *process, struct wire_hello *ret_hello,
                           struct error *error) {
    struct wire_frame frame;
    enum err err;
    if (!next_frame(process, &frame, &err, error))
        return err != OK ? err : err_set(error, ERR_CANCELLED, "the server left before HELLO");
    if (frame.kind != WIRE_HELLO)
        return err_set(error, ERR_CORRUPT, "wire: a %s frame before HELLO",
                       wire_kind_name(frame.kind));
    return wire_get_hello(frame.payload, ret_hello, error);
}

/* Opens the GPU that HELLO asks for, or leaves the CPU and says why. */
static enum err open_device(struct process *process, const struct wire_hello *hello,
                            struct error *error) {
    const struct gpu_texts texts = {.device = hello->device.name,
                                    .plugin = hello->device.plugin,
                                    .dtype = hello->device.dtype,
                                    .kv_cache_dtype = hello->device.kv_cache_dtype,
                                    .state_dtype = hello->device.state_dtype,
                                    .quantization = hello->device.quantization,
                                    .memory_share = hello->device.memory_share,
                                    .memory_bytes = hello->device.memory_bytes,
                                    .tensor_parallel_size = hello->device.tensor_parallel_size};
    struct loaded_gpu *device = &process->device;
    struct gpu_settings settings;
    enum err err = gpu_settings_read(&settings, &texts, error);
    if (err != OK) return err;
    settings.is_careful = hello->is_careful;
    err = gpu_load(device, &settings, error);
    if (err == OK) err = gpu_load_open(device, error);
    process->lacks_card = err != OK;
    if (err != OK) return err;
    if (device->gpu) {
        err = gpu_settings_check_card(&settings, error);
        if (err != OK) return err;
        log_info("event=device device=%s:%u name=\"%s\" limit_mib=%llu gpus=%u",
                 device->table->kind, device->card.index, device->card.name,
                 (unsigned long long)(device->memory_bytes >> 20), settings.ranks);
        if (settings.is_careful) log_info("event=device_careful steps=%u", GPU_CAREFUL_STEPS);
        return OK;
    }
    if (*device->reason)
        log_write(device->is_surprising ? LOG_WARN : LOG_INFO,
                  "event=device device=cpu reason=\"%s\"", device->reason);
    return gpu_settings_check_cpu(&settings, error);
}

/* Enters the sandbox before the first thread of our own, which would stay outside, and before the
 * first byte of a model. */
static void enter_sandbox(const struct process *process, const struct wire_hello *hello) {
    char path[PATH_MAX], draft_path[PATH_MAX], packed_dir[PATH_MAX];
    struct sandbox_state state;
    snprintf(path, sizeof path, "%.*s", STR_ARGS(hello->model_path));
    snprintf(draft_path, sizeof draft_path, "%.*s", STR_ARGS(hello->speculative_model));
    snprintf(packed_dir, sizeof packed_dir, "%.*s", STR_ARGS(hello->packed_dir));
    model_sandbox_enter(&(struct model_sandbox){.model_path = path,
                                                .draft_path = *draft_path ? draft_path : NULL,
                                                .cache_dir = *packed_dir ? packed_dir : NULL,
                                                .has_device = process->device.has_library},
                        &state);
    if (process->device.has_library && !state.binds_threads)
        log_info(
            "event=sandbox_threads reason=\"this kernel's Landlock leaves the driver's threads "
            "free to open files\"");
    if (state.landlock_abi > 0 && state.has_seccomp)
        log_info("event=sandbox landlock=%d seccomp=1", state.landlock_abi);
    else
        log_warn("event=sandbox landlock=%d seccomp=%d reason=\"this kernel has no more\"",
                 state.landlock_abi, state.has_seccomp);
}

static enum err open_engine(struct process *process, const struct engine_process_options *options,
                            const struct wire_hello *hello, struct error *error) {
    enum err err = (options->open_model ? options->open_model : served_model_open)(
        &process->model, hello, &process->device, error);
    /* With less free memory than before, the GPU opens and the model does not fit. */
    process->lacks_card = err == ERR_LIMIT && process->device.gpu;
    if (err != OK) return err;
    process->has_model = true;
    const struct engine_events events = {process, on_delta, on_result, on_stats, on_fatal};
    return engine_open(&process->engine, &process->model, hello, &events, error);
}

/* The GPU's name for --device: by its UUID, since numbers change when a GPU is lost. */
static void name_card(const struct gpu_info *card, char *ret_text, size_t text_bytes) {
    if (*card->uuid)
        snprintf(ret_text, text_bytes, "cuda:%s", card->uuid);
    else
        snprintf(ret_text, text_bytes, "cuda:%u", card->index);
}

/* Experts that do not fit stay in the file. The sandbox has no /proc, so this comes before it. */
static void limit_weights(struct wire_hello *hello) {
    const uint64_t least = KV_BYTES_USUAL / 4, free = free_memory_bytes();
    const uint64_t others = (hello->kv_bytes ? hello->kv_bytes : KV_BYTES_USUAL) + OTHER_BYTES;
    if (hello->weight_bytes == 0 && free > 0)
        hello->weight_bytes = free > others + least ? free - others : least;
}

static void send_ready(struct process *process) {
    struct wire_ready ready;
    char device[64] = "";
    engine_ready(process->engine, &ready);
    if (process->device.gpu) name_card(&process->device.card, device, sizeof device);
    ready.device = str_from(device);
    struct buf payload;
    buf_init(&payload, 1024 * 1024);
    wire_put_ready(&payload, &ready);
    out_add(&process->out, WIRE_READY, 0, buf_str(&payload));
    buf_release(&payload);
    log_info("event=ready model=%.*s context=%u kv_tokens=%llu", STR_ARGS(ready.names.at[0]),
             ready.context_tokens_max, (unsigned long long)ready.kv_tokens);
    log_info("event=model %.*s", STR_ARGS(ready.description));
}

int engine_process_run(const struct engine_process_options *options) {
    struct process process = {.has_model = false};
    atomic_init(&process.has_failed, false);
    wire_reader_init(&process.reader);
    out_open(&process.out, options->fd);
    struct error error = {0};
    struct wire_hello hello;
    enum err err = read_hello(&process, &hello, &error);
    if (err == OK) err = open_device(&process, &hello, &error);
    if (err == OK) limit_weights(&hello);
    if (err == OK && options->is_sandboxed) enter_sandbox(&process, &hello);
    out_start(&process.out);
    if (err == OK) err = open_engine(&process, options, &hello, &error);
    if (err == OK) {
        send_ready(&process);
        err = serve(&process, &error);
    }
    if (err != OK) send_fatal(&process, process.lacks_card ? WIRE_FLAG_NO_CARD : 0, error.text);
    engine_close(process.engine);
    if (process.has_model)
        (options->close_model ? options->close_model : served_model_close)(&process.model);
    gpu_load_close(&process.device);
    out_close(&process.out);
    wire_reader_release(&process.reader);
    os_close(options->fd);
    return err != OK || atomic_load(&process.has_failed) ? ENGINE_EXIT_FATAL : ENGINE_EXIT_DONE;
}

int engine_main(int argc, char **argv) {
    int64_t fd = -1, dump_fd = -1;
    for (int i = 0; i + 1 < argc; i++)
        if (strcmp(argv[i], "--fd") == 0 && !str_to_i64(str_from(argv[i + 1]), &fd)) fd = -1;
    for (int i = 0; i + 1 < argc; i++)
        if (strcmp(argv[i], "--log-level") == 0 && !log_set_level_by_name(argv[i + 1])) fd = -1;
    for (int i = 0; i + 1 < argc; i++)
        if (strcmp(argv[i], "--log-format") == 0 && !log_set_format_by_name(argv[i + 1])) fd = -1;
    for (int i = 0; i + 1 < argc; i++)
        if (strcmp(argv[i], "--dump-fd") == 0 && !str_to_i64(str_from(argv[i + 1]), &dump_fd))
            fd = -1;
    if (fd < 3 || fd > 1 << 20) {
        fprintf(stderr, "quern engine: started by quern itself, with --fd N\n");
        return ENGINE_EXIT_FATAL;
    }
    log_set_process("engine");
    if (dump_fd >= 3 && dump_fd <= 1 << 20) stacks_open((int)dump_fd);
    /* A terminal's interrupt and a service manager's TERM go to the whole process group; the server
     * drains and ends the engine, which has nothing to save. */
    signals_ignore_strays();
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    /* If the server is killed while this process hangs, it would not read the end of the socket. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return engine_process_run(
        &(struct engine_process_options){.fd = (int)fd, .is_sandboxed = true});
}
