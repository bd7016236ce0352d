/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* arith: the operators + - * / // % ** ~ and the signs, with Python's rules.
 *
 * Integers have 64 bits. A result that does not fit is ERR_INVALID, never a wrong number.
 *
 * Thread: as render.
 * Memory: as render. */

#include "jinja/render.h"

enum operator{
    OPERATOR_ADD,
    OPERATOR_SUBTRACT,
    OPERATOR_MULTIPLY,
    OPERATOR_DIVIDE,
    OPERATOR_FLOOR_DIVIDE,
    OPERATOR_REMAINDER,
    OPERATOR_POWER,
};

enum err arith_apply(struct render *render, enum operator operator, struct value left,
                     struct value right, struct value *ret_value);
/* Computes left ~ right. */
enum err arith_join(struct render *render, struct value left, struct value right,
                    struct value *ret_text);
enum err arith_sign(struct render *render, struct value value, bool negate,
                    struct value *ret_value);
/* Fails with ERR_INVALID, naming the undefined value. */
enum err arith_fail_undefined(struct render *render, struct value value);
#define arith_fail_undefined(...) err_not_ok((arith_fail_undefined)(__VA_ARGS__))
