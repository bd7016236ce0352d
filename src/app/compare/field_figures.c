/* SPDX-License-Identifier: Apache-2.0 */
#include "compare/field_figures.h"

#include "base/crc.h"
#include "base/mem.h"
#include "json/json.h"

#include <math.h>
#include <stdlib.h>

/* --- words --- */

struct words {
    uint32_t *at;
    size_t count, capacity;
};

static int by_number(const void *left, const void *right) {
    uint32_t x = *(const uint32_t *)left, y = *(const uint32_t *)right;
    return (x > y) - (x < y);
}

/* The different words of a text as sorted checksums. Two words with one checksum count as one,
 * which moves a distance by less than one word in a text of any length that a model writes. */
static struct words words_of(struct str text) {
    struct words words = {.at = NULL};
    size_t from = 0, kept = 0;
    for (size_t i = 0; i <= text.bytes; i++) {
        if (i < text.bytes && (unsigned char)text.at[i] > ' ') continue;
        if (i > from) {
            words.at = vec_grow(words.at, words.count, &words.capacity, sizeof *words.at);
            words.at[words.count++] = crc32c(0, text.at + from, i - from);
        }
        from = i + 1;
    }
    if (words.count > 0) qsort(words.at, words.count, sizeof *words.at, by_number);
    for (size_t i = 0; i < words.count; i++)
        if (kept == 0 || words.at[i] != words.at[kept - 1]) words.at[kept++] = words.at[i];
    words.count = kept;
    return words;
}

double field_words_distance(struct str a, struct str b) {
    struct words of_a = words_of(a), of_b = words_of(b);
    size_t common = 0;
    for (size_t i = 0, k = 0; i < of_a.count && k < of_b.count;) {
        uint32_t left = of_a.at[i], right = of_b.at[k];
        common += left == right;
        i += left <= right;
        k += right <= left;
    }
    size_t all = of_a.count + of_b.count - common;
    free(of_a.at);
    free(of_b.at);
    return all > 0 ? 1 - (double)common / (double)all : 0;
}

/* --- one row --- */

static bool is_prose(const json_t *value) {
    return json_is_array(value) ||
           (json_is_string(value) && json_string_length(value) > COMPARISON_LABEL_BYTES);
}

/* 1 and 1.0 are equal, and so are objects and arrays with equal values. */
static bool is_equal(const json_t *a, const json_t *b) {
    if (!a || !b) return false;
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

static void note_kind(struct comparison_field *field, const json_t *value) {
    enum comparison_kind kind = !value || json_is_number(value) ? COMPARISON_SCORE
                                : is_prose(value)               ? COMPARISON_PROSE
                                                                : COMPARISON_LABEL;
    if (kind > field->kind) field->kind = kind;
}

/* The distance of two unequal values of which one at least is prose. */
static double prose_distance(const json_t *a, const json_t *b) {
    bool are_texts = json_is_string(a) && json_is_string(b);
    return are_texts ? field_words_distance(json_str(a), json_str(b)) : 1;
}

/* A label is told by its JSON, since the text "true" is not the truth value. */
static void add_labels(struct kappa_counts *labels, const json_t *a, const json_t *b) {
    struct buf texts[COMPARISON_SIDES];
    buf_init(&texts[COMPARISON_A], BUF_UNLIMITED);
    buf_init(&texts[COMPARISON_B], BUF_UNLIMITED);
    json_write_canonical(&texts[COMPARISON_A], a);
    json_write_canonical(&texts[COMPARISON_B], b);
    kappa_add(labels, buf_str(&texts[COMPARISON_A]), buf_str(&texts[COMPARISON_B]));
    buf_release(&texts[COMPARISON_A]);
    buf_release(&texts[COMPARISON_B]);
}

bool field_figures_add(struct comparison_field *field, uint32_t row, const json_t *a,
                       const json_t *b, struct row_distance *distance) {
    bool equal = is_equal(a, b);
    field->both += a && b;
    field->equal += equal;
    field->only_in[COMPARISON_A] += !b;
    field->only_in[COMPARISON_B] += !a;
    note_kind(field, a);
    note_kind(field, b);
    if (json_is_number(a) && json_is_number(b)) {
        field->pairs =
            vec_grow(field->pairs, field->pair_count, &field->pair_capacity, sizeof *field->pairs);
        field->pairs[field->pair_count++] =
            (struct rank_pair){json_number_value(a), json_number_value(b), row};
    } else if (a && b && (is_prose(a) || is_prose(b))) {
        distance->words_count++;
        if (!equal) distance->words_sum += (float)prose_distance(a, b);
    } else {
        distance->count++;
        distance->sum += equal ? 0 : 1;
        if (a && b) add_labels(&field->labels, a, b);
    }
    return equal;
}

/* --- all rows --- */

void field_figures_end(struct comparison_field *field, struct row_distance *distances) {
    if (field->kind == COMPARISON_LABEL) field->kappa = kappa_measure(&field->labels);
    if (field->pair_count == 0) return;
    double count = (double)field->pair_count, squares = 0;
    double low = field->pairs[0].a, high = low;
    field->shift_min = INFINITY;
    field->shift_max = -INFINITY;
    for (size_t i = 0; i < field->pair_count; i++) {
        double a = field->pairs[i].a, b = field->pairs[i].b;
        low = fmin(low, fmin(a, b));
        high = fmax(high, fmax(a, b));
        field->mean[COMPARISON_A] += a / count;
        field->mean[COMPARISON_B] += b / count;
        field->shift += (b - a) / count;
        field->distance += fabs(b - a) / count;
        field->shift_min = fmin(field->shift_min, b - a);
        field->shift_max = fmax(field->shift_max, b - a);
    }
    for (size_t i = 0; i < field->pair_count; i++) {
        const struct rank_pair *pair = &field->pairs[i];
        double off = pair->b - pair->a - field->shift;
        squares += off * off;
        distances[pair->row].count++;
        if (high > low) distances[pair->row].sum += (float)(fabs(pair->b - pair->a) / (high - low));
    }
    if (field->pair_count > 1) field->deviation = sqrt(squares / (count - 1));
    field->ranks = ranks_measure(field->pairs, field->pair_count);
}
