/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder_names.h"
#include "cpu/embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static char folder[] = "/tmp/quern-test-encoder-XXXXXX";

static const char *path_of(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const char *text) {
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    fclose(file);
}

static int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    return mkdir(path_of("1_Pooling"), 0700);
}

static int remove_folder(void **state) {
    static const char *const names[] = {"config.json", "modules.json", "1_Pooling/config.json",
                                        "sentence_bert_config.json"};
    (void)state;
    for (size_t i = 0; i < 4; i++) unlink(path_of(names[i]));
    rmdir(path_of("1_Pooling"));
    return rmdir(folder);
}

#define CONFIG(more)                                                                               \
    "{\"model_type\":\"bert\",\"hidden_size\":32,\"intermediate_size\":64,"                        \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"max_position_embeddings\":128,"           \
    "\"vocab_size\":50" more "}"
#define MODULES(type, path)                                                                        \
    "[{\"path\":\"\",\"type\":\"sentence_transformers.models.Transformer\"},"                      \
    "{\"path\":\"" path "\",\"type\":\"sentence_transformers.models." type "\"},"                  \
    "{\"path\":\"2_Normalize\",\"type\":\"sentence_transformers.models.Normalize\"}]"

static enum err open_folder(struct checkpoint **ret_checkpoint, struct error *error) {
    const struct checkpoint_options options = {.dummy_weights = true};
    return checkpoint_open(ret_checkpoint, folder, &options, error);
}

static int plain(void **state) {
    (void)state;
    put("config.json", CONFIG(""));
    put("modules.json", MODULES("Pooling", "1_Pooling"));
    put("1_Pooling/config.json", "{\"pooling_mode_cls_token\":true}");
    put("sentence_bert_config.json", "{\"max_seq_length\":64}");
    return 0;
}

static void a_bert_folder_is_an_encoder(void **state) {
    (void)state;
    struct checkpoint *checkpoint;
    struct error error = {0};
    if (open_folder(&checkpoint, &error) != OK) fail_msg("%s", error.text);
    const struct model_config *config = checkpoint_config(checkpoint);
    assert_true(config->architecture->is_encoder && config->is_bidirectional);
    assert_int_equal(config->layers, 2);
    assert_int_equal(config->head_dim, 8);
    assert_int_equal(config->context_max, 128);
    assert_int_equal(config->token_types, 2);
    assert_true(config->eps == 1e-12f);
    assert_int_equal(config->pooling, POOLING_CLS);
    assert_int_equal(embed_tokens_max(config, 128), 64);
    assert_int_equal(embed_tokens_max(config, 16), 16);
    assert_non_null(checkpoint_find(checkpoint, STR("position_embd.weight")));
    assert_non_null(checkpoint_find(checkpoint, STR("blk.1.layer_output_norm.bias")));
    assert_null(checkpoint_find(checkpoint, STR("output.weight")));
    checkpoint_close(checkpoint);
}

static void without_these_files_nothing_is_said(void **state) {
    (void)state;
    struct checkpoint *checkpoint;
    struct error error = {0};
    unlink(path_of("modules.json"));
    if (open_folder(&checkpoint, &error) != OK) fail_msg("%s", error.text);
    const struct model_config *config = checkpoint_config(checkpoint);
    assert_int_equal(config->pooling, POOLING_NONE);
    assert_int_equal(embed_pooling(config, POOLING_NONE), POOLING_MEAN); /* as encoders do */
    assert_int_equal(embed_tokens_max(config, 128), 128);
    checkpoint_close(checkpoint);
}

static void every_mode_is_read(void **state) {
    static const struct {
        const char *text;
        enum pooling pooling;
    } cases[] = {
        {"{\"pooling_mode_mean_tokens\":true,\"pooling_mode_cls_token\":false}", POOLING_MEAN},
        {"{\"pooling_mode_lasttoken\":true}", POOLING_LAST},
        {"{\"pooling_mode\":\"lasttoken\"}", POOLING_LAST},
        {"{\"pooling_mode\":\"cls\"}", POOLING_CLS},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct checkpoint *checkpoint;
        struct error error = {0};
        put("1_Pooling/config.json", cases[i].text);
        if (open_folder(&checkpoint, &error) != OK) fail_msg("%s", error.text);
        assert_int_equal(checkpoint_config(checkpoint)->pooling, cases[i].pooling);
        checkpoint_close(checkpoint);
    }
}

static void what_cannot_be_run_is_refused_by_its_name(void **state) {
    static const struct {
        const char *file, *text, *named;
    } cases[] = {
        {"config.json", CONFIG(",\"hidden_act\":\"relu\""), "hidden_act"},
        {"config.json", CONFIG(",\"position_embedding_type\":\"relative_key\""),
         "position_embedding_type"},
        {"config.json", CONFIG(",\"type_vocab_size\":0"), "type_vocab_size"},
        {"config.json", CONFIG(",\"layer_norm_eps\":1"), "layer_norm_eps"},
        {"modules.json", MODULES("Dense", "2_Dense"), "modules.json"},
        {"modules.json", MODULES("Pooling", "../other"), "modules.json"},
        {"modules.json", MODULES("Pooling", ""), "modules.json"},
        {"modules.json", "[1", "modules.json"},
        {"modules.json", "[1]", "modules.json"},
        {"1_Pooling/config.json", "{\"pooling_mode_max_tokens\":true}", "pooling_mode_max_tokens"},
        {"1_Pooling/config.json",
         "{\"pooling_mode_cls_token\":true,\"pooling_mode_mean_tokens\":true}",
         "together with another mode"},
        {"1_Pooling/config.json", "{}", "no mode"},
        {"1_Pooling/config.json", "[]", "no mode"},
        {"1_Pooling/config.json", "{\"pooling_mode\":\"max\"}", "pooling_mode"},
        {"sentence_bert_config.json", "{\"max_seq_length\":0}", "max_seq_length"},
        {"sentence_bert_config.json", "{\"max_seq_length\":\"long\"}", "max_seq_length"},
        {"sentence_bert_config.json", "{", "sentence_bert_config.json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct checkpoint *checkpoint;
        struct error error = {0};
        plain(state);
        put(cases[i].file, cases[i].text);
        if (open_folder(&checkpoint, &error) != ERR_INVALID) fail_msg("taken: %s", cases[i].text);
        if (!strstr(error.text, cases[i].named)) fail_msg("%s: %s", cases[i].text, error.text);
    }
}

static void names_go_both_ways(void **state) {
    static const char *const pairs[][2] = {
        {"embeddings.word_embeddings.weight", "token_embd.weight"},
        {"embeddings.LayerNorm.bias", "token_embd_norm.bias"},
        {"encoder.layer.1.attention.self.key.bias", "blk.1.attn_k.bias"},
        {"encoder.layer.11.attention.output.LayerNorm.weight", "blk.11.attn_output_norm.weight"},
        {"encoder.layer.0.output.dense.weight", "blk.0.ffn_down.weight"},
    };
    const struct architecture *bert = config_architecture(STR("bert"));
    struct tensor_name name;
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        assert_true(folder_name_read(bert, "", str_from(pairs[i][0]), &name));
        assert_string_equal(name.text, pairs[i][1]);
        assert_string_equal(folder_name_of(bert, "", pairs[i][1]).text, pairs[i][0]);
    }
    assert_true(folder_name_read(bert, "bert.", STR("bert.embeddings.LayerNorm.gamma"), &name));
    assert_string_equal(name.text, "token_embd_norm.weight");
    assert_false(folder_name_read(bert, "", STR("lm_head.weight"), &name));
    assert_false(folder_name_read(bert, "", STR("model.layers.0.mlp.up_proj.weight"), &name));
    assert_true(folder_name_is_needless(bert, STR("pooler.dense.weight"), false));
    assert_true(folder_name_is_needless(bert, STR("bert.embeddings.position_ids"), false));
    assert_false(folder_name_is_needless(config_architecture(STR("llama")),
                                         STR("pooler.dense.weight"), false));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_bert_folder_is_an_encoder, plain),
        cmocka_unit_test_setup(without_these_files_nothing_is_said, plain),
        cmocka_unit_test_setup(every_mode_is_read, plain),
        cmocka_unit_test(what_cannot_be_run_is_refused_by_its_name),
        cmocka_unit_test(names_go_both_ways),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
