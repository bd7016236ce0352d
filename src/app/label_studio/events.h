/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* events: the course of `quern label-studio` for a program that reads it, as one JSON
 * object per line on standard output.
 *
 *     {"event":"tasks","project":N,"tasks":N}      answers that have a task in the project
 *     {"event":"pulled","pulled":N}                judgements of this pull so far
 *     {"event":"sent","sent":N}                    judgements that became annotations so far
 *     {"event":"said","text":SENTENCE}             Label Studio is silent, busy, or refuses
 *     {"event":"conflict","text":SENTENCE}
 *     {"event":"link","state":STATE}               the link cannot be used: "damaged", or "busy"
 *                                                  with another command
 *     {"event":"judgement","judgement":{…}}        each one that was pulled, also by earlier
 *                                                  commands; at the end, even after an error
 *
 * The counts of the whole command follow as an object without "event".
 *
 * Thread: main.
 * Memory: none. */

#include <jansson.h>
#include <stdint.h>

void label_studio_event_tasks(int64_t project, uint64_t tasks);
/* "pulled" or "sent". */
void label_studio_event_count(const char *event, uint64_t count);
void label_studio_event_text(const char *event, const char *text);
/* `state`: "damaged" or "busy". */
void label_studio_event_link(const char *state);
/* A link_judgement_fn; `context` is not read. */
void label_studio_event_judgement(void *context, const json_t *judgement);
