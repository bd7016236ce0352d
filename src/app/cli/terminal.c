/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/terminal.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define COLUMNS_UNKNOWN 80u /* columns if the terminal reports none */
#define REDRAW "\r\033[K"

bool terminal_obeys(int fd) {
    const char *kind = getenv("TERM");
    return isatty(fd) && kind && *kind && strcmp(kind, "dumb") != 0;
}

void terminal_init(struct terminal *ret_terminal) {
    *ret_terminal = (struct terminal){.can_redraw = terminal_obeys(STDERR_FILENO)};
}

/* The last column stays free: some terminals wrap once it is filled. */
size_t terminal_width(const struct terminal *terminal) {
    struct winsize size;
    if (!terminal->can_redraw) return SIZE_MAX;
    bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    return (is_known ? size.ws_col : COLUMNS_UNKNOWN) - 1;
}

static bool is_in_character(char byte) {
    return ((unsigned char)byte & 0xC0) == 0x80;
}

void terminal_draw(struct terminal *terminal, const char *line) {
    if (!terminal->can_redraw) return;
    size_t columns = terminal_width(terminal);
    fputs(REDRAW, stderr);
    for (const char *at = line; *at; at++) {
        bool is_control = (unsigned char)*at < ' ' || *at == 0x7F;
        if (!is_in_character(*at) && columns-- == 0) break;
        fputc(is_control ? '?' : *at, stderr);
    }
    fflush(stderr);
    terminal->is_drawn = true;
}

void terminal_end(struct terminal *terminal) {
    if (terminal->is_drawn) fputc('\n', stderr);
    terminal->is_drawn = false;
}

void terminal_clear(struct terminal *terminal) {
    if (terminal->is_drawn) fputs(REDRAW, stderr);
    terminal->is_drawn = false;
}
