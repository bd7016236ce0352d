/* SPDX-License-Identifier: Apache-2.0 */

/* The words of a stranger's GGUF: container, vocabulary, tokenizer of each kind and chat template,
 * then a text through the tokenizer and a chat through the template.
 *
 * The mutator puts the magic, the version and the high bytes of the two counts back. */

#include "engine/vocabulary.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed) {
    size = LLVMFuzzerMutate(data, size, max_size);
    if (size < 24 || seed % 64 == 0) return size;
    memcpy(data, "GGUF\3\0\0\0", 8);
    memset(data + 9, 0, 7);
    memset(data + 17, 0, 7);
    return size;
}

static void use_tokenizer(const struct tokenizer *tokenizer) {
    static const char text[] =
        " Hello  world \xC3\xA9 <|im_start|>user\n<s>ab\t12345 \xE2\x96\x81#";
    struct ids ids = {0};
    struct error error = {0};
    struct buf back;
    buf_init(&back, 1 << 20);
    const struct encode_options options = {.parse_special = true, .add_bos = true};
    if (tokenizer_encode(tokenizer, str_from(text), options, &ids, &error) != OK) abort();
    for (size_t i = 0; i < ids.count; i++)
        assert(ids.at[i] >= 0 && (size_t)ids.at[i] < tokenizer_count(tokenizer));
    tokenizer_decode_text(tokenizer, ids.at, ids.count, true, &back);
    buf_release(&back);
    ids_release(&ids);
}

static void use_template(const struct vocabulary *vocabulary) {
    json_t *context = json_pack("{s:[{s:s, s:s}, {s:s, s:s}], s:b}", "messages", "role", "user",
                                "content", " Hello\n", "role", "assistant", "content",
                                "\xC3\xBC <&> text", "add_generation_prompt", 1);
    json_t *words = vocabulary_context(vocabulary);
    const struct jinja_options options = {
        .limits = {.output_bytes_max = 1 << 16, .steps_max = 50000, .memory_bytes_max = 1 << 22},
        .model_context = words};
    struct error error = {0};
    struct buf out;
    buf_init(&out, 1 << 17);
    enum err err =
        jinja_template_render(vocabulary->template, context, &options, &out, NULL, &error);
    assert(err == OK || error.code == err);
    buf_release(&out);
    json_decref(words);
    json_decref(context);
}

static enum err open_bytes(struct vocabulary *ret_vocabulary, const void *bytes, size_t count,
                           struct error *error) {
    struct gguf *gguf;
    struct checkpoint_vocab vocab;
    enum err err = gguf_open_bytes(&gguf, bytes, count, error);
    if (err != OK) return err;
    err = checkpoint_vocab_init(&vocab, gguf, error);
    if (err == OK) {
        err = vocabulary_open(ret_vocabulary, &vocab, error);
        checkpoint_vocab_release(&vocab);
    }
    gguf_close(gguf);
    return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct vocabulary vocabulary;
    struct error error = {0};
    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (!copy) abort();
    if (size > 0) memcpy(copy, data, size);
    enum err err = open_bytes(&vocabulary, copy, size, &error);
    free(copy); /* nothing may refer to it any more */
    if (err == OK) {
        use_tokenizer(vocabulary.tokenizer);
        if (vocabulary.template) use_template(&vocabulary);
        vocabulary_close(&vocabulary);
    }
    /* A refusal is one sentence. */
    assert(err == OK || (error.text[0] != '\0' && !strchr(error.text, '\n')));
    return 0;
}
