/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/file_type.h"
#include "checkpoint/vocab.h"
#include "hub/hub_internal.h"

#include <stdio.h>

/* Reads the keys that the GGUF specification gives every family; each begins with the family's
 * name. */
struct reader {
    const struct gguf *gguf;
    const char *family;
};

static const struct gguf_value *find(const struct reader *reader, const char *key) {
    char whole[160];
    snprintf(whole, sizeof whole, "%s.%s", reader->family, key);
    return gguf_find(reader->gguf, whole);
}

/* A number, or the element `index` of an array: some families have one number per layer. */
static uint32_t number_at(const struct reader *reader, const char *key, uint64_t index,
                          uint32_t otherwise) {
    const struct gguf_value *value = find(reader, key);
    int64_t number;
    if (!value) return otherwise;
    if (value->kind != GGUF_ARRAY) index = 0;
    if (value->count <= index || !gguf_element_i64(value, index, &number)) return otherwise;
    return number >= 0 && number <= UINT32_MAX ? (uint32_t)number : otherwise;
}

static uint32_t number(const struct reader *reader, const char *key, uint32_t otherwise) {
    return number_at(reader, key, 0, otherwise);
}

static struct str text_of(const struct gguf *gguf, const char *key) {
    struct str text = {"", 0};
    struct error error;
    return gguf_get_str(gguf, key, &text, &error) == OK ? text : (struct str){"", 0};
}

/* Adds up the keys and values of all layers in F16 (2 bytes). An encoder keeps none. */
static void read_kv(struct inspection *inspection, const struct reader *reader) {
    uint32_t key_width = number(reader, "attention.key_length", inspection->head_dim);
    uint32_t value_width = number(reader, "attention.value_length", inspection->head_dim);
    bool is_causal = true;
    const struct gguf_value *causal = find(reader, "attention.causal");
    if (causal && causal->kind == GGUF_BOOL) is_causal = *causal->at != 0;
    if (!is_causal || inspection->layers > 65536) return;
    for (uint32_t i = 0; i < inspection->layers; i++) {
        uint64_t heads = number_at(reader, "attention.head_count_kv", i, inspection->heads);
        inspection->kv_bytes_per_token += 2 * heads * ((uint64_t)key_width + value_width);
    }
}

static void read_sizes(struct inspection *inspection, const struct reader *reader) {
    inspection->layers = number(reader, "block_count", 0);
    inspection->width = number(reader, "embedding_length", 0);
    inspection->context = number(reader, "context_length", 0);
    inspection->heads = number(reader, "attention.head_count", 0);
    inspection->kv_heads = number(reader, "attention.head_count_kv", inspection->heads);
    inspection->window = number(reader, "attention.sliding_window", 0);
    inspection->head_dim =
        number(reader, "attention.key_length",
               inspection->heads > 0 ? inspection->width / inspection->heads : 0);
    inspection->embeds = find(reader, "pooling_type") != NULL;
    read_kv(inspection, reader);
}

static void read_general(struct inspection *inspection, const struct gguf *gguf) {
    const struct gguf_value *tokens = gguf_find(gguf, "tokenizer.ggml.tokens");
    if (tokens && tokens->kind == GGUF_ARRAY && tokens->count <= UINT32_MAX)
        inspection->vocabulary = (uint32_t)tokens->count;
    hub_copy_printable(inspection->title, sizeof inspection->title, text_of(gguf, "general.name"));
    hub_copy_printable(inspection->licence, sizeof inspection->licence,
                       text_of(gguf, "general.license"));
    hub_copy_printable(inspection->tokenizer, sizeof inspection->tokenizer,
                       text_of(gguf, "tokenizer.ggml.model"));
    const char *mixture = file_type_name(gguf);
    hub_copy_printable(inspection->mixture, sizeof inspection->mixture,
                       str_from(mixture ? mixture : ""));
    inspection->has_template = text_of(gguf, "tokenizer.chat_template").bytes > 0 ||
                               checkpoint_family_template(gguf).bytes > 0;
}

enum err inspect_gguf(struct inspection *inspection, const char *path, struct error *error) {
    struct gguf *gguf;
    enum err err = gguf_open(&gguf, path, error);
    if (err != OK) return err;
    hub_copy_printable(inspection->family, sizeof inspection->family,
                       text_of(gguf, "general.architecture"));
    const struct reader reader = {gguf, inspection->family};
    inspection->file_bytes = gguf_file_bytes(gguf);
    read_general(inspection, gguf);
    read_sizes(inspection, &reader);
    for (size_t i = 0; i < gguf_tensor_count(gguf); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(gguf, i);
        uint64_t elements = 1;
        for (uint32_t j = 0; j < tensor->axis_count; j++) elements *= tensor->axes[j];
        inspect_add_tensor(inspection, gguf_type_find(tensor->type)->name, elements, tensor->bytes);
    }
    gguf_close(gguf);
    return OK;
}
