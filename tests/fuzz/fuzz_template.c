/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/jinja.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define GIVEN_MARK "\xEE\x80\x80" /* U+E000, which no template has and no filter changes */

/* Every mark of the output lies in bytes that are said to have come with the context. */
static void check_given(struct str out, const struct text_ranges *given) {
    size_t span = 0;
    for (size_t i = 0; i < given->count; i++) {
        if (given->at[i].start >= given->at[i].end || given->at[i].end > out.bytes) abort();
        if (i > 0 && given->at[i].start <= given->at[i - 1].end) abort();
    }
    for (size_t at = 0; (at = str_find(out, STR(GIVEN_MARK), at)) != SIZE_MAX; at += 3) {
        while (span < given->count && given->at[span].end <= at) span++;
        if (span == given->count || given->at[span].start > at || given->at[span].end < at + 3)
            abort();
    }
}

/* The input is the source of a template. It is refused or rendered over a small context within
 * small limits. Nothing crashes, leaks or takes long, and the context's words are told apart from
 * the template's. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *source = malloc(size > 0 ? size : 1);
    if (!source) abort();
    if (size > 0) memcpy(source, data, size);
    struct jinja_template *template = NULL;
    struct error error = {0};
    enum err err = jinja_template_open(&template, (struct str){source, size}, &error);
    /* A template can spell the mark, too, or the number of it. */
    struct str whole = {source, size};
    bool writes_marks = str_find(whole, STR(GIVEN_MARK), 0) != SIZE_MAX ||
                        str_find_byte(whole, '\\', 0) != SIZE_MAX ||
                        str_find(whole, STR("57344"), 0) != SIZE_MAX;
    free(source); /* the template must not refer to it */
    if (err) return 0;
    json_t *context =
        json_pack("{s:[{s:s, s:s}, {s:s, s:[{s:s}]}], s:s, s:i, s:f, s:b, s:n, s:{s:[i, n]}}",
                  "messages", "role", "user", "content", " He" GIVEN_MARK "llo\n", "role",
                  "assistant", "content", "type", "te" GIVEN_MARK "xt", "s",
                  "\xC3\xBC <&> te" GIVEN_MARK "xt", "n", 3, "f", 2.5, "t", 1, "z", "d", "k", 1);
    struct jinja_options options = {
        .limits = {.output_bytes_max = 1 << 16, .steps_max = 50000, .memory_bytes_max = 1 << 22},
        .now_unix_s = 1768480496,
    };
    struct buf out;
    buf_init(&out, 1 << 17);
    struct text_ranges given = {0};
    err = jinja_template_render(template, context, &options, &out, &given, &error);
    if (!err && !writes_marks) check_given(buf_str(&out), &given);
    text_ranges_release(&given);
    if (!err && out.bytes > options.limits.output_bytes_max) abort();
    if (jinja_template_takes_parts(template) && size == 0) abort();
    buf_release(&out);
    json_decref(context);
    jinja_template_close(template);
    return 0;
}
