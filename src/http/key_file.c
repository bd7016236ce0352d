/* SPDX-License-Identifier: Apache-2.0 */
#include "http/key_file.h"

#include "base/id.h"
#include "base/mem.h"
#include "base/os.h"
#include "json/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sodium/randombytes.h>
#include <sodium/utils.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MAX ((size_t)16 << 20)
#define SECRET_BYTES 32

static const char *const scope_names[HTTP_SCOPE_NAMED_COUNT] = {"admin", "files", "batches",
                                                                "infer", "metrics"};

const char *key_scope_name(enum http_scope scope) {
    return scope < HTTP_SCOPE_NAMED_COUNT ? scope_names[scope] : "any";
}

static bool scope_find(struct str name, uint32_t *scopes) {
    for (int i = 0; i < HTTP_SCOPE_NAMED_COUNT; i++) {
        if (!str_is(name, scope_names[i])) continue;
        *scopes |= 1u << i;
        return true;
    }
    return false;
}

enum err key_scopes_read(struct str list, uint32_t *ret_scopes, struct error *error) {
    uint32_t scopes = 0;
    while (list.bytes > 0) {
        size_t comma = str_find_byte(list, ',', 0);
        struct str name = str_trim((struct str){list.at, comma == SIZE_MAX ? list.bytes : comma});
        list = str_skip(list, comma == SIZE_MAX ? list.bytes : comma + 1);
        if (!scope_find(name, &scopes))
            return err_set(error, ERR_INVALID,
                           "'%.*s' is no scope; there are files, batches, infer, metrics and admin",
                           (int)(name.bytes < 60 ? name.bytes : 60), name.at);
    }
    if (scopes == 0) return err_set(error, ERR_INVALID, "a key needs a scope");
    *ret_scopes = scopes;
    return OK;
}

bool key_owner_is_sane(struct str owner) {
    if (owner.bytes == 0 || owner.bytes >= OWNER_BYTES) return false;
    for (size_t i = 0; i < owner.bytes; i++) {
        char c = owner.at[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!letter && !(c >= '0' && c <= '9') && !strchr("._-", c)) return false;
    }
    return true;
}

/* --- a row as JSON --- */

static void write_row(struct buf *buf, const struct key_row *row) {
    char hex[SHA256_HEX_BYTES];
    sha256_hex(row->sha256, hex);
    buf_printf(buf, "{\"id\":\"%s\",\"sha256\":\"%s\",\"name\":", row->id, hex);
    json_write_string(buf, str_from(row->name));
    buf_printf(buf, ",\"owner\":\"%s\",\"scopes\":[", row->owner);
    for (int i = 0, count = 0; i < HTTP_SCOPE_NAMED_COUNT; i++)
        if (row->scopes >> i & 1) buf_printf(buf, "%s\"%s\"", count++ ? "," : "", scope_names[i]);
    buf_printf(buf,
               "],\"created\":%" PRId64 ",\"expires\":%" PRId64 ",\"revoked\":%" PRId64
               ",\"requests_per_minute\":%" PRIu64 ",\"queued_tokens_max\":%" PRIu64
               ",\"batches_max\":%" PRIu64 "}\n",
               row->created_unix_s, row->expires_unix_s, row->revoked_unix_s,
               row->requests_per_minute, row->queued_tokens_max, row->batches_max);
}

static bool read_text(const json_t *object, const char *name, char *ret_text, size_t bytes_max) {
    struct str text = json_member_str(object, name);
    if (!text.at || text.bytes >= bytes_max || memchr(text.at, '\0', text.bytes)) return false;
    memcpy(ret_text, text.at, text.bytes);
    ret_text[text.bytes] = '\0';
    return true;
}

static bool read_count(const json_t *object, const char *name, int64_t *ret_count) {
    const json_t *value = json_member(object, name);
    *ret_count = value ? json_integer_value(value) : 0;
    return !value || (json_is_integer(value) && *ret_count >= 0);
}

static bool read_scopes(const json_t *object, uint32_t *ret_scopes) {
    const json_t *list = json_member(object, "scopes"), *scope;
    size_t index;
    *ret_scopes = 0;
    if (!json_is_array(list)) return false;
    json_array_foreach(list, index, scope) {
        if (!json_is_string(scope) || !scope_find(json_str(scope), ret_scopes)) return false;
    }
    return true;
}

static bool read_row(const json_t *object, struct key_row *ret_row) {
    struct key_row row = {0};
    char hex[SHA256_HEX_BYTES];
    size_t bytes = 0;
    int64_t per_minute, tokens, batches;
    bool good =
        json_is_object(object) && read_text(object, "id", row.id, sizeof row.id) &&
        strlen(row.id) == KEY_ID_CHARACTERS && read_text(object, "sha256", hex, sizeof hex) &&
        read_text(object, "name", row.name, sizeof row.name) &&
        read_text(object, "owner", row.owner, sizeof row.owner) &&
        (!*row.owner || key_owner_is_sane(str_from(row.owner))) &&
        read_scopes(object, &row.scopes) && read_count(object, "created", &row.created_unix_s) &&
        read_count(object, "expires", &row.expires_unix_s) &&
        read_count(object, "revoked", &row.revoked_unix_s) &&
        read_count(object, "requests_per_minute", &per_minute) &&
        read_count(object, "queued_tokens_max", &tokens) &&
        read_count(object, "batches_max", &batches) &&
        sodium_hex2bin(row.sha256, sizeof row.sha256, hex, strlen(hex), NULL, &bytes, NULL) == 0 &&
        bytes == SHA256_BYTES;
    if (!good) return false;
    row.requests_per_minute = (uint64_t)per_minute;
    row.queued_tokens_max = (uint64_t)tokens;
    row.batches_max = (uint64_t)batches;
    *ret_row = row;
    return true;
}

/* --- reading the file --- */

void key_file_release(struct key_file *file) {
    free(file->rows);
    *file = (struct key_file){0};
}

static enum err add_line(struct key_file *file, struct str line, unsigned number, const char *path,
                         struct error *error) {
    struct key_row row;
    json_t *object = NULL;
    struct error ignored;
    bool good = json_read(&object, line, &ignored) == OK && read_row(object, &row);
    json_decref(object);
    if (!good) return err_set(error, ERR_INVALID, "line %u of %s is not a key", number, path);
    if (file->count == KEYS_PER_FILE_MAX)
        return err_set(error, ERR_LIMIT, "%s has more than %d keys", path, KEYS_PER_FILE_MAX);
    file->rows = mem_resize(file->rows, file->count + 1, sizeof *file->rows);
    file->rows[file->count++] = row;
    return OK;
}

static enum err check_mode(const char *path, struct error *error) {
    struct stat status;
    if (stat(path, &status) != 0) return err_from_errno(error, errno, "cannot look at %s", path);
    if ((status.st_mode & 077) == 0) return OK;
    return err_set(error, ERR_INVALID,
                   "%s can be read by others than its owner (mode %03o); chmod 600 it", path,
                   (unsigned)(status.st_mode & 0777));
}

enum err key_file_read(struct key_file *ret_file, const char *path, struct error *error) {
    struct key_file file = {0};
    char *text;
    size_t bytes;
    enum err err = os_read_file(path, FILE_BYTES_MAX, &text, &bytes, error);
    if (err != OK) return err;
    err = check_mode(path, error);
    struct str rest = {text, bytes};
    for (unsigned number = 1; err == OK && rest.bytes > 0; number++) {
        size_t end = str_find_byte(rest, '\n', 0);
        struct str line = str_trim((struct str){rest.at, end == SIZE_MAX ? rest.bytes : end});
        rest = str_skip(rest, end == SIZE_MAX ? rest.bytes : end + 1);
        if (line.bytes > 0) err = add_line(&file, line, number, path, error);
    }
    free(text);
    if (err == OK)
        *ret_file = file;
    else
        key_file_release(&file);
    return err;
}

/* --- changing it --- */

/* Gives a file that `quern key` made as root to the owner of the directory: the server. */
static enum err give_away(int fd, const char *state_dir, struct error *error) {
    struct stat status;
    if (geteuid() != 0 || stat(state_dir, &status) != 0 || status.st_uid == 0) return OK;
    if (fchown(fd, status.st_uid, status.st_gid) == 0) return OK;
    return err_from_errno(error, errno, "cannot give the keys to the owner of %s", state_dir);
}

static enum err replace(const char *state_dir, const struct key_file *file, struct error *error) {
    char path[PATH_MAX], fresh[PATH_MAX];
    struct buf text;
    int fd;
    snprintf(path, sizeof path, "%s/" KEY_FILE_NAME, state_dir);
    snprintf(fresh, sizeof fresh, "%s/" KEY_FILE_NAME ".new", state_dir);
    enum err err = os_open(&fd, fresh, O_WRONLY | O_CREAT | O_TRUNC, 0600, error);
    if (err != OK) return err;
    buf_init(&text, FILE_BYTES_MAX);
    for (size_t i = 0; i < file->count; i++) write_row(&text, &file->rows[i]);
    if (text.overflowed) err = err_set(error, ERR_LIMIT, "%s would be too large", path);
    if (err == OK) err = os_write_all(fd, text.at, text.bytes, error);
    if (err == OK) err = give_away(fd, state_dir, error);
    if (err == OK) err = os_fsync(fd, error);
    os_close(fd);
    buf_release(&text);
    if (err == OK) err = os_rename(fresh, path, error);
    return err == OK ? os_fsync_dir(state_dir, error) : err;
}

/* Locks out other commands: two at a time would lose each other's change. */
static enum err lock(const char *state_dir, int *ret_fd, struct error *error) {
    char path[PATH_MAX];
    int bytes = snprintf(path, sizeof path, "%s/" KEY_FILE_NAME ".lock", state_dir);
    if (bytes < 0 || (size_t)bytes >= sizeof path)
        return err_set(error, ERR_INVALID, "the state directory's name is too long");
    enum err err = os_mkdirs(state_dir, error);
    if (err == OK) err = os_open(ret_fd, path, O_RDWR | O_CREAT, 0600, error);
    if (err != OK) return err;
    if (flock(*ret_fd, LOCK_EX) == 0) return OK;
    err = err_from_errno(error, errno, "cannot lock %s", path);
    os_close(*ret_fd);
    return err;
}

static enum err read_or_empty(const char *state_dir, struct key_file *ret_file,
                              struct error *error) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/" KEY_FILE_NAME, state_dir);
    *ret_file = (struct key_file){0};
    enum err err = key_file_read(ret_file, path, error);
    return err == ERR_NOT_FOUND ? OK : err;
}

static bool has_id(const struct key_file *file, const char *id) {
    for (size_t i = 0; i < file->count; i++)
        if (strcmp(file->rows[i].id, id) == 0) return true;
    return false;
}

static void make_text(const char *id, char ret_text[KEY_TEXT_BYTES]) {
    unsigned char secret[SECRET_BYTES];
    int bytes = snprintf(ret_text, KEY_TEXT_BYTES, "sk-%s_", id);
    randombytes_buf(secret, sizeof secret);
    sodium_bin2base64(ret_text + bytes, KEY_TEXT_BYTES - (size_t)bytes, secret, sizeof secret,
                      sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    sodium_memzero(secret, sizeof secret);
}

static enum err add_row(const char *state_dir, struct key_file *file, const struct key_row *row,
                        struct error *error) {
    if (file->count == KEYS_PER_FILE_MAX)
        return err_set(error, ERR_LIMIT, "there are %d keys already", KEYS_PER_FILE_MAX);
    file->rows = mem_resize(file->rows, file->count + 1, sizeof *file->rows);
    file->rows[file->count++] = *row;
    return replace(state_dir, file, error);
}

enum err key_file_add(const char *state_dir, struct key_row *row, int64_t now_unix_s,
                      char ret_text[KEY_TEXT_BYTES], struct error *error) {
    int fd;
    struct key_file file;
    struct sha256 hash;
    enum err err = lock(state_dir, &fd, error);
    if (err != OK) return err;
    err = read_or_empty(state_dir, &file, error);
    if (err == OK) {
        do id_alnum(row->id, sizeof row->id, "", KEY_ID_CHARACTERS);
        while (has_id(&file, row->id));
        make_text(row->id, ret_text);
        sha256_init(&hash);
        sha256_add(&hash, ret_text, strlen(ret_text));
        sha256_end(&hash, row->sha256);
        row->created_unix_s = now_unix_s;
        err = add_row(state_dir, &file, row, error);
        if (err != OK) sodium_memzero(ret_text, KEY_TEXT_BYTES);
        key_file_release(&file);
    }
    os_close(fd);
    return err;
}

/* The row of that id, or else the one row of that name that is not revoked. */
static struct key_row *find(struct key_file *file, struct str id_or_name, size_t *ret_count) {
    struct key_row *found = NULL;
    *ret_count = 0;
    for (size_t i = 0; i < file->count; i++) {
        if (str_is(id_or_name, file->rows[i].id)) {
            *ret_count = 1;
            return &file->rows[i];
        }
        if (!str_is(id_or_name, file->rows[i].name) || file->rows[i].revoked_unix_s) continue;
        found = &file->rows[i];
        (*ret_count)++;
    }
    return found;
}

enum err key_file_revoke(const char *state_dir, struct str id_or_name, int64_t now_unix_s,
                         struct key_row *ret_row, struct error *error) {
    int fd;
    size_t count = 0;
    struct key_file file;
    enum err err = lock(state_dir, &fd, error);
    if (err != OK) return err;
    err = read_or_empty(state_dir, &file, error);
    struct key_row *row = err == OK ? find(&file, id_or_name, &count) : NULL;
    if (err == OK && count != 1)
        err = err_set(error, count ? ERR_CONFLICT : ERR_NOT_FOUND,
                      count ? "%zu keys are called '%.*s'; name one by its id"
                            : "%zu keys have the id or the name '%.*s'",
                      count, (int)(id_or_name.bytes < 80 ? id_or_name.bytes : 80), id_or_name.at);
    if (err == OK && row && !row->revoked_unix_s) {
        row->revoked_unix_s = now_unix_s;
        err = replace(state_dir, &file, error);
    }
    if (err == OK && row) *ret_row = *row;
    key_file_release(&file);
    os_close(fd);
    return err;
}
