/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/normalize.h"

#include "base/mem.h"
#include "tokenizer/unicode.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define NFC_OPTIONS (UTF8PROC_STABLE | UTF8PROC_COMPOSE)
#define DECOMPOSED_MAX 4 /* code points in the longest canonical decomposition */

bool nfc_is_plain(struct str text) {
    /* Below U+0300, whose first byte is 0xCC, every text is in form C. */
    for (size_t i = 0; i < text.bytes; i++)
        if ((unsigned char)text.at[i] >= 0xCC) return false;
    return true;
}

static unsigned combining_class(int32_t code_point) {
    return (unsigned)utf8proc_get_property(code_point)->combining_class;
}

/* Sorts a run of marks by combining class, keeping the order of equals: counting sort. */
static void sort_marks(int32_t *marks, size_t count, int32_t *spare) {
    size_t starts[257] = {0};
    for (size_t i = 0; i < count; i++) starts[(combining_class(marks[i]) & 0xFF) + 1]++;
    for (size_t i = 1; i < 257; i++) starts[i] += starts[i - 1];
    for (size_t i = 0; i < count; i++) spare[starts[combining_class(marks[i]) & 0xFF]++] = marks[i];
    memcpy(marks, spare, count * sizeof *marks);
}

static void order_marks(int32_t *points, size_t count, int32_t *spare) {
    size_t at = 0;
    while (at < count) {
        size_t end = at;
        while (end < count && combining_class(points[end]) != 0) end++;
        if (end - at > 1) sort_marks(points + at, end - at, spare);
        at = end + 1;
    }
}

static bool is_inert(uint32_t code_point) {
    /* Composes with nothing, but libutf8proc 2.6 takes it for a trailing consonant. */
    if (code_point == 0x11A7) return true;
    size_t low = 0, high = unicode_nfc_inert_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (code_point > unicode_nfc_inert[middle][1])
            low = middle + 1;
        else
            high = middle;
    }
    return low < unicode_nfc_inert_count && code_point >= unicode_nfc_inert[low][0];
}

/* The form C of one segment that composes with nothing around it. */
static void add_segment(struct buf *buf, struct str segment) {
    if (nfc_is_plain(segment)) {
        buf_add_str(buf, segment);
        return;
    }
    size_t room = utf8_count(segment) * DECOMPOSED_MAX;
    int32_t *points = mem_alloc(2 * room * sizeof *points);
    size_t count = 0;
    for (size_t at = 0; at < segment.bytes;) {
        uint32_t code_point;
        at += utf8_decode(segment, at, &code_point);
        int last_class = 0;
        utf8proc_ssize_t made = utf8proc_decompose_char((int32_t)code_point, points + count,
                                                        DECOMPOSED_MAX, NFC_OPTIONS, &last_class);
        assert(made > 0 && made <= DECOMPOSED_MAX);
        count += (size_t)made;
    }
    order_marks(points, count, points + room);
    utf8proc_ssize_t composed =
        utf8proc_normalize_utf32(points, (utf8proc_ssize_t)count, NFC_OPTIONS);
    assert(composed > 0 && (size_t)composed <= count);
    for (utf8proc_ssize_t i = 0; i < composed; i++) {
        char bytes[4];
        buf_add(buf, bytes, utf8_encode((uint32_t)points[i], bytes));
    }
    free(points);
}

void nfc_add(struct buf *buf, struct str text) {
    /* An ASCII character never composes with the text before it, so the text may be cut there. */
    size_t at = 0;
    while (at < text.bytes) {
        size_t ascii = at;
        while (ascii < text.bytes && (unsigned char)text.at[ascii] < 0x80) ascii++;
        size_t start = ascii < text.bytes && ascii > at ? ascii - 1 : ascii;
        buf_add(buf, text.at + at, start - at);
        /* An inert one is another: it goes out as it is. */
        size_t end = ascii, inert_bytes = 0;
        while (end < text.bytes && (unsigned char)text.at[end] >= 0x80) {
            uint32_t code_point;
            size_t bytes = utf8_decode(text, end, &code_point);
            if (is_inert(code_point)) {
                inert_bytes = bytes;
                break;
            }
            end += bytes;
        }
        if (end > start) add_segment(buf, (struct str){text.at + start, end - start});
        buf_add(buf, text.at + end, inert_bytes);
        at = end + inert_bytes;
    }
}
