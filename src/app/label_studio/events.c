/* SPDX-License-Identifier: Apache-2.0 */
#include "label_studio/events.h"

#include "json/json.h"

#include <stdio.h>

/* Prints an object on standard output, as one line of JSON in ASCII. */
static void print_line(const json_t *object) {
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    json_write(&text, object);
    puts(text.at);
    fflush(stdout);
    buf_release(&text);
}

static void print(const char *event, const char *member, json_t *value) {
    json_t *object = json_object();
    json_object_set_new(object, "event", json_string(event));
    json_object_set_new(object, member, value);
    print_line(object);
    json_decref(object);
}

void label_studio_event_tasks(int64_t project, uint64_t tasks) {
    json_t *object = json_object();
    json_object_set_new(object, "event", json_string("tasks"));
    json_object_set_new(object, "project", json_integer((json_int_t)project));
    json_object_set_new(object, "tasks", json_integer((json_int_t)tasks));
    print_line(object);
    json_decref(object);
}

void label_studio_event_count(const char *event, uint64_t count) {
    print(event, event, json_integer((json_int_t)count));
}

void label_studio_event_text(const char *event, const char *text) {
    struct buf line;
    buf_init(&line, BUF_UNLIMITED);
    buf_printf(&line, "{\"event\":\"%s\",\"text\":", event);
    json_write_string(&line, str_from(text));
    buf_add_byte(&line, '}');
    puts(line.at);
    fflush(stdout);
    buf_release(&line);
}

void label_studio_event_link(const char *state) {
    print("link", "state", json_string(state));
}

void label_studio_event_judgement(void *context, const json_t *judgement) {
    (void)context;
    print("judgement", "judgement", json_incref((json_t *)(uintptr_t)judgement));
}
