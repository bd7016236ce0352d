/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* client: the client of a plan with HTTP. It writes requests as bytes to the server's own sockets,
 * in pieces that the seed draws, and leaves some of its connections: while it sends, before an
 * answer, or inside of one. It then knows nothing, and asks again. All that an answer of 2xx told
 * goes into the ledger.
 *
 * Each call returns OK, ERR_UNAVAILABLE if it must ask again, or ERR_CONFLICT for a 409. Any other
 * answer is a violation.
 *
 * Thread: the client's, in a life.
 * Memory: none. */

#include "ledger.h"

enum err client_upload(uint32_t batch, uint32_t lines, struct error *error);
enum err client_create(uint32_t batch, struct error *error);
enum err client_cancel(uint32_t batch, struct error *error);
enum err client_delete(uint32_t batch, struct error *error);
enum err client_look(uint32_t batch, struct error *error);
/* A page of results. */
enum err client_read(uint32_t batch, uint32_t lines, struct error *error);
/* All files of a batch that has ended, and its input. */
enum err client_download(uint32_t batch, struct error *error);
/* The list has each batch that the client knows once, and none twice. */
enum err client_list(struct error *error);
