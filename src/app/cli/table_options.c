/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/table_options.h"

#include <string.h>

#define AT(field) offsetof(struct table_choice, field)
const struct option table_option_rows[] = {
    {"prompt", OPTION_TEXT, AT(table.prompt), "F.jinja",
     .help = "template of each row's prompt, when IN is a table (.csv, .tsv, .jsonl, .parquet); "
             "its variables "
             "are the columns, and `row`",
     .only_flag = true},
    {"system", OPTION_TEXT, AT(table.system), "F.jinja",
     .help = "template of each row's system message", .only_flag = true},
    {"schema", OPTION_TEXT, AT(table.schema), "F.json",
     .help = "JSON schema of the answers; each of its properties is a column of OUT",
     .only_flag = true},
    {"id", OPTION_TEXT, AT(table.id_column), "COLUMN",
     .help = "column with the custom_id of each row (default: the row's number)",
     .only_flag = true},
    {"max-tokens", OPTION_TEXT, AT(table.max_tokens), "N",
     .help = "most tokens of the answer to a row", .only_flag = true},
    {"temperature", OPTION_TEXT, AT(table.temperature), "T",
     .help = "temperature of the answers to rows", .only_flag = true},
    {"body", OPTION_TEXT, AT(table.body), "JSON",
     .help = "further members of each row's request, as a JSON object or a file of one",
     .only_flag = true},
    {"delimiter", OPTION_TEXT, AT(table.delimiter), "C",
     .help = "character between the cells of tables (default: a comma, in .tsv a tab)",
     .only_flag = true},
    {"token-columns", OPTION_SWITCH, AT(has_tokens),
     .help = "add the columns prompt_tokens and completion_tokens to a table", .only_flag = true},
    {"excel-safe", OPTION_SWITCH, AT(is_excel_safe),
     .help = "put an apostrophe before texts in a table that a spreadsheet would take for formulas",
     .only_flag = true},
    {"limit", OPTION_INTEGER, AT(limit), "N",
     .help = "run only the first N rows or lines of IN (default: all)", .max = 1e9,
     .only_flag = true},
    {0},
};

static bool is_delimiter(const char *text) {
    return strlen(text) == 1 && ((text[0] > ' ' && text[0] <= '~') || text[0] == '\t') &&
           text[0] != '"';
}

/* Options that need a table as input, if --prompt is absent. */
static enum err check_requests(const struct table_choice *choice, const char *input,
                               struct error *error) {
    const struct table_options *table = &choice->table;
    const struct {
        const char *name, *value;
    } needing[] = {
        {"system", table->system},         {"schema", choice->joins ? NULL : table->schema},
        {"id", table->id_column},          {"body", table->body},
        {"max-tokens", table->max_tokens}, {"temperature", table->temperature}};
    if (table->kind != TABLE_NONE && table->kind != TABLE_JSONL)
        return err_set(error, ERR_INVALID,
                       "%s is a table: --prompt F.jinja makes requests of its rows", input);
    for (size_t i = 0; i < sizeof needing / sizeof *needing; i++)
        if (needing[i].value)
            return err_set(error, ERR_INVALID,
                           "--%s is about the rows of a table; --prompt is "
                           "missing",
                           needing[i].name);
    return OK;
}

enum err table_options_check(struct table_choice *choice, const char *input, const char *output,
                             struct error *error) {
    struct table_options *table = &choice->table;
    enum table_kind out = table_kind_of(output);
    bool has_table = out == TABLE_CSV || out == TABLE_TSV || out == TABLE_PARQUET;
    table->kind = table_kind_of(input);
    if (table->delimiter && strcmp(table->delimiter, "\\t") == 0) table->delimiter = "\t";
    if (table->delimiter && !is_delimiter(table->delimiter))
        return err_set(
            error, ERR_INVALID,
            "--delimiter: one character of ASCII that is no letter of a cell, such as ; or "
            "\\t");
    if ((choice->has_tokens || choice->is_excel_safe) && !has_table)
        return err_set(error, ERR_INVALID, "--%s is about tables, and %s is none",
                       choice->has_tokens ? "token-columns" : "excel-safe", output);
    if (!table->prompt) return check_requests(choice, input, error);
    if (table->kind != TABLE_NONE) return OK;
    return err_set(
        error, ERR_INVALID,
        "--prompt: the name of the table %s ends in none of .csv, .tsv, .jsonl and .parquet",
        input);
}

enum err table_options_open(struct table_choice *choice, const char *output,
                            struct offline_input *input, struct error *error) {
    const struct table_options *table = &choice->table;
    enum table_kind out = table_kind_of(output);
    enum err err = table->prompt ? table_plan_open(&choice->plan, table, error) : OK;
    input->limit = (uint64_t)choice->limit;
    input->table = choice->plan;
    input->has_types = table->kind == TABLE_PARQUET;
    if (out != TABLE_NONE && out != TABLE_JSONL)
        input->form = (struct table_answers_form){
            .kind = out,
            .csv = {table->delimiter ? table->delimiter[0] : table_separator(out),
                    choice->is_excel_safe},
            .has_tokens = choice->has_tokens};
    return err;
}

void table_options_release(struct table_choice *choice) {
    table_plan_close(choice->plan);
    choice->plan = NULL;
}
