/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* log_parts: the sections of a decision log about a request, what computed it, its result and its
 * judgements, in plain English.
 *
 * Thread: any.
 * Memory: the caller owns the sections. */

#include "json/json.h"

#define LOG_DAY_BYTES 32

/* An empty section. */
json_t *log_section(const char *heading);
/* Adds an entry; a text that is empty adds none. */
void log_add(json_t *section, const char *label, const char *text);
void log_add_json(json_t *section, const char *label, const json_t *value);
/* "2026-11-29 21:30 UTC"; "" for anything that is no time. */
void log_day(const json_t *unix_s, char ret_day[LOG_DAY_BYTES]);

json_t *log_asked(const json_t *request);
/* The same of a request that is known by the row of its table alone: {"custom_id", "row"}. */
json_t *log_row(const json_t *request);
/* `computed_by`: a record of run_record.h. */
json_t *log_computed(const json_t *request, const json_t *result, const json_t *computed_by,
                     const json_t *created_at);
json_t *log_answered(struct str result_text, const json_t *result);
/* The same of a row of a table of results: its columns that the request's row does not have. */
json_t *log_answer_row(const json_t *request, json_t *row);
json_t *log_judged(const json_t *judgements);
