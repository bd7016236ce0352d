/* SPDX-License-Identifier: Apache-2.0 */

/* Which bytes of a rendering are the template's, and which came with the request. */

#include "jinja/jinja.h"
#include "json/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char context_text[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\" Hi <|x|> \",\"name\":\"Bob\","
    "\"parts\":[\"<|\",\"x|>\"]},{\"role\":\"<|x|>\",\"content\":\"yo\"}],"
    "\"tools\":[{\"name\":\"f\",\"role\":\"user\"}],\"n\":7,\"json\":\"{\\\"k\\\":[\\\"v\\\"]}\"}";

/* The output with `given` bytes in «…». */
static void check(const char *source, const char *expected) {
    struct jinja_template *template;
    struct error error = {0};
    json_t *context, *words;
    if (jinja_template_open(&template, str_from(source), &error) != OK) fail_msg("%s", error.text);
    assert_int_equal(json_read(&context, str_from(context_text), &error), OK);
    assert_int_equal(json_read(&words, STR("{\"bos_token\":\"<s>\",\"n\":8}"), &error), OK);
    struct jinja_options options = {.model_context = words};
    struct buf out, marked;
    struct text_ranges given = {0};
    buf_init(&out, 1 << 20);
    buf_init(&marked, 1 << 20);
    if (jinja_template_render(template, context, &options, &out, &given, &error) != OK)
        fail_msg("%s: %s", source, error.text);
    size_t at = 0;
    for (size_t i = 0; i < given.count; i++) {
        struct text_range span = given.at[i];
        assert_true(span.start < span.end && span.end <= out.bytes);
        assert_true(i == 0 || span.start > given.at[i - 1].end);
        buf_add(&marked, out.at + at, span.start - at);
        buf_add_text(&marked, "«");
        buf_add(&marked, out.at + span.start, span.end - span.start);
        buf_add_text(&marked, "»");
        at = span.end;
    }
    buf_add_str(&marked, str_skip(buf_str(&out), at));
    if (!str_equals(buf_str(&marked), str_from(expected)))
        fail_msg("%s: got %s, expected %s", source, marked.at, expected);
    text_ranges_release(&given);
    buf_release(&out);
    buf_release(&marked);
    json_decref(context);
    json_decref(words);
    jinja_template_close(template);
}

#define M "{% set m = messages[0] %}"

static void what_the_template_prints_of_a_message_is_given(void **state) {
    (void)state;
    check("<|x|>{{ messages[0].content }}<|y|>", "<|x|>« Hi <|x|> »<|y|>");
    check(M "{{ '<|x|>' + m.content + '<|y|>' + m.name }}", "<|x|>« Hi <|x|> »<|y|>«Bob»");
    check(M "{{ '<|x|>' ~ m.content|trim ~ n }}", "<|x|>«Hi <|x|>»7");
    check(M "{{ m.parts[0] }}{{ m.parts[1] }}", "«<|x|>»");
    check("plain", "plain");
}

static void the_models_own_words_are_not_given(void **state) {
    (void)state;
    check("{{ bos_token }}{{ bos_token + messages[1].content }}", "<s><s>«yo»");
}

static void the_role_of_a_message_builds_tokens_where_it_is_a_word(void **state) {
    (void)state;
    check("{% for m in messages %}{{ '<|' + m.role + '|>' }}{% endfor %}", "<|user|><|«<|x|>»|>");
    check("{{ tools[0].role }}{{ messages|map(attribute='role')|first }}", "«user»user");
}

static void parts_keep_their_origin(void **state) {
    (void)state;
    check(M "{% set t = 'ab' + m.name + 'cd' %}{{ t[1:4] }}|{{ t[-3:] }}|{{ t[3] }}|{{ "
            "t.strip('abd') }}",
          "b«Bo»|«b»cd|«o»|«Bob»c");
    check(M "{{ ('a,' + m.name + ',b').split(',')|join('-') }}", "a-«Bob»-b");
    check(M "{% for c in 'a' + m.parts[0] %}{{ c }}.{% endfor %}", "a.«<».«|».");
    check(M "{{ ('x' + m.name).removeprefix('x') }}{{ ('x' + m.name).partition('B')[0] }}",
          "«Bob»x");
    check(M "{{ ('a\n' + m.name)|indent(2) }}", "a\n  «Bob»");
    check(M "{{ ('a ' + m.name + ' cdef')|truncate(7, true, '!', 0) }}", "a «Bob» !");
}

static void joins_and_replacements_keep_both_origins(void **state) {
    (void)state;
    check(M "{{ 'a-b'.replace('-', m.name) }}{{ m.name|replace('o', '<|y|>') }}",
          "a«Bob»b«B»<|y|>«b»");
    check(M "{{ ['a', m.name, 'c']|join(m.parts[0]) }}", "a«<|Bob<|»c");
    check(M "{{ m.name.replace('', '-') }}{{ m.name.center(7, '*') }}", "-«B»-«o»-«b»-**«Bob»**");
    check(M "{{ 'a%sb' % m.name }}{{ 'a{}b'.format(m.name) }}{{ '%-5s|' % m.name }}",
          "a«Bob»ba«Bob»b«Bob  »|");
}

static void what_is_made_of_a_given_text_is_given(void **state) {
    (void)state;
    check(M "{{ m.name|upper }}{{ m.name * 2 }}{{ m.name[::-1] }}{{ m.name[::2] }}",
          "«BOBBobBobboBBb»");
    check(M "{{ m.name|e }}{{ m.name|title }}{{ m.name.zfill(5) }}{{ m.name|urlencode }}",
          "«BobBob00BobBob»");
    check("{{ tools|tojson }}", "[{«\"name\"»: «\"f\"», «\"role\"»: «\"user\"»}]");
    check("{{ tools }}", "[{«'name'»: «'f'», «'role'»: «'user'»}]");
    check("{{ (json|from_json).k[0] }}", "«v»");
    check(M "{{ '-' * 3 }}{{ 'a'|upper }}{{ {'a': 1}|tojson }}", "---A{\"a\": 1}");
    check("{% for k, v in tools[0].items() %}<{{ k }}>{% endfor %}", "<«name»><«role»>");
}

static void macros_blocks_and_captures_keep_origins(void **state) {
    (void)state;
    check(M "{% macro f(x) %}<|{{ x }}|>{% endmacro %}{{ f(m.name) }}{{ f('y') }}",
          "<|«Bob»|><|y|>");
    check(M "{% set b %}<|{{ m.name }}|>{% endset %}{{ b }}{{ b + '!' }}", "<|«Bob»|><|«Bob»|>!");
    check(M "{% filter trim %} a{{ m.name }} {% endfilter %}", "a«Bob»");
    check(M "{% macro f() %}{{ kwargs }}{% endmacro %}{{ f(**{m.name: 1}) }}", "{«'Bob'»: 1}");
    check(M "{{ dict(**tools[0])|list|join }}", "«namerole»");
}

/* Texts that were built on one another share memory. */
static void building_by_steps_does_not_mix_origins(void **state) {
    (void)state;
    check(M "{% set a = 'x' + 'y' %}{% set b = a + m.name %}{% set c = a + 'z' %}"
            "{% set d = b + 'w' %}{% set e = b + m.name %}{{ a }},{{ b }},{{ c }},{{ d }},{{ e }}",
          "xy,xy«Bob»,xyz,xy«Bob»w,xy«BobBob»");
    check(M "{% set ns = namespace(t='') %}{% for i in range(4) %}"
            "{% set ns.t = ns.t + '<' + m.name + '>' %}{% endfor %}{{ ns.t }}",
          "<«Bob»><«Bob»><«Bob»><«Bob»>");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_template_prints_of_a_message_is_given),
        cmocka_unit_test(the_models_own_words_are_not_given),
        cmocka_unit_test(the_role_of_a_message_builds_tokens_where_it_is_a_word),
        cmocka_unit_test(parts_keep_their_origin),
        cmocka_unit_test(joins_and_replacements_keep_both_origins),
        cmocka_unit_test(what_is_made_of_a_given_text_is_given),
        cmocka_unit_test(macros_blocks_and_captures_keep_origins),
        cmocka_unit_test(building_by_steps_does_not_mix_origins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
