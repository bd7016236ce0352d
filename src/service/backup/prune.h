/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* prune: removes old generations, and objects that no generation names.
 *
 * A manifest goes before the objects that only it names: a kill in between leaves garbage, which
 * the next call removes.
 *
 * Thread: one; the folder is open for writing.
 * Memory: the manifests that stay, at one time. */

#include "backup/folder.h"

/* Removes all generations but the newest `keep` (0: none is removed), then all objects that no
 * generation names. It removes no object while a manifest cannot be read. */
enum err backup_prune(struct backup_folder *folder, uint64_t keep, uint64_t *ret_removed,
                      struct error *error) MUST_CHECK;
