/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/models_show.h"

#include "base/printable.h"
#include "base/str.h"
#include "cli/pull_show.h"
#include "cpu/executor_cpu.h"
#include "json/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- text --- */

static void show_card_column(bool has_card, const char *text) {
    if (has_card) printf("%-22s  ", text);
}

void models_show_head(bool has_card) {
    printf("%-40s %9s  %-11s %-12s %8s %9s %9s  ", "model", "size", "store", "family", "context",
           "KV/token", "sequences");
    show_card_column(has_card, "on the GPU");
    puts("path");
}

void models_show_line(const struct model_facts *facts, const struct models_card *card,
                      bool has_card) {
    const struct model_file *file = facts->file;
    char context[24] = "-", kv[24] = "-", sequences[32] = "-", brief[MODELS_CARD_BRIEF] = "-";
    if (facts->is_read && facts->is.context > 0)
        snprintf(context, sizeof context, "%" PRIu32, facts->is.context);
    if (facts->is_read && facts->is.kv_bytes_per_token > 0) {
        snprintf(kv, sizeof kv, "%" PRIu64, facts->is.kv_bytes_per_token);
        snprintf(sequences, sizeof sequences, "%" PRIu64, facts->fit.sequences);
    }
    if (card->memory_bytes > 0) models_card_brief(card, brief);
    printf("%-40s %9s  %-11s %-12s %8s %9s %9s  ", printable(file->name).text,
           pull_show_bytes(file->bytes).text, model_source_name(file->source),
           facts->is_read ? facts->is.family : "-", context, kv, sequences);
    show_card_column(has_card, brief);
    printf("%s%s%s\n", printable(file->path).text, *facts->why_not ? "  cannot be served: " : "",
           printable(facts->why_not).text);
}

static void show_types(const struct inspection *is) {
    printf("types        ");
    for (uint32_t i = 0; i < is->type_count; i++)
        printf("%s%s %.1f%%", i ? ", " : "", is->types[i].name,
               is->weight_bytes ? 100.0 * (double)is->types[i].bytes / (double)is->weight_bytes
                                : 0);
    putchar('\n');
}

static void show_fit(const struct model_facts *facts) {
    const struct fit *fit = &facts->fit;
    printf("this machine %s of %s memory are free; the model takes %s: ",
           pull_show_bytes(facts->machine.free_bytes).text,
           pull_show_bytes(facts->machine.memory_bytes).text,
           pull_show_bytes(fit->needed_bytes).text);
    if (fit->left_bytes > 0)
        printf("it runs with %s of its experts in the file, which is slower\n",
               pull_show_bytes(fit->left_bytes).text);
    else if (!fit->is_in_memory)
        printf("it does not fit\n");
    else if (facts->is.kv_bytes_per_token == 0)
        printf("it fits\n");
    else
        printf("it fits, with %" PRIu64 " %s of %" PRIu32 " tokens\n", fit->sequences,
               plural(fit->sequences, "sequence", "sequences"), fit->sequence_tokens);
}

void models_show_page(const struct model_facts *facts, const struct models_card *card) {
    const struct inspection *is = &facts->is;
    printf("model        %s\npath         %s\nsize         %s\n", printable(facts->file->name).text,
           printable(facts->file->path).text,
           pull_show_bytes(facts->is_read ? is->file_bytes : facts->file->bytes).text);
    if (facts->is_read) {
        printf("family       %s%s%s%s\n", printable(is->family).text, *is->title ? " (" : "",
               printable(is->title).text, *is->title ? ")" : "");
        printf("parameters   %.1f M\n", (double)is->parameters / 1e6);
        show_types(is);
        printf("context      %" PRIu32 " tokens\n", is->context);
        if (is->window > 0) printf("window       %" PRIu32 " tokens\n", is->window);
        printf("vocabulary   %" PRIu32 " tokens%s%s\n", is->vocabulary, *is->tokenizer ? ", " : "",
               is->tokenizer);
        printf("layers       %" PRIu32 " of width %" PRIu32 ", %" PRIu32 " heads, %" PRIu32
               " for keys and values, of %" PRIu32 "\n",
               is->layers, is->width, is->heads, is->kv_heads, is->head_dim);
        printf("KV           %" PRIu64 " bytes a token", is->kv_bytes_per_token);
        if (is->kv_far_bytes_per_token != is->kv_bytes_per_token)
            printf(", %" PRIu64 " beyond the window", is->kv_far_bytes_per_token);
        if (is->kv_int8_bytes_per_token > 0)
            printf(", %" PRIu64 " with --kv-cache-dtype int8_per_token_head on the CPU",
                   is->kv_int8_bytes_per_token);
        putchar('\n');
        if (is->state_bytes > 0)
            printf("state        %" PRIu64 " bytes a sequence or shared beginning; "
                   "--mamba-cache-memory-bytes (default 2 GiB) holds %" PRIu64 "\n",
                   is->state_bytes, (uint64_t)EXECUTOR_CPU_STATE_BYTES / is->state_bytes);
        printf("template     %s\n", is->has_template ? "yes" : "no");
        printf("licence      %s\n", *is->licence ? printable(is->licence).text : "not said");
        show_fit(facts);
        if (card->memory_bytes > 0) models_card_show(card);
    }
    printf("servable     %s%s\n", *facts->why_not ? "no: " : "yes", printable(facts->why_not).text);
}

/* --- JSON --- */

static void add_text(struct buf *line, const char *name, const char *text) {
    buf_printf(line, ", \"%s\": ", name);
    if (*text)
        json_write_string(line, str_from(text));
    else
        buf_add_text(line, "null");
}

static void add_number(struct buf *line, const char *name, uint64_t number) {
    buf_printf(line, ", \"%s\": %" PRIu64, name, number);
}

static void add_flag(struct buf *line, const char *name, bool is_set) {
    buf_printf(line, ", \"%s\": %s", name, is_set ? "true" : "false");
}

static void add_inspection(struct buf *line, const struct model_facts *facts) {
    const struct inspection *is = &facts->is;
    add_text(line, "family", is->family);
    add_text(line, "title", is->title);
    add_text(line, "licence", is->licence);
    add_text(line, "tokenizer", is->tokenizer);
    add_number(line, "parameters", is->parameters);
    add_number(line, "weight_bytes", is->weight_bytes);
    buf_add_text(line, ", \"types\": {");
    for (uint32_t i = 0; i < is->type_count; i++)
        buf_printf(line, "%s\"%s\": %" PRIu64, i ? ", " : "", is->types[i].name,
                   is->types[i].bytes);
    buf_add_text(line, "}");
    add_number(line, "context", is->context);
    add_number(line, "vocabulary", is->vocabulary);
    add_number(line, "layers", is->layers);
    add_number(line, "width", is->width);
    add_number(line, "heads", is->heads);
    add_number(line, "kv_heads", is->kv_heads);
    add_number(line, "head_dim", is->head_dim);
    add_number(line, "window", is->window);
    add_number(line, "kv_bytes_per_token", is->kv_bytes_per_token);
    add_number(line, "kv_int8_bytes_per_token", is->kv_int8_bytes_per_token);
    add_number(line, "state_bytes", is->state_bytes);
    add_number(line, "kv_far_bytes_per_token", is->kv_far_bytes_per_token);
    add_text(line, "quantization", is->mixture);
    add_flag(line, "chat_template", is->has_template);
    if (is->is_template_read) {
        add_flag(line, "takes_tools", is->takes_tools);
        add_flag(line, "thinks", is->thinks);
    }
    add_flag(line, "embeds", is->embeds);
    add_number(line, "memory_bytes", facts->machine.memory_bytes);
    add_number(line, "memory_free_bytes", facts->machine.free_bytes);
    add_number(line, "memory_needed_bytes", facts->fit.needed_bytes);
    add_number(line, "memory_least_bytes", facts->fit.least_bytes);
    add_number(line, "experts_in_file_bytes", facts->fit.left_bytes);
    buf_printf(line, ", \"fits\": %s", facts->fit.is_in_memory ? "true" : "false");
    add_number(line, "sequence_tokens", facts->fit.sequence_tokens);
    add_number(line, "sequences", facts->fit.sequences);
}

static void add_template(struct buf *line, const struct inspection *is) {
    if (is->template.bytes == 0 || is->template.bytes > MODELS_TEMPLATE_BYTES_MAX) return;
    buf_add_text(line, ", \"template\": ");
    json_write_string(line, buf_str(&is->template));
}

void models_show_json(const struct model_facts *facts, const struct models_card *card,
                      bool has_template) {
    const struct model_file *file = facts->file;
    struct buf line;
    buf_init(&line, BUF_UNLIMITED);
    buf_add_text(&line, "{\"model\": ");
    json_write_string(&line, str_from(file->name));
    add_text(&line, "source", model_source_name(file->source));
    add_number(&line, "bytes", facts->is_read ? facts->is.file_bytes : file->bytes);
    add_text(&line, "path", file->path);
    buf_printf(&line, ", \"servable\": %s", *facts->why_not ? "false" : "true");
    add_text(&line, "reason", facts->why_not);
    if (facts->is_read) add_inspection(&line, facts);
    if (facts->is_read && has_template) add_template(&line, &facts->is);
    if (card->memory_bytes > 0) models_card_add_json(&line, card);
    buf_add_text(&line, "}");
    puts(line.at);
    buf_release(&line);
}
