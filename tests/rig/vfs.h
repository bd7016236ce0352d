/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* vfs: SQLite's files on the simulated disk. It syncs what SQLite's own "unix" does: the folder of a
 * new journal or log with its first sync, and the folder of a removed file if SQLite asks for it.
 * The shared memory of a log is this process's, so that it is gone with it.
 *
 * Thread: one.
 * Memory: the files of one life. */

/* Once, before all lives: SQLite needs no locks of its own here. */
void vfs_prepare(void);
/* Makes it the default of this process. */
void vfs_register(void);
