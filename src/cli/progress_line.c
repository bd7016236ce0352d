/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/progress_line.h"

#include "cli/pull_show.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BAR_WIDTH 30
#define PART_BYTES 80

enum part { PART_BAR, PART_DONE, PART_FAILED, PART_RATE, PART_LEFT, PART_RUNNING, PART_TOKENS };
#define PARTS (PART_TOKENS + 1)

/* The order in which parts get room; they stand in the order of enum part. */
static const enum part by_worth[PARTS] = {PART_DONE, PART_LEFT,    PART_FAILED, PART_RATE,
                                          PART_BAR,  PART_RUNNING, PART_TOKENS};

static void write_bar(char *ret_text, const struct progress_facts *facts) {
    uint64_t filled = facts->total ? BAR_WIDTH * facts->done / facts->total : 0;
    *ret_text++ = '[';
    for (uint64_t i = 0; i < BAR_WIDTH; i++) *ret_text++ = i < filled ? '#' : '.';
    memcpy(ret_text, "] ", 3);
}

static void write_parts(char parts[PARTS][PART_BYTES], const struct progress_facts *facts) {
    char left[16];
    pull_show_clock(left, facts->seconds_left);
    write_bar(parts[PART_BAR], facts);
    snprintf(parts[PART_DONE], PART_BYTES, "%" PRIu64 "/%" PRIu64 " done", facts->done,
             facts->total);
    snprintf(parts[PART_FAILED], PART_BYTES, ", %" PRIu64 " failed", facts->failed);
    snprintf(parts[PART_RATE], PART_BYTES, ", %.2f req/s", facts->requests_per_s);
    snprintf(parts[PART_LEFT], PART_BYTES, ", ETA %s", left);
    snprintf(parts[PART_RUNNING], PART_BYTES, ", %" PRIu64 " running", facts->running);
    snprintf(parts[PART_TOKENS], PART_BYTES, ", tokens in %" PRIu64 " out %" PRIu64 " (%.0f/s)",
             facts->prompt_tokens, facts->generated_tokens, facts->tokens_per_s);
}

void progress_line(char ret_line[PROGRESS_LINE_BYTES], const struct progress_facts *facts,
                   size_t width) {
    char parts[PARTS][PART_BYTES];
    bool is_in[PARTS] = {false};
    size_t used = 0, at = 0;
    if (width >= PROGRESS_LINE_BYTES) width = PROGRESS_LINE_BYTES - 1;
    write_parts(parts, facts);
    for (int i = 0; i < PARTS; i++) {
        size_t bytes = strlen(parts[by_worth[i]]);
        if (i > 0 && used + bytes > width) continue;
        is_in[by_worth[i]] = true;
        used += bytes;
    }
    ret_line[0] = '\0';
    for (int i = 0; i < PARTS; i++)
        if (is_in[i])
            at += (size_t)snprintf(ret_line + at, PROGRESS_LINE_BYTES - at, "%s", parts[i]);
}
