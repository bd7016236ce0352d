/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/run_proof.h"

#include "base/os.h"
#include "proof/file_sum.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BEGIN_BYTES 256
#define ERASING_BYTES_MAX ((size_t)1 << 20)

const char *run_proof_text(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

/* Whether the file begins as a manifest, or has a manifest's name. */
static bool is_manifest(const char *path) {
    char begin[BEGIN_BYTES];
    size_t count = 0;
    int fd;
    struct error ignored;
    if (str_ends_with(str_from(path), STR(".manifest.json"))) return true;
    if (os_open(&fd, path, O_RDONLY | O_NONBLOCK, 0, &ignored) != OK) return false;
    enum err err = os_read(fd, begin, sizeof begin, &count, &ignored);
    os_close(fd);
    return err == OK && manifest_is_one((struct str){begin, count});
}

/* The name in the folder of the manifest. */
static void place(const struct run_proof *proof, const char *name, char ret_path[PATH_MAX]) {
    const char *slash = strrchr(proof->path, '/');
    int folder = slash ? (int)(slash - proof->path) + 1 : 0;
    if (snprintf(ret_path, PATH_MAX, "%.*s%s", folder, proof->path, name) >= PATH_MAX)
        *ret_path = '\0';
}

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The file that the manifest names so, in its folder; nothing if it names none. */
static void place_named(const struct run_proof *proof, const char *member,
                        char ret_path[PATH_MAX]) {
    const json_t *file = json_object_get(proof->manifest.content, member);
    if (file) place(proof, base_of(run_proof_text(file, "name")), ret_path);
}

static void find_input(struct run_proof *proof, const char *name) {
    if (*name == '/')
        snprintf(proof->input, sizeof proof->input, "%s", name);
    else
        place(proof, name, proof->input);
    if (access(proof->input, F_OK) == 0) return;
    snprintf(proof->input, sizeof proof->input, "%s", name);
    if (access(proof->input, F_OK) != 0) place(proof, base_of(name), proof->input);
}

static void find_files(struct run_proof *proof, const struct run_proof_options *options,
                       bool is_output) {
    const json_t *content = proof->manifest.content;
    const char *output = options->output ? options->output : is_output ? options->run : NULL;
    if (output)
        snprintf(proof->output, sizeof proof->output, "%s", output);
    else
        place_named(proof, "output", proof->output);
    place_named(proof, "rest", proof->rest);
    place_named(proof, "errors", proof->errors);
    if (options->input)
        snprintf(proof->input, sizeof proof->input, "%s", options->input);
    else
        find_input(proof, run_proof_text(json_object_get(content, "input"), "name"));
}

/* A FIFO would wait for its writer, and a folder has no manifest. What does not exist is told where
 * it is opened. */
static enum err check_is_file(const char *path, struct error *error) {
    struct file_facts facts;
    enum err err = file_facts_find(path, &facts, error);
    return err == ERR_INVALID ? err_prefix(error, "%s", path) : OK;
}

/* Reads the salts; that they are missing, or of another manifest, is for run_check to say. */
static enum err read_salts(struct run_proof *proof, struct error *error) {
    char *text;
    size_t bytes;
    if (!run_salts_path(proof->path, proof->salts_path, PATH_MAX))
        return err_set(error, ERR_INVALID, "the name of the run is too long");
    enum err err = check_is_file(proof->salts_path, error);
    if (err == OK) err = os_read_file(proof->salts_path, MANIFEST_BYTES_MAX, &text, &bytes, error);
    if (err == ERR_NOT_FOUND) return OK;
    if (err == ERR_LIMIT) err = err_set(error, ERR_CORRUPT, "%s is too large", proof->salts_path);
    if (err != OK) return err;
    err = run_salts_read(&proof->salts, (struct str){text, bytes}, error);
    free(text);
    if (err != OK) return err_prefix(error, "%s", proof->salts_path);
    proof->has_salts = true;
    proof->has_others_salts = strcmp(proof->salts.manifest_sha256, proof->sha256) != 0;
    return OK;
}

static enum err read_manifest(struct run_proof *proof, struct error *error) {
    char *text;
    size_t bytes;
    unsigned char sum[SHA256_BYTES];
    struct sha256 hash;
    enum err err = os_read_file(proof->path, MANIFEST_BYTES_MAX, &text, &bytes, error);
    if (err == ERR_LIMIT) err = err_set(error, ERR_CORRUPT, "%s is no manifest", proof->path);
    if (err != OK) return err;
    sha256_init(&hash);
    sha256_add(&hash, text, bytes);
    sha256_end(&hash, sum);
    sha256_hex(sum, proof->sha256);
    err = manifest_read(&proof->manifest, (struct str){text, bytes}, error);
    free(text);
    if (err != OK) return err_prefix(error, "%s", proof->path);
    proof->wants_salts = json_integer_value(json_object_get(proof->manifest.content, "version")) >
                         MANIFEST_VERSION_OF_FILES;
    return OK;
}

enum err run_proof_read(struct run_proof *ret_proof, const struct run_proof_options *options,
                        struct error *error) {
    bool is_output = !is_manifest(options->run);
    *ret_proof = (struct run_proof){.manifest = {.content = NULL}};
    int length =
        snprintf(ret_proof->path, PATH_MAX, is_output ? MANIFEST_NAME : "%s", options->run);
    if (length >= PATH_MAX) return err_set(error, ERR_INVALID, "the name of the run is too long");
    enum err err = check_is_file(is_output ? options->run : ret_proof->path, error);
    if (err == OK) err = check_is_file(ret_proof->path, error);
    if (err == OK) err = read_manifest(ret_proof, error);
    if (err == OK && ret_proof->wants_salts) err = read_salts(ret_proof, error);
    if (err != OK) {
        run_proof_release(ret_proof);
        return err;
    }
    find_files(ret_proof, options, is_output);
    return OK;
}

void run_proof_release(struct run_proof *proof) {
    manifest_release(&proof->manifest);
    if (proof->has_salts) run_salts_release(&proof->salts);
    proof->has_salts = false;
}

bool run_proof_erasing_path(const struct run_proof *proof, char ret_path[PATH_MAX]) {
    char whole[PATH_MAX];
    const char *path = realpath(proof->path, whole) ? whole : proof->path;
    return snprintf(ret_path, PATH_MAX, "%s.erasing", path) < PATH_MAX;
}

bool run_proof_has_erasing(const struct run_proof *proof, char ret_path[PATH_MAX]) {
    char *text;
    size_t bytes;
    json_t *whole;
    struct error ignored;
    struct file_facts facts;
    if (!run_proof_erasing_path(proof, ret_path)) return false;
    enum err err = file_facts_find(ret_path, &facts, &ignored);
    if (err == OK) err = os_read_file(ret_path, ERASING_BYTES_MAX, &text, &bytes, &ignored);
    if (err != OK) return err != ERR_NOT_FOUND;
    err = json_read(&whole, (struct str){text, bytes}, &ignored);
    free(text);
    if (err != OK) return true; /* damaged: whoever ends it says so */
    const char *list = json_string_value(json_object_get(whole, "list"));
    bool has = !list || access(list, F_OK) == 0;
    json_decref(whole);
    return has;
}

static enum err check_one(const char *path, bool is_signed,
                          const unsigned char signer[SSH_PUBLIC_BYTES],
                          const struct run_proof_options *options, struct error *error) {
    char public[SSH_PUBLIC_TEXT_BYTES];
    if (!is_signed) return err_set(error, ERR_CORRUPT, "%s is not signed", path);
    for (size_t i = 0; i < options->trusted_count; i++)
        if (memcmp(options->trusted[i], signer, SSH_PUBLIC_BYTES) == 0) return OK;
    ssh_public_write(signer, public);
    return err_set(error, ERR_CORRUPT,
                   "%s is signed by %s, which is not %s; --public-key names a key to trust", path,
                   public,
                   options->trusted_count ? "a trusted key" : "known: this machine has no key");
}

enum err run_proof_check_signer(const struct run_proof *proof,
                                const struct run_proof_options *options, struct error *error) {
    const struct manifest *manifest = &proof->manifest;
    enum err err = check_one(proof->path, manifest->is_signed, manifest->public, options, error);
    if (err != OK || !proof->has_salts) return err;
    return check_one(proof->salts_path, proof->salts.is_signed, proof->salts.public, options,
                     error);
}
