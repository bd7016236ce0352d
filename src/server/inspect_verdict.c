/* SPDX-License-Identifier: Apache-2.0 */
#include "model/checkpoint.h"
#include "model/tensors.h"
#include "server/inspect.h"

enum err inspect_verdict(const char *path, struct error *error) {
    struct checkpoint *checkpoint;
    const struct checkpoint_options options = {.dummy_weights = false};
    enum err err = checkpoint_open(&checkpoint, path, &options, error);
    if (err != OK) return err;
    err = tensors_check(checkpoint, checkpoint_config(checkpoint), error);
    checkpoint_close(checkpoint);
    return err;
}
