/* SPDX-License-Identifier: Apache-2.0 */
#include "s3/listing.h"
#include "s3/place.h"
#include "s3/upload_state.h"
#include "s3/xml.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool lies_in(struct str part, struct str whole) {
    return part.bytes == 0 ||
           (part.at >= whole.at && part.at + part.bytes <= whole.at + whole.bytes);
}

/* A text that was read has no control character, and comes back from its own element. */
static void check_text(struct str xml, const char *name) {
    char text[64], escaped[6 * sizeof text], again[64], element[sizeof escaped + 16];
    bool is_read = xml_text(xml, name, text, sizeof text);
    if (!is_read && *text) abort();
    if (strlen(text) >= sizeof text || strpbrk(text, "\n\r\x1b\x7f")) abort();
    if (!xml_escape(text, escaped, sizeof escaped)) abort();
    struct buf whole;
    buf_init(&whole, sizeof element);
    buf_printf(&whole, "<A>%s</A>", escaped);
    bool is_trimmed = str_trim(str_from(text)).bytes == strlen(text);
    if (!xml_text(buf_str(&whole), "A", again, sizeof again)) abort();
    if (is_trimmed && strcmp(text, again) != 0) abort();
    buf_release(&whole);
}

static void read_state(struct str lines) {
    struct upload_part parts[3] = {{{0}, {0}, false}};
    struct upload_state state = {.fd = -1, .file_bytes = 5, .parts = parts, .part_count = 3};
    memcpy(state.place, "p", 2);
    while (lines.bytes > 0) {
        size_t end = str_find_byte(lines, '\n', 0);
        struct str line = {lines.at, end == SIZE_MAX ? lines.bytes : end};
        (void)upload_state_take(&state, line);
        lines = str_skip(lines, line.bytes + 1);
    }
    for (size_t i = 0; i < 3; i++)
        if (strlen(parts[i].sum) >= sizeof parts[i].sum ||
            strlen(parts[i].etag) >= sizeof parts[i].etag)
            abort();
}

static void take_name(void *context, const char *rest) {
    size_t *count = context;
    if (strlen(rest) >= S3_KEY_BYTES) abort();
    ++*count;
}

/* A page has at most a name per element, and a list that goes on says where. */
static void read_listing(struct str xml) {
    static const char *const prefixes[] = {"", "a/"};
    size_t counts[2] = {0, 0};
    for (size_t i = 0; i < 2; i++) {
        char token[S3_TOKEN_BYTES] = "untouched";
        struct error error;
        if (s3_listing_read(xml, prefixes[i], take_name, &counts[i], token, &error) != OK &&
            (counts[i] || strcmp(token, "untouched") != 0))
            abort();
        if (strlen(token) >= sizeof token) abort();
    }
    if (counts[1] > counts[0] || counts[0] > xml.bytes / strlen("<Contents/>")) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct str xml = {(const char *)data, size}, part;
    char name[256] = "s3://";
    struct s3_place place;
    struct error error;
    check_text(xml, "Code");
    check_text(xml, "UploadId");
    size_t last = 0;
    for (size_t at = 0; xml_next(xml, "Part", &at, &part); last = at) {
        if (at <= last || !lies_in(part, xml)) abort();
        check_text(part, "ETag");
    }
    read_listing(xml);
    read_state(xml);
    size_t bytes = size < sizeof name - 6 ? size : sizeof name - 6;
    if (bytes > 0) memcpy(name + 5, data, bytes);
    if (s3_place_read(&place, name, &error) == OK && (!*place.bucket || !*place.key)) abort();
    return 0;
}
