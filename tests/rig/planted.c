/* SPDX-License-Identifier: Apache-2.0 */

/* The rig with mistakes in it (plant.py): each must be found, and shrunk to a few events.
 *
 *   rig_planted [NUMBER]   all of them, or one; one that is drawn where QUERN_SHARE is below 1
 */

#include "explain.h"
#include "run.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

#define SEEDS_MAX 10000u
#define EVENTS_MAX 12u

/* What is wrong, and the mark of the violation that shows it. */
static const struct {
    const char *sentence, *mark;
} mistakes[] = {
    {NULL, NULL},
    {"a sync of a log that is left out", "(I5)"},
    {"an acknowledgement before the commit", "(I5)"},
    {"an index that is written before its log", "(I1"},
    {"a lease that is freed twice", "(leases)"},
    {"a rename without the folder's sync", "(I1"},
    {"a deleted batch whose answers stay in the cache", "(I16)"},
    {"a backup whose bytes are not synced", "(backup)"},
    {"a line that runs before nodes have told theirs", "(adoption)"},
    {"an answer that leaves the queue before it is durable", "(adoption)"},
    {"a cancel that is answered before it is kept", "(I9)"},
    {"a delimiter of a form that comes in two pieces and is not seen", "(HTTP)"},
    {"salts that stay when the row of their file goes", "(I17)"},
    {"a line that has begun and is taken from its worker", "(leases)"},
    {"an error of a worker that is believed", "(tries)"},
    {"an order of results that is written behind its erasure", "(erasure)"},
};
#define MISTAKES (sizeof mistakes / sizeof *mistakes)

static int planted;

int rig_planted(void);
int rig_planted(void) {
    return planted;
}

static void find(int number) {
    struct plan plan;
    uint64_t seed = 0;
    unsigned events = 0;
    planted = number;
    bool is_found = false;
    while (!is_found && seed < SEEDS_MAX) {
        plan_draw(&plan, ++seed);
        is_found = !run_plan(&plan) && strstr(world->wrong, mistakes[number].mark);
    }
    if (is_found) events = explain(&plan);
    report(is_found && events <= EVENTS_MAX, "%s is found by seed %llu of %u, in %u events",
           mistakes[number].sentence, (unsigned long long)seed, SEEDS_MAX, events);
}

int main(int count, char **words) {
    unsigned long only = count > 1 ? strtoul(words[1], NULL, 10) : 0;
    uint64_t drawn;
    if (count < 2 && report_share(&drawn) < 1) only = 1 + drawn % (MISTAKES - 1);
    run_begin();
    for (size_t i = 1; i < MISTAKES; i++)
        if (only == 0 || only == i) find((int)i);
    return report_end();
}
