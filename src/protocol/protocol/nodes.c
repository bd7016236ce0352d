/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/nodes.h"

/* From a pack that is read at once to a queue that nobody has read for minutes. */
const struct histogram_bounds nodes_wait_bounds = {
    12, {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300}};
