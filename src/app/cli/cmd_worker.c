/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/queue_options.h"
#include "cli/stop.h"
#include "cli/vllm_options.h"
#include "cluster/bus_redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS 50

struct worker_command {
    struct node_options node;
    struct engine_choice choice;
    struct queue_options queue;
    const char *name;
    char host[64];
    int64_t drain_s, hang_s;
};

#define AT(field) offsetof(struct worker_command, field)
static const struct option rows[] = {
    {"name", OPTION_TEXT, AT(name), "NAME",
     .help = "name of this machine in the server's log and status (default: its host name)"},
    {"drain-seconds", OPTION_INTEGER, AT(drain_s), "N",
     .help = "time to finish running requests after SIGTERM (default 30 s)", .max = 86400},
    {"hang-seconds", OPTION_INTEGER, AT(hang_s), "N",
     .help = "time without a step until an engine is restarted (default 0: by the longest step)",
     .max = 86400},
    {0},
};

static void set_defaults(void *context) {
    struct worker_command *chosen = context;
    engine_options_set_defaults(&chosen->choice);
    chosen->drain_s = 30;
    queue_host_name(chosen->host);
}

static void release(void *context) {
    struct worker_command *chosen = context;
    engine_options_release(&chosen->choice, &chosen->node);
    queue_options_release(&chosen->queue);
}

static enum err check_name(const char *name, struct error *error) {
    size_t good = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    if (*name && !name[good] && good < 64) return OK;
    return err_set(error, ERR_INVALID,
                   "--name '%.70s' has something but 1 to 63 letters, digits, \".\", \"_\" and "
                   "\"-\"",
                   name);
}

static enum err check(struct command_call *call, struct error *error) {
    struct worker_command *chosen = call->chosen;
    if (!chosen->name) chosen->name = chosen->host;
    enum err err = engine_options_check(&chosen->choice, &chosen->node, error);
    if (err == OK && !chosen->queue.url)
        err = err_set(error, ERR_INVALID, "--queue is missing: the URL of the queue's server");
    if (err == OK) err = queue_options_check(&chosen->queue, error);
    if (err == OK) err = check_name(chosen->name, error);
    if (err == OK && chosen->choice.aliases.count > 0)
        err = err_set(error, ERR_INVALID, "--alias is an option of the server, not of a node");
    chosen->node.engine.hang_ms = chosen->hang_s * 1000;
    return err;
}

static enum err serve_node(struct worker_command *chosen, struct node *node,
                           const volatile bool *stop, struct error *error) {
    struct agent *agent = node_agent(node);
    enum err err = agent_start(agent, error);
    if (err != OK) return err;
    printf("node %s of cluster %s\n", agent_node(agent), chosen->queue.redis.place.cluster);
    fflush(stdout);
    while (!*stop) clock_sleep_ms(LOOK_MS);
    log_info("event=draining node=%s", agent_node(agent));
    agent_drain(agent, chosen->drain_s * 1000);
    return OK;
}

static enum err run(struct command_call *call, struct error *error) {
    struct worker_command *chosen = call->chosen;
    struct node *node;
    const struct agent_options agent = {.name = chosen->name,
                                        .version = QUERN_VERSION,
                                        .place = bus_redis_place(&chosen->queue.redis)};
    log_set_process("worker");
    enum err err = engine_options_find_models(&chosen->choice, &chosen->node, call->stop, error);
    if (err == OK) err = node_open_remote(&node, &chosen->node, &agent, error);
    if (err != OK) return err;
    err = serve_node(chosen, node, call->stop, error);
    node_close(node, 0);
    return err;
}

static const struct option_table tables[] = {{rows, 0},
                                             {queue_option_rows, AT(queue)},
                                             {engine_option_rows, AT(choice)},
                                             {vllm_option_rows, 0}};

const struct command cmd_worker = {
    .name = "worker",
    .summary = "run the requests of a server on another machine",
    .usage = "worker --queue URL [ALIAS=]M... [--upstream NAME=URL] [options]",
    .help =
        "Takes requests from the queue of a `quern serve --queue URL`, runs them on models or\n"
        "upstreams of this machine, and sends the results back. It keeps nothing on disk and may\n"
        "come and go at any time. SIGTERM gives back what has not begun.\n",
    .tables = tables,
    .table_count = sizeof tables / sizeof *tables,
    .chosen_bytes = sizeof(struct worker_command),
    .operand_as = "model",
    .has_settings = true,
    .stops = true,
    .logs = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
    .release = release,
};
