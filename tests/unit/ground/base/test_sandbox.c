/* SPDX-License-Identifier: Apache-2.0 */
#include "../../tree.h"
#include "base/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* A folder with an inside, which the sandbox allows, and an outside, which it does not. */
static char folder[64];

enum { EXIT_YES, EXIT_NO, EXIT_NO_LANDLOCK = 77, EXIT_NO_SECCOMP };

static const char *in_folder(const char *name) {
    static char paths[4][128];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name) {
    int fd = open(in_folder(name), O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "x", 1), 1);
    close(fd);
}

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/quern-sandbox-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    mkdir(in_folder("models"), 0700);
    mkdir(in_folder("cache"), 0700);
    write_file("models/weights");
    write_file("cache/old");
    write_file("file");
    write_file("secret");
    return symlink("../secret", in_folder("models/out")) == 0 &&
                   symlink("file", in_folder("link")) == 0
               ? 0
               : -1;
}

static int remove_folder(void **state) {
    (void)state;
    tree_remove(folder);
    return 0;
}

/* A thread that runs before the sandbox, as a driver's does, and answers one question. */
static struct {
    pthread_barrier_t asked;
    bool (*question)(void);
    bool answer;
} early;

static void *answer_early(void *context) {
    pthread_barrier_wait(&early.asked);
    early.answer = early.question();
    return context;
}

static bool of_early_thread(bool (*question)(void), pthread_t thread) {
    early.question = question;
    pthread_barrier_wait(&early.asked);
    return pthread_join(thread, NULL) == 0 && early.answer;
}

/* Set before `kind` of ask is SANDBOX_DEVICE: what the sandbox said, and a thread from before. */
static struct sandbox_state entered;
static pthread_t early_thread;

/* Asks the question in a process in the sandbox. Returns how that process ended. */
static int ask_kind(enum sandbox_kind kind, bool (*question)(void), bool needs_landlock) {
    pid_t pid = fork();
    if (pid == 0) {
        if (kind == SANDBOX_DEVICE) {
            pthread_barrier_init(&early.asked, NULL, 2);
            if (pthread_create(&early_thread, NULL, answer_early, NULL) != 0) abort();
        }
        const struct sandbox_path paths[] = {
            {.path = in_folder("models")},
            {.path = in_folder("link")},
            {.path = in_folder("cache"), .is_writable = true},
            {.path = in_folder("not-there")},
            {.path = "/dev/zero", .is_device = true},
        };
        sandbox_enter(kind, paths, sizeof paths / sizeof *paths, &entered);
        if (needs_landlock && entered.landlock_abi == 0) _exit(EXIT_NO_LANDLOCK);
        if (!needs_landlock && !entered.has_seccomp) _exit(EXIT_NO_SECCOMP);
        _exit(question() ? EXIT_YES : EXIT_NO);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    bool is_missing = WIFEXITED(status) && WEXITSTATUS(status) >= EXIT_NO_LANDLOCK;
    if (is_missing) skip();
    return status;
}

static int ask(bool (*question)(void), bool needs_landlock) {
    return ask_kind(SANDBOX_FILES, question, needs_landlock);
}

static void holds_for(enum sandbox_kind kind, bool (*question)(void), bool needs_landlock) {
    int status = ask_kind(kind, question, needs_landlock);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), EXIT_YES);
}

static void holds(bool (*question)(void), bool needs_landlock) {
    holds_for(SANDBOX_FILES, question, needs_landlock);
}

static void kills_for(enum sandbox_kind kind, bool (*question)(void)) {
    int status = ask_kind(kind, question, false);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSYS);
}

static void kills(bool (*question)(void)) {
    kills_for(SANDBOX_FILES, question);
}

static bool can_read(const char *path) {
    char byte;
    int fd = open(path, O_RDONLY);
    if (fd < 0) return false;
    bool is_read = read(fd, &byte, 1) == 1;
    close(fd);
    return is_read;
}

static bool is_denied(const char *path, int flags) {
    return open(path, flags, 0600) < 0 && errno == EACCES;
}

static bool reads_what_is_allowed(void) {
    DIR *directory = opendir(in_folder("models"));
    return directory && readdir(directory) && closedir(directory) == 0 &&
           can_read(in_folder("models/weights")) && can_read(in_folder("link")) &&
           can_read(in_folder("file"));
}

static bool is_denied_the_rest(void) {
    return is_denied("/etc/passwd", O_RDONLY) && is_denied(in_folder("secret"), O_RDONLY) &&
           is_denied(in_folder("models/out"), O_RDONLY) && is_denied(folder, O_RDONLY) &&
           is_denied("/dev/null", O_WRONLY);
}

static bool cannot_write_what_it_reads(void) {
    return is_denied(in_folder("models/weights"), O_WRONLY) &&
           is_denied(in_folder("models/new"), O_WRONLY | O_CREAT) &&
           unlink(in_folder("models/weights")) < 0 &&
           rename(in_folder("cache/old"), in_folder("models/weights")) < 0 &&
           truncate(in_folder("models/weights"), 0) < 0;
}

static bool can_write_the_cache(void) {
    int fd = open(in_folder("cache/new"), O_RDWR | O_CREAT | O_EXCL, 0600);
    return fd >= 0 && ftruncate(fd, 100) == 0 && pwrite(fd, "x", 1, 0) == 1 && fsync(fd) == 0 &&
           mmap(NULL, 100, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED && close(fd) == 0 &&
           rename(in_folder("cache/new"), in_folder("cache/old")) == 0 &&
           unlink(in_folder("cache/old")) == 0;
}

static bool connects(void) {
    return socket(AF_INET, SOCK_STREAM, 0) >= 0;
}

static bool connects_to_a_neighbour(void) {
    return socket(AF_UNIX, SOCK_STREAM, 0) >= 0;
}

static bool starts_a_program(void) {
    char *const nothing[] = {NULL};
    return execve("/bin/true", nothing, nothing) == 0;
}

static bool traces(void) {
    return syscall(SYS_ptrace, 16 /* ATTACH */, getppid(), NULL, NULL) == 0;
}

static bool cannot_fork_nor_signal_nor_add_code(void) {
    if (SANDBOX_IS_LOOSE) return true;
    bool cannot_fork = fork() < 0 && errno == ENOSYS;
    bool cannot_kill = kill(getppid(), 0) < 0 && errno == ENOSYS;
    void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return cannot_fork && cannot_kill && code == MAP_FAILED && syscall(SYS_chdir, "/") < 0 &&
           errno == ENOSYS && syscall(9999) < 0 && errno == ENOSYS;
}

/* A process of the same user may do these to another outside. */
static bool cannot_slow_others(void) {
    cpu_set_t processors;
    if (SANDBOX_IS_LOOSE) return true;
    bool reads_own = sched_getaffinity(0, sizeof processors, &processors) == 0;
    bool sets_own = sched_setaffinity(0, sizeof processors, &processors) == 0;
    bool cannot_set =
        sched_setaffinity(getppid(), sizeof processors, &processors) < 0 && errno == ENOSYS;
    bool no_priority = setpriority(PRIO_PROCESS, (id_t)getppid(), 19) < 0 && errno == ENOSYS;
    bool no_group = setpriority(PRIO_PGRP, 0, 19) < 0 && errno == ENOSYS;
    return reads_own && sets_own && cannot_set && no_priority && no_group;
}

static void *is_inside(void *context) {
    (void)context;
    pthread_setname_np(pthread_self(), "inside");
    void *memory = malloc(100 << 20);
    if (!memory) return NULL;
    memset(memory, 1, 100 << 20);
    free(memory);
    return is_denied("/etc/passwd", O_RDONLY) ? "yes" : NULL;
}

static bool threads_are_inside(void) {
    pthread_t threads[8];
    for (size_t i = 0; i < 8; i++)
        if (pthread_create(&threads[i], NULL, is_inside, NULL) != 0) return false;
    for (size_t i = 0; i < 8; i++) {
        void *answer;
        if (pthread_join(threads[i], &answer) != 0 || !answer) return false;
    }
    return true;
}

static bool has_no_core(void) {
    struct rlimit limit;
    return getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_cur == 0 && limit.rlim_max == 0 &&
           setrlimit(RLIMIT_CORE, &(struct rlimit){1, 1}) < 0;
}

static bool fails_an_assertion(void) {
    signal(SIGABRT, SIG_DFL);
    abort();
}

static int stacks_file;
static pthread_barrier_t barrier;

static void *waits(void *context) {
    pthread_setname_np(pthread_self(), "waiting");
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return context;
}

static bool tells_its_stacks(void) {
    pthread_t thread;
    char text[16384] = "";
    pthread_barrier_init(&barrier, NULL, 2);
    if (pthread_create(&thread, NULL, waits, NULL) != 0) return false;
    pthread_barrier_wait(&barrier);
    raise(STACKS_SIGNAL);
    pthread_barrier_wait(&barrier);
    ssize_t bytes = pread(stacks_file, text, sizeof text - 1, 0);
    /* The thread may still be on its way to where it waits. */
    return bytes > 4 && strcmp(text + bytes - 4, STACKS_END) == 0 &&
           (strstr(text, " waiting S\n") || strstr(text, " waiting R\n")) &&
           !strstr(text, "does not answer") && strstr(text, "(+0x");
}

/* ---- with a device ---- */

static bool is_shut_in(void) {
    if (SANDBOX_IS_LOOSE) return true;
    void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return code == MAP_FAILED && syscall(SYS_chdir, "/") < 0 && errno == ENOSYS;
}

static bool the_early_thread_is_shut_in(void) {
    return is_shut_in() && of_early_thread(is_shut_in, early_thread);
}

static bool is_denied_a_file(void) {
    return is_denied("/etc/passwd", O_RDONLY);
}

static bool the_early_thread_opens_nothing_where_the_kernel_can(void) {
    return !entered.binds_threads || of_early_thread(is_denied_a_file, early_thread);
}

static bool early_thread_connects(void) {
    return of_early_thread(connects, early_thread);
}

static int listening;

static bool drives_a_device(void) {
    int bytes, node = open("/dev/zero", O_RDWR), memory = memfd_create("x", MFD_CLOEXEC);
    if (node < 0 || memory < 0 || ftruncate(memory, 4096) != 0) return false;
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (at == MAP_FAILED) return false;
    /* Neither is a terminal nor knows the request: any error but the filter's own. */
    bool asks = ioctl(node, 0x1234, &bytes) == 0 || (errno != ENOSYS && errno != EACCES);
    bool places = syscall(SYS_get_mempolicy, NULL, NULL, 0, NULL, 0) == 0 || errno != EACCES;
    return asks && places && is_denied("/dev/null", O_WRONLY);
}

static bool a_stranger_ends_nothing(void) {
    return accept(listening, NULL, NULL) < 0 && errno == (SANDBOX_IS_LOOSE ? EAGAIN : ENOSYS);
}

static bool is_accepting(void) {
    return accept(listening, NULL, NULL) >= 0;
}

static void a_driver_reaches_its_card(void **state) {
    (void)state;
    holds_for(SANDBOX_DEVICE, drives_a_device, true);
    holds_for(SANDBOX_DEVICE, reads_what_is_allowed, true);
    holds_for(SANDBOX_DEVICE, is_denied_the_rest, true);
}

static void a_thread_of_a_driver_is_shut_in_too(void **state) {
    (void)state;
    holds_for(SANDBOX_DEVICE, the_early_thread_is_shut_in, false);
    holds_for(SANDBOX_DEVICE, the_early_thread_opens_nothing_where_the_kernel_can, false);
    kills_for(SANDBOX_DEVICE, early_thread_connects);
}

static void a_driver_makes_no_socket_and_starts_no_program(void **state) {
    (void)state;
    kills_for(SANDBOX_DEVICE, connects_to_a_neighbour);
    kills_for(SANDBOX_DEVICE, starts_a_program);
}

static void a_stranger_on_a_drivers_socket_ends_no_engine(void **state) {
    (void)state;
    listening = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    assert_true(listening >= 0);
    assert_int_equal(bind(listening, (struct sockaddr *)&name, sizeof name.sun_family), 0);
    assert_int_equal(listen(listening, 1), 0);
    holds_for(SANDBOX_DEVICE, a_stranger_ends_nothing, false);
    if (!SANDBOX_IS_LOOSE) kills_for(SANDBOX_FILES, is_accepting);
    close(listening);
}

static void it_reads_what_is_allowed(void **state) {
    (void)state;
    holds(reads_what_is_allowed, true);
    holds(reads_what_is_allowed, false);
}

static void it_opens_nothing_else(void **state) {
    (void)state;
    holds(is_denied_the_rest, true);
}

static void it_writes_only_where_it_may(void **state) {
    (void)state;
    holds(cannot_write_what_it_reads, true);
    holds(can_write_the_cache, true);
    write_file("cache/old");
}

static void a_socket_ends_it(void **state) {
    (void)state;
    kills(connects);
    kills(connects_to_a_neighbour);
}

static void a_program_ends_it(void **state) {
    (void)state;
    kills(starts_a_program);
}

static void looking_into_another_process_ends_it(void **state) {
    (void)state;
    if (SANDBOX_IS_LOOSE) skip();
    kills(traces);
}

static void processes_signals_code_and_unknown_calls_fail(void **state) {
    (void)state;
    holds(cannot_fork_nor_signal_nor_add_code, false);
}

static void others_keep_their_priority_and_their_processors(void **state) {
    (void)state;
    holds(cannot_slow_others, false);
    holds_for(SANDBOX_DEVICE, cannot_slow_others, false);
}

static void its_threads_work_and_are_inside(void **state) {
    (void)state;
    holds(threads_are_inside, true);
}

static void it_leaves_no_core(void **state) {
    (void)state;
    holds(has_no_core, false);
}

static void a_failed_assertion_is_still_an_abort(void **state) {
    (void)state;
    int status = ask(fails_an_assertion, false);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

static void it_still_tells_its_stacks(void **state) {
    (void)state;
#ifdef __SANITIZE_THREAD__ /* which holds signals back from threads that wait */
    skip();
#endif
    stacks_file = memfd_create("stacks", MFD_CLOEXEC);
    assert_true(stacks_file >= 0);
    stacks_open(stacks_file);
    holds(tells_its_stacks, true);
    close(stacks_file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_reads_what_is_allowed),
        cmocka_unit_test(it_opens_nothing_else),
        cmocka_unit_test(it_writes_only_where_it_may),
        cmocka_unit_test(a_socket_ends_it),
        cmocka_unit_test(a_program_ends_it),
        cmocka_unit_test(looking_into_another_process_ends_it),
        cmocka_unit_test(processes_signals_code_and_unknown_calls_fail),
        cmocka_unit_test(others_keep_their_priority_and_their_processors),
        cmocka_unit_test(its_threads_work_and_are_inside),
        cmocka_unit_test(it_leaves_no_core),
        cmocka_unit_test(a_failed_assertion_is_still_an_abort),
        cmocka_unit_test(it_still_tells_its_stacks),
        cmocka_unit_test(a_driver_reaches_its_card),
        cmocka_unit_test(a_thread_of_a_driver_is_shut_in_too),
        cmocka_unit_test(a_driver_makes_no_socket_and_starts_no_program),
        cmocka_unit_test(a_stranger_on_a_drivers_socket_ends_no_engine),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
