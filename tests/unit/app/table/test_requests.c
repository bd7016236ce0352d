/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os.h"
#include "table/requests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct files {
    char table[40], prompt[40], system[40], schema[40];
};

static void put(char ret_path[40], const char *text) {
    struct error error;
    snprintf(ret_path, 40, "/tmp/quern-test-table-XXXXXX");
    int fd = mkstemp(ret_path);
    assert_true(fd >= 0);
    assert_int_equal(os_write_all(fd, text, strlen(text), &error), OK);
    os_close(fd);
}

static enum err add(void *context, const void *bytes, size_t count, struct error *error) {
    (void)error;
    buf_add(context, bytes, count);
    return OK;
}

/* Makes lines of a table, or the sentence of the error behind the last '-' of the file's name. */
static void check(const char *table, const char *prompt, struct table_options options,
                  uint64_t limit, const char *expected) {
    struct table_plan *plan = NULL;
    struct error error = {0};
    struct buf out;
    char table_path[40], prompt_path[40];
    put(table_path, table);
    put(prompt_path, prompt);
    buf_init(&out, 1u << 20);
    buf_add_text(&out, "");
    options.prompt = prompt_path;
    enum err err = table_plan_open(&plan, &options, &error);
    struct table_sink sink = {&out, add};
    if (err == OK) err = table_requests_write(plan, table_path, limit, &sink, &error);
    const char *got = out.bytes ? out.at : "";
    if (err != OK) {
        got = strstr(error.text, table_path) ? strstr(error.text, table_path) + 30 : error.text;
        if (strstr(error.text, prompt_path)) got = strstr(error.text, prompt_path) + 30;
    }
    assert_string_equal(got, expected);
    table_plan_close(plan);
    buf_release(&out);
    unlink(table_path);
    unlink(prompt_path);
}

#define LINE(id, row, text)                                                                        \
    "{\"custom_id\":\"" id "\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"row\":" row  \
    ",\"body\":{\"messages\":[{\"role\":\"user\",\"content\":\"" text "\"}]}}\n"

static const struct table_options csv = {.kind = TABLE_CSV};

static void a_row_becomes_a_line_with_the_row_in_it(void **state) {
    (void)state;
    check("id,first name\n7,\"a\"\"b\"\n8,\n9,\"\"\n", "{{ id }}: {{ row['first name'] }}\n", csv,
          0,
          LINE("1", "{\"id\":\"7\",\"first name\":\"a\\\"b\"}", "7: a\\\"b")
              LINE("2", "{\"id\":\"8\",\"first name\":null}", "8: ")
                  LINE("3", "{\"id\":\"9\",\"first name\":\"\"}", "9: "));
    struct table_options with_id = {.kind = TABLE_TSV, .id_column = "id"};
    check("id\ttext\nx\ta,b\ny\tc\n", "{{ text }}", with_id, 1,
          LINE("x", "{\"id\":\"x\",\"text\":\"a,b\"}", "a,b"));
    struct table_options semicolons = {.kind = TABLE_CSV, .delimiter = ";"};
    check("a;b\n1;2\n", "{{ a }}", semicolons, 0, LINE("1", "{\"a\":\"1\",\"b\":\"2\"}", "1"));
}

static void a_row_of_jsonl_keeps_its_types(void **state) {
    (void)state;
    struct table_options jsonl = {.kind = TABLE_JSONL, .id_column = "n"};
    check("{\"n\": 1.50, \"list\": [1, \"x\"], \"t\": true}\n{\"t\":false,\"n\":\"b\"}\n",
          "{{ n + 1 if t else list is none }}", jsonl, 0,
          LINE("1.50", "{\"n\":1.50,\"list\":[1, \"x\"],\"t\":true}", "2.5")
              LINE("b", "{\"n\":\"b\",\"list\":null,\"t\":false}", "True"));
    check("{\"n\":1}\n{\"n\":2,\"m\":3}\n", "x", jsonl, 0,
          LINE("1", "{\"n\":1,\"m\":null}", "x") LINE("2", "{\"n\":2,\"m\":3}", "x"));
    check("{\"n\":1}\n[1]\n", "x", jsonl, 0,
          "line 2: a row is a JSON object with a member for each column");
    check("{\"n\":true}\n", "x", jsonl, 0,
          "line 1 of the table: column 'n' is neither text nor number");
}

static void a_table_that_is_none_is_refused(void **state) {
    (void)state;
    struct table_options with_id = {.kind = TABLE_CSV, .id_column = "id"};
    check("", "x", csv, 0, "the table is empty: it has no header");
    check("a,b\n", "x", csv, 0, "the table has no rows");
    check("a,,b\n1,2,3\n", "x", csv, 0, "line 1, column 2 has no name");
    check("\na,b,a\n1,2,3\n", "x", csv, 0, "line 2, column 3: 'a' is the name of column 1 already");
    check("a,b\n1,2\n3\n", "x", csv, 0,
          "line 3, column 2 ('b'): the row has 1 cells, the header 2");
    check("a,b\n1,2,\n", "x", csv, 0, "line 2, column 3: the row has 3 cells, the header 2");
    check("a,b\n1,2\n", "x", with_id, 0, "--id: there is no column 'id'; the columns are: a, b");
    check("id,b\n1,2\n,3\n", "x", with_id, 0, "line 3 of the table: column 'id' is empty");
    check("a,b\n\"1\n2\",3\n", "{{ c }}", csv, 0,
          "line 2 of the table: the prompt template: line 1: 'c' is undefined; the columns are: a, "
          "b");
    check("id,Full Name,2nd,größe\n1,2,3,4\n", "{{ name }}", csv, 0,
          "line 2 of the table: the prompt template: line 1: 'name' is undefined; the columns are: "
          "id, row[\"Full Name\"], row[\"2nd\"], row[\"größe\"]");
    check("id,Full Name\n1,2\n", "{{ row[\"Full Name\"] }}", csv, 0,
          LINE("1", "{\"id\":\"1\",\"Full Name\":\"2\"}", "2"));
    check("a\n1\n", "{% if %}", csv, 0, "line 1: expected an expression, found the end of the tag");
    check("a\n1\n", "{{ strftime_now('%d') }}", csv, 0,
          "a template of a table has no strftime_now, because a run that goes on makes the same "
          "prompts again; put the date into the table");
}

static void options_become_members_of_the_body(void **state) {
    (void)state;
    struct files files;
    put(files.schema, "{\"type\": \"object\", \"properties\": {\"b\": {}, \"a\": {}}}");
    put(files.system, "You judge {{ row.a }}.");
    struct table_options options = {.kind = TABLE_CSV,
                                    .schema = files.schema,
                                    .system = files.system,
                                    .max_tokens = "64",
                                    .temperature = "0.5",
                                    .body = "{\"seed\": 1,\n \"stop\": [\"x\"]}"};
    check(
        "a\n1\n", "{{ a }}", options, 0,
        "{\"custom_id\":\"1\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"row\":{\"a\":"
        "\"1\"},\"body\":{\"messages\":[{\"role\":\"system\",\"content\":\"You judge 1.\"},{"
        "\"role\":\"user\",\"content\":\"1\"}],\"seed\":1,\"stop\":[\"x\"],\"max_tokens\":64,"
        "\"temperature\":0.5,\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{"
        "\"name\":\"answer\",\"strict\":true,\"schema\":{\"type\":\"object\",\"properties\":{\"b\":"
        "{},\"a\":{}}}}}}}\n");
    options.body = "{\"temperature\": 1}";
    check("a\n1\n", "x", options, 0, "--body has 'temperature', which --temperature sets");
    options.body = "{\"messages\": []}";
    check("a\n1\n", "x", options, 0, "--body has 'messages', which --prompt sets");
    options.body = NULL;
    options.max_tokens = "many";
    check("a\n1\n", "x", options, 0, "--max-tokens: 'many' is no number");
    unlink(files.schema);
    unlink(files.system);
}

static void the_end_of_a_name_tells_the_kind(void **state) {
    (void)state;
    assert_int_equal(table_kind_of("a/b.csv"), TABLE_CSV);
    assert_int_equal(table_kind_of("b.tab"), TABLE_TSV);
    assert_int_equal(table_kind_of("https://h/x.tsv?sig=a.csv#b"), TABLE_TSV);
    assert_int_equal(table_kind_of("rows.jsonl"), TABLE_JSONL);
    assert_int_equal(table_kind_of("b.csv.gz"), TABLE_NONE);
    assert_int_equal(table_kind_of("csv"), TABLE_NONE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_becomes_a_line_with_the_row_in_it),
        cmocka_unit_test(a_row_of_jsonl_keeps_its_types),
        cmocka_unit_test(a_table_that_is_none_is_refused),
        cmocka_unit_test(options_become_members_of_the_body),
        cmocka_unit_test(the_end_of_a_name_tells_the_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
