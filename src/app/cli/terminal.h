/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* terminal: the escape sequences of a terminal: standard error, whose last line is drawn again and
 * again, and a screen that is cleared.
 *
 * A line that is wider than the terminal would wrap, and each redraw would leave a part of it
 * behind. So a drawn line is cut to the width, which is asked at each draw: a terminal may be
 * resized. A dumb terminal and a file get no drawn line and no escape sequence.
 *
 * Thread: one at a time.
 * Memory: the caller's struct. */

#include <stdbool.h>
#include <stddef.h>

/* Moves to the upper left corner and clears the screen. */
#define TERMINAL_CLEAR_SCREEN "\033[H\033[2J"

struct terminal {
    bool can_redraw;
    bool is_drawn; /* a line stands there, and has no end yet */
};

/* Whether the descriptor is a terminal that obeys escape sequences. */
bool terminal_obeys(int fd);
/* Finds out what standard error is. */
void terminal_init(struct terminal *ret_terminal);
/* Columns that a line may fill now; SIZE_MAX where no line is drawn again. */
size_t terminal_width(const struct terminal *terminal);
/* Draws the line over the last one. Control characters become '?', since names of files that others
 * chose are drawn. Draws nothing where it cannot redraw. */
void terminal_draw(struct terminal *terminal, const char *line);
/* Leaves the drawn line, if any, so that other text may follow. */
void terminal_end(struct terminal *terminal);
/* Takes the drawn line, if any, away. */
void terminal_clear(struct terminal *terminal);
