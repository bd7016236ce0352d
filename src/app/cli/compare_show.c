/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/compare_show.h"

#include "base/str.h"
#include "base/utf8.h"
#include "compare/comparison_json.h"
#include "json/json.h"

#include <inttypes.h>
#include <stdio.h>

#define NAME_COLUMNS 36
#define ANSWER_BYTES_SHOWN 400

static const char *const kinds[] = {"score", "label", "prose"};
static const char *const sides[] = {"a", "b"};

static double share(uint64_t part, uint64_t whole) {
    return whole > 0 ? (double)part / (double)whole : 0;
}

static uint64_t rows_of(const struct comparison_field *field) {
    return field->both + field->only_in[COMPARISON_A] + field->only_in[COMPARISON_B];
}

static enum err end_output(struct error *error) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return OK;
    return err_set(error, ERR_IO, "cannot write to standard output");
}

/* --- tables --- */

/* Prints a text that a model or a stranger wrote: without control characters, cut to `bytes_max` at
 * a character. */
static void print_text(const char *text, size_t bytes_max) {
    struct str all = str_from(text), shown = all;
    if (shown.bytes > bytes_max) shown.bytes = bytes_max;
    shown.bytes -= utf8_incomplete_tail(shown);
    for (size_t i = 0; i < shown.bytes; i++) {
        unsigned char byte = (unsigned char)shown.at[i];
        putchar(byte < ' ' || byte == 0x7f ? ' ' : byte);
    }
    if (shown.bytes < all.bytes) printf("...");
}

/* Prints a name in a column of its own, cut if it is too long. */
static void print_name(const char *name) {
    struct str text = str_from(name);
    size_t columns = utf8_is_valid(text) ? utf8_count(text) : text.bytes;
    if (columns > NAME_COLUMNS) {
        print_text(name, NAME_COLUMNS - 3);
        return;
    }
    print_text(name, text.bytes);
    printf("%*s", (int)(NAME_COLUMNS - columns), "");
}

static void print_sides(const struct comparison *is, const struct comparison_options *options) {
    for (int i = 0; i < COMPARISON_SIDES; i++) {
        const struct comparison_side *side = &is->sides[i];
        printf("%c  ", 'A' + i);
        print_text(options->paths[i], 200);
        printf(": %" PRIu64 " %s, %" PRIu64 " answered, %" PRIu64 " failed, %" PRIu64
               " not in the other file\n",
               side->rows, plural(side->rows, "row", "rows"), side->answered,
               side->rows - side->answered, side->alone);
    }
    printf("\nRows in both files %" PRIu64 ", answered in both %" PRIu64 ", in A only %" PRIu64
           ", in B only %" PRIu64 "\n",
           is->joined, is->answered_in_both, is->answered_in[COMPARISON_A],
           is->answered_in[COMPARISON_B]);
    printf("JSON in both %" PRIu64 ", in A only %" PRIu64 ", in B only %" PRIu64 "\n",
           is->json_in_both, is->json_in[COMPARISON_A], is->json_in[COMPARISON_B]);
    printf("All values equal %" PRIu64 " (%.1f %%); of all scores and labels %.2f %%\n", is->equal,
           100 * share(is->equal, is->answered_in_both), 100 * comparison_agreement(is));
}

static void print_fields(const struct comparison *is) {
    printf("\n%-*s kind     rows   equal        %%  A only  B only\n", NAME_COLUMNS, "field");
    for (size_t i = 0; i < is->field_count; i++) {
        const struct comparison_field *field = &is->fields[i];
        print_name(field->name);
        printf(" %s %7" PRIu64 " %7" PRIu64 " %8.2f %7" PRIu64 " %7" PRIu64 "\n",
               kinds[field->kind], rows_of(field), field->equal,
               100 * share(field->equal, rows_of(field)), field->only_in[COMPARISON_A],
               field->only_in[COMPARISON_B]);
    }
    if (is->values_left_out > 0)
        printf("%" PRIu64 " values of further fields than %d are not in this table\n",
               is->values_left_out, COMPARISON_FIELDS_MAX);
}

static void print_ranks(const struct ranks *ranks) {
    if (ranks->is_known)
        printf(" %8.4f %8.4f", ranks->spearman, ranks->kendall);
    else
        printf(" %8s %8s", "-", "-");
    printf(" %6.1f %6.1f\n", 100 * share(ranks->tied_a, ranks->pairs),
           100 * share(ranks->tied_b, ranks->pairs));
}

static void print_scores(const struct comparison *is) {
    bool has_head = false;
    for (size_t i = 0; i < is->field_count; i++) {
        const struct comparison_field *field = &is->fields[i];
        if (field->pair_count == 0) continue;
        if (!has_head)
            printf("\n%-*s    rows     mean A     mean B      B - A         sd    |B - A|"
                   " Spearman  Kendall tied A tied B (%% of pairs)\n",
                   NAME_COLUMNS, "score");
        has_head = true;
        print_name(field->name);
        printf(" %7zu %10.4g %10.4g %+10.4g %10.4g %10.4g", field->pair_count,
               field->mean[COMPARISON_A], field->mean[COMPARISON_B], field->shift, field->deviation,
               field->distance);
        print_ranks(&field->ranks);
    }
}

static void print_labels(const struct comparison *is) {
    bool has_head = false;
    for (size_t i = 0; i < is->field_count; i++) {
        const struct comparison_field *field = &is->fields[i];
        if (!field->kappa.is_known) continue;
        if (!has_head) printf("\n%-*s    rows    kappa (95 %% interval)\n", NAME_COLUMNS, "label");
        has_head = true;
        print_name(field->name);
        printf(" %7" PRIu64 " %8.4f (%.4f to %.4f)\n", field->kappa.rows, field->kappa.value,
               field->kappa.low, field->kappa.high);
    }
}

/* What the tokens of one file cost; NANOS_NOT_KNOWN without the prices of them. */
static int64_t cost_of(const struct comparison_side *side, const struct prices *prices) {
    const struct result_usage *usage = &side->usage;
    bool is_priced =
        price_is_given(prices->input_per_million) || price_is_given(prices->output_per_million);
    return is_priced
               ? prices_of_tokens(prices, (double)usage->prompt_tokens,
                                  (double)usage->cached_tokens, (double)usage->completion_tokens)
               : NANOS_NOT_KNOWN;
}

static void print_cost(const struct comparison_side *side, const struct prices *prices) {
    int64_t cost = cost_of(side, prices);
    struct buf text;
    if (cost == NANOS_NOT_KNOWN) return;
    buf_init(&text, BUF_UNLIMITED);
    nanos_write_text(&text, cost);
    printf(" %14s %.16s", text.at, prices_currency(prices));
    buf_release(&text);
}

static void print_tokens(const struct comparison *is, const struct compare_prices *prices) {
    printf("\n%-*s %14s %14s %14s\n", NAME_COLUMNS, "tokens of rows in both files", "prompt",
           "cached", "completion");
    for (int i = 0; i < COMPARISON_SIDES; i++) {
        const struct result_usage *usage = &is->sides[i].usage;
        printf("%c%*s %14" PRIu64 " %14" PRIu64 " %14" PRIu64, 'A' + i, NAME_COLUMNS - 1, "",
               usage->prompt_tokens, usage->cached_tokens, usage->completion_tokens);
        print_cost(&is->sides[i], &prices->at[i]);
        printf("\n");
    }
}

static void print_most(const struct comparison *is) {
    if (is->most_count == 0) return;
    printf("\nThe rows that differ most (distance of scores and labels, of words; 0 to 1)\n");
    for (size_t i = 0; i < is->most_count; i++) {
        const struct comparison_row *row = &is->most[i];
        printf("%5.3f %5.3f  ", row->distance, row->words_distance);
        print_text(row->custom_id, 100);
        for (int side = 0; side < COMPARISON_SIDES; side++) {
            printf("\n          %c  ", 'A' + side);
            print_text(row->answers[side], ANSWER_BYTES_SHOWN);
        }
        printf("\n");
    }
}

enum err compare_show_tables(const struct comparison *comparison,
                             const struct comparison_options *options,
                             const struct compare_prices *prices, struct error *error) {
    print_sides(comparison, options);
    print_fields(comparison);
    print_scores(comparison);
    print_labels(comparison);
    print_tokens(comparison, prices);
    print_most(comparison);
    return end_output(error);
}

/* --- JSON --- */

static void write_side(struct buf *out, const struct comparison_side *side, const char *path,
                       const struct prices *prices) {
    buf_add_text(out, "{\"path\":");
    json_write_string(out, str_from(path));
    buf_printf(out,
               ",\"rows\":%" PRIu64 ",\"answered\":%" PRIu64 ",\"failed\":%" PRIu64
               ",\"not_in_other\":%" PRIu64 ",\"prompt_tokens\":%" PRIu64
               ",\"cached_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64 ",\"cost\":",
               side->rows, side->answered, side->rows - side->answered, side->alone,
               side->usage.prompt_tokens, side->usage.cached_tokens, side->usage.completion_tokens);
    nanos_write_json(out, cost_of(side, prices));
    buf_add_text(out, ",\"currency\":");
    json_write_string(out, str_from(prices_currency(prices)));
    buf_add_byte(out, '}');
}

enum err compare_show_json(const struct comparison *comparison,
                           const struct comparison_options *options,
                           const struct compare_prices *prices, struct error *error) {
    struct buf out;
    buf_init(&out, BUF_UNLIMITED);
    for (int i = 0; i < COMPARISON_SIDES; i++) {
        buf_printf(&out, "%s\"%s\":", i > 0 ? "," : "{", sides[i]);
        write_side(&out, &comparison->sides[i], options->paths[i], &prices->at[i]);
    }
    buf_add_byte(&out, ',');
    comparison_json_write(&out, comparison);
    buf_add_text(&out, "}\n");
    fwrite(out.at, 1, out.bytes, stdout);
    buf_release(&out);
    return end_output(error);
}
