/* SPDX-License-Identifier: Apache-2.0 */
#include "client/submission.h"

#include "base/id.h"
#include "client/cost_guess.h"
#include "client/remote_batches.h"
#include "client/upload.h"
#include "json/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PREFLIGHT_MS 660000 /* a server gives up after 600 s unless it is set otherwise */

/* ERR_INVALID for a limit without any price. */
static enum err cost_check(const struct cost_choice *choice, struct error *error) {
    const struct prices *prices = &choice->prices;
    if (choice->cost_max <= 0 || prices->input_per_million > 0 || prices->output_per_million > 0 ||
        prices->per_kwh > 0)
        return OK;
    return err_set(error, ERR_INVALID,
                   "--max-cost needs a price: --input-price and --output-price of a million "
                   "tokens, or --price-per-kwh");
}

/* --- the wish --- */

/* The place of the '=' of a pair; SIZE_MAX without one. */
static size_t find_equals(const char *pair) {
    return str_find_byte(str_from(pair), '=', 0);
}

enum err submit_check(const struct submit_wish *wish, struct error *error) {
    for (size_t i = 0; i < wish->metadata_count; i++) {
        size_t equals = find_equals(wish->metadata[i]);
        if (equals == 0 || equals == SIZE_MAX)
            return err_set(error, ERR_INVALID, "--metadata: '%.80s' is not NAME=VALUE",
                           wish->metadata[i]);
    }
    if (wish->submission &&
        (!object_id_is_sane(str_from(wish->submission)) || strlen(wish->submission) > 64))
        return err_set(error, ERR_INVALID,
                       "--idempotency-key: '%.80s' is not 1 to 64 letters, digits and '-_.=:~'",
                       wish->submission);
    return cost_check(&wish->cost, error);
}

static json_t *make_metadata(const struct submit_wish *wish) {
    json_t *metadata = json_object();
    for (size_t i = 0; i < wish->metadata_count; i++) {
        const char *pair = wish->metadata[i];
        size_t equals = find_equals(pair);
        (void)json_object_setn_new(metadata, pair, equals, json_string(pair + equals + 1));
    }
    return metadata;
}

/* Tells the user a sentence. */
static void say(const struct submission *submission, const char *format, ...) PRINTF_LIKE(2, 3);
static void say(const struct submission *submission, const char *format, ...) {
    char text[ERROR_TEXT_BYTES];
    struct error note;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)(err_set)(&note, ERR_UNAVAILABLE, "%s", text); /* control characters become blanks */
    submission->say(submission->context, note.text);
}

/* --- the price --- */

static double mean_of(const json_t *answer, const char *name) {
    const json_t *interval = json_member(answer, name);
    const json_t *high = json_member(interval, "high");
    if (json_is_number(high)) return json_number_value(high);
    return json_number_value(json_member(interval, "mean"));
}

static void add_price(struct buf *body, const char *name, double price) {
    if (price_is_given(price)) buf_printf(body, ",\"%s\":%.9g", name, price);
}

/* A price of tokens; a price that is not given counts as 0. */
static double price_or_none(double price) {
    return price_is_given(price) ? price : 0;
}

static void write_question(const struct prices *prices, const char *file_id, struct buf *body) {
    buf_add_text(body, "{\"input_file_id\":");
    json_write_string(body, str_from(file_id));
    if (prices->per_kwh <= 0) buf_add_text(body, ",\"pilot_lines\":0"); /* no time is needed */
    add_price(body, "watts", prices->watts);
    add_price(body, "price_per_kwh", prices->per_kwh);
    add_price(body, "input_price", price_or_none(prices->input_per_million));
    add_price(body, "cached_price", prices->cached_per_million);
    add_price(body, "output_price", price_or_none(prices->output_per_million));
    add_price(body, "batch_discount", prices->batch_discount);
    buf_add_byte(body, '}');
}

static enum err compare_price(const struct submission *submission, double requests, double cost,
                              double most, struct error *error) {
    if (cost > most)
        return err_set(error, ERR_LIMIT,
                       "nothing is submitted: %.0f requests would cost up to %.4g, and --max-cost "
                       "is %.4g (--limit N submits the first N only)",
                       requests, cost, most);
    say(submission, "%.0f requests will cost up to %.4g of %.4g", requests, cost, most);
    return OK;
}

/* Prices a file for a server that cannot: by its bytes, and the longest answers. */
static enum err guess_price(const struct submission *submission, const struct cost_choice *choice,
                            const struct requests_file *input, struct error *error) {
    const struct prices *prices = &choice->prices;
    struct cost_guess guess;
    enum err err = cost_guess_make(&guess, input, error);
    if (err != OK) return err;
    if (prices->input_per_million <= 0 && prices->output_per_million <= 0)
        return err_set(error, ERR_INVALID,
                       "what the file costs cannot be known before: %.150s has no preflight; give "
                       "--input-price and --output-price for an estimate",
                       submission->base_url);
    if (guess.unbounded > 0 && prices->output_per_million > 0)
        return err_set(error, ERR_INVALID,
                       "what the file costs cannot be known before: %.150s has no preflight, and "
                       "%" PRIu64 " of %" PRIu64 " requests set no max_tokens",
                       submission->base_url, guess.unbounded, guess.requests);
    say(submission, "the server has no preflight: an ESTIMATE, one token for four bytes and "
                    "each answer as long as its max_tokens");
    double cost = (guess.input_tokens * price_or_none(prices->input_per_million) +
                   guess.output_tokens * price_or_none(prices->output_per_million)) *
                  (1 - prices->batch_discount) / 1e6;
    return compare_price(submission, (double)guess.requests, cost, choice->cost_max, error);
}

/* Asks the server what the file would cost. ERR_LIMIT over the limit. */
static enum err ask_price(const struct submission *submission, const struct cost_choice *choice,
                          const struct requests_file *input, const char *file_id,
                          struct error *error) {
    struct buf body;
    struct remote_answer answer;
    json_t *object = NULL;
    buf_init(&body, 4096);
    write_question(&choice->prices, file_id, &body);
    const struct remote_call call = {
        .path = "/batches/preflight", .body = buf_str(&body), .answer_ms = PREFLIGHT_MS};
    enum err err = remote_get(submission->remote, &call, &answer, error);
    buf_release(&body);
    if (err == OK && (answer.status == 404 || answer.status == 405))
        return guess_price(submission, choice, input, error);
    if (err == OK) err = remote_judge(submission->remote, &answer, error);
    if (err == OK) err = object_read(answer.body, &object, error);
    if (err != OK) return err;
    double cost = mean_of(object, "api_cost") + mean_of(object, "energy_cost");
    double requests = json_number_value(json_member(object, "requests"));
    json_decref(object);
    if (!(cost > 0))
        return err_set(error, ERR_INVALID, "the server's preflight could not price the file");
    return compare_price(submission, requests, cost, choice->cost_max, error);
}

/* --- making --- */

struct sending {
    const struct submission *submission;
    uint64_t bytes;
};

static void report_sending(void *context, uint64_t bytes) {
    const struct sending *sending = context;
    const struct submission *submission = sending->submission;
    submission->sending(submission->context, bytes, sending->bytes);
}

static enum err create(const struct submission *submission, const struct submit_wish *wish,
                       const struct requests_file *input, const char *key, json_t **ret_batch,
                       struct error *error) {
    char file_id[OBJECT_FILE_ID_BYTES];
    struct sending sending = {submission, input->bytes};
    const struct upload_source source = {.fd = input->fd,
                                         .bytes = input->bytes,
                                         .name = input->name,
                                         .context = &sending,
                                         .progress = report_sending};
    enum err err = upload_file(submission->remote, &source, file_id, error);
    submission->sent(submission->context);
    if (err == OK && wish->cost.cost_max > 0)
        err = ask_price(submission, &wish->cost, input, file_id, error);
    if (err != OK) return err;
    struct batch_wish batch = {.input_file_id = file_id,
                               .endpoint = wish->endpoint ? wish->endpoint : input->endpoint,
                               .window = wish->window ? wish->window : "24h",
                               .submission = key,
                               .metadata = make_metadata(wish)};
    err = remote_batches_create(submission->remote, &batch, ret_batch, error);
    json_decref(batch.metadata);
    return err;
}

enum err submit_make(const struct submission *submission, const struct submit_wish *wish,
                     const struct requests_file *input, json_t **ret_batch, struct error *error) {
    char key[64];
    json_t *found = NULL;
    id_hex(key, sizeof key, "submit-", 32);
    if (!wish->endpoint && !*input->endpoint)
        return err_set(error, ERR_INVALID,
                       "the first line of %s names no url; say --endpoint /v1/chat/completions, or "
                       "another one",
                       input->name);
    if (wish->submission) {
        enum err err = remote_batches_find(submission->remote, wish->submission, &found, error);
        if (err != OK) return err;
    }
    if (found) {
        say(submission, "the server has a batch of this --idempotency-key already");
        *ret_batch = found;
        return OK;
    }
    return create(submission, wish, input, wish->submission ? wish->submission : key, ret_batch,
                  error);
}
