/* SPDX-License-Identifier: Apache-2.0 */

/* The fields of latent attention (DeepSeek). */

#include "checkpoint/config_json.h"

enum err config_json_read_latent(struct model_config *config, const json_t *text,
                                 struct error *error) {
    struct latent_sizes *sizes = &config->latent;
    uint32_t kv_heads = config->heads; /* as many as heads, and so it is not needed */
    bool is_interleaved = true;
    *sizes = (struct latent_sizes){
        .rank = 512, .q_rank = 1536, .still_dim = 128, .turned_dim = 64, .value_dim = 128};
    const struct {
        const char *key;
        uint32_t max, *count;
    } counts[] = {
        {"num_key_value_heads", CONFIG_HEADS_MAX, &kv_heads},
        {"kv_lora_rank", CONFIG_LATENT_RANK_MAX, &sizes->rank},
        {"q_lora_rank", CONFIG_WIDTH_MAX, &sizes->q_rank},
        {"qk_nope_head_dim", CONFIG_HEAD_DIM_MAX, &sizes->still_dim},
        {"qk_rope_head_dim", CONFIG_LATENT_TURNED_MAX, &sizes->turned_dim},
        {"v_head_dim", CONFIG_HEAD_DIM_MAX, &sizes->value_dim},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        enum err err =
            config_json_count(text, counts[i].key, counts[i].max, counts[i].count, error);
        if (err != OK) return err;
    }
    if (json_is_null(json_object_get(text, "q_lora_rank"))) sizes->q_rank = 0;
    enum err err = config_json_bool(text, "rope_interleave", &is_interleaved, error);
    sizes->halves_turn = !is_interleaved;
    return err == OK ? config_set_latent(config, error) : err;
}
