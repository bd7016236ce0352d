/* SPDX-License-Identifier: Apache-2.0 */
#include "secrets/secret.h"

#include "base/mem.h"
#include "base/os.h"
#include "secrets/gcp_name.h"
#include "secrets/gcp_secret.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PIECE_BYTES 4096

void secret_release(struct secret *secret) {
    if (secret->text) explicit_bzero(secret->text, secret->bytes);
    free(secret->text);
    *secret = (struct secret){0};
}

/* Whether a service manager made the file; it chooses mode and folder itself. */
static bool is_managed(const char *path) {
    const char *folder = getenv("CREDENTIALS_DIRECTORY");
    size_t bytes = folder ? strlen(folder) : 0;
    if (bytes > 0 && strncmp(path, folder, bytes) == 0 && path[bytes] == '/') return true;
    return strncmp(path, "/run/secrets/", strlen("/run/secrets/")) == 0;
}

static enum err check_file(int fd, const char *path, struct error *error) {
    struct stat status;
    if (fstat(fd, &status) != 0) return err_from_errno(error, errno, "cannot look at %s", path);
    if (!S_ISREG(status.st_mode))
        return err_set(error, ERR_INVALID, "%s is not a plain file", path);
    if ((status.st_mode & 077) == 0 || is_managed(path)) return OK;
    return err_set(error, ERR_INVALID,
                   "%s can be read by others than its owner (mode %03o); chmod 600 it", path,
                   (unsigned)(status.st_mode & 0777));
}

/* Reads into one buffer that never moves, so that no copy stays in freed memory. */
static enum err read_all(int fd, const char *path, struct secret *secret, struct error *error) {
    size_t count = 1;
    uint64_t bytes = 0;
    enum err err = os_file_bytes(fd, &bytes, error);
    if (err != OK) return err;
    if (bytes > SECRET_BYTES_MAX)
        return err_set(error, ERR_LIMIT, "%s is larger than %zu bytes", path, SECRET_BYTES_MAX);
    secret->text = mem_new(1, (size_t)bytes + 1);
    while (err == OK && count > 0 && secret->bytes < bytes) {
        err =
            os_read(fd, secret->text + secret->bytes, (size_t)bytes - secret->bytes, &count, error);
        if (err == OK) secret->bytes += count;
    }
    os_drop_mark(secret->text, &secret->bytes);
    memset(secret->text + secret->bytes, 0, (size_t)bytes - secret->bytes); /* no second copy */
    return err;
}

static enum err read_gcp(struct secret *ret_secret, const char *place, struct error *error) {
    struct secret secret = {0};
    enum err err = gcp_secret_read(place, &secret.text, &secret.bytes, error);
    if (err != OK) return err;
    snprintf(secret.where, sizeof secret.where, "%s", place);
    *ret_secret = secret;
    return OK;
}

enum err secret_read_file(struct secret *ret_secret, const char *path, struct error *error) {
    int fd;
    struct secret secret = {0};
    if (gcp_name_is(path)) return read_gcp(ret_secret, path, error);
    enum err err = os_open(&fd, path, O_RDONLY | O_NONBLOCK, 0, error);
    if (err != OK) return err;
    err = check_file(fd, path, error);
    if (err == OK) err = read_all(fd, path, &secret, error);
    os_close(fd);
    if (err != OK) {
        secret_release(&secret);
        return err;
    }
    snprintf(secret.where, sizeof secret.where, "%s", path);
    *ret_secret = secret;
    return OK;
}

/* --- variables --- */

enum err secret_variables_read(struct secret_variables *ret_variables, const char *path,
                               struct error *error) {
    struct secret secret;
    enum err err = secret_read_file(&secret, path, error);
    if (err == OK) *ret_variables = (struct secret_variables){secret.text, secret.bytes};
    return err;
}

void secret_variables_release(struct secret_variables *variables) {
    struct secret secret = {.text = variables->text, .bytes = variables->bytes};
    secret_release(&secret);
    *variables = (struct secret_variables){0};
}

/* The value in a line `NAME=value` or `export NAME="value"`; `at` is NULL if no line has the
 * name. */
static struct str find_line(const struct secret_variables *variables, const char *name) {
    struct str rest = {variables->text, variables->bytes};
    while (rest.bytes > 0) {
        size_t end = str_find_byte(rest, '\n', 0);
        struct str line = str_trim((struct str){rest.at, end == SIZE_MAX ? rest.bytes : end});
        rest = str_skip(rest, end == SIZE_MAX ? rest.bytes : end + 1);
        if (str_starts_with(line, STR("export "))) line = str_trim(str_skip(line, 7));
        size_t equals = str_find_byte(line, '=', 0);
        if (equals == SIZE_MAX || !str_is(str_trim((struct str){line.at, equals}), name)) continue;
        struct str value = str_trim(str_skip(line, equals + 1));
        bool is_quoted = value.bytes >= 2 && (value.at[0] == '"' || value.at[0] == '\'') &&
                         value.at[value.bytes - 1] == value.at[0];
        if (is_quoted) value = (struct str){value.at + 1, value.bytes - 2};
        return value;
    }
    return (struct str){NULL, 0};
}

static void keep_copy(struct secret *secret, struct str value, const char *name) {
    secret->text = mem_new(1, value.bytes + 1);
    memcpy(secret->text, value.at, value.bytes);
    secret->bytes = value.bytes;
    snprintf(secret->where, sizeof secret->where, "%s", name);
}

/* A value that names a secret elsewhere becomes that secret. */
static enum err follow(struct secret *secret, const char *name, struct error *error) {
    struct secret named;
    if (!secret->text || !gcp_name_is(secret->text)) return OK;
    enum err err = read_gcp(&named, secret->text, error);
    secret_release(secret);
    if (err != OK) return err_prefix(error, "%s", name);
    *secret = named;
    return OK;
}

/* Reads a variable of the environment, which is overwritten, or else of --env-file. */
static enum err read_variable(struct secret *secret, const char *name,
                              const struct secret_variables *variables, struct error *error) {
    char *value = getenv(name);
    struct str text = value && *value ? str_from(value) : find_line(variables, name);
    if (text.bytes == 0) return OK;
    keep_copy(secret, text, name);
    if (text.at == value && !gcp_name_is(value)) {
        explicit_bzero(value, text.bytes);
        secret->is_gone = true;
    }
    return follow(secret, name, error);
}

static enum err read_named_file(struct secret *ret_secret, const char *variable,
                                const struct secret_variables *variables, bool *ret_found,
                                struct error *error) {
    char name[128], path[PATH_MAX];
    snprintf(name, sizeof name, "%s_FILE", variable);
    const char *given = getenv(name);
    struct str line = given && *given ? str_from(given) : find_line(variables, name);
    *ret_found = line.bytes > 0;
    if (!*ret_found) return OK;
    if (line.bytes >= sizeof path)
        return err_set(error, ERR_INVALID, "the path in %s is too long", name);
    memcpy(path, line.at, line.bytes);
    path[line.bytes] = '\0';
    enum err err = secret_read_file(ret_secret, path, error);
    return err == OK ? OK : err_prefix(error, "%s", name);
}

static enum err read_credential(struct secret *ret_secret, const char *credential,
                                struct error *error) {
    char path[PATH_MAX];
    struct stat status;
    const char *folder = getenv("CREDENTIALS_DIRECTORY");
    if (!folder || !*folder) return OK;
    int bytes = snprintf(path, sizeof path, "%s/%s", folder, credential);
    if (bytes < 0 || (size_t)bytes >= sizeof path || stat(path, &status) != 0) return OK;
    return secret_read_file(ret_secret, path, error);
}

enum err secret_read(struct secret *ret_secret, const struct secret_place *place,
                     const struct secret_variables *variables, struct error *error) {
    bool found;
    *ret_secret = (struct secret){0};
    if (place->path) return secret_read_file(ret_secret, place->path, error);
    enum err err = read_named_file(ret_secret, place->variable, variables, &found, error);
    if (err != OK || found) return err;
    err = read_variable(ret_secret, place->variable, variables, error);
    if (err != OK || ret_secret->text) return err;
    return read_credential(ret_secret, place->credential, error);
}
