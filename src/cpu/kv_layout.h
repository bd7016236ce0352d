/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* kv_layout: which layers' keys and values share a page (scheduler/backend.h).
 *
 * Layers that see a window only stand apart from the others, since their pages are given back
 * earlier. All groups have room for equally many layers, so that all pages are of one size; what a
 * group has less is wasted, so its size is chosen to waste little.
 *
 * Thread: any.  Memory: the struct. */

#include "checkpoint/config.h"

struct kv_layout {
    uint32_t layers_each; /* of a group, at most */
    uint32_t full_groups;
    uint32_t window_groups;            /* after the full ones; 0 where nothing leaves the window */
    uint32_t window_tokens;            /* of the window groups; else 0 */
    uint16_t group[CONFIG_LAYERS_MAX]; /* of a layer */
    uint16_t place[CONFIG_LAYERS_MAX]; /* of a layer in its group, below layers_each */
};

/* For sequences of up to `context_max` positions. */
struct kv_layout kv_layout_of(const struct model_config *config, uint32_t context_max);
/* All layers in one group. */
struct kv_layout kv_layout_plain(const struct model_config *config);
uint32_t kv_layout_groups(const struct kv_layout *layout);
