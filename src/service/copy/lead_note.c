/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/lead_note.h"

#include "base/os.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "copied_as"
#define WORD_BYTES 33 /* a nonce and what separates it */
#define BYTES_MAX (WORD_BYTES * 30)

static void name_file(const char *state_dir, const char *ending, char ret_file[PATH_MAX]) {
    snprintf(ret_file, PATH_MAX, "%.4000s/" NAME "%s", state_dir, ending);
}

bool lead_note_has(const char *state_dir, const char *nonce) {
    char file[PATH_MAX], *text;
    size_t bytes;
    struct error ignored;
    name_file(state_dir, "", file);
    if (os_read_file(file, BYTES_MAX, &text, &bytes, &ignored) != OK) return false;
    bool has = *nonce && strstr(text, nonce) != NULL;
    free(text);
    return has;
}

static enum err write_note(const char *state_dir, const char *text, struct error *error) {
    char file[PATH_MAX], fresh[PATH_MAX];
    name_file(state_dir, "", file);
    name_file(state_dir, ".new", fresh);
    enum err err = os_unlink(fresh, error);
    if (err == OK) err = os_write_file(fresh, 0600, text, strlen(text), error);
    if (err == OK) err = os_rename(fresh, file, error);
    return err == OK ? os_fsync_dir(state_dir, error) : err;
}

enum err lead_note_begin(const char *state_dir, bool goes_on, const char *nonce,
                         struct error *error) {
    char file[PATH_MAX], text[BYTES_MAX + 2 * WORD_BYTES] = "", *old = NULL;
    size_t bytes = 0;
    struct error ignored;
    name_file(state_dir, "", file);
    if (goes_on && os_read_file(file, BYTES_MAX, &old, &bytes, &ignored) == OK) {
        bytes = strcspn(old, "\n");
        memcpy(text, old, bytes);
        if (bytes) text[bytes++] = ' ';
    }
    free(old);
    /* The second one is the oldest that began in vain. */
    if (bytes + WORD_BYTES > BYTES_MAX) {
        memmove(text + WORD_BYTES, text + 2 * (size_t)WORD_BYTES, bytes - 2 * (size_t)WORD_BYTES);
        bytes -= WORD_BYTES;
    }
    snprintf(text + bytes, sizeof text - bytes, "%s\n", nonce);
    return write_note(state_dir, text, error);
}

enum err lead_note_end(const char *state_dir, const char *nonce, struct error *error) {
    char text[BYTES_MAX];
    snprintf(text, sizeof text, "%s\n", nonce);
    return write_note(state_dir, text, error);
}
