/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os_pipe.h"

#include "base/os.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static char folder[] = "/tmp/quern-test-pipe-XXXXXX";
static volatile bool is_stopped;

static int make_fifo(void **state) {
    (void)state;
    return mkdtemp(folder) && chdir(folder) == 0 && mkfifo("fifo", 0600) == 0 ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    os_pipe_stop_with(NULL);
    return unlink("fifo") == 0 && chdir("/") == 0 && rmdir(folder) == 0 ? 0 : -1;
}

static void *write_ten(void *context) {
    struct error error;
    int fd = open("fifo", O_WRONLY | O_CLOEXEC); /* waits for the reader */
    for (int i = 0; i < 10; i++) assert_int_equal(os_write_all(fd, context, 1000, &error), OK);
    os_close(fd);
    return NULL;
}

static void a_pipe_is_read_to_the_end_of_its_writer(void **state) {
    (void)state;
    char piece[1000], *bytes;
    size_t count;
    struct error error;
    pthread_t writer;
    memset(piece, 'x', sizeof piece);
    for (size_t most = 10000; most >= 9999; most--) {
        assert_int_equal(pthread_create(&writer, NULL, write_ten, piece), 0);
        enum err err = os_read_file("fifo", most, &bytes, &count, &error);
        pthread_join(writer, NULL);
        assert_int_equal(err, most == 10000 ? OK : ERR_LIMIT);
        if (err != OK) continue;
        assert_true(count == 10000 && bytes[9999] == 'x' && bytes[10000] == '\0');
        free(bytes);
    }
}

static void *stop_once_it_waits(void *context) {
    (void)context;
    int fd; /* the open succeeds once a reader has the FIFO open */
    while ((fd = open("fifo", O_WRONLY | O_NONBLOCK | O_CLOEXEC)) < 0) sched_yield();
    is_stopped = true;
    return (void *)(intptr_t)fd;
}

static void a_stop_ends_the_wait_for_a_writer_and_for_its_bytes(void **state) {
    (void)state;
    char byte;
    size_t count;
    int fd = -1;
    struct error error;
    pthread_t other;
    void *writer;
    os_pipe_stop_with(&is_stopped);
    is_stopped = true;
    assert_int_equal(os_open(&fd, "fifo", O_RDONLY, 0, &error), ERR_CANCELLED);
    is_stopped = false;
    assert_int_equal(pthread_create(&other, NULL, stop_once_it_waits, NULL), 0);
    assert_int_equal(os_open(&fd, "fifo", O_RDONLY, 0, &error), ERR_CANCELLED);
    pthread_join(other, &writer);
    os_close((int)(intptr_t)writer);
    assert_int_equal(os_open(&fd, "fifo", O_RDONLY | O_NONBLOCK, 0, &error), OK);
    int kept = open("fifo", O_WRONLY | O_CLOEXEC);
    assert_int_equal(os_read(fd, &byte, 1, &count, &error), ERR_CANCELLED);
    os_close(kept);
    os_close(fd);
    is_stopped = false;
}

static void a_file_that_is_read_twice_is_no_pipe_and_no_folder(void **state) {
    (void)state;
    int fd = -1;
    struct error error;
    assert_int_equal(os_open_plain(&fd, "fifo", &error), ERR_INVALID);
    assert_int_equal(os_open_plain(&fd, ".", &error), ERR_INVALID);
    assert_int_equal(os_open_plain(&fd, "none", &error), ERR_NOT_FOUND);
    assert_int_equal(fd, -1);
    assert_int_equal(os_write_file("plain", 0600, "x", 1, &error), OK);
    assert_int_equal(os_open_plain(&fd, "plain", &error), OK);
    os_close(fd);
    assert_int_equal(unlink("plain"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pipe_is_read_to_the_end_of_its_writer),
        cmocka_unit_test(a_stop_ends_the_wait_for_a_writer_and_for_its_bytes),
        cmocka_unit_test(a_file_that_is_read_twice_is_no_pipe_and_no_folder),
    };
    return cmocka_run_group_tests(tests, make_fifo, remove_folder);
}
