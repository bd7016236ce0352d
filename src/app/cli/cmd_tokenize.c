/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "cli/stdin_records.h"
#include "engine/model_sandbox.h"
#include "engine/vocabulary.h"
#include "hub/catalog.h"
#include "json/json.h"

struct tokenize {
    const char *model;
    bool special, bos, decode, batch;
    struct vocabulary vocabulary;
    struct ids ids; /* scratch */
};

#define AT(field) offsetof(struct tokenize, field)
static const struct option rows[] = {
    {"model", OPTION_TEXT, AT(model), "M",
     .help = "vocabulary to use: of a model's name, FILE.gguf, a folder or tokenizer.json"},
    {"special", OPTION_SWITCH, AT(special),
     .help = "parse special tokens in the text; with --decode: show them"},
    {"bos", OPTION_SWITCH, AT(bos), .help = "add the tokens that the model adds by itself"},
    {"decode", OPTION_SWITCH, AT(decode), .help = "read ids and print text"},
    {"batch", OPTION_SWITCH, AT(batch), .help = "read and print one JSON value per line"},
    {0},
};

static enum err encode(struct tokenize *tokenize, struct str text, struct buf *answer,
                       struct error *error) {
    const struct encode_options how = {.parse_special = tokenize->special,
                                       .add_bos = tokenize->bos};
    tokenize->ids.count = 0;
    enum err err =
        tokenizer_encode(tokenize->vocabulary.tokenizer, text, how, &tokenize->ids, error);
    if (err != OK) return err;
    buf_add_byte(answer, '[');
    for (size_t i = 0; i < tokenize->ids.count; i++)
        buf_printf(answer, i ? ", %d" : "%d", tokenize->ids.at[i]);
    buf_add_byte(answer, ']');
    return OK;
}

static enum err decode(struct tokenize *tokenize, const json_t *ids, struct buf *answer,
                       struct error *error) {
    size_t count = tokenizer_count(tokenize->vocabulary.tokenizer);
    if (!json_is_array(ids)) return err_set(error, ERR_INVALID, "ids: not a JSON array");
    tokenize->ids.count = 0;
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            (size_t)json_integer_value(id) >= count)
            return err_set(error, ERR_INVALID, "ids[%zu]: not an id from 0 to %zu", i, count - 1);
        ids_add(&tokenize->ids, (int32_t)json_integer_value(id));
    }
    tokenizer_decode_text(tokenize->vocabulary.tokenizer, tokenize->ids.at, tokenize->ids.count,
                          tokenize->special, answer);
    return OK;
}

static enum err decode_record(struct tokenize *tokenize, struct str record, struct buf *answer,
                              struct error *error) {
    json_t *ids;
    struct buf text;
    if (json_read(&ids, record, error) != OK) return error->code;
    buf_init(&text, BUF_UNLIMITED);
    enum err err = decode(tokenize, ids, &text, error);
    if (err == OK && tokenize->batch)
        json_write_string(answer, buf_str(&text));
    else if (err == OK)
        buf_add_str(answer, buf_str(&text));
    buf_release(&text);
    json_decref(ids);
    return err;
}

static enum err answer_record(void *context, struct str record, struct buf *answer,
                              struct error *error) {
    struct tokenize *tokenize = context;
    if (tokenize->decode) return decode_record(tokenize, record, answer, error);
    if (!tokenize->batch) {
        enum err err = encode(tokenize, record, answer, error);
        if (err == OK) buf_add_byte(answer, '\n');
        return err;
    }
    json_t *text;
    if (json_read(&text, record, error) != OK) return error->code;
    enum err err = json_is_string(text)
                       ? encode(tokenize, json_str(text), answer, error)
                       : err_set(error, ERR_INVALID, "the line is not a JSON string");
    json_decref(text);
    return err;
}

static enum err open_vocabulary(struct tokenize *tokenize, struct error *error) {
    struct model_choice choice;
    const char *path = tokenize->model;
    if (!str_ends_with(str_from(path), STR(".json"))) {
        enum err err = catalog_choose(path, &choice, error);
        if (err != OK) return err;
        path = choice.path;
    }
    model_sandbox_enter_for(path);
    return vocabulary_open_file(&tokenize->vocabulary, path, error);
}

static enum err check(struct command_call *call, struct error *error) {
    const struct tokenize *tokenize = call->chosen;
    return tokenize->model ? OK : err_set(error, ERR_INVALID, "--model is missing");
}

static enum err run(struct command_call *call, struct error *error) {
    struct tokenize *tokenize = call->chosen;
    enum err err = open_vocabulary(tokenize, error);
    if (err != OK) return err;
    err = stdin_records_answer(tokenize->batch, answer_record, tokenize, error);
    ids_release(&tokenize->ids);
    vocabulary_close(&tokenize->vocabulary);
    return err;
}

static const struct option_table tables[] = {{rows, 0}};

const struct command cmd_tokenize = {
    .name = "tokenize",
    .summary = "turn text into token ids and back",
    .usage = "tokenize --model M [options] < text",
    .help = "Reads UTF-8 text and prints the JSON array of its token ids.\n",
    .tables = tables,
    .table_count = 1,
    .chosen_bytes = sizeof(struct tokenize),
    .check = check,
    .run = run,
};
