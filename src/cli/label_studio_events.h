/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* label_studio_events: the course of `quern label-studio` for a program that reads it, as one JSON
 * object per line on standard output.
 *
 *     {"event":"tasks","project":N,"tasks":N}      so many answers have a task in the project
 *     {"event":"pulled","pulled":N}                so many judgements were pulled
 *     {"event":"sent","sent":N}                    so many judgements of quern are annotations
 *     {"event":"said","text":SENTENCE}             Label Studio is away, busy, or of another mind
 *     {"event":"conflict","text":SENTENCE}
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
/* A link_judgement_fn; `context` is not read. */
void label_studio_event_judgement(void *context, const json_t *judgement);
