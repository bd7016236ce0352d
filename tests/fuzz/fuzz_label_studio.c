/* SPDX-License-Identifier: Apache-2.0 */
/* A foreign schema, answer and annotation, separated by LF. The form survives its file, its config
 * has no foreign markup, and the fields of the judgement are fields of the form. */
#include "json/json.h"
#include "label_studio/config.h"
#include "label_studio/judgement.h"
#include "label_studio/studio_token.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Between quotes nothing may end the attribute, open a tag or begin an entity but "&#". */
static void check_config(const struct form *form) {
    struct buf config;
    bool is_quoted = false;
    buf_init(&config, BUF_UNLIMITED);
    config_write(&config, form);
    for (const char *at = config.at; *at; at++) {
        if (*at == '"') is_quoted = !is_quoted;
        if (is_quoted) assert(*at != '<' && *at != '>' && (*at != '&' || at[1] == '#'));
    }
    assert(!is_quoted && strlen(config.at) == config.bytes);
    buf_release(&config);
}

static void check_file(const struct form *form) {
    struct form again;
    struct error error;
    json_t *array = form_to_json(form);
    assert(form_from_json(&again, array, &error) == OK && again.count == form->count);
    for (size_t i = 0; i < form->count; i++)
        assert(strcmp(again.at[i].name, form->at[i].name) == 0 &&
               strcmp(again.at[i].field, form->at[i].field) == 0);
    form_release(&again);
    json_decref(array);
}

static void check_judgement(const struct form *form, const json_t *answer, const json_t *object) {
    char key[128];
    json_t *meta = json_object();
    json_object_set(meta, "answer", (json_t *)(uintptr_t)answer);
    const struct annotation annotation = {"http://x", object, meta, "ana"};
    if (annotation_key(object, key, sizeof key)) {
        json_t *judgement = judgement_make(form, &annotation);
        bool is_corrected =
            strcmp(json_string_value(json_object_get(judgement, "verdict")), "corrected") == 0;
        assert(is_corrected == (json_object_get(judgement, "fields") != NULL));
        assert(!judgement_differs(judgement, judgement));
        json_decref(judgement);
    }
    json_decref(meta);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct str rest = {(const char *)data, bytes};
    json_t *values[3] = {NULL};
    struct form form = {0};
    struct error error;
    (void)studio_token_claim(rest, "exp");
    for (int i = 0; i < 3; i++) {
        size_t end = str_find_byte(rest, '\n', 0);
        struct str line = {rest.at, end == SIZE_MAX ? rest.bytes : end};
        if (json_read(&values[i], line, &error) != OK) values[i] = NULL;
        rest = str_skip(rest, line.bytes + 1);
    }
    json_t *lengths = json_object();
    form_add_lengths(lengths, values[1]);
    form_add_schema(&form, values[0], lengths);
    json_decref(lengths);
    form_add_values(&form, values[1]);
    check_config(&form);
    check_file(&form);
    if (values[2]) check_judgement(&form, values[1], values[2]);
    form_release(&form);
    for (int i = 0; i < 3; i++) json_decref(values[i]);
    return 0;
}
