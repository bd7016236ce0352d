/* SPDX-License-Identifier: Apache-2.0 */

/* ModernBERT's own fields: a decoder in all but its mask, its embedding's norm and its head for
 * labels. The defaults are those of ModernBertConfig in transformers 5. */

#include "checkpoint/config_json.h"

enum err config_json_read_modern_bert(struct json_config *json, const json_t *text,
                                      struct error *error) {
    static const char *const flags[] = {"norm_bias", "classifier_bias"};
    struct model_config *config = &json->config;
    const struct str pooling = json_member_str(text, "classifier_pooling");
    const struct str activation = json_member_str(text, "classifier_activation");
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        bool value = false;
        enum err err = config_json_bool(text, flags[i], &value, error);
        if (err == OK && value)
            err = err_set(error, ERR_INVALID, "%s true is not supported", flags[i]);
        if (err != OK) return err;
    }
    config_center_windows(config);
    config->is_bidirectional = true;
    if (config->labels == 0) return OK;
    if (activation.bytes > 0 && !str_is(activation, "gelu"))
        return err_set(error, ERR_INVALID,
                       "classifier_activation '%.*s' is not supported (gelu is)",
                       STR_ARGS(config_json_shown(activation)));
    config->pooling = POOLING_CLS;
    if (pooling.bytes == 0 || str_is(pooling, "cls")) return OK;
    config->pooling = POOLING_MEAN;
    if (str_is(pooling, "mean")) return OK;
    return err_set(error, ERR_INVALID,
                   "classifier_pooling '%.*s' is not supported (cls and mean are)",
                   STR_ARGS(config_json_shown(pooling)));
}
