/* SPDX-License-Identifier: Apache-2.0 */
#include "node/queue.h"

#include "base/address.h"
#include "base/log.h"
#include "cluster/bus_redis.h"
#include "copy/copy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REPLY_BYTES ((size_t)256 << 20)
#define ID_BYTES 200

static bool is_this_machine(const char *host) {
    struct address address;
    if (strcmp(host, "localhost") == 0) return true;
    return address_read(&address, str_from(host)) && address_is_loopback(&address);
}

enum err queue_options_read(struct queue_options *queue, struct error *error) {
    if (!queue->url) {
        if (queue->password_file || queue->ca_file || queue->cert_file)
            return err_set(error, ERR_INVALID,
                           "--queue-password-file, --queue-ca-file and --queue-cert-file need "
                           "--queue");
        return OK;
    }
    struct redis_options *redis = &queue->redis;
    *redis = (struct redis_options){
        .ca_file = queue->ca_file, .cert_file = queue->cert_file, .reply_bytes_max = REPLY_BYTES};
    enum err err = redis_place_read(&redis->place, queue->url, error);
    if (err != OK) return err_prefix(error, "--queue");
    if (!redis->place.is_tls && (queue->ca_file || queue->cert_file))
        return err_set(error, ERR_INVALID,
                       "--queue-ca-file and --queue-cert-file need a rediss:// URL");
    const struct secret_place place = {.path = queue->password_file,
                                       .variable = "QUERN_QUEUE_PASSWORD",
                                       .credential = "queue-password"};
    const struct secret_variables none = {0};
    err = secret_read(&queue->password, &place, &none, error);
    if (err != OK) return err_prefix(error, "--queue-password-file");
    if (queue->password.text) {
        struct str word = str_trim((struct str){queue->password.text, queue->password.bytes});
        size_t from = (size_t)(word.at - queue->password.text);
        queue->password.text[from + word.bytes] = '\0';
        redis->password = queue->password.text + from;
    }
    return OK;
}

bool queue_is_here(const struct queue_options *queue) {
    return is_this_machine(queue->redis.place.host);
}

enum err queue_options_check(struct queue_options *queue, struct error *error) {
    enum err err = queue_options_read(queue, error);
    const struct redis_options *redis = &queue->redis;
    if (err == OK && queue->url && !redis->place.is_tls && !queue_is_here(queue))
        log_warn("event=queue_is_plain host=%s; requests and answers cross the network "
                 "unencrypted, rediss:// encrypts them",
                 redis->place.host);
    return err;
}

void queue_options_release(struct queue_options *queue) {
    secret_release(&queue->password);
    queue->password = (struct secret){0};
}

void queue_host_name(char ret_name[64]) {
    char host[256] = "";
    if (gethostname(host, sizeof host - 1) != 0 || !*host) snprintf(host, sizeof host, "node");
    size_t count = 0;
    for (size_t i = 0; host[i] && count < 63; i++) {
        char c = host[i];
        bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                        (c >= '0' && c <= '9') || c == '.' || c == '-';
        ret_name[count++] = is_plain ? c : '_';
    }
    ret_name[count] = '\0';
}

static bool take_seat(void *context, struct worker_events *ret_events, uint32_t *ret_seat) {
    return runner_worker_seat(context, ret_events, ret_seat);
}

static void attach(void *context, uint32_t seat, struct worker *worker) {
    runner_worker_attach(context, seat, worker);
}

static void tune(void *context, uint32_t seat, uint32_t weight, uint32_t lines_max) {
    runner_worker_tune(context, seat, weight, lines_max);
}

static uint64_t adopt(void *context, uint32_t seat, struct str line) {
    return runner_adopt(context, seat, line);
}

static void adopted(void *context) {
    runner_adopted(context);
}

static bool may_lead(void *copy) {
    return copy_is_fresh(copy);
}

static size_t ended(void *context, const uint64_t *job_ids, size_t count) {
    return runner_jobs_ended(context, job_ids, count);
}

/* The same directory on the same machine is the same server, whatever process serves it. So is each
 * server that leads the same copy: its state is that of the one before. */
static void name_server(const char *dir, const struct copy *copy, char ret_id[ID_BYTES]) {
    char host[64];
    struct stat is;
    if (copy && *copy_name(copy)) {
        snprintf(ret_id, ID_BYTES, "copy:%s", copy_name(copy));
        return;
    }
    if (stat(dir, &is) != 0) memset(&is, 0, sizeof is);
    queue_host_name(host);
    snprintf(ret_id, ID_BYTES, "%s:%" PRIx64 ":%" PRIx64, host, (uint64_t)is.st_dev,
             (uint64_t)is.st_ino);
}

enum err queue_open_fleet(struct queue_options *queue, struct runner *runner, const char *dir,
                          struct copy *copy, uint32_t lines_max, struct fleet **ret_fleet,
                          struct error *error) {
    char id[ID_BYTES];
    name_server(dir, copy, id);
    const struct fleet_options options = {.place = bus_redis_place(&queue->redis),
                                          .id = id,
                                          .bytes_max = (uint64_t)queue->memory_bytes,
                                          .lines_max = lines_max,
                                          .may_lead = copy ? may_lead : NULL,
                                          .copy = copy,
                                          .context = runner,
                                          .seat = take_seat,
                                          .attach = attach,
                                          .tune = tune,
                                          .adopt = adopt,
                                          .adopted = adopted,
                                          .ended = ended};
    return fleet_open(ret_fleet, &options, error);
}
