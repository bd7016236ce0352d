/* SPDX-License-Identifier: Apache-2.0 */
#include "compare/comparison_json.h"

#include "base/str.h"
#include "decisions/json_text.h"
#include "json/json.h"

#include <inttypes.h>

static const char *const kinds[] = {"score", "label", "prose"};
static const char *const sides[] = {"a", "b"};

static double share(uint64_t part, uint64_t whole) {
    return whole > 0 ? (double)part / (double)whole : 0;
}

static uint64_t rows_of(const struct comparison_field *field) {
    return field->both + field->only_in[COMPARISON_A] + field->only_in[COMPARISON_B];
}

static void write_member_number(struct buf *out, const char *name, double value) {
    buf_printf(out, ",\"%s\":", name);
    json_text_write_number(out, value);
}

/* Numbers, or nulls if they are not known. */
static void write_interval(struct buf *out, const char *low_name, double low, const char *high_name,
                           double high, bool is_known) {
    if (is_known) {
        write_member_number(out, low_name, low);
        write_member_number(out, high_name, high);
    } else {
        buf_printf(out, ",\"%s\":null,\"%s\":null", low_name, high_name);
    }
}

static void write_label(struct buf *out, const struct kappa *kappa) {
    buf_printf(out, ",\"label\":{\"rows\":%" PRIu64, kappa->rows);
    if (kappa->is_known)
        write_member_number(out, "kappa", kappa->value);
    else
        buf_add_text(out, ",\"kappa\":null");
    write_interval(out, "kappa_low", kappa->low, "kappa_high", kappa->high, kappa->is_known);
    buf_add_byte(out, '}');
}

static void write_score(struct buf *out, const struct comparison_field *field) {
    const struct ranks *ranks = &field->ranks;
    double low = 0, high = 0;
    bool has_interval =
        ranks->is_known && ranks_interval(ranks->spearman, field->pair_count, &low, &high);
    buf_printf(out, ",\"score\":{\"rows\":%zu", field->pair_count);
    write_member_number(out, "mean_a", field->mean[COMPARISON_A]);
    write_member_number(out, "mean_b", field->mean[COMPARISON_B]);
    write_member_number(out, "shift", field->shift);
    write_member_number(out, "shift_sd", field->deviation);
    write_member_number(out, "shift_min", field->shift_min);
    write_member_number(out, "shift_max", field->shift_max);
    write_member_number(out, "mean_distance", field->distance);
    if (ranks->is_known) {
        write_member_number(out, "spearman", ranks->spearman);
        write_member_number(out, "kendall_tau_b", ranks->kendall);
    } else {
        buf_add_text(out, ",\"spearman\":null,\"kendall_tau_b\":null");
    }
    write_interval(out, "spearman_low", low, "spearman_high", high, has_interval);
    buf_printf(out,
               ",\"pairs\":%" PRIu64 ",\"tied_pairs_a\":%" PRIu64 ",\"tied_pairs_b\":%" PRIu64
               ",\"tied_pairs_both\":%" PRIu64 "}",
               ranks->pairs, ranks->tied_a, ranks->tied_b, ranks->tied_both);
}

static void write_field(struct buf *out, const struct comparison_field *field) {
    buf_add_text(out, "{\"name\":");
    json_write_string(out, str_from(field->name));
    buf_printf(out,
               ",\"kind\":\"%s\",\"rows\":%" PRIu64 ",\"equal\":%" PRIu64 ",\"only_a\":%" PRIu64
               ",\"only_b\":%" PRIu64,
               kinds[field->kind], rows_of(field), field->equal, field->only_in[COMPARISON_A],
               field->only_in[COMPARISON_B]);
    write_member_number(out, "agreement", share(field->equal, rows_of(field)));
    if (field->pair_count > 0) write_score(out, field);
    if (field->kind == COMPARISON_LABEL) write_label(out, &field->kappa);
    buf_add_byte(out, '}');
}

static void write_row(struct buf *out, const struct comparison_row *row) {
    buf_add_text(out, "{\"custom_id\":");
    json_write_string(out, str_from(row->custom_id));
    write_member_number(out, "distance", row->distance);
    write_member_number(out, "words_distance", row->words_distance);
    for (int side = 0; side < COMPARISON_SIDES; side++) {
        buf_printf(out, ",\"%s\":", sides[side]);
        json_write_string(out, str_from(row->answers[side]));
    }
    buf_add_byte(out, '}');
}

void comparison_json_write(struct buf *out, const struct comparison *comparison) {
    const struct comparison *is = comparison;
    buf_printf(out,
               "\"rows_in_both\":%" PRIu64 ",\"answered_in_both\":%" PRIu64
               ",\"answered_in_a_only\":%" PRIu64 ",\"answered_in_b_only\":%" PRIu64
               ",\"json_in_both\":%" PRIu64 ",\"json_in_a_only\":%" PRIu64
               ",\"json_in_b_only\":%" PRIu64 ",\"equal\":%" PRIu64,
               is->joined, is->answered_in_both, is->answered_in[COMPARISON_A],
               is->answered_in[COMPARISON_B], is->json_in_both, is->json_in[COMPARISON_A],
               is->json_in[COMPARISON_B], is->equal);
    write_member_number(out, "agreement", comparison_agreement(is));
    buf_printf(out, ",\"values_left_out\":%" PRIu64 ",\"fields\":[", is->values_left_out);
    for (size_t i = 0; i < is->field_count; i++) {
        if (i > 0) buf_add_byte(out, ',');
        write_field(out, &is->fields[i]);
    }
    buf_add_text(out, "],\"differ_most\":[");
    for (size_t i = 0; i < is->most_count; i++) {
        if (i > 0) buf_add_byte(out, ',');
        write_row(out, &is->most[i]);
    }
    buf_add_byte(out, ']');
}
