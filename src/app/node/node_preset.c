/* SPDX-License-Identifier: Apache-2.0 */

/* What a Modelfile says for a name that a client asks for. */

#include "hub/modelfile.h"
#include "node/node_internal.h"

#include <string.h>

static void keep_bytes(void *context, const struct runner_model *model) {
    *(uint64_t *)context = model->served.about.file_bytes;
}

/* The name in Ollama's store that `name` stands for: an alias's model, or that of a name which a
 * client gave; else itself. */
static struct str stored_name(const struct node *node, struct str name,
                              char room[MODEL_NAME_BYTES]) {
    for (size_t i = 0; i < node->aliased.alias_count; i++)
        if (str_equals(name, str_from(node->aliases[i].name)))
            return str_from(node->aliases[i].model);
    return names_added_find(node->aliased.added, names_added_plain(name), room) ? str_from(room)
                                                                                : name;
}

bool node_preset(struct node *node, struct str name, struct ollama_preset *ret_preset) {
    char room[MODEL_NAME_BYTES];
    uint64_t file_bytes = 0;
    if (!runner_model_find(node->runner, name, keep_bytes, &file_bytes)) return false;
    return modelfile_read(name, file_bytes, ret_preset) ||
           modelfile_read(stored_name(node, name, room), file_bytes, ret_preset);
}
