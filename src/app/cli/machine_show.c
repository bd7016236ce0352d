/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/machine_show.h"

#include "base/printable.h"
#include "cli/terminal.h"

#include <stdio.h>

static const char *text_of(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text && *text ? text : "-";
}

static long long count_of(const json_t *object, const char *name) {
    return json_integer_value(json_object_get(object, name));
}

static void show_models(const json_t *models) {
    size_t i;
    const json_t *model;
    printf("%-32s  %-8s  %8s  %8s  %10s  %s\n", "model", "state", "running", "waiting", "backlog",
           "text");
    json_array_foreach(models, i, model)
        printf("%-32s  %-8s  %8lld  %8lld  %10lld  %s\n", printable(text_of(model, "id")).text,
               printable(text_of(model, "state")).text, count_of(model, "running"),
               count_of(model, "waiting"), count_of(model, "queue_depth"),
               printable(text_of(model, "text")).text);
}

static void show_queues(const json_t *queues) {
    size_t i;
    const json_t *queue;
    if (json_array_size(queues) == 0) return;
    printf("\n%-32s  %10s  %8s  %s\n", "waiting work", "lines", "requests", "oldest");
    json_array_foreach(queues, i, queue) {
        const char *model = json_string_value(json_object_get(queue, "model"));
        printf("%-32s  %10lld  %8lld  %lld s\n",
               model ? printable(model).text : "(several in a batch)", count_of(queue, "lines"),
               count_of(queue, "requests"), count_of(queue, "oldest_age_s"));
    }
}

static void show_queue(const json_t *queue) {
    if (!json_is_object(queue)) return;
    bool is_up = json_is_true(json_object_get(queue, "up"));
    const char *text = json_string_value(json_object_get(queue, "text"));
    printf("\nqueue between machines: %s%s%s\n", is_up ? "up" : "down", !is_up && text ? ": " : "",
           !is_up && text ? printable(text).text : "");
    printf("in flight %lld, bodies %lld of %lld bytes, given out again %lld, nodes lost %lld\n",
           count_of(queue, "in_flight"), count_of(queue, "bytes"), count_of(queue, "bytes_max"),
           count_of(queue, "returned"), count_of(queue, "nodes_lost"));
}

/* "a, b and 3 more" */
static void print_models(const json_t *models) {
    size_t count = json_array_size(models);
    for (size_t i = 0; i < count && i < 2; i++) {
        const char *name = json_string_value(json_array_get(models, i));
        printf("%s%s", i > 0 ? ", " : "", name ? printable(name).text : "-");
    }
    if (count > 2) printf(" and %zu more", count - 2);
    if (count == 0) printf("-");
}

static void show_copy(const json_t *copy) {
    if (!json_is_object(copy)) return;
    const char *state = json_string_value(json_object_get(copy, "state"));
    const char *why = json_string_value(json_object_get(copy, "error"));
    long long behind_ms = count_of(copy, "behind_ms");
    printf("\ncopy: %s", state ? printable(state).text : "?");
    if (behind_ms > 0) printf(", %lld.%lld s behind", behind_ms / 1000, behind_ms % 1000 / 100);
    if (why) printf(": %s", printable(why).text);
    printf("\n");
}

static void show_nodes(const json_t *nodes) {
    size_t i;
    const json_t *node;
    if (json_array_size(nodes) == 0) return;
    printf("\n%-40s  %-8s  %7s  %9s  %8s  %8s  %-10s  %s\n", "node", "state", "workers",
           "in flight", "lines/s", "beat", "version", "models");
    json_array_foreach(nodes, i, node) {
        char workers[48];
        snprintf(workers, sizeof workers, "%lld/%lld", count_of(node, "workers_ready"),
                 count_of(node, "workers"));
        printf("%-40s  %-8s  %7s  %9lld  %8.1f  %6.1f s  %-10s  ",
               printable(text_of(node, "id")).text, printable(text_of(node, "state")).text, workers,
               count_of(node, "in_flight"),
               json_number_value(json_object_get(node, "busy_results_per_second")),
               json_number_value(json_object_get(node, "beat_age_s")),
               printable(text_of(node, "version")).text);
        print_models(json_object_get(node, "models"));
        const char *text = json_string_value(json_object_get(node, "text"));
        printf("%s%s\n", text ? ": " : "", text ? printable(text).text : "");
    }
}

void machine_show(const json_t *machine) {
    show_models(json_object_get(machine, "models"));
    show_queues(json_object_get(machine, "queues"));
    show_queue(json_object_get(machine, "queue"));
    show_nodes(json_object_get(machine, "nodes"));
    show_copy(json_object_get(machine, "copy"));
}
