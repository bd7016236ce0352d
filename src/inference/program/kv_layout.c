/* SPDX-License-Identifier: Apache-2.0 */
#include "program/kv_layout.h"

#include "scheduler/backend.h"

#include <assert.h>

/* Groups that are not full waste at most 1/WASTE_SHARE of the layers' own memory, if such a size
 * exists. */
#define WASTE_SHARE 20u

static uint32_t divide_up(uint32_t a, uint32_t b) {
    return (a + b - 1) / b;
}

uint32_t kv_layout_groups(const struct kv_layout *layout) {
    return layout->full_groups + layout->window_groups;
}

uint32_t kv_layout_pages(const struct kv_layout *layout, uint32_t tokens) {
    const uint32_t blocks = backend_blocks_for(tokens);
    /* The window begins and ends within a block. */
    const uint32_t seen = backend_blocks_for(layout->window_tokens) + 2;
    return layout->full_groups * blocks + layout->window_groups * (seen < blocks ? seen : blocks);
}

/* Sets the planes, the widths of the places, and where layers without keys of their own read. */
static void finish(struct kv_layout *layout, const struct model_config *config) {
    layout->planes = config_is_latent(config) ? 1 : 2;
    for (uint32_t i = 0; i < config->layers; i++) {
        const uint32_t width = config_kv_width(config, i), from = config->list[i].kv_from;
        if (from > 0) {
            layout->group[i] = layout->group[from - 1];
            layout->place[i] = layout->place[from - 1];
        } else if (width > 0) {
            uint32_t *most = &layout->width[layout->place[i]];
            uint32_t *most_heads = &layout->heads[layout->place[i]];
            if (width > *most) *most = width;
            if (config_kv_heads(config, i) > *most_heads) *most_heads = config_kv_heads(config, i);
        }
    }
}

struct kv_layout kv_layout_plain(const struct model_config *config) {
    struct kv_layout layout = {.full_groups = 1};
    for (uint32_t i = 0; i < config->layers; i++)
        if (config_kv_width(config, i) > 0) layout.place[i] = (uint16_t)layout.layers_each++;
    finish(&layout, config);
    return layout;
}

uint32_t kv_layout_text_window(const struct model_config *config, bool is_bidirectional,
                               uint32_t window) {
    if (window == 0 || !is_bidirectional) return window;
    return config->windows_see_both ? 2 * window - 1 : 0;
}

struct kv_layout kv_layout_of_texts(const struct model_config *config, bool is_bidirectional) {
    struct kv_layout layout = {.layers_each = 1, .planes = 2};
    for (uint32_t i = 0; i < config->layers; i++) {
        const uint32_t width = config_kv_width(config, i);
        const uint32_t window =
            kv_layout_text_window(config, is_bidirectional, config->list[i].window);
        if (width > layout.width[0]) layout.width[0] = width;
        if (window > 0)
            layout.window_groups = 1, layout.window_tokens = window, layout.group[i] = 1;
        else
            layout.full_groups = 1;
    }
    for (uint32_t i = 0; i < config->layers && layout.full_groups == 0; i++) layout.group[i] = 0;
    return layout;
}

/* The largest size that wastes little: the fewer groups, the fewer tables. */
static uint32_t choose_layers_each(uint32_t full, uint32_t local) {
    uint32_t most = full == 0 ? local : full < local ? full : local;
    for (uint32_t each = most; each > 0; each--) {
        uint32_t groups = divide_up(full, each) + divide_up(local, each);
        if (groups > BACKEND_GROUPS_MAX) break;
        if ((groups * each - full - local) * WASTE_SHARE <= full + local) return each;
    }
    return 0;
}

struct kv_layout kv_layout_of(const struct model_config *config, uint32_t context_max) {
    uint32_t local = 0, full = 0;
    for (uint32_t i = 0; i < config->layers; i++) {
        if (config_kv_width(config, i) == 0) continue; /* no keys, or another's */
        local += config_layer_is_local(config, i);
        full += !config_layer_is_local(config, i);
    }
    uint32_t each = choose_layers_each(full, local);
    /* A sequence that ends within a block of the window has nothing to give back. */
    bool is_short = context_max <= config->window + BACKEND_BLOCK_TOKENS;
    if (local == 0 || is_short || each == 0) return kv_layout_plain(config);
    struct kv_layout layout = {.layers_each = each,
                               .full_groups = divide_up(full, each),
                               .window_groups = divide_up(local, each),
                               .window_tokens = config->window};
    uint32_t counts[2] = {0, layout.full_groups * each};
    for (uint32_t i = 0; i < config->layers; i++) {
        if (config_kv_width(config, i) == 0) continue;
        uint32_t number = counts[config_layer_is_local(config, i)]++;
        layout.group[i] = (uint16_t)(number / each);
        layout.place[i] = (uint16_t)(number % each);
    }
    assert(kv_layout_groups(&layout) <= BACKEND_GROUPS_MAX);
    finish(&layout, config);
    return layout;
}
