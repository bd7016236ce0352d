/* SPDX-License-Identifier: Apache-2.0 */
#include "http/lingering_close.h"

#include "http/gate_answer.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define STAY_MS 120000                 /* they cost a socket each, and newer ones displace them */
#define DROP_BYTES ((size_t)256 << 10) /* per tick and client */

/* The socket's buffer is empty, so the answer fits. */
static void send_answer(int client, const char *request_id) {
    struct buf text;
    buf_init(&text, 4096);
    gate_answer_write(&text, 503, LINGERING_SENTENCE, request_id);
    ssize_t sent = send(client, text.at, text.bytes, MSG_NOSIGNAL);
    (void)sent; /* the client is turned away even if it does not get the answer */
    buf_release(&text);
}

void lingering_close_add(struct lingering_close *lingering, int client, const char *request_id,
                         int64_t now_ms) {
    if (request_id) send_answer(client, request_id);
    shutdown(client, SHUT_WR);
    if (lingering->count == LINGERING_MAX) {
        close(lingering->at[0].client);
        memmove(&lingering->at[0], &lingering->at[1], --lingering->count * sizeof lingering->at[0]);
    }
    lingering->at[lingering->count].client = client;
    lingering->at[lingering->count++].until_ms = now_ms + STAY_MS;
}

/* True if the client may send more. */
static bool drop(int client) {
    ssize_t got = recv(client, NULL, DROP_BYTES, MSG_TRUNC);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

void lingering_close_tick(struct lingering_close *lingering, int64_t now_ms) {
    size_t kept = 0;
    for (size_t i = 0; i < lingering->count; i++) {
        if (drop(lingering->at[i].client) && now_ms < lingering->at[i].until_ms)
            lingering->at[kept++] = lingering->at[i];
        else
            close(lingering->at[i].client);
    }
    lingering->count = kept;
}

void lingering_close_close(struct lingering_close *lingering) {
    for (size_t i = 0; i < lingering->count; i++) close(lingering->at[i].client);
    lingering->count = 0;
}
