/* SPDX-License-Identifier: Apache-2.0 */
#include "server/offline_table.h"

#include "base/os.h"

#define PIECE_BYTES ((size_t)256 << 10)

enum err offline_table_open(struct offline_table *ret_table, const struct table_answers_form *form,
                            const char *rest_path, struct error *error) {
    *ret_table = (struct offline_table){.rest_fd = -1};
    enum err err = os_create(&ret_table->rest_fd, rest_path, 0644, error);
    if (err != OK) {
        ret_table->rest_fd = -1;
        return err;
    }
    buf_init(&ret_table->rest, BUF_UNLIMITED);
    ret_table->answers = table_answers_open(form);
    return OK;
}

static enum err flush(struct offline_table *table, size_t least, struct error *error) {
    if (table->rest.bytes < least || table->rest.bytes == 0) return OK;
    enum err err = os_write_all(table->rest_fd, table->rest.at, table->rest.bytes, error);
    buf_clear(&table->rest);
    return err;
}

enum err offline_table_write(void *context, struct str request, struct str result, struct buf *out,
                             struct error *error) {
    struct offline_table *table = context;
    enum err err = table_answers_write(table->answers, request, result, out, error);
    if (err != OK || table_answers_showed_all(table->answers)) return err;
    table->rest_lines++;
    buf_add_str(&table->rest, result);
    buf_add_byte(&table->rest, '\n');
    return flush(table, PIECE_BYTES, error);
}

enum err offline_table_finish(struct offline_table *table, struct error *error) {
    enum err err = flush(table, 0, error);
    return err == OK && table->rest_lines > 0 ? os_fsync(table->rest_fd, error) : err;
}

void offline_table_close(struct offline_table *table) {
    table_answers_close(table->answers);
    os_close(table->rest_fd);
    buf_release(&table->rest);
    *table = (struct offline_table){.rest_fd = -1};
}
