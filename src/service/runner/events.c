/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/events.h"

#include "base/log.h"
#include "runner/runner_internal.h"

#include <stdarg.h>
#include <stdio.h>

void events_note(struct runner *runner, enum history_kind kind, const char *batch_id,
                 const char *owner, const char *format, ...) {
    struct history_event event = {.at_unix_s = runner_now_unix_s(runner), .kind = kind};
    va_list arguments;
    if (batch_id) {
        snprintf(event.batch_id, sizeof event.batch_id, "%s", batch_id);
        snprintf(event.owner, sizeof event.owner, "%s", owner);
    }
    va_start(arguments, format);
    vsnprintf(event.text, sizeof event.text, format, arguments);
    va_end(arguments);
    history_add(runner->machine.history, &event);
}

void events_tell(struct runner *runner, const struct runner_event *event) {
    static const char *const names[] = {"batch_stuck", "batch_at_risk", "engine_down"};
    if (event->batch_id)
        log_warn("batch=%s event=%s age_s=%lld text=\"%s\"", event->batch_id, names[event->kind],
                 (long long)event->age_s, event->text);
    if (event->kind == RUNNER_BATCH_STUCK)
        events_note(runner, HISTORY_BATCH_STUCK, event->batch_id, event->owner,
                    "No result for %lld s. %s", (long long)event->age_s, event->text);
    else if (event->kind == RUNNER_BATCH_AT_RISK)
        events_note(runner, HISTORY_BATCH_AT_RISK, event->batch_id, event->owner, "%s",
                    event->text);
    else
        events_note(runner, HISTORY_ENGINE_DOWN, NULL, NULL, "Worker %u: %s.", event->worker,
                    event->text);
    const struct runner_events *events = &runner->options.events;
    if (events->event) events->event(events->context, event);
}
