/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* number: the numbers of JSON as expressions: digits, bounds, multiples.
 *
 * A bound is a decimal that another one is compared with digit by digit while it is written; a
 * multiple is a remainder that every digit changes. Both are leaves of expressions, exact for
 * decimals of any length. They expect the text of an unsigned decimal without an exponent and
 * without a leading zero, and are used in conjunction with an expression of such texts.
 *
 * Thread: as expr.h.
 * Memory: the table of bounds and multiples belongs to the exprs. */

#include "base/buf.h"
#include "base/err.h"
#include "grammar/expr.h"

#include <jansson.h>

/* A decimal: digits without leading zeros, fraction without trailing ones; both may be empty. */
#define DECIMAL_DIGITS_MAX 340
struct decimal {
    bool is_negative; /* never of 0 */
    uint16_t whole_count, fraction_count;
    uint8_t whole[DECIMAL_DIGITS_MAX], fraction[DECIMAL_DIGITS_MAX];
};

/* ERR_LIMIT for a number with more digits than a decimal has. */
enum err decimal_read(const json_t *number, struct decimal *ret_decimal,
                      struct error *error) MUST_CHECK;
int decimal_compare(const struct decimal *a, const struct decimal *b);
/* The number as JSON: an integer without a point, others without an exponent. */
void decimal_write(const struct decimal *decimal, struct buf *buf);

struct number_table *number_table_open(void);
void number_table_close(struct number_table *table);

enum number_form {
    NUMBER_INTEGER,          /* 12 */
    NUMBER_INTEGER_OR_ZEROS, /* 12, 12.0, 12.00: every way to write an integer */
    NUMBER_DECIMAL,          /* 12, 12.5, 12.50 */
    NUMBER_ANY,              /* also 1.2e+4 */
};

struct number_rules {
    enum number_form form;
    const struct decimal *min, *max; /* NULL: none */
    bool above_min, below_max;       /* the bound itself is outside */
    const struct decimal *multiples; /* (multiple_count) each above 0 */
    size_t multiple_count;
};

/* The texts of the numbers that keep the rules; EXPR_NEVER if no number does. ERR_LIMIT for a
 * multiple with too many digits. NUMBER_ANY becomes NUMBER_DECIMAL where a rule needs it. */
enum err number_expr(struct exprs *exprs, const struct number_rules *rules, uint32_t *ret_expr,
                     struct error *error) MUST_CHECK;

/* The derivative of a leaf. */
uint32_t number_derive(struct exprs *exprs, enum expr_kind kind, uint32_t a, uint32_t b,
                       unsigned char byte);
