/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/timings.h"

#define LATENCIES                                                                                  \
    {                                                                                              \
        21, {                                                                                      \
            .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920,   \
                7680                                                                               \
        }                                                                                          \
    }
#define TOKEN_LATENCIES                                                                            \
    {                                                                                              \
        19, {                                                                                      \
            .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80     \
        }                                                                                          \
    }
#define TOKENS                                                                                     \
    {                                                                                              \
        19, {                                                                                      \
            1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000,     \
                200000, 500000, 1000000                                                            \
        }                                                                                          \
    }

const struct histogram_bounds timing_bounds[TIMING_COUNT] = {
    [TIMING_FIRST_TOKEN] = {22, {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                 1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560}},
    [TIMING_BETWEEN_TOKENS] = TOKEN_LATENCIES,
    [TIMING_PER_TOKEN] = TOKEN_LATENCIES,
    [TIMING_WHOLE] = LATENCIES,
    [TIMING_QUEUE] = LATENCIES,
    [TIMING_INFERENCE] = LATENCIES,
    [TIMING_PREFILL] = LATENCIES,
    [TIMING_DECODE] = LATENCIES,
    [TIMING_PROMPT_TOKENS] = TOKENS,
    [TIMING_GENERATED_TOKENS] = TOKENS,
    [TIMING_MAX_TOKENS] = TOKENS,
    [TIMING_CHOICES] = {5, {1, 2, 5, 10, 20}},
};

const struct histogram_bounds timing_step_bounds = {
    13, {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}};

void timings_add(struct timings *timings, enum timing_origin origin, enum timing timing,
                 double value) {
    histogram_add(&timings->of[origin][timing], &timing_bounds[timing], value);
}

void timings_add_ns(struct timings *timings, enum timing_origin origin, enum timing timing,
                    int64_t ns) {
    timings_add(timings, origin, timing, ns > 0 ? (double)ns * 1e-9 : 0);
}

void timings_merge(struct timings *timings, const struct timings *more) {
    for (int origin = 0; origin < TIMING_ORIGINS; origin++) {
        for (int timing = 0; timing < TIMING_COUNT; timing++)
            histogram_merge(&timings->of[origin][timing], &more->of[origin][timing]);
        for (int end = 0; end < TIMING_ENDS; end++)
            timings->ends[origin][end] += more->ends[origin][end];
    }
    histogram_merge(&timings->step_tokens, &more->step_tokens);
}
