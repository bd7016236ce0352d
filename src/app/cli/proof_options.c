/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/proof_options.h"

#include "base/os.h"
#include "cli/manifest_options.h"
#include "proof/signing_key.h"

#include <stdlib.h>
#include <string.h>

#define KEY_FILE_BYTES_MAX ((size_t)16384)

#define AT(field) offsetof(struct proof_choice, field)
const struct option proof_option_rows[] = {
    {"input", OPTION_TEXT, AT(options.input), "IN",
     .help = "input of the run (default: where its manifest says)", .only_flag = true},
    {"output", OPTION_TEXT, AT(options.output), "OUT",
     .help = "output of the run (default: next to its manifest)", .only_flag = true},
    {"public-key", OPTION_LIST, AT(public_keys), "KEY",
     .help = "key whose signature counts, 'ssh-ed25519 AAAA…' or a file of it, besides this "
             "machine's; repeatable"},
    {"signing-key", OPTION_TEXT, AT(signing_key), "FILE",
     .help = "this machine's key (default: signing_key in the state directory of `quern serve`)"},
    {0},
};

static enum err read_public(struct proof_choice *choice, const char *text, struct error *error) {
    char *from_file = NULL;
    size_t bytes = 0;
    struct run_proof_options *options = &choice->options;
    if (options->trusted_count == RUN_PROOF_KEYS_MAX)
        return err_set(error, ERR_INVALID, "--public-key: at most %d keys", RUN_PROOF_KEYS_MAX - 1);
    bool is_key = strncmp(text, SSH_KIND " ", strlen(SSH_KIND) + 1) == 0;
    enum err err = is_key ? OK : os_read_file(text, KEY_FILE_BYTES_MAX, &from_file, &bytes, error);
    if (err == OK)
        err = ssh_public_read(options->trusted[options->trusted_count],
                              from_file ? (struct str){from_file, bytes} : str_from(text), error);
    free(from_file);
    if (err != OK) return err_prefix(error, "--public-key %.100s", text);
    options->trusted_count++;
    return OK;
}

enum err proof_options_check(struct proof_choice *choice, const char *run, struct error *error) {
    struct run_proof_options *options = &choice->options;
    struct ssh_key key;
    enum err err = OK;
    if (!run) return err_set(error, ERR_INVALID, "the output of a run is missing, or its manifest");
    options->run = run;
    manifest_key_usual(choice->signing_key_usual);
    const char *path = choice->signing_key ? choice->signing_key : choice->signing_key_usual;
    if (*path) err = signing_key_read(&key, path, error);
    if (err == OK && *path) {
        memcpy(options->trusted[options->trusted_count++], key.public, SSH_PUBLIC_BYTES);
        ssh_key_wipe(&key);
    }
    if (err != OK && (err != ERR_NOT_FOUND || choice->signing_key)) return err;
    err = OK;
    for (size_t i = 0; i < choice->public_keys.count && err == OK; i++)
        err = read_public(choice, choice->public_keys.values[i], error);
    return err;
}
