/* SPDX-License-Identifier: Apache-2.0 */
#include "explain.h"

#include "run.h"

#include <stdio.h>

#define DRAWN_CALLS 6

static void draw_calls(uint32_t life) {
    uint32_t end = world->trace_count, from = end > WORLD_TRACE ? end - WORLD_TRACE : 0, count = 0;
    for (uint32_t i = end; i-- > from;)
        if (world->trace[i % WORLD_TRACE].life == life && count++ == DRAWN_CALLS) from = i;
    for (uint32_t i = from; i < end; i++) {
        const struct trace *trace = &world->trace[i % WORLD_TRACE];
        if (trace->life != life) continue;
        printf("#   disk     │ %4u %-10s %s", trace->call, trace->name, trace->file);
        if (trace->bytes)
            printf("  %llu+%llu", (unsigned long long)trace->offset,
                   (unsigned long long)trace->bytes);
        printf("\n");
    }
}

static void draw(const struct plan *plan) {
    char text[128];
    printf("# seed %llu: %s disk, %s, %u worker%s on %u nodes, a thread gives way at %s%u places, "
           "trouble %u, failing %u, answers in %u ms\n",
           (unsigned long long)plan->seed, plan->is_fresh ? "an empty" : "a formatted",
           plan->http ? "a client with HTTP" : "no HTTP", plan->workers,
           plan->workers == 1 ? "" : "s", plan->nodes, plan->preempt ? "1 of " : "", plan->preempt,
           plan->trouble, plan->failing, plan->delay_ms);
    for (uint32_t i = 0; i < plan->event_count; i++) {
        if (event_is_fault(plan->events[i].kind)) continue;
        plan_write_event(&plan->events[i], text, sizeof text);
        printf("#   client   │ %s%s\n", text, i < world->command ? "" : "  ← not answered");
    }
    for (uint32_t life = 0; life <= world->life; life++) {
        printf("#   ─────────┤ life %u\n", life + 1);
        draw_calls(life);
        for (uint32_t i = 0; i < plan->event_count; i++) {
            if (!event_is_fault(plan->events[i].kind) || plan->events[i].life != life) continue;
            plan_write_event(&plan->events[i], text, sizeof text);
            printf("#   fault    ╳ %s\n", text);
        }
    }
    printf("#   VIOLATED : %s\n", world->wrong);
}

unsigned explain(struct plan *plan) {
    uint32_t before = plan->event_count;
    printf("# seed %llu: %s\n", (unsigned long long)plan->seed, world->wrong);
    unsigned runs = run_shrink(plan);
    printf("# %u events of %u are left after %u runs\n", plan->event_count, before, runs);
    draw(plan);
    return plan->event_count;
}
