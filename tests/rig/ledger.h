/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ledger: what the client was told, and may rely on. After each start and at the end the server is
 * compared with it: nothing that was told may be gone, or be told otherwise.
 *
 * Thread: the client's.
 * Memory: fixed arrays in the world, which outlive the processes. */

#include "plan.h"
#include "runner/runner.h"
#include "store/files.h"

#define LEDGER_LINES_MAX 48

struct ledger_batch {
    uint32_t lines;
    bool is_uploaded;
    uint32_t uploads; /* calls; the client does not know what all but the last one have left */
    bool is_created;
    bool is_cancelled;      /* the cancel was taken */
    bool may_be_deleted;    /* a deletion was asked for */
    bool is_deleted;        /* it was taken */
    bool may_be_cancelled;  /* likewise a cancel */
    uint64_t may_be_erased; /* a bit per line: its erasure was asked for */
    uint64_t erased;        /* it was taken */
    char file_id[STORE_ID_BYTES];
    char id[STORE_ID_BYTES];
    enum batch_status status;            /* the furthest one that was shown */
    uint32_t shows;                      /* rows that were shown, cancels that were answered */
    uint64_t ended;                      /* the most lines that were shown as ended */
    bool is_seen[LEDGER_LINES_MAX];      /* the client has the result of the line … */
    uint32_t seen_crc[LEDGER_LINES_MAX]; /* … with this sum */
    char output_id[STORE_ID_BYTES], error_id[STORE_ID_BYTES]; /* as they were shown at its end */
};

struct ledger {
    struct ledger_batch batches[PLAN_BATCHES_MAX];
    bool may_expire; /* the wall clock has jumped by a day or more */
};

/* The input of a batch, for the caller to free. */
char *ledger_input(uint32_t batch, uint32_t lines, size_t *ret_bytes);
/* What a line asks, and is told. */
void ledger_question(uint32_t batch, uint32_t line, char ret_text[24]);
/* The answer that a worker gives to a line of this input; `body` is the request. */
void ledger_answer(struct str body, struct buf *ret_answer);
/* The line's number in its batch and the batch, of a custom_id in `text`. False: there is none. */
bool ledger_custom_id(struct str text, uint32_t *ret_batch, uint32_t *ret_line);
/* The batch of an id; NULL: the client knows none of it. */
struct ledger_batch *ledger_find(struct str id);

/* Compares a row that was shown with what was shown before, and notes it. */
void ledger_show(uint32_t batch, const struct store_batch *row);
/* Notes that a cancel was taken. A row that another thread read before is not compared. */
void ledger_note_cancel(uint32_t batch);
/* Looks at a batch that the client knows. False: it is deleted, as was asked for. Another thread
 * may look meanwhile and be shown a newer row: this one is not compared then, and *ret_ended is
 * false. */
bool ledger_look(struct runner *runner, uint32_t batch, bool *ret_ended);
/* Notes the lines of a page of results, and compares those that were read before. */
void ledger_read(uint32_t batch, struct str lines);
/* All that the client was told is there. */
void ledger_check(struct store *store, struct runner *runner);
/* All results that the client has are there, and read the same. */
void ledger_check_seen(struct runner *runner);
/* No file below the state directory has a line that was erased, but backups. */
void ledger_check_erased(struct store *store);
/* All batches have ended, each line once. */
void ledger_check_ends(struct store *store, struct runner *runner);
