/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* state: the states of a batch and the moves between them (contract: the diagram in state.c).
 *
 * Thread: any; pure.
 * Memory: none. */

#include "store/batches.h"

const char *batch_status_name(enum batch_status status);
bool batch_status_is_terminal(enum batch_status status);
/* True for each arrow of the diagram. */
bool batch_move_is_legal(enum batch_status from, enum batch_status to);
/* Sets the state and the time of entering it, unless that is set. The move must be legal. */
void batch_move(struct store_batch *batch, enum batch_status to, int64_t now_unix_s);

enum batch_cancel { BATCH_CANCEL_NOW, BATCH_CANCEL_ALREADY, BATCH_CANCEL_REFUSED };
/* The effect of a cancel call in this state. */
enum batch_cancel batch_cancel_in(enum batch_status status);
