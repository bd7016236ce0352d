/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/batch_watch.h"

#include "base/clock.h"
#include "client/remote_batches.h"

#include <stdio.h>
#include <string.h>

#define SLICE_MS 50

/* Whether a script that follows the batch would want to know. */
static bool has_changed(const struct batch_object *before, const struct batch_object *now) {
    return strcmp(before->status, now->status) != 0 || before->completed != now->completed ||
           before->failed != now->failed || before->total != now->total ||
           strcmp(before->waiting_for, now->waiting_for) != 0 ||
           strcmp(before->paused, now->paused) != 0;
}

static void wait_ms(int64_t milliseconds, const volatile bool *stop) {
    for (; milliseconds > 0 && !*stop; milliseconds -= SLICE_MS)
        clock_sleep_ms(milliseconds < SLICE_MS ? milliseconds : SLICE_MS);
}

enum err batch_watch(struct session *session, const struct batch_watch *watch,
                     struct batch_object *ret_batch, struct error *error) {
    struct batch_progress progress = {0};
    struct batch_object before = {0}, batch = {0};
    for (;;) {
        json_t *object;
        enum err err = remote_batches_get(session->remote, watch->id, &object, error);
        if (err == OK) err = session_read_batch(object, &batch, error);
        if (err == ERR_CANCELLED)
            return err_set(
                error, err,
                "stopped watching; %.100s goes on: `quern watch %.100s` comes back to it",
                watch->id, watch->id);
        if (err != OK) return err;
        if (watch->json && has_changed(&before, &batch)) session_print_json(object);
        json_decref(object);
        if (!watch->json) batch_show_progress(session, &progress, &batch, clock_monotonic_ns());
        before = batch;
        if (batch_object_is_over(&batch)) {
            *ret_batch = batch;
            return OK;
        }
        wait_ms(watch->seconds * 1000, watch->stop);
    }
}
