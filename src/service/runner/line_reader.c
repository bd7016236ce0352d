/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/line_reader.h"

#include "base/crc.h"
#include "base/log.h"
#include "base/os.h"
#include "runner/runner_internal.h"

#define LINE_BYTES_KEPT ((size_t)1 << 20) /* a larger line buffer is released after its line */

void line_reader_init(struct line_reader *reader, struct runner *runner) {
    *reader = (struct line_reader){.runner = runner};
    buf_init(&reader->line, (size_t)BATCH_LINE_BYTES_MAX + 1);
}

void line_reader_release(struct line_reader *reader) {
    inputs_close(&reader->inputs);
    buf_release(&reader->line);
}

enum err line_reader_read(struct line_reader *reader, struct active_batch *batch, uint32_t number,
                          struct batch_line *ret_line, struct error *error) {
    struct index_entry entry = index_entry(batch->index, number);
    if (reader->line.capacity > LINE_BYTES_KEPT && entry.bytes < LINE_BYTES_KEPT) {
        buf_release(&reader->line);
        buf_init(&reader->line, (size_t)BATCH_LINE_BYTES_MAX + 1);
    }
    buf_clear(&reader->line);
    char *room = buf_reserve(&reader->line, entry.bytes);
    if (!room) return err_set(error, ERR_CORRUPT, "a line of %u bytes", entry.bytes);
    int fd;
    enum err err = inputs_find(&reader->inputs, reader->runner->store, &batch->row, &fd, error);
    if (err == OK) err = os_pread_all(fd, room, entry.bytes, entry.offset, error);
    if (err == ERR_NOT_FOUND || err == ERR_CORRUPT)
        return err_set(error, ERR_CORRUPT, "the input is gone or cut");
    if (err != OK) {
        log_warn("batch=%s request=%u error=\"%s\", retrying", batch->row.id, number, error->text);
        return err;
    }
    struct str text = {room, entry.bytes};
    bool is_good = crc32c(0, text.at, text.bytes) == entry.crc &&
                   batch_line_read(text, ret_line) == BATCH_LINE_READ && ret_line->custom_id.at &&
                   ret_line->body.at && *ret_line->custom_id.at == '"' &&
                   batch_line_endpoint(ret_line, &ret_line->endpoint) &&
                   (!ret_line->model.at || *ret_line->model.at == '"' ||
                    ret_line->endpoint == ENDPOINT_MESSAGES);
    return is_good ? OK : err_set(error, ERR_CORRUPT, "not the line that was validated");
}
