/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/inputs.h"

#include "base/clock.h"
#include "base/os.h"
#include "store/files.h"

static void forget(struct inputs *inputs, size_t at) {
    if (inputs->at[at].batch_sequence != 0) os_close(inputs->at[at].fd);
    inputs->at[at].batch_sequence = 0;
    inputs->at[at].used_ns = 0;
}

enum err inputs_find(struct inputs *inputs, struct store *store, const struct store_batch *batch,
                     int *ret_fd, struct error *error) {
    size_t oldest = 0;
    for (size_t i = 0; i < INPUTS_MAX; i++) {
        if (inputs->at[i].batch_sequence == batch->sequence) {
            inputs->at[i].used_ns = clock_monotonic_ns();
            *ret_fd = inputs->at[i].fd;
            return OK;
        }
        if (inputs->at[i].used_ns < inputs->at[oldest].used_ns) oldest = i;
    }
    int fd;
    enum err err = store_input_open(store, str_from(batch->input_file_id), batch->created_unix_s,
                                    &fd, NULL, error);
    if (err != OK) return err;
    forget(inputs, oldest);
    inputs->at[oldest].batch_sequence = batch->sequence;
    inputs->at[oldest].used_ns = clock_monotonic_ns();
    *ret_fd = inputs->at[oldest].fd = fd;
    return OK;
}

void inputs_rest(struct inputs *inputs, int64_t since_ns) {
    for (size_t i = 0; i < INPUTS_MAX; i++)
        if (inputs->at[i].batch_sequence != 0 && inputs->at[i].used_ns < since_ns)
            forget(inputs, i);
}

void inputs_close(struct inputs *inputs) {
    for (size_t i = 0; i < INPUTS_MAX; i++) forget(inputs, i);
}
