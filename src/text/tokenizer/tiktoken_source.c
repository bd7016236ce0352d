/* SPDX-License-Identifier: Apache-2.0 */

/* tokenizer_open_tiktoken: the tiktoken.model of Kimi K2 and Moonlight. Each line is the bytes of a
 * token in base64, a space, and its rank, which is its id. Behind the ranks are 256 special tokens:
 * tokenizer_config.json has the names of some, the others are "<|reserved_token_ID|>". The file
 * says nothing of how texts are cut, so tokenizer_class must be the one whose rules are known. */

#include "base/base64.h"
#include "json/span.h"
#include "tokenizer/ranked.h"
#include "tokenizer/vocab.h"

#include <stdio.h>
#include <string.h>

#define SPECIAL_COUNT 256
#define TOKEN_BYTES_MAX 4096

/* The next line without its end; false behind the last one. */
static bool next_line(struct str *rest, struct str *ret_line) {
    if (rest->bytes == 0) return false;
    const size_t end = str_find_byte(*rest, '\n', 0);
    *ret_line = (struct str){rest->at, end == SIZE_MAX ? rest->bytes : end};
    *rest = str_skip(*rest, end == SIZE_MAX ? rest->bytes : end + 1);
    if (ret_line->bytes > 0 && ret_line->at[ret_line->bytes - 1] == '\r') ret_line->bytes--;
    return true;
}

static enum err read_line(struct ranked *ranked, struct str line, size_t number, size_t count,
                          struct error *error) {
    const size_t space = str_find_byte(line, ' ', 0);
    char bytes[TOKEN_BYTES_MAX];
    size_t byte_count;
    uint64_t rank;
    if (space == SIZE_MAX || !str_to_u64(str_skip(line, space + 1), &rank) || rank >= count ||
        !base64_read((struct str){line.at, space}, bytes, sizeof bytes, &byte_count))
        return err_set(error, ERR_INVALID,
                       "line %zu is not base64, a space and a rank below the %zu lines", number,
                       count);
    return ranked_add(ranked, (size_t)rank, (size_t)rank, (struct str){bytes, byte_count}, error);
}

static enum err read_lines(struct ranked *ranked, struct str lines, size_t count,
                           struct error *error) {
    struct str line;
    enum err err = OK;
    for (size_t number = 1; err == OK && next_line(&lines, &line); number++)
        if (line.bytes > 0) err = read_line(ranked, line, number, count, error);
    return err;
}

static size_t count_lines(struct str lines) {
    struct str line;
    size_t count = 0;
    while (next_line(&lines, &line)) count += line.bytes > 0;
    return count;
}

/* The named special tokens: "163586": {"content": "<|im_end|>", "special": true}. */
static enum err read_named(struct ranked *ranked, struct str named, size_t first,
                           struct error *error) {
    struct json_span_iter iter;
    struct str key, token;
    struct buf text;
    enum err err = OK;
    bool is_inside = json_span_is_object(named) && json_span_enter(&iter, named);
    buf_init(&text, TOKEN_BYTES_MAX);
    while (err == OK && is_inside && json_span_member(&iter, &key, &token)) {
        const struct str number = {key.at + 1, key.bytes > 2 ? key.bytes - 2 : 0};
        const struct str content = json_span_get(token, "content");
        const bool is_control = str_is(json_span_get(token, "special"), "true");
        uint64_t id;
        buf_clear(&text);
        if (json_span_is_string(content)) json_span_decode(&text, content);
        if (!str_to_u64(number, &id) || id < first || id >= first + SPECIAL_COUNT ||
            text.overflowed)
            err = err_set(error, ERR_INVALID,
                          "tokenizer_config.json: the added token %.*s is not one of %zu to %zu",
                          STR_ARGS(number), first, first + SPECIAL_COUNT - 1);
        else
            err = ranked_add_special(ranked, (size_t)id, buf_str(&text),
                                     is_control ? TOKEN_CONTROL : TOKEN_USER_DEFINED, error);
    }
    buf_release(&text);
    return err;
}

static enum err read_specials(struct ranked *ranked, struct str config, size_t first,
                              struct error *error) {
    enum err err = read_named(ranked, json_span_get(config, "added_tokens_decoder"), first, error);
    for (size_t id = first; err == OK && id < first + SPECIAL_COUNT; id++) {
        char name[48];
        if (ranked->kinds[id] != TOKEN_UNUSED) continue;
        snprintf(name, sizeof name, "<|reserved_token_%zu|>", id);
        err = ranked_add_special(ranked, id, str_from(name), TOKEN_CONTROL, error);
    }
    return err;
}

enum err tokenizer_open_tiktoken(struct tokenizer **ret_tokenizer, struct str lines,
                                 struct str config, struct error *error) {
    struct ranked ranked;
    const size_t count = count_lines(lines);
    if (!json_span_string_is(json_span_get(config, "tokenizer_class"), "TikTokenTokenizer"))
        return err_set(error, ERR_INVALID,
                       "tiktoken.model: tokenizer_config.json has no tokenizer_class "
                       "TikTokenTokenizer, and the rules of others are not known");
    enum err err = ranked_open(&ranked, count + SPECIAL_COUNT, error);
    if (err == OK) {
        ranked.source.pre = STR("kimi-k2");
        err = read_lines(&ranked, lines, count, error);
        if (err == OK) err = read_specials(&ranked, config, count, error);
        if (err == OK) err = ranked_finish(&ranked, ret_tokenizer, error);
        ranked_close(&ranked);
    }
    if (err != OK) err_prefix(error, "tiktoken.model");
    return err;
}
