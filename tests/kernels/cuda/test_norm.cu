/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"
void check_norm(void) { struct rng r = random_of("norm"); (void)r; report(true, "placeholder"); }
void bench_norm(void) { ceiling_read(); ceiling_copy(); }
