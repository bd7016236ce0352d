/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* safetensors: one .safetensors file, mapped and checked: its tensors as views.
 *
 * It knows the container only: no meaning of a name, and not which tensors a model needs. Every
 * byte is taken for hostile. The header is read in place, without a tree, so that neither its bytes
 * nor its nesting can ask for more memory than the bounds below. All sizes are computed with
 * overflow checks, and after safetensors_open every view lies inside the file. A name that occurs
 * twice is refused too, which the reference library allows and no writer makes.
 *
 * Source: the safetensors format description and the refusals of its reference library.
 *
 * Thread: any; immutable after safetensors_open.
 * Memory: owns the mapping, its table and the names; everything that it hands out lives until
 *     safetensors_close. A file that another process cuts short while it is mapped kills this
 *     process (SIGBUS), as with gguf.h.
 * Invariant: the tensors cover the data behind the header without a hole and without overlap. */

#include "base/err.h"
#include "base/str.h"

#define SAFETENSORS_HEADER_BYTES_MAX 100000000u /* the reference library's limit */
/* Bounds that keep the reading of a hostile file short; real files stay far below. */
#define SAFETENSORS_TENSORS_MAX 65536
#define SAFETENSORS_NAME_BYTES_MAX 512
#define SAFETENSORS_AXES_MAX 8

enum safetensors_type {
    SAFETENSORS_BOOL,
    SAFETENSORS_F4,
    SAFETENSORS_F6_E2M3,
    SAFETENSORS_F6_E3M2,
    SAFETENSORS_U8,
    SAFETENSORS_I8,
    SAFETENSORS_F8_E5M2,
    SAFETENSORS_F8_E4M3,
    SAFETENSORS_F8_E8M0,
    SAFETENSORS_F8_E4M3FNUZ,
    SAFETENSORS_F8_E5M2FNUZ,
    SAFETENSORS_I16,
    SAFETENSORS_U16,
    SAFETENSORS_F16,
    SAFETENSORS_BF16,
    SAFETENSORS_I32,
    SAFETENSORS_U32,
    SAFETENSORS_F32,
    SAFETENSORS_C64,
    SAFETENSORS_F64,
    SAFETENSORS_I64,
    SAFETENSORS_U64,
    SAFETENSORS_TYPE_COUNT,
};

const char *safetensors_type_name(enum safetensors_type type); /* "BF16" */

struct safetensors_tensor {
    struct str name;
    enum safetensors_type type;
    uint32_t axis_count;                 /* 0: a scalar */
    uint64_t axes[SAFETENSORS_AXES_MAX]; /* the last runs fastest; the axes not used are 1 */
    uint64_t bytes;                      /* 0 when an axis is 0 */
    const unsigned char *at;             /* unaligned */
};

struct safetensors;

/* Maps the file. ERR_INVALID with one sentence naming the tensor for every breach of the format,
 * ERR_NOT_FOUND or ERR_IO when it cannot be read. Time is linear in the header. */
enum err safetensors_open(struct safetensors **ret_file, const char *path,
                          struct error *error) MUST_CHECK;
/* safetensors_open over bytes of the caller, which must outlive it. */
enum err safetensors_open_bytes(struct safetensors **ret_file, const void *bytes, size_t count,
                                struct error *error) MUST_CHECK;
void safetensors_close(struct safetensors *file); /* NULL is allowed */

uint64_t safetensors_file_bytes(const struct safetensors *file);
size_t safetensors_tensor_count(const struct safetensors *file);
/* In the order of the header. */
const struct safetensors_tensor *safetensors_tensor_at(const struct safetensors *file,
                                                       size_t index);
/* Tells the system that the bytes of a tensor will not be read again soon, so that a loader's
 * memory never holds the whole file. */
void safetensors_drop_pages(const struct safetensors *file,
                            const struct safetensors_tensor *tensor);
