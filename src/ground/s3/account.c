/* SPDX-License-Identifier: Apache-2.0 */
#include "s3/account.h"

#include "base/os.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX ((size_t)1 << 20)

/* A value of an account: its variables in the order in which they count, and its name in a file. */
struct source {
    const char *variables[2];
    const char *key;
    size_t at, bytes; /* its member of struct s3_account */
};
#define MEMBER(name) offsetof(struct s3_account, name), sizeof(((struct s3_account *)0)->name)
static const struct source secrets[] = {
    {{"AWS_ACCESS_KEY_ID", NULL}, "aws_access_key_id", MEMBER(key_id)},
    {{"AWS_SECRET_ACCESS_KEY", NULL}, "aws_secret_access_key", MEMBER(secret)},
    {{"AWS_SESSION_TOKEN", NULL}, "aws_session_token", MEMBER(token)}};
static const struct source places[] = {
    {{"AWS_REGION", "AWS_DEFAULT_REGION"}, "region", MEMBER(region)},
    {{"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, "endpoint_url", MEMBER(endpoint)}};
#define COUNT_OF(sources) (sizeof(sources) / sizeof *(sources))

/* A file of profiles. */
struct profiles {
    const char *path, *profile;
    bool is_config;     /* its sections are called "profile NAME" */
    bool gives_secrets; /* the environment had no credentials */
    bool *has_profile;
};

static enum err put(struct s3_account *account, const struct source *source, struct str value,
                    const char *where, struct error *error) {
    char *member = (char *)account + source->at;
    if (value.bytes >= source->bytes)
        return err_set(error, ERR_INVALID, "%s: %s has more than %zu bytes", where, source->key,
                       source->bytes - 1);
    for (size_t i = 0; i < value.bytes; i++)
        if ((unsigned char)value.at[i] <= ' ' || (unsigned char)value.at[i] >= 0x7f)
            return err_set(error, ERR_INVALID, "%s: %s has a blank or a byte that is not ASCII",
                           where, source->key);
    memcpy(member, value.at, value.bytes);
    member[value.bytes] = '\0';
    return OK;
}

/* A variable that is set and not empty; NULL: none. */
static const char *variable(const char *name) {
    const char *value = name ? getenv(name) : NULL;
    return value && *value ? value : NULL;
}

static enum err read_variables(struct s3_account *account, const struct source *sources,
                               size_t count, struct error *error) {
    enum err err = OK;
    for (size_t i = 0; err == OK && i < count; i++)
        for (size_t j = 0; err == OK && j < 2; j++)
            if (variable(sources[i].variables[j])) {
                struct str value = str_trim(str_from(getenv(sources[i].variables[j])));
                err = put(account, &sources[i], value, "the environment", error);
                break;
            }
    return err;
}

/* --- files of profiles --- */

static bool is_section(const struct profiles *from, struct str name) {
    name = str_trim(name);
    if (str_is(name, from->profile) && (!from->is_config || str_is(name, "default"))) return true;
    if (!from->is_config || !str_starts_with(name, STR("profile"))) return false;
    struct str rest = str_skip(name, strlen("profile"));
    return rest.bytes > 0 && (rest.at[0] == ' ' || rest.at[0] == '\t') &&
           str_is(str_trim(rest), from->profile);
}

/* Takes the value of a key, unless a place that goes before gave it. */
static enum err take_value(struct s3_account *account, const struct profiles *from, struct str key,
                           struct str value, struct error *error) {
    enum err err = OK;
    for (size_t i = 0; err == OK && from->gives_secrets && i < COUNT_OF(secrets); i++)
        if (str_is(key, secrets[i].key) && ((char *)account)[secrets[i].at] == '\0')
            err = put(account, &secrets[i], value, from->path, error);
    for (size_t i = 0; err == OK && i < COUNT_OF(places); i++)
        if (str_is(key, places[i].key) && ((char *)account)[places[i].at] == '\0')
            err = put(account, &places[i], value, from->path, error);
    return err;
}

static enum err read_lines(struct s3_account *account, const struct profiles *from, struct str text,
                           struct error *error) {
    bool is_ours = false;
    enum err err = OK;
    while (err == OK && text.bytes > 0) {
        size_t end = str_find_byte(text, '\n', 0);
        struct str raw = {text.at, end == SIZE_MAX ? text.bytes : end};
        struct str line = str_trim(raw);
        text = str_skip(text, end == SIZE_MAX ? text.bytes : end + 1);
        if (line.bytes == 0 || line.at[0] == '#' || line.at[0] == ';') continue;
        if (line.at[0] == '[') {
            size_t close = str_find_byte(line, ']', 0);
            is_ours = close != SIZE_MAX && is_section(from, (struct str){line.at + 1, close - 1});
            if (is_ours) *from->has_profile = true;
            continue;
        }
        size_t equals = str_find_byte(line, '=', 0);
        /* An indented line belongs to a nested setting, such as those of `s3 =`. */
        if (!is_ours || equals == SIZE_MAX || raw.at[0] == ' ' || raw.at[0] == '\t') continue;
        err = take_value(account, from, str_trim((struct str){line.at, equals}),
                         str_trim(str_skip(line, equals + 1)), error);
    }
    return err;
}

static enum err read_profiles(struct s3_account *account, const struct profiles *from,
                              struct error *error) {
    char *text;
    size_t bytes;
    struct error why;
    enum err err = os_read_file(from->path, FILE_BYTES_MAX, &text, &bytes, &why);
    if (err == ERR_NOT_FOUND) return OK;
    if (err != OK) return err_set(error, ERR_INVALID, "%s", why.text);
    err = read_lines(account, from, (struct str){text, bytes}, error);
    explicit_bzero(text, bytes);
    free(text);
    return err;
}

static enum err name_file(const char *name, const char *usual, char ret_path[PATH_MAX],
                          struct error *error) {
    const char *given = variable(name), *home = variable("HOME");
    int bytes = snprintf(ret_path, PATH_MAX, "%s%s",
                         given  ? given
                         : home ? home
                                : "",
                         given ? "" : usual);
    return bytes < PATH_MAX ? OK : err_set(error, ERR_INVALID, "%s is too long", name);
}

enum err s3_account_read(struct s3_account *ret_account, struct error *error) {
    struct s3_account *account = ret_account;
    char credentials[PATH_MAX], config[PATH_MAX];
    const char *named = variable("AWS_PROFILE");
    bool has_profile = false;
    struct profiles from = {.profile = named ? named : "default", .has_profile = &has_profile};
    *account = (struct s3_account){0};
    enum err err = read_variables(account, secrets, COUNT_OF(secrets), error);
    if (err == OK) err = read_variables(account, places, COUNT_OF(places), error);
    from.gives_secrets = !*account->key_id && !*account->secret;
    if (err == OK)
        err = name_file("AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials", credentials, error);
    if (err == OK) err = name_file("AWS_CONFIG_FILE", "/.aws/config", config, error);
    from.path = credentials;
    if (err == OK) err = read_profiles(account, &from, error);
    from.path = config;
    from.is_config = true;
    if (err == OK) err = read_profiles(account, &from, error);
    if (err == OK && from.gives_secrets && named && !has_profile)
        err = err_set(error, ERR_INVALID, "AWS_PROFILE: no profile '%.100s' in %.120s or %.120s",
                      named, credentials, config);
    if (err == OK && (!*account->key_id || !*account->secret))
        err = err_set(error, ERR_DENIED,
                      "no credentials for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                      "give profile '%.60s' in %.150s both",
                      from.profile, credentials);
    if (!*account->region) memcpy(account->region, "us-east-1", sizeof "us-east-1");
    if (err != OK) s3_account_wipe(account);
    return err;
}

void s3_account_wipe(struct s3_account *account) {
    explicit_bzero(account, sizeof *account);
}
