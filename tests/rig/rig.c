/* SPDX-License-Identifier: Apache-2.0 */

/* The rig: API, store, runner, queue and batches of the server under one seed, on a disk that
 * forgets, a clock that jumps, workers that die, and threads that take turns by the seed.
 *
 *   rig [--seeds N] [--seed S] [--verbose]
 *
 *   --seeds N   runs N seeds from S on (default 2000)
 *   --seed S    the first seed (default 1, or QUERN_SEED); with --seeds 1 it repeats one run
 *   --verbose   prints what the last life of a failing run wrote to standard error
 *
 * A run of several thousand seeds says each thousand on standard error: what was clean before it is
 * ended counts.
 */

#include "explain.h"
#include "run.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/times.h>
#include <unistd.h>

#define FAILURES_MAX 3
#define TOLD_EACH 1000 /* seeds: some 20 s */

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

/* Seconds of a processor; a life is a child. The clocks of the C library are the world's. */
static double cpu_s(void) {
    struct tms spent;
    times(&spent);
    return (double)(spent.tms_utime + spent.tms_stime + spent.tms_cutime + spent.tms_cstime) /
           (double)sysconf(_SC_CLK_TCK);
}

static void tell_progress(const struct wish *wish, uint64_t ran, uint64_t failures) {
    if (ran % TOLD_EACH != 0 || ran == wish->seeds) return;
    fprintf(stderr, "%llu seeds from %llu on, %llu failed, %.0f s of a processor\n",
            (unsigned long long)ran, (unsigned long long)wish->seed, (unsigned long long)failures,
            cpu_s());
}

int main(int count, char **words) {
    struct wish wish = read_wish(count, words);
    uint64_t failures = 0, lives = 0, calls = 0, cuts = 0, adopted = 0, ran = 0;
    uint64_t requests = 0, unanswered = 0;
    run_begin();
    while (ran < wish.seeds && failures < FAILURES_MAX) {
        struct plan plan;
        plan_draw(&plan, wish.seed + ran);
        bool is_good = run_plan(&plan);
        ran++;
        lives += world->life + 1;
        calls += world->calls_all;
        cuts += world->cuts;
        adopted += world->adopted;
        requests += world->requests;
        unanswered += world->unanswered;
        failures += !is_good;
        tell_progress(&wish, ran, failures);
        if (is_good) continue;
        explain(&plan);
        note("again: build/tests/rig/rig --seed %llu --seeds 1 --verbose",
             (unsigned long long)plan.seed);
        if (wish.is_verbose) fprintf(stderr, "%s", run_said());
    }
    note("%llu seeds, %llu lives, %llu power cuts, %llu calls to the disk, %llu adopted lines, "
         "%llu requests over HTTP, %llu left, %.1f s of a processor",
         (unsigned long long)ran, (unsigned long long)lives, (unsigned long long)cuts,
         (unsigned long long)calls, (unsigned long long)adopted, (unsigned long long)requests,
         (unsigned long long)unanswered, cpu_s());
    report(failures == 0, "what was acknowledged survives %llu seeds", (unsigned long long)ran);
    return report_end();
}
