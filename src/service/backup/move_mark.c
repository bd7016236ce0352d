/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/move_mark.h"

#include "backup/regular.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/os.h"
#include "base/whole_file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARK_BYTES_MAX (PATH_MAX + 512)
#define HOST_BYTES 256 /* POSIX's limit of a host's name, with its NUL */

void move_token_draw(char ret_token[MOVE_TOKEN_BYTES]) {
    id_hex(ret_token, MOVE_TOKEN_BYTES, "", MOVE_TOKEN_BYTES - 1);
}

enum err move_mark_read(const struct backup_folder *folder, struct move_mark *ret_mark,
                        struct error *error) {
    char file[BACKUP_FILE_BYTES], *text = NULL;
    size_t bytes = 0;
    *ret_mark = (struct move_mark){0};
    if (folder->restored == 0) return OK;
    backup_move_file(folder, folder->restored, file);
    enum err err = regular_read(folder->dir, file, MARK_BYTES_MAX, &text, &bytes, error);
    if (err != OK) return err;
    struct str line = str_trim((struct str){text, bytes});
    if (line.bytes > MOVE_TOKEN_BYTES && line.at[MOVE_TOKEN_BYTES - 1] == ' ') {
        struct str place = str_skip(line, MOVE_TOKEN_BYTES);
        ret_mark->generation = folder->restored;
        memcpy(ret_mark->token, line.at, MOVE_TOKEN_BYTES - 1);
        snprintf(ret_mark->place, sizeof ret_mark->place, "%.*s", STR_ARGS(place));
    } else {
        err = err_set(error, ERR_CORRUPT, "%s does not say where the batches were restored", file);
    }
    free(text);
    return err;
}

enum err move_mark_write(const struct backup_folder *folder, uint64_t generation,
                         const char token[MOVE_TOKEN_BYTES], const char *state_dir,
                         bool may_replace, struct error *error) {
    char file[BACKUP_FILE_BYTES], dir[PATH_MAX], host[HOST_BYTES], when[BACKUP_TIME_BYTES];
    char text[MARK_BYTES_MAX], made[BACKUP_FILE_BYTES + MOVE_TOKEN_BYTES + 8];
    struct error ignored;
    if (!realpath(state_dir, dir)) snprintf(dir, sizeof dir, "%s", state_dir);
    if (gethostname(host, sizeof host) != 0) snprintf(host, sizeof host, "(unknown)");
    host[sizeof host - 1] = '\0';
    backup_time_text(clock_unix_s(), when);
    int bytes = snprintf(text, sizeof text, "%s %s on host %s into %s\n", token, when, host, dir);
    backup_move_file(folder, generation, file);
    /* A PID would not tell two drafts apart: two restores in containers may have the same one. */
    snprintf(made, sizeof made, "%s.%s.tmp", file, token);
    enum err err = os_write_file(made, 0666, text, (size_t)bytes, error);
    if (err == OK) err = whole_file_place(made, file, may_replace, error);
    (void)!os_unlink(made, &ignored);
    return err;
}

bool move_mark_is_possible(const struct backup_folder *folder) {
    char file[BACKUP_FILE_BYTES];
    backup_move_file(folder, 1, file);
    *strrchr(file, '/') = '\0';
    return access(file, W_OK | X_OK) == 0;
}
