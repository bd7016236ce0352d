/* SPDX-License-Identifier: Apache-2.0 */
#include "api/judgement_body.h"

#include "api/fields.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "curation/judged.h"
#include "json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CURATOR_CHARACTERS 64
#define COMMENT_BYTES_MAX ((size_t)16 << 10)
#define FIELDS_BYTES_MAX ((size_t)64 << 10)
#define TEXT_FIELD ".text" /* the whole text of an answer that is no object */
#define NAME_BYTES_MAX 256
#define CUSTOM_ID_BYTES_MAX (1 << 20) /* the limit of a whole body */
#define SHOWN_BYTES 100

struct members {
    struct str custom_id, id, verdict, curator, comment;
    int64_t version, rating;
    bool flagged;
};
#define AT(member) offsetof(struct members, member)
static const struct field rows[] = {
    {"custom_id", FIELD_TEXT, FIELD_ANY, 1, CUSTOM_ID_BYTES_MAX, FIELD_REQUIRED, AT(custom_id),
     NULL, "The line that is judged; it must have a result."},
    {"id", FIELD_TEXT, FIELD_ANY, 8, JUDGEMENT_ID_BYTES - 1, FIELD_REQUIRED, AT(id), NULL,
     "Letters, digits, '-' and '_', made by the client: the same judgement sent again under the "
     "same id is kept once."},
    {"version", FIELD_INTEGER, FIELD_ANY, 0, 1 << 30, FIELD_REQUIRED, AT(version), NULL,
     "The number of judgements that this curator has given on this line so far."},
    {"verdict", FIELD_CHOICE, FIELD_ANY, 0, 0, FIELD_REQUIRED, AT(verdict), judged_verdicts,
     "What the curator decides."},
    {"curator", FIELD_TEXT, FIELD_ANY, 1, JUDGEMENT_CURATOR_BYTES - 1, 0, AT(curator), NULL,
     "The curator's name, of at most 64 characters; without it the id of the key, or owner."},
    {"flagged", FIELD_BOOL, FIELD_ANY, 0, 0, 0, AT(flagged), NULL,
     "Whether another curator is to look at the line."},
    {"rating", FIELD_INTEGER, FIELD_ANY, 1, 5, 0, AT(rating), NULL, "Stars."},
    {"comment", FIELD_TEXT, FIELD_ANY, 0, COMMENT_BYTES_MAX, 0, AT(comment), NULL,
     "Any text without control characters but line feeds and tabs."},
};
#undef AT
static const struct fields table = {rows, sizeof rows / sizeof *rows, false, api_field_refuse};

static const char fields_schema[] =
    "{\"type\":[\"object\",\"null\"],\"minProperties\":1,\"description\":\"With the verdict "
    "corrected, "
    "and only then: new values of the answer's fields by their names. An answer that is no object "
    "has one field, '" TEXT_FIELD "'.\"}";

void judgement_body_write_schema(struct buf *buf) {
    buf_add_text(buf, "{\"allOf\":[");
    fields_write_schema(buf, &table);
    buf_printf(buf, ",{\"type\":\"object\",\"properties\":{\"fields\":%s}}]}", fields_schema);
}

/* --- single members --- */

static bool check_known(const json_t *body, struct refusal *refusal) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)body, key, value) {
        bool is_known = strcmp(key, "fields") == 0;
        for (size_t i = 0; i < table.count && !is_known; i++)
            is_known = strcmp(key, rows[i].name) == 0;
        if (!is_known)
            return refuse(refusal, "unknown_parameter", NULL, "Unknown parameter: '%.*s'.",
                          SHOWN_BYTES, key);
    }
    return true;
}

/* True if the text has no control character except the ASCII characters of `allowed`. */
static bool is_plain(struct str text, const char *allowed) {
    uint32_t code_point;
    for (size_t at = 0; at < text.bytes;) {
        at += utf8_decode(text, at, &code_point);
        bool is_control = code_point < 0x20 || (code_point >= 0x7F && code_point < 0xA0);
        if (is_control && (code_point > 0x7F || !strchr(allowed, (int)code_point))) return false;
    }
    return true;
}

bool judgement_curator_check(struct str curator, struct refusal *ret_refusal) {
    if (curator.bytes == 0 || curator.bytes >= JUDGEMENT_CURATOR_BYTES || !utf8_is_valid(curator) ||
        utf8_count(curator) > CURATOR_CHARACTERS)
        return refuse(ret_refusal, "invalid_value", "curator",
                      "Invalid 'curator': expected a name of 1 to %d characters, got %zu bytes.",
                      CURATOR_CHARACTERS, curator.bytes);
    if (!is_plain(curator, ""))
        return refuse(ret_refusal, "invalid_value", "curator",
                      "Invalid 'curator': it has a control character.");
    return true;
}

static bool check_texts(const struct members *members, struct refusal *refusal) {
    for (size_t i = 0; i < members->id.bytes; i++) {
        char c = members->id.at[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!is_letter && !(c >= '0' && c <= '9') && c != '-' && c != '_')
            return refuse(refusal, "invalid_value", "id",
                          "Invalid value for 'id': '%.*s' has other characters than letters, "
                          "digits, '-' and '_'.",
                          STR_ARGS(members->id));
    }
    if (members->curator.at && !judgement_curator_check(members->curator, refusal)) return false;
    if (!is_plain(members->comment, "\n\t"))
        return refuse(refusal, "invalid_value", "comment",
                      "Invalid 'comment': it has a control character that is neither a line feed "
                      "nor a tab.");
    return true;
}

/* Checks the names of the corrected fields, and writes all of them in canonical form. */
static bool write_fields(struct buf *text, const json_t *fields, struct refusal *refusal) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)fields, key, value) {
        if (*key == '\0' || strlen(key) > NAME_BYTES_MAX)
            return refuse(refusal, "invalid_value", "fields",
                          "Invalid 'fields': a field's name has %zu bytes; expected 1 to %d.",
                          strlen(key), NAME_BYTES_MAX);
    }
    if (json_object_get(fields, TEXT_FIELD) &&
        (json_object_size(fields) != 1 || !json_is_string(json_object_get(fields, TEXT_FIELD))))
        return refuse(refusal, "invalid_value", "fields",
                      "Invalid 'fields': '" TEXT_FIELD
                      "' is the whole answer, a string, and stands alone.");
    json_write_canonical(text, fields);
    if (text->overflowed)
        return refuse(refusal, "invalid_value", "fields",
                      "Invalid 'fields': its JSON has more than %zu bytes.", FIELDS_BYTES_MAX);
    return true;
}

/* Reads the corrected fields. *ret_text becomes a text that the caller frees, or NULL. */
static bool read_fields(const json_t *body, enum verdict verdict, char **ret_text,
                        struct refusal *refusal) {
    const json_t *fields = json_member(body, "fields");
    *ret_text = NULL;
    if (verdict != VERDICT_CORRECTED) {
        if (!fields) return true;
        return refuse(refusal, "invalid_value", "fields",
                      "Invalid 'fields': only the verdict 'corrected' has corrected fields, and "
                      "this one is '%s'.",
                      judged_verdicts[verdict]);
    }
    if (!fields) return refuse_missing(refusal, "fields");
    if (!json_is_object(fields))
        return refuse(refusal, "invalid_type", "fields",
                      "Invalid type for 'fields': expected an object, got %s.",
                      json_kind_name(fields));
    if (json_object_size(fields) == 0)
        return refuse(refusal, "invalid_value", "fields",
                      "Invalid 'fields': the verdict 'corrected' needs at least one field.");
    struct buf text;
    buf_init(&text, FIELDS_BYTES_MAX);
    bool good = write_fields(&text, fields, refusal);
    if (good) *ret_text = mem_str(buf_str(&text));
    buf_release(&text);
    return good;
}

/* --- all members --- */

bool judgement_body_read(struct store_judgement *ret_row, const json_t *body, const char *curator,
                         struct refusal *ret_refusal) {
    struct members members = {.version = 0};
    struct store_judgement row = {0};
    if (!check_known(body, ret_refusal) ||
        !fields_read(&table, FIELD_ANY, body, &members, ret_refusal) ||
        !check_texts(&members, ret_refusal))
        return false;
    while (!str_is(members.verdict, judged_verdicts[row.verdict])) row.verdict++;
    if (!read_fields(body, row.verdict, &row.fields, ret_refusal)) return false;
    memcpy(row.id, members.id.at, members.id.bytes);
    if (members.curator.at)
        memcpy(row.curator, members.curator.at, members.curator.bytes);
    else
        snprintf(row.curator, sizeof row.curator, "%s", curator);
    row.custom_id = mem_str(members.custom_id);
    row.version = (uint32_t)members.version + 1;
    row.flagged = members.flagged;
    row.rating = (int32_t)members.rating;
    if (members.comment.bytes > 0) row.comment = mem_str(members.comment);
    *ret_row = row;
    return true;
}
