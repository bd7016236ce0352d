/* SPDX-License-Identifier: Apache-2.0 */
#include "server/transfer.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/printable.h"
#include "net/client.h"
#include "net/retry.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ATTEMPTS 5
#define HOPS_MAX 5
#define URL_BYTES 8192 /* signed URLs have long queries */
#define CONNECT_MS 30000
#define SILENCE_MS 300000  /* a server may sign, copy or scan a large file before it answers */
#define WAIT_FIRST_MS 1000 /* between two attempts, doubled each time */
#define WAIT_LAST_MS 60000
#define POLL_MS 50
#define TEXT_BYTES_MAX ((size_t)64 << 10) /* limit for an answer that is not the file */

struct transfer {
    char url[URL_BYTES]; /* the current one */
    char shown[TRANSFER_SHOWN_BYTES];
    const volatile bool *stop;
    int fd; /* the file that is written or sent */
    bool is_put;
    struct net_file file; /* content for a PUT */
    struct error written; /* why the answer could not be written */
    /* How the last exchange ended. */
    bool is_over;
    enum net_end end;
    int status;
    int64_t retry_after_ms;
    char next[URL_BYTES]; /* where a redirect leads; empty: none */
    char what[200];
};

bool transfer_is_url(const char *name) {
    return strncmp(name, "http://", 7) == 0 || strncmp(name, "https://", 8) == 0;
}

enum err transfer_show(const char *url, char ret_shown[TRANSFER_SHOWN_BYTES], struct error *error) {
    struct net_url *parts = transfer_is_url(url) ? net_url_read(url) : NULL;
    if (!parts || strlen(url) >= URL_BYTES) {
        net_url_free(parts);
        return err_set(error, ERR_INVALID, "this is no http or https URL of less than %d bytes",
                       URL_BYTES);
    }
    snprintf(ret_shown, TRANSFER_SHOWN_BYTES, "%s://%s:%s%s", net_url_part(parts, NET_URL_SCHEME),
             net_url_part(parts, NET_URL_HOST), net_url_part(parts, NET_URL_PORT),
             net_url_part(parts, NET_URL_PATH));
    net_url_free(parts);
    return OK;
}

/* --- one exchange --- */

static bool take_bytes(void *context, void *owner, struct str piece) {
    struct transfer *transfer = owner;
    (void)context;
    return os_write_all(transfer->fd, piece.at, piece.bytes, &transfer->written) == OK;
}

static void take_end(void *context, const struct net_answer *answer) {
    struct transfer *transfer = answer->owner;
    (void)context;
    transfer->is_over = true;
    transfer->end = answer->end;
    transfer->status = answer->status;
    transfer->retry_after_ms = answer->retry_after_ms;
    transfer->next[0] = '\0';
    if (answer->location && strlen(answer->location) < sizeof transfer->next)
        memcpy(transfer->next, answer->location, strlen(answer->location) + 1);
    snprintf(transfer->what, sizeof transfer->what, "%s%s%s", answer->what,
             *answer->fault ? ": " : "", answer->fault);
}

static enum err exchange(struct net_client *client, struct transfer *transfer,
                         struct error *error) {
    static const char *const put_headers[] = {"Content-Type: application/octet-stream", NULL};
    const struct net_request request = {.owner = transfer,
                                        .url = transfer->url,
                                        .headers = transfer->is_put ? put_headers : NULL,
                                        .file = transfer->is_put ? &transfer->file : NULL,
                                        .stream =
                                            transfer->is_put ? NET_STREAM_NONE : NET_STREAM_BYTES,
                                        .first_byte_ms = transfer->is_put ? 0 : SILENCE_MS,
                                        .stall_ms = SILENCE_MS};
    transfer->is_over = false;
    struct net_exchange *under_way = net_client_start(client, &request);
    while (!transfer->is_over) {
        if (*transfer->stop) {
            net_client_abort(client, under_way);
            return err_set(error, ERR_CANCELLED, "stopped");
        }
        net_client_poll(client, POLL_MS);
    }
    return OK;
}

static bool is_redirect(int status) {
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/* One attempt, over all its redirects. */
static enum err try_once(struct net_client *client, struct transfer *transfer, const char *url,
                         struct error *error) {
    snprintf(transfer->url, sizeof transfer->url, "%s", url);
    for (int hops = 0; hops <= HOPS_MAX; hops++) {
        if (!transfer->is_put) {
            enum err err = os_ftruncate(transfer->fd, 0, error);
            if (err != OK) return err;
            if (lseek(transfer->fd, 0, SEEK_SET) != 0) abort();
        }
        enum err err = exchange(client, transfer, error);
        if (err != OK) return err;
        if (transfer->end != NET_END_WHOLE || !is_redirect(transfer->status)) return OK;
        bool is_lower =
            strncmp(transfer->url, "https:", 6) == 0 && strncmp(transfer->next, "https:", 6) != 0;
        if (!transfer_is_url(transfer->next) || is_lower) break;
        memcpy(transfer->url, transfer->next, sizeof transfer->url);
    }
    return err_set(error, ERR_INVALID, "%s: its redirects lead to no %s URL", transfer->shown,
                   strncmp(url, "https:", 6) == 0 ? "https" : "http");
}

/* --- all attempts --- */

static bool may_pass(const struct transfer *transfer) {
    int status = transfer->status;
    if (transfer->end == NET_END_UNTRUSTED || transfer->end == NET_END_STOPPED) return false;
    if (transfer->end != NET_END_WHOLE) return true;
    return status == 408 || status == 425 || status == 429 || status >= 500;
}

static enum err judge(const struct transfer *transfer, struct error *error) {
    int status = transfer->status;
    if (transfer->end == NET_END_STOPPED && transfer->written.code != OK) {
        *error = transfer->written;
        return error->code;
    }
    if (transfer->end != NET_END_WHOLE)
        return err_set(error, ERR_UNAVAILABLE, "%s: the server %s", transfer->shown,
                       transfer->what);
    enum err err = status == 404 || status == 410   ? ERR_NOT_FOUND
                   : status == 401 || status == 403 ? ERR_DENIED
                   : may_pass(transfer)             ? ERR_UNAVAILABLE
                                                    : ERR_INVALID;
    return err_set(error, err, "%s: the server answers %d to the %s", transfer->shown, status,
                   transfer->is_put ? "upload" : "download");
}

static enum err wait_again(const struct transfer *transfer, uint32_t times, struct error *error) {
    int64_t wait_ms = net_backoff_ms(WAIT_FIRST_MS, WAIT_LAST_MS, times);
    if (transfer->retry_after_ms > wait_ms)
        wait_ms = transfer->retry_after_ms < WAIT_LAST_MS ? transfer->retry_after_ms : WAIT_LAST_MS;
    fprintf(stderr, "quern run: %s: %s%d; trying again in %" PRId64 " s\n",
            printable(transfer->shown).text,
            transfer->end == NET_END_WHOLE ? "status " : "no answer, status ", transfer->status,
            (wait_ms + 999) / 1000);
    int64_t until_ns = clock_monotonic_ns() + wait_ms * 1000000;
    while (clock_monotonic_ns() < until_ns) {
        if (*transfer->stop) return err_set(error, ERR_CANCELLED, "stopped");
        clock_sleep_ms(POLL_MS);
    }
    return OK;
}

static enum err move(struct transfer *transfer, const char *url, struct error *error) {
    const struct net_client_options options = {.exchanges_max = 2,
                                               .text_bytes_max = TEXT_BYTES_MAX,
                                               .connect_ms = CONNECT_MS,
                                               .certificates = getenv("SSL_CERT_FILE"),
                                               .proxy_from_environment = true,
                                               .slow_bytes_per_s = 1,
                                               .bytes = take_bytes,
                                               .done = take_end};
    struct net_client *client;
    enum err err = net_client_open(&client, &options, error);
    if (err != OK) return err;
    for (uint32_t attempt = 0; err == OK; attempt++) {
        err = try_once(client, transfer, url, error);
        bool is_good = transfer->end == NET_END_WHOLE && transfer->status / 100 == 2;
        if (err != OK || is_good) break;
        err = judge(transfer, error);
        if (!may_pass(transfer) || attempt + 1 == ATTEMPTS) break;
        err = wait_again(transfer, attempt, error);
    }
    net_client_close(client);
    return err;
}

enum err transfer_get(const char *url, const char *path, const volatile bool *stop,
                      struct error *error) {
    char part[PATH_MAX];
    struct transfer *transfer = mem_new(1, sizeof *transfer);
    transfer->stop = stop;
    snprintf(part, sizeof part, "%.*s.part", PATH_MAX - 8, path);
    enum err err = transfer_show(url, transfer->shown, error);
    if (err == OK) err = os_create(&transfer->fd, part, 0600, error);
    if (err == OK) {
        err = move(transfer, url, error);
        if (err == OK) err = os_fsync(transfer->fd, error);
        os_close(transfer->fd);
        struct error ignored;
        if (err == OK)
            err = os_rename(part, path, error);
        else if (os_unlink(part, &ignored) != OK)
            fprintf(stderr, "quern run: %s stays behind\n", printable(part).text);
    }
    free(transfer);
    return err;
}

enum err transfer_put(const char *url, const char *path, const volatile bool *stop,
                      struct error *error) {
    struct transfer *transfer = mem_new(1, sizeof *transfer);
    transfer->stop = stop;
    transfer->is_put = true;
    enum err err = transfer_show(url, transfer->shown, error);
    if (err == OK) err = os_open(&transfer->file.fd, path, O_RDONLY, 0, error);
    if (err == OK) {
        err = os_file_bytes(transfer->file.fd, &transfer->file.bytes, error);
        if (err == OK) err = move(transfer, url, error);
        os_close(transfer->file.fd);
    }
    free(transfer);
    return err;
}
