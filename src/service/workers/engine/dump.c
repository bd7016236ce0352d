/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/engine/dump.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/stacks.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DUMP_BYTES_MAX ((size_t)1 << 20)
#define ANSWER_MS_MAX 2000
#define ANSWER_STEP_MS 10
#define FD_LEAST 16 /* above the descriptors that an engine inherits */
#define NAME_BYTES 64

int engine_dump_make(void) {
    int fd = memfd_create("quern-stacks", MFD_CLOEXEC);
    if (fd < 0) return -1;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, FD_LEAST);
    os_close(fd);
    return high;
}

static bool is_complete(int fd, uint64_t bytes) {
    char tail[sizeof STACKS_END - 1];
    struct error error;
    return bytes >= sizeof tail &&
           os_pread_all(fd, tail, sizeof tail, bytes - sizeof tail, &error) == OK &&
           memcmp(tail, STACKS_END, sizeof tail) == 0;
}

void engine_dump_ask(int fd, pid_t pid) {
    struct error error;
    uint64_t bytes;
    if (fd < 0 || kill(pid, STACKS_SIGNAL) != 0) return;
    for (int waited_ms = 0; waited_ms < ANSWER_MS_MAX; waited_ms += ANSWER_STEP_MS) {
        if (os_file_bytes(fd, &bytes, &error) == OK && is_complete(fd, bytes)) return;
        clock_sleep_ms(ANSWER_STEP_MS);
    }
}

/* Removes the oldest files until one more fits into ENGINE_DUMPS_MAX. */
static void make_room(const char *dir) {
    for (;;) {
        char oldest[NAME_BYTES] = "", path[4300];
        struct error error;
        size_t count = 0;
        DIR *directory = os_opendir(dir);
        if (!directory) return;
        for (const struct dirent *at; (at = readdir(directory));) {
            if (strncmp(at->d_name, "engine-", 7) != 0 || strlen(at->d_name) >= NAME_BYTES)
                continue;
            count++;
            if (!*oldest || strcmp(at->d_name, oldest) < 0)
                snprintf(oldest, sizeof oldest, "%s", at->d_name);
        }
        closedir(directory);
        if (count < ENGINE_DUMPS_MAX) return;
        snprintf(path, sizeof path, "%s/%s", dir, oldest);
        if (os_unlink(path, &error) != OK) return;
    }
}

bool engine_dump_keep(int fd, pid_t pid, const char *dir, char *ret_path, size_t path_bytes) {
    struct error error;
    uint64_t bytes = 0;
    int file = -1;
    if (fd < 0 || !dir || os_file_bytes(fd, &bytes, &error) != OK || bytes == 0) return false;
    if (bytes > DUMP_BYTES_MAX) bytes = DUMP_BYTES_MAX;
    char *text = mem_alloc(bytes);
    snprintf(ret_path, path_bytes, "%s/engine-%010lld-%d.txt", dir, (long long)clock_unix_s(), pid);
    enum err err = os_mkdirs(dir, &error);
    if (err == OK) make_room(dir);
    if (err == OK) err = os_pread_all(fd, text, bytes, 0, &error);
    if (err == OK) err = os_create(&file, ret_path, 0600, &error);
    if (err == OK) err = os_write_all(file, text, bytes, &error);
    if (err != OK) log_warn("event=engine_dump error=\"%s\"", error.text);
    os_close(file);
    free(text);
    return err == OK;
}
