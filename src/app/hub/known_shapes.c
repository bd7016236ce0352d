/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/known_shapes.h"

#include "base/mem.h"
#include "base/no_memory.h"
#include "hub/hub_internal.h"
#include "hub/inspect_verdict.h"
#include "json/json.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const char known_shapes_text[]; /* known_shapes.json */

struct known_shapes {
    json_t *table;
};

struct known_shapes *known_shapes_open(void) {
    struct known_shapes *shapes = calloc(1, sizeof *shapes);
    struct error error;
    if (!shapes) no_memory();
    const enum err err = json_read(&shapes->table, str_from(known_shapes_text), &error);
    assert(err == OK);
    return shapes;
}

void known_shapes_close(struct known_shapes *shapes) {
    if (!shapes) return;
    json_decref(shapes->table);
    free(shapes);
}

/* A model's config; one that says "like" has the fields of that model, and its own instead of
 * them. NULL if the table lacks it. */
static json_t *config_of(const struct known_shapes *shapes, const char *repository) {
    json_t *own = json_member(shapes->table, repository), *config;
    if (!own) return NULL;
    const struct str like = json_member_str(own, "like");
    json_t *from = like.at ? json_member(shapes->table, like.at) : NULL;
    config = from ? json_copy(from) : json_object();
    if (!config || json_object_update(config, own) != 0) no_memory();
    (void)json_object_del(config, "like");
    return config;
}

size_t known_shape_forms(const struct known_shapes *shapes, const struct known_name *name,
                         enum shape_types ret_forms[KNOWN_FORMS]) {
    static const enum shape_types usual[] = {SHAPE_BF16, SHAPE_Q8_0, SHAPE_Q4_K_M};
    json_t *config = config_of(shapes, name->repository);
    if (!config) return 0;
    const bool is_mxfp4 = str_is(json_member_str(config, "model_type"), "gpt_oss");
    json_decref(config);
    ret_forms[0] = SHAPE_MXFP4;
    if (is_mxfp4) return 1;
    memcpy(ret_forms, usual, sizeof usual);
    return sizeof usual / sizeof *usual;
}

const char *known_shape_form_name(enum shape_types form) {
    static const char *const names[] = {[SHAPE_BF16] = "BF16",
                                        [SHAPE_Q8_0] = "Q8_0",
                                        [SHAPE_Q4_K_M] = "Q4_K_M",
                                        [SHAPE_MXFP4] = "MXFP4"};
    return names[form];
}

bool known_shape_read(const struct known_shapes *shapes, const struct known_name *name,
                      enum shape_types form, struct checkpoint **ret_checkpoint) {
    struct error error;
    struct buf text;
    json_t *config = config_of(shapes, name->repository);
    if (!config) return false;
    buf_init(&text, BUF_UNLIMITED);
    json_write(&text, config);
    json_decref(config);
    const enum err err = checkpoint_open_shape(ret_checkpoint, buf_str(&text), form, &error);
    if (err != OK) fprintf(stderr, "%s: %s\n", name->repository, error.text);
    assert(err == OK); /* the table is quern's own */
    buf_release(&text);
    return true;
}

void known_shape_inspect(struct inspection *ret_inspection, const struct checkpoint *checkpoint) {
    const struct model_config *config = checkpoint_config(checkpoint);
    struct inspection inspection = {.context = config->context_max,
                                    .vocabulary = config->vocab_rows,
                                    .layers = config->layers,
                                    .width = config->width,
                                    .heads = config->heads,
                                    .kv_heads = config->kv_heads,
                                    .head_dim = config->head_dim};
    for (size_t i = 0; i < checkpoint_tensor_count(checkpoint); i++) {
        const struct checkpoint_tensor *tensor = checkpoint_tensor_at(checkpoint, i);
        inspect_add_tensor(&inspection, tensor_type_name((enum tensor_type)tensor->type),
                           checkpoint_numbers(tensor), tensor->bytes);
    }
    inspection.file_bytes = inspection.weight_bytes;
    inspect_take(&inspection, checkpoint);
    buf_init(&inspection.template, BUF_UNLIMITED);
    *ret_inspection = inspection;
}
