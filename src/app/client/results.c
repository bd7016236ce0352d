/* SPDX-License-Identifier: Apache-2.0 */
#include "client/results.h"

#include "base/hash.h"
#include "base/os.h"
#include "json/json.h"

#include <inttypes.h>
#include <string.h>

#define PATH_BYTES (64 + 3 * OBJECT_FILE_ID_BYTES) /* each byte of an id may be %XX */
#define PIECE_BYTES ((size_t)64 << 10)

/* The reading of one file, over all connections that it takes. */
struct reading {
    results_line_fn take;
    void *context;
    enum results_kind kind;
    uint64_t at;    /* bytes of the file that have been read */
    uint64_t skip;  /* bytes that a server without ranges sends once more */
    bool is_new;    /* no byte of the current connection has come */
    bool is_summed; /* it began at the first byte, and `hash` has all that was read */
    struct sha256 hash;
    struct buf part; /* the beginning of a line whose end has not come */
    enum err err;
    struct error *error;
    struct remote *remote;
};

static bool fail(struct reading *reading, enum err err) {
    reading->err = err;
    return false;
}

static bool take_line(struct reading *reading, struct str line) {
    enum err err = reading->take(reading->context, line, reading->kind, reading->error);
    return err == OK || fail(reading, err);
}

/* Takes the lines that end in the piece, and keeps the rest. */
static bool take_piece(struct reading *reading, struct str piece) {
    for (size_t end; (end = str_find_byte(piece, '\n', 0)) != SIZE_MAX;) {
        struct str line = {piece.at, end};
        if (reading->part.bytes > 0) {
            buf_add_str(&reading->part, line);
            line = buf_str(&reading->part);
        }
        if (reading->part.overflowed) break;
        if (!take_line(reading, line)) return false;
        buf_clear(&reading->part);
        piece = str_skip(piece, end + 1);
    }
    buf_add_str(&reading->part, piece);
    if (!reading->part.overflowed) return true;
    return fail(reading,
                err_set(reading->error, ERR_LIMIT, "the server sent a line of more than %zu MiB",
                        RESULTS_LINE_BYTES_MAX >> 20));
}

static bool on_bytes(void *context, struct str piece) {
    struct reading *reading = context;
    if (reading->is_new && remote_status(reading->remote) != 206) reading->skip = reading->at;
    reading->is_new = false;
    if (reading->skip >= piece.bytes) {
        reading->skip -= piece.bytes;
        return true;
    }
    piece = str_skip(piece, (size_t)reading->skip);
    reading->skip = 0;
    reading->at += piece.bytes;
    if (reading->is_summed) sha256_add(&reading->hash, piece.at, piece.bytes);
    return take_piece(reading, piece);
}

static void reading_init(struct reading *reading, struct remote *remote, results_line_fn take,
                         void *context, enum results_kind kind, struct error *error) {
    *reading = (struct reading){
        .take = take, .context = context, .kind = kind, .error = error, .remote = remote};
    buf_init(&reading->part, RESULTS_LINE_BYTES_MAX);
    sha256_init(&reading->hash);
}

/* Compares the bytes of a whole file with the sum that the server gave as its ETag. */
static enum err compare_sum(struct reading *reading, const struct remote_answer *answer,
                            const char *file_id, struct error *error) {
    unsigned char digest[SHA256_BYTES];
    char hex[SHA256_HEX_BYTES];
    if (!reading->is_summed || !*answer->sha256_hex) return OK;
    sha256_end(&reading->hash, digest);
    sha256_hex(digest, hex);
    if (strcmp(hex, answer->sha256_hex) == 0) return OK;
    return err_set(
        error, ERR_CORRUPT,
        "the bytes of %.100s are not those that the server stored: they have the SHA-256 "
        "%s, and its ETag is %s",
        file_id, hex, answer->sha256_hex);
}

/* Takes a last line that has no LF. */
static enum err take_last(struct reading *reading) {
    if (reading->part.bytes > 0) (void)take_line(reading, buf_str(&reading->part));
    buf_clear(&reading->part);
    return reading->err;
}

/* Reads the path from reading->at to its end, over as many connections as it takes. `bytes` is its
 * whole size (0: not known). */
static enum err read_path(struct reading *reading, const char *path, uint64_t bytes,
                          struct remote_answer *ret_answer, struct error *error) {
    struct remote_call call = {.path = path, .bytes = on_bytes, .context = reading};
    for (;;) {
        bool has_range = reading->at > 0 && bytes > reading->at;
        call.range_from = has_range ? reading->at : 0;
        call.range_to = has_range ? bytes : 0;
        reading->is_new = true;
        reading->skip = 0;
        enum err err = remote_try(reading->remote, &call, ret_answer, error);
        if (err != OK) return err;
        if (ret_answer->end == REMOTE_STOPPED) return reading->err;
        if (ret_answer->end == REMOTE_REFUSED ||
            (ret_answer->end == REMOTE_ANSWERED && !remote_may_pass(ret_answer)))
            return remote_judge(reading->remote, ret_answer, error);
        err = remote_wait(reading->remote, ret_answer, error);
        if (err != OK) return err;
    }
}

/* --- files --- */

enum err results_file(struct remote *remote, const char *file_id, struct file_object *ret_file,
                      struct error *error) {
    struct buf path;
    json_t *object;
    buf_init(&path, PATH_BYTES);
    buf_add_text(&path, "/files/");
    object_add_id(&path, file_id);
    enum err err = remote_get_json(remote, &(struct remote_call){.path = path.at}, &object, error);
    buf_release(&path);
    if (err != OK) return err;
    err = file_object_read(ret_file, object, error);
    json_decref(object);
    return err;
}

enum err results_file_bytes(struct remote *remote, const char *file_id, uint64_t *ret_bytes,
                            struct error *error) {
    struct file_object file;
    enum err err = results_file(remote, file_id, &file, error);
    if (err == OK) *ret_bytes = file.bytes;
    return err;
}

void results_name(struct remote *remote, struct batch_object *batch) {
    struct file_object file;
    struct error ignored;
    if (!*batch->name && *batch->input_file_id &&
        results_file(remote, batch->input_file_id, &file, &ignored) == OK)
        memcpy(batch->name, file.filename, sizeof batch->name);
}

/* Sums the bytes that need not be read again. */
static enum err sum_kept(struct reading *reading, int fd, uint64_t at, uint64_t bytes,
                         struct error *error) {
    char piece[PIECE_BYTES];
    for (uint64_t done = 0; done < bytes;) {
        size_t count = bytes - done < sizeof piece ? (size_t)(bytes - done) : sizeof piece;
        enum err err = os_pread_all(fd, piece, count, at + done, error);
        if (err != OK) return err;
        sha256_add(&reading->hash, piece, count);
        done += count;
    }
    return OK;
}

/* One of the two files of a batch, or another one. */
struct part {
    const char *file_id;
    uint64_t from;
    bool has_kept; /* the bytes before `from` stand in `kept_fd` at `kept_at` */
    int kept_fd;
    uint64_t kept_at;
};

static enum err read_part(struct remote *remote, const struct part *part, enum results_kind kind,
                          results_line_fn take, void *context, struct error *error) {
    struct reading reading;
    struct remote_answer answer;
    struct buf path;
    uint64_t bytes = 0;
    enum err err = results_file_bytes(remote, part->file_id, &bytes, error);
    if (err != OK || (bytes > 0 && part->from >= bytes)) return err;
    reading_init(&reading, remote, take, context, kind, error);
    reading.at = part->from;
    reading.is_summed = part->from == 0 || part->has_kept;
    if (part->has_kept) err = sum_kept(&reading, part->kept_fd, part->kept_at, part->from, error);
    buf_init(&path, PATH_BYTES);
    buf_add_text(&path, "/files/");
    object_add_id(&path, part->file_id);
    buf_add_text(&path, "/content");
    if (err == OK) err = read_path(&reading, path.at, bytes, &answer, error);
    if (err == OK) err = take_last(&reading);
    if (err == OK && bytes > 0 && reading.at != bytes)
        err = err_set(error, ERR_CORRUPT,
                      "the server sent %" PRIu64 " of the %" PRIu64 " bytes of %.100s", reading.at,
                      bytes, part->file_id);
    if (err == OK) err = compare_sum(&reading, &answer, part->file_id, error);
    buf_release(&path);
    buf_release(&reading.part);
    return err;
}

enum err results_read_file(struct remote *remote, const char *file_id, uint64_t from,
                           enum results_kind kind, results_line_fn take, void *context,
                           struct error *error) {
    const struct part part = {.file_id = file_id, .from = from};
    return read_part(remote, &part, kind, take, context, error);
}

enum err results_read(struct remote *remote, const struct batch_object *batch,
                      const struct results_place *from, results_line_fn take, void *context,
                      struct error *error) {
    const struct part output = {batch->output_file_id, from->output_bytes, from->has_kept,
                                from->kept_fd, 0};
    const struct part errors = {batch->error_file_id, from->error_bytes, from->has_kept,
                                from->kept_fd, from->error_at};
    enum err err = batch_object_check_files(batch, error);
    if (err == OK && *output.file_id)
        err = read_part(remote, &output, RESULTS_OUTPUT, take, context, error);
    if (err == OK && *errors.file_id)
        err = read_part(remote, &errors, RESULTS_ERROR, take, context, error);
    return err;
}

/* --- a batch that runs --- */

enum err results_read_live(struct remote *remote, const struct batch_object *batch,
                           results_line_fn take, void *context, struct error *error) {
    struct remote_answer answer = {.is_incomplete = true};
    struct reading reading;
    struct buf path;
    uint64_t after = 0;
    enum err err = OK;
    if (!batch->is_quern)
        return err_set(error, ERR_CONFLICT,
                       "%.100s is %s, and this server gives results when a batch has ended only; "
                       "`quern watch` waits for that",
                       batch->id, batch->status);
    buf_init(&path, PATH_BYTES);
    for (bool is_over = false; err == OK && !is_over;) {
        reading_init(&reading, remote, take, context, RESULTS_LIVE, error);
        buf_clear(&path);
        buf_add_text(&path, "/batches/");
        object_add_id(&path, batch->id);
        buf_printf(&path, "/results?after=%" PRIu64, after);
        err = read_path(&reading, path.at, 0, &answer, error);
        if (err == OK) err = take_last(&reading);
        is_over = !answer.is_incomplete || !answer.has_last_line || answer.last_line <= after;
        after = answer.last_line;
        buf_release(&reading.part);
    }
    buf_release(&path);
    return err;
}
