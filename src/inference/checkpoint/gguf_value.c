/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/gguf.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* The names and sizes of the format's tensor types. Holes are numbers that were retired. */
static const struct gguf_type types[] = {
    [0] = {"F32", 1, 4},         [1] = {"F16", 1, 2},         [2] = {"Q4_0", 32, 18},
    [3] = {"Q4_1", 32, 20},      [4] = {"MXFP4", 32, 17},     [6] = {"Q5_0", 32, 22},
    [7] = {"Q5_1", 32, 24},      [8] = {"Q8_0", 32, 34},      [9] = {"Q8_1", 32, 36},
    [10] = {"Q2_K", 256, 84},    [11] = {"Q3_K", 256, 110},   [12] = {"Q4_K", 256, 144},
    [13] = {"Q5_K", 256, 176},   [14] = {"Q6_K", 256, 210},   [15] = {"Q8_K", 256, 292},
    [16] = {"IQ2_XXS", 256, 66}, [17] = {"IQ2_XS", 256, 74},  [18] = {"IQ3_XXS", 256, 98},
    [19] = {"IQ1_S", 256, 50},   [20] = {"IQ4_NL", 32, 18},   [21] = {"IQ3_S", 256, 110},
    [22] = {"IQ2_S", 256, 82},   [23] = {"IQ4_XS", 256, 136}, [24] = {"I8", 1, 1},
    [25] = {"I16", 1, 2},        [26] = {"I32", 1, 4},        [27] = {"I64", 1, 8},
    [28] = {"F64", 1, 8},        [29] = {"IQ1_M", 256, 56},   [30] = {"BF16", 1, 2},
    [34] = {"TQ1_0", 256, 54},   [35] = {"TQ2_0", 256, 66},   [39] = {"MXFP4", 32, 17},
};

const struct gguf_type *gguf_type_find(uint32_t type) {
    if (type >= sizeof types / sizeof *types || !types[type].name) return NULL;
    return &types[type];
}

static const char *const kind_names[GGUF_KIND_COUNT] = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};

static enum err wrong_kind(const struct gguf_value *value, const char *key, const char *wanted,
                           struct error *error) {
    return err_set(error, ERR_INVALID, "%s is of type %s, not %s", key, kind_names[value->kind],
                   wanted);
}

/* One integer of `kind` at `at`; false for kinds that are no integer and for numbers that need 64
 * unsigned bits. */
static bool integer_at(enum gguf_kind kind, const unsigned char *at, int64_t *ret_value) {
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
    } as;
    switch (kind) {
    case GGUF_U8: *ret_value = at[0]; return true;
    case GGUF_I8:
        memcpy(&as.i8, at, 1);
        *ret_value = as.i8;
        return true;
    case GGUF_U16:
        memcpy(&as.u16, at, 2);
        *ret_value = as.u16;
        return true;
    case GGUF_I16:
        memcpy(&as.i16, at, 2);
        *ret_value = as.i16;
        return true;
    case GGUF_U32:
        memcpy(&as.u32, at, 4);
        *ret_value = as.u32;
        return true;
    case GGUF_I32:
        memcpy(&as.i32, at, 4);
        *ret_value = as.i32;
        return true;
    case GGUF_I64:
        memcpy(&as.i64, at, 8);
        *ret_value = as.i64;
        return true;
    case GGUF_U64:
        memcpy(&as.u64, at, 8);
        if (as.u64 > INT64_MAX) return false;
        *ret_value = (int64_t)as.u64;
        return true;
    default: return false;
    }
}

static size_t kind_bytes(enum gguf_kind kind) {
    switch (kind) {
    case GGUF_U8:
    case GGUF_I8:
    case GGUF_BOOL: return 1;
    case GGUF_U16:
    case GGUF_I16: return 2;
    case GGUF_U32:
    case GGUF_I32:
    case GGUF_F32: return 4;
    default: return 8;
    }
}

enum err gguf_get_u64(const struct gguf *gguf, const char *key, uint64_t *value,
                      struct error *error) {
    const struct gguf_value *found = gguf_find(gguf, key);
    if (!found) return OK;
    int64_t integer;
    if (found->kind == GGUF_U64) {
        memcpy(value, found->at, sizeof *value);
        return OK;
    }
    if (!integer_at(found->kind, found->at, &integer))
        return wrong_kind(found, key, "an integer", error);
    if (integer < 0)
        return err_set(error, ERR_INVALID, "%s is negative: %lld", key, (long long)integer);
    *value = (uint64_t)integer;
    return OK;
}

enum err gguf_get_u32(const struct gguf *gguf, const char *key, uint32_t *value,
                      struct error *error) {
    uint64_t wide = *value;
    enum err err = gguf_get_u64(gguf, key, &wide, error);
    if (err != OK) return err;
    if (wide > UINT32_MAX)
        return err_set(error, ERR_INVALID, "%s is too large: %llu", key, (unsigned long long)wide);
    *value = (uint32_t)wide;
    return OK;
}

enum err gguf_get_f32(const struct gguf *gguf, const char *key, float *value, struct error *error) {
    const struct gguf_value *found = gguf_find(gguf, key);
    if (!found) return OK;
    float number;
    if (found->kind == GGUF_F32) {
        memcpy(&number, found->at, sizeof number);
    } else if (found->kind == GGUF_F64) {
        double wide;
        memcpy(&wide, found->at, sizeof wide);
        /* Casting a number that float cannot hold is undefined, so the range is checked first. */
        number = fabs(wide) <= 3.4e38 ? (float)wide : NAN;
    } else {
        return wrong_kind(found, key, "a float", error);
    }
    if (!isfinite(number)) return err_set(error, ERR_INVALID, "%s is not a finite number", key);
    *value = number;
    return OK;
}

enum err gguf_get_bool(const struct gguf *gguf, const char *key, bool *value, struct error *error) {
    const struct gguf_value *found = gguf_find(gguf, key);
    if (!found) return OK;
    if (found->kind != GGUF_BOOL) return wrong_kind(found, key, "a bool", error);
    *value = found->at[0] != 0;
    return OK;
}

enum err gguf_get_str(const struct gguf *gguf, const char *key, struct str *value,
                      struct error *error) {
    const struct gguf_value *found = gguf_find(gguf, key);
    if (!found) return OK;
    if (found->kind != GGUF_STRING) return wrong_kind(found, key, "a string", error);
    const unsigned char *at = found->at;
    *value = gguf_next_str(&at);
    return OK;
}

bool gguf_element_i64(const struct gguf_value *value, uint64_t index, int64_t *ret_value) {
    assert(index < value->count);
    enum gguf_kind kind = value->kind == GGUF_ARRAY ? value->element : value->kind;
    if (kind == GGUF_STRING) return false;
    return integer_at(kind, value->at + index * kind_bytes(kind), ret_value);
}

float gguf_element_f32(const struct gguf_value *value, uint64_t index) {
    assert(value->kind == GGUF_ARRAY && value->element == GGUF_F32 && index < value->count);
    float number;
    memcpy(&number, value->at + index * sizeof number, sizeof number);
    return number;
}

struct str gguf_next_str(const unsigned char **at) {
    uint64_t bytes;
    memcpy(&bytes, *at, sizeof bytes); /* gguf_open has checked it against the file */
    struct str text = {(const char *)*at + sizeof bytes, (size_t)bytes};
    *at += sizeof bytes + bytes;
    return text;
}
