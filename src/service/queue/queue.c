/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/queue.h"

#include "queue/local.h"

#include <string.h>

static const struct {
    const char *name;
    enum err (*open)(struct queue **ret_queue, struct error *error);
} kinds[] = {
    {"local", queue_local_open},
};

enum err queue_open(struct queue **ret_queue, const char *name, struct error *error) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0) return kinds[i].open(ret_queue, error);
    return err_set(error, ERR_INVALID, "there is no queue '%s'", name);
}
