/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_engine.h"

#include "base/clock.h"
#include "base/stacks.h"
#include "protocol/wire_messages.h"
#include "protocol/worker.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

struct fake {
    int fd;
    struct wire_reader reader;
    struct buf out;
    bool is_dumb;    /* answers no ping */
    bool is_careful; /* as HELLO says */
};

static void fake_send_flagged(struct fake *fake, enum wire_kind kind, uint64_t id, uint8_t flags,
                              struct str payload) {
    buf_clear(&fake->out);
    wire_write(&fake->out, kind, id, flags, payload);
    struct str rest = buf_str(&fake->out);
    while (rest.bytes > 0) {
        ssize_t count = send(fake->fd, rest.at, rest.bytes, MSG_NOSIGNAL);
        if (count <= 0) _exit(9);
        rest = str_skip(rest, (size_t)count);
    }
}

static void fake_send(struct fake *fake, enum wire_kind kind, uint64_t id, struct str payload) {
    fake_send_flagged(fake, kind, id, 0, payload);
}

static struct wire_frame fake_next(struct fake *fake) {
    for (;;) {
        struct wire_frame frame;
        bool found;
        if (wire_reader_next(&fake->reader, &frame, &found, NULL) != OK) _exit(8);
        if (found) return frame;
        size_t room_bytes;
        char *room = wire_reader_room(&fake->reader, &room_bytes);
        ssize_t count = recv(fake->fd, room, room_bytes, 0);
        if (count <= 0) _exit(0);
        wire_reader_filled(&fake->reader, (size_t)count);
    }
}

static void fake_ready(struct fake *fake, const struct wire_hello *hello) {
    struct wire_ready ready = {.version = WIRE_VERSION,
                               .names = hello->names,
                               .context_tokens_max = 4096,
                               .created_unix_s = 17,
                               .generates = true,
                               .description = STR("fake")};
    if (ready.names.count == 0) ready.names = (struct wire_names){{STR("fake")}, 1};
    struct buf payload;
    buf_init(&payload, 10000);
    wire_put_ready(&payload, &ready);
    fake_send(fake, WIRE_READY, 0, buf_str(&payload));
    buf_release(&payload);
}

static void fake_stats(struct fake *fake, uint64_t ping, uint64_t steps) {
    struct buf payload;
    buf_init(&payload, WIRE_STATS_BYTES_MAX);
    wire_put_stats(&payload, &(struct wire_stats){.steps = steps, .running = 3, .kv_used = 0.5});
    fake_send(fake, WIRE_STATS, ping, buf_str(&payload));
    buf_release(&payload);
}

static void fake_result(struct fake *fake, uint64_t id, int32_t status, struct str body) {
    struct buf payload;
    buf_init(&payload, WIRE_PAYLOAD_BYTES_MAX);
    const struct wire_result result = {.status = status,
                                       .outcome = status == 499 ? OUTCOME_CANCELLED : OUTCOME_DONE,
                                       .usage = {.input_tokens = 5, .output_tokens = 7},
                                       .body = body};
    wire_put_result(&payload, &result);
    fake_send(fake, WIRE_RESULT, id, buf_str(&payload));
    buf_release(&payload);
}

static void fake_pid(struct fake *fake, uint64_t id) {
    char text[16];
    snprintf(text, sizeof text, "%d", (int)getpid());
    fake_result(fake, id, 200, str_from(text));
}

/* What a body asks the fake to do; anything else is answered with itself. */
static void fake_job(struct fake *fake, const struct wire_frame *frame) {
    struct wire_job job;
    if (wire_get_job(frame->payload, &job, NULL) != OK) _exit(7);
    if (str_is(job.body, "crash")) abort();
    if (str_is(job.body, "hang"))
        for (;;) pause();
    if (str_is(job.body, "stall")) fake->is_dumb = true; /* lives, and does nothing */
    if (str_is(job.body, "hold") || fake->is_dumb) return;
    if (str_is(job.body, "garbage")) {
        static const char noise[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        send(fake->fd, noise, sizeof noise, MSG_NOSIGNAL);
        for (;;) pause();
    }
    if (str_is(job.body, "pid")) {
        fake_pid(fake, frame->id);
        return;
    }
    if (str_is(job.body, "last")) { /* once it goes on, it ends as by "fault" */
        fake_pid(fake, frame->id);
        raise(SIGSTOP);
    }
    if (str_is(job.body, "fault") || str_is(job.body, "last")) {
        fake_send_flagged(fake, WIRE_FATAL, 0, WIRE_FLAG_CARD_FAILED,
                          STR("step 7: illegal access"));
        _exit(3);
    }
    if (str_is(job.body, "care")) {
        fake_result(fake, frame->id, 200, fake->is_careful ? STR("careful") : STR("as ever"));
        return;
    }
    if (str_is(job.body, "stranger")) {
        fake_result(fake, frame->id + 1000, 200, STR("{}"));
        return;
    }
    if (job.stream) {
        fake_send(fake, WIRE_DELTA, frame->id, STR("one"));
        fake_send(fake, WIRE_DELTA, frame->id, STR("two"));
    }
    fake_result(fake, frame->id, 200, job.body);
}

bool fake_engine_mark(const char *path) {
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    return fd >= 0 && close(fd) == 0;
}

static void await_mark(const char *path) {
    while (access(path, F_OK) != 0) clock_sleep_ms(1);
}

int fake_engine_main(const char *mode) {
    struct fake fake = {.fd = 3};
    stacks_open(4);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    wire_reader_init(&fake.reader);
    buf_init(&fake.out, WIRE_PAYLOAD_BYTES_MAX + 100);
    if (strcmp(mode, "die") == 0) return 5;
    struct wire_frame frame = fake_next(&fake);
    struct wire_hello hello;
    if (frame.kind != WIRE_HELLO || wire_get_hello(frame.payload, &hello, NULL) != OK) return 6;
    fake.is_careful = hello.is_careful;
    char path[256];
    snprintf(path, sizeof path, "%.*s", STR_ARGS(hello.model_path));
    if (strcmp(mode, "fatal") == 0) {
        fake_send(&fake, WIRE_FATAL, 0, STR("model.gguf: the file ends inside tensor 'x'"));
        return 3;
    }
    if (strcmp(mode, "once") == 0 && !fake_engine_mark(path)) {
        fake_send(&fake, WIRE_FATAL, 0, STR("model.gguf: it was cut off"));
        return 3;
    }
    if (strcmp(mode, "card") == 0 && access(path, F_OK) == 0) {
        fake_send_flagged(&fake, WIRE_FATAL, 0, WIRE_FLAG_NO_CARD, STR("card 0 is lost"));
        return 3;
    }
    if (strcmp(mode, "slow") == 0) await_mark(path);
    if (strcmp(mode, "never") == 0)
        for (;;) pause();
    fake_ready(&fake, &hello);
    uint64_t steps = 0;
    for (;;) {
        frame = fake_next(&fake);
        switch (frame.kind) {
        case WIRE_JOB: fake_job(&fake, &frame); break;
        case WIRE_CANCEL: fake_result(&fake, frame.id, 499, STR("cancelled")); break;
        case WIRE_PING: fake_stats(&fake, frame.id, fake.is_dumb ? steps : ++steps); break;
        case WIRE_DRAIN: return 0;
        default: return 6;
        }
    }
}
