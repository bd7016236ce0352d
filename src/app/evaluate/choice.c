/* SPDX-License-Identifier: Apache-2.0 */
#include "evaluate/choice.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* What a model is judged by; each share is 0..1, NAN: not known. */
struct merits {
    double answered, valid, agreement;
};

static struct merits merits_of(const struct evaluation *evaluation, size_t place) {
    const struct candidate *candidate = &evaluation->candidates[place];
    const struct comparison *compared = evaluation_compared(evaluation, place);
    return (struct merits){
        .answered =
            candidate->lines > 0 ? (double)candidate->answered / (double)candidate->lines : 0,
        .valid = candidate_valid_share(candidate),
        .agreement = compared && compared->answered_in_both > 0 ? comparison_agreement(compared)
                                                                : (double)NAN};
}

static double larger(double best, double value) {
    return isnan(best) || value > best ? value : best;
}

/* An unknown share never fails. */
static bool is_near(double value, double best, double slack) {
    return isnan(value) || isnan(best) || value >= best - slack;
}

static void add(struct choice *choice, const char *text) {
    if (choice->reason_count == CHOICE_REASONS_MAX) return;
    snprintf(choice->reasons[choice->reason_count++], CHOICE_REASON_BYTES, "%s", text);
}

static void add_quality(struct choice *choice, const struct evaluation *evaluation,
                        const struct merits *own, const struct merits *best) {
    char text[CHOICE_REASON_BYTES];
    const struct candidate *candidate = &evaluation->candidates[choice->candidate];
    snprintf(text, sizeof text, "It answers %" PRIu64 " of %" PRIu64 " requests.",
             candidate->answered, candidate->lines);
    add(choice, text);
    if (!isnan(own->valid)) {
        snprintf(text, sizeof text, "%.1f %% of its answers have the shape that was asked for.",
                 100 * own->valid);
        add(choice, text);
    }
    if (!evaluation->reference)
        snprintf(text, sizeof text,
                 "There is no reference (--compare-to), so what the answers are "
                 "worth is not known; read the rows that differ most.");
    else if (choice->candidate == evaluation_reference(evaluation))
        snprintf(text, sizeof text, "It is the reference itself.");
    else if (isnan(own->agreement))
        snprintf(text, sizeof text, "It has no answer to a request that the reference answers.");
    else
        snprintf(text, sizeof text,
                 "%.1f %% of its scores and labels are those of the reference; the best has "
                 "%.1f %%.",
                 100 * own->agreement, 100 * best->agreement);
    add(choice, text);
}

/* Speed as the last word, with the doubt that interruptions leave. */
static void add_speed(struct choice *choice, const struct evaluation *evaluation, size_t passing,
                      size_t interrupted) {
    char text[CHOICE_REASON_BYTES];
    const struct candidate *candidate = &evaluation->candidates[choice->candidate];
    if (isnan(candidate->requests_per_s))
        snprintf(text, sizeof text,
                 "No rate is known, because its run was interrupted at its end.");
    else if (passing > 1)
        snprintf(text, sizeof text,
                 "It is the fastest of the %zu models that pass: %.3g requests per second.",
                 passing, candidate->requests_per_s);
    else
        snprintf(text, sizeof text, "No other model passes. It does %.3g requests per second.",
                 candidate->requests_per_s);
    add(choice, text);
    if (interrupted == 0) return;
    snprintf(text, sizeof text,
             "%zu of the %zu %s interrupted, which costs answers that were on their way: the rate "
             "may be higher than told.",
             interrupted, passing, interrupted == 1 ? "was" : "were");
    add(choice, text);
}

/* The reference itself is no candidate, unless it is the only one; nor is a model that got a part
 * of the requests only. */
static bool is_left_out(const struct evaluation *evaluation, size_t place) {
    return (place == evaluation_reference(evaluation) && evaluation->count > 1) ||
           cascade_has_late(&evaluation->cascade, place);
}

struct choice choice_make(const struct evaluation *evaluation) {
    struct choice choice = {.candidate = evaluation->count};
    struct merits all[EVALUATION_MODELS_MAX], best = {NAN, NAN, NAN};
    size_t passing = 0, interrupted = 0;
    for (size_t i = 0; i < evaluation->count; i++) {
        all[i] = merits_of(evaluation, i);
        if (is_left_out(evaluation, i)) continue;
        best.answered = larger(best.answered, all[i].answered);
        best.valid = larger(best.valid, all[i].valid);
        best.agreement = larger(best.agreement, all[i].agreement);
    }
    for (size_t i = 0; i < evaluation->count; i++) {
        bool passes = !is_left_out(evaluation, i) && all[i].answered > 0 &&
                      is_near(all[i].answered, best.answered, CHOICE_SHARE_SLACK) &&
                      is_near(all[i].valid, best.valid, CHOICE_SHARE_SLACK) &&
                      is_near(all[i].agreement, best.agreement, CHOICE_AGREEMENT_SLACK);
        if (!passes) continue;
        passing++;
        interrupted += evaluation->candidates[i].was_interrupted;
        double rate = evaluation->candidates[i].requests_per_s;
        bool is_first = choice.candidate == evaluation->count;
        double before = is_first ? NAN : evaluation->candidates[choice.candidate].requests_per_s;
        if (is_first || (!isnan(rate) && (isnan(before) || rate > before))) choice.candidate = i;
    }
    if (choice.candidate == evaluation->count) {
        add(&choice, "No model answered a request.");
        return choice;
    }
    add_quality(&choice, evaluation, &all[choice.candidate], &best);
    add_speed(&choice, evaluation, passing, interrupted);
    return choice;
}
