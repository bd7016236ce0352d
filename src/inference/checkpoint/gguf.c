/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/gguf.h"

#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "checkpoint/mapped.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT_DEFAULT 32
/* The fewest bytes of a pair (a key of one byte, a value of one) and of a tensor (a name of one
 * byte, one axis): the bytes left in the file bound their counts. */
#define PAIR_BYTES_MIN (8 + 1 + 4 + 1)
#define TENSOR_BYTES_MIN (8 + 1 + 4 + 8 + 4 + 8)
#define NAME_SHOWN_BYTES 80
/* The arguments of "%.*s" for a name from the file, cut to fit into a sentence. */
#define SHOW(name)                                                                                 \
    (int)((name).bytes < NAME_SHOWN_BYTES ? (name).bytes : NAME_SHOWN_BYTES), (name).at

struct gguf {
    const unsigned char *bytes;
    uint64_t byte_count;
    bool is_mapped;
    uint32_t version;
    uint64_t alignment;
    struct gguf_pair *pairs;
    size_t pair_count;
    struct gguf_tensor *tensors;
    size_t tensor_count;
    struct map pair_by_key;
    struct map tensor_by_name;
    struct gguf **others; /* (other_count) the other parts of a model in several files */
    size_t other_count;
    size_t other_capacity;
};

/* The place of the reader. Every read is bounded by the bytes left. */
struct gguf_cursor {
    const unsigned char *bytes;
    uint64_t count;
    uint64_t at;
};

static uint64_t left(const struct gguf_cursor *cursor) {
    return cursor->count - cursor->at;
}

static bool take(struct gguf_cursor *cursor, uint64_t count, const unsigned char **ret_at) {
    if (count > left(cursor)) return false;
    *ret_at = cursor->bytes + cursor->at;
    cursor->at += count;
    return true;
}

static bool take_u32(struct gguf_cursor *cursor, uint32_t *ret_value) {
    const unsigned char *at;
    if (!take(cursor, sizeof *ret_value, &at)) return false;
    memcpy(ret_value, at, sizeof *ret_value);
    return true;
}

static bool take_u64(struct gguf_cursor *cursor, uint64_t *ret_value) {
    const unsigned char *at;
    if (!take(cursor, sizeof *ret_value, &at)) return false;
    memcpy(ret_value, at, sizeof *ret_value);
    return true;
}

static bool take_str(struct gguf_cursor *cursor, struct str *ret_text) {
    uint64_t bytes;
    const unsigned char *at;
    if (!take_u64(cursor, &bytes) || !take(cursor, bytes, &at)) return false;
    *ret_text = (struct str){(const char *)at, (size_t)bytes};
    return true;
}

/* Bytes of one element; 0 for strings, which have a length of their own, and for kinds that no
 * element has. */
static uint64_t element_bytes(uint32_t kind) {
    static const unsigned char bytes[GGUF_KIND_COUNT] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2, [GGUF_I16] = 2,
        [GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1,
        [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8};
    return kind < GGUF_KIND_COUNT ? bytes[kind] : 0;
}

static bool bools_are_valid(const unsigned char *at, uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        if (at[i] > 1) return false;
    return true;
}

static enum err take_array(struct gguf_cursor *cursor, struct str key, struct gguf_value *value,
                           struct error *error) {
    uint32_t element;
    if (!take_u32(cursor, &element) || !take_u64(cursor, &value->count))
        return err_set(error, ERR_INVALID, "key %.*s: the file ends inside its value", SHOW(key));
    if (element == GGUF_ARRAY)
        return err_set(error, ERR_INVALID, "key %.*s: an array of arrays is not supported",
                       SHOW(key));
    if (element >= GGUF_KIND_COUNT)
        return err_set(error, ERR_INVALID, "key %.*s: unknown element type %u", SHOW(key), element);
    value->element = (enum gguf_kind)element;
    value->at = cursor->bytes + cursor->at;
    /* A string takes at least its 8-byte length, so this also bounds the walk below. */
    uint64_t each = element == GGUF_STRING ? 8 : element_bytes(element);
    if (value->count > left(cursor) / each)
        return err_set(error, ERR_INVALID,
                       "key %.*s: an array of %llu elements does not fit into the %llu bytes left",
                       SHOW(key), (unsigned long long)value->count,
                       (unsigned long long)left(cursor));
    if (value->count > GGUF_ARRAY_MAX)
        return err_set(error, ERR_INVALID, "key %.*s: an array of %llu elements, more than %u",
                       SHOW(key), (unsigned long long)value->count, GGUF_ARRAY_MAX);
    if (element != GGUF_STRING) {
        const unsigned char *at = NULL;
        bool fits = take(cursor, value->count * each, &at);
        assert(fits);
        if (element == GGUF_BOOL && !bools_are_valid(at, value->count))
            return err_set(error, ERR_INVALID, "key %.*s: a bool is neither 0 nor 1", SHOW(key));
        return OK;
    }
    struct str text;
    for (uint64_t i = 0; i < value->count; i++)
        if (!take_str(cursor, &text))
            return err_set(error, ERR_INVALID,
                           "key %.*s: string %llu goes past the end of the file", SHOW(key),
                           (unsigned long long)i);
    return OK;
}

static enum err take_value(struct gguf_cursor *cursor, struct str key, struct gguf_value *ret_value,
                           struct error *error) {
    uint32_t kind;
    if (!take_u32(cursor, &kind))
        return err_set(error, ERR_INVALID, "key %.*s: the file ends before its type", SHOW(key));
    if (kind >= GGUF_KIND_COUNT)
        return err_set(error, ERR_INVALID, "key %.*s: unknown type %u", SHOW(key), kind);
    struct gguf_value value = {.kind = (enum gguf_kind)kind, .count = 1};
    value.at = cursor->bytes + cursor->at;
    if (kind == GGUF_ARRAY) {
        enum err err = take_array(cursor, key, &value, error);
        if (err != OK) return err;
    } else {
        struct str text;
        const unsigned char *at;
        bool fits =
            kind == GGUF_STRING ? take_str(cursor, &text) : take(cursor, element_bytes(kind), &at);
        if (!fits)
            return err_set(error, ERR_INVALID, "key %.*s: its value goes past the end of the file",
                           SHOW(key));
        if (kind == GGUF_BOOL && !bools_are_valid(value.at, 1))
            return err_set(error, ERR_INVALID, "key %.*s: a bool is neither 0 nor 1", SHOW(key));
    }
    value.bytes = (uint64_t)(cursor->bytes + cursor->at - value.at);
    *ret_value = value;
    return OK;
}

static bool key_is_printable(struct str key) {
    for (size_t i = 0; i < key.bytes; i++)
        if ((unsigned char)key.at[i] < 0x20 || (unsigned char)key.at[i] > 0x7E) return false;
    return true;
}

static enum err take_pair(struct gguf *gguf, struct gguf_cursor *cursor, size_t index,
                          struct error *error) {
    struct gguf_pair *pair = &gguf->pairs[index];
    if (!take_str(cursor, &pair->key))
        return err_set(error, ERR_INVALID, "key %zu goes past the end of the file", index);
    if (pair->key.bytes == 0) return err_set(error, ERR_INVALID, "key %zu is empty", index);
    if (pair->key.bytes > GGUF_KEY_BYTES_MAX)
        return err_set(error, ERR_INVALID, "key %zu is %zu bytes long, more than %d", index,
                       pair->key.bytes, GGUF_KEY_BYTES_MAX);
    if (!key_is_printable(pair->key))
        return err_set(error, ERR_INVALID, "key %zu is not printable ASCII", index);
    if (!map_put_new(&gguf->pair_by_key, pair->key, index, NULL))
        return err_set(error, ERR_INVALID, "key %.*s is there twice", SHOW(pair->key));
    return take_value(cursor, pair->key, &pair->value, error);
}

static bool name_is_printable(struct str name) {
    for (size_t i = 0; i < name.bytes; i++)
        if ((unsigned char)name.at[i] < 0x20 || name.at[i] == 0x7F) return false;
    return utf8_is_valid(name);
}

static enum err take_name(struct gguf *gguf, struct gguf_cursor *cursor, size_t index,
                          struct error *error) {
    struct str name;
    if (!take_str(cursor, &name))
        return err_set(error, ERR_INVALID, "the name of tensor %zu goes past the end of the file",
                       index);
    if (name.bytes == 0 || name.bytes > GGUF_NAME_BYTES_MAX)
        return err_set(error, ERR_INVALID, "the name of tensor %zu is %zu bytes long, not 1..%d",
                       index, name.bytes, GGUF_NAME_BYTES_MAX);
    if (!name_is_printable(name))
        return err_set(error, ERR_INVALID, "the name of tensor %zu is not printable UTF-8", index);
    if (!map_put_new(&gguf->tensor_by_name, name, index, NULL))
        return err_set(error, ERR_INVALID, "tensor %.*s is there twice", SHOW(name));
    gguf->tensors[index].name = name;
    return OK;
}

static enum err take_axes(struct gguf_cursor *cursor, struct gguf_tensor *tensor,
                          struct error *error) {
    if (!take_u32(cursor, &tensor->axis_count))
        return err_set(error, ERR_INVALID, "tensor %.*s: the file ends inside its description",
                       SHOW(tensor->name));
    if (tensor->axis_count == 0 || tensor->axis_count > GGUF_AXES_MAX)
        return err_set(error, ERR_INVALID, "tensor %.*s has %u axes, not 1..%d", SHOW(tensor->name),
                       tensor->axis_count, GGUF_AXES_MAX);
    for (uint32_t i = 0; i < GGUF_AXES_MAX; i++) {
        tensor->axes[i] = 1;
        if (i >= tensor->axis_count) continue;
        if (!take_u64(cursor, &tensor->axes[i]))
            return err_set(error, ERR_INVALID, "tensor %.*s: the file ends inside its description",
                           SHOW(tensor->name));
        if (tensor->axes[i] == 0 && tensor->axis_count > 1) /* a vector may be empty */
            return err_set(error, ERR_INVALID, "tensor %.*s: axis %u is zero", SHOW(tensor->name),
                           i);
    }
    return OK;
}

/* The bytes of the tensor from its axes and type; every product is checked. */
static enum err size_tensor(struct gguf_tensor *tensor, struct error *error) {
    const struct gguf_type *type = gguf_type_find(tensor->type);
    if (!type)
        return err_set(error, ERR_INVALID, "tensor %.*s has the unknown or retired type %u",
                       SHOW(tensor->name), tensor->type);
    if (tensor->axes[0] % type->block_elements != 0)
        return err_set(error, ERR_INVALID,
                       "tensor %.*s: rows of %llu elements are no multiple of the %u of a %s block",
                       SHOW(tensor->name), (unsigned long long)tensor->axes[0],
                       type->block_elements, type->name);
    int64_t elements = 1;
    bool fits = true;
    for (uint32_t i = 0; i < tensor->axis_count; i++)
        fits = fits && !__builtin_mul_overflow(elements, tensor->axes[i], &elements);
    fits = fits && !__builtin_mul_overflow(tensor->axes[0] / type->block_elements,
                                           (uint64_t)type->block_bytes, &tensor->row_bytes);
    fits = fits && !__builtin_mul_overflow((uint64_t)elements / type->block_elements,
                                           (uint64_t)type->block_bytes, &tensor->bytes);
    if (!fits)
        return err_set(error, ERR_INVALID, "tensor %.*s: the product of its axes overflows",
                       SHOW(tensor->name));
    return OK;
}

static enum err take_tensor(struct gguf *gguf, struct gguf_cursor *cursor, size_t index,
                            uint64_t *ret_offset, struct error *error) {
    struct gguf_tensor *tensor = &gguf->tensors[index];
    enum err err = take_name(gguf, cursor, index, error);
    if (err == OK) err = take_axes(cursor, tensor, error);
    if (err != OK) return err;
    if (!take_u32(cursor, &tensor->type) || !take_u64(cursor, ret_offset))
        return err_set(error, ERR_INVALID, "tensor %.*s: the file ends inside its description",
                       SHOW(tensor->name));
    if (*ret_offset % gguf->alignment != 0)
        return err_set(error, ERR_INVALID, "tensor %.*s: offset %llu is no multiple of %llu",
                       SHOW(tensor->name), (unsigned long long)*ret_offset,
                       (unsigned long long)gguf->alignment);
    return size_tensor(tensor, error);
}

/* Gives every tensor its bytes, once the end of the descriptions says where the data starts. */
static enum err place_tensors(struct gguf *gguf, uint64_t header_bytes, const uint64_t *offsets,
                              struct error *error) {
    /* Neither term passes 2^63, so that the sum cannot wrap. */
    uint64_t start = (header_bytes + gguf->alignment - 1) & ~(gguf->alignment - 1);
    for (size_t i = 0; i < gguf->tensor_count; i++) {
        struct gguf_tensor *tensor = &gguf->tensors[i];
        uint64_t from, to;
        if (__builtin_add_overflow(start, offsets[i], &from) ||
            __builtin_add_overflow(from, tensor->bytes, &to) || to > gguf->byte_count)
            return err_set(error, ERR_INVALID,
                           "tensor %.*s: %llu bytes at offset %llu go past the end of the file",
                           SHOW(tensor->name), (unsigned long long)tensor->bytes,
                           (unsigned long long)offsets[i]);
        tensor->at = gguf->bytes + from;
    }
    return OK;
}

/* An empty tensor comes before the one that begins at the same place. */
static int compare_places(const void *a, const void *b) {
    const struct gguf_tensor *first = *(const struct gguf_tensor *const *)a;
    const struct gguf_tensor *second = *(const struct gguf_tensor *const *)b;
    if (first->at != second->at) return first->at > second->at ? 1 : -1;
    return (first->bytes > second->bytes) - (first->bytes < second->bytes);
}

static enum err check_overlaps(const struct gguf *gguf, struct error *error) {
    if (gguf->tensor_count == 0) return OK;
    const struct gguf_tensor **sorted = mem_new(gguf->tensor_count, sizeof *sorted);
    for (size_t i = 0; i < gguf->tensor_count; i++) sorted[i] = &gguf->tensors[i];
    qsort(sorted, gguf->tensor_count, sizeof *sorted, compare_places);
    enum err err = OK;
    for (size_t i = 1; i < gguf->tensor_count && err == OK; i++)
        if (sorted[i - 1]->at + sorted[i - 1]->bytes > sorted[i]->at)
            err = err_set(error, ERR_INVALID, "tensors %.*s and %.*s overlap",
                          SHOW(sorted[i - 1]->name), SHOW(sorted[i]->name));
    free(sorted);
    return err;
}

static enum err read_alignment(struct gguf *gguf, struct error *error) {
    static const char key[] = "general.alignment";
    gguf->alignment = ALIGNMENT_DEFAULT;
    const struct gguf_value *value = gguf_find(gguf, key);
    if (!value) return OK;
    if (value->kind != GGUF_U32) return err_set(error, ERR_INVALID, "%s is not of type u32", key);
    enum err err = gguf_get_u64(gguf, key, &gguf->alignment, error);
    if (err != OK) return err;
    if (gguf->alignment == 0 || (gguf->alignment & (gguf->alignment - 1)) != 0)
        return err_set(error, ERR_INVALID, "%s is no power of two: %llu", key,
                       (unsigned long long)gguf->alignment);
    return OK;
}

/* Reads magic, version and the two counts, which must be possible in the bytes left. */
static enum err take_header(struct gguf *gguf, struct gguf_cursor *cursor, struct error *error) {
    const unsigned char *magic;
    if (!take(cursor, 4, &magic) || memcmp(magic, "GGUF", 4) != 0)
        return err_set(error, ERR_INVALID, "this is no GGUF file: it does not start with GGUF");
    uint64_t tensor_count, pair_count;
    if (!take_u32(cursor, &gguf->version) || !take_u64(cursor, &tensor_count) ||
        !take_u64(cursor, &pair_count))
        return err_set(error, ERR_INVALID, "the file ends inside the GGUF header");
    if (gguf->version != 0 && (gguf->version & 0xFFFF) == 0)
        return err_set(error, ERR_INVALID, "this is a big-endian GGUF file");
    if (gguf->version != 2 && gguf->version != 3)
        return err_set(error, ERR_INVALID, "GGUF version %u is not supported (2 and 3 are)",
                       gguf->version);
    if (pair_count > GGUF_KEYS_MAX || pair_count > left(cursor) / PAIR_BYTES_MIN)
        return err_set(
            error, ERR_INVALID,
            "the header claims %llu keys, more than the file can hold or the limit of %d",
            (unsigned long long)pair_count, GGUF_KEYS_MAX);
    if (tensor_count > GGUF_TENSORS_MAX || tensor_count > left(cursor) / TENSOR_BYTES_MIN)
        return err_set(
            error, ERR_INVALID,
            "the header claims %llu tensors, more than the file can hold or the limit of %d",
            (unsigned long long)tensor_count, GGUF_TENSORS_MAX);
    gguf->pair_count = (size_t)pair_count;
    gguf->tensor_count = (size_t)tensor_count;
    return OK;
}

static enum err read_all(struct gguf *gguf, struct error *error) {
    struct gguf_cursor cursor = {.bytes = gguf->bytes, .count = gguf->byte_count};
    enum err err = take_header(gguf, &cursor, error);
    if (err != OK) return err;
    gguf->pairs = mem_new(gguf->pair_count + 1, sizeof *gguf->pairs);
    gguf->tensors = mem_new(gguf->tensor_count + 1, sizeof *gguf->tensors);
    uint64_t *offsets = mem_new(gguf->tensor_count + 1, sizeof *offsets);
    for (size_t i = 0; i < gguf->pair_count && err == OK; i++)
        err = take_pair(gguf, &cursor, i, error);
    if (err == OK) err = read_alignment(gguf, error);
    for (size_t i = 0; i < gguf->tensor_count && err == OK; i++)
        err = take_tensor(gguf, &cursor, i, &offsets[i], error);
    if (err == OK) err = place_tensors(gguf, cursor.at, offsets, error);
    if (err == OK) err = check_overlaps(gguf, error);
    free(offsets);
    return err;
}

static enum err open_over(struct gguf **ret_gguf, const void *bytes, uint64_t count, bool is_mapped,
                          struct error *error) {
    struct gguf *gguf = mem_new(1, sizeof *gguf);
    gguf->bytes = bytes;
    gguf->byte_count = count;
    gguf->is_mapped = is_mapped;
    map_init(&gguf->pair_by_key);
    map_init(&gguf->tensor_by_name);
    enum err err = read_all(gguf, error);
    if (err != OK) {
        gguf_close(gguf);
        return err;
    }
    *ret_gguf = gguf;
    return OK;
}

enum err gguf_open_bytes(struct gguf **ret_gguf, const void *bytes, size_t count,
                         struct error *error) {
    return open_over(ret_gguf, bytes, count, false, error);
}

enum err gguf_open_file(struct gguf **ret_gguf, const char *path, struct error *error) {
    struct mapped mapped;
    enum err err = mapped_open(&mapped, path, "GGUF", error);
    return err == OK ? open_over(ret_gguf, mapped.bytes, mapped.count, true, error) : err;
}

enum err gguf_join(struct gguf *whole, struct gguf *part, struct error *error) {
    size_t count = whole->tensor_count + part->tensor_count;
    for (size_t i = 0; i < part->tensor_count; i++)
        if (gguf_tensor_find(whole, part->tensors[i].name))
            return err_set(error, ERR_INVALID, "tensor %.*s is in two parts",
                           SHOW(part->tensors[i].name));
    if (count > GGUF_TENSORS_MAX)
        return err_set(error, ERR_INVALID, "the parts have over %d tensors", GGUF_TENSORS_MAX);
    whole->tensors = mem_resize(whole->tensors, count + 1, sizeof *whole->tensors);
    for (size_t i = 0; i < part->tensor_count; i++) {
        const struct gguf_tensor *tensor = &part->tensors[i];
        map_put(&whole->tensor_by_name, tensor->name, whole->tensor_count);
        whole->tensors[whole->tensor_count++] = *tensor;
    }
    whole->others =
        vec_grow(whole->others, whole->other_count, &whole->other_capacity, sizeof(struct gguf *));
    whole->others[whole->other_count++] = part;
    return OK;
}

void gguf_close(struct gguf *gguf) {
    if (!gguf) return;
    for (size_t i = 0; i < gguf->other_count; i++) gguf_close(gguf->others[i]);
    free(gguf->others);
    map_release(&gguf->pair_by_key);
    map_release(&gguf->tensor_by_name);
    free(gguf->pairs);
    free(gguf->tensors);
    if (gguf->is_mapped) mapped_close(&(struct mapped){gguf->bytes, gguf->byte_count});
    free(gguf);
}

uint64_t gguf_file_bytes(const struct gguf *gguf) {
    uint64_t bytes = gguf->byte_count;
    for (size_t i = 0; i < gguf->other_count; i++) bytes += gguf->others[i]->byte_count;
    return bytes;
}

size_t gguf_part_count(const struct gguf *gguf) {
    return gguf->other_count + 1;
}

size_t gguf_pair_count(const struct gguf *gguf) {
    return gguf->pair_count;
}

const struct gguf_pair *gguf_pair_at(const struct gguf *gguf, size_t index) {
    assert(index < gguf->pair_count);
    return &gguf->pairs[index];
}

size_t gguf_tensor_count(const struct gguf *gguf) {
    return gguf->tensor_count;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *gguf, size_t index) {
    assert(index < gguf->tensor_count);
    return &gguf->tensors[index];
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *gguf, struct str name) {
    uint64_t index;
    return map_get(&gguf->tensor_by_name, name, &index) ? &gguf->tensors[index] : NULL;
}

void gguf_drop_pages(const struct gguf *gguf, const struct gguf_tensor *tensor) {
    if (!gguf->is_mapped) return;
    mapped_drop_pages(tensor->at, tensor->bytes);
}

const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key) {
    uint64_t index;
    if (!map_get(&gguf->pair_by_key, str_from(key), &index)) return NULL;
    return &gguf->pairs[index].value;
}
