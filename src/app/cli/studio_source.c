/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/studio_source.h"

#include "base/buf.h"
#include "base/os.h"
#include "base/str.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PATIENCE_MS (60 * 1000)
#define JUDGEMENTS_BYTES_MAX ((size_t)4 << 30)

enum err studio_source_url(const char *given, char ret_url[REMOTE_URL_BYTES], struct error *error) {
    const char *text = given ? given : getenv("LABEL_STUDIO_URL");
    const char *origin = given ? "--label-studio-url" : "LABEL_STUDIO_URL";
    if (!text || !*text)
        return err_set(error, ERR_INVALID, "--label-studio-url or LABEL_STUDIO_URL is missing");
    return remote_place_read_root(text, origin, ret_url, error);
}

enum err studio_source_token(const char *file, struct secret *ret_token, struct error *error) {
    const struct secret_variables none = {0};
    enum err err = secret_read(ret_token,
                               &(struct secret_place){.path = file,
                                                      .variable = "LABEL_STUDIO_API_KEY",
                                                      .credential = "label-studio-api-key"},
                               &none, error);
    if (err == OK) err = remote_place_trim_key(ret_token, error);
    if (err == OK && !ret_token->text)
        err = err_set(error, ERR_DENIED,
                      "no token: its file goes into LABEL_STUDIO_API_KEY_FILE or "
                      "--label-studio-token-file, or the token into LABEL_STUDIO_API_KEY");
    return err;
}

enum err studio_source_read(const struct studio_options *options, const struct history_wish *wish,
                            struct buf *out, struct history_report *ret_report,
                            struct error *error) {
    struct studio *studio;
    enum err err = studio_open(&studio, options, error);
    if (err != OK) return err;
    err = history_run(studio, wish, out, ret_report, error);
    studio_close(studio);
    return err;
}

int64_t studio_source_project(const char *text) {
    const struct str head = STR("label-studio:"), whole = str_from(text ? text : "");
    int64_t project = 0;
    if (!str_starts_with(whole, head)) return 0;
    return str_to_i64(str_skip(whole, head.bytes), &project) && project > 0 ? project : 0;
}

static enum err place(struct str text, int *ret_fd, struct error *error) {
    int fd = memfd_create("judgements", MFD_CLOEXEC);
    if (fd < 0) return err_from_errno(error, errno, "cannot make a file of judgements");
    enum err err = os_write_all(fd, text.at, text.bytes, error);
    if (err == OK)
        *ret_fd = fd;
    else
        os_close(fd);
    return err;
}

enum err studio_source_open(const struct history_wish *wish, const volatile bool *stop, int *ret_fd,
                            struct error *error) {
    char url[REMOTE_URL_BYTES];
    struct secret token = {0};
    struct history_report report;
    struct buf out;
    buf_init(&out, JUDGEMENTS_BYTES_MAX);
    enum err err = studio_source_url(NULL, url, error);
    if (err == OK) err = studio_source_token(NULL, &token, error);
    const struct studio_options options = {
        .url = url, .token = token.text, .patience_ms = PATIENCE_MS, .stop = stop};
    if (err == OK) err = studio_source_read(&options, wish, &out, &report, error);
    if (err == OK) err = place(buf_str(&out), ret_fd, error);
    secret_release(&token);
    buf_release(&out);
    return err;
}
