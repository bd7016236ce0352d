/* SPDX-License-Identifier: Apache-2.0 */

/* The simulator of a copy with mistakes in it (plant.py): each must be found, and shrunk to a few
 * events.
 *
 *   sim_copy_planted [NUMBER [SEED]]   all of them, or one; one that is drawn where QUERN_SHARE is
 *                                      below 1; from the seed on (default 1)
 */

#include "sim.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

#define SEEDS_MAX 4000u
#define EVENTS_MAX 12u

/* What is wrong, and the marks of the violations that show it. */
static const struct {
    const char *sentence, *marks[3];
} mistakes[] = {
    {NULL, {NULL}},
    {"an acknowledgement before the answer of the storage", {"(acknowledged)", "(results)"}},
    {"an entry that is taken for its own whoever wrote it", {"(acknowledged)", "(results)"}},
    {"a standby that leads without an entry", {"(chain)"}},
    {"a base that removes an entry that it needs", {"(restore)", "(liveness)"}},
    {"a lead in a gap below a base", {"(chain)"}},
    {"entries of leads that a base removes", {"(chain)", "(acknowledged)"}},
    {"a base that leaves out the entry under way", {"(fsck)", "(acknowledged)", "(results)"}},
    {"a standby that leads before there is a whole state", {"(liveness)"}},
    {"an object that a base removes and the log names", {"(restore)", "(liveness)", "(fsck)"}},
    {"an object that a base removes while it is stored", {"(restore)", "(liveness)", "(fsck)"}},
    {"objects of earlier leaders that stay", {"(leftover)"}},
    {"entries of earlier leaders that stay", {"(leftover)"}},
    {"objects of a later leader that are removed", {"(restore)", "(liveness)", "(fsck)"}},
    {"a standby that falls behind a busy server", {"(takeover)"}},
};
#define MISTAKES (sizeof mistakes / sizeof *mistakes)

static int planted;

int sim_planted(void);
int sim_planted(void) {
    return planted;
}

static bool has_mark(int number) {
    for (int i = 0; i < 3 && mistakes[number].marks[i]; i++)
        if (strstr(sim->wrong, mistakes[number].marks[i])) return true;
    return false;
}

static void find(int number, uint64_t first) {
    struct plan plan;
    uint64_t seed = first - 1;
    planted = number;
    bool is_found = false;
    while (!is_found && seed < first - 1 + SEEDS_MAX) {
        plan_draw(&plan, ++seed);
        is_found = !sim_run(&plan) && has_mark(number);
    }
    if (is_found) sim_explain(&plan);
    report(is_found && plan.event_count <= EVENTS_MAX,
           "%s is found by seed %llu of %u, in %u events", mistakes[number].sentence,
           (unsigned long long)seed, SEEDS_MAX, plan.event_count);
}

int main(int count, char **words) {
    unsigned long only = count > 1 ? strtoul(words[1], NULL, 10) : 0;
    uint64_t first = count > 2 ? strtoull(words[2], NULL, 10) : 1;
    uint64_t drawn;
    if (count < 2 && report_share(&drawn) < 1) only = 1 + drawn % (MISTAKES - 1);
    sim_begin(false);
    for (size_t i = 1; i < MISTAKES; i++)
        if (only == 0 || only == i) find((int)i, first);
    sim_end();
    return report_end();
}
