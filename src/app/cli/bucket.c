/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bucket.h"

#include "base/hash.h"

#include <stdio.h>
#include <string.h>

#define NAME_HEX 16 /* digits of the sum */

enum err bucket_name(const char *name, const char *rest, const char *folder,
                     char ret_path[PATH_MAX], struct error *error) {
    struct s3_place place;
    struct sha256 hash;
    unsigned char digest[SHA256_BYTES];
    char hex[SHA256_HEX_BYTES];
    enum err err = s3_place_read(&place, name, error);
    if (err != OK) return err;
    sha256_init(&hash);
    sha256_add(&hash, name, strlen(name) + 1);
    sha256_add(&hash, rest, strlen(rest));
    sha256_end(&hash, digest);
    sha256_hex(digest, hex);
    int bytes = snprintf(ret_path, PATH_MAX, "%s%squern-%.*s.jsonl", folder ? folder : "",
                         folder ? "/" : "", NAME_HEX, hex);
    return bytes < PATH_MAX ? OK : err_set(error, ERR_INVALID, "--tmp-dir: the name is too long");
}

static void say(void *context, const char *sentence) {
    session_say(context, "%s", sentence);
}

static enum err open_storage(struct session *session, const char *name, struct s3 **ret_s3,
                             struct s3_place *ret_place, struct error *error) {
    const struct s3_options options = {.stop = session->stop, .context = session, .say = say};
    enum err err = s3_place_read(ret_place, name, error);
    return err == OK ? s3_open(ret_s3, &options, error) : err;
}

enum err bucket_check(struct session *session, const char *name, bool may_replace,
                      struct error *error) {
    struct s3_place place;
    struct s3 *s3 = NULL;
    bool exists = false;
    enum err err = open_storage(session, name, &s3, &place, error);
    if (err == OK) err = s3_look(s3, &place, &exists, error);
    s3_close(s3);
    if (err != OK || !exists || may_replace) return err;
    return err_set(error, ERR_CONFLICT, "%.300s exists; name another object, or --overwrite it",
                   name);
}

enum err bucket_fetch(struct session *session, const char *name, const char *path,
                      struct error *error) {
    struct s3_place place;
    struct s3 *s3 = NULL;
    enum err err = open_storage(session, name, &s3, &place, error);
    if (err == OK) err = s3_get(s3, &place, path, error);
    s3_close(s3);
    return err;
}

enum err bucket_send(struct session *session, const char *name, const char *path,
                     struct error *error) {
    struct s3_place place;
    struct s3 *s3 = NULL;
    enum err err = open_storage(session, name, &s3, &place, error);
    if (err == OK) err = s3_put(s3, &place, path, error);
    s3_close(s3);
    return err;
}
