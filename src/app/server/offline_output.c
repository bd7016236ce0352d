/* SPDX-License-Identifier: Apache-2.0 */
#include "server/offline_output.h"

#include "base/log.h"
#include "base/whole_file.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define MARK_NAME "user.quern.input"
#define MARK_BYTES_MAX (SHA256_HEX_BYTES + 24) /* the sum, a blank, a count */

static enum err check_input(const char *input, struct stat *ret_status, struct error *error) {
    if (stat(input, ret_status) != 0 || access(input, R_OK) != 0)
        return err_from_errno(error, errno, "cannot read %s", input);
    if (S_ISDIR(ret_status->st_mode))
        return err_set(error, ERR_INVALID, "cannot read %s: it is a directory", input);
    return OK;
}

/* The directory in which the output and the folder of an unfinished run are made. */
static enum err check_parent(const char *output, struct error *error) {
    char parent[PATH_MAX];
    struct stat status;
    if (snprintf(parent, sizeof parent, "%s", output) >= (int)sizeof parent)
        return err_set(error, ERR_INVALID, "the name of the output file is too long");
    char *slash = strrchr(parent, '/');
    if (!slash)
        snprintf(parent, sizeof parent, ".");
    else
        slash[slash == parent] = '\0';
    if (stat(parent, &status) != 0)
        return err_set(error, ERR_INVALID, "cannot write %s: the directory %s: %s", output, parent,
                       strerror(errno));
    if (!S_ISDIR(status.st_mode))
        return err_set(error, ERR_INVALID, "cannot write %s: %s is no directory", output, parent);
    if (access(parent, W_OK | X_OK) != 0)
        return err_set(error, ERR_INVALID, "cannot write %s: the directory %s: %s", output, parent,
                       strerror(errno));
    return OK;
}

/* True if the mark of `output` names this input. */
static bool is_result_of(const char *output, const struct offline_input *input,
                         uint64_t *ret_failed) {
    char mark[MARK_BYTES_MAX + 1], hex[SHA256_HEX_BYTES];
    unsigned char requests[SHA256_BYTES], digest[SHA256_BYTES];
    struct error ignored;
    ssize_t bytes = getxattr(output, MARK_NAME, mark, MARK_BYTES_MAX);
    if (bytes <= SHA256_HEX_BYTES || offline_input_sha256(input, requests, &ignored) != OK)
        return false;
    mark[bytes] = '\0';
    offline_input_mark(input, requests, digest);
    sha256_hex(digest, hex);
    return strncmp(mark, hex, SHA256_HEX_BYTES - 1) == 0 &&
           sscanf(mark + SHA256_HEX_BYTES - 1, " %" SCNu64, ret_failed) == 1;
}

static bool is_same_file(const char *one, const char *other) {
    struct stat first, second;
    return stat(one, &first) == 0 && stat(other, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

bool offline_output_is_own(const struct offline_input *input, const char *output,
                           const char *made) {
    uint64_t ignored;
    return is_same_file(output, made) || is_result_of(output, input, &ignored);
}

enum err offline_output_came(const char *output, struct error *error) {
    return err_set(error, ERR_CONFLICT,
                   "%s was made by another program while this run was under way; all results are "
                   "kept: move that file away and give the same command again, or --overwrite it",
                   output);
}

enum err offline_output_check(const struct offline_input *input, const char *output,
                              const char *folder, bool overwrite, struct offline_found *ret_found,
                              struct error *error) {
    char made[PATH_MAX];
    struct stat in, link, ignored;
    struct offline_found found = {false, 0};
    bool exists = false;
    enum err err = check_input(input->path, &in, error);
    if (err == OK) err = check_parent(output, error);
    if (err != OK) return err;
    if (lstat(folder, &link) == 0 && S_ISLNK(link.st_mode))
        return err_set(error, ERR_INVALID, "%s is a link, which quern does not follow here",
                       folder);
    if (*output && is_same_file(input->path, output))
        return err_set(error, ERR_INVALID, "-o %s is the input itself; name another file", output);
    err = whole_file_check(output, &exists, error);
    if (err != OK) return err;
    if (exists) {
        snprintf(made, sizeof made, OFFLINE_OUTPUT_MADE, PATH_MAX - 16, folder);
        bool has_folder = stat(folder, &ignored) == 0;
        found.is_finished = !overwrite && !has_folder && is_result_of(output, input, &found.failed);
        if (!overwrite && !found.is_finished && !offline_output_is_own(input, output, made))
            return err_set(error, ERR_CONFLICT,
                           "%s exists and is not known as the result of %s; name another file, or "
                           "--overwrite it",
                           output, input->path);
    }
    *ret_found = found;
    return OK;
}

void offline_output_mark(int fd, const struct offline_input *input,
                         const unsigned char requests_sha256[SHA256_BYTES], uint64_t failed) {
    char mark[MARK_BYTES_MAX], hex[SHA256_HEX_BYTES];
    unsigned char digest[SHA256_BYTES];
    offline_input_mark(input, requests_sha256, digest);
    sha256_hex(digest, hex);
    int bytes = snprintf(mark, sizeof mark, "%s %" PRIu64, hex, failed);
    if (fsetxattr(fd, MARK_NAME, mark, (size_t)bytes, 0) != 0)
        log_debug("event=output_not_marked error=\"%s\"", strerror(errno));
}
