/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* replay: some lines of a run computed again, and what differs from the answers that the run gave.
 *
 * The lines lie at equal distances, so that each part of the run has some. They run as a `quern
 * run` of its own with the models and settings of the manifest; its own manifest tells what
 * computes now, and the differences are the reasons that are given.
 *
 * Thread: one.
 * Memory: the lines that are compared. */

#include "replay/answer_match.h"
#include "replay/run_proof.h"

#define REPLAY_LINES_MAX 100000
#define REPLAY_REASONS_MAX 16
#define REPLAY_MODELS_MAX 16

struct replay_line {
    const char *custom_id;
    enum answer_match match;
    bool is_sampled; /* sampled, without a seed: another answer is no surprise */
};

/* What a manifest may set, by an option's name with its dashes. */
enum replay_setting { REPLAY_SETTING_NONE, REPLAY_SETTING_SWITCH, REPLAY_SETTING_VALUE };

struct replay_options {
    uint64_t lines;
    enum replay_setting (*setting)(const char *option);
    const char *models[REPLAY_MODELS_MAX]; /* NAME=PATH of those that lie elsewhere now */
    size_t model_count;
    const char *folder; /* for the files of the replay; it must not exist, and is removed */
    const volatile bool *stop;
    void *context;
    void (*line)(void *context, const struct replay_line *line);
};

struct replay {
    uint64_t lines, equal, same_meaning, different;
    uint64_t unexplained; /* lines that differ, are not sampled, and no reason is known */
    /* Why answers may differ: what computed the run is not what computes now. */
    char reasons[REPLAY_REASONS_MAX][ERROR_TEXT_BYTES];
    size_t reason_count;
};

/* Its signature was checked. ERR_CORRUPT: input or output differ from the manifest; ERR_INVALID:
 * the run cannot be computed again, with the reason; the errors of run_process. */
enum err replay_run(struct run_proof *proof, const struct replay_options *options,
                    struct replay *ret_replay, struct error *error) MUST_CHECK;
