/* SPDX-License-Identifier: Apache-2.0 */
#include "mutations.h"

#include "base/os.h"
#include "checkpoint/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BASE_BYTES_MAX ((size_t)64 << 20)
#define TEXTS_EACH 64 /* elements of an array */

/* ---- bases ---- */

static void add_field(struct base *base, const void *at, long back, size_t bytes) {
    base->fields = realloc(base->fields, (base->field_count + 1) * sizeof *base->fields);
    if (!base->fields) abort();
    size_t place = (size_t)((const char *)at - base->bytes) - (size_t)back;
    base->fields[base->field_count++] = (struct field){.at = place, .bytes = bytes};
}

static void add_text(struct base *base, struct str text) {
    if (text.bytes == 0) return;
    add_field(base, text.at, 0, text.bytes);
    base->fields[base->field_count - 1].is_text = true;
}

static void find_texts(struct base *base, const struct gguf_value *value) {
    bool is_array = value->kind == GGUF_ARRAY;
    if ((is_array ? value->element : value->kind) != GGUF_STRING) return;
    const unsigned char *at = value->at;
    for (uint64_t i = 0; i < value->count; i++) {
        struct str text = gguf_next_str(&at);
        if (i % (value->count / TEXTS_EACH + 1) == 0) add_text(base, text);
    }
}

static void find_pair_fields(struct base *base, const struct gguf_pair *pair) {
    const struct gguf_value *value = &pair->value;
    const char *type_at = pair->key.at + pair->key.bytes;
    add_field(base, pair->key.at, 8, 8);
    add_field(base, type_at, 0, 4);
    if (value->kind == GGUF_ARRAY) {
        add_field(base, type_at, -4, 4);
        add_field(base, type_at, -8, 8);
        if (value->bytes >= 24) add_field(base, value->at, -(long)(value->bytes / 2), 8);
    }
    add_field(base, value->at, 0, value->bytes >= 8 ? 8 : 1);
    add_text(base, pair->key);
    find_texts(base, value);
}

static void find_tensor_fields(struct base *base, const struct gguf_tensor *tensor) {
    const char *at = tensor->name.at;
    add_field(base, at, 8, 8);
    add_text(base, tensor->name);
    at += tensor->name.bytes;
    add_field(base, at, 0, 4);
    at += 4;
    for (uint32_t i = 0; i < tensor->axis_count; i++, at += 8) add_field(base, at, 0, 8);
    add_field(base, at, 0, 4);
    add_field(base, at, -4, 8);
}

/* False when it is no sound GGUF, which is then mutated as bytes. */
static bool find_fields(struct base *base) {
    struct gguf *gguf;
    if (gguf_open_bytes(&gguf, base->bytes, base->count, NULL) != OK) return false;
    add_field(base, base->bytes, -4, 4);
    add_field(base, base->bytes, -8, 8);
    add_field(base, base->bytes, -16, 8);
    for (size_t i = 0; i < gguf_pair_count(gguf); i++)
        find_pair_fields(base, gguf_pair_at(gguf, i));
    for (size_t i = 0; i < gguf_tensor_count(gguf); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(gguf, i);
        size_t at = (size_t)((const char *)tensor->at - base->bytes);
        if (at < base->head_bytes) base->head_bytes = at;
        find_tensor_fields(base, tensor);
    }
    gguf_close(gguf);
    return true;
}

static bool is_safetensors(const struct base *base) {
    return str_ends_with(str_from(base->path), STR(".safetensors"));
}

/* A file of a folder but for its tokenizer.json, which has a kind of its own. */
static bool is_of_folder(const char *path) {
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    return strncmp(name, "config", 6) == 0 || strstr(name, "_config.json") ||
           strstr(name, ".index.json");
}

/* Eight bytes of length, then JSON, then the weights. */
static bool find_header(struct base *base) {
    uint64_t bytes;
    if (base->count < sizeof bytes) return false;
    memcpy(&bytes, base->bytes, sizeof bytes);
    if (bytes > base->count - sizeof bytes) return false;
    base->head_bytes = sizeof bytes + (size_t)bytes;
    add_field(base, base->bytes, 0, sizeof bytes);
    return true;
}

bool base_open(struct base *ret_base, const char *path) {
    struct base base = {.path = path};
    if (os_read_file(path, BASE_BYTES_MAX, &base.bytes, &base.count, NULL) != OK) return false;
    base.head_bytes = base.count;
    struct str text = {base.bytes, base.count};
    bool is_known = true;
    if (str_starts_with(text, STR("GGUF"))) {
        base.kind = BASE_GGUF;
        (void)find_fields(&base);
    } else if (is_safetensors(&base)) {
        base.kind = BASE_FOLDER;
        is_known = find_header(&base);
    } else if (is_of_folder(path)) {
        base.kind = BASE_FOLDER;
    } else if (strstr(path, ".jinja")) {
        base.kind = BASE_TEMPLATE;
    } else {
        base.kind = BASE_TOKENIZER;
        is_known = str_starts_with(text, STR("{"));
    }
    if (is_known && base.count > 0)
        *ret_base = base;
    else
        base_close(&base);
    return is_known && base.count > 0;
}

void base_close(struct base *base) {
    free(base->bytes);
    free(base->fields);
}

/* ---- mutations of any bytes ---- */

/* Half of them near something that is known, so that a long list does not take all. */
static size_t place(const struct base *base, const struct buf *out, struct rng *rng) {
    if (base->field_count > 0 && rng_below(rng, 2) == 0) {
        const struct field *field = &base->fields[rng_below(rng, base->field_count)];
        size_t at = field->at + rng_below(rng, field->bytes);
        if (at < out->bytes) return at;
    }
    size_t count =
        rng_below(rng, 8) > 0 && base->head_bytes < out->bytes ? base->head_bytes : out->bytes;
    return count > 0 ? rng_below(rng, count) : 0;
}

/* Short ones are as likely as long ones. */
static size_t length(struct rng *rng, size_t most) {
    size_t bound = (size_t)1 << rng_below(rng, 14);
    if (bound > most) bound = most;
    return bound > 0 ? 1 + rng_below(rng, bound) : 0;
}

/* The places that a reader of texts looks at. */
static char letter(struct rng *rng) {
    static const char letters[] = "{}[](),:;\"'\\%#|.~=<>!+-*/ \n0189aeinrtu_";
    return letters[rng_below(rng, sizeof letters - 1)];
}

static void flip_bits(const struct base *base, struct buf *out, struct rng *rng) {
    bool is_text = base->kind != BASE_GGUF && rng_below(rng, 8) > 0;
    for (size_t count = 1 + rng_below(rng, 1 + rng_below(rng, 8)); count > 0 && out->bytes > 0;
         count--) {
        char *at = &out->at[place(base, out, rng)];
        *at = is_text ? letter(rng) : (char)(*at ^ 1 << rng_below(rng, 8));
    }
}

static void overwrite(const struct base *base, struct buf *out, struct rng *rng) {
    size_t at = place(base, out, rng), count = length(rng, out->bytes - at);
    uint64_t how = base->kind == BASE_GGUF ? rng_below(rng, 3) : 2 + rng_below(rng, 2);
    for (size_t i = 0; i < count; i++)
        out->at[at + i] = how == 0   ? 0
                          : how == 1 ? '\xFF'
                          : how == 2 ? letter(rng)
                                     : (char)rng_next(rng);
}

static void truncate_at(const struct base *base, struct buf *out, struct rng *rng) {
    buf_truncate(out, place(base, out, rng));
}

/* Puts `text` in the place of `removed` bytes at `at`. */
static void replace(struct buf *out, size_t at, size_t removed, struct str text) {
    struct buf tail;
    buf_init(&tail, BUF_UNLIMITED);
    buf_add(&tail, out->at + at + removed, out->bytes - at - removed);
    buf_truncate(out, at);
    buf_add_str(out, text);
    buf_add_str(out, buf_str(&tail));
    buf_release(&tail);
}

static void delete_chunk(const struct base *base, struct buf *out, struct rng *rng) {
    size_t at = place(base, out, rng);
    replace(out, at, length(rng, out->bytes - at), STR(""));
}

static void insert_copy(const struct base *from, const struct base *base, struct buf *out,
                        struct rng *rng) {
    size_t at = place(base, out, rng), start = rng_below(rng, from->head_bytes);
    size_t count = length(rng, from->count - start);
    replace(out, at, 0, (struct str){from->bytes + start, count});
}

/* The beginning of one and the end of the other. */
static void splice(const struct base *other, const struct base *base, struct buf *out,
                   struct rng *rng) {
    size_t at = place(base, out, rng), start = rng_below(rng, other->head_bytes);
    replace(out, at, out->bytes - at, (struct str){other->bytes + start, other->count - start});
}

/* ---- mutations of a GGUF's numbers ---- */

static uint64_t odd_number(uint64_t old, struct rng *rng) {
    static const uint64_t numbers[] = {0,          1,          2,          3,
                                       7,          31,         32,         255,
                                       256,        65535,      65536,      1u << 24,
                                       0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, UINT64_C(1) << 32,
                                       1ull << 40, 1ull << 60, 1ull << 62, 1ull << 63,
                                       INT64_MAX,  UINT64_MAX};
    switch (rng_below(rng, 6)) {
    case 0: return old + 1;
    case 1: return old - 1;
    case 2: return old * 2;
    case 3: return rng_below(rng, 4096);
    default: return numbers[rng_below(rng, sizeof numbers / sizeof *numbers)];
    }
}

/* Keeps the length. */
static void set_text(const struct base *base, const struct field *field, struct buf *out,
                     struct rng *rng) {
    static const char letters[] = " aA0#<|>_/\xE2\x96\x81\xC4\xA0\xFF\n\0{%\"";
    const struct field *other = &base->fields[rng_below(rng, base->field_count)];
    size_t bytes = field->bytes < other->bytes ? field->bytes : other->bytes;
    if (rng_below(rng, 2) == 0 && other->is_text)
        memcpy(out->at + field->at, base->bytes + other->at, bytes);
    else
        out->at[field->at + rng_below(rng, field->bytes)] =
            letters[rng_below(rng, sizeof letters - 1)];
}

static void set_field(const struct base *base, struct buf *out, struct rng *rng) {
    const struct field *field = &base->fields[rng_below(rng, base->field_count)];
    uint64_t value = 0;
    if (field->at + field->bytes > out->bytes) return;
    if (field->is_text) {
        set_text(base, field, out, rng);
        return;
    }
    memcpy(&value, out->at + field->at, field->bytes);
    value = odd_number(value, rng);
    memcpy(out->at + field->at, &value, field->bytes);
}

static void swap_fields(const struct base *base, struct buf *out, struct rng *rng) {
    const struct field *a = &base->fields[rng_below(rng, base->field_count)];
    const struct field *b = &base->fields[rng_below(rng, base->field_count)];
    char kept[8];
    size_t bytes = a->bytes < b->bytes ? a->bytes : b->bytes;
    if (bytes > sizeof kept) bytes = sizeof kept;
    if (a->at + bytes > out->bytes || b->at + bytes > out->bytes) return;
    memcpy(kept, out->at + a->at, bytes);
    memmove(out->at + a->at, out->at + b->at, bytes);
    memcpy(out->at + b->at, kept, bytes);
}

/* ---- mutations of a text ---- */

static bool is_digit(char byte) {
    return byte >= '0' && byte <= '9';
}

static void set_number(const struct base *base, struct buf *out, struct rng *rng) {
    size_t at = place(base, out, rng), end;
    while (at < out->bytes && !is_digit(out->at[at])) at++;
    for (end = at; end < out->bytes && is_digit(out->at[end]);) end++;
    char digits[64];
    static const char *const texts[] = {"-1",   "1e999",     "0.5",  "1e-999", "\"7\"", "null",
                                        "true", "{\"a\":1}", "[[]]", "NaN",    "'x'*9"};
    if (rng_below(rng, 2) == 0)
        snprintf(digits, sizeof digits, "%llu", (unsigned long long)odd_number(at, rng));
    else
        snprintf(digits, sizeof digits, "%s", texts[rng_below(rng, sizeof texts / sizeof *texts)]);
    replace(out, at, end - at, str_from(digits));
}

/* A quoted text from `at` on, with its quotes; empty without one. */
static struct str quoted_after(struct str text, size_t at) {
    size_t start = at < text.bytes ? str_find_byte(text, '"', at) : SIZE_MAX;
    size_t end = start < text.bytes - 1 ? str_find_byte(text, '"', start + 1) : SIZE_MAX;
    return end == SIZE_MAX ? (struct str){text.at, 0}
                           : (struct str){text.at + start, end - start + 1};
}

/* One of its texts becomes another, or one that means something somewhere. */
static void set_string(const struct base *base, const struct base *other, struct buf *out,
                       struct rng *rng) {
    static const char *const words[] = {"\"\"",
                                        "\"F32\"",
                                        "\"BF16\"",
                                        "\"F8_E4M3\"",
                                        "\"I32\"",
                                        "\"U8\"",
                                        "\"BPE\"",
                                        "\"WordPiece\"",
                                        "\"ByteLevel\"",
                                        "\"Metaspace\"",
                                        "\"llama\"",
                                        "\"qwen3\"",
                                        "\"gemma3_text\"",
                                        "\"bert\"",
                                        "\"mistral\"",
                                        "\"type\"",
                                        "\"shape\"",
                                        "\"__metadata__\"",
                                        "\"yarn\"",
                                        "\"fp8\"",
                                        "\"../../x\"",
                                        "\"\\u0000\"",
                                        "\"\\ud800\"",
                                        "\"model\"",
                                        "[]",
                                        "{}",
                                        "null",
                                        "1e308",
                                        "\"quantization_config\""};
    struct str old = quoted_after(buf_str(out), place(base, out, rng));
    struct str new = str_from(words[rng_below(rng, sizeof words / sizeof *words)]);
    if (rng_below(rng, 2) == 0)
        new = quoted_after((struct str){other->bytes, other->head_bytes},
                           rng_below(rng, other->head_bytes));
    if (old.bytes > 0) replace(out, (size_t)(old.at - out->at), old.bytes, new);
}

static void nest(const struct base *base, struct buf *out, struct rng *rng) {
    static const char *const openings[] = {
        "[",          "{\"a\":",          "(",        "{{ (",  "-",           "not ",
        "{% if a %}", "{% for a in b %}", "a|first|", "a.b[",  "{% set a %}", "{%- macro m() %}",
        "\\u00e9",    "\xE2\x96\x81",     "{#",       "'a' ~ "};
    const char *opening = openings[rng_below(rng, sizeof openings / sizeof *openings)];
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    for (size_t count = length(rng, 8192); count > 0; count--) buf_add_text(&text, opening);
    replace(out, place(base, out, rng), 0, buf_str(&text));
    buf_release(&text);
}

static void loop_often(const struct base *base, struct buf *out, struct rng *rng) {
    static const char *const loops[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ a ~ b }}{% endfor %}{% endfor %}",
        "{% set n = namespace(x='x') %}{% for a in range(99) %}{% set n.x = n.x~n.x %}{% endfor %}",
        "{% macro m(a) %}{{ m(a) }}{{ m(a) }}{% endmacro %}{{ m(1) }}",
        "{{ ('x' * 200000)|replace('x', 'yy')|list|join(',')|length }}",
        "{% for m in messages %}{% for n in messages %}{{ m|tojson }}{% endfor %}{% endfor %}",
        "{{ range(99999)|list|sort|unique|list|tojson }}",
    };
    replace(out, place(base, out, rng), 0,
            str_from(loops[rng_below(rng, sizeof loops / sizeof *loops)]));
}

/* ---- all of them ---- */

static void mutate_numbers(const struct base *base, struct buf *out, struct rng *rng) {
    bool is_binary = base->kind == BASE_GGUF;
    uint64_t how = rng_below(rng, 8);
    if (is_binary && base->field_count == 0)
        flip_bits(base, out, rng);
    else if (is_binary && how == 0)
        swap_fields(base, out, rng);
    else if (is_binary || (how == 0 && base->field_count > 0))
        set_field(base, out, rng);
    else if (base->kind == BASE_TEMPLATE && how == 0)
        loop_often(base, out, rng);
    else if (how < 3)
        nest(base, out, rng);
    else
        set_number(base, out, rng);
}

static void mutate_once(const struct base *base, const struct base *other, struct rng *rng,
                        struct buf *out) {
    bool is_json = base->kind == BASE_FOLDER || base->kind == BASE_TOKENIZER;
    if (is_json && rng_below(rng, 2) == 0) {
        if (rng_below(rng, 2) == 0)
            set_string(base, other, out, rng);
        else
            set_number(base, out, rng);
        return;
    }
    switch (rng_below(rng, 12)) {
    case 0:
    case 1: flip_bits(base, out, rng); break;
    case 2: overwrite(base, out, rng); break;
    case 3: truncate_at(base, out, rng); break;
    case 4: delete_chunk(base, out, rng); break;
    case 5: insert_copy(base, base, out, rng); break;
    case 6: insert_copy(other, base, out, rng); break;
    case 7: splice(other, base, out, rng); break;
    default: mutate_numbers(base, out, rng); break;
    }
}

void mutate(const struct base *base, const struct base *other, struct rng *rng, struct buf *out) {
    buf_clear(out);
    buf_add(out, base->bytes, base->count);
    uint64_t count = rng_below(rng, 4) > 0 ? 1 : 2 + rng_below(rng, 3);
    for (; count > 0; count--) mutate_once(base, other, rng, out);
    /* A reader looks at the header only when its length fits. */
    uint64_t header_bytes;
    if (base->kind != BASE_FOLDER || base->field_count == 0 || rng_below(rng, 4) == 0) return;
    if (out->bytes < sizeof header_bytes) return;
    header_bytes = base->head_bytes + out->bytes - base->count - sizeof header_bytes;
    memcpy(out->at, &header_bytes, sizeof header_bytes);
}
