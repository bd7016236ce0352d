/* SPDX-License-Identifier: Apache-2.0 */
#include "secrets/gcp_name.h"

#include "base/str.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define PROJECT_BYTES_MIN 6
#define PROJECT_BYTES_MAX 30
#define NUMBER_BYTES_MAX 19 /* limit for a project or a version */
#define SECRET_NAME_BYTES_MAX 255
#define ALIAS_BYTES_MAX 63

static bool is_lower(char c) {
    return c >= 'a' && c <= 'z';
}

static bool is_letter(char c) {
    return is_lower(c) || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* A number without a zero in front. */
static bool is_number(struct str text) {
    if (text.bytes == 0 || text.bytes > NUMBER_BYTES_MAX || text.at[0] == '0') return false;
    for (size_t i = 0; i < text.bytes; i++)
        if (!is_digit(text.at[i])) return false;
    return true;
}

static bool is_project_id(struct str text) {
    if (text.bytes < PROJECT_BYTES_MIN || text.bytes > PROJECT_BYTES_MAX) return false;
    if (!is_lower(text.at[0]) || text.at[text.bytes - 1] == '-') return false;
    for (size_t i = 0; i < text.bytes; i++)
        if (!is_lower(text.at[i]) && !is_digit(text.at[i]) && text.at[i] != '-') return false;
    return true;
}

static bool is_word(struct str text, size_t bytes_max) {
    if (text.bytes == 0 || text.bytes > bytes_max) return false;
    for (size_t i = 0; i < text.bytes; i++) {
        char c = text.at[i];
        if (!is_letter(c) && !is_digit(c) && c != '-' && c != '_') return false;
    }
    return true;
}

static bool is_version(struct str text) {
    return is_number(text) || (is_word(text, ALIAS_BYTES_MAX) && is_letter(text.at[0]));
}

/* The next part of a path, and the rest behind its slash; the last part takes the whole rest. */
static struct str next_part(struct str *rest, bool is_last) {
    size_t end = is_last ? SIZE_MAX : str_find_byte(*rest, '/', 0);
    struct str part = {rest->at, end == SIZE_MAX ? rest->bytes : end};
    *rest = str_skip(*rest, end == SIZE_MAX ? rest->bytes : end + 1);
    return part;
}

bool gcp_name_is(const char *place) {
    return strncmp(place, GCP_NAME_SCHEME, strlen(GCP_NAME_SCHEME)) == 0;
}

enum err gcp_name_read(const char *place, char ret_name[GCP_NAME_BYTES], struct error *error) {
    struct str rest = str_skip(str_from(place), strlen(GCP_NAME_SCHEME));
    struct str projects = next_part(&rest, false), project = next_part(&rest, false);
    struct str secrets = next_part(&rest, false), secret = next_part(&rest, false);
    struct str versions = next_part(&rest, false), version = next_part(&rest, true);
    const char *wrong = NULL;
    if (!str_is(projects, "projects") || !str_is(secrets, "secrets") ||
        !str_is(versions, "versions"))
        wrong = "the form is " GCP_NAME_SCHEME "projects/P/secrets/S/versions/V";
    else if (!is_project_id(project) && !is_number(project))
        wrong =
            "the project is an id of 6 to 30 lower-case letters, digits and hyphens, or a number";
    else if (!is_word(secret, SECRET_NAME_BYTES_MAX))
        wrong = "the secret's name is 1 to 255 letters, digits, hyphens and underscores";
    else if (!is_version(version))
        wrong = "the version is a number, latest, or an alias";
    if (wrong) return err_set(error, ERR_INVALID, "%.400s: %s", place, wrong);
    snprintf(ret_name, GCP_NAME_BYTES, "projects/%.*s/secrets/%.*s/versions/%.*s",
             STR_ARGS(project), STR_ARGS(secret), STR_ARGS(version));
    return OK;
}
