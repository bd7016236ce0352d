/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_limits.h"

#include "base/min_max.h"
#include "gpu/away.h"
#include "gpu/gpu_ledger.h"

/* Tokens of the cache per sequence that the default of sequences_max leaves, its least value (fewer
 * sequences than 32 leave a GPU idle), and its unit. */
#define SEQUENCE_TOKENS 512u
#define SEQUENCES_LEAST 32u
#define SEQUENCES_UNIT 16u

/* What the fewest layers away must have of the best rate: the last tenth would cost a third more
 * time per step. */
#define AWAY_SHARE 0.9

/* Places for states that running sequences leave: the beginnings of prompts that others share are
 * stored there. A branching tree of prompts has few on one path, but many sequences have several
 * such trees. More than STORED_MOST are of no use. */
#define STORED_SHARE_FEW 4u
#define STORED_FEW 8u
#define STORED_SHARE 32u
#define STORED_MOST 4096u

static uint32_t or_default(uint32_t value, uint32_t fallback) {
    return value > 0 ? value : fallback;
}

/* Sets the least and the most pages: as the caller wants them, and no more than can be of use. */
static void limit_pages(const struct gpu_limits_options *options, struct gpu_limits *limits) {
    const struct executor_limits *wanted = &options->wanted;
    const uint64_t groups = limits->group_count;
    uint64_t most =
        (uint64_t)limits->sequences_max * backend_blocks_for(limits->context_max) * groups;
    uint64_t fewest =
        backend_blocks_for(min_u32(limits->context_max, GPU_CACHE_TOKENS_LEAST)) * groups;
    if (wanted->kv_bytes > 0) {
        uint64_t bytes = gpu_ledger_page_bytes(options->program, limits);
        if (wanted->kv_bytes / bytes < most) most = wanted->kv_bytes / bytes;
    }
    if (wanted->block_count > 0) most = fewest = wanted->block_count * groups;
    if (most > EXECUTOR_PAGES_MAX) most = EXECUTOR_PAGES_MAX;
    if (most < groups) most = groups;
    limits->page_count_max = (uint32_t)most;
    limits->page_count_min = (uint32_t)(fewest < most ? fewest : most);
}

static uint32_t places_to_spare(uint32_t sequences) {
    const uint32_t few = min_u32(sequences / STORED_SHARE_FEW + 1, STORED_FEW);
    return few > sequences / STORED_SHARE ? few : sequences / STORED_SHARE;
}

/* Sets the places for states. With a limit of their memory it may leave fewer sequences. */
static void limit_states(const struct gpu_limits_options *options, struct gpu_limits *limits) {
    if (options->program->recurrent.layers == 0) return;
    const uint64_t bytes = options->wanted.state_bytes;
    uint32_t sequences = limits->sequences_max;
    limits->state_form = options->state_form;
    limits->state_places = sequences + places_to_spare(sequences);
    if (bytes == 0) return;
    const uint64_t places = bytes / gpu_ledger_state_bytes(options->program, limits);
    while (sequences > 1 && (uint64_t)sequences + places_to_spare(sequences) > places) sequences--;
    limits->sequences_max = limits->logit_rows_max = sequences;
    limits->state_places = (uint32_t)min_u64(places, (uint64_t)sequences + STORED_MOST);
}

struct plan_attention_options gpu_limits_plan(const struct gpu_limits_options *options,
                                              const struct gpu_limits *limits) {
    return (struct plan_attention_options){.layout = options->layout,
                                           .heads = options->program->heads,
                                           .kv_heads = options->program->kv_heads,
                                           .multiprocessors = options->multiprocessors,
                                           .rows_max = limits->rows_max,
                                           .sequences_max = limits->sequences_max,
                                           .context_max = limits->context_max};
}

struct gpu_sampling_options gpu_limits_sampling(const struct gpu_program *program,
                                                const struct gpu_limits *limits) {
    return (struct gpu_sampling_options){.vocab = program->vocab,
                                         .logit_rows_max = limits->logit_rows_max,
                                         .sequences_max = limits->sequences_max,
                                         .context_max = limits->context_max};
}

bool gpu_limits_have_host(const struct gpu_limits_options *options,
                          const struct gpu_limits *limits) {
    return options->host_bytes == 0 ||
           gpu_ledger_away_bytes(options->program, limits) <= options->host_bytes;
}

static bool can_leave(const struct gpu_limits_options *options) {
    const struct gpu_limits least = {.experts_away = AWAY_LEAST};
    return options->leaves_experts && away_layers(options->program) >= AWAY_LEAST &&
           gpu_limits_have_host(options, &least);
}

/* The limits with that many sequences. */
static struct gpu_limits limits_with(const struct gpu_limits_options *options, uint32_t sequences) {
    const uint32_t rows = can_leave(options) ? GPU_AWAY_ROWS : GPU_ROWS_DEFAULT;
    struct gpu_limits limits = {.rows_max = or_default(options->wanted.rows_max, rows),
                                .context_max = options->wanted.context_max,
                                .layer_places = options->layout->layers_each,
                                .group_count = kv_layout_groups(options->layout),
                                .steps_max = or_default(options->steps_max, GPU_STEPS_MAX),
                                .kv_form = options->kv_form};
    limits.sequences_max = limits.logit_rows_max = min_u32(sequences, limits.rows_max);
    limit_states(options, &limits);
    limit_pages(options, &limits);
    const struct plan_attention_options plan = gpu_limits_plan(options, &limits);
    const struct plan_attention_sizes sizes = plan_attention_sizes(&plan);
    const struct gpu_sampling_options sampling = gpu_limits_sampling(options->program, &limits);
    limits.pages_max = sizes.pages_max;
    limits.items_max = sizes.items_max;
    limits.partials_max = sizes.partials_max;
    limits.edits_max = gpu_sampling_edits_max(&sampling);
    limits.named_max = gpu_sampling_named_max(&sampling);
    return limits;
}

/* Pages of that many sequences of so many tokens. */
static uint64_t pages_of(const struct gpu_limits_options *options, uint32_t sequences,
                         uint32_t tokens) {
    const uint32_t each = min_u32(tokens, options->wanted.context_max);
    return (uint64_t)sequences * kv_layout_pages(options->layout, each);
}

/* Whether the cache will have room for so many pages. */
static bool has_pages(const struct gpu_limits_options *options, const struct gpu_limits *limits,
                      uint64_t pages) {
    const struct memory_ledger ledger =
        gpu_ledger_predict(options->program, limits, options->memory_bytes);
    return ledger.used <= ledger.limit && ledger.page_count >= pages;
}

/* The most sequences, up to `most`, for which the cache has room; SEQUENCES_LEAST if it has not. */
static uint32_t sequences_that_fit(const struct gpu_limits_options *options, uint32_t most) {
    uint32_t low = SEQUENCES_LEAST / SEQUENCES_UNIT;
    uint32_t high = most / SEQUENCES_UNIT;
    while (low < high) {
        const uint32_t middle = (low + high + 1) / 2;
        const uint32_t sequences = middle * SEQUENCES_UNIT;
        const struct gpu_limits limits = limits_with(options, sequences);
        if (has_pages(options, &limits, pages_of(options, sequences, SEQUENCE_TOKENS)))
            low = middle;
        else
            high = middle - 1;
    }
    return low * SEQUENCES_UNIT;
}

/* Whether the cache has room for all sequences with so many layers of experts away. The caller may
 * want a smaller cache. */
static bool has_room_away(const struct gpu_limits_options *options, struct gpu_limits *limits,
                          uint32_t away) {
    const uint64_t pages =
        min_u64(pages_of(options, limits->sequences_max, GPU_AWAY_TOKENS), limits->page_count_max);
    limits->experts_away = away;
    return has_pages(options, limits, pages);
}

/* The limits with as few layers of experts away as leave the cache enough for the sequences; with
 * as many as can be if none do. Each number is tried: layers differ in bytes, and which ones leave
 * changes with their number, so one more may leave less room. */
static struct gpu_limits limits_that_leave(const struct gpu_limits_options *options,
                                           uint32_t sequences) {
    const uint32_t layers = away_layers(options->program);
    struct gpu_limits limits = limits_with(options, sequences), more = limits;
    for (uint32_t away = AWAY_LEAST; away <= layers; away++) {
        more.experts_away = away;
        if (!gpu_limits_have_host(options, &more)) break;
        if (has_room_away(options, &limits, away)) break;
    }
    return limits;
}

/* The most sequences for which the cache has room with so many layers of experts away; 0: fewer
 * than SEQUENCES_UNIT. */
static uint32_t sequences_away(const struct gpu_limits_options *options, uint32_t away) {
    uint32_t low = 0, high = GPU_SEQUENCES_DEFAULT / SEQUENCES_UNIT;
    while (low < high) {
        const uint32_t middle = (low + high + 1) / 2;
        struct gpu_limits limits = limits_with(options, middle * SEQUENCES_UNIT);
        const uint64_t pages = pages_of(options, limits.sequences_max, GPU_AWAY_TOKENS);
        if (pages <= limits.page_count_max && has_room_away(options, &limits, away))
            low = middle;
        else
            high = middle - 1;
    }
    return low * SEQUENCES_UNIT;
}

/* The number of sequences with which a byte on the bus serves as many as can be, or nearly. */
static uint32_t sequences_for_bus(const struct gpu_limits_options *options) {
    uint32_t sequences[CONFIG_LAYERS_MAX + 1] = {0};
    double rates[CONFIG_LAYERS_MAX + 1] = {0}, best = 0;
    const uint32_t layers = away_layers(options->program);
    for (uint32_t away = AWAY_LEAST; away <= layers; away++) {
        const struct gpu_limits limits = {.experts_away = away};
        const uint64_t bytes = gpu_ledger_away_bytes(options->program, &limits);
        if (!gpu_limits_have_host(options, &limits)) break;
        sequences[away] = sequences_away(options, away);
        rates[away] = sequences[away] / (double)bytes;
        if (rates[away] > best) best = rates[away];
    }
    for (uint32_t away = AWAY_LEAST; away <= layers && best > 0; away++)
        if (rates[away] >= AWAY_SHARE * best) return sequences[away];
    return SEQUENCES_UNIT;
}

struct gpu_limits gpu_limits_of(const struct gpu_limits_options *options) {
    const uint32_t wanted = options->wanted.sequences_max;
    uint32_t sequences = or_default(wanted, GPU_SEQUENCES_DEFAULT);
    if (can_leave(options))
        return limits_that_leave(options, wanted > 0 ? wanted : sequences_for_bus(options));
    if (wanted == 0 && options->memory_bytes > 0)
        sequences = sequences_that_fit(options, sequences);
    return limits_with(options, sequences);
}
