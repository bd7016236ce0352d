/* SPDX-License-Identifier: Apache-2.0 */
/* Sources that try to make the compiler work without end: each ends within a bound of work and of
 * memory, compiled or refused. The bound of work is at most 200 ms of one core where this was
 * measured (docs/internals/text/grammar.md); the test has no clock. */
#include "base/rng.h"
#include "compiled.h"
#include "grammar/grammar_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#define ROUNDS 3
#define WORK_MAX (2u * EXPR_FUEL)
#define MEMORY_MAX_KIB (64 << 10)

static void times(struct buf *buf, uint64_t count, const char *text) {
    while (count-- > 0) buf_add_text(buf, text);
}

/* Items with their number in the place of %llu, with commas between them. */
static void items(struct buf *buf, uint64_t count, const char *format) {
    for (uint64_t i = 0; i < count; i++) {
        char text[200];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(text, sizeof text, format, (unsigned long long)i, (unsigned long long)i);
#pragma GCC diagnostic pop
        if (i > 0) buf_add_byte(buf, ',');
        buf_add_text(buf, text);
    }
}

static void deep(struct buf *buf, uint64_t size) {
    uint64_t depth = 40 + size % 70;
    times(buf, depth, "{\"items\":");
    buf_add_text(buf, "true");
    times(buf, depth, "}");
}

static void deep_refs(struct buf *buf, uint64_t size) {
    buf_add_text(buf, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (uint64_t i = 0; i < size; i++)
        buf_printf(buf, "\"d%llu\":{\"items\":{\"$ref\":\"#/$defs/d%llu\"}},",
                   (unsigned long long)i, (unsigned long long)i + 1);
    buf_printf(buf, "\"d%llu\":{}}}", (unsigned long long)size);
}

static void wide_object(struct buf *buf, uint64_t size) {
    buf_add_text(buf, "{\"properties\":{");
    items(buf, size * 100, "\"p%llu\":{\"type\":\"string\"}");
    buf_add_text(buf, "}}");
}

static void wide_required(struct buf *buf, uint64_t size) {
    buf_add_text(buf, "{\"type\":\"object\",\"required\":[");
    items(buf, size * 300, "\"p%llu\"");
    buf_add_text(buf, "]}");
}

static void wide_prefix(struct buf *buf, uint64_t size) {
    buf_add_text(buf, "{\"prefixItems\":[");
    items(buf, size * 100, "{\"const\":%llu}");
    buf_add_text(buf, "]}");
}

static void wide_any(struct buf *buf, uint64_t size) {
    buf_add_text(buf, "{\"anyOf\":[");
    items(buf, size * 500, "{\"required\":[\"a%llu\"]}");
    buf_add_text(buf, "]}");
}

static void wide_one(struct buf *buf, uint64_t size) {
    buf_add_text(buf, "{\"oneOf\":[");
    items(buf, size * 20, "{\"minimum\":%llu,\"maximum\":%llu.5}");
    buf_add_text(buf, "]}");
}

static void nested_one(struct buf *buf, uint64_t size) {
    times(buf, 30, "{\"oneOf\":[");
    buf_add_text(buf, "true");
    for (int i = 0; i < 30; i++) {
        buf_add_byte(buf, ',');
        items(buf, size, "{\"minLength\":%llu}");
        buf_add_text(buf, "]}");
    }
}

static void exponential_branches(struct buf *buf, uint64_t size) {
    buf_add_text(buf, "{\"allOf\":[");
    items(buf, 2 + size % 40,
          "{\"anyOf\":[{\"required\":[\"a%llu\"]},{\"required\":[\"b%llu\"]}]}");
    buf_add_text(buf, "]}");
}

static void exponential_refs(struct buf *buf, uint64_t size) {
    buf_add_text(buf, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (uint64_t i = 0; i < size; i++)
        buf_printf(buf,
                   "\"d%llu\":{\"properties\":{\"a\":{\"allOf\":[{\"$ref\":\"#/$defs/d%llu\"},"
                   "{\"$ref\":\"#/$defs/d%llu\"}]}}},",
                   (unsigned long long)i, (unsigned long long)(i * 3 + 1) % (size + 1),
                   (unsigned long long)(i * 7 + 2) % (size + 1));
    buf_printf(buf, "\"d%llu\":{}}}", (unsigned long long)size);
}

static void recursive(struct buf *buf, uint64_t size) {
    buf_add_text(buf, "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{");
    items(buf, size,
          "\"p%llu\":{\"anyOf\":[{\"$ref\":\"#\"},{\"items\":{\"$ref\":\"#/properties/p%llu\"}}]}");
    buf_add_text(buf, "}}");
}

static void recursive_at_once(struct buf *buf, uint64_t size) {
    (void)size;
    buf_add_text(buf, "{\"anyOf\":[{\"$ref\":\"#\"},{\"allOf\":[{\"$ref\":\"#/anyOf/1\"}]}]}");
}

static void huge_enum(struct buf *buf, uint64_t size) {
    buf_add_text(buf, "{\"enum\":[");
    items(buf, size * 1000, "\"value number %llu\"");
    buf_add_text(buf, "]}");
}

static void two_enums(struct buf *buf, uint64_t size) {
    buf_add_text(buf, "{\"allOf\":[{\"enum\":[");
    items(buf, size * 40, "%llu");
    buf_add_text(buf, "]},{\"enum\":[");
    items(buf, size * 40, "[%llu]");
    buf_add_text(buf, "]}]}");
}

static void long_const(struct buf *buf, uint64_t size) {
    buf_add_text(buf, "{\"const\":\"");
    times(buf, size * 2000, "xyzzy ");
    buf_add_text(buf, "\"}");
}

static void counted(struct buf *buf, uint64_t size) {
    buf_printf(
        buf,
        "{\"type\":\"string\",\"minLength\":%llu,\"format\":\"uri\",\"pattern\":\"a.{%llu}b\"}",
        (unsigned long long)size * 1000000, (unsigned long long)size);
}

static void patterns_together(struct buf *buf, uint64_t size) {
    buf_add_text(buf, "{\"type\":\"string\",\"allOf\":[");
    items(buf, 2 + size % 30, "{\"pattern\":\"^.*a.{%llu}b.*$\"}");
    buf_add_text(buf, "]}");
}

static void patterns_of_names(struct buf *buf, uint64_t size) {
    buf_printf(buf,
               "{\"patternProperties\":{\"(a|b)*a(a|b){%llu}\":{\"type\":\"integer\"},"
               "\"x(a|b)*b(a|b){13}\":{\"type\":\"string\"},\"q.{30}\":{}}}",
               (unsigned long long)size % 30);
}

static void multiples(struct buf *buf, uint64_t size) {
    buf_add_text(buf, "{\"type\":\"number\",\"allOf\":[");
    items(buf, 2 + size % 10, "{\"multipleOf\":1%llu.%llu1}");
    buf_add_text(buf, "]}");
}

static void categories(struct buf *buf, uint64_t size) {
    buf_add_byte(buf, '"');
    times(buf, size * 10, "(\\\\p{L}|\\\\p{Lu}[^\\\\p{N}])*");
    buf_add_byte(buf, '"');
}

static void counts_of_counts(struct buf *buf, uint64_t size) {
    buf_add_byte(buf, '"');
    times(buf, 40, "(?:");
    buf_add_byte(buf, 'a');
    for (int i = 0; i < 40; i++) buf_printf(buf, "b?){0,%llu}", (unsigned long long)size + 2);
    buf_add_byte(buf, '"');
}

static void many_words(struct buf *buf, uint64_t size) {
    buf_add_text(buf, "\"x");
    for (uint64_t i = 0; i < size * 10; i++)
        buf_printf(buf, "|word%llu[a-z]{%llu}", (unsigned long long)i * 7919,
                   (unsigned long long)i % 90);
    buf_add_byte(buf, '"');
}

static void many_choices(struct buf *buf, uint64_t size) {
    buf_add_byte(buf, '[');
    items(buf, size * 1000, "\"choice %llu of very many choices, all of which are long\"");
    buf_add_byte(buf, ']');
}

static void nested_tags(struct buf *buf, uint64_t size) {
    times(buf, 60, "{\"type\":\"repeat\",\"min\":1,\"max\":900,\"content\":");
    buf_add_text(buf, "{\"type\":\"any_text\",\"excludes\":[");
    items(buf, size, "\"abab%llu\"");
    buf_add_text(buf, "]}");
    times(buf, 60, "}");
}

static void many_triggers(struct buf *buf, uint64_t size) {
    buf_add_text(buf, "{\"type\":\"triggered_tags\",\"triggers\":[");
    items(buf, size, "\"<%llu>\"");
    buf_add_text(buf, "],\"tags\":[");
    items(buf, size,
          "{\"begin\":\"<%llu>\",\"end\":\"</%llu>\",\"content\":{\"type\":\"any_text\"}}");
    buf_add_text(buf, "]}");
}

static void many_rules(struct buf *buf, uint64_t size) {
    buf_add_text(buf, "\"root ::= r0\\n");
    for (uint64_t i = 0; i < size * 40; i++)
        buf_printf(buf, "r%llu ::= [a-z] r%llu | r%llu?\\n", (unsigned long long)i,
                   (unsigned long long)(i * 7 + 1) % (size * 40), (unsigned long long)i + 1);
    buf_printf(buf, "r%llu ::= \\\"x\\\"\"", (unsigned long long)size * 40);
}

static void rules_in_rules(struct buf *buf, uint64_t size) {
    buf_add_text(buf, "\"root ::= r0 r0\\n");
    for (uint64_t i = 0; i < size; i++)
        buf_printf(buf, "r%llu ::= (r%llu r%llu){0,900} | [a-f]\\n", (unsigned long long)i,
                   (unsigned long long)i + 1, (unsigned long long)i + 1);
    buf_printf(buf, "r%llu ::= \\\"x\\\"\"", (unsigned long long)size);
}

static const struct {
    const char *name;
    enum grammar_kind kind;
    void (*write)(struct buf *buf, uint64_t size); /* size: 1 to 200 */
} bombs[] = {
    {"deep", GRAMMAR_SCHEMA, deep},
    {"deep_refs", GRAMMAR_SCHEMA, deep_refs},
    {"wide_object", GRAMMAR_SCHEMA, wide_object},
    {"wide_required", GRAMMAR_SCHEMA, wide_required},
    {"wide_prefix", GRAMMAR_SCHEMA, wide_prefix},
    {"wide_any", GRAMMAR_SCHEMA, wide_any},
    {"wide_one", GRAMMAR_SCHEMA, wide_one},
    {"nested_one", GRAMMAR_SCHEMA, nested_one},
    {"exponential_branches", GRAMMAR_SCHEMA, exponential_branches},
    {"exponential_refs", GRAMMAR_SCHEMA, exponential_refs},
    {"recursive", GRAMMAR_SCHEMA, recursive},
    {"recursive_at_once", GRAMMAR_SCHEMA, recursive_at_once},
    {"huge_enum", GRAMMAR_SCHEMA, huge_enum},
    {"two_enums", GRAMMAR_SCHEMA, two_enums},
    {"long_const", GRAMMAR_SCHEMA, long_const},
    {"counted", GRAMMAR_SCHEMA, counted},
    {"patterns_together", GRAMMAR_SCHEMA, patterns_together},
    {"patterns_of_names", GRAMMAR_SCHEMA, patterns_of_names},
    {"multiples", GRAMMAR_SCHEMA, multiples},
    {"categories", GRAMMAR_REGEX, categories},
    {"counts_of_counts", GRAMMAR_REGEX, counts_of_counts},
    {"many_words", GRAMMAR_REGEX, many_words},
    {"many_rules", GRAMMAR_EBNF, many_rules},
    {"rules_in_rules", GRAMMAR_EBNF, rules_in_rules},
    {"many_choices", GRAMMAR_CHOICE, many_choices},
    {"nested_tags", GRAMMAR_TAGS, nested_tags},
    {"many_triggers", GRAMMAR_TAGS, many_triggers},
};

/* A number of /proc/self/status in KiB; -1 if it is not known. */
static long status_kib(const char *key) {
    char line[200];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0) kib = strtol(line + strlen(key) + 1, NULL, 10);
    if (file) fclose(file);
    return kib;
}

/* Makes the peak of memory what is in use now. False where that is not possible. */
static bool reset_peak(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return false; /* their memory is not the program's */
#endif
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file) return false;
    bool is_reset = fputs("5", file) > 0;
    return fclose(file) == 0 && is_reset;
}

static void test_bombs_end_within_their_bounds(void **state) {
    struct rng rng = {7};
    (void)state;
    for (size_t i = 0; i < sizeof bombs / sizeof *bombs; i++) {
        for (int round = 0; round < ROUNDS; round++) {
            struct buf text;
            struct error error = {0};
            struct grammar_cost cost = {0, 0};
            uint64_t size = round == 0 ? 200 : 1 + rng_below(&rng, 200);
            buf_init(&text, BUF_UNLIMITED);
            bombs[i].write(&text, size);
            buf_add_byte(&text, '\0');
            json_t *source = value_of(text.at);
            buf_release(&text);
            bool is_measured = reset_peak();
            long before = status_kib("VmRSS");
            enum err err = grammar_try(bombs[i].kind, source, &cost, &error);
            long peak = status_kib("VmHWM") - before;
            if (err != OK && err != ERR_INVALID && err != ERR_LIMIT)
                fail_msg("%s: %s", bombs[i].name, error.text);
            if (cost.work > WORK_MAX)
                fail_msg("%s: work %llu", bombs[i].name, (unsigned long long)cost.work);
            if (is_measured && peak > MEMORY_MAX_KIB) fail_msg("%s: %ld KiB", bombs[i].name, peak);
            json_decref(source);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bombs_end_within_their_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
