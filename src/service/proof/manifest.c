/* SPDX-License-Identifier: Apache-2.0 */
#include "proof/manifest.h"

#include "base/no_memory.h"
#include "base/utf8.h"
#include "proof/ssh_signature.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BEGIN_FORMAT "{\n  \"object\": \"%s\",\n  \"version\": " /* for printf, of the object */
#define BEGIN_BYTES 96
#define END "\n}\n"
/* The signature's line, with what is before and after it. A string of JSON has no line end, so that
 * no value looks like it. */
#define SIGNATURE_BEGIN ",\n  \"signature\": \""
#define SIGNATURE_END "\"" END
#define TREE_BYTES_MAX ((size_t)256 << 20)

/* --- writing --- */

static int add_piece(const char *bytes, size_t count, void *out) {
    buf_add(out, bytes, count);
    return 0;
}

/* Appends the signature with its line ends as "\n". */
static void add_signature(struct buf *out, const struct ssh_key *key, struct str text) {
    struct buf signature;
    buf_init(&signature, BUF_UNLIMITED);
    ssh_sign(&signature, key, text);
    for (size_t i = 0; i < signature.bytes; i++) {
        if (signature.at[i] == '\n')
            buf_add_text(out, "\\n");
        else
            buf_add_byte(out, signature.at[i]);
    }
    buf_release(&signature);
}

void manifest_write(struct buf *out, const json_t *content, const struct ssh_key *key) {
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    if (json_dump_callback(content, add_piece, &text, JSON_INDENT(2)) != 0) no_memory();
    buf_add_byte(&text, '\n');
    if (key) {
        buf_add(out, text.at, text.bytes - strlen(END));
        buf_add_text(out, SIGNATURE_BEGIN);
        add_signature(out, key, buf_str(&text));
        buf_add_text(out, SIGNATURE_END);
    } else {
        buf_add_str(out, buf_str(&text));
    }
    buf_release(&text);
}

/* --- reading --- */

/* The place of the last line of a signature, or SIZE_MAX. */
static size_t find_signature(struct str text) {
    size_t found = SIZE_MAX, at = 0;
    while ((at = str_find(text, STR(SIGNATURE_BEGIN), at)) != SIZE_MAX) found = at++;
    return found;
}

/* Reads what is between the quotes. */
static void unescape(struct buf *out, struct str text) {
    for (size_t i = 0; i < text.bytes; i++) {
        bool is_end = text.at[i] == '\\' && i + 1 < text.bytes && text.at[i + 1] == 'n';
        buf_add_byte(out, is_end ? '\n' : text.at[i]);
        i += is_end;
    }
}

/* Splits the text into what is signed, which it writes into `plain`, and the signature. */
static enum err check_signature(struct manifest *manifest, struct str text, struct buf *plain,
                                struct error *error) {
    size_t at = find_signature(text);
    if (at == SIZE_MAX) {
        buf_add_str(plain, text);
        return OK;
    }
    struct str value = str_skip(text, at + strlen(SIGNATURE_BEGIN));
    if (!str_ends_with(value, STR(SIGNATURE_END)))
        return err_set(error, ERR_CORRUPT, "it does not end with its signature");
    value.bytes -= strlen(SIGNATURE_END);
    if (str_find_byte(value, '\n', 0) != SIZE_MAX)
        return err_set(error, ERR_CORRUPT, "its signature is damaged");
    buf_add(plain, text.at, at);
    buf_add_text(plain, END);
    struct buf signature;
    buf_init(&signature, BUF_UNLIMITED);
    unescape(&signature, value);
    enum err err = ssh_verify(buf_str(&signature), buf_str(plain), manifest->public, error);
    buf_release(&signature);
    manifest->is_signed = err == OK;
    return err;
}

static enum err read_content(struct manifest *manifest, int version_max, struct str plain,
                             struct error *error) {
    size_t room = TREE_BYTES_MAX;
    struct error why;
    if (json_read_once(&manifest->content, plain, &room, &why) != OK)
        return err_set(error, ERR_CORRUPT, "%.400s", why.text);
    if (json_object_get(manifest->content, "signature"))
        return err_set(error, ERR_CORRUPT,
                       "its signature is not on its last line, as it is written");
    json_int_t version = json_integer_value(json_object_get(manifest->content, "version"));
    if (version >= 1 && version <= version_max) return OK;
    enum err err = version > version_max ? ERR_INVALID : ERR_CORRUPT;
    return err_set(error, err, "it has the version %lld, and this program reads 1 to %d",
                   (long long)version, version_max);
}

bool manifest_begins_as(struct str text, const char *object) {
    char begin[BEGIN_BYTES];
    snprintf(begin, sizeof begin, BEGIN_FORMAT, object);
    return str_starts_with(text, str_from(begin));
}

bool manifest_is_one(struct str text) {
    return manifest_begins_as(text, MANIFEST_OBJECT);
}

enum err manifest_read(struct manifest *ret_manifest, struct str text, struct error *error) {
    return manifest_read_as(ret_manifest, MANIFEST_OBJECT, MANIFEST_VERSION, text, error);
}

enum err manifest_read_as(struct manifest *ret_manifest, const char *object, int version_max,
                          struct str text, struct error *error) {
    struct manifest manifest = {.content = NULL};
    struct buf plain;
    if (!manifest_begins_as(text, object) || !str_ends_with(text, STR(END)))
        return err_set(error, ERR_CORRUPT, "it is no %s, or not a whole one", object);
    if (text.bytes > MANIFEST_BYTES_MAX || !utf8_is_valid(text))
        return err_set(error, ERR_CORRUPT, "it is too large, or no text");
    buf_init(&plain, BUF_UNLIMITED);
    enum err err = check_signature(&manifest, text, &plain, error);
    if (err == OK) err = read_content(&manifest, version_max, buf_str(&plain), error);
    buf_release(&plain);
    if (err == OK)
        *ret_manifest = manifest;
    else
        manifest_release(&manifest);
    return err;
}

void manifest_release(struct manifest *manifest) {
    json_decref(manifest->content);
    manifest->content = NULL;
}
