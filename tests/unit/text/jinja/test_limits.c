/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/jinja.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct error error;

/* Opens and renders over {"l": [1, 2, 3], "s": "text"}; *ret_text (NULL allowed) gets the start of
 * the output. */
static enum err render_with(const struct jinja_limits *limits, struct str source,
                            char ret_text[64]) {
    struct jinja_template *template;
    error = (struct error){0};
    enum err err = jinja_template_open(&template, source, &error);
    if (err) return err;
    json_t *context = json_pack("{s:[i,i,i], s:s}", "l", 1, 2, 3, "s", "text");
    struct jinja_options options = {.limits = limits ? *limits : (struct jinja_limits){0}};
    struct buf out;
    buf_init(&out, BUF_UNLIMITED);
    err = jinja_template_render(template, context, &options, &out, NULL, &error);
    if (ret_text) snprintf(ret_text, 64, "%s", out.at ? out.at : "");
    buf_release(&out);
    json_decref(context);
    jinja_template_close(template);
    return err;
}

static enum err render(const char *source) {
    return render_with(NULL, str_from(source), NULL);
}

/* Renders `head`, `before` times `count`, `middle`, `after` times `count` and `tail`. */
static enum err render_within(const char *head, const char *before, const char *middle,
                              const char *after, const char *tail, size_t count) {
    struct buf source;
    buf_init(&source, (size_t)1 << 24);
    buf_add_text(&source, head);
    for (size_t i = 0; i < count; i++) buf_add_text(&source, before);
    buf_add_text(&source, middle);
    for (size_t i = 0; i < count; i++) buf_add_text(&source, after);
    buf_add_text(&source, tail);
    enum err err = render_with(NULL, buf_str(&source), NULL);
    buf_release(&source);
    return err;
}

static enum err render_nested(const char *before, const char *middle, const char *after,
                              size_t count) {
    return render_within("", before, middle, after, "", count);
}

static void numbers_over_64_bits_are_an_error_not_another_number(void **state) {
    (void)state;
    assert_int_equal(render("{{ 1e20|int }}"), ERR_INVALID);
    assert_int_equal(render("{{ '99999999999999999999'|int }}"), ERR_INVALID);
    assert_int_equal(render("{{ 9223372036854775807 + 1 }}"), ERR_INVALID);
    assert_int_equal(render("{{ 'x'|int + '1e400'|int }}"), OK);
}

static void loops_within_loops_stop_at_the_limit_on_steps(void **state) {
    (void)state;
    assert_int_equal(render("{% for a in range(99999) %}{% for b in range(99999) %}"
                            "{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}"),
                     ERR_LIMIT);
    assert_int_equal(render("{% for a in range(99999) %}{% for b in range(99999) if false %}"
                            "{% endfor %}{% endfor %}"),
                     ERR_LIMIT);
}

static void output_stops_at_its_limit(void **state) {
    (void)state;
    assert_int_equal(render("{% for a in range(99999) %}{{ 'x' * 1000 }}{% endfor %}"), ERR_LIMIT);
    struct jinja_limits limits = {.output_bytes_max = 4};
    assert_int_equal(render_with(&limits, STR("{{ s }}"), NULL), OK);
    assert_int_equal(render_with(&limits, STR("{{ s }}!"), NULL), ERR_LIMIT);
    assert_int_equal(render_with(&limits, STR("{% set x %}{{ s }}{{ s }}{% endset %}"), NULL),
                     ERR_LIMIT);
}

static void output_is_counted_from_where_the_buf_stood(void **state) {
    (void)state;
    struct jinja_template *template;
    struct buf out;
    struct jinja_options options = {.limits.output_bytes_max = 4};
    json_t *context = json_object();
    buf_init(&out, 100);
    buf_add_text(&out, "before ");
    assert_int_equal(jinja_template_open(&template, STR("{{ 'text' }}"), &error), OK);
    assert_int_equal(jinja_template_render(template, context, &options, &out, NULL, &error), OK);
    assert_string_equal(out.at, "before text");
    assert_int_equal(out.bytes_max, 100);
    jinja_template_close(template);
    buf_release(&out);
    json_decref(context);
}

static void texts_that_multiply_stop_at_a_limit(void **state) {
    (void)state;
    assert_int_equal(render("{{ ('x' * 10000000 * 10)|length }}"), ERR_LIMIT);
    assert_int_equal(render("{{ 'x' * 9223372036854775807 }}"), ERR_LIMIT);
    assert_int_equal(render("{{ [1, 2] * 9223372036854775807 }}"), ERR_LIMIT);
    assert_int_equal(render("{{ ('x' * 10000)|replace('x', 'y' * 10000) }}"), ERR_LIMIT);
    assert_int_equal(render("{{ ('x' * 10000)|join('y' * 10000) }}"), ERR_LIMIT);
    assert_int_equal(render("{{ '%99999999d' % 1 }}"), ERR_LIMIT);
    assert_int_equal(render("{{ '{:99999999}'.format(1) }}"), ERR_LIMIT);
    assert_int_equal(render("{{ 'x'.center(9000000000) }}"), ERR_LIMIT);
    assert_int_equal(render("{{ 'x'.zfill(9000000000) }}"), ERR_LIMIT);
    assert_int_equal(render("{{ '\t'.expandtabs(9000000000) }}"), ERR_LIMIT);
    assert_int_equal(render("{{ strftime_now('%999999d') }}"), ERR_LIMIT);
    assert_int_equal(render("{{ 'a\nb'|indent(9000000000) }}"), ERR_LIMIT);
    assert_int_equal(render("{{ {'a': 1}|tojson(indent=9000000000) }}"), ERR_LIMIT);
    assert_int_equal(render("{% set ns = namespace(x='x') %}{% for i in range(99) %}"
                            "{% set ns.x = ns.x + ns.x %}{% endfor %}"),
                     ERR_LIMIT);
}

static void a_text_of_ten_million_bytes_is_within_the_limits(void **state) {
    (void)state;
    char text[64];
    assert_int_equal(render_with(NULL, STR("{{ ('x' * 10000000)|length }}"), text), OK);
    assert_string_equal(text, "10000000");
}

/* Each question reads four million bytes, a hundred thousand times. */
static void looking_at_long_texts_counts_as_steps(void **state) {
    (void)state;
    static const char *const questions[] = {
        "a == c",
        "a is sameas c",
        "a.startswith(c)",
        "a.endswith((c, c))",
        "a.removeprefix(c)",
        "a.removesuffix(c)",
        "d[c]",
        "c in d",
        "a is upper",
        "a.isalpha()",
        "a|wordcount",
        "('x', 1) in d or c in d",
    };
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
        char source[512];
        snprintf(source, sizeof source,
                 "{%% set a = 'a' * 4000000 %%}{%% set c = 'a' * 4000000 %%}{%% set d = {a: 1} %%}"
                 "{%% for i in range(99999) %%}{%% if %s %%}{%% endif %%}{%% endfor %%}",
                 questions[i]);
        const struct jinja_limits limits = {.steps_max = 1000000};
        assert_int_equal(render_with(&limits, str_from(source), NULL), ERR_LIMIT);
        assert_non_null(strstr(error.text, "steps"));
    }
}

static void memory_stops_at_its_limit(void **state) {
    (void)state;
    struct jinja_limits limits = {.memory_bytes_max = 4096};
    assert_int_equal(render_with(&limits, STR("{{ s * 2000 }}"), NULL), ERR_LIMIT);
    assert_int_equal(render_with(&limits, STR("{{ s }}"), NULL), OK);
}

static void building_a_text_piece_by_piece_takes_linear_memory(void **state) {
    (void)state;
    char text[64];
    struct str source = STR("{% set ns = namespace(x='', l=[]) %}{% for i in range(20000) %}"
                            "{% set ns.x = ns.x ~ '0123456789' %}{% set ns.l = ns.l + [i] %}"
                            "{% endfor %}{{ ns.x|length }} {{ ns.l|length }} {{ ns.l[19999] }}");
    assert_int_equal(render_with(NULL, source, text), OK);
    assert_string_equal(text, "200000 20000 19999");
}

static void extending_a_text_twice_leaves_both_results_apart(void **state) {
    (void)state;
    char text[64];
    struct str source = STR("{% set a = s ~ '1' ~ '2' %}{% set b = a ~ 'x' %}{% set c = a ~ 'y' %}"
                            "{% set m = l + [4] + [5] %}{% set n = m + [6] %}{% set o = m + [7] %}"
                            "{{ a }} {{ b }} {{ c }} {{ n[-1] }} {{ o[-1] }}");
    assert_int_equal(render_with(NULL, source, text), OK);
    assert_string_equal(text, "text12 text12x text12y 6 7");
}

static void macros_call_themselves_only_so_deep(void **state) {
    (void)state;
    char text[64];
    assert_int_equal(render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), ERR_LIMIT);
    assert_int_equal(render("{% macro m(x=m()) %}{% endmacro %}{{ m() }}"), ERR_LIMIT);
    assert_int_equal(render("{% macro a() %}{{ b() }}{% endmacro %}"
                            "{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}"),
                     ERR_LIMIT);
    assert_int_equal(render("{% macro a() %}{{ caller() }}{% call a() %}{% endcall %}{% endmacro %}"
                            "{% call a() %}{% endcall %}"),
                     ERR_LIMIT);
    assert_int_equal(render("{% for x in l recursive %}{{ loop(l) }}{% endfor %}"), ERR_LIMIT);
    struct str source = STR("{% macro m(x) %}{% if x %}{% for i in [1] %}{{ m(x - 1) }}{% endfor %}"
                            "{% else %}end{% endif %}{% endmacro %}{{ m(60) }}");
    assert_int_equal(render_with(NULL, source, text), OK);
    assert_string_equal(text, "end");
}

static void a_template_nests_only_so_deep(void **state) {
    (void)state;
    assert_int_equal(render_nested("{% if 1 %}", "", "{% endif %}", 50), OK);
    assert_int_equal(render_nested("{% if 1 %}", "", "{% endif %}", 100), ERR_LIMIT);
    assert_int_equal(render_nested("{% if 1 %}", "", "{% endif %}", 10000), ERR_LIMIT);
    assert_int_equal(render_nested("{{ (", "1", ") }}", 1), OK);
    assert_int_equal(render_nested("(", "{{ 1 }}", ")", 100000), OK);
}

static void an_expression_nests_only_so_deep(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"(", ")"},  {"[", "]"},    {"-", ""},   {"+", ""},     {"{1:", "}"},
        {"f(", ")"}, {"1 if ", ""}, {"l[", "]"}, {"1|d(", ")"}, {"1 is eq(", ")"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        enum err err = render_within("{{ ", pairs[i][0], "1", pairs[i][1], " }}", 5000);
        assert_true(err == ERR_LIMIT || err == ERR_INVALID);
    }
}

static void chains_may_be_as_long_as_they_like(void **state) {
    (void)state;
    static const char *const links[] = {" + 1",  " ~ 1",  " or 1",   " and 1",
                                        "|d(1)", " == 1", "|string", " - 1"};
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        assert_int_equal(render_within("{{ 1", links[i], "", "", " }}", 10000), OK);
    assert_int_equal(render_within("{{ ", "not ", "1", "", " }}", 10000), OK);
}

static void a_value_that_nests_too_deep_is_not_printed(void **state) {
    (void)state;
    static const char *const uses[] = {"{{ ns.x }}", "{{ ns.x|tojson }}", "{{ ns.x == ns.y }}",
                                       "{{ ns.x < ns.y }}", "{{ ns.x|string|length }}"};
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        struct buf source;
        buf_init(&source, 1 << 16);
        buf_printf(&source,
                   "{%% set ns = namespace(x=[], y=[]) %%}{%% for i in range(5000) %%}"
                   "{%% set ns.x = [ns.x] %%}{%% set ns.y = [ns.y] %%}{%% endfor %%}%s",
                   uses[i]);
        assert_int_equal(render_with(NULL, buf_str(&source), NULL), ERR_LIMIT);
        buf_release(&source);
    }
    assert_int_equal(render("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}"), ERR_LIMIT);
}

static void a_template_that_is_too_large_is_refused(void **state) {
    (void)state;
    assert_int_equal(render_nested("x", "", "", 256 * 1024), OK);
    assert_int_equal(render_nested("x", "", "", 256 * 1024 + 1), ERR_LIMIT);
    assert_int_equal(render_nested("{{1}}", "", "", 52000), OK);
}

static void bytes_that_are_not_utf8_are_refused(void **state) {
    (void)state;
    assert_int_equal(render("a\xFFz"), ERR_INVALID);
    assert_non_null(strstr(error.text, "byte 1"));
}

static void a_syntax_error_names_its_line(void **state) {
    (void)state;
    assert_int_equal(render("one\ntwo\n{{ 1 + }}"), ERR_INVALID);
    assert_non_null(strstr(error.text, "line 3"));
    assert_int_equal(render("one\r\n{% if x %}\n"), ERR_INVALID);
    assert_non_null(strstr(error.text, "line 2"));
    assert_int_equal(render("{{ 1 }}\n\n{{ s|shout }}"), ERR_INVALID);
    assert_string_equal(error.text, "line 3: there is no filter named 'shout'");
}

static void an_error_while_rendering_names_its_line(void **state) {
    (void)state;
    assert_int_equal(render("{{ s }}\n{{ nothing.at.all }}"), ERR_INVALID);
    assert_string_equal(error.text, "line 2: 'nothing' is undefined");
}

static void a_raised_message_that_is_too_long_is_cut_between_characters(void **state) {
    (void)state;
    assert_int_equal(render("{{ raise_exception('x' ~ 'é' * 300) }}"), ERR_INVALID);
    assert_int_equal(strlen(error.text), ERROR_TEXT_BYTES - 1);
    assert_int_equal(render("{{ raise_exception('é' * 300) }}"), ERR_INVALID);
    assert_int_equal(strlen(error.text), ERROR_TEXT_BYTES - 2);
}

static void *render_often(void *argument) {
    const struct jinja_template *template = argument;
    json_t *context = json_pack("{s:[s,s,s]}", "names", "\xC3\xA9", "b", "c");
    struct jinja_options options = {0};
    const char *problem = NULL;
    for (int i = 0; i < 200 && !problem; i++) {
        struct buf out;
        struct error mine;
        buf_init(&out, 4096);
        if (jinja_template_render(template, context, &options, &out, NULL, &mine))
            problem = "failed";
        if (!problem && strcmp(out.at, "\xC3\xA9:1,b:2,c:3,\xC3\xBC\xC3\xB1") != 0)
            problem = "differs";
        buf_release(&out);
    }
    json_decref(context);
    return (void *)(uintptr_t)problem;
}

static void several_threads_may_render_one_template(void **state) {
    (void)state;
    struct jinja_template *template;
    pthread_t threads[4];
    assert_int_equal(jinja_template_open(&template,
                                         STR("{% for n in names %}{{ n }}:{{ loop.index }},"
                                             "{% endfor %}{{ '\xC3\xBC\xC3\xB1'[:2] }}"),
                                         &error),
                     OK);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, template), 0);
    for (size_t i = 0; i < 4; i++) {
        void *problem;
        assert_int_equal(pthread_join(threads[i], &problem), 0);
        assert_null(problem);
    }
    jinja_template_close(template);
}

static bool takes_parts(const char *source) {
    struct jinja_template *template;
    assert_int_equal(jinja_template_open(&template, str_from(source), &error), OK);
    bool takes = jinja_template_takes_parts(template);
    jinja_template_close(template);
    return takes;
}

static void a_template_that_walks_content_takes_parts(void **state) {
    (void)state;
    assert_true(takes_parts("{% for p in m.content %}{% endfor %}"));
    assert_true(takes_parts("{% for p in m['content']|list %}{% endfor %}"));
    assert_true(takes_parts("{% for p in m.get('content', []) %}{% endfor %}"));
    assert_true(
        takes_parts("{% set c = m.content %}{% if c %}{% for p in c %}{% endfor %}{% endif %}"));
    assert_true(takes_parts("{% macro f(x, y) %}{% for p in y %}{% endfor %}{% endmacro %}"
                            "{{ f(1, m.content) }}"));
    assert_false(takes_parts("{% for m in messages %}{{ m.content }}{% endfor %}"));
    assert_false(takes_parts("{% if m.content is string %}{{ m.content }}{% endif %}"));
    assert_false(takes_parts("{% for p in m.content.parts %}{% endfor %}"));
    assert_false(takes_parts("{% macro f(x, y) %}{% for p in y %}{% endfor %}{% endmacro %}"
                             "{{ f(m.content, 1) }}"));
}

static void a_template_knows_the_roles_it_names_in_quotes(void **state) {
    (void)state;
    struct jinja_template *template;
    assert_int_equal(jinja_template_open(&template,
                                         STR("developer {{ m.role == \"tool\" }}{{ 'system' }}"),
                                         &error),
                     OK);
    assert_true(jinja_template_knows_role(template, "tool"));
    assert_true(jinja_template_knows_role(template, "system"));
    assert_false(jinja_template_knows_role(template, "developer"));
    jinja_template_close(template);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_over_64_bits_are_an_error_not_another_number),
        cmocka_unit_test(loops_within_loops_stop_at_the_limit_on_steps),
        cmocka_unit_test(output_stops_at_its_limit),
        cmocka_unit_test(output_is_counted_from_where_the_buf_stood),
        cmocka_unit_test(texts_that_multiply_stop_at_a_limit),
        cmocka_unit_test(a_text_of_ten_million_bytes_is_within_the_limits),
        cmocka_unit_test(looking_at_long_texts_counts_as_steps),
        cmocka_unit_test(memory_stops_at_its_limit),
        cmocka_unit_test(building_a_text_piece_by_piece_takes_linear_memory),
        cmocka_unit_test(extending_a_text_twice_leaves_both_results_apart),
        cmocka_unit_test(macros_call_themselves_only_so_deep),
        cmocka_unit_test(a_template_nests_only_so_deep),
        cmocka_unit_test(an_expression_nests_only_so_deep),
        cmocka_unit_test(chains_may_be_as_long_as_they_like),
        cmocka_unit_test(a_value_that_nests_too_deep_is_not_printed),
        cmocka_unit_test(a_template_that_is_too_large_is_refused),
        cmocka_unit_test(bytes_that_are_not_utf8_are_refused),
        cmocka_unit_test(a_syntax_error_names_its_line),
        cmocka_unit_test(an_error_while_rendering_names_its_line),
        cmocka_unit_test(a_raised_message_that_is_too_long_is_cut_between_characters),
        cmocka_unit_test(several_threads_may_render_one_template),
        cmocka_unit_test(a_template_that_walks_content_takes_parts),
        cmocka_unit_test(a_template_knows_the_roles_it_names_in_quotes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
