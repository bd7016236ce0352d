/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* dialect_names: reads requests of other APIs, of a client and of a line, and refuses constraints
 * of their answers that these APIs do not have (grammar/asked_elsewhere.h).
 *
 * It has the members of each API by name. The readers of protocol/dialects find their members by
 * the same names; tests/engine/test_constraints_elsewhere.py fails for one that is missing here.
 *
 * Thread: any.
 * Memory: as dialect_read. */

#include "dialects/dialect.h"

/* As dialect_read; NULL also for such a constraint. */
struct dialect_call *dialect_names_read(const struct dialect *dialect, struct str object,
                                        struct refusal *ret_refusal);
