/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/ollama.h"
#include "dialects/ollama_preset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define PARAMS "{\"temperature\":0.1,\"stop\":[\"a\",\"b\"]}"
#define SYSTEM "\"Be \\\"kind\\\".\""

/* Checks the request that becomes of `object`; `want` NULL: it stays as it is. */
static void check(const char *params, const char *system, const struct dialect *dialect,
                  const char *object, const char *want) {
    struct ollama_preset preset;
    struct buf whole;
    ollama_preset_init(&preset);
    buf_init(&whole, BUF_UNLIMITED);
    buf_add_text(&preset.params, params);
    buf_add_text(&preset.system, system);
    bool has_changed = ollama_preset_apply(&preset, dialect, str_from(object), &whole);
    assert_int_equal(has_changed, want != NULL);
    buf_add_byte(&whole, '\0');
    assert_string_equal(whole.at, want ? want : "");
    buf_release(&whole);
    ollama_preset_release(&preset);
}

static void a_request_gets_what_it_does_not_say(void **state) {
    (void)state;
    check(PARAMS, SYSTEM, &ollama_chat, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\"}]}",
          "{\"model\":\"m\",\"options\":" PARAMS
          ",\"messages\":[{\"role\":\"system\",\"content\":" SYSTEM "},{\"role\":\"user\"}]}");
    check(
        PARAMS, "", &ollama_chat,
        "{\"options\":{\"top_k\":3,\"\\u0073top\":[\"x\"],\"temperature\":null},\"messages\":[1]}",
        "{\"messages\":[1],\"options\":{\"top_k\":3,\"\\u0073top\":[\"x\"],\"temperature\":0.1}}");
    check(PARAMS, SYSTEM, &ollama_generate, "{\"prompt\":\"p\",\"system\":null}",
          "{\"prompt\":\"p\",\"options\":" PARAMS ",\"system\":" SYSTEM "}");
    check("{}", SYSTEM, &ollama_generate, "{\"prompt\":\"p\",\"options\":{}}",
          "{\"prompt\":\"p\",\"options\":{},\"system\":" SYSTEM "}");
    check(PARAMS, SYSTEM, &ollama_chat, "{\"messages\":[{\"role\":\"user\"}]}",
          "{\"options\":" PARAMS ",\"messages\":[{\"role\":\"system\",\"content\":" SYSTEM
          "},{\"role\":\"user\"}]}");
}

static void what_a_request_says_counts(void **state) {
    (void)state;
    check("", SYSTEM, &ollama_chat, "{\"messages\":[{\"role\":\"system\",\"content\":\"\"}]}",
          NULL);
    check("", SYSTEM, &ollama_generate, "{\"prompt\":\"p\",\"system\":\"\"}", NULL);
    check("", SYSTEM, &ollama_generate, "{\"prompt\":\"p\",\"raw\":true}", NULL);
    check("{\"top_k\":1}", "", &ollama_chat, "{\"messages\":[0],\"options\":{\"top_k\":2}}",
          "{\"messages\":[0],\"options\":{\"top_k\":2}}");
}

static void a_request_that_asks_nothing_or_wrongly_stays_as_it_is(void **state) {
    (void)state;
    check(PARAMS, SYSTEM, &ollama_chat, "{\"model\":\"m\"}", NULL);
    check(PARAMS, SYSTEM, &ollama_chat, "{\"messages\":[]}", NULL);
    check(PARAMS, SYSTEM, &ollama_generate, "{\"prompt\":\"\"}", NULL);
    check(PARAMS, SYSTEM, &ollama_embed, "{\"input\":\"x\"}", NULL);
    check(PARAMS, "", &ollama_chat, "{\"messages\":[0],\"options\":7}", NULL);
    check("", SYSTEM, &ollama_chat, "{\"messages\":\"hi\"}", NULL);
    check(PARAMS, SYSTEM, &ollama_chat, "{\"messages\":[0],\"options\":{},\"options\":{}}", NULL);
    check("", "", &ollama_chat, "{\"messages\":[0]}", NULL);
}

static void parameters_are_lines(void **state) {
    struct ollama_preset preset;
    struct buf text;
    (void)state;
    ollama_preset_init(&preset);
    buf_init(&text, BUF_UNLIMITED);
    ollama_preset_write_lines(&preset, "", &text);
    assert_int_equal(text.bytes, 0);
    buf_add_text(&preset.params, "{\"top_k\":3,\"stop\":[\"a\",\"b c\"],\"none\":[]}");
    ollama_preset_write_lines(&preset, "PARAMETER ", &text);
    buf_add_byte(&text, '\0');
    assert_string_equal(text.at, "PARAMETER top_k                          3\n"
                                 "PARAMETER stop                           \"a\"\n"
                                 "PARAMETER stop                           \"b c\"\n");
    buf_release(&text);
    ollama_preset_release(&preset);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_gets_what_it_does_not_say),
        cmocka_unit_test(what_a_request_says_counts),
        cmocka_unit_test(a_request_that_asks_nothing_or_wrongly_stays_as_it_is),
        cmocka_unit_test(parameters_are_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
