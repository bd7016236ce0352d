/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/safetensors.h"

#include "base/map.h"
#include "base/mem.h"
#include "checkpoint/mapped.h"
#include "json/span.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES 8 /* the file starts with the header's length */
#define NAME_SHOWN_BYTES 80
/* The arguments of "%.*s" for a name from the file, cut to fit into a sentence. */
#define SHOW(name)                                                                                 \
    (int)((name).bytes < NAME_SHOWN_BYTES ? (name).bytes : NAME_SHOWN_BYTES), (name).at

struct safetensors {
    const unsigned char *bytes;
    uint64_t byte_count;
    bool is_mapped;
    const unsigned char *data; /* behind the header */
    uint64_t data_bytes;
    struct safetensors_tensor *tensors;
    size_t tensor_count;
    struct map tensor_by_name;
    struct arena names;
};

/* The names and sizes of the format's types. */
static const struct {
    const char *name;
    uint32_t bits;
} types[SAFETENSORS_TYPE_COUNT] = {
    [SAFETENSORS_BOOL] = {"BOOL", 8},
    [SAFETENSORS_F4] = {"F4", 4},
    [SAFETENSORS_F6_E2M3] = {"F6_E2M3", 6},
    [SAFETENSORS_F6_E3M2] = {"F6_E3M2", 6},
    [SAFETENSORS_U8] = {"U8", 8},
    [SAFETENSORS_I8] = {"I8", 8},
    [SAFETENSORS_F8_E5M2] = {"F8_E5M2", 8},
    [SAFETENSORS_F8_E4M3] = {"F8_E4M3", 8},
    [SAFETENSORS_F8_E8M0] = {"F8_E8M0", 8},
    [SAFETENSORS_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [SAFETENSORS_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [SAFETENSORS_I16] = {"I16", 16},
    [SAFETENSORS_U16] = {"U16", 16},
    [SAFETENSORS_F16] = {"F16", 16},
    [SAFETENSORS_BF16] = {"BF16", 16},
    [SAFETENSORS_I32] = {"I32", 32},
    [SAFETENSORS_U32] = {"U32", 32},
    [SAFETENSORS_F32] = {"F32", 32},
    [SAFETENSORS_C64] = {"C64", 64},
    [SAFETENSORS_F64] = {"F64", 64},
    [SAFETENSORS_I64] = {"I64", 64},
    [SAFETENSORS_U64] = {"U64", 64},
};

const char *safetensors_type_name(enum safetensors_type type) {
    return types[type].name;
}

/* Long strings are not decoded only to be compared. */
static bool is_string(struct str raw, const char *text) {
    return raw.bytes < 256 && json_span_is_string(raw) && json_span_string_is(raw, text);
}

/* The members of one entry of the header, as raw JSON. */
struct header_entry {
    struct str type;
    struct str shape;
    struct str offsets;
};

static enum err take_member(struct header_entry *entry, struct str name, struct str key,
                            struct str value, struct error *error) {
    const struct {
        const char *key;
        struct str *place;
    } members[] = {
        {"dtype", &entry->type}, {"shape", &entry->shape}, {"data_offsets", &entry->offsets}};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        if (!is_string(key, members[i].key)) continue;
        if (members[i].place->at)
            return err_set(error, ERR_INVALID, "tensor %.*s has its %s twice", SHOW(name),
                           members[i].key);
        *members[i].place = value;
    }
    return OK; /* others are passed over, as the reference library does */
}

static enum err read_entry(struct str name, struct str value, struct header_entry *ret_entry,
                           struct error *error) {
    struct json_span_iter iter;
    struct str key, member;
    if (!json_span_is_object(value) || !json_span_enter(&iter, value))
        return err_set(error, ERR_INVALID, "tensor %.*s is described by no object", SHOW(name));
    while (json_span_member(&iter, &key, &member)) {
        enum err err = take_member(ret_entry, name, key, member, error);
        if (err != OK) return err;
    }
    const char *missing = !ret_entry->type.at      ? "dtype"
                          : !ret_entry->shape.at   ? "shape"
                          : !ret_entry->offsets.at ? "data_offsets"
                                                   : NULL;
    if (missing) return err_set(error, ERR_INVALID, "tensor %.*s has no %s", SHOW(name), missing);
    return OK;
}

static enum err read_type(struct safetensors_tensor *tensor, struct str text, struct error *error) {
    for (int i = 0; i < SAFETENSORS_TYPE_COUNT; i++)
        if (is_string(text, types[i].name)) {
            tensor->type = (enum safetensors_type)i;
            return OK;
        }
    if (!json_span_is_string(text))
        return err_set(error, ERR_INVALID, "tensor %.*s: its dtype is no string",
                       SHOW(tensor->name));
    return err_set(error, ERR_INVALID, "tensor %.*s has the unknown dtype %.*s", SHOW(tensor->name),
                   SHOW(text));
}

/* Reads a list of up to `max` counts. False for anything else. */
static bool read_counts(struct str text, size_t max, uint64_t *ret_counts, size_t *ret_count) {
    struct json_span_iter iter;
    struct str element;
    size_t count = 0;
    if (json_span_is_object(text) || !json_span_enter(&iter, text)) return false;
    while (json_span_element(&iter, &element))
        if (count == max || !str_to_u64(element, &ret_counts[count++])) return false;
    *ret_count = count;
    return true;
}

/* The shape, and the bytes that follow from it; every product is checked. */
static enum err read_shape(struct safetensors_tensor *tensor, struct str text,
                           struct error *error) {
    size_t count = 0;
    for (int i = 0; i < SAFETENSORS_AXES_MAX; i++) tensor->axes[i] = 1;
    uint64_t axes[SAFETENSORS_AXES_MAX];
    if (!read_counts(text, SAFETENSORS_AXES_MAX, axes, &count))
        return err_set(error, ERR_INVALID, "tensor %.*s: its shape is no list of up to %d counts",
                       SHOW(tensor->name), SAFETENSORS_AXES_MAX);
    memcpy(tensor->axes, axes, count * sizeof *axes);
    tensor->axis_count = (uint32_t)count;
    uint64_t bits = types[tensor->type].bits;
    for (size_t i = 0; i < count; i++)
        if (__builtin_mul_overflow(bits, axes[i], &bits))
            return err_set(error, ERR_INVALID, "tensor %.*s: the product of its shape overflows",
                           SHOW(tensor->name));
    if (bits % 8 != 0)
        return err_set(error, ERR_INVALID, "tensor %.*s: %s elements do not fill whole bytes",
                       SHOW(tensor->name), types[tensor->type].name);
    tensor->bytes = bits / 8;
    return OK;
}

/* Where the tensor lies; that they lie one behind the other is checked when all are known. */
static enum err read_offsets(const struct safetensors *file, struct safetensors_tensor *tensor,
                             struct str text, struct error *error) {
    uint64_t offsets[2];
    size_t count = 0;
    if (!read_counts(text, 2, offsets, &count) || count != 2)
        return err_set(error, ERR_INVALID, "tensor %.*s: its data_offsets are no two counts",
                       SHOW(tensor->name));
    if (offsets[0] > offsets[1] || offsets[1] > file->data_bytes)
        return err_set(error, ERR_INVALID,
                       "tensor %.*s: data_offsets %llu to %llu are not within the %llu bytes of "
                       "data",
                       SHOW(tensor->name), (unsigned long long)offsets[0],
                       (unsigned long long)offsets[1], (unsigned long long)file->data_bytes);
    if (offsets[1] - offsets[0] != tensor->bytes)
        return err_set(error, ERR_INVALID,
                       "tensor %.*s: data_offsets span %llu bytes, but its shape takes %llu",
                       SHOW(tensor->name), (unsigned long long)(offsets[1] - offsets[0]),
                       (unsigned long long)tensor->bytes);
    tensor->at = file->data + offsets[0];
    return OK;
}

/* `key` is the raw string with its quotes. */
static enum err read_name(struct safetensors *file, struct str key, struct buf *scratch,
                          struct str *ret_name, struct error *error) {
    size_t index = file->tensor_count;
    buf_clear(scratch);
    json_span_decode(scratch, key);
    struct str name = buf_str(scratch);
    if (scratch->overflowed || name.bytes == 0 || name.bytes > SAFETENSORS_NAME_BYTES_MAX)
        return err_set(error, ERR_INVALID, "the name of tensor %zu is not 1 to %d bytes long",
                       index, SAFETENSORS_NAME_BYTES_MAX);
    for (size_t i = 0; i < name.bytes; i++)
        if ((unsigned char)name.at[i] < 0x20 || name.at[i] == 0x7F)
            return err_set(error, ERR_INVALID, "the name of tensor %zu is not printable", index);
    *ret_name = arena_copy(&file->names, name);
    if (!ret_name->at) abort(); /* the arena holds all names that the limits allow */
    if (!map_put_new(&file->tensor_by_name, *ret_name, index, NULL))
        return err_set(error, ERR_INVALID, "tensor %.*s is there twice", SHOW(*ret_name));
    return OK;
}

static enum err add_tensor(struct safetensors *file, struct str key, struct str value,
                           struct buf *scratch, struct error *error) {
    if (file->tensor_count == SAFETENSORS_TENSORS_MAX)
        return err_set(error, ERR_INVALID, "the header has more than %d tensors",
                       SAFETENSORS_TENSORS_MAX);
    struct safetensors_tensor tensor = {.axis_count = 0};
    struct header_entry entry = {.type = {NULL, 0}};
    enum err err = read_name(file, key, scratch, &tensor.name, error);
    if (err == OK) err = read_entry(tensor.name, value, &entry, error);
    if (err == OK) err = read_type(&tensor, entry.type, error);
    if (err == OK) err = read_shape(&tensor, entry.shape, error);
    if (err == OK) err = read_offsets(file, &tensor, entry.offsets, error);
    if (err != OK) return err;
    if ((file->tensor_count & (file->tensor_count - 1)) == 0) { /* 0 or a power of two */
        size_t capacity = file->tensor_count ? file->tensor_count * 2 : 1;
        struct safetensors_tensor *tensors =
            mem_resize(file->tensors, capacity, sizeof *file->tensors);
        file->tensors = tensors;
    }
    file->tensors[file->tensor_count++] = tensor;
    return OK;
}

/* Metadata is for readers of the file; only its form is checked. */
static enum err check_metadata(struct str value, struct error *error) {
    struct json_span_iter iter;
    struct str key, text;
    bool is_good = json_span_is_object(value) && json_span_enter(&iter, value);
    while (is_good && json_span_member(&iter, &key, &text)) is_good = json_span_is_string(text);
    return is_good ? OK : err_set(error, ERR_INVALID, "__metadata__ is no object of strings");
}

static enum err read_members(struct safetensors *file, struct str header, struct buf *scratch,
                             struct error *error) {
    struct json_span_iter iter;
    struct str key, value;
    bool saw_metadata = false;
    if (!json_span_is_object(header) || !json_span_enter(&iter, header))
        return err_set(error, ERR_INVALID, "the header is no JSON object");
    enum err err = OK;
    while (err == OK && json_span_member(&iter, &key, &value)) {
        if (!is_string(key, "__metadata__")) {
            err = add_tensor(file, key, value, scratch, error);
            continue;
        }
        if (saw_metadata) return err_set(error, ERR_INVALID, "__metadata__ is there twice");
        saw_metadata = true;
        err = check_metadata(value, error);
    }
    return err;
}

static int compare_places(const void *a, const void *b) {
    const struct safetensors_tensor *first = *(const struct safetensors_tensor *const *)a;
    const struct safetensors_tensor *second = *(const struct safetensors_tensor *const *)b;
    if (first->at != second->at) return first->at < second->at ? -1 : 1;
    return (first->bytes > second->bytes) - (first->bytes < second->bytes);
}

/* No hole, no overlap, nothing left over: bytes that no tensor owns could be anything. */
static enum err check_places(const struct safetensors *file, struct error *error) {
    const struct safetensors_tensor **sorted = mem_new(file->tensor_count + 1, sizeof *sorted);
    for (size_t i = 0; i < file->tensor_count; i++) sorted[i] = &file->tensors[i];
    qsort(sorted, file->tensor_count, sizeof *sorted, compare_places);
    const unsigned char *at = file->data;
    enum err err = OK;
    for (size_t i = 0; i < file->tensor_count && err == OK; i++) {
        if (sorted[i]->at != at)
            err = err_set(error, ERR_INVALID, "tensor %.*s %s", SHOW(sorted[i]->name),
                          sorted[i]->at < at ? "overlaps another"
                                             : "has a hole before it that no tensor fills");
        at = sorted[i]->at + sorted[i]->bytes;
    }
    free(sorted);
    if (err == OK && at != file->data + file->data_bytes)
        err = err_set(error, ERR_INVALID, "the last %llu bytes of the file belong to no tensor",
                      (unsigned long long)(file->data + file->data_bytes - at));
    return err;
}

/* The header's JSON, without the spaces that pad it. */
static enum err find_header(struct safetensors *file, struct str *ret_header, struct error *error) {
    uint64_t count;
    if (file->byte_count < LENGTH_BYTES)
        return err_set(error, ERR_INVALID, "this is no safetensors file: it has %llu bytes",
                       (unsigned long long)file->byte_count);
    memcpy(&count, file->bytes, sizeof count);
    if (count > SAFETENSORS_HEADER_BYTES_MAX)
        return err_set(error, ERR_INVALID,
                       "this is no safetensors file: it claims a header of %llu bytes, more than "
                       "%u",
                       (unsigned long long)count, SAFETENSORS_HEADER_BYTES_MAX);
    if (count > file->byte_count - LENGTH_BYTES)
        return err_set(
            error, ERR_INVALID, "the header claims %llu bytes, more than the %llu that follow",
            (unsigned long long)count, (unsigned long long)(file->byte_count - LENGTH_BYTES));
    struct str text = {(const char *)file->bytes + LENGTH_BYTES, (size_t)count};
    if (!json_span_is_utf8(text))
        return err_set(error, ERR_INVALID, "the header is not valid UTF-8");
    if (!json_span_read(text, ret_header))
        return err_set(error, ERR_INVALID, "the header is not valid JSON");
    file->data = file->bytes + LENGTH_BYTES + count;
    file->data_bytes = file->byte_count - LENGTH_BYTES - count;
    return OK;
}

static enum err read_all(struct safetensors *file, struct error *error) {
    struct str header;
    struct buf scratch;
    enum err err = find_header(file, &header, error);
    if (err != OK) return err;
    buf_init(&scratch, 2 * SAFETENSORS_NAME_BYTES_MAX);
    err = read_members(file, header, &scratch, error);
    buf_release(&scratch);
    return err == OK ? check_places(file, error) : err;
}

static enum err open_over(struct safetensors **ret_file, const void *bytes, uint64_t count,
                          bool is_mapped, struct error *error) {
    struct safetensors *file = mem_new(1, sizeof *file);
    file->bytes = bytes;
    file->byte_count = count;
    file->is_mapped = is_mapped;
    map_init(&file->tensor_by_name);
    arena_init(&file->names,
               (size_t)SAFETENSORS_TENSORS_MAX * (2 * SAFETENSORS_NAME_BYTES_MAX + 64));
    enum err err = read_all(file, error);
    if (err != OK) {
        safetensors_close(file);
        return err;
    }
    *ret_file = file;
    return OK;
}

enum err safetensors_open_bytes(struct safetensors **ret_file, const void *bytes, size_t count,
                                struct error *error) {
    return open_over(ret_file, bytes, count, false, error);
}

enum err safetensors_open(struct safetensors **ret_file, const char *path, struct error *error) {
    struct mapped mapped;
    enum err err = mapped_open(&mapped, path, "safetensors", error);
    return err == OK ? open_over(ret_file, mapped.bytes, mapped.count, true, error) : err;
}

void safetensors_close(struct safetensors *file) {
    if (!file) return;
    map_release(&file->tensor_by_name);
    arena_release(&file->names);
    free(file->tensors);
    if (file->is_mapped) mapped_close(&(struct mapped){file->bytes, file->byte_count});
    free(file);
}

uint64_t safetensors_file_bytes(const struct safetensors *file) {
    return file->byte_count;
}

size_t safetensors_tensor_count(const struct safetensors *file) {
    return file->tensor_count;
}

const struct safetensors_tensor *safetensors_tensor_at(const struct safetensors *file,
                                                       size_t index) {
    assert(index < file->tensor_count);
    return &file->tensors[index];
}

void safetensors_drop_pages(const struct safetensors *file,
                            const struct safetensors_tensor *tensor) {
    if (!file->is_mapped) return;
    mapped_drop_pages(tensor->at, tensor->bytes);
}
