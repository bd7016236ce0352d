/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/file_quantization.h"

#include "base/os.h"
#include "json/json.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_BYTES_MAX ((size_t)16 << 20)
#define FORM_BYTES 64

/* vLLM's words, and what config.json calls the form; "gguf" is that of GGUF files. */
static const char *const words[][2] = {{"awq", "awq"},
                                       {"awq_marlin", "awq"},
                                       {"gptq", "gptq"},
                                       {"gptq_marlin", "gptq"},
                                       {"compressed-tensors", "compressed-tensors"},
                                       {"gguf", "gguf"}};

static const char *form_of_word(const char *word) {
    for (size_t i = 0; word && i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i][0]) == 0) return words[i][1];
    return NULL;
}

bool file_quantization_is(const char *word) {
    return form_of_word(word) != NULL;
}

/* Writes the form of a model's files; "none" where they name none. */
static void read_form(const char *path, char ret_form[FORM_BYTES]) {
    char config[PATH_MAX], *text = NULL;
    size_t bytes = 0;
    json_t *root = NULL;
    struct error ignored;
    snprintf(ret_form, FORM_BYTES, "%s",
             str_ends_with(str_from(path), STR(".gguf")) ? "gguf" : "none");
    if (snprintf(config, sizeof config, "%s/config.json", path) >= (int)sizeof config) return;
    if (os_read_file(config, CONFIG_BYTES_MAX, &text, &bytes, &ignored) == OK &&
        json_read_python(&root, (struct str){text, bytes}, &ignored) == OK) {
        struct str form = json_member_str(json_member(root, "quantization_config"), "quant_method");
        if (form.bytes > 0) snprintf(ret_form, FORM_BYTES, "%.40s", form.at);
    }
    json_decref(root);
    free(text);
}

enum err file_quantization_check(const char *word, const char *path, struct error *error) {
    char form[FORM_BYTES];
    read_form(path, form);
    if (strcmp(form_of_word(word), form) == 0) return OK;
    return err_set(error, ERR_INVALID,
                   "--quantization %s does not fit %.200s, whose files have the form %s: leave it "
                   "out, quern reads the form from the files",
                   word, path, form);
}
