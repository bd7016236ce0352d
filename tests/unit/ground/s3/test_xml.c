/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "s3/xml.h"

#include <stdio.h>
#include <string.h>

static void the_text_of_an_element_is_read_whatever_lies_around_it(void **state) {
    static const char *const rows[] = {
        "<Error><Code>NoSuchKey</Code></Error>",
        "<?xml version=\"1.0\"?>\n<Error xmlns=\"x\"><Message/><Code a='b'> NoSuchKey </Code>",
        "<!-- <Code>other</Code> --><s3:Error><s3:Code>NoSuchKey</s3:Code></s3:Error>",
        "<![CDATA[<Code>x</Code>]]><Code>NoSuch&#75;&#x65;y</Code>",
        "</Code><Codes>x</Codes><Code>NoSuchKey</Code><Code>second</Code>"};
    char text[16];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!xml_text(str_from(rows[i]), "Code", text, sizeof text)) fail_msg("%s", rows[i]);
        assert_string_equal(text, "NoSuchKey");
    }
}

static void a_text_that_is_none_is_empty(void **state) {
    static const char *const rows[] = {"",
                                       "<",
                                       "<Code",
                                       "<Code>",
                                       "<Code>a",
                                       "<Code>a<",
                                       "<Code>a</Cod>",
                                       "Code",
                                       "<!-- <Code>a</Code>",
                                       "<Code>a<b>c</b></Code>",
                                       "<Code>0123456789abcdef</Code>"};
    char text[16];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        memset(text, 'x', sizeof text);
        if (xml_text(str_from(rows[i]), "Code", text, sizeof text)) fail_msg("%s", rows[i]);
        assert_string_equal(text, "");
    }
}

static void entities_are_decoded_and_control_characters_are_blanks(void **state) {
    static const char *const rows[][2] = {
        {"&lt;a&gt; &amp;amp; &quot;&apos;", "<a> &amp; \"'"},
        {"a\nb\x1b[c&#10;d&#27;", "a b [c d "},
        {"&#0;&#xD800;&#x110000;&#12a;&#;&x;& &", "&#0;&#xD800;&#x110000;&#12a;&#;&x;& &"},
        {"&#228;&#x20AC;", "\xc3\xa4\xe2\x82\xac"}};
    char xml[200], text[100];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(xml, sizeof xml, "<A>%s</A>", rows[i][0]);
        assert_true(xml_text(str_from(xml), "A", text, sizeof text));
        assert_string_equal(text, rows[i][1]);
    }
}

static void the_elements_of_a_list_come_one_after_another(void **state) {
    struct str xml = STR("<List><Part><N>1</N></Part><Part/><Part><N>2</N></Part></List>"), part;
    static const char *const wanted[] = {"<N>1</N>", "", "<N>2</N>"};
    size_t at = 0;
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_true(xml_next(xml, "Part", &at, &part));
        assert_true(str_is(part, wanted[i]));
    }
    assert_false(xml_next(xml, "Part", &at, &part));
    assert_int_equal(at, xml.bytes);
}

static void what_is_escaped_is_read_back(void **state) {
    char escaped[64], xml[100], text[32];
    (void)state;
    assert_true(xml_escape("\"a<b>&'c'\"", escaped, sizeof escaped));
    assert_string_equal(escaped, "&quot;a&lt;b&gt;&amp;&apos;c&apos;&quot;");
    snprintf(xml, sizeof xml, "<A>%s</A>", escaped);
    assert_true(xml_text(str_from(xml), "A", text, sizeof text));
    assert_string_equal(text, "\"a<b>&'c'\"");
    assert_false(xml_escape("\"\"\"", escaped, 18));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_of_an_element_is_read_whatever_lies_around_it),
        cmocka_unit_test(a_text_that_is_none_is_empty),
        cmocka_unit_test(entities_are_decoded_and_control_characters_are_blanks),
        cmocka_unit_test(the_elements_of_a_list_come_one_after_another),
        cmocka_unit_test(what_is_escaped_is_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
