/* SPDX-License-Identifier: Apache-2.0 */

/* The copy under one seed: the product's copy/ in several servers, a storage that loses requests
 * and answers, servers that die, stop, sleep and are cut off, clocks that jump, bases.
 *
 *   sim_copy [--seeds N] [--seed S] [--verbose]
 *
 *   --seeds N   runs N seeds from S on (default 900)
 *   --seed S    the first seed (default 1, or QUERN_SEED); with --seeds 1 it repeats one run
 *   --verbose   prints what happens
 */

#include "sim.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FAILURES_MAX 3

static bool read_number(const char *text, uint64_t *ret_number) {
    char *end;
    *ret_number = strtoull(text, &end, 10);
    return *text && !*end;
}

int main(int count, char **words) {
    const char *drawn = getenv("QUERN_SEED");
    uint64_t seed = 1, seeds = 900, failures = 0, ran = 0, sums[4] = {0};
    bool is_good = !drawn || read_number(drawn, &seed);
    bool is_verbose = count > 1 && strcmp(words[count - 1], "--verbose") == 0;
    for (int i = 1; i < count - is_verbose && is_good; i += 2) {
        bool is_seed = strcmp(words[i], "--seed") == 0;
        is_good = (is_seed || strcmp(words[i], "--seeds") == 0) && i + 1 < count - is_verbose &&
                  read_number(words[i + 1], is_seed ? &seed : &seeds);
    }
    if (!is_good) {
        fprintf(stderr, "sim_copy [--seeds N] [--seed S] [--verbose]\n");
        return 2;
    }
    sim_begin(is_verbose);
    for (; ran < seeds && failures < FAILURES_MAX; ran++) {
        struct plan plan;
        plan_draw(&plan, seed + ran);
        bool is_kept = sim_run(&plan);
        sums[0] += sim->requests;
        sums[1] += sim->entries;
        sums[2] += sim->takeovers;
        sums[3] += sim->told;
        if (is_kept) continue;
        failures++;
        sim_explain(&plan);
        note("again: build/tests/sim_copy/sim_copy --seed %llu --seeds 1",
             (unsigned long long)plan.seed);
    }
    sim_end();
    note("%llu seeds, %llu requests, %llu entries, %llu leads, %llu acknowledgements",
         (unsigned long long)ran, (unsigned long long)sums[0], (unsigned long long)sums[1],
         (unsigned long long)sums[2], (unsigned long long)sums[3]);
    report(failures == 0, "what was acknowledged is in the copy, in %llu seeds",
           (unsigned long long)ran);
    return report_end();
}
