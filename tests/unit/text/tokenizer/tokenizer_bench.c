/* SPDX-License-Identifier: Apache-2.0 */

/* tokenizer_bench VOCABULARY PROMPT_BYTES SECONDS FILE…: tokenizer_encode on one core, for one
 * vocabulary of shared/ and texts of one's own, cut into prompts of about PROMPT_BYTES (0: whole).
 * One JSON line a text; the time is that of the thread, so other work on the machine counts little.
 * bench/tokenizer-versus runs it. */

#include "base/utf8.h"
#include "vocab_file.h"

#include <time.h>

static int64_t cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* One pass in prompts of about `prompt_bytes`; returns how many ids. */
static size_t encode_in_prompts(const struct tokenizer *tokenizer, struct str text,
                                size_t prompt_bytes) {
    struct ids ids = {0};
    struct encode_options options = {.parse_special = true};
    size_t count = 0;
    for (size_t at = 0; at < text.bytes;) {
        size_t end = text.bytes - at > prompt_bytes ? at + prompt_bytes : text.bytes;
        while (end < text.bytes && ((unsigned char)text.at[end] & 0xC0) == 0x80) end++;
        struct error error;
        ids.count = 0;
        if (tokenizer_encode(tokenizer, (struct str){text.at + at, end - at}, options, &ids,
                             &error) != OK) {
            fprintf(stderr, "%s\n", error.text);
            exit(1);
        }
        count += ids.count;
        at = end;
    }
    ids_release(&ids);
    return count;
}

static void measure(const struct tokenizer *tokenizer, const char *path, size_t prompt_bytes,
                    double seconds_min) {
    setenv("BENCH_DIR", "/", 1);
    struct str text = vocab_read("BENCH_DIR", path);
    size_t passes = 0, count = 0;
    int64_t begin = cpu_ns();
    double seconds;
    do {
        count = encode_in_prompts(tokenizer, text, prompt_bytes);
        passes++;
        seconds = (double)(cpu_ns() - begin) / 1e9;
    } while (seconds < seconds_min);
    printf("{\"text\": \"%s\", \"bytes\": %zu, \"tokens\": %zu, \"mb_s\": %.2f}\n", path,
           text.bytes, count, (double)text.bytes * (double)passes / 1e6 / seconds);
    free((char *)(uintptr_t)text.at);
}

int main(int count, char **words) {
    if (count < 5) {
        fprintf(stderr, "usage: tokenizer_bench VOCABULARY PROMPT_BYTES SECONDS FILE…\n");
        return 2;
    }
    char *name = NULL;
    if (asprintf(&name, "tokenizers/ggml-vocab-%s.gguf", words[1]) < 0) return 1;
    size_t prompt_bytes = strtoul(words[2], NULL, 10);
    int64_t begin = cpu_ns();
    struct tokenizer *tokenizer = vocab_tokenizer(name);
    printf("{\"vocabulary\": \"%s\", \"open_ms\": %.1f}\n", words[1],
           (double)(cpu_ns() - begin) / 1e6);
    free(name);
    for (int i = 4; i < count; i++)
        measure(tokenizer, words[i], prompt_bytes ? prompt_bytes : SIZE_MAX,
                strtod(words[3], NULL));
    tokenizer_close(tokenizer);
}
