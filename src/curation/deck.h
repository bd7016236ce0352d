/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* deck: the lines of one batch as a curator meets them: the request of each line, and its result
 * once it has one.
 *
 * A deck is made when a caller first asks for it: from the input file, and from the results in the
 * order in which they became durable. Each further call adds the results that have come since, so
 * that a running batch can be judged. No file of the state directory depends on a deck: a restart
 * loses all decks. A deck keeps places and no texts; a reader fetches the texts of single lines.
 *
 * Lines are indexes of requests, from 0 on, as in struct seglog_record.
 *
 * Thread: any. A call that makes a deck keeps other callers of the same batch waiting.
 * Memory: at most 40 bytes per line, and 4 decks that no caller has; a reader has four descriptors.
 * Invariant: a line that has a result keeps it. */

#include "runner/runner.h"
#include "store/batches.h"

#define DECK_TEXT_BYTES_MAX ((size_t)64 << 20) /* of one request or result */

struct decks;
struct deck;
struct facts;

void decks_open(struct decks **ret_decks, struct store *store, struct runner *runner);
/* The callers have dropped every deck. NULL is allowed. */
void decks_close(struct decks *decks);

/* The deck of a batch with all results that are durable at the call; deck_drop gives it back.
 * ERR_NOT_FOUND if the batch's input or a result file was deleted or has expired. */
enum err deck_take(struct decks *decks, const struct store_batch *batch, struct deck **ret_deck,
                   struct error *error) MUST_CHECK;
void deck_drop(struct deck *deck);

uint32_t deck_lines(const struct deck *deck);
bool deck_has_result(struct deck *deck, uint32_t line);
/* An array of one byte per line: 1 if the line has a result, else 0. The caller frees it. */
unsigned char *deck_results(struct deck *deck);

/* True if the requests of all lines ask for answers of one shape, or ask the same questions of a
 * decision. */
bool deck_has_one_shape(const struct deck *deck);
/* The line of another batch that has the custom_id of this one; false if there is none. */
bool deck_match(const struct deck *deck, uint32_t line, const struct deck *other,
                uint32_t *ret_line);
/* The facts of all answers (facts.h). */
struct facts *deck_facts(const struct deck *deck);

/* --- texts of single lines --- */

/* A reader, for one thread. */
struct deck_reader {
    struct deck *deck;
    int input_fd;
    struct runner_results *results;
};

/* ERR_NOT_FOUND as deck_take. After OK the caller closes the reader before it drops the deck. */
enum err deck_reader_open(struct deck_reader *ret_reader, struct deck *deck,
                          struct error *error) MUST_CHECK;
void deck_reader_close(struct deck_reader *reader);
/* The line with this custom_id. ERR_NOT_FOUND if the batch has none. */
enum err deck_find(struct deck_reader *reader, struct str custom_id, uint32_t *ret_line,
                   struct error *error) MUST_CHECK;
/* Append the request as it was sent, or the line of the output or error file, without LF.
 * ERR_LIMIT for a text over DECK_TEXT_BYTES_MAX. ERR_NOT_FOUND if the line has no result, or a
 * result file was deleted. */
enum err deck_read_request(struct deck_reader *reader, uint32_t line, struct buf *buf,
                           struct error *error) MUST_CHECK;
enum err deck_read_result(struct deck_reader *reader, uint32_t line, struct buf *buf,
                          struct error *error) MUST_CHECK;
