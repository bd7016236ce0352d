/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"
#include "chat/tool_calls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The text of a template file; an empty buf when it is not there. */
static void read_template(const char *name, struct buf *ret_source) {
    char *folder = case_path("QUERN_SHARED", "templates"), *path = NULL;
    FILE *file = NULL;
    if (folder && asprintf(&path, "%s/%s", folder, name) > 0) file = fopen(path, "rb");
    char chunk[4096];
    for (size_t count; file && (count = fread(chunk, 1, sizeof chunk, file)) > 0;)
        buf_add(ret_source, chunk, count);
    if (file) fclose(file);
    free(path);
    free(folder);
}

static void every_published_template_renders_as_jinja_does(void **state) {
    (void)state;
    char *path = case_path("QUERN_SHARED", "templates/golden.json");
    json_t *root = path ? json_load_file(path, 0, NULL) : NULL;
    free(path);
    if (!root) skip();
    json_t *item;
    size_t index, failed = 0;
    json_array_foreach(json_object_get(root, "cases"), index, item) {
        struct buf source;
        buf_init(&source, (size_t)1 << 20);
        read_template(json_string_value(json_object_get(item, "template")), &source);
        if (!case_holds(item, buf_str(&source), json_object_get(item, "context"))) failed++;
        buf_release(&source);
    }
    assert_true(index >= 706);
    json_decref(root);
    assert_int_equal(failed, 0);
}

static void published_templates_are_known_by_the_calls_they_teach(void **state) {
    (void)state;
    static const struct {
        const char *name;
        enum tool_format format;
    } rows[] = {{"Qwen-Qwen2.5-7B-Instruct.jinja", TOOL_FORMAT_HERMES},
                {"Qwen-Qwen3-0.6B.jinja", TOOL_FORMAT_HERMES},
                {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja", TOOL_FORMAT_HERMES},
                {"ibm-granite-granite-4.0.jinja", TOOL_FORMAT_HERMES},
                {"Qwen3-Coder.jinja", TOOL_FORMAT_XML},
                {"Qwen3.5-4B.jinja", TOOL_FORMAT_XML},
                {"google-gemma-4-31B-it.jinja", TOOL_FORMAT_GEMMA},
                {"meetkai-functionary-medium-v3.1.jinja", TOOL_FORMAT_PLAIN},
                {"ByteDance-Seed-OSS.jinja", TOOL_FORMAT_PLAIN},
                {"mistralai-Ministral-3-14B-Reasoning-2512.jinja", TOOL_FORMAT_NAMED},
                {"GLM-4.6.jinja", TOOL_FORMAT_KEYS},
                {"CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja", TOOL_FORMAT_ACTION},
                {"Apertus-8B-Instruct.jinja", TOOL_FORMAT_MEMBERS},
                {"moonshotai-Kimi-K2.jinja", TOOL_FORMAT_KIMI},
                {"deepseek-ai-DeepSeek-V3.1.jinja", TOOL_FORMAT_NONE},
                {"openai-gpt-oss-120b.jinja", TOOL_FORMAT_HARMONY},
                {"mistralai-Mistral-Nemo-Instruct-2407.jinja", TOOL_FORMAT_MISTRAL},
                {"Mistral-Small-3.2-24B-Instruct-2506.jinja", TOOL_FORMAT_NAMED},
                {"meta-llama-Llama-3.1-8B-Instruct.jinja", TOOL_FORMAT_LLAMA},
                {"meta-llama-Llama-3.2-3B-Instruct.jinja", TOOL_FORMAT_LLAMA},
                {"SmolLM2-135M-Instruct.jinja", TOOL_FORMAT_NONE},
                {"google-gemma-3-it.jinja", TOOL_FORMAT_NONE}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf source;
        buf_init(&source, (size_t)1 << 20);
        read_template(rows[i].name, &source);
        if (source.bytes == 0) skip();
        struct jinja_template *template;
        struct error error;
        if (jinja_template_open(&template, buf_str(&source), &error) != OK)
            fail_msg("%s: %s", rows[i].name, error.text);
        if (tool_format_of(template) != rows[i].format) fail_msg("%s", rows[i].name);
        jinja_template_close(template);
        buf_release(&source);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_templates_are_known_by_the_calls_they_teach),
        cmocka_unit_test(every_published_template_renders_as_jinja_does)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
