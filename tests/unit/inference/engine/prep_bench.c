/* SPDX-License-Identifier: Apache-2.0 */

/* prep_bench MODEL.gguf BATCH.jsonl SECONDS: chat bodies to prompt tokens on one core: parsing,
 * checking, rendering by the model's template and encoding. The time is that of the thread. */

#include "base/os.h"
#include "engine/prep.h"
#include "json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define FILE_BYTES_MAX ((size_t)1 << 30)
#define VOCABULARY_MAX (1u << 20)

static double cpu_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void stop(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

/* The "body" of each line, as text. */
static size_t read_bodies(struct str file, struct buf **ret_bodies) {
    size_t count = 0, capacity = 0;
    struct buf *bodies = NULL;
    for (size_t at = 0; at < file.bytes;) {
        size_t end = str_find_byte(file, '\n', at);
        if (end == SIZE_MAX) end = file.bytes;
        json_t *line;
        struct error error;
        if (json_read(&line, (struct str){file.at + at, end - at}, &error) != OK) stop(error.text);
        if (count == capacity) {
            capacity = capacity ? 2 * capacity : 1024;
            bodies = realloc(bodies, capacity * sizeof *bodies);
            if (!bodies) abort();
        }
        buf_init(&bodies[count], FILE_BYTES_MAX);
        json_write(&bodies[count++], json_member(line, "body"));
        json_decref(line);
        at = end + 1;
    }
    *ret_bodies = bodies;
    return count;
}

static size_t prepare(struct str body, const struct served_model *model) {
    struct request request;
    struct refusal refusal;
    if (!request_parse(&request, ENDPOINT_CHAT, body, VOCABULARY_MAX, &refusal))
        stop(refusal.message);
    struct prompt prompt = {.ids = {0}};
    const struct prep_options options = {.context_tokens_max = UINT32_MAX};
    uint32_t max_tokens;
    if (!prep_prompts(&request, model, &options, &prompt, &max_tokens, &refusal))
        stop(refusal.message);
    size_t tokens = prompt.ids.count;
    prompt_release(&prompt);
    request_release(&request);
    return tokens;
}

int main(int count, char **words) {
    if (count != 4) stop("usage: prep_bench MODEL.gguf BATCH.jsonl SECONDS");
    struct served_model model = {.name = NULL};
    struct error error;
    char *text;
    size_t bytes;
    if (vocabulary_open_file(&model.vocabulary, words[1], &error) != OK) stop(error.text);
    if (os_read_file(words[2], FILE_BYTES_MAX, &text, &bytes, &error) != OK) stop(error.text);
    struct buf *bodies;
    size_t body_count = read_bodies((struct str){text, bytes}, &bodies), lines = 0, tokens = 0;
    double begin = cpu_s(), seconds;
    do {
        for (size_t i = 0; i < body_count; i++) tokens += prepare(buf_str(&bodies[i]), &model);
        lines += body_count;
        seconds = cpu_s() - begin;
    } while (seconds < strtod(words[3], NULL));
    printf("{\"lines_s\": %.0f, \"tokens_s\": %.0f, \"tokens_a_line\": %.0f}\n",
           (double)lines / seconds, (double)tokens / seconds, (double)tokens / (double)lines);
    for (size_t i = 0; i < body_count; i++) buf_release(&bodies[i]);
    free(bodies);
    free(text);
    vocabulary_close(&model.vocabulary);
}
