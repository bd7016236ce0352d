/* SPDX-License-Identifier: Apache-2.0 */
#include "base/service.h"

#include "base/clock.h"
#include "base/str.h"
#include "base/sync.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define BEAT_AGAIN_NS 100000000 /* 100 ms until a beat that could not be sent is tried again */

static struct {
    int fd; /* -1: no service manager */
    struct sockaddr_un address;
    socklen_t address_bytes;
    int64_t beat_ns; /* time between beats; 0: no watchdog */
    int64_t beat_due_ns;
} service = {.fd = -1};

/* A path, or an abstract name whose '@' stands for a zero byte. The name of an abstract socket ends
 * with the address, without a zero byte. */
static enum err read_address(const char *name, struct error *error) {
    size_t bytes = strlen(name);
    if ((name[0] != '/' && name[0] != '@') || bytes < 2 || bytes >= sizeof service.address.sun_path)
        return err_set(error, ERR_INVALID,
                       "NOTIFY_SOCKET '%.200s' is neither a path nor @NAME, of at most %zu bytes",
                       name, sizeof service.address.sun_path - 1);
    service.address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(service.address.sun_path, name, bytes);
    if (name[0] == '@') service.address.sun_path[0] = '\0';
    service.address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes);
    if (name[0] == '/') service.address_bytes++;
    return OK;
}

/* The watchdog of another process is not this one's: a wrapper script may have left its variables
 * behind. */
static enum err read_watchdog(struct error *error) {
    const char *time = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    int64_t time_us, number;
    service.beat_ns = 0;
    if (!time || (pid && (!str_to_i64(str_from(pid), &number) || number != getpid()))) return OK;
    if (!str_to_i64(str_from(time), &time_us) || time_us < 2 || time_us > INT64_MAX / 1000)
        return err_set(error, ERR_INVALID, "WATCHDOG_USEC '%.40s' is no number of microseconds",
                       time);
    service.beat_ns = time_us * 1000 / 2;
    service.beat_due_ns = clock_monotonic_ns();
    return OK;
}

enum err service_open(struct error *error) {
    const char *name = getenv("NOTIFY_SOCKET");
    const struct timeval patience = {.tv_sec = SERVICE_SEND_MS / 1000};
    if (!name || !*name) return OK;
    enum err err = read_address(name, error);
    if (err == OK) err = read_watchdog(error);
    if (err != OK) return err;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return err_from_errno(error, errno, "cannot make a socket for NOTIFY_SOCKET");
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    service.fd = fd;
    return OK;
}

void service_close(void) {
    if (service.fd >= 0) close(service.fd);
    service.fd = -1;
    service.beat_ns = 0;
}

bool service_is_open(void) {
    return service.fd >= 0;
}

static bool send_text(const char *text, size_t bytes, int flags) {
    return sendto(service.fd, text, bytes, flags | MSG_NOSIGNAL,
                  (const struct sockaddr *)&service.address, service.address_bytes) >= 0;
}

void service_tell(const char *format, ...) {
    char text[SERVICE_TEXT_BYTES];
    va_list arguments;
    if (!service_is_open()) return;
    va_start(arguments, format);
    int bytes = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (bytes >= (int)sizeof text) bytes = (int)sizeof text - 1;
    if (bytes > 0) (void)send_text(text, (size_t)bytes, 0);
}

void service_beat(void) {
    static const char text[] = "WATCHDOG=1";
    if (service.beat_ns == 0) return;
    int64_t now_ns = clock_monotonic_ns();
    if (now_ns < service.beat_due_ns) return;
    bool is_sent = send_text(text, sizeof text - 1, MSG_DONTWAIT);
    bool waits = is_sent || service.beat_ns < BEAT_AGAIN_NS;
    service.beat_due_ns = now_ns + (waits ? service.beat_ns : BEAT_AGAIN_NS);
}

int64_t service_beat_due_ns(void) {
    return service.beat_ns == 0 ? SYNC_NEVER : service.beat_due_ns;
}
