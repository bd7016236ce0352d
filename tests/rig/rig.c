/* SPDX-License-Identifier: Apache-2.0 */

/* The rig: API, store, runner, queue and batches of the server under one seed, on a disk that
 * forgets, a clock that jumps, workers that die, and threads that take turns by the seed.
 *
 *   rig [--seeds N] [--seed S] [--verbose]
 *
 *   --seeds N   runs N seeds from S on (default 2000)
 *   --seed S    the first seed (default 1, or QUERN_SEED); with --seeds 1 it repeats one run
 *   --verbose   prints what the last life of a failing run wrote to standard error
 */

#include "explain.h"
#include "run.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FAILURES_MAX 3

struct wish {
    uint64_t seed, seeds;
    bool is_verbose;
};

static bool read_number(const char *text, uint64_t *ret_number) {
    char *end;
    *ret_number = strtoull(text, &end, 10);
    return *text && !*end;
}

static struct wish read_wish(int count, char **words) {
    const char *seed = getenv("QUERN_SEED");
    struct wish wish = {.seed = 1, .seeds = 2000};
    bool is_good = !seed || read_number(seed, &wish.seed);
    for (int i = 1; i < count && is_good; i++) {
        bool has_value = i + 1 < count;
        if (strcmp(words[i], "--verbose") == 0) {
            wish.is_verbose = true;
        } else if (strcmp(words[i], "--seeds") == 0 && has_value) {
            is_good = read_number(words[++i], &wish.seeds);
        } else if (strcmp(words[i], "--seed") == 0 && has_value) {
            is_good = read_number(words[++i], &wish.seed);
        } else {
            is_good = false;
        }
    }
    if (is_good) return wish;
    fprintf(stderr, "rig [--seeds N] [--seed S] [--verbose]\n");
    exit(2);
}

int main(int count, char **words) {
    struct wish wish = read_wish(count, words);
    uint64_t failures = 0, lives = 0, calls = 0, cuts = 0, adopted = 0, ran = 0;
    uint64_t requests = 0, unanswered = 0;
    run_begin();
    for (; ran < wish.seeds && failures < FAILURES_MAX; ran++) {
        struct plan plan;
        plan_draw(&plan, wish.seed + ran);
        bool is_good = run_plan(&plan);
        lives += world->life + 1;
        calls += world->calls_all;
        cuts += world->cuts;
        adopted += world->adopted;
        requests += world->requests;
        unanswered += world->unanswered;
        if (is_good) continue;
        failures++;
        explain(&plan);
        note("again: build/tests/rig/rig --seed %llu --seeds 1 --verbose",
             (unsigned long long)plan.seed);
        if (wish.is_verbose) fprintf(stderr, "%s", run_said());
    }
    note("%llu seeds, %llu lives, %llu power cuts, %llu calls to the disk, %llu adopted lines, "
         "%llu requests over HTTP, %llu left, %.1f s",
         (unsigned long long)ran, (unsigned long long)lives, (unsigned long long)cuts,
         (unsigned long long)calls, (unsigned long long)adopted, (unsigned long long)requests,
         (unsigned long long)unanswered, (double)clock() / CLOCKS_PER_SEC);
    report(failures == 0, "what was acknowledged survives %llu seeds", (unsigned long long)ran);
    return report_end();
}
