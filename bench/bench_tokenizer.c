/* SPDX-License-Identifier: Apache-2.0 */

/* bench_tokenizer: megabytes a second of tokenizer_encode on one core, for one vocabulary of
 * shared/ and a text of one's own, whole and cut into prompts. Not built by default:
 *
 *   ninja -C BUILD && cc -O2 -D_GNU_SOURCE -I src bench/bench_tokenizer.c \
 *     BUILD/src/libquern_tokenizer.a BUILD/src/libquern_json.a BUILD/src/libquern_base.a \
 *     -ljansson -lsodium -lutf8proc -lm -o /tmp/bench_tokenizer
 *   QUERN_SHARED=../shared /tmp/bench_tokenizer llama-bpe TEXT
 */

#include "../tests/unit/tokenizer/vocab_file.h"
#include "base/clock.h"
#include "base/utf8.h"

#define PROMPT_BYTES 2000
#define MEASURE_NS 2000000000

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

static void measure(const struct tokenizer *tokenizer, struct str text, size_t prompt_bytes,
                    const char *what) {
    size_t passes = 0, count = 0;
    int64_t begin = clock_monotonic_ns(), now;
    do {
        count = encode_in_prompts(tokenizer, text, prompt_bytes);
        passes++;
        now = clock_monotonic_ns();
    } while (now - begin < MEASURE_NS);
    double seconds = (double)(now - begin) / 1e9;
    double megabytes = (double)text.bytes * (double)passes / 1e6;
    printf("%-10s %8.1f MB/s  %6.2f M tokens/s  %.2f bytes a token\n", what, megabytes / seconds,
           (double)count * (double)passes / 1e6 / seconds, (double)text.bytes / (double)count);
}

int main(int count, char **words) {
    if (count != 3) {
        fprintf(stderr, "usage: bench_tokenizer VOCABULARY TEXT_FILE\n");
        return 2;
    }
    char *name = NULL;
    if (asprintf(&name, "tokenizers/ggml-vocab-%s.gguf", words[1]) < 0) return 1;
    int64_t begin = clock_monotonic_ns();
    struct tokenizer *tokenizer = vocab_tokenizer(name);
    printf("open       %8.1f ms\n", (double)(clock_monotonic_ns() - begin) / 1e6);
    free(name);
    setenv("BENCH_DIR", "/", 1);
    struct str text = vocab_read("BENCH_DIR", words[2]);
    measure(tokenizer, text, SIZE_MAX, "whole");
    measure(tokenizer, text, PROMPT_BYTES, "prompts");
    free((char *)(uintptr_t)text.at);
    tokenizer_close(tokenizer);
}
