/* SPDX-License-Identifier: Apache-2.0 */
#include "preflight/token_layout.h"

#include "base/map.h"
#include "base/mem.h"

#include <sodium/crypto_shorthash.h>
#include <stdlib.h>
#include <string.h>

#define PIECES_MAX 256     /* lines of text remembered per request */
#define PIECE_BYTES_MIN 24 /* shorter lines are shared by chance */
#define SHARED_DIVISOR 10  /* text of a tenth of the requests is worth moving */
#define SHARED_MIN 3       /* requests that make a line of text shared rather than private */
#define LATE_BYTES_MIN 200 /* less text is not worth moving */

struct token_layout_piece {
    uint64_t hash;
    uint32_t request;
    uint32_t bytes;
};

static uint64_t hash_of(struct str text) {
    static const unsigned char key[crypto_shorthash_KEYBYTES] = "quern preflight";
    unsigned char digest[crypto_shorthash_BYTES];
    uint64_t hash;
    crypto_shorthash(digest, (const unsigned char *)text.at, text.bytes, key);
    memcpy(&hash, digest, sizeof hash);
    return hash;
}

static void add_piece(struct token_layout *layout, struct str text) {
    layout->pieces =
        vec_grow(layout->pieces, layout->count, &layout->capacity, sizeof *layout->pieces);
    layout->pieces[layout->count++] =
        (struct token_layout_piece){hash_of(text), layout->requests, (uint32_t)text.bytes};
}

static void add_text(struct token_layout *layout, struct str text, size_t *left) {
    while (text.bytes > 0 && *left > 0) {
        size_t end = str_find_byte(text, '\n', 0);
        struct str line = {text.at, end == SIZE_MAX ? text.bytes : end};
        text = end == SIZE_MAX ? (struct str){0} : str_skip(text, end + 1);
        line = str_trim(line);
        if (line.bytes < PIECE_BYTES_MIN || line.bytes > UINT32_MAX) continue;
        add_piece(layout, line);
        (*left)--;
    }
}

void token_layout_add(struct token_layout *layout, const json_t *messages, const json_t *prompt) {
    size_t left = PIECES_MAX, index, part_index;
    json_t *message, *part;
    if (json_is_string(prompt)) add_text(layout, json_str(prompt), &left);
    json_array_foreach(messages, index, message) {
        const json_t *content = json_member(message, "content");
        if (json_is_string(content)) add_text(layout, json_str(content), &left);
        json_array_foreach(content, part_index, part)
            add_text(layout, json_member_str(part, "text"), &left);
    }
    layout->requests++;
}

static struct str key_of(const struct token_layout_piece *piece) {
    return (struct str){(const char *)&piece->hash, sizeof piece->hash};
}

/* Counts how often each piece occurs. */
static void count_pieces(const struct token_layout *layout, struct map *counts) {
    for (size_t i = 0; i < layout->count; i++) {
        uint64_t count = 0;
        map_get(counts, key_of(&layout->pieces[i]), &count);
        map_put(counts, key_of(&layout->pieces[i]), count + 1);
    }
}

struct token_layout_advice token_layout_look(const struct token_layout *layout) {
    struct token_layout_advice advice = {0};
    struct map counts;
    uint64_t many = layout->requests / SHARED_DIVISOR, late_requests = 0;
    if (many < SHARED_MIN) many = SHARED_MIN;
    map_init(&counts);
    count_pieces(layout, &counts);
    for (size_t i = 0; i < layout->count;) {
        uint32_t request = layout->pieces[i].request;
        bool was_private = false;
        double late = 0;
        for (; i < layout->count && layout->pieces[i].request == request; i++) {
            uint64_t count = 0;
            map_get(&counts, key_of(&layout->pieces[i]), &count);
            if (count < SHARED_MIN)
                was_private = true;
            else if (was_private && count >= many)
                late += layout->pieces[i].bytes;
        }
        if (late < LATE_BYTES_MIN) continue;
        advice.late_bytes_mean += late / layout->requests;
        late_requests++;
    }
    if (layout->requests) advice.late_share = (double)late_requests / layout->requests;
    map_release(&counts);
    return advice;
}

void token_layout_release(struct token_layout *layout) {
    free(layout->pieces);
    *layout = (struct token_layout){0};
}
