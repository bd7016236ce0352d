/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/machine.h"

#include "base/buf.h"
#include "base/os.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#define FILE_BYTES_MAX ((size_t)64 << 10)

/* Reads the beginning of a file of /proc, whose size is not known before. */
static void read_start(struct buf *out, const char *path) {
    struct error error;
    int fd;
    size_t count = 1;
    buf_init(out, FILE_BYTES_MAX);
    if (os_open(&fd, path, O_RDONLY, 0, &error) != OK) return;
    while (count > 0 && out->bytes < FILE_BYTES_MAX) {
        char *room = buf_reserve(out, FILE_BYTES_MAX - out->bytes);
        if (!room || os_read(fd, room, FILE_BYTES_MAX - out->bytes, &count, &error) != OK) break;
        buf_commit(out, count);
    }
    os_close(fd);
}

static void describe_processor(struct machine *machine) {
    struct buf text;
    read_start(&text, "/proc/cpuinfo");
    size_t at = str_find(buf_str(&text), STR("model name"), 0);
    if (at != SIZE_MAX) {
        struct str line = str_skip(buf_str(&text), at);
        size_t end = str_find_byte(line, '\n', 0), colon = str_find_byte(line, ':', 0);
        if (end != SIZE_MAX) line.bytes = end;
        line = str_trim(str_skip(line, colon == SIZE_MAX ? line.bytes : colon + 1));
        snprintf(machine->processor, sizeof machine->processor, "%.*s", STR_ARGS(line));
    }
    buf_release(&text);
}

/* Whether a shell reads the argument as it stands. */
static bool is_plain(const char *argument) {
    return *argument && strspn(argument, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                         "0123456789_-+=,./:@%") == strlen(argument);
}

static void add_argument(struct buf *out, const char *argument) {
    if (out->bytes > 0) buf_add_byte(out, ' ');
    if (is_plain(argument)) {
        buf_add_text(out, argument);
        return;
    }
    buf_add_byte(out, '\'');
    for (; *argument; argument++) {
        if (*argument == '\'')
            buf_add_text(out, "'\\''");
        else
            buf_add_byte(out, *argument);
    }
    buf_add_byte(out, '\'');
}

static void describe_command(struct machine *machine) {
    struct buf text, out;
    read_start(&text, "/proc/self/cmdline");
    buf_init(&out, sizeof machine->command - 1);
    for (size_t at = 0; at < text.bytes; at += strlen(text.at + at) + 1)
        add_argument(&out, text.at + at);
    snprintf(machine->command, sizeof machine->command, "%s", out.at ? out.at : "");
    buf_release(&text);
    buf_release(&out);
}

void machine_describe(struct machine *ret_machine) {
    struct utsname system;
    struct sysinfo info;
    *ret_machine = (struct machine){.cores = sysconf(_SC_NPROCESSORS_ONLN)};
    if (uname(&system) == 0)
        snprintf(ret_machine->kernel, sizeof ret_machine->kernel, "%.30s %.60s %.30s",
                 system.sysname, system.release, system.machine);
    if (sysinfo(&info) == 0) ret_machine->memory_bytes = (uint64_t)info.totalram * info.mem_unit;
    if (getloadavg(&ret_machine->load, 1) != 1) ret_machine->load = 0;
    describe_processor(ret_machine);
    describe_command(ret_machine);
}
