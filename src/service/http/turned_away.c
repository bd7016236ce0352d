/* SPDX-License-Identifier: Apache-2.0 */
#include "http/turned_away.h"

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
    gate_answer_write(&text, 503, TURNED_AWAY_SENTENCE, request_id);
    ssize_t sent = send(client, text.at, text.bytes, MSG_NOSIGNAL);
    (void)sent; /* the client is turned away even if it does not get the answer */
    buf_release(&text);
}

void turned_away_add(struct turned_away *away, int client, const char *request_id, int64_t now_ms) {
    if (request_id) send_answer(client, request_id);
    shutdown(client, SHUT_WR);
    if (away->count == TURNED_AWAY_MAX) {
        close(away->at[0].client);
        memmove(&away->at[0], &away->at[1], --away->count * sizeof away->at[0]);
    }
    away->at[away->count].client = client;
    away->at[away->count++].until_ms = now_ms + STAY_MS;
}

/* True if the client may send more. */
static bool drop(int client) {
    ssize_t got = recv(client, NULL, DROP_BYTES, MSG_TRUNC);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

void turned_away_tick(struct turned_away *away, int64_t now_ms) {
    size_t kept = 0;
    for (size_t i = 0; i < away->count; i++) {
        if (drop(away->at[i].client) && now_ms < away->at[i].until_ms)
            away->at[kept++] = away->at[i];
        else
            close(away->at[i].client);
    }
    away->count = kept;
}

void turned_away_close(struct turned_away *away) {
    for (size_t i = 0; i < away->count; i++) close(away->at[i].client);
    away->count = 0;
}
