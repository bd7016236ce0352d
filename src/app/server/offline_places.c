/* SPDX-License-Identifier: Apache-2.0 */
#include "server/offline_places.h"

#include "base/hash.h"
#include "base/os.h"
#include "base/printable.h"
#include "s3/s3.h"
#include "server/transfer.h"
#include "table/answers.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_HEX 16 /* digits of the sum of a URL */
#define REST_BYTES (PATH_MAX + 16)

static bool is_stream(const char *name) {
    return strcmp(name, "-") == 0;
}

/* ERR_INVALID for a URL, or a name of an object, that is none. */
static enum err check_name(const char *name, struct error *error) {
    char shown[TRANSFER_SHOWN_BYTES];
    struct s3_place place;
    if (s3_is_place(name)) return s3_place_read(&place, name, error);
    return transfer_is_url(name) ? transfer_show(name, shown, error) : OK;
}

/* The bytes of a name that stay the same when a URL is signed anew. */
static size_t lasting_bytes(const char *name) {
    return s3_is_place(name) ? strlen(name) : strcspn(name, "?#");
}

/* True for an input or an output that has a file of its own meanwhile. */
static bool is_elsewhere(const char *name) {
    return is_stream(name) || transfer_is_url(name) || s3_is_place(name);
}

static enum err name_output(struct offline_places *places, const char *folder,
                            struct error *error) {
    char hex[SHA256_HEX_BYTES];
    unsigned char digest[SHA256_BYTES];
    if (!is_elsewhere(places->output)) {
        int bytes = snprintf(places->output_path, PATH_MAX, "%s", places->output);
        return bytes < PATH_MAX ? OK
                                : err_set(error, ERR_INVALID, "the name of the output is too long");
    }
    enum err err = check_name(places->output, error);
    if (err != OK) return err_prefix(error, "-o");
    struct sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, places->output, lasting_bytes(places->output));
    if (is_stream(places->output)) sha256_add(&hash, places->input, lasting_bytes(places->input));
    sha256_end(&hash, digest);
    sha256_hex(digest, hex);
    int bytes = snprintf(places->output_path, PATH_MAX, "%s%squern-%.*s.jsonl",
                         folder ? folder : "", folder ? "/" : "", NAME_HEX, hex);
    if (bytes < PATH_MAX) return OK;
    return err_set(error, ERR_INVALID, "--output-tmp-dir: the name is too long");
}

enum err offline_places_find(struct offline_places *ret_places, const char *input,
                             const char *output, const char *folder, struct error *error) {
    *ret_places = (struct offline_places){.input = input, .output = output};
    enum err err = name_output(ret_places, folder, error);
    if (err != OK) return err;
    err = check_name(input, error);
    if (err != OK) return err_prefix(error, "-i");
    bool is_kept = is_elsewhere(input);
    int bytes = snprintf(ret_places->input_path, PATH_MAX, is_kept ? "%s.quern.input" : "%s",
                         is_kept ? ret_places->output_path : input);
    if (bytes < PATH_MAX) return OK;
    return err_set(error, ERR_INVALID, "the name of the input is too long");
}

static bool is_there(const char *path) {
    struct stat ignored;
    return stat(path, &ignored) == 0;
}

/* Whether an earlier call has left results, unfinished or whole. */
static bool has_begun(const struct offline_places *places) {
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s.quern", PATH_MAX - 8, places->output_path);
    return is_there(folder) || is_there(places->output_path);
}

void offline_places_drop(const struct offline_places *places) {
    struct error ignored;
    if (!is_elsewhere(places->input) || has_begun(places)) return;
    if (s3_forget(places->input_path, &ignored) != OK) return; /* it was not fetched */
}

static enum err copy_all(int from, int to, const volatile bool *stop, struct error *error) {
    char piece[65536];
    size_t count = 1;
    enum err err = OK;
    while (err == OK && count > 0 && !*stop) {
        err = os_read(from, piece, sizeof piece, &count, error);
        if (err == OK && count > 0) err = os_write_all(to, piece, count, error);
    }
    return err == OK && *stop ? err_set(error, ERR_CANCELLED, "stopped") : err;
}

/* Keeps standard input in a file, since it is read more than once. */
static enum err keep_input(const char *path, const volatile bool *stop, struct error *error) {
    int fd;
    enum err err = os_create(&fd, path, 0600, error);
    if (err != OK) return err;
    err = copy_all(STDIN_FILENO, fd, stop, error);
    if (err == OK) err = os_fsync(fd, error);
    os_close(fd);
    return err == OK ? OK : err_prefix(error, "standard input");
}

static enum err print_output(const char *path, const volatile bool *stop, struct error *error) {
    int fd;
    enum err err = os_open(&fd, path, O_RDONLY, 0, error);
    if (err != OK) return err;
    err = copy_all(fd, STDOUT_FILENO, stop, error);
    os_close(fd);
    return err == OK ? OK : err_prefix(error, "standard output");
}

/* --- objects of S3 --- */

static void say(void *context, const char *sentence) {
    (void)context;
    fprintf(stderr, "quern run: %s\n", printable(sentence).text);
}

static enum err open_storage(const char *name, const volatile bool *stop, struct s3 **ret_s3,
                             struct s3_place *ret_place, struct error *error) {
    const struct s3_options options = {.stop = stop, .say = say};
    enum err err = s3_place_read(ret_place, name, error);
    return err == OK ? s3_open(ret_s3, &options, error) : err;
}

/* ERR_CONFLICT for an object that exists, unless `may_exist`. */
static enum err check_object(const char *name, bool may_exist, const volatile bool *stop,
                             struct error *error) {
    struct s3_place place;
    struct s3 *s3 = NULL;
    bool exists = false;
    enum err err = open_storage(name, stop, &s3, &place, error);
    if (err == OK && !may_exist) err = s3_look(s3, &place, &exists, error);
    s3_close(s3);
    if (err != OK || !exists) return err;
    return err_set(error, ERR_CONFLICT, "%.300s exists; name another object, or --overwrite it",
                   name);
}

static void name_rest(const char *name, char ret_name[REST_BYTES]) {
    snprintf(ret_name, REST_BYTES, TABLE_REST, name);
}

/* Before anything runs: whether the output may be written. An object that appeared since the run
 * has begun is that run's. */
static enum err check_output(const struct offline_places *places, const volatile bool *stop,
                             struct error *error) {
    char rest[REST_BYTES];
    bool may_exist = places->may_replace || has_begun(places);
    enum table_kind kind = table_kind_of(places->output);
    if (!s3_is_place(places->output)) return OK;
    enum err err = check_object(places->output, may_exist, stop, error);
    if (err != OK || kind == TABLE_NONE || kind == TABLE_JSONL) return err;
    name_rest(places->output, rest);
    return check_object(rest, may_exist, stop, error);
}

/* Sends the output, or fetches the input. */
static enum err move_object(const char *name, const char *path, bool is_put,
                            const volatile bool *stop, struct error *error) {
    struct s3_place place;
    struct s3 *s3 = NULL;
    enum err err = open_storage(name, stop, &s3, &place, error);
    if (err == OK) err = is_put ? s3_put(s3, &place, path, error) : s3_get(s3, &place, path, error);
    s3_close(s3);
    return err;
}

enum err offline_places_fetch(const struct offline_places *places, const volatile bool *stop,
                              struct error *error) {
    enum err err = check_output(places, stop, error);
    if (err != OK || !is_elsewhere(places->input)) return err;
    if (is_stream(places->input)) return keep_input(places->input_path, stop, error);
    if (has_begun(places) && is_there(places->input_path)) return OK;
    if (s3_is_place(places->input))
        return move_object(places->input, places->input_path, false, stop, error);
    return transfer_get(places->input, places->input_path, stop, error);
}

/* Sends the results that a table does not show, which a reader of the table looks for next to it:
 * so they come first. */
static enum err send_rest(const struct offline_places *places, const char *rest_path,
                          const volatile bool *stop, struct error *error) {
    char rest[REST_BYTES];
    if (!s3_is_place(places->output) || !is_there(rest_path)) return OK;
    name_rest(places->output, rest);
    return move_object(rest, rest_path, true, stop, error);
}

enum err offline_places_send(const struct offline_places *places, const volatile bool *stop,
                             struct error *error) {
    char rest_path[REST_BYTES];
    bool is_sent = is_elsewhere(places->output);
    name_rest(places->output_path, rest_path);
    enum err err = send_rest(places, rest_path, stop, error);
    if (err != OK) return err;
    if (is_stream(places->output))
        err = print_output(places->output_path, stop, error);
    else if (s3_is_place(places->output))
        err = move_object(places->output, places->output_path, true, stop, error);
    else if (is_sent)
        err = transfer_put(places->output, places->output_path, stop, error);
    if (err == OK && s3_is_place(places->output) && is_there(rest_path))
        err = s3_forget(rest_path, error);
    if (err == OK && is_sent) err = s3_forget(places->output_path, error);
    if (err == OK && is_elsewhere(places->input)) err = s3_forget(places->input_path, error);
    return err;
}
