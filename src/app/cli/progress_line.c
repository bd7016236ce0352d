/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/progress_line.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define BAR_WIDTH 30
#define PARTS_MAX 8

void progress_line(char ret_line[PROGRESS_LINE_BYTES], const struct progress_part *parts,
                   size_t count, size_t width) {
    bool is_in[PARTS_MAX] = {false};
    size_t used = 0, at = 0;
    assert(count <= PARTS_MAX);
    if (width >= PROGRESS_LINE_BYTES) width = PROGRESS_LINE_BYTES - 1;
    for (size_t rank = 0; rank < count; rank++) {
        for (size_t i = 0; i < count; i++) {
            size_t bytes = strlen(parts[i].text);
            if (parts[i].rank != rank || (rank > 0 && used + bytes > width)) continue;
            is_in[i] = true;
            used += bytes;
        }
    }
    ret_line[0] = '\0';
    for (size_t i = 0; i < count; i++)
        if (is_in[i])
            at += (size_t)snprintf(ret_line + at, PROGRESS_LINE_BYTES - at, "%s", parts[i].text);
}

void progress_bar(char ret_text[PROGRESS_PART_BYTES], uint64_t done, uint64_t total) {
    uint64_t filled = total ? BAR_WIDTH * done / total : 0;
    *ret_text++ = '[';
    for (uint64_t i = 0; i < BAR_WIDTH; i++) *ret_text++ = i < filled ? '#' : '.';
    memcpy(ret_text, "] ", 3);
}

void progress_clock(char ret_text[16], double seconds) {
    long whole = seconds < 0 || seconds > 3e6 ? -1 : (long)seconds;
    if (whole < 0)
        snprintf(ret_text, 16, "-:--");
    else if (whole >= 3600)
        snprintf(ret_text, 16, "%ld:%02ld:%02ld", whole / 3600 % 1000, whole / 60 % 60, whole % 60);
    else
        snprintf(ret_text, 16, "%ld:%02ld", whole / 60, whole % 60);
}
