/* SPDX-License-Identifier: Apache-2.0 */
#include "keys/key_file.h"

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
#define KEYS_MAX 10000

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
    for (int i = 0, count = 0; i < KEY_SCOPE_NAMED_COUNT; i++)
        if (row->scopes >> i & 1)
            buf_printf(buf, "%s\"%s\"", count++ ? "," : "", key_scope_name((enum key_scope)i));
    buf_printf(buf,
               "],\"created\":%" PRId64 ",\"expires\":%" PRId64 ",\"revoked\":%" PRId64
               ",\"requests_per_minute\":%" PRIu64 ",\"queued_tokens_max\":%" PRIu64
               ",\"batches_max\":%" PRIu64 ",\"stored_bytes_max\":%" PRIu64 "}\n",
               row->created_unix_s, row->expires_unix_s, row->revoked_unix_s,
               row->requests_per_minute, row->queued_tokens_max, row->batches_max,
               row->stored_bytes_max);
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
        if (!json_is_string(scope) || !key_scope_find(json_str(scope), ret_scopes)) return false;
    }
    return true;
}

static bool read_row(const json_t *object, struct key_row *ret_row) {
    struct key_row row = {0};
    char hex[SHA256_HEX_BYTES];
    size_t bytes = 0;
    int64_t per_minute, tokens, batches, stored;
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
        read_count(object, "stored_bytes_max", &stored) &&
        sodium_hex2bin(row.sha256, sizeof row.sha256, hex, strlen(hex), NULL, &bytes, NULL) == 0 &&
        bytes == SHA256_BYTES;
    if (!good) return false;
    row.requests_per_minute = (uint64_t)per_minute;
    row.queued_tokens_max = (uint64_t)tokens;
    row.batches_max = (uint64_t)batches;
    row.stored_bytes_max = (uint64_t)stored;
    *ret_row = row;
    return true;
}

const char *key_row_state(const struct key_row *row, int64_t now_unix_s) {
    if (row->revoked_unix_s) return "revoked";
    return row->expires_unix_s && row->expires_unix_s <= now_unix_s ? "expired" : "good";
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
    if (file->count == KEYS_MAX)
        return err_set(error, ERR_LIMIT, "%s has more than %d keys", path, KEYS_MAX);
    file->rows = mem_resize(file->rows, file->count + 1, sizeof *file->rows);
    file->rows[file->count++] = row;
    return OK;
}

/* O_NONBLOCK of the open keeps a planted pipe from stopping the reader before this check. Keys that
 * another user has made are not those of `owner`. */
static enum err check_mode(int fd, const char *path, uid_t owner, struct error *error) {
    struct stat status;
    if (fstat(fd, &status) != 0) return err_from_errno(error, errno, "cannot look at %s", path);
    if (!S_ISREG(status.st_mode)) return err_set(error, ERR_INVALID, "%s is no file", path);
    if (status.st_uid != owner && status.st_uid != 0)
        return err_set(error, ERR_INVALID, "%s belongs to user %u, not to user %u or root", path,
                       (unsigned)status.st_uid, (unsigned)owner);
    if ((status.st_mode & 077) == 0) return OK;
    return err_set(error, ERR_INVALID,
                   "%s can be read by others than its owner (mode %03o); chmod 600 it", path,
                   (unsigned)(status.st_mode & 0777));
}

static enum err read_at(int dir_fd, const char *path, uid_t owner, struct key_file *ret_file,
                        struct error *error) {
    struct key_file file = {0};
    char *text = NULL;
    size_t bytes = 0;
    int fd;
    enum err err = os_open_at(&fd, dir_fd, path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW, 0, error);
    if (err != OK) return err;
    err = check_mode(fd, path, owner, error);
    if (err == OK) err = os_read_opened(fd, path, FILE_BYTES_MAX, &text, &bytes, error);
    os_close(fd);
    if (err == OK) os_drop_mark(text, &bytes);
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

enum err key_file_read(struct key_file *ret_file, const char *path, struct error *error) {
    char folder[PATH_MAX];
    struct stat status;
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash) slash[1] = '\0';
    if (stat(slash ? folder : ".", &status) != 0)
        return err_from_errno(error, errno, "cannot look at the folder of %s", path);
    return read_at(AT_FDCWD, path, status.st_uid, ret_file, error);
}

enum err key_file_list(struct key_file *ret_file, const char *state_dir, struct error *error) {
    char path[PATH_MAX];
    int bytes = snprintf(path, sizeof path, "%s/" KEY_FILE_NAME, state_dir);
    if (bytes < 0 || (size_t)bytes >= sizeof path)
        return err_set(error, ERR_INVALID, "the state directory's name is too long");
    enum err err = key_file_read(ret_file, path, error);
    if (err == ERR_NOT_FOUND) *ret_file = (struct key_file){0};
    return err == ERR_NOT_FOUND ? OK : err;
}

/* --- changing it --- */

/* The state directory, held open: `quern key` may run as root in a directory of another user, who
 * could put a link in the place of a name between two calls. */
struct folder {
    int dir_fd;
    int lock_fd; /* locked: two commands at a time would lose each other's change */
};

static void close_folder(struct folder *folder) {
    os_close(folder->lock_fd);
    os_close(folder->dir_fd);
}

/* Gives a file that this process has just made as root to the owner of the directory: the
 * server. */
static enum err give_away(const struct folder *folder, int fd, struct error *error) {
    struct stat status;
    if (geteuid() != 0 || fstat(folder->dir_fd, &status) != 0 || status.st_uid == 0) return OK;
    if (fchown(fd, status.st_uid, status.st_gid) == 0) return OK;
    return err_from_errno(error, errno, "cannot give the keys to the owner of the directory");
}

static enum err open_folder(const char *state_dir, struct folder *ret_folder, struct error *error) {
    struct folder folder = {.dir_fd = -1, .lock_fd = -1};
    enum err err = os_mkdirs_durable(state_dir, error);
    if (err == OK) err = os_open(&folder.dir_fd, state_dir, O_RDONLY | O_DIRECTORY, 0, error);
    if (err == OK)
        err = os_open_at(&folder.lock_fd, folder.dir_fd, KEY_FILE_NAME ".lock",
                         O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600, error);
    if (err == OK && flock(folder.lock_fd, LOCK_EX) != 0)
        err = err_from_errno(error, errno, "cannot lock %s/" KEY_FILE_NAME ".lock", state_dir);
    if (err != OK)
        close_folder(&folder);
    else
        *ret_folder = folder;
    return err;
}

/* Makes the file that says, without a row, that keys were made. It stands before the first row. */
static enum err make_mark(const struct folder *folder, struct error *error) {
    int fd;
    if (faccessat(folder->dir_fd, KEY_FILE_MARK, F_OK, AT_SYMLINK_NOFOLLOW) == 0) return OK;
    enum err err = os_create_at(&fd, folder->dir_fd, KEY_FILE_MARK, 0600, error);
    if (err != OK) return err;
    err = give_away(folder, fd, error);
    if (err == OK) err = os_fsync(fd, error);
    os_close(fd);
    return err == OK ? os_fsync(folder->dir_fd, error) : err;
}

static enum err replace(const struct folder *folder, const struct key_file *file,
                        struct error *error) {
    struct buf text;
    int fd;
    enum err err = make_mark(folder, error);
    if (err == OK) err = os_create_at(&fd, folder->dir_fd, KEY_FILE_NAME ".new", 0600, error);
    if (err != OK) return err;
    buf_init(&text, FILE_BYTES_MAX);
    for (size_t i = 0; i < file->count; i++) write_row(&text, &file->rows[i]);
    if (text.overflowed) err = err_set(error, ERR_LIMIT, KEY_FILE_NAME " would be too large");
    if (err == OK) err = os_write_all(fd, text.at, text.bytes, error);
    if (err == OK) err = give_away(folder, fd, error);
    if (err == OK) err = os_fsync(fd, error);
    os_close(fd);
    buf_release(&text);
    if (err == OK) err = os_rename_at(folder->dir_fd, KEY_FILE_NAME ".new", KEY_FILE_NAME, error);
    return err == OK ? os_fsync(folder->dir_fd, error) : err;
}

static enum err read_or_empty(const struct folder *folder, struct key_file *ret_file,
                              struct error *error) {
    *ret_file = (struct key_file){0};
    struct stat status;
    if (fstat(folder->dir_fd, &status) != 0)
        return err_from_errno(error, errno, "cannot look at the state directory");
    enum err err = read_at(folder->dir_fd, KEY_FILE_NAME, status.st_uid, ret_file, error);
    return err == ERR_NOT_FOUND ? OK : err;
}

enum err key_file_check_lost(const char *state_dir, struct error *error) {
    struct folder folder;
    struct key_file file;
    enum err err = open_folder(state_dir, &folder, error);
    if (err != OK) return err;
    bool was_made = faccessat(folder.dir_fd, KEY_FILE_MARK, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    err = read_or_empty(&folder, &file, error);
    if (err == OK && file.count == 0 && was_made)
        err = err_set(error, ERR_CORRUPT,
                      "%s/" KEY_FILE_NAME " is missing or empty, but keys were made: put it back "
                      "from a backup, or make new keys with `quern key create`; to serve without "
                      "keys, remove " KEY_FILE_MARK " there",
                      state_dir);
    /* Keys of a version without the mark. */
    if (err == OK && file.count > 0) err = make_mark(&folder, error);
    key_file_release(&file);
    close_folder(&folder);
    return err;
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

static enum err add_row(const struct folder *folder, struct key_file *file,
                        const struct key_row *row, struct error *error) {
    if (file->count == KEYS_MAX)
        return err_set(error, ERR_LIMIT, "there are %d keys already", KEYS_MAX);
    file->rows = mem_resize(file->rows, file->count + 1, sizeof *file->rows);
    file->rows[file->count++] = *row;
    return replace(folder, file, error);
}

enum err key_file_add(const char *state_dir, struct key_row *row, int64_t now_unix_s,
                      char ret_text[KEY_TEXT_BYTES], struct error *error) {
    struct folder folder;
    struct key_file file;
    struct sha256 hash;
    enum err err = open_folder(state_dir, &folder, error);
    if (err != OK) return err;
    err = read_or_empty(&folder, &file, error);
    if (err == OK) {
        do id_alnum(row->id, sizeof row->id, "", KEY_ID_CHARACTERS);
        while (has_id(&file, row->id));
        make_text(row->id, ret_text);
        sha256_init(&hash);
        sha256_add(&hash, ret_text, strlen(ret_text));
        sha256_end(&hash, row->sha256);
        row->created_unix_s = now_unix_s;
        err = add_row(&folder, &file, row, error);
        if (err != OK) sodium_memzero(ret_text, KEY_TEXT_BYTES);
        key_file_release(&file);
    }
    close_folder(&folder);
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
    size_t count = 0;
    struct folder folder;
    struct key_file file;
    enum err err = open_folder(state_dir, &folder, error);
    if (err != OK) return err;
    err = read_or_empty(&folder, &file, error);
    struct key_row *row = err == OK ? find(&file, id_or_name, &count) : NULL;
    if (err == OK && count != 1)
        err = err_set(error, count ? ERR_CONFLICT : ERR_NOT_FOUND,
                      count ? "%zu keys are called '%.*s'; name one by its id"
                            : "%zu keys have the id or the name '%.*s'",
                      count, (int)(id_or_name.bytes < 80 ? id_or_name.bytes : 80), id_or_name.at);
    if (err == OK && row && !row->revoked_unix_s) {
        row->revoked_unix_s = now_unix_s;
        err = replace(&folder, &file, error);
    }
    if (err == OK && row) *ret_row = *row;
    key_file_release(&file);
    close_folder(&folder);
    return err;
}
