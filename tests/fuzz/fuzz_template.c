/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/chat.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input is the source of a template. Whatever it is, it is refused or rendered over a small
 * context within small limits; nothing crashes, leaks or takes long. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *source = malloc(size > 0 ? size : 1);
    if (!source) abort();
    if (size > 0) memcpy(source, data, size);
    struct chat_template *template = NULL;
    struct error error = {0};
    enum err err = chat_template_open(&template, (struct str){source, size}, &error);
    free(source); /* the template must not refer to it */
    if (err) return 0;
    json_t *context = json_pack(
        "{s:[{s:s, s:s}, {s:s, s:[{s:s}]}], s:s, s:i, s:f, s:b, s:n, s:{s:[i, n]}}", "messages",
        "role", "user", "content", " Hello\n", "role", "assistant", "content", "type", "text", "s",
        "\xC3\xBC <&> text", "n", 3, "f", 2.5, "t", 1, "z", "d", "k", 1);
    struct chat_options options = {
        .limits = {.output_bytes_max = 1 << 16, .steps_max = 50000, .memory_bytes_max = 1 << 22},
        .now_unix_s = 1768480496,
    };
    struct buf out;
    buf_init(&out, 1 << 17);
    err = chat_template_render(template, context, &options, &out, NULL, &error);
    if (!err && out.bytes > options.limits.output_bytes_max) abort();
    if (chat_template_takes_parts(template) && size == 0) abort();
    buf_release(&out);
    json_decref(context);
    chat_template_close(template);
    return 0;
}
