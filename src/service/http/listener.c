/* SPDX-License-Identifier: Apache-2.0 */
#include "http/listener.h"

#include "base/address.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#define BACKLOG 1024
#define UNSENT_BYTES (128 << 10) /* what TCP keeps unsent for a client that does not read */

enum err listener_open(int *ret_fd, const char *host, uint16_t port, uint16_t *ret_port,
                       struct error *error) {
    struct sockaddr_storage place;
    struct address address;
    if (!address_read(&address, str_from(host)))
        return err_set(error, ERR_INVALID, "host: '%s' is not a numeric address", host);
    socklen_t bytes = address_to_socket(&address, port, &place);
    *ret_fd = socket(place.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*ret_fd < 0) return err_from_errno(error, errno, "no socket to listen on");
    int on = 1, unsent_bytes = UNSENT_BYTES;
    setsockopt(*ret_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    /* Accepted sockets inherit these two: no call per connection. */
    setsockopt(*ret_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(*ret_fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_bytes, sizeof unsent_bytes);
    if (bind(*ret_fd, (struct sockaddr *)&place, bytes) != 0 || listen(*ret_fd, BACKLOG) != 0)
        return err_set(error, ERR_UNAVAILABLE, "cannot listen on %s port %u: %s", host, port,
                       strerror(errno));
    if (getsockname(*ret_fd, (struct sockaddr *)&place, &bytes) != 0)
        return err_from_errno(error, errno, "cannot read the port listened on");
    *ret_port = address_port(&place);
    return OK;
}
