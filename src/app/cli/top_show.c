/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/top_show.h"

#include "cli/metrics_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define GIB ((double)((uint64_t)1 << 30))
#define UUID_SHOWN 12 /* "GPU-" and the first eight digits */

static const char *const engine_names[TOP_ENGINE_VALUES] = {
    [TOP_UP] = "quern_engine_up",
    [TOP_RESTARTS] = "quern_engine_restarts_total",
    [TOP_RUNNING] = "quern_engine_running",
    [TOP_WAITING] = "quern_engine_waiting",
    [TOP_PROMPT_TOKENS] = "quern_engine_prompt_tokens_total",
    [TOP_GENERATED_TOKENS] = "quern_engine_generated_tokens_total",
    [TOP_KV_USED] = "quern_engine_kv_used_ratio",
    [TOP_LIMIT_BYTES] = "quern_engine_card_memory_limit_bytes",
};

static const char *const card_names[TOP_CARD_VALUES] = {
    [TOP_CARD_UP] = "quern_card_up",
    [TOP_CARD_MEMORY] = "quern_card_memory_bytes",
    [TOP_CARD_MEMORY_USED] = "quern_card_memory_used_bytes",
    [TOP_CARD_LOAD] = "quern_card_utilisation_ratio",
    [TOP_CARD_POWER] = "quern_card_power_watts",
    [TOP_CARD_POWER_LIMIT] = "quern_card_power_limit_watts",
    [TOP_CARD_CLOCK] = "quern_card_sm_clock_hertz",
    [TOP_CARD_CELSIUS] = "quern_card_temperature_celsius",
    [TOP_CARD_TOKENS_PER_S] = "quern_card_tokens_per_second",
    [TOP_CARD_JOULES] = "quern_card_joules_per_1000_tokens",
    [TOP_CARD_XIDS] = "quern_card_xid_errors_total",
    [TOP_CARD_ECC] = "quern_card_ecc_errors_total",
};

/* ---- reading ---- */

/* Control characters of another server must not reach a terminal. */
static void copy_plain(char *ret_text, size_t room, struct str from) {
    size_t count = from.bytes < room - 1 ? from.bytes : room - 1;
    for (size_t i = 0; i < count; i++)
        ret_text[i] = from.at[i] >= 0x20 && from.at[i] < 0x7F ? from.at[i] : '?';
    ret_text[count] = '\0';
}

static struct top_engine *engine_of(struct top_reading *reading,
                                    const struct metric_sample *sample) {
    uint64_t number;
    if (!str_to_u64(metrics_text_label(sample, "engine"), &number) || number >= TOP_ENGINES_MAX)
        return NULL;
    for (; reading->engine_count <= number; reading->engine_count++) {
        struct top_engine *engine = &reading->engines[reading->engine_count];
        memset(engine, 0, sizeof *engine);
        for (size_t i = 0; i < TOP_ENGINE_VALUES; i++) engine->values[i] = NAN;
    }
    return &reading->engines[number];
}

static struct top_card *card_of(struct top_reading *reading, const struct metric_sample *sample) {
    char uuid[sizeof reading->cards->uuid];
    copy_plain(uuid, sizeof uuid, metrics_text_label(sample, "card"));
    for (size_t i = 0; i < reading->card_count; i++)
        if (strcmp(reading->cards[i].uuid, uuid) == 0) return &reading->cards[i];
    if (!*uuid || reading->card_count == TOP_CARDS_MAX) return NULL;
    struct top_card *card = &reading->cards[reading->card_count++];
    memset(card, 0, sizeof *card);
    memcpy(card->uuid, uuid, sizeof uuid);
    for (size_t i = 0; i < TOP_CARD_VALUES; i++) card->values[i] = NAN;
    return card;
}

static void read_engine(struct top_reading *reading, const struct metric_sample *sample) {
    struct top_engine *engine = engine_of(reading, sample);
    if (!engine) return;
    for (size_t i = 0; i < TOP_ENGINE_VALUES; i++)
        if (str_is(sample->name, engine_names[i])) engine->values[i] = sample->value;
    if (str_is(sample->name, "quern_engine_card_info"))
        copy_plain(engine->card, sizeof engine->card, metrics_text_label(sample, "card"));
    if (!str_is(sample->name, "quern_engine_card_memory_bytes")) return;
    struct str part = metrics_text_label(sample, "part");
    if (str_is(part, "weights"))
        engine->weight_bytes = sample->value;
    else if (str_is(part, "kv"))
        engine->kv_bytes = sample->value;
    else
        engine->other_bytes += sample->value;
}

static void read_card(struct top_reading *reading, const struct metric_sample *sample) {
    struct top_card *card = card_of(reading, sample);
    if (!card) return;
    for (size_t i = 0; i < TOP_CARD_VALUES; i++)
        if (str_is(sample->name, card_names[i])) card->values[i] = sample->value;
    if (str_is(sample->name, "quern_card_up"))
        copy_plain(card->name, sizeof card->name, metrics_text_label(sample, "name"));
    if (!str_is(sample->name, "quern_card_clocks_limited") || !(sample->value > 0)) return;
    size_t used = strlen(card->limits);
    if (used > 0 && used + 1 < sizeof card->limits) card->limits[used++] = ' ';
    copy_plain(card->limits + used, sizeof card->limits - used,
               metrics_text_label(sample, "reason"));
}

void top_show_read(struct top_reading *ret_reading, struct str metrics, int64_t at_ns) {
    struct metric_sample sample;
    memset(ret_reading, 0, sizeof *ret_reading);
    ret_reading->at_ns = at_ns;
    while (metrics_text_next(&metrics, &sample)) {
        if (str_starts_with(sample.name, STR("quern_engine_")))
            read_engine(ret_reading, &sample);
        else if (str_starts_with(sample.name, STR("quern_card_")))
            read_card(ret_reading, &sample);
        else if (str_is(sample.name, "quern_lines_total"))
            ret_reading->lines = sample.value;
        else if (str_is(sample.name, "quern_queue_depth"))
            ret_reading->queue_depth += sample.value;
        else if (str_is(sample.name, "quern_batches") &&
                 str_is(metrics_text_label(&sample, "status"), "in_progress"))
            ret_reading->batches_in_progress = sample.value;
    }
}

/* ---- writing ---- */

struct cell {
    char text[32];
};

/* A number with its unit, or "-" where the server told none. */
static struct cell cell(double value, const char *format) {
    struct cell cell = {"-"};
    if (isfinite(value)) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(cell.text, sizeof cell.text, format, value);
#pragma GCC diagnostic pop
    }
    return cell;
}

/* "12.3/15.5 GiB" */
static struct cell pair_of(double value, double of, const char *format) {
    struct cell cell = {"-"};
    if (isfinite(value) && isfinite(of)) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(cell.text, sizeof cell.text, format, value, of);
#pragma GCC diagnostic pop
    }
    return cell;
}

/* Per second; NAN without two readings, and after a restart, when a counter begins anew. */
static double rate(double now, double before, double seconds) {
    return seconds > 0 && now >= before ? (now - before) / seconds : NAN;
}

static void write_engine(struct buf *out, size_t number, const struct top_engine *now,
                         const struct top_engine *before, double seconds) {
    const double *is = now->values;
    double used = now->weight_bytes + now->kv_bytes + now->other_bytes;
    double out_rate = NAN, in_rate = NAN;
    if (before) {
        out_rate = rate(is[TOP_GENERATED_TOKENS], before->values[TOP_GENERATED_TOKENS], seconds);
        in_rate = rate(is[TOP_PROMPT_TOKENS], before->values[TOP_PROMPT_TOKENS], seconds);
    }
    buf_printf(out, "%6zu  %-5s %7s %7s %5s %9s %9s %8s  %-12.*s", number,
               is[TOP_UP] > 0 ? "up" : "down", cell(is[TOP_RUNNING], "%.0f").text,
               cell(is[TOP_WAITING], "%.0f").text, cell(100 * is[TOP_KV_USED], "%.0f%%").text,
               cell(out_rate, "%.0f").text, cell(in_rate, "%.0f").text,
               cell(is[TOP_RESTARTS], "%.0f").text, UUID_SHOWN, *now->card ? now->card : "cpu");
    if (is[TOP_LIMIT_BYTES] > 0)
        buf_printf(out, "  %.1f/%.1f GiB: weights %.1f, KV %.1f, other %.1f", used / GIB,
                   is[TOP_LIMIT_BYTES] / GIB, now->weight_bytes / GIB, now->kv_bytes / GIB,
                   now->other_bytes / GIB);
    buf_add_byte(out, '\n');
}

static void write_card(struct buf *out, const struct top_card *card) {
    const double *is = card->values;
    buf_printf(out, "%-12.*s  %-24.24s", UUID_SHOWN, card->uuid, card->name);
    if (!(is[TOP_CARD_UP] > 0)) {
        buf_printf(out, "  down: the driver reports nothing about it, Xid errors %s\n",
                   cell(is[TOP_CARD_XIDS], "%.0f").text);
        return;
    }
    buf_printf(
        out, " %5s %15s %11s %9s %5s %9s %9s %4s %4s%s%s\n",
        cell(100 * is[TOP_CARD_LOAD], "%.0f%%").text,
        pair_of(is[TOP_CARD_MEMORY_USED] / GIB, is[TOP_CARD_MEMORY] / GIB, "%.1f/%.1f GiB").text,
        pair_of(is[TOP_CARD_POWER], is[TOP_CARD_POWER_LIMIT], "%.0f/%.0f W").text,
        cell(is[TOP_CARD_CLOCK] / 1e6, "%.0f MHz").text, cell(is[TOP_CARD_CELSIUS], "%.0fC").text,
        cell(is[TOP_CARD_TOKENS_PER_S], "%.0f").text, cell(is[TOP_CARD_JOULES], "%.1f").text,
        cell(is[TOP_CARD_XIDS], "%.0f").text, cell(is[TOP_CARD_ECC], "%.0f").text,
        *card->limits ? "  limited by " : "", card->limits);
}

void top_show_write(struct buf *out, const struct top_reading *now,
                    const struct top_reading *before) {
    double seconds = before->at_ns ? (double)(now->at_ns - before->at_ns) / 1e9 : 0;
    buf_printf(out, "batches in progress %.0f, requests without a result %.0f, lines %.0f",
               now->batches_in_progress, now->queue_depth, now->lines);
    if (isfinite(rate(now->lines, before->lines, seconds)))
        buf_printf(out, " (%.1f/s)", rate(now->lines, before->lines, seconds));
    buf_add_text(out, "\n\nengine  state running waiting    KV tokens/s  prompt/s restarts  GPU\n");
    for (size_t i = 0; i < now->engine_count; i++)
        write_engine(out, i, &now->engines[i],
                     i < before->engine_count ? &before->engines[i] : NULL, seconds);
    if (now->card_count == 0) return;
    buf_add_text(out, "\ncard          name                      load          memory       power  "
                      "   clock  temp  tokens/s  J/1k tok  Xid  ECC\n");
    for (size_t i = 0; i < now->card_count; i++) write_card(out, &now->cards[i]);
}
