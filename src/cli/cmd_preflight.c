/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/settings.h"
#include "cli/stop.h"
#include "preflight/preflight.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BAR_WIDTH 36
#define SAMPLE_LINES_DEFAULT 48
#define OWN_OPTIONS 8

struct asked {
    struct preflight_options preflight;
    struct engine_choice choice;
    int64_t pilot;
    bool json;
    bool ends_with_parent;
};

static void show_what(void *context, const char *what) {
    (void)context;
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[K%s ...", what);
}

static double percent(uint64_t part, uint64_t whole) {
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static void print_time(const char *label, double seconds) {
    if (seconds < 120)
        printf("%s%.1f s", label, seconds);
    else if (seconds < 7200)
        printf("%s%.0f min", label, seconds / 60);
    else
        printf("%s%.1f h", label, seconds / 3600);
}

static void print_histogram(const struct lengths *lengths) {
    uint64_t most = 1;
    size_t last = 0;
    for (size_t i = 0; i < ESTIMATE_BINS; i++) {
        if (lengths->bins[i] > most) most = lengths->bins[i];
        if (lengths->bins[i] > 0) last = i;
    }
    for (size_t i = 0; i <= last; i++) {
        char bar[BAR_WIDTH + 1];
        size_t width = (size_t)((lengths->bins[i] * BAR_WIDTH + most - 1) / most);
        for (size_t j = 0; j < BAR_WIDTH; j++) bar[j] = j < width ? '#' : ' ';
        bar[BAR_WIDTH] = '\0';
        printf("  %8u+  %s %llu\n", estimate_bin_start(i), bar,
               (unsigned long long)lengths->bins[i]);
    }
}

static void print_requests(const struct preflight *is, const char *path) {
    printf("%s: %llu requests for %s, %.1f MB, read in %.1f s\n", path,
           (unsigned long long)is->requests, is->model, (double)is->bytes / 1e6, is->count_seconds);
    if (is->is_guess)
        printf("  There is no tokenizer of this model here: lengths are an ESTIMATE, one token "
               "for four bytes.\n");
    for (size_t i = 0; i < REQUEST_COUNT_FAULTS_MAX && i < is->faulty; i++)
        printf("  line %llu would be refused: %s\n", (unsigned long long)is->faults[i].number,
               is->faults[i].message);
    if (is->faulty > REQUEST_COUNT_FAULTS_MAX)
        printf("  and %llu more would be refused\n",
               (unsigned long long)is->faulty - REQUEST_COUNT_FAULTS_MAX);
}

static void print_lengths(const struct preflight *is) {
    printf("\nPrompts     %llu tokens%s; P50 %u, P95 %u, P99 %u, longest %u\n",
           (unsigned long long)is->prompt_tokens, is->is_guess ? " (estimated)" : "",
           is->prompts.p50, is->prompts.p95, is->prompts.p99, is->prompts.max);
    print_histogram(&is->prompts);
    if (is->answers_open > 0)
        printf("Answers     %llu requests set no max_tokens: their answers may fill the context\n",
               (unsigned long long)is->answers_open);
    if (is->context_tokens > 0)
        printf("Context     %u tokens; %llu requests (%.1f %%) do not fit with their max_tokens\n",
               is->context_tokens, (unsigned long long)is->over_context,
               percent(is->over_context, is->requests));
    if (is->only_embeds) return;
    printf("            --max-model-len %u serves 95 of 100, %u all of them\n",
           is->recommended_length, is->whole_length);
    if (is->kv_tokens > 0)
        printf("KV cache    %llu tokens: %llu requests of mean length at a time, %llu of P95\n",
               (unsigned long long)is->kv_tokens, (unsigned long long)is->fit_mean,
               (unsigned long long)is->fit_p95);
}

static void print_sharing(const struct preflight *is) {
    printf(
        "Duplicates  %llu requests (%.1f %%) need no run: an equal one, not sampled, is answered\n",
        (unsigned long long)is->duplicates, percent(is->duplicates, is->requests));
    if (is->is_guess || is->only_embeds) return;
    printf(
        "Prefixes    %.1f %% of the prompt tokens repeat the beginning of another prompt; prefix "
        "caching saves\n            computing %llu of %llu\n",
        percent(is->shared_tokens, is->prompt_tokens), (unsigned long long)is->shared_tokens,
        (unsigned long long)is->prompt_tokens);
    if (is->late_share >= 0.1)
        printf("Advice      In %.0f %% of the requests, text that many share stands behind text of "
               "their own. Moved\n            to the front, about %.0f tokens a request would be "
               "computed once.\n",
               100 * is->late_share, is->late_tokens_mean);
}

static void print_money(const char *label, const struct interval *is) {
    if (is->mean <= 0) return;
    if (is->is_known)
        printf("%s%.4g (%.4g to %.4g)\n", label, is->mean, is->low, is->high);
    else
        printf("%s%.4g\n", label, is->mean);
}

static void print_sample(const struct preflight *is) {
    if (!is->has_sample) {
        printf("Time        not measured%s\n",
               is->is_guess ? ": the model does not run here" : " (--pilot 0, or no request fits)");
    } else {
        print_time("Time        ", is->seconds.mean);
        if (is->seconds.is_known) {
            print_time(" (", is->seconds.low);
            print_time(" to ", is->seconds.high);
            printf(", 95 %%)");
        }
        printf(", from %u requests in %zu groups\n", is->sample.lines, is->sample.groups);
        printf("            %.0f tokens out; %u of the sample failed. A whole file keeps more "
               "requests running at a\n            time than a group, and is often faster.\n",
               is->output_tokens.mean, is->sample.failed);
    }
    print_money("Energy      kWh: ", &is->kwh);
    print_money("            at your price: ", &is->energy_cost);
    print_money("Managed API at its price: ", &is->api_cost);
    if (is->api_cost.mean > 0 && !is->has_sample)
        printf("            with every answer as long as its max_tokens allows\n");
}

static void print_all(const struct preflight *is, const struct asked *asked) {
    if (asked->json) {
        struct buf text;
        buf_init(&text, 1 << 20);
        preflight_write_json(&text, is);
        puts(text.at);
        buf_release(&text);
        return;
    }
    print_requests(is, asked->preflight.path);
    if (is->requests == is->faulty) return;
    print_lengths(is);
    print_sharing(is);
    print_sample(is);
}

static size_t fill_options(struct option *options, struct asked *asked) {
    struct preflight_options *is = &asked->preflight;
    const struct option own[OWN_OPTIONS] = {
        {.name = "json",
         .kind = OPTION_SWITCH,
         .target = &asked->json,
         .help = "one JSON object on standard output"},
        {.name = "pilot",
         .kind = OPTION_INTEGER,
         .target = &asked->pilot,
         .value = "N",
         .help = "requests to run for the time it takes; 48; 0 runs none",
         .min = 0,
         .max = SAMPLE_RUN_LINES_MAX},
        {.name = "watts",
         .kind = OPTION_NUMBER,
         .target = &is->watts,
         .value = "W",
         .help = "what this machine draws while it works",
         .max = 1e6},
        {.name = "price-per-kwh",
         .kind = OPTION_NUMBER,
         .target = &is->price_per_kwh,
         .value = "P",
         .help = "of electricity",
         .max = 1e6},
        {.name = "input-price",
         .kind = OPTION_NUMBER,
         .target = &is->input_price,
         .value = "P",
         .help = "of a million input tokens at a managed API",
         .max = 1e6},
        {.name = "output-price",
         .kind = OPTION_NUMBER,
         .target = &is->output_price,
         .value = "P",
         .help = "of a million output tokens there",
         .max = 1e6},
        {.name = "batch-discount",
         .kind = OPTION_NUMBER,
         .target = &is->batch_discount,
         .value = "S",
         .help = "share of its price that it takes off for batches; 0.5 is usual",
         .max = 1},
        {.name = "end-with-parent",
         .kind = OPTION_SWITCH,
         .target = &asked->ends_with_parent,
         .help = "stops when the process that started it ends",
         .only_flag = true},
    };
    memcpy(options, own, sizeof own);
    engine_options_fill(options + OWN_OPTIONS, &asked->choice);
    return OWN_OPTIONS + ENGINE_OPTION_COUNT;
}

static int exit_of(enum err err, const struct preflight *is) {
    if (err == OK) return is->faulty > 0 ? EXIT_LINES_FAILED : EXIT_GOOD;
    if (err == ERR_CANCELLED) return 130;
    return err == ERR_INVALID || err == ERR_NOT_FOUND ? EXIT_WRONG_INPUT : EXIT_MACHINE;
}

static int run(int argc, char **argv) {
    struct asked asked = {.choice = ENGINE_CHOICE_DEFAULT, .pilot = SAMPLE_LINES_DEFAULT};
    struct option options[OWN_OPTIONS + ENGINE_OPTION_COUNT];
    const struct options_help help = {"preflight FILE --model M [options]",
                                      "Reads a file of requests as the engine would and says what "
                                      "running it takes: exact tokens,\n"
                                      "lengths, what does not fit, what is shared, and, from a "
                                      "sample that it runs, time and cost.\n"};
    struct error error = {0};
    struct settings settings = {0};
    struct preflight preflight = {0};
    bool done = false;
    size_t count = fill_options(options, &asked);
    enum err err = settings_read(&settings, options, count, &help, argc, argv,
                                 &asked.preflight.path, 1, &done, &error);
    if (done && err == OK) return EXIT_GOOD;
    if (err == OK && !asked.preflight.path) err = err_set(&error, ERR_INVALID, "FILE is missing");
    if (err == OK) err = engine_options_apply(&asked.choice, &asked.preflight.node, &error);
    size_t engines = asked.preflight.node.model_count + asked.preflight.node.upstream_count;
    if (err == OK && engines != 1)
        err = err_set(&error, ERR_INVALID, "one --model or one --upstream, please");
    if (err != OK) {
        fprintf(stderr, "quern preflight: %s\n", error.text);
        free(asked.preflight.node.upstreams);
        settings_release(&settings);
        return engine_options_exit(err);
    }
    log_set_level(LOG_ERROR);
    asked.preflight.sample_lines = (uint32_t)asked.pilot;
    asked.preflight.stop = stop_on_signals();
    if (asked.ends_with_parent) stop_with_parent();
    asked.preflight.say = show_what;
    err = preflight_run(&asked.preflight, &preflight, &error);
    if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
    if (err != OK)
        fprintf(stderr, "quern preflight: %s\n", error.text);
    else
        print_all(&preflight, &asked);
    free(asked.preflight.node.upstreams);
    settings_release(&settings);
    return exit_of(err, &preflight);
}

const struct command cmd_preflight = {"preflight", "what running a file will take, before it runs",
                                      false, run};
