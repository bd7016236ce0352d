/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* card_watch: how the cards fare that engines run on, asked of the driver once per second.
 *
 * It stands in the server, because an engine's sandbox forbids what the driver's library does. The
 * library is loaded when the first engine tells its card, never on a machine without one. A driver
 * in trouble may hold a call for seconds: a sample is of use for 10 s, and no other thread waits.
 *
 * Thread: one of its own; card_watch_read may be called by any.
 * Memory: one struct card_watch. If the driver holds a call while the watch closes, thread and
 *     struct are left to the end of the process. */

#include "protocol/card.h"

#include <stddef.h>

struct card_watch;

/* A card that engines run on. */
struct card_use {
    char uuid[CARD_UUID_BYTES];
    uint64_t tokens; /* that its engines generated since they started */
};

struct card_watch_options {
    void *context;
    /* The cards in use now, at most CARDS_MAX; called by the watch's thread. */
    size_t (*uses)(void *context, struct card_use ret_uses[CARDS_MAX]);
    const char *library; /* of the driver (default libnvidia-ml.so.1); a path for tests */
};

/* NULL: no thread could be started, and nothing is told about cards. */
struct card_watch *card_watch_open(const struct card_watch_options *options);
/* No call of `uses` follows. NULL is allowed. */
void card_watch_close(struct card_watch *watch);

/* The cards that were in use at some time, at most CARDS_MAX; returns their number. NULL: none. */
size_t card_watch_read(struct card_watch *watch, struct card_status ret_cards[CARDS_MAX]);
