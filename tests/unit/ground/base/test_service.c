/* SPDX-License-Identifier: Apache-2.0 */
#include "base/service.h"

#include "base/clock.h"
#include "base/sync.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A service manager: a bound datagram socket, named in $NOTIFY_SOCKET. `name`: '@' for abstract. */
static int listen_at(const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    memcpy(address.sun_path, name, strlen(name));
    if (name[0] == '@') address.sun_path[0] = '\0';
    if (name[0] == '/') bytes++;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, bytes), 0);
    setenv("NOTIFY_SOCKET", name, 1);
    return fd;
}

/* The next message; "" if there is none. */
static const char *heard(int fd) {
    static char text[SERVICE_TEXT_BYTES + 1];
    ssize_t bytes = recv(fd, text, sizeof text - 1, 0);
    text[bytes > 0 ? bytes : 0] = '\0';
    return text;
}

static int forget(void **state) {
    (void)state;
    service_close();
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    return 0;
}

static void without_a_manager_nothing_happens(void **state) {
    struct error error;
    (void)state;
    setenv("WATCHDOG_USEC", "2", 1);
    assert_int_equal(service_open(&error), OK);
    assert_false(service_is_open());
    service_tell("READY=1");
    service_beat();
    assert_true(service_beat_due_ns() == SYNC_NEVER);
}

static void a_message_reaches_a_path_and_an_abstract_name(void **state) {
    char names[2][64], longest[sizeof((struct sockaddr_un *)0)->sun_path];
    struct error error;
    (void)state;
    snprintf(names[0], sizeof names[0], "/tmp/quern-notify-%d", (int)getpid());
    snprintf(names[1], sizeof names[1], "@quern-notify-%d", (int)getpid());
    memset(longest, 'x', sizeof longest);
    snprintf(longest, sizeof longest - 40, "@quern-notify-longest-%d", (int)getpid());
    longest[strlen(longest)] = 'x';
    longest[sizeof longest - 1] = '\0';
    const char *const all[] = {names[0], names[1], longest};
    for (size_t i = 0; i < 3; i++) {
        int fd = listen_at(all[i]);
        assert_int_equal(service_open(&error), OK);
        assert_true(service_is_open());
        service_tell("READY=1\nSTATUS=%d lines", 7);
        assert_string_equal(heard(fd), "READY=1\nSTATUS=7 lines");
        assert_true(service_beat_due_ns() == SYNC_NEVER);
        service_beat();
        assert_string_equal(heard(fd), "");
        service_close();
        close(fd);
    }
    unlink(names[0]);
}

static void a_wrong_socket_or_time_is_refused(void **state) {
    static const char *const sockets[] = {"relative", "vsock:2:9", "@", "/"};
    static const char *const times[] = {"", "x", "-5", "0", "1", "30s", "9223372036854775807"};
    char longer[sizeof((struct sockaddr_un *)0)->sun_path + 1];
    struct error error;
    (void)state;
    for (size_t i = 0; i < sizeof sockets / sizeof *sockets; i++) {
        setenv("NOTIFY_SOCKET", sockets[i], 1);
        assert_int_equal(service_open(&error), ERR_INVALID);
    }
    memset(longer, 'x', sizeof longer - 1);
    longer[0] = '/';
    longer[sizeof longer - 1] = '\0';
    setenv("NOTIFY_SOCKET", longer, 1);
    assert_int_equal(service_open(&error), ERR_INVALID);
    setenv("NOTIFY_SOCKET", "@quern", 1);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        setenv("WATCHDOG_USEC", times[i], 1);
        assert_int_equal(service_open(&error), ERR_INVALID);
        assert_false(service_is_open());
    }
}

static void beats_come_once_per_half_of_the_time(void **state) {
    char name[64];
    struct error error;
    (void)state;
    snprintf(name, sizeof name, "@quern-notify-beats-%d", (int)getpid());
    int fd = listen_at(name);
    setenv("WATCHDOG_USEC", "7200000000", 1); /* two hours: no test takes as long as half of it */
    assert_int_equal(service_open(&error), OK);
    for (int i = 0; i < 3; i++) {
        assert_true(service_beat_due_ns() <= clock_monotonic_ns());
        service_beat();
        service_beat();
        assert_string_equal(heard(fd), "WATCHDOG=1");
        assert_string_equal(heard(fd), "");
        assert_true(service_beat_due_ns() > clock_monotonic_ns());
        clock_move_ms(3600000);
    }
    close(fd);
}

static void a_beat_that_is_not_taken_comes_again_soon(void **state) {
    struct error error;
    (void)state;
    setenv("NOTIFY_SOCKET", "@quern-notify-of-nobody", 1);
    setenv("WATCHDOG_USEC", "7200000000", 1);
    assert_int_equal(service_open(&error), OK);
    int64_t before_ns = clock_monotonic_ns();
    service_beat();
    assert_true(service_beat_due_ns() > before_ns);
    assert_true(service_beat_due_ns() <= clock_monotonic_ns() + 100000000);
}

static void the_watchdog_of_another_process_is_not_ours(void **state) {
    char pid[24];
    struct error error;
    (void)state;
    setenv("NOTIFY_SOCKET", "@quern", 1);
    setenv("WATCHDOG_USEC", "2000000", 1);
    setenv("WATCHDOG_PID", "1", 1);
    assert_int_equal(service_open(&error), OK);
    assert_true(service_beat_due_ns() == SYNC_NEVER);
    service_close();
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("WATCHDOG_PID", pid, 1);
    assert_int_equal(service_open(&error), OK);
    assert_true(service_beat_due_ns() != SYNC_NEVER);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(without_a_manager_nothing_happens, forget),
        cmocka_unit_test_teardown(a_message_reaches_a_path_and_an_abstract_name, forget),
        cmocka_unit_test_teardown(a_wrong_socket_or_time_is_refused, forget),
        cmocka_unit_test_teardown(beats_come_once_per_half_of_the_time, forget),
        cmocka_unit_test_teardown(a_beat_that_is_not_taken_comes_again_soon, forget),
        cmocka_unit_test_teardown(the_watchdog_of_another_process_is_not_ours, forget),
    };
    clock_make_movable();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
