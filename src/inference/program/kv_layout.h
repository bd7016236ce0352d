/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* kv_layout: which layers' keys and values share a page (scheduler/backend.h).
 *
 * Layers that see only a window are in groups of their own, because their pages are given back
 * earlier. All groups have room for the same number of layers, so that all pages have one size. A
 * smaller group wastes the rest, so the size is chosen to waste little.
 *
 * Thread: any.
 * Memory: the struct. */

#include "checkpoint/config.h"

struct kv_layout {
    uint32_t layers_each; /* most layers of a group */
    uint32_t planes;      /* 2: keys and values; 1: entries that are both (latent layers) */
    uint32_t full_groups;
    uint32_t window_groups; /* behind the full ones; 0 when no position leaves a window */
    uint32_t window_tokens; /* window of the window groups; 0 without them */
    uint16_t group[CONFIG_LAYERS_MAX]; /* group of each layer */
    uint16_t place[CONFIG_LAYERS_MAX]; /* place of each layer in its group, below layers_each */
    /* Elements of keys, or of values, per token at each place: the most of its layers. A layer that
     * reads the keys of another has its group and place. */
    uint32_t width[CONFIG_LAYERS_MAX]; /* (layers_each) */
    uint32_t heads[CONFIG_LAYERS_MAX]; /* (layers_each) likewise KV heads, the most of its layers */
};

/* The layout for sequences of up to `context_max` positions. */
struct kv_layout kv_layout_of(const struct model_config *config, uint32_t context_max);
/* The layout with all layers in one group. A recurrent layer has no place in any. */
struct kv_layout kv_layout_plain(const struct model_config *config);
/* The layout of steps of whole texts, whose layers take turns in one place: a group of the layers
 * that see all keys, and one of those with a window, if there are both. */
struct kv_layout kv_layout_of_texts(const struct model_config *config, bool is_bidirectional);
/* Keys that a row of texts sees in a layer with such a window: of a row that sees both sides, as
 * many behind it as before it. */
uint32_t kv_layout_text_window(const struct model_config *config, bool is_bidirectional,
                               uint32_t window);
uint32_t kv_layout_groups(const struct kv_layout *layout);
/* Pages of a sequence of so many tokens between two steps. A window group gives back what the
 * window has left. */
uint32_t kv_layout_pages(const struct kv_layout *layout, uint32_t tokens);
