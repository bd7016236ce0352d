/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* storage: an object storage in memory, and the network before it.
 *
 * A request arrives after a drawn way and takes effect at one moment, whether or not its sender
 * still lives; its answer comes after another way. So what a reader knows is late, but reads and
 * writes have one order, as S3 promises. What goes wrong: a request that is lost, an answer that is
 * lost, an error without effect, a write that arrives after its sender has given up.
 *
 * Each write to the log is checked: entry N + 1 comes after entry N and has its writer, unless it
 * begins a lead; no number has two entries of the chain. A list has pages of five names.
 *
 * Thread: the simulated ones, one at a time.
 * Memory: for the life of the process; nothing is freed. */

#include "copy/bucket.h"

/* Requests of the caller's group from now on belong to that server; others pass undisturbed. */
#define STORAGE_CLEAR UINT32_MAX

/* Opens a connection of a server, or of none (STORAGE_CLEAR). */
void storage_connect(struct bucket **ret_bucket, uint32_t server, const volatile bool *stop);
/* Nothing passes between the server and the storage for that long. */
void storage_cut(uint32_t server, int64_t ns);
/* From now on nothing goes wrong. */
void storage_heal(void);
/* Fails if an object exists that neither the newest base nor the log after it names, but entries
 * with which servers began to lead, and hints. Nothing is under way. */
void storage_check_needed(void);
/* When the entry took effect with which the chain's last leader began; 0: none. */
int64_t storage_lead_ns(uint64_t number);
/* How long before that entry the one before it took effect. */
int64_t storage_silence_ns(uint64_t number);
