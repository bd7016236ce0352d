/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "cli/options.h"
#include "cli/records.h"
#include "engine/model_sandbox.h"
#include "engine/vocabulary.h"
#include "hub/catalog.h"
#include "json/json.h"

#include <stdio.h>

struct tokenize {
    const char *model;
    bool special, bos, decode, batch;
    struct vocabulary vocabulary;
    struct ids ids; /* scratch */
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

static int run(int argc, char **argv) {
    struct tokenize tokenize = {0};
    const struct option options[] = {
        {.name = "model",
         .kind = OPTION_TEXT,
         .target = &tokenize.model,
         .value = "M",
         .help = "a model, FILE.gguf, a folder or tokenizer.json"},
        {.name = "special",
         .kind = OPTION_SWITCH,
         .target = &tokenize.special,
         .help = "parse special tokens in the text; show them when decoding"},
        {.name = "bos",
         .kind = OPTION_SWITCH,
         .target = &tokenize.bos,
         .help = "add the tokens the model adds by itself"},
        {.name = "decode",
         .kind = OPTION_SWITCH,
         .target = &tokenize.decode,
         .help = "ids in, text out"},
        {.name = "batch",
         .kind = OPTION_SWITCH,
         .target = &tokenize.batch,
         .help = "one JSON value a line"},
    };
    const struct options_help help = {
        "tokenize --model M [options] < text",
        "Reads UTF-8 text and prints the JSON array of its token ids.\n"};
    struct error error = {0};
    bool done;
    if (options_read(options, sizeof options / sizeof *options, &help, argc, argv, NULL, 0, &done,
                     &error) != OK ||
        (!done && !tokenize.model && err_set(&error, ERR_INVALID, "--model is missing"))) {
        fprintf(stderr, "quern tokenize: %s\n", error.text);
        return EXIT_WRONG_INPUT;
    }
    if (done) return EXIT_GOOD;
    if (open_vocabulary(&tokenize, &error) != OK) {
        fprintf(stderr, "quern tokenize: %s\n", error.text);
        return EXIT_MACHINE;
    }
    int status = records_answer(tokenize.batch, answer_record, &tokenize);
    ids_release(&tokenize.ids);
    vocabulary_close(&tokenize.vocabulary);
    return status;
}

const struct command cmd_tokenize = {"tokenize", "text to token ids and back", false, run};
