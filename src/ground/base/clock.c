/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include "base/os.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S INT64_C(1000000000)

/* The sum of the moves in milliseconds; `moved_ms` points into the file that is followed, if one
 * is. Both flags and pointers are written before other threads start. */
static _Atomic int64_t own_moved_ms;
static const _Atomic int64_t *moved_ms = &own_moved_ms;
/* Seconds by which a followed file moves the wall clock alone; read once. */
static int64_t wall_moved_s;
static bool is_movable;

static int64_t read_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec + clock_moved_ns();
}

int64_t clock_unix_s(void) {
    return clock_unix_ms() / 1000;
}

/* A clock that was never set may show a time before 1970, and a broken one any. Times of rows are
 * greater than 0, which stands for none, and a deadline is added to them. */
int64_t clock_unix_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t s = now.tv_sec + wall_moved_s + clock_moved_ns() / NS_PER_S;
    if (s < 1) return 1000;
    if (s > CLOCK_UNIX_S_MAX) return CLOCK_UNIX_S_MAX * 1000;
    return s * 1000 + now.tv_nsec / NS_PER_MS + clock_moved_ns() % NS_PER_S / NS_PER_MS;
}

int64_t clock_monotonic_ns(void) {
    return read_ns(CLOCK_MONOTONIC);
}

static void sleep_ms(int64_t milliseconds) {
    struct timespec left = {.tv_sec = milliseconds / 1000,
                            .tv_nsec = (milliseconds % 1000) * NS_PER_MS};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

void clock_sleep_ms(int64_t milliseconds) {
    int64_t until_ns = clock_monotonic_ns() + milliseconds * NS_PER_MS;
    while (is_movable && milliseconds > CLOCK_LOOK_MS) {
        sleep_ms(CLOCK_LOOK_MS);
        milliseconds = (until_ns - clock_monotonic_ns()) / NS_PER_MS;
    }
    if (milliseconds > 0) sleep_ms(milliseconds);
}

/* --- for tests --- */

void clock_make_movable(void) {
    is_movable = true;
}

void clock_move_ms(int64_t milliseconds) {
    assert(is_movable && moved_ms == &own_moved_ms && milliseconds >= 0);
    atomic_fetch_add(&own_moved_ms, milliseconds);
}

enum err clock_follow(const char *path, struct error *error) {
    struct stat status;
    int fd;
    enum err err = os_open(&fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0, error);
    if (err != OK) return err;
    bool is_good = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
                   (status.st_size == sizeof(int64_t) || status.st_size == 2 * sizeof(int64_t)) &&
                   status.st_uid == geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
    void *at =
        is_good ? mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    os_close(fd);
    if (at == MAP_FAILED)
        return err_set(error, ERR_INVALID,
                       "%s is no clock: 8 or 16 bytes that only this user can write", path);
    moved_ms = at;
    if (status.st_size > (off_t)sizeof(int64_t)) wall_moved_s = ((const int64_t *)at)[1];
    is_movable = true;
    return OK;
}

bool clock_is_movable(void) {
    return is_movable;
}

int64_t clock_moved_ns(void) {
    return atomic_load_explicit(moved_ms, memory_order_relaxed) * NS_PER_MS;
}

int clock_wait_ms(int timeout_ms) {
    bool is_long = timeout_ms < 0 || timeout_ms > CLOCK_LOOK_MS;
    return is_movable && is_long ? CLOCK_LOOK_MS : timeout_ms;
}
