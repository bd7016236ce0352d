/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* run_neighbours: whether other runs have a file in common with some runs.
 *
 * The output of one run may be the input of the next, and two models may have had one input. To
 * erase a line of such a file for one run alone would leave the others unproven, and their sums
 * would still be a way to test guesses. Looked at are the manifests in the folders of the files.
 *
 * Thread: one.
 * Memory: one manifest. */

#include "replay/run_proof.h"

/* ERR_INVALID, naming both, if a run that is not among these has one of their files. */
enum err run_neighbours_check(const struct run_proof *proofs, size_t count,
                              struct error *error) MUST_CHECK;
