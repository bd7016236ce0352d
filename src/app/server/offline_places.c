/* SPDX-License-Identifier: Apache-2.0 */
#include "server/offline_places.h"

#include "base/hash.h"
#include "base/os.h"
#include "server/transfer.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define NAME_HEX 16 /* of the sum of a URL */

static enum err name_output(struct offline_places *places, const char *folder,
                            struct error *error) {
    char shown[TRANSFER_SHOWN_BYTES], hex[SHA256_HEX_BYTES];
    unsigned char digest[SHA256_BYTES];
    if (!transfer_is_url(places->output)) {
        int bytes = snprintf(places->output_path, PATH_MAX, "%s", places->output);
        return bytes < PATH_MAX ? OK
                                : err_set(error, ERR_INVALID, "the name of the output is too long");
    }
    enum err err = transfer_show(places->output, shown, error);
    if (err != OK) return err_prefix(error, "-o");
    struct sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, places->output, strcspn(places->output, "?#"));
    sha256_end(&hash, digest);
    sha256_hex(digest, hex);
    int bytes = snprintf(places->output_path, PATH_MAX, "%s%squern-%.*s.jsonl",
                         folder ? folder : "", folder ? "/" : "", NAME_HEX, hex);
    if (bytes < PATH_MAX) return OK;
    return err_set(error, ERR_INVALID, "--output-tmp-dir: the name is too long");
}

enum err offline_places_find(struct offline_places *ret_places, const char *input,
                             const char *output, const char *folder, struct error *error) {
    char shown[TRANSFER_SHOWN_BYTES];
    *ret_places = (struct offline_places){.input = input, .output = output};
    enum err err = name_output(ret_places, folder, error);
    if (err != OK) return err;
    bool is_url = transfer_is_url(input);
    if (is_url) err = transfer_show(input, shown, error);
    if (err != OK) return err_prefix(error, "-i");
    int bytes = snprintf(ret_places->input_path, PATH_MAX, is_url ? "%s.quern.input" : "%s",
                         is_url ? ret_places->output_path : input);
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
    if (!transfer_is_url(places->input) || has_begun(places)) return;
    if (os_unlink(places->input_path, &ignored) != OK) return; /* it was not fetched */
}

enum err offline_places_fetch(const struct offline_places *places, const volatile bool *stop,
                              struct error *error) {
    if (!transfer_is_url(places->input)) return OK;
    if (has_begun(places) && is_there(places->input_path)) return OK;
    return transfer_get(places->input, places->input_path, stop, error);
}

enum err offline_places_send(const struct offline_places *places, const volatile bool *stop,
                             struct error *error) {
    enum err err = OK;
    bool is_sent = transfer_is_url(places->output);
    if (is_sent) err = transfer_put(places->output, places->output_path, stop, error);
    if (err == OK && is_sent) err = os_unlink(places->output_path, error);
    if (err == OK && transfer_is_url(places->input)) err = os_unlink(places->input_path, error);
    return err;
}
