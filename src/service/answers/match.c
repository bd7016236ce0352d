/* SPDX-License-Identifier: Apache-2.0 */

/* Lines by their custom_id, in one run and in two. */

#include "answers/answers_internal.h"

uint32_t answers_find_line(struct answers_index *index, struct str custom_id) {
    uint32_t line = ANSWERS_NO_LINE;
    pthread_rwlock_rdlock(&index->rows);
    if (index->has_table) line = table_find_id(&index->table, custom_id);
    pthread_rwlock_unlock(&index->rows);
    return line;
}

/* Locks the rows of two indexes for reading, the one at the lower address first: POSIX lets a
 * reader wait for a writer that waits, and so two readers in opposite orders for each other. */
static void lock_both(struct answers_index *one, struct answers_index *other) {
    bool is_first = (uintptr_t)one < (uintptr_t)other;
    pthread_rwlock_rdlock(is_first ? &one->rows : &other->rows);
    pthread_rwlock_rdlock(is_first ? &other->rows : &one->rows);
}

static void unlock_both(struct answers_index *one, struct answers_index *other) {
    pthread_rwlock_unlock(&one->rows);
    pthread_rwlock_unlock(&other->rows);
}

uint32_t answers_match(struct answers_index *index, uint32_t line, struct answers_index *with) {
    uint32_t found = ANSWERS_NO_LINE;
    if (index == with) return line;
    lock_both(index, with);
    if (index->has_table && with->has_table && line < index->table.row_count &&
        index->table.sequences[line])
        found = table_match_id(&index->table, &with->table, line);
    unlock_both(index, with);
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
    lock_both(index, with);
    if (index->has_table && with->has_table)
        mark_different(&index->table, &with->table, marks, count);
    unlock_both(index, with);
}
