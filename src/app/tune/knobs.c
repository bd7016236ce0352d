/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/knobs.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What is tried of one option. */
struct knob {
    const char *name;
    const char *values[4]; /* ends in NULL; those of `threads` depend on the machine */
};

static const struct knob knobs[KNOB_COUNT] = {
    {"max-model-len", {"1024", "4096"}},
    {"quantization", {"none", "int8", "fp8"}},
    {"max-num-seqs", {"16", "64", "256"}},
    {"max-num-batched-tokens", {"128", "1024", "2048"}},
    {"kv-cache-memory-bytes", {"268435456", "4294967296"}},
    {"kv-cache-dtype", {"bfloat16", "fp8"}},
    {"threads", {NULL}},
};

bool knobs_has(const char *name) {
    size_t at = 0;
    while (at < KNOB_COUNT && strcmp(knobs[at].name, name) != 0) at++;
    return at < KNOB_COUNT;
}

static bool is_wanted(const char *const *names, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return true;
    return count == 0;
}

/* The value of today, as the arguments of a trial have it; NULL: the default. */
static const char *value_today(const char *const *today, const char *name) {
    for (size_t i = 0; today[i] && today[i + 1]; i++)
        if (strncmp(today[i], "--", 2) == 0 && strcmp(today[i] + 2, name) == 0) return today[i + 1];
    return NULL;
}

static void add(struct knob_settings *settings, const char *const *today, const char *knob,
                const char *value) {
    const char *now = value_today(today, knob);
    if (now && strcmp(now, value) == 0) return;
    settings->at[settings->count++] = (struct tune_setting){.knob = knob, .value = value};
}

/* One thread, and half of the cores; the default is all of them. */
static void add_threads(struct knob_settings *settings, const char *const *today) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    snprintf(settings->threads[0], sizeof settings->threads[0], "1");
    snprintf(settings->threads[1], sizeof settings->threads[1], "%ld", cores / 2);
    add(settings, today, "threads", settings->threads[0]);
    if (cores > 3) add(settings, today, "threads", settings->threads[1]);
}

void knobs_list(struct knob_settings *ret_settings, const char *const *names, size_t count,
                const char *const *today) {
    memset(ret_settings, 0, sizeof *ret_settings);
    for (size_t i = 0; i < KNOB_COUNT; i++) {
        if (!is_wanted(names, count, knobs[i].name)) continue;
        for (size_t j = 0; j < 4 && knobs[i].values[j]; j++)
            add(ret_settings, today, knobs[i].name, knobs[i].values[j]);
        if (strcmp(knobs[i].name, "threads") == 0) add_threads(ret_settings, today);
    }
}
