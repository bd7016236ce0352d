/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* workload: the requests of a benchmark: the lines of a batch file, or chats drawn from a seed.
 *
 * A drawn chat has the wanted number of words, all of them common and short, so that most
 * vocabularies have one token for each. Its tokens are those that the server's usage tells: words
 * are no tokens. Equal arguments draw equal bytes.
 *
 * Thread: one at a time.
 * Memory: workload_release frees all. */

#include "base/buf.h"

#include <jansson.h>

struct workload_line {
    char *custom_id;
    char *path; /* behind the base URL: "/chat/completions" */
    json_t *body;
    bool is_streamed; /* an endpoint whose answers stream */
};

/* Zero is a valid start. */
struct workload {
    struct workload_line *lines; /* (count) at least one once it is read */
    size_t count, capacity;
    char name[64]; /* "256:128", or the file's name */
};

struct workload_draw {
    uint32_t count;
    uint32_t input_words;
    uint32_t output_tokens;
    uint32_t prefix_words; /* words in the input: the same in all chats */
    uint64_t seed;
};

/* Reads at most `count_max` lines of a batch file (0: all). ERR_INVALID, with file and line, for a
 * line that is no request. */
enum err workload_read(struct workload *workload, const char *path, size_t count_max,
                       struct error *error) MUST_CHECK;
void workload_draw(struct workload *workload, const struct workload_draw *draw);
void workload_release(struct workload *workload);

/* How a request goes out. */
struct workload_form {
    const char *model; /* replaces the line's; NULL: the line's own */
    bool is_streamed;
    const char *mark; /* begins the prompt, so that no cache has it; NULL: none */
};
/* Writes the body of a line into `out`, which it clears. */
void workload_write_body(struct buf *out, const struct workload_line *line,
                         const struct workload_form *form);
