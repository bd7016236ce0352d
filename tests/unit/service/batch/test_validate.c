/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/validate.h"

#include "../../tree.h"
#include "base/os.h"
#include "batch/index.h"
#include "batch/input.h"
#include "batch/line.h"
#include "json/json.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define HEAD "\"method\":\"POST\",\"url\":\"/v1/chat/completions\","
#define BODY "\"body\":{\"model\":\"m\",\"messages\":[]}"
#define GOOD(id) "{\"custom_id\":\"" id "\"," HEAD BODY "}"

static bool serves_m(void *context, struct str model) {
    (void)context;
    return str_is(model, "m") || str_is(model, "m2");
}

/* The only model there is. */
static bool default_m(void *context, char ret_model[MODEL_NAME_BYTES]) {
    (void)context;
    memcpy(ret_model, "m", sizeof "m");
    return true;
}

struct checked {
    struct batch_validation result;
    json_t *errors; /* the array, or NULL */
    char index_path[64];
    unsigned char sha256[SHA256_BYTES];
    enum err err;
    struct error error;
};

static bool (*wanted_default)(void *context, char ret_model[MODEL_NAME_BYTES]);

static enum shape_handling (*wanted_handling)(void *context, struct str model);

static enum shape_handling holds_of_m(void *context, struct str model) {
    (void)context;
    return str_is(model, "m") ? SHAPES_HELD : SHAPES_PASSED_ON;
}

static enum shape_handling refuses_all(void *context, struct str model) {
    (void)context;
    (void)model;
    return SHAPES_REFUSED;
}

static struct checked validate_with(struct str text, struct batch_rules rules) {
    struct checked outcome = {.index_path = "/tmp/quern-lines-XXXXXX"};
    int fd = memfd_create("input", 0), path_fd = mkstemp(outcome.index_path);
    struct sha256 hash;
    assert_true(fd >= 0 && path_fd >= 0);
    close(path_fd);
    assert_int_equal(os_write_all(fd, text.at, text.bytes, &outcome.error), OK);
    sha256_init(&hash);
    sha256_add(&hash, text.at, text.bytes);
    sha256_end(&hash, outcome.sha256);
    struct batch_validate_options options = {.input_fd = fd,
                                             .input_bytes = text.bytes,
                                             .input_sha256 = outcome.sha256,
                                             .index_path = outcome.index_path,
                                             .endpoint = ENDPOINT_CHAT,
                                             .rules = rules,
                                             .serves = serves_m,
                                             .default_model = wanted_default,
                                             .handles_shapes = wanted_handling,
                                             .shapes = shape_check_open(SHAPE_CHECK_WORK_MAX)};
    outcome.err = batch_validate(&options, &outcome.result, &outcome.error);
    shape_check_close(options.shapes);
    close(fd);
    if (outcome.result.errors)
        assert_int_equal(
            json_read(&outcome.errors, str_from(outcome.result.errors), &outcome.error), OK);
    return outcome;
}

static struct checked validate(const char *text) {
    return validate_with(str_from(text), batch_rules_default());
}

static void release(struct checked *outcome) {
    unlink(outcome->index_path);
    json_decref(outcome->errors);
    batch_validation_release(&outcome->result);
}

static void assert_error(const struct checked *outcome, size_t at, const char *code, int line,
                         const char *param) {
    const json_t *error = json_array_get(outcome->errors, at);
    assert_non_null(error);
    assert_int_equal(json_object_size(error), 4);
    if (!str_is(json_member_str(error, "code"), code))
        fail_msg("%.*s instead of %s", STR_ARGS(json_member_str(error, "code")), code);
    assert_int_equal(json_integer_value(json_object_get(error, "line")), line);
    assert_int_equal(json_is_null(json_object_get(error, "line")), line == 0);
    if (param)
        assert_true(str_is(json_member_str(error, "param"), param));
    else
        assert_true(json_is_null(json_object_get(error, "param")));
}

/* The one line `text`, in the middle of good ones, gives this error on line 2. */
static void assert_line(const char *text, const char *code, const char *param,
                        struct batch_rules rules) {
    struct buf file;
    buf_init(&file, BUF_UNLIMITED);
    buf_printf(&file, "%s\n%s\n%s\n", GOOD("first"), text, GOOD("last"));
    struct checked outcome = validate_with(buf_str(&file), rules);
    assert_int_equal(outcome.err, OK);
    if (!code) {
        if (outcome.errors) fail_msg("%s: %s", text, outcome.result.errors);
        assert_int_equal(outcome.result.total, 3);
    } else {
        if (outcome.result.error_count != 1)
            fail_msg("%s: %zu errors", text, outcome.result.error_count);
        assert_int_equal(outcome.result.total, 0);
        assert_error(&outcome, 0, code, 2, param);
    }
    release(&outcome);
    buf_release(&file);
}

static void every_check_has_its_code_and_parameter(void **state) {
    (void)state;
    static const struct {
        const char *text, *code, *param;
    } cases[] = {
        {"{invalid json here", "invalid_json_line", NULL},
        {GOOD("x") " x", "invalid_json_line", NULL},
        {"{\"custom_id\":\"\xFF\"}", "invalid_json_line", NULL},
        {"{\"a\":01}", "invalid_json_line", NULL},
        {"{\"a\":\"\\ud800\"}", "invalid_json_line", NULL},
        {"[1,2]", "invalid_request", NULL},
        {"\"x\"", "invalid_request", NULL},
        {"null", "invalid_request", NULL},
        {"7", "invalid_request", NULL},
        {"{}", "missing_required_parameter", "custom_id"},
        {"{" HEAD BODY "}", "missing_required_parameter", "custom_id"},
        {"{\"custom_id\":\"x\",\"url\":\"/v1/chat/completions\"," BODY "}",
         "missing_required_parameter", "method"},
        {"{\"custom_id\":\"x\",\"method\":\"POST\"," BODY "}", "missing_required_parameter", "url"},
        {"{\"custom_id\":\"x\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\"}",
         "missing_required_parameter", "body"},
        {"{\"custom_id\":7," HEAD BODY "}", "invalid_request", "custom_id"},
        {"{\"custom_id\":\"\"," HEAD BODY "}", "invalid_request", "custom_id"},
        {"{\"custom_id\":\"x\",\"method\":1,\"url\":\"/v1/chat/completions\"," BODY "}",
         "invalid_request", "method"},
        {"{\"custom_id\":\"x\",\"method\":\"POST\",\"url\":[]," BODY "}", "invalid_request", "url"},
        {"{\"custom_id\":\"x\"," HEAD "\"body\":\"{}\"}", "invalid_request", "body"},
        {"{\"custom_id\":\"x\",\"custom_id\":\"y\"," HEAD BODY "}", "invalid_request", "custom_id"},
        {"{\"custom_id\":\"x\",\"url\":\"/v1/embeddings\"," HEAD BODY "}", "invalid_request",
         "url"},
        {"{\"custom_id\":\"x\"," HEAD BODY ",\"bod\\u0079\":null}", "invalid_request", "body"},
        {"{\"custom_id\":\"x\"," HEAD "\"body\":{\"model\":\"m\",\"messages\":[],\"model\":\"m\"}}",
         "invalid_request", "body.model"},
        {"{\"custom_id\":\"x\"," HEAD
         "\"body\":{\"messages\":null,\"model\":\"m\",\"messages\":[]}}",
         "invalid_request", "body.messages"},
        {GOOD("first"), "duplicate_custom_id", "custom_id"},
        {GOOD("f\\u0069rst"), "duplicate_custom_id", "custom_id"},
        {"{\"custom_id\":\"x\",\"method\":\"GET\",\"url\":\"/v1/chat/completions\"," BODY "}",
         "invalid_method", "method"},
        {"{\"custom_id\":\"x\",\"method\":\"POST\",\"url\":\"/v1/foo\"," BODY "}", "invalid_url",
         "url"},
        {"{\"custom_id\":\"x\",\"method\":\"POST\",\"url\":\"/v1/embeddings\"," BODY "}",
         "invalid_url", "url"},
        {"{\"custom_id\":\"x\"," HEAD "\"body\":{\"messages\":[]}}", "invalid_request",
         "body.model"},
        {"{\"custom_id\":\"x\"," HEAD "\"body\":{\"model\":5,\"messages\":[]}}", "invalid_request",
         "body.model"},
        {"{\"custom_id\":\"x\"," HEAD "\"body\":{\"model\":\"gpt\",\"messages\":[]}}",
         "model_not_found", "body.model"},
        {"{\"custom_id\":\"x\"," HEAD "\"body\":{\"model\":\"m\"}}", "invalid_request",
         "body.messages"},
        {"{\"custom_id\":\"x\"," HEAD "\"body\":{\"model\":\"m\",\"messages\":[],\"stream\":true}}",
         "streaming_unsupported", "body.stream"},
        /* and what is no error */
        {"{\"custom_id\":\"x\"," HEAD
         "\"body\":{\"model\":\"m\",\"messages\":[],\"stream\":false}}",
         NULL, NULL},
        {"{\"custom_id\":\"x\",\"method\":\"POST\",\"url\":\"/chat/completions\"," BODY "}", NULL,
         NULL},
        {"{\"custom_id\":\"x\",\"method\":\"POST\",\"url\":\"/v1/embeddings\","
         "\"body\":{\"model\":\"m\",\"input\":\"a\"}}",
         NULL, NULL},
        {"{\"custom_id\":\"x\"," HEAD "\"body\":{\"model\":\"m2\",\"messages\":[]}}", NULL, NULL},
        {"{\"custom_id\":\"x\"," HEAD
         "\"body\":{\"model\":\"m\",\"messages\":[],\"max_tokens\":-1}}",
         NULL, NULL},
        {"{\"custom_id\":\"\xE2\x80\xA8\"," HEAD BODY "}", NULL, NULL},
        {GOOD("x") "\r", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_line(cases[i].text, cases[i].code, cases[i].param, batch_rules_default());
}

#define LINE_WITH(members)                                                                         \
    "{\"custom_id\":\"x\"," HEAD "\"body\":{\"model\":\"m\",\"messages\":[]," members "}}"

static void shapes_that_cannot_be_held_are_errors_of_their_line(void **state) {
    (void)state;
    static const struct {
        const char *text, *code, *param;
    } cases[] = {
        {"{\"custom_id\":\"x\"," HEAD "\"body\":{\"model\":\"m\",\"messages\":[],"
         "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"not\":{}}}}}"
         "}",
         "invalid_value", "body.response_format"},
        {"{\"custom_id\":\"x\"," HEAD
         "\"body\":{\"model\":\"m\",\"messages\":[],\"response_format\":{\"type\":\"x\"}}}",
         "invalid_value", "body.response_format.type"},
        {"{\"custom_id\":\"x\"," HEAD "\"body\":{\"model\":\"m\",\"messages\":[],\"guided_regex\":"
         "\"a\",\"guided_regex\":\"b\"}}",
         "invalid_request", "body.guided_regex"},
        {"{\"custom_id\":\"x\"," HEAD "\"body\":{\"model\":\"m\",\"messages\":[],"
         "\"structured_outputs\":{\"regex\":\"(?=a)\"}}}",
         "invalid_value", "body.structured_outputs.regex"},
        {"{\"custom_id\":\"x\"," HEAD "\"body\":{\"model\":\"m\",\"messages\":[],\"guided_json\":"
         "null,\"guided_regex\":\"[a-z]\"}}",
         NULL, NULL},
        {"{\"custom_id\":\"x\"," HEAD "\"body\":{\"model\":\"m\",\"messages\":[],"
         "\"tool_choice\":\"required\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
         "\"f\",\"parameters\":{\"not\":{}}}}]}}",
         "invalid_value", "body.tool_choice"},
        {"{\"custom_id\":\"x\"," HEAD "\"body\":{\"model\":\"m\",\"messages\":[],"
         "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true,"
         "\"parameters\":{\"not\":{}}}}]}}",
         "invalid_value", "body.tools"},
        {"{\"custom_id\":\"x\",\"method\":\"POST\",\"url\":\"/v1/embeddings\","
         "\"body\":{\"model\":\"m\",\"input\":\"a\",\"guided_regex\":\"(\"}}",
         NULL, NULL},
        {LINE_WITH("\"extra_body\":{\"guided_json\":{}}"), "unsupported_parameter",
         "body.extra_body"},
        {LINE_WITH("\"extra_body\":{}"), NULL, NULL},
        {LINE_WITH("\"guidedJson\":{\"type\":\"null\"}"), "unsupported_parameter",
         "body.guidedJson"},
        {LINE_WITH("\"guided\\u004ason\":{\"type\":\"null\"}"), "unsupported_parameter",
         "body.guidedJson"},
        {LINE_WITH("\"nvext\":{\"guided_json\":{\"type\":\"null\"}}"), "unsupported_parameter",
         "body.nvext.guided_json"},
        {LINE_WITH("\"grammar\":\"root\""), "invalid_value", "body.grammar"},
        {LINE_WITH("\"regex\":\"a\",\"regex\":\"b\""), "invalid_request", "body.regex"},
        {LINE_WITH("\"metadata\":{\"guided_json\":\"a\"},\"top_k\":1"), NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_line(cases[i].text, cases[i].code, cases[i].param, batch_rules_default());
}

/* Only a model that holds its answers to shapes is asked to. */
static void a_shape_for_another_worker_is_passed_on(void **state) {
    (void)state;
    const char *line = "{\"custom_id\":\"x\"," HEAD
                       "\"body\":{\"model\":\"m2\",\"messages\":[],\"guided_regex\":\"(\"}}";
    wanted_handling = holds_of_m;
    assert_line(line, NULL, NULL, batch_rules_default());
    /* A spelling that nobody reads is refused for every worker. */
    assert_line("{\"custom_id\":\"x\"," HEAD "\"body\":{\"model\":\"m2\",\"messages\":[],"
                "\"guided_regexp\":\"a\"}}",
                "unsupported_parameter", "body.guided_regexp", batch_rules_default());
    wanted_handling = NULL;
    assert_line(line, "invalid_value", "body.guided_regex", batch_rules_default());
    wanted_handling = refuses_all;
    assert_line(line, "unsupported_parameter", "body", batch_rules_default());
    assert_line(LINE_WITH("\"grammar\":\"root ::= \\\"a\\\"\""), "unsupported_parameter", "body",
                batch_rules_default());
    assert_line("{\"custom_id\":\"x\"," HEAD "\"body\":{\"model\":\"m\",\"messages\":[],"
                "\"response_format\":{\"type\":\"text\"}}}",
                NULL, NULL, batch_rules_default());
    wanted_handling = NULL;
}

static void the_strict_rules_refuse_other_urls_and_models(void **state) {
    (void)state;
    struct batch_rules rules = batch_rules_default();
    rules.strict_url = rules.strict_single_model = true;
    assert_line("{\"custom_id\":\"x\",\"method\":\"POST\",\"url\":\"/v1/embeddings\","
                "\"body\":{\"model\":\"m\",\"input\":\"a\"}}",
                "invalid_url", "url", rules);
    assert_line("{\"custom_id\":\"x\"," HEAD "\"body\":{\"model\":\"m2\",\"messages\":[]}}",
                "model_mismatch", "body.model", rules);
}

static void errors_come_in_line_order_and_blank_lines_count(void **state) {
    (void)state;
    struct checked o =
        validate("\xEF\xBB\xBF" GOOD("a") "\r\n\n   \r\n{\"x\":1}\n\nnot\n" GOOD("a"));
    assert_int_equal(o.result.error_count, 3);
    assert_error(&o, 0, "missing_required_parameter", 4, "custom_id");
    assert_error(&o, 1, "invalid_json_line", 6, NULL);
    assert_error(&o, 2, "duplicate_custom_id", 7, "custom_id");
    assert_non_null(strstr(o.result.errors, "'a' is used on line 1"));
    release(&o);
}

static void files_without_requests_are_empty(void **state) {
    (void)state;
    static const char *const texts[] = {"\n", "\n \n\t\r\n", "\xEF\xBB\xBF", "\xEF\xBB\xBF\n"};
    for (size_t i = 0; i < 4; i++) {
        struct checked o = validate(texts[i]);
        assert_int_equal(o.result.error_count, 1);
        assert_error(&o, 0, "empty_file", 0, NULL);
        release(&o);
    }
}

static void good_files_are_good_however_they_end(void **state) {
    (void)state;
    static const char *const ends[] = {"", "\n", "\r\n", "\n\n", "\n   "};
    for (size_t i = 0; i < 5; i++) {
        char text[512];
        snprintf(text, sizeof text, "\xEF\xBB\xBF%s\n\r\n%s%s", GOOD("a"), GOOD("b"), ends[i]);
        struct checked o = validate(text);
        assert_null(o.errors);
        assert_int_equal(o.result.total, 2);
        assert_string_equal(o.result.model, "m");
        struct line_index *index;
        assert_int_equal(index_open(&index, o.index_path, o.sha256, &o.error), OK);
        assert_int_equal(index_entry(index, 0).offset, 3);
        assert_int_equal(index_entry(index, 0).bytes, strlen(GOOD("a")));
        assert_int_equal(index_entry(index, 1).number, 3);
        index_close(index);
        release(&o);
    }
}

static void several_models_leave_the_batch_without_one(void **state) {
    (void)state;
    struct checked o = validate(GOOD("a") "\n{\"custom_id\":\"x\"," HEAD
                                          "\"body\":{\"model\":\"m2\",\"messages\":[]}}\n");
    assert_int_equal(o.result.total, 2);
    assert_string_equal(o.result.model, "");
    release(&o);
}

static void five_thousand_bad_lines_give_a_list_of_a_thousand(void **state) {
    (void)state;
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    for (int i = 0; i < 5000; i++) buf_add_text(&text, "{\"custom_id\":\"a\"}\n");
    struct checked o = validate_with(buf_str(&text), batch_rules_default());
    assert_int_equal(o.result.error_count, 1000);
    assert_int_equal(json_array_size(o.errors), 1000);
    assert_error(&o, 999, "missing_required_parameter", 1000, "method");
    assert_true(strlen(o.result.errors) < 200000);
    release(&o);
    buf_release(&text);
}

static void one_request_too_many_is_one_error_about_the_file(void **state) {
    (void)state;
    struct batch_rules rules = batch_rules_default();
    rules.lines_max = 2;
    struct checked o = validate_with(STR(GOOD("a") "\nbad\n" GOOD("b") "\n" GOOD("c") "\n"), rules);
    assert_int_equal(o.result.error_count, 1);
    assert_error(&o, 0, "too_many_tasks", 0, NULL);
    release(&o);
    rules.lines_max = 3;
    o = validate_with(STR(GOOD("a") "\n\n" GOOD("b") "\n" GOOD("c") "\n"), rules);
    assert_int_equal(o.result.total, 3);
    release(&o);
}

static void deep_and_long_lines_are_errors_of_their_line(void **state) {
    (void)state;
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    buf_add_text(&text, GOOD("a") "\n");
    for (int i = 0; i < 100000; i++) buf_add_byte(&text, '[');
    buf_add_text(&text, "\n{\"custom_id\":\"");
    for (int i = 0; i < 17 << 20; i++) buf_add_byte(&text, 'x');
    buf_add_text(&text, "\"}\n" GOOD("b") "\nbad\n");
    struct checked o = validate_with(buf_str(&text), batch_rules_default());
    assert_int_equal(o.err, OK);
    assert_int_equal(o.result.error_count, 3);
    assert_error(&o, 0, "invalid_json_line", 2, NULL);
    assert_error(&o, 1, "invalid_request", 3, NULL);
    assert_error(&o, 2, "invalid_json_line", 5, NULL);
    release(&o);
    buf_release(&text);
}

static void an_input_that_is_not_what_was_uploaded_is_corrupt(void **state) {
    (void)state;
    static const char text[] = GOOD("a") "\n";
    unsigned char wrong[SHA256_BYTES] = {1};
    char path[] = "/tmp/quern-lines-XXXXXX";
    int fd = memfd_create("input", 0), path_fd = mkstemp(path);
    struct error error;
    struct batch_validation result;
    close(path_fd);
    assert_int_equal(os_write_all(fd, text, sizeof text - 1, &error), OK);
    struct batch_validate_options options = {.input_fd = fd,
                                             .input_bytes = sizeof text - 1,
                                             .input_sha256 = wrong,
                                             .index_path = path,
                                             .rules = batch_rules_default(),
                                             .serves = serves_m};
    assert_int_equal(batch_validate(&options, &result, &error), ERR_CORRUPT);
    close(fd);
    unlink(path);
}

static void an_upload_is_looked_at_only_as_far_as_its_first_line(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool good;
    } cases[] = {
        {"", false},      {"{malformed", false}, {"{malformed\n{}\n", false}, {"{}\nbroken", true},
        {"\n\n{}", true}, {"\n\n", false},       {"\xEF\xBB\xBF{}", true},    {"\xFF\n", false}};
    char dir[] = "/tmp/quern-test-look-XXXXXX";
    struct store *store;
    struct error error;
    assert_non_null(mkdtemp(dir));
    const struct store_options options = {.dir = dir, .ballast_bytes = 1 << 16};
    assert_int_equal(store_open(&store, &options, &error), OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct store_spool *spool;
        assert_int_equal(store_spool_open(&spool, store, &error), OK);
        assert_int_equal(store_spool_write(spool, cases[i].text, strlen(cases[i].text), &error),
                         OK);
        enum err err = batch_spool_look(spool, &error);
        assert_int_equal(err, cases[i].good ? OK : ERR_INVALID);
        if (err != OK) {
            assert_non_null(strstr(error.text, "Invalid file format"));
            assert_non_null(strstr(error.text, "jsonl"));
        }
        store_spool_abort(spool);
    }
    store_close(store);
    tree_remove(dir);
}

static void lines_may_leave_out_the_only_model_there_is(void **state) {
    static const char text[] =
        "{\"custom_id\":\"1\"," HEAD "\"body\":{\"messages\":[]}}\n"
        "{\"custom_id\":\"2\"," HEAD "\"body\":{\"model\":null,\"messages\":[]}}\n" GOOD("3");
    struct batch_rules rules = batch_rules_default();
    (void)state;
    struct checked outcome = validate(text);
    assert_error(&outcome, 0, "invalid_request", 1, "body.model");
    assert_error(&outcome, 1, "invalid_request", 2, "body.model");
    release(&outcome);
    wanted_default = default_m;
    outcome = validate(text);
    assert_null(outcome.errors);
    assert_string_equal(outcome.result.model, "m");
    release(&outcome);
    rules.needs_model = true;
    outcome = validate_with(str_from(text), rules);
    assert_error(&outcome, 0, "invalid_request", 1, "body.model");
    release(&outcome);
    /* A model of another type is none that was left out. */
    outcome = validate("{\"custom_id\":\"1\"," HEAD "\"body\":{\"model\":7,\"messages\":[]}}\n");
    assert_error(&outcome, 0, "invalid_request", 1, "body.model");
    release(&outcome);
    wanted_default = NULL;
}

static void the_model_goes_to_the_end_of_the_body(void **state) {
    static const struct {
        const char *body, *wanted;
    } cases[] = {{"{\"messages\":[]}", "{\"messages\":[],\"model\":\"m\"}"},
                 {"{\"model\":null,\"a\":1 }", "{\"model\":null,\"a\":1 ,\"model\":\"m\"}"},
                 {"{ }", "{ \"model\":\"m\"}"}};
    (void)state;
    struct buf room;
    buf_init(&room, 1000);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct batch_line line = {.body = str_from(cases[i].body)};
        struct str got = batch_line_with_model(&line, STR("m"), &room);
        assert_true(str_is(got, cases[i].wanted));
    }
    buf_release(&room);
}

/* --- for a preflight --- */

struct heard {
    uint64_t numbers[8];
    size_t count;
    char advised[64];
};

static bool heard_serves(void *context, struct str model) {
    (void)context;
    return str_is(model, "m");
}

static void heard_advise(void *context, struct str model, struct buf *advice) {
    (void)context;
    buf_printf(advice, " Not %.*s.", STR_ARGS(model));
}

static void hear_refused(void *context, uint64_t number, const struct refusal *refusal) {
    struct heard *heard = context;
    heard->numbers[heard->count++] = number;
    if (strstr(refusal->message, " Not other."))
        snprintf(heard->advised, sizeof heard->advised, "%s", refusal->code);
}

static void a_preflight_hears_of_every_refused_line(void **state) {
    (void)state;
    struct heard heard = {.count = 0};
    struct batch_validation result;
    struct error error;
    char path[] = "/tmp/quern-lines-XXXXXX";
    const char *text = GOOD("a") "\n{\n\n" GOOD("b") "\n" GOOD(
        "a") "\n{\"custom_id\":\"c\"," HEAD "\"body\":{\"model\":\"other\",\"messages\":[]}}\n";
    int fd = memfd_create("input", 0), path_fd = mkstemp(path);
    assert_true(fd >= 0 && path_fd >= 0);
    close(path_fd);
    assert_int_equal(os_write_all(fd, text, strlen(text), &error), OK);
    struct batch_validate_options options = {.input_fd = fd,
                                             .input_bytes = strlen(text),
                                             .index_path = path,
                                             .endpoint = ENDPOINT_CHAT,
                                             .rules = batch_rules_default(),
                                             .context = &heard,
                                             .serves = heard_serves,
                                             .advise = heard_advise,
                                             .refused = hear_refused};
    options.rules.errors_max = 1;
    assert_int_equal(batch_validate(&options, &result, &error), OK);
    assert_null(result.errors);
    assert_int_equal(result.total, 0);
    assert_int_equal(heard.count, 3);
    assert_int_equal(heard.numbers[0], 2);
    assert_int_equal(heard.numbers[1], 5);
    assert_int_equal(heard.numbers[2], 6);
    assert_string_equal(heard.advised, "model_not_found");
    batch_validation_release(&result);
    close(fd);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_may_leave_out_the_only_model_there_is),
        cmocka_unit_test(the_model_goes_to_the_end_of_the_body),
        cmocka_unit_test(every_check_has_its_code_and_parameter),
        cmocka_unit_test(shapes_that_cannot_be_held_are_errors_of_their_line),
        cmocka_unit_test(a_shape_for_another_worker_is_passed_on),
        cmocka_unit_test(the_strict_rules_refuse_other_urls_and_models),
        cmocka_unit_test(errors_come_in_line_order_and_blank_lines_count),
        cmocka_unit_test(files_without_requests_are_empty),
        cmocka_unit_test(good_files_are_good_however_they_end),
        cmocka_unit_test(several_models_leave_the_batch_without_one),
        cmocka_unit_test(five_thousand_bad_lines_give_a_list_of_a_thousand),
        cmocka_unit_test(one_request_too_many_is_one_error_about_the_file),
        cmocka_unit_test(deep_and_long_lines_are_errors_of_their_line),
        cmocka_unit_test(an_input_that_is_not_what_was_uploaded_is_corrupt),
        cmocka_unit_test(an_upload_is_looked_at_only_as_far_as_its_first_line),
        cmocka_unit_test(a_preflight_hears_of_every_refused_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
