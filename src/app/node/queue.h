/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* queue: the server of the bus between machines, as the options of `quern serve` and `quern worker`
 * name it, and the fleet of nodes behind it.
 *
 * Thread: main.
 * Memory: the password, until queue_options_release wipes it. */

#include "cluster/bus.h"
#include "redis/redis.h"
#include "runner/runner.h"
#include "secrets/secret.h"
#include "workers/fleet/fleet.h"

struct copy;

/* The options as the command line has them; zero is a valid start. */
struct queue_options {
    const char *url;           /* NULL: no queue */
    const char *password_file; /* as secret_read_file takes it; NULL: no password */
    const char *ca_file, *cert_file;
    int64_t memory_bytes; /* bodies in flight at nodes; 0: the default */
    /* Set by queue_options_read: */
    struct secret password;
    struct redis_options redis;
};

/* Reads the URL and the password. ERR_INVALID, or an error of the file. */
enum err queue_options_read(struct queue_options *queue, struct error *error) MUST_CHECK;
/* True if the queue that was read is on this machine. */
bool queue_is_here(const struct queue_options *queue);
/* As queue_options_read, and warns of a connection to another machine that anybody could read. */
enum err queue_options_check(struct queue_options *queue, struct error *error) MUST_CHECK;
void queue_options_release(struct queue_options *queue);
/* Opens the fleet on the runner's seats. The name of the copy (copy_name) names this server, or the
 * state directory `dir`; then the server begins to lead only while its copy is fresh, because another
 * one of that name may lead. `copy` may be NULL. */
enum err queue_open_fleet(struct queue_options *queue, struct runner *runner, const char *dir,
                          struct copy *copy, uint32_t lines_max, struct fleet **ret_fleet,
                          struct error *error) MUST_CHECK;
/* The name of this machine, of letters, digits, ".", "_" and "-". */
void queue_host_name(char ret_name[64]);
