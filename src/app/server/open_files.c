/* SPDX-License-Identifier: Apache-2.0 */
#include "server/open_files.h"

#include "base/log.h"
#include "node/ranks.h"

#include <sys/resource.h>

#define OPEN_MAX_USUAL 1048576 /* fs.nr_open of Linux, above which no limit can be set */
/* The database 4, the log writer 34, publishing 22, inputs 18, HTTP's own 20, clients turned away
 * 64, webhooks 32, and some for pages of results, which take up to three more each. */
#define STORE_FILES 256
#define ENGINE_FILES 8   /* its socket, its wake-up, its stacks; while it starts twice as many */
#define UPSTREAM_FILES 8 /* libcurl's own */
/* The client's socket, the pair to the HTTP library, and a file that is read or written for it. */
#define CONNECTION_FILES 4
#define CONNECTIONS_LEAST 16

void open_files_raise(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
    limit.rlim_cur = limit.rlim_max < OPEN_MAX_USUAL ? limit.rlim_max : OPEN_MAX_USUAL;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        log_warn("event=open_files_stay limit=%llu", (unsigned long long)limit.rlim_cur);
}

static uint64_t reserve_of(const struct node_options *options) {
    uint64_t engines =
        options->shelf ? NODE_ENGINES_MAX : options->model_count * ranks_count(options);
    uint64_t files = STORE_FILES + ENGINE_FILES * engines;
    for (size_t i = 0; i < options->upstream_count; i++) /* libcurl keeps as many idle ones */
        files += UPSTREAM_FILES + 2 * ((uint64_t)options->upstreams[i].concurrency + 1);
    return files;
}

enum err open_files_fit(const struct node_options *options, uint32_t most,
                        uint32_t *ret_connections, struct error *error) {
    struct rlimit limit;
    uint64_t reserve = reserve_of(options);
    *ret_connections = most;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return OK;
    if (limit.rlim_cur < reserve + CONNECTION_FILES * CONNECTIONS_LEAST)
        return err_set(error, ERR_LIMIT,
                       "the limit of %llu open files is too low: this server needs %llu for its "
                       "store, engines and upstreams and %d for clients; raise it with ulimit -Hn "
                       "or LimitNOFILE=",
                       (unsigned long long)limit.rlim_cur, (unsigned long long)reserve,
                       CONNECTION_FILES * CONNECTIONS_LEAST);
    uint64_t connections = (limit.rlim_cur - reserve) / CONNECTION_FILES;
    if (connections >= most) return OK;
    log_warn("event=connections_fitted open_files=%llu reserved=%llu connections=%llu; a higher "
             "limit of open files allows %u",
             (unsigned long long)limit.rlim_cur, (unsigned long long)reserve,
             (unsigned long long)connections, most);
    *ret_connections = (uint32_t)connections;
    return OK;
}
