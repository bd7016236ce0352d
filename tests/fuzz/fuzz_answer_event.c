/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of a benchmarked server: every event of any bytes is read, for any cut of them alike. */
#include "bench/answer_event.h"
#include "net/sse.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct sums {
    uint64_t events, texts, tokens;
};

static bool take(void *context, struct str data) {
    struct sums *sums = context;
    struct answer_event event;
    sums->events++;
    if (!answer_event_read(&event, data)) return false;
    sums->texts += event.has_text;
    sums->tokens += event.completion_tokens;
    return true;
}

static struct sums read_cut(struct str text, size_t cut) {
    struct sums sums = {0};
    struct net_sse sse = {.has_data = false};
    buf_init(&sse.line, 1 << 16);
    buf_init(&sse.data, 1 << 16);
    if (net_sse_feed(&sse, (struct str){text.at, cut}, take, &sums))
        (void)net_sse_feed(&sse, str_skip(text, cut), take, &sums);
    buf_release(&sse.line);
    buf_release(&sse.data);
    return sums;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *copy = malloc(bytes ? bytes : 1);
    if (!copy) abort();
    if (bytes) memcpy(copy, data, bytes);
    struct str text = {copy, bytes};
    if (bytes < 1 << 15) {
        struct sums whole = read_cut(text, bytes), cut = read_cut(text, bytes / 3);
        assert(whole.events == cut.events && whole.texts == cut.texts &&
               whole.tokens == cut.tokens);
    }
    free(copy);
    return 0;
}
