/* SPDX-License-Identifier: Apache-2.0 */

/* sim: the scheduler against a fake model, with everything that can happen chosen by a seed.
 *
 * Requests come in bursts, share prefixes, repeat each other, are too large, are cancelled at any
 * moment, or are finished from inside an event. Urgent ones come in the middle of steps. After
 * every step all invariants are checked: those of the scheduler (scheduler_check), those of the
 * backend (fake_backend), and here those a caller sees: every token is the one its prompt, seed and
 * counter say, whatever else ran; every sequence is finished exactly once and for the right reason;
 * preemptions and waiting are bounded.
 *
 * Everything is done with one step under way and with two.
 *
 *     sim [--seed S] [--seeds COUNT] [--steps N]     COUNT seeds from S on, N steps each
 *         [--under-way 1|2]                          with so many steps under way alone
 *     sim --bench [--requests N] [--sequences N]     time of the scheduler alone */

#include "bench.h"
#include "tap.h"
#include "world.h"

#include "base/str.h"
#include "scheduler/backend.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEEDS 250 /* a run without arguments has so many */

struct arguments {
    uint64_t seed;
    uint64_t seeds;
    uint64_t steps;
    uint64_t under_way; /* 0: both */
    uint64_t requests;
    uint64_t sequences;
    bool is_bench;
};

static char repeat[128]; /* written by the handler below, which can take no arguments */

static void on_abort(int signal_number) {
    (void)signal_number;
    ssize_t written = write(STDERR_FILENO, repeat, strlen(repeat));
    (void)written;
}

static bool parse(int count, char **words, struct arguments *ret_arguments) {
    struct {
        const char *name;
        uint64_t *value;
    } options[] = {
        {"--seed", &ret_arguments->seed},         {"--seeds", &ret_arguments->seeds},
        {"--steps", &ret_arguments->steps},       {"--under-way", &ret_arguments->under_way},
        {"--requests", &ret_arguments->requests}, {"--sequences", &ret_arguments->sequences}};
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "--bench") == 0) {
            ret_arguments->is_bench = true;
            continue;
        }
        bool is_known = false;
        for (size_t k = 0; k < sizeof options / sizeof options[0]; k++) {
            if (strcmp(words[i], options[k].name) != 0) continue;
            if (i + 1 >= count || !str_to_u64(str_from(words[i + 1]), options[k].value))
                return false;
            is_known = true;
            i++;
            break;
        }
        if (!is_known) return false;
    }
    return ret_arguments->under_way <= BACKEND_STEPS_MAX;
}

static void print_totals(const struct world_totals *totals, FILE *file) {
    const struct {
        const char *name;
        uint64_t value;
    } lines[] = {{"steps", totals->steps},
                 {"requests", totals->requests},
                 {"sequences", totals->sequences},
                 {"tokens", totals->tokens},
                 {"rows", totals->rows},
                 {"refused", totals->refused},
                 {"cancelled", totals->cancelled},
                 {"finished by caller", totals->finished_by_caller},
                 {"ended under way", totals->ended_under_way},
                 {"ended all at once", totals->ended_all_at_once},
                 {"preemptions", totals->preemptions},
                 {"preempted twice", totals->preempted_twice},
                 {"evictions", totals->evictions},
                 {"urgent", totals->urgent},
                 {"urgent that passed", totals->passed},
                 {"urgent steps", totals->urgent_steps},
                 {"cached prompt tokens", totals->hit_tokens},
                 {"pages copied", totals->copies},
                 {"states saved", totals->saves},
                 {"states restored", totals->restores},
                 {"states forgotten", totals->forgotten},
                 {"begun ahead", totals->ahead},
                 {"put off", totals->put_off},
                 {"late tokens", totals->late},
                 {"given tokens", totals->given},
                 {"guessed tokens", totals->guessed},
                 {"right guesses", totals->accepted}};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        fprintf(file, "%-22s %llu\n", lines[i].name, (unsigned long long)lines[i].value);
    fprintf(file, "%-22s %016llx\n", "events", (unsigned long long)totals->events_hash);
}

/* What happens in one seed of nine and of six, which a drawn share of 31 seeds missed in the gate:
 * guesses that are right, and all requests ending at once. The rest happens in one seed of three
 * and more, so that 31 seeds miss it once in 300,000 runs. */
static bool is_lucky(const struct world_totals *totals, uint64_t under_way) {
    bool has_guesses = totals->accepted > 500 && totals->guessed > 5000;
    return totals->ended_all_at_once > 0 && (under_way > 1 || has_guesses);
}

/* A drawn share of the seeds meets each of these corners, too, but not as often. */
static bool is_thorough(const struct world_totals *totals, uint64_t under_way, bool is_share) {
    const uint64_t thousand = is_share ? 0 : 1000;
    bool is_special = under_way > 1
                          ? totals->ahead > totals->steps / 2 && totals->put_off > thousand &&
                                totals->late > 10 * thousand
                          : totals->passed > thousand && totals->urgent_steps > 2 * thousand;
    return (is_share || is_lucky(totals, under_way)) && is_special &&
           totals->given > 10 * thousand && totals->steps >= 200 * thousand &&
           totals->refused > 0 && totals->cancelled > 0 && totals->finished_by_caller > 0 &&
           totals->ended_under_way > 0 && totals->preemptions > 0 && totals->preempted_twice > 0 &&
           totals->evictions > 0 && totals->hit_tokens > 0 && totals->copies > 10 * thousand &&
           totals->saves > 2 * thousand && totals->restores > 5 * thousand &&
           totals->forgotten > thousand;
}

static void run(const struct arguments *arguments, uint32_t under_way,
                struct world_totals *ret_totals) {
    for (uint64_t i = 0; i < arguments->seeds; i++) {
        uint64_t seed = arguments->seed + i;
        snprintf(repeat, sizeof repeat,
                 "sim failed; repeat with: sim --under-way %u --seed %llu --steps %llu\n",
                 under_way, (unsigned long long)seed, (unsigned long long)arguments->steps);
        world_run(seed, (uint32_t)arguments->steps, under_way, ret_totals);
    }
}

int main(int count, char **words) {
    struct arguments arguments = {.seed = 1, .steps = 500, .requests = 200000, .sequences = 256};
    if (!parse(count, words, &arguments)) {
        fprintf(stderr, "usage: sim [--seed S] [--seeds COUNT] [--steps N] [--under-way 1|2]\n"
                        "       sim --bench [--requests N] [--sequences N]\n");
        return 2;
    }
    if (arguments.is_bench)
        return bench_run((uint32_t)arguments.requests, (uint32_t)arguments.sequences);
    const double share = count == 1 ? report_share(&arguments.seed) : 1;
    if (arguments.seeds == 0) arguments.seeds = count == 1 ? (uint64_t)(SEEDS * share) : 1;

    signal(SIGABRT, on_abort);
    for (uint64_t under_way = 1; under_way <= BACKEND_STEPS_MAX; under_way++) {
        if (arguments.under_way > 0 && arguments.under_way != under_way) continue;
        struct world_totals totals = {0};
        run(&arguments, (uint32_t)under_way, &totals);
        printf("%s%llu under way\n", under_way > 1 ? "\n" : "", (unsigned long long)under_way);
        print_totals(&totals, stdout);
        /* A run of the suite that never gets into the corners it is for proves nothing. A run of
         * fewer seeds may miss them. */
        bool is_many = 10 * arguments.seeds >= SEEDS;
        if (count == 1 && is_many && !is_thorough(&totals, under_way, share < 1)) {
            fprintf(stderr, "sim: some of the above never happened\n");
            return 1;
        }
    }
    return 0;
}
