/* SPDX-License-Identifier: Apache-2.0 */

/* Against ids that others made: llama.cpp's .inp/.out, Hugging Face tokenizers. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/utf8.h"
#include "json/json.h"
#include "vocab_file.h"

static const char *const vocabularies[] = {"smollm2",   "gpt-2",         "llama-bpe", "qwen2",
                                           "llama-spm", "mistral-v1",    "phi-3",     "bert-bge",
                                           "falcon",    "deepseek-coder"};
#define VOCABULARY_COUNT (sizeof vocabularies / sizeof *vocabularies)
/* Among these, the ones that give back every byte. */
static const char *const exact_vocabularies[] = {
    "gpt-2", "llama-bpe", "qwen2", "llama-spm", "mistral-v1", "phi-3", "deepseek-coder"};

static char *name_of(const char *before, const char *vocabulary, const char *after) {
    char *name = NULL;
    assert_true(asprintf(&name, "%s%s%s", before, vocabulary, after) > 0);
    return name;
}

static void need_shared(void) {
    if (!vocab_path_exists("QUERN_SHARED", "tokenizers/README.md")) skip();
}

static void encode(const struct tokenizer *tokenizer, struct str text,
                   struct encode_options options, struct ids *ids) {
    struct error error = {0};
    ids->count = 0;
    enum err err = tokenizer_encode(tokenizer, text, options, ids, &error);
    if (err != OK) fail_msg("%s", error.text);
}

static void assert_ids(const struct ids *got, const int32_t *want, size_t count, struct str text,
                       const char *where) {
    bool equal = got->count == count && (count == 0 || memcmp(got->at, want, count * 4) == 0);
    if (!equal)
        fail_msg("%s: %zu ids for %zu wanted, of '%.*s'", where, got->count, count, STR_ARGS(text));
}

static void assert_ids_json(const struct ids *got, const json_t *want, struct str text,
                            const char *where) {
    size_t count = json_array_size(want);
    int32_t *ids = calloc(count + 1, sizeof *ids);
    for (size_t i = 0; i < count; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(want, i));
    assert_ids(got, ids, count, text, where);
    free(ids);
}

/* One line of an .out file. */
static size_t parse_ids(struct str line, int32_t *ret_ids) {
    size_t count = 0, at = 0;
    while (at < line.bytes) {
        size_t end = str_find_byte(line, ' ', at);
        if (end == SIZE_MAX) end = line.bytes;
        int64_t id;
        if (end > at && str_to_i64((struct str){line.at + at, end - at}, &id))
            ret_ids[count++] = (int32_t)id;
        at = end + 1;
    }
    return count;
}

static void check_inp_out(const char *vocabulary) {
    char *name = name_of("tokenizers/ggml-vocab-", vocabulary, ".gguf");
    char *in_name = name_of(name, ".inp", ""), *out_name = name_of(name, ".out", "");
    struct tokenizer *tokenizer = vocab_tokenizer(name);
    struct str in = vocab_read("QUERN_SHARED", in_name);
    struct str out = vocab_read("QUERN_SHARED", out_name);
    struct str separator = STR("\n__ggml_vocab_test__\n");
    struct ids ids = {0};
    int32_t *want = calloc(out.bytes + 1, sizeof *want);
    size_t in_at = 0, out_at = 0, cases = 0;
    for (; in_at < in.bytes; cases++) {
        size_t in_end = str_find(in, separator, in_at);
        size_t out_end = str_find_byte(out, '\n', out_at);
        assert_true(in_end != SIZE_MAX && out_end != SIZE_MAX);
        struct str text = {in.at + in_at, in_end - in_at};
        size_t count = parse_ids((struct str){out.at + out_at, out_end - out_at}, want);
        encode(tokenizer, text, (struct encode_options){0}, &ids);
        assert_ids(&ids, want, count, text, name);
        in_at = in_end + separator.bytes;
        out_at = out_end + 1;
    }
    assert_int_equal(cases, 46);
    free(want);
    ids_release(&ids);
    tokenizer_close(tokenizer);
    free((char *)(uintptr_t)in.at);
    free((char *)(uintptr_t)out.at);
    free(name);
    free(in_name);
    free(out_name);
}

static void every_case_of_llama_cpp_gives_its_ids(void **state) {
    (void)state;
    need_shared();
    for (size_t i = 0; i < VOCABULARY_COUNT; i++) check_inp_out(vocabularies[i]);
}

static json_t *read_json(const char *variable, const char *name) {
    struct str text = vocab_read(variable, name);
    json_t *value = NULL;
    struct error error = {0};
    if (json_read(&value, text, &error) != OK) fail_msg("%s: %s", name, error.text);
    free((char *)(uintptr_t)text.at);
    return value;
}

static void check_extra(const char *vocabulary) {
    char *gguf = name_of("tokenizers/ggml-vocab-", vocabulary, ".gguf");
    char *extra = name_of("tokenizers/extra-", vocabulary, ".json");
    struct tokenizer *tokenizer = vocab_tokenizer(gguf);
    json_t *root = read_json("QUERN_SHARED", extra);
    const json_t *cases = json_member(root, "cases");
    assert_true(json_array_size(cases) > 10);
    struct ids ids = {0};
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i);
        struct str text = json_member_str(one, "text");
        bool parse = json_is_true(json_member(root, "parse_special"));
        encode(tokenizer, text, (struct encode_options){.parse_special = parse}, &ids);
        assert_ids_json(&ids, json_member(one, "ids"), text, extra);
    }
    ids_release(&ids);
    json_decref(root);
    tokenizer_close(tokenizer);
    free(gguf);
    free(extra);
}

static void every_extra_case_gives_its_ids(void **state) {
    (void)state;
    need_shared();
    static const char *const with_extra[] = {"smollm2", "gpt-2", "llama-bpe", "qwen2",
                                             "mistral-v1"};
    for (size_t i = 0; i < sizeof with_extra / sizeof *with_extra; i++) check_extra(with_extra[i]);
}

static void bert_gives_the_ids_of_hugging_face(void **state) {
    (void)state;
    need_shared();
    json_t *root = read_json("QUERN_SHARED", "tokenizers/extra-bert-hf.json");
    const json_t *cases = json_member(root, "cases");
    struct vocab_file vocab = vocab_file_open("tokenizers/ggml-vocab-bert-bge.gguf");
    vocab.source.add_bos = vocab.source.add_eos = true;
    struct tokenizer *tokenizer = NULL;
    assert_int_equal(tokenizer_open(&tokenizer, &vocab.source, NULL), OK);
    vocab_file_close(&vocab);
    struct encode_options options = {.parse_special = true, .add_bos = true};
    struct ids ids = {0};
    assert_true(json_array_size(cases) > 10);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i);
        struct str text = json_member_str(one, "text");
        encode(tokenizer, text, options, &ids);
        assert_ids_json(&ids, json_member(one, "ids"), text, "bert");
    }
    ids_release(&ids);
    tokenizer_close(tokenizer);
    json_decref(root);
}

/* The prompts of the tiny models, whose ids Hugging Face made. */
static void every_tiny_tokenizer_json_gives_its_prompts(void **state) {
    (void)state;
    need_shared();
    static const char *const families[] = {"qwen3", "qwen2", "llama3", "gemma3", "mistral"};
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        char *name = name_of("tiny/", families[f], "/tokenizer.json");
        char *reference = name_of("tiny/", families[f], "/reference.json");
        struct str text = vocab_read("QUERN_SHARED", name);
        struct tokenizer *tokenizer = NULL;
        struct error error = {0};
        if (tokenizer_open_json(&tokenizer, text, &error) != OK) fail_msg("%s", error.text);
        json_t *root = read_json("QUERN_SHARED", reference);
        const json_t *cases = json_member(root, "cases");
        struct ids ids = {0};
        assert_true(json_array_size(cases) >= 3);
        for (size_t i = 0; i < json_array_size(cases); i++) {
            const json_t *one = json_array_get(cases, i);
            struct str prompt = json_member_str(one, "prompt");
            encode(tokenizer, prompt,
                   (struct encode_options){.parse_special = true, .add_bos = true}, &ids);
            assert_ids_json(&ids, json_member(one, "ids"), prompt, families[f]);
        }
        ids_release(&ids);
        tokenizer_close(tokenizer);
        json_decref(root);
        free((char *)(uintptr_t)text.at);
        free(name);
        free(reference);
    }
}

static void form_c_is_made_only_when_the_vocabulary_asks(void **state) {
    (void)state;
    need_shared();
    json_t *root = read_json("QUERN_SHARED", "tokenizers/extra-qwen2-nfc.json");
    const json_t *cases = json_member(root, "cases");
    for (int nfc = 0; nfc < 2; nfc++) {
        struct vocab_file vocab = vocab_file_open("tokenizers/ggml-vocab-qwen2.gguf");
        vocab.source.normalize_nfc = nfc;
        struct tokenizer *tokenizer = NULL;
        assert_int_equal(tokenizer_open(&tokenizer, &vocab.source, NULL), OK);
        vocab_file_close(&vocab);
        struct ids ids = {0};
        for (size_t i = 0; i < json_array_size(cases); i++) {
            const json_t *one = json_array_get(cases, i);
            struct str text = json_member_str(one, "text");
            encode(tokenizer, text, (struct encode_options){.parse_special = true}, &ids);
            assert_ids_json(&ids, json_member(one, nfc ? "ids_nfc" : "ids_raw"), text, "nfc");
        }
        ids_release(&ids);
        tokenizer_close(tokenizer);
    }
    json_decref(root);
}

static struct tokenizer *tokenizer_of_set(const json_t *set) {
    const json_t *gguf = json_member(set, "gguf");
    if (gguf) return vocab_tokenizer(json_string_value(gguf));
    const char *variable = json_member(set, "in_source") ? "QUERN_SOURCE" : "QUERN_SHARED";
    struct str text = vocab_read(variable, json_string_value(json_member(set, "tokenizer_json")));
    struct tokenizer *tokenizer = NULL;
    struct error error = {0};
    if (tokenizer_open_json(&tokenizer, text, &error) != OK) fail_msg("%s", error.text);
    free((char *)(uintptr_t)text.at);
    return tokenizer;
}

static void check_hugging_face(const char *name) {
    json_t *root = read_json("QUERN_SOURCE", name);
    const json_t *sets = json_member(root, "sets");
    assert_true(json_array_size(sets) > 0);
    for (size_t s = 0; s < json_array_size(sets); s++) {
        const json_t *set = json_array_get(sets, s);
        const json_t *cases = json_member(set, "cases");
        struct tokenizer *tokenizer = tokenizer_of_set(set);
        bool add_bos = json_member(set, "tokenizer_json") != NULL;
        struct encode_options options = {.parse_special = true, .add_bos = add_bos};
        struct ids ids = {0};
        assert_true(json_array_size(cases) > 20);
        for (size_t i = 0; i < json_array_size(cases); i++) {
            const json_t *one = json_array_get(cases, i);
            struct str text = json_str(json_array_get(one, 0));
            encode(tokenizer, text, options, &ids);
            assert_ids_json(&ids, json_array_get(one, 1), text, name);
        }
        ids_release(&ids);
        tokenizer_close(tokenizer);
    }
    json_decref(root);
}

static void mixed_scripts_give_the_ids_of_hugging_face(void **state) {
    (void)state;
    need_shared();
    check_hugging_face("tests/unit/text/tokenizer/hf_expected.json");
}

static void added_tokens_with_every_flag_match_as_in_hugging_face(void **state) {
    (void)state;
    check_hugging_face("tests/unit/text/tokenizer/hf_added_tokens.json");
}

/* A random valid text of all planes, with runs and white space. */
static void random_text(struct rng *rng, struct buf *text) {
    static const uint32_t tops[] = {0x80, 0x80, 0x250, 0x3000, 0xD800, 0x110000};
    buf_clear(text);
    size_t count = (size_t)rng_below(rng, 60);
    for (size_t i = 0; i < count; i++) {
        uint64_t top = tops[rng_below(rng, sizeof tops / sizeof *tops)];
        uint32_t code_point = (uint32_t)rng_below(rng, top);
        if (code_point >= 0xD800 && code_point <= 0xDFFF) code_point = ' ';
        if (code_point == 0x2581) code_point = ' '; /* SentencePiece's own sign for it */
        char bytes[4];
        size_t length = utf8_encode(code_point, bytes);
        for (uint64_t run = rng_below(rng, 4) ? 1 : 1 + rng_below(rng, 70); run > 0; run--)
            buf_add(text, bytes, length);
    }
}

/* smollm2 and falcon lack tokens for a few bytes that prose never has; bert gives back words, not
 * texts. */
static void decoding_gives_back_every_text(void **state) {
    (void)state;
    need_shared();
    struct buf text, back;
    buf_init(&text, 1 << 20);
    buf_init(&back, 1 << 20);
    for (size_t v = 0; v < sizeof exact_vocabularies / sizeof *exact_vocabularies; v++) {
        char *name = name_of("tokenizers/ggml-vocab-", exact_vocabularies[v], ".gguf");
        struct tokenizer *tokenizer = vocab_tokenizer(name);
        struct rng rng = {v};
        struct ids ids = {0};
        for (int round = 0; round < 1500; round++) {
            random_text(&rng, &text);
            encode(tokenizer, buf_str(&text),
                   (struct encode_options){.parse_special = round % 2 == 0}, &ids);
            buf_clear(&back);
            tokenizer_decode_text(tokenizer, ids.at, ids.count, true, &back);
            if (back.bytes != text.bytes)
                fail_msg("%s: %zu bytes of %zu", name, back.bytes, text.bytes);
            if (text.bytes > 0) assert_memory_equal(back.at, text.at, text.bytes);
        }
        ids_release(&ids);
        tokenizer_close(tokenizer);
        free(name);
    }
    buf_release(&text);
    buf_release(&back);
}

static void the_llama_vocabulary_adds_its_bos_once(void **state) {
    (void)state;
    need_shared();
    struct tokenizer *tokenizer = vocab_tokenizer("tokenizers/ggml-vocab-llama-bpe.gguf");
    struct encode_options options = {.parse_special = true, .add_bos = true};
    int32_t bos = tokenizer_bos(tokenizer);
    assert_int_equal(bos, 128000);
    struct ids ids = {0};
    const char *const texts[] = {"Hi", "<|begin_of_text|>Hi", ""};
    for (size_t i = 0; i < 3; i++) {
        encode(tokenizer, str_from(texts[i]), options, &ids);
        assert_int_equal(ids.at[0], bos);
        assert_int_equal(ids.count, i == 2 ? 1 : 2);
        if (i < 2) assert_int_equal(ids.at[1], tokenizer_find(tokenizer, STR("Hi")));
    }
    assert_true(tokenizer_is_end(tokenizer, 128001));
    assert_true(tokenizer_is_end(tokenizer, 128009));
    assert_false(tokenizer_is_end(tokenizer, bos));
    ids_release(&ids);
    tokenizer_close(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_of_llama_cpp_gives_its_ids),
        cmocka_unit_test(every_extra_case_gives_its_ids),
        cmocka_unit_test(bert_gives_the_ids_of_hugging_face),
        cmocka_unit_test(every_tiny_tokenizer_json_gives_its_prompts),
        cmocka_unit_test(form_c_is_made_only_when_the_vocabulary_asks),
        cmocka_unit_test(mixed_scripts_give_the_ids_of_hugging_face),
        cmocka_unit_test(added_tokens_with_every_flag_match_as_in_hugging_face),
        cmocka_unit_test(decoding_gives_back_every_text),
        cmocka_unit_test(the_llama_vocabulary_adds_its_bos_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
