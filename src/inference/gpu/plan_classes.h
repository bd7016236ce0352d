/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* plan_classes: items in order of their cost, the costly ones first.
 *
 * Costs fall into 512 classes, and within a class items keep their order. A sort by comparison
 * would take longer than the rest of a step's plan. Four calls in turn: begin, count for each item,
 * settle, and place for each item.
 *
 * Thread: any.
 * Memory: the struct. */

#include <stdint.h>

#define PLAN_CLASSES 512u

struct plan_classes {
    uint32_t largest; /* cost */
    uint32_t places[PLAN_CLASSES + 1];
};

/* No cost is above `largest`. */
static inline void plan_classes_begin(struct plan_classes *classes, uint32_t largest) {
    *classes = (struct plan_classes){.largest = largest > 0 ? largest : 1};
}

static inline uint32_t plan_classes_of(const struct plan_classes *classes, uint32_t cost) {
    return (uint32_t)((uint64_t)(classes->largest - cost) * (PLAN_CLASSES - 1) / classes->largest);
}

static inline void plan_classes_count(struct plan_classes *classes, uint32_t cost) {
    classes->places[plan_classes_of(classes, cost) + 1]++;
}

static inline void plan_classes_settle(struct plan_classes *classes) {
    for (uint32_t i = 0; i < PLAN_CLASSES; i++) classes->places[i + 1] += classes->places[i];
}

/* The place of the next item of that cost. */
static inline uint32_t plan_classes_place(struct plan_classes *classes, uint32_t cost) {
    return classes->places[plan_classes_of(classes, cost)]++;
}
