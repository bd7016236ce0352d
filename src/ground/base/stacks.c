/* SPDX-License-Identifier: Apache-2.0 */
#include "base/stacks.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define THREAD_SIGNAL SIGUSR2
#define FRAMES_MAX 64
#define ANSWER_MS_MAX 200 /* longest wait for one thread */
#define STEP_NS 1000000

/* Globals, for a signal handler has no argument. */
static atomic_int stacks_fd = -1;
static atomic_uint stacks_answers;

/* --- writing by system calls alone --- */

static void put(const char *text, size_t bytes) {
    ssize_t ignored = write(atomic_load(&stacks_fd), text, bytes);
    (void)ignored;
}

static void put_text(const char *text) {
    put(text, strlen(text));
}

static void put_number(unsigned long number) {
    char digits[24];
    size_t at = sizeof digits;
    do digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    put(digits + at, sizeof digits - at);
}

static size_t append(char *to, size_t at, const char *text) {
    while (*text) to[at++] = *text++;
    to[at] = '\0';
    return at;
}

/* Reads /proc/self/task/THREAD/NAME and returns its length in bytes. */
static size_t read_of_thread(const char *thread, const char *name, char *ret_text,
                             size_t text_bytes) {
    char path[64];
    size_t at = append(path, 0, "/proc/self/task/");
    at = append(path, at, thread);
    at = append(path, at, "/");
    append(path, at, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd >= 0 ? read(fd, ret_text, text_bytes - 1) : 0;
    if (fd >= 0) close(fd);
    if (bytes < 0) bytes = 0;
    ret_text[bytes] = '\0';
    return (size_t)bytes;
}

static void put_own_stack(void) {
    void *frames[FRAMES_MAX];
    int count = backtrace(frames, FRAMES_MAX);
    backtrace_symbols_fd(frames, count, atomic_load(&stacks_fd));
}

/* --- the threads, one after the other --- */

static void on_thread_signal(int number) {
    int saved = errno;
    (void)number;
    put_own_stack();
    atomic_fetch_add(&stacks_answers, 1);
    errno = saved;
}

static void put_head(const char *thread) {
    char name[32], stat[256];
    size_t bytes = read_of_thread(thread, "comm", name, sizeof name);
    if (bytes > 0) name[bytes - 1] = '\0'; /* overwrites the newline */
    read_of_thread(thread, "stat", stat, sizeof stat);
    const char *state = strrchr(stat, ')');
    put_text("thread ");
    put_text(thread);
    put_text(" ");
    put_text(name);
    if (state && state[1] == ' ') put(state + 1, 2);
    put_text("\n");
}

static void put_thread(const char *thread) {
    long id = 0;
    for (const char *at = thread; *at; at++) id = id * 10 + (*at - '0');
    put_head(thread);
    if (id == syscall(SYS_gettid)) {
        put_own_stack();
        return;
    }
    unsigned before = atomic_load(&stacks_answers);
    if (syscall(SYS_tgkill, getpid(), id, THREAD_SIGNAL) != 0) return;
    for (int i = 0; i < ANSWER_MS_MAX && atomic_load(&stacks_answers) == before; i++)
        nanosleep(&(struct timespec){.tv_nsec = STEP_NS}, NULL);
    if (atomic_load(&stacks_answers) == before) put_text("(does not answer)\n");
}

/* The entry that getdents64 writes; the C library does not declare it. */
struct entry {
    uint64_t inode;
    int64_t next;
    uint16_t bytes;
    uint8_t type;
    char name[];
};

static void on_dump_signal(int number) {
    int saved = errno;
    _Alignas(struct entry) char room[4096];
    (void)number;
    int directory = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (long count; directory >= 0;) {
        count = syscall(SYS_getdents64, directory, room, sizeof room);
        if (count <= 0) break;
        for (long at = 0; at < count;) {
            const struct entry *entry = (const struct entry *)(const void *)(room + at);
            if (entry->name[0] >= '1' && entry->name[0] <= '9') put_thread(entry->name);
            at += entry->bytes;
        }
    }
    if (directory >= 0) close(directory);
    put_text(STACKS_END);
    errno = saved;
}

/* Runs in the thread that crashed. The signal's default action is restored and ends the process. */
static void on_crash(int number) {
    char thread[24];
    size_t at = sizeof thread;
    thread[--at] = '\0';
    for (unsigned long id = (unsigned long)syscall(SYS_gettid); id > 0; id /= 10)
        thread[--at] = (char)('0' + id % 10);
    put_text("signal ");
    put_number((unsigned long)number);
    put_text("\n");
    put_head(thread + at);
    put_own_stack();
    put_text(STACKS_END);
    raise(number);
}

static void handle(int number, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_flags = flags};
    action.sa_handler = handler;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

void stacks_open(int fd) {
    void *frames[1];
    backtrace(frames, 1); /* loads libgcc now, for a handler must not */
    atomic_store(&stacks_fd, fd);
    handle(THREAD_SIGNAL, on_thread_signal, SA_RESTART);
    handle(STACKS_SIGNAL, on_dump_signal, SA_RESTART);
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    for (size_t i = 0; STACKS_OF_CRASHES && i < sizeof crashes / sizeof *crashes; i++)
        handle(crashes[i], on_crash, (int)(SA_RESETHAND | SA_NODEFER));
}
