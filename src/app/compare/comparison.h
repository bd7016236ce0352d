/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* comparison: two result files of the same lines, joined by custom_id: how far two models, or two
 * quantisations of one, agree.
 *
 * The first file gives an index of its lines. The second one is read once, and each of its lines is
 * compared with the line of the first that has its custom_id. So the files may have any order, and
 * memory grows by the custom_ids and the scores alone: about 180 bytes per row, and 24 more per
 * score.
 *
 * The distance of a row is Gower's ("A general coefficient of similarity and some of its
 * properties", 1971): the mean over its fields of 0 or 1 for a label, and of |A - B| divided by the
 * range of the field for a score. Long texts do not count in it. They decide between rows of equal
 * distance: by the share of different words among all words of both texts (Jaccard's distance).
 *
 * Thread: one.
 * Memory: comparison_release frees all. */

#include "base/err.h"
#include "compare/kappa.h"
#include "compare/ranks.h"
#include "compare/result_line.h"

#define COMPARISON_FIELDS_MAX 256
#define COMPARISON_TOP_MAX 10000
#define COMPARISON_LABEL_BYTES 64 /* a longer text is no label */

enum comparison_side_index { COMPARISON_A, COMPARISON_B, COMPARISON_SIDES };

/* What the values of a field are, over all rows. */
enum comparison_kind {
    COMPARISON_SCORE, /* numbers only */
    COMPARISON_LABEL, /* short texts, true, false, null, or several of these */
    COMPARISON_PROSE, /* a longer text among them, or an array */
};

struct comparison_field {
    char *name;
    enum comparison_kind kind;
    uint64_t both, equal;               /* rows that have it in both files; equal values of them */
    uint64_t only_in[COMPARISON_SIDES]; /* rows that have it in this file only */
    struct rank_pair *pairs;            /* (pair_count) rows with a number in both files */
    size_t pair_count, pair_capacity;
    /* For the pairs: */
    double mean[COMPARISON_SIDES];
    double shift;     /* mean of B - A */
    double deviation; /* standard deviation of B - A, by n - 1; 0 for one pair */
    double shift_min, shift_max;
    double distance; /* mean of |B - A| */
    struct ranks ranks;
    /* For labels: */
    struct kappa_counts labels; /* rows by their two labels */
    struct kappa kappa;
};

struct comparison_side {
    uint64_t rows, answered;
    uint64_t alone;            /* rows that the other file does not have */
    struct result_usage usage; /* usage of answered rows that both files have */
};

/* A row that both files answer, with its answers as a reader sees them. */
struct comparison_row {
    char *custom_id;
    double distance, words_distance;
    char *answers[COMPARISON_SIDES];
};

/* Zero is a valid start. */
struct comparison {
    struct comparison_side sides[COMPARISON_SIDES];
    uint64_t joined;                        /* rows of both files */
    uint64_t answered_in_both;              /* answered rows that are compared */
    uint64_t answered_in[COMPARISON_SIDES]; /* answered rows in this file only */
    uint64_t json_in_both;                  /* JSON answers among the rows that are compared */
    uint64_t json_in[COMPARISON_SIDES];     /* JSON answers in this file only */
    uint64_t equal;                         /* compared JSON answers with equal values */
    struct comparison_field *fields;        /* (field_count) in the order of their first row */
    size_t field_count;
    uint64_t values_left_out;    /* values of further fields than COMPARISON_FIELDS_MAX */
    struct comparison_row *most; /* (most_count) rows that differ most, the first one most */
    size_t most_count;
};

struct comparison_options {
    const char *paths[COMPARISON_SIDES];
    bool has_parts_in_a;       /* A has only fields that were judged: no others of B count */
    size_t top;                /* rows to keep in `most`, at most COMPARISON_TOP_MAX */
    const volatile bool *stop; /* NULL: nobody stops it */
};

/* Compares the files. ERR_INVALID, with file and line, for a line that is no result and for a
 * custom_id that a file has twice; ERR_CANCELLED after *stop. The caller releases in any case. */
enum err comparison_run(struct comparison *comparison, const struct comparison_options *options,
                        struct error *error) MUST_CHECK;
void comparison_release(struct comparison *comparison);
/* The agreement of all fields but long texts: equal values by all values, 0..1; 1 without any. */
double comparison_agreement(const struct comparison *comparison);
