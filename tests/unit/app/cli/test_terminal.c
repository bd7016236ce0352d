/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/terminal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Standard error as a terminal, whose other end is `master`. */
struct fixture {
    int master, errors_before;
    struct terminal terminal;
};

static void open_terminal(struct fixture *fixture, unsigned short columns, const char *kind) {
    const struct winsize size = {.ws_row = 24, .ws_col = columns};
    setenv("TERM", kind, 1);
    fixture->master = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(fixture->master >= 0);
    assert_int_equal(grantpt(fixture->master), 0);
    assert_int_equal(unlockpt(fixture->master), 0);
    int slave = open(ptsname(fixture->master), O_RDWR | O_NOCTTY);
    assert_true(slave >= 0);
    assert_int_equal(ioctl(slave, TIOCSWINSZ, &size), 0);
    fixture->errors_before = dup(STDERR_FILENO);
    assert_true(dup2(slave, STDERR_FILENO) >= 0);
    close(slave);
    terminal_init(&fixture->terminal);
}

/* Closes the terminal and compares all that it was sent. */
static void close_terminal(struct fixture *fixture, const char *wanted) {
    char text[1024];
    size_t at = 0;
    ssize_t bytes;
    fflush(stderr);
    assert_true(dup2(fixture->errors_before, STDERR_FILENO) >= 0);
    close(fixture->errors_before);
    /* The last reader of a closed terminal gets its bytes, then an error. */
    while ((bytes = read(fixture->master, text + at, sizeof text - 1 - at)) > 0)
        at += (size_t)bytes;
    text[at] = '\0';
    close(fixture->master);
    assert_string_equal(text, wanted);
}

static void a_line_is_cut_to_the_columns_of_each_draw(void **state) {
    struct fixture fixture;
    const struct winsize wider = {.ws_row = 24, .ws_col = 9};
    (void)state;
    open_terminal(&fixture, 6, "xterm");
    terminal_draw(&fixture.terminal, "12345678");
    assert_int_equal(ioctl(fixture.master, TIOCSWINSZ, &wider), 0);
    assert_int_equal(terminal_width(&fixture.terminal), 8);
    terminal_draw(&fixture.terminal, "12345678");
    terminal_end(&fixture.terminal);
    terminal_end(&fixture.terminal);
    terminal_clear(&fixture.terminal);
    close_terminal(&fixture, "\r\033[K12345\r\033[K12345678\r\n");
}

static void characters_are_whole_and_none_controls_the_terminal(void **state) {
    struct fixture fixture;
    (void)state;
    open_terminal(&fixture, 6, "xterm");
    terminal_draw(&fixture.terminal, "\303\274\303\244\303\266\303\274\303\244\303\266");
    terminal_draw(&fixture.terminal, "a\033[2J\n");
    terminal_clear(&fixture.terminal);
    close_terminal(&fixture,
                   "\r\033[K\303\274\303\244\303\266\303\274\303\244\r\033[Ka?[2J\r\033[K");
}

static void a_dumb_terminal_gets_nothing(void **state) {
    struct fixture fixture;
    (void)state;
    open_terminal(&fixture, 80, "dumb");
    assert_false(fixture.terminal.can_redraw);
    assert_true(terminal_width(&fixture.terminal) == SIZE_MAX);
    terminal_draw(&fixture.terminal, "12345678");
    terminal_end(&fixture.terminal);
    terminal_clear(&fixture.terminal);
    close_terminal(&fixture, "");
}

static void a_terminal_without_a_size_has_eighty_columns(void **state) {
    struct fixture fixture;
    (void)state;
    open_terminal(&fixture, 0, "xterm");
    assert_int_equal(terminal_width(&fixture.terminal), 79);
    close_terminal(&fixture, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_cut_to_the_columns_of_each_draw),
        cmocka_unit_test(characters_are_whole_and_none_controls_the_terminal),
        cmocka_unit_test(a_dumb_terminal_gets_nothing),
        cmocka_unit_test(a_terminal_without_a_size_has_eighty_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
