/* SPDX-License-Identifier: Apache-2.0 */

/* Lines by their custom_id, in one run and in two. Two indexes are locked for reading at once,
 * which cannot deadlock: a reader waits for no reader, and the one writer holds one lock at a
 * time. */

#include "answers/answers_internal.h"

uint32_t answers_find_line(struct answers_index *index, struct str custom_id) {
    uint32_t line = ANSWERS_NO_LINE;
    pthread_rwlock_rdlock(&index->rows);
    if (index->has_table) line = table_find_id(&index->table, custom_id);
    pthread_rwlock_unlock(&index->rows);
    return line;
}

uint32_t answers_match(struct answers_index *index, uint32_t line, struct answers_index *with) {
    uint32_t found = ANSWERS_NO_LINE;
    if (index == with) return line;
    pthread_rwlock_rdlock(&index->rows);
    pthread_rwlock_rdlock(&with->rows);
    if (index->has_table && with->has_table && line < index->table.row_count &&
        index->table.sequences[line])
        found = table_match_id(&index->table, &with->table, line);
    pthread_rwlock_unlock(&with->rows);
    pthread_rwlock_unlock(&index->rows);
    return found;
}

static void mark_different(const struct table *table, const struct table *other,
                           unsigned char *marks, uint32_t count) {
    if (table->row_count < count) count = table->row_count;
    for (uint32_t row = 0; row < count; row++) {
        if (!table->sequences[row]) continue;
        uint32_t match = table_match_id(table, other, row);
        if (match != TABLE_NO_ROW) marks[row] = table->labels[row] != other->labels[match];
    }
}

void answers_mark_different(struct answers_index *index, struct answers_index *with,
                            unsigned char *marks, uint32_t count) {
    if (index == with) return;
    pthread_rwlock_rdlock(&index->rows);
    pthread_rwlock_rdlock(&with->rows);
    if (index->has_table && with->has_table)
        mark_different(&index->table, &with->table, marks, count);
    pthread_rwlock_unlock(&with->rows);
    pthread_rwlock_unlock(&index->rows);
}
