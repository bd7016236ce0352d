/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* schema: the tables, indexes and triggers that a database of quern has, and no others.
 *
 * A database may come from a backup that others had in their hands. A trigger or a view in it would
 * run with each statement of the server, and a table of another form would be read as what it is
 * not. So the schema of a database is compared with the one that the migrations make, word by word,
 * before anything of it is used.
 *
 * Thread: any; the caller holds the database's lock.
 * Memory: an empty database in memory, and one name of each at a time. */

#include "base/err.h"

#include <sqlite3.h>

/* Compares the schema of `db` with that of the version. ERR_CORRUPT, with a sentence that begins
 * with `name`, for any difference. */
enum err schema_check(sqlite3 *db, int version, const char *name, struct error *error) MUST_CHECK;
