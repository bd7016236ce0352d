/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cost_guess.h"

#include "batch/jsonl_file.h"
#include "json/span.h"

#define BYTES_PER_TOKEN 4.0

/* A member that is a whole number above 0; false for another one. */
static bool read_count(struct str body, const char *name, int64_t *ret_count) {
    struct str value = json_span_get(body, name);
    return value.at && str_to_i64(value, ret_count) && *ret_count > 0;
}

static void add_line(struct cost_guess *guess, struct str line, bool generates) {
    struct str whole, body = {NULL, 0};
    int64_t most = 0, answers = 1;
    guess->requests++;
    if (json_span_read(line, &whole) && json_span_is_object(whole))
        body = json_span_get(whole, "body");
    if (!body.at || !json_span_is_object(body)) return; /* a line that the server will refuse */
    guess->input_tokens += (double)body.bytes / BYTES_PER_TOKEN;
    if (!generates) return;
    (void)read_count(body, "n", &answers);
    if (read_count(body, "max_completion_tokens", &most) || read_count(body, "max_tokens", &most) ||
        read_count(body, "max_output_tokens", &most))
        guess->output_tokens += (double)most * (double)answers;
    else
        guess->unbounded++;
}

enum err cost_guess_make(struct cost_guess *ret_guess, const struct requests_file *input,
                         struct error *error) {
    struct jsonl_file file;
    struct cost_guess guess = {0};
    struct str line;
    bool generates = !str_ends_with(str_from(input->endpoint), STR("/embeddings"));
    jsonl_file_init(&file);
    jsonl_file_borrow(&file, input->fd, input->bytes);
    while (jsonl_file_next(&file, &line)) add_line(&guess, line, generates);
    enum err err = jsonl_file_end(&file, input->name, OK, error);
    if (err == OK) *ret_guess = guess;
    return err;
}
