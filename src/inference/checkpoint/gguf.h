/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gguf: a GGUF v2 or v3 file, mapped and checked: its metadata as typed values, its tensors as
 * views.
 *
 * It knows the container only: no meaning of a key, and not which tensors a model needs. Every byte
 * is taken for hostile: a count is bounded by the bytes left before memory is allocated for it, all
 * sizes are computed with overflow checks, and after gguf_open every view lies inside the file.
 *
 * Source: the GGUF specification.
 *
 * Thread: any; immutable after gguf_open.
 * Memory: owns the mapping and its tables; every str and pointer that it hands out lives until
 *     gguf_close. A file that another process cuts short while it is mapped kills this process
 *     (SIGBUS). For that reason model files are read in the engine process.
 * Invariant: tensors do not overlap, are aligned, and end inside the file. */

#include "base/err.h"
#include "base/str.h"

#define GGUF_AXES_MAX 4
#define GGUF_NAME_BYTES_MAX 63
/* Bounds that keep the reading of a hostile file short; real files stay far below. */
#define GGUF_KEY_BYTES_MAX 1024
#define GGUF_KEYS_MAX 65536
#define GGUF_TENSORS_MAX 65536
#define GGUF_ARRAY_MAX (1u << 24)

struct gguf;

/* The numbers of the format. */
enum gguf_kind {
    GGUF_U8 = 0,
    GGUF_I8 = 1,
    GGUF_U16 = 2,
    GGUF_I16 = 3,
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_STRING = 8,
    GGUF_ARRAY = 9,
    GGUF_U64 = 10,
    GGUF_I64 = 11,
    GGUF_F64 = 12,
    GGUF_KIND_COUNT = 13,
};

struct gguf_value {
    enum gguf_kind kind;
    enum gguf_kind element;  /* kind of an array's elements; never GGUF_ARRAY */
    uint64_t count;          /* elements of an array, else 1 */
    const unsigned char *at; /* the value, or the first element; unaligned */
    uint64_t bytes;          /* bytes of all elements, with the length fields of strings */
};

struct gguf_pair {
    struct str key;
    struct gguf_value value;
};

struct gguf_tensor {
    struct str name;
    uint32_t type; /* the file's number, which gguf_type_find knows */
    uint32_t axis_count;
    uint64_t axes[GGUF_AXES_MAX]; /* axes[0] runs fastest; the axes not used are 1 */
    uint64_t row_bytes;           /* bytes of one run along axes[0] */
    uint64_t bytes;
    const unsigned char *at; /* aligned to general.alignment from the start of the file */
};

/* How a tensor type stores its elements. */
struct gguf_type {
    const char *name; /* "Q4_1" */
    uint32_t block_elements;
    uint32_t block_bytes;
};

/* NULL for the number of no type, or of a retired type. */
const struct gguf_type *gguf_type_find(uint32_t type);

/* Maps the file, and the other parts of a model whose first part it is: their tensors are one list,
 * and the metadata is that of the first. ERR_INVALID with one sentence naming the key or the tensor
 * for every breach of the format, ERR_NOT_FOUND or ERR_IO when it cannot be read. */
enum err gguf_open(struct gguf **ret_gguf, const char *path, struct error *error) MUST_CHECK;
/* Maps one file, which may be a part of a model. */
enum err gguf_open_file(struct gguf **ret_gguf, const char *path, struct error *error) MUST_CHECK;
/* Adds the tensors of a part, which `whole` owns from then on. ERR_INVALID when both have a tensor
 * of one name. */
enum err gguf_join(struct gguf *whole, struct gguf *part, struct error *error) MUST_CHECK;
/* gguf_open_file over bytes of the caller, which must outlive it. */
enum err gguf_open_bytes(struct gguf **ret_gguf, const void *bytes, size_t count,
                         struct error *error) MUST_CHECK;
void gguf_close(struct gguf *gguf); /* NULL is allowed */

uint64_t gguf_file_bytes(const struct gguf *gguf); /* sum over all parts */
size_t gguf_part_count(const struct gguf *gguf);   /* 1 for a whole file */
size_t gguf_pair_count(const struct gguf *gguf);
const struct gguf_pair *gguf_pair_at(const struct gguf *gguf, size_t index);
size_t gguf_tensor_count(const struct gguf *gguf);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *gguf, size_t index);
/* The tensor of that name, or NULL. */
const struct gguf_tensor *gguf_tensor_find(const struct gguf *gguf, struct str name);
/* Tells the system that the bytes of a tensor will not be read again soon, so that a loader's
 * memory never holds the whole file. */
void gguf_drop_pages(const struct gguf *gguf, const struct gguf_tensor *tensor);
/* The value of the key, or NULL. */
const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key);

/* The getters return OK for an absent key and do not change *value, so that the caller writes the
 * default into it first. A key of another kind is ERR_INVALID. An integer may be stored in any
 * width, signed or not, if its value fits. */
enum err gguf_get_u64(const struct gguf *gguf, const char *key, uint64_t *value,
                      struct error *error) MUST_CHECK;
enum err gguf_get_u32(const struct gguf *gguf, const char *key, uint32_t *value,
                      struct error *error) MUST_CHECK;
/* Reads F32 or F64; refuses NaN and infinity. */
enum err gguf_get_f32(const struct gguf *gguf, const char *key, float *value,
                      struct error *error) MUST_CHECK;
enum err gguf_get_bool(const struct gguf *gguf, const char *key, bool *value,
                       struct error *error) MUST_CHECK;
enum err gguf_get_str(const struct gguf *gguf, const char *key, struct str *value,
                      struct error *error) MUST_CHECK;

/* Element `index` of an array (0 for a scalar) as a 64-bit integer. False when it is no integer or
 * does not fit. */
bool gguf_element_i64(const struct gguf_value *value, uint64_t index, int64_t *ret_value);
/* Element `index` of an F32 array. */
float gguf_element_f32(const struct gguf_value *value, uint64_t index);
/* Walks an array of strings: *at starts as value->at and moves to the next element. */
struct str gguf_next_str(const unsigned char **at);
