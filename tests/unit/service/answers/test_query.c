/* SPDX-License-Identifier: Apache-2.0 */
#include "answers/query.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS 500
#define COLUMNS 3

static const unsigned char key[16] = "a key of 16 byte";

/* --- a plain reference: cells as they were put --- */

struct plain {
    enum cell_kind kind;
    double number;
    char text[120];
};

struct world {
    struct table table;
    bool has_row[ROWS];
    struct plain cells[ROWS][COLUMNS];
    uint64_t draws;
};

static uint32_t draw(struct world *world, uint32_t bound) {
    return (uint32_t)(rng_unit_at(42, world->draws++) * bound);
}

static void draw_cell(struct world *world, struct plain *cell) {
    static const char *const words[] = {"", "hire", "HIRE", "no hire", "\xC3\xA4", "zz", "7"};
    *cell = (struct plain){0};
    switch (draw(world, 6)) {
    case 0: break;
    case 1:
    case 2:
        cell->kind = CELL_NUMBER;
        cell->number = draw(world, 2) ? draw(world, 10) : (double)draw(world, 1000) / 7 - 50;
        break;
    case 3:
        cell->kind = CELL_BOOL;
        cell->number = draw(world, 2);
        break;
    case 4:
        cell->kind = CELL_TEXT;
        snprintf(cell->text, sizeof cell->text, "%s", words[draw(world, 7)]);
        break;
    default:
        cell->kind = CELL_LONG;
        memset(cell->text, 'a' + (int)draw(world, 2), TABLE_TEXT_BYTES + 1);
    }
}

static void fill(struct world *world) {
    static const char *const names[COLUMNS] = {"a", "b.c", "d"};
    table_init(&world->table, ROWS, key);
    for (uint32_t row = 0; row < ROWS; row++) {
        world->has_row[row] = draw(world, 10) > 0;
        if (!world->has_row[row]) continue;
        world->table.sequences[row] = row + 1;
        world->table.indexed++;
        for (unsigned i = 0; i < COLUMNS; i++) {
            struct plain *cell = &world->cells[row][i];
            uint32_t column = table_column_of(&world->table, str_from(names[i]), draw(world, 12));
            draw_cell(world, cell);
            if (cell->kind == CELL_NUMBER)
                table_set_number(&world->table, row, column, cell->number);
            else if (cell->kind == CELL_BOOL)
                table_set_bool(&world->table, row, column, cell->number != 0);
            else if (cell->kind != CELL_ABSENT)
                table_set_text(&world->table, row, column, str_from(cell->text));
        }
    }
}

static const struct plain *plain_cell(const struct world *world, uint32_t row, const char *name) {
    static const struct plain absent = {0};
    unsigned column = *name == 'a' ? 0 : *name == 'b' ? 1 : 2;
    return *name == 'x' ? &absent : &world->cells[row][column];
}

static bool holds(enum answers_op op, int order) {
    return (op == ANSWERS_EQ && order == 0) || (op == ANSWERS_NE && order != 0) ||
           (op == ANSWERS_LT && order < 0) || (op == ANSWERS_LE && order <= 0) ||
           (op == ANSWERS_GT && order > 0) || (op == ANSWERS_GE && order >= 0);
}

/* True if the value of a filter is a number. */
static bool plain_number(const char *value, double *ret_number) {
    char *end;
    *ret_number = strtod(value, &end);
    return *value && !*end;
}

static bool plain_fits(const struct plain *cell, const char *value, enum answers_op op) {
    double number;
    bool is_number = plain_number(value, &number);
    if (op == ANSWERS_IS_NULL) return cell->kind == CELL_ABSENT;
    switch (cell->kind) {
    case CELL_ABSENT: return false;
    case CELL_NUMBER:
        if (!is_number) return op == ANSWERS_NE;
        return holds(op, (cell->number > number) - (cell->number < number));
    case CELL_BOOL: {
        bool same = strcmp(value, cell->number != 0 ? "true" : "false") == 0;
        return (op == ANSWERS_EQ && same) || (op == ANSWERS_NE && !same);
    }
    case CELL_TEXT:
        if (op == ANSWERS_HAS) return strcasestr(cell->text, value) != NULL;
        if (is_number && op != ANSWERS_EQ && op != ANSWERS_NE) return false;
        return holds(op, strcmp(cell->text, value));
    default: /* a long text, which may have the value */
        if (op == ANSWERS_HAS) return true;
        if (op != ANSWERS_EQ && op != ANSWERS_NE) return false;
        return (strcmp(cell->text, value) == 0) == (op == ANSWERS_EQ);
    }
}

static int plain_rank(const struct plain *cell) {
    return cell->kind == CELL_NUMBER ? 0
           : cell->kind == CELL_BOOL ? 1
           : cell->kind == CELL_TEXT ? 2
           : cell->kind == CELL_LONG ? 3
                                     : 4;
}

/* True if row a comes before row b. */
static bool plain_before(const struct world *world, uint32_t a, uint32_t b, const char *sort,
                         bool descending) {
    const struct plain *x = plain_cell(world, a, sort), *y = plain_cell(world, b, sort);
    int order = plain_rank(x) - plain_rank(y);
    if (order != 0 && (plain_rank(x) == 4 || plain_rank(y) == 4)) return order < 0;
    if (order == 0 && plain_rank(x) <= 1) order = (x->number > y->number) - (x->number < y->number);
    if (order == 0 && plain_rank(x) == 2) order = strcmp(x->text, y->text);
    if (order != 0) return descending ? order > 0 : order < 0;
    return a < b;
}

/* --- a query by both --- */

struct question {
    struct answers_filter filters[3];
    char values[3][120];
    size_t count;
    const char *sort;
    bool descending;
    size_t limit;
    struct answers_marks marks;
    unsigned char only[ROWS], seen[ROWS]; /* copies of `marks` */
};

static void draw_marks(struct world *world, struct question *question) {
    uint32_t count = draw(world, 2) ? ROWS : draw(world, ROWS);
    for (uint32_t row = 0; row < ROWS; row++) {
        question->only[row] = draw(world, 2) != 0;
        question->seen[row] = draw(world, 3) == 0;
    }
    question->marks = (struct answers_marks){.only = draw(world, 2) ? question->only : NULL,
                                             .seen = draw(world, 2) ? question->seen : NULL,
                                             .shows_seen = draw(world, 3) == 0,
                                             .count = count};
}

static void draw_question(struct world *world, struct question *question) {
    static const char *const names[] = {"a", "b.c", "d", "x"};
    static const char *const values[] = {"hire", "HIRE", "",    "5",  "-3.5",
                                         "true", "zz",   "ire", "1e1"};
    question->count = draw(world, 4);
    for (size_t i = 0; i < question->count; i++) {
        snprintf(question->values[i], sizeof question->values[i], "%s", values[draw(world, 9)]);
        if (draw(world, 8) == 0) {
            memset(question->values[i], 0, sizeof question->values[i]);
            memset(question->values[i], 'a', TABLE_TEXT_BYTES + 1);
        }
        question->filters[i] =
            (struct answers_filter){str_from(names[draw(world, 4)]),
                                    (enum answers_op)draw(world, 8), str_from(question->values[i])};
    }
    question->sort = names[draw(world, 4)];
    question->descending = draw(world, 2) != 0;
    question->limit = 1 + draw(world, 40);
    draw_marks(world, question);
}

/* The counts of a page. */
struct counts {
    uint64_t matched, unseen;
};

/* Finds the rows of all pages, in the order of the question. */
static size_t plain_rows(const struct world *world, const struct question *question,
                         uint32_t ret_rows[ROWS], struct counts *ret_counts) {
    const struct answers_marks *marks = &question->marks;
    size_t count = 0;
    *ret_counts = (struct counts){0};
    for (uint32_t row = 0; row < ROWS; row++) {
        bool is_seen = marks->seen && row < marks->count && marks->seen[row];
        bool fits = world->has_row[row];
        if (marks->only && (row >= marks->count || !marks->only[row])) fits = false;
        for (size_t i = 0; i < question->count && fits; i++)
            fits = plain_fits(plain_cell(world, row, question->filters[i].name.at),
                              question->values[i], question->filters[i].op);
        if (!fits) continue;
        ret_counts->matched++;
        ret_counts->unseen += !is_seen;
        if (is_seen && !marks->shows_seen) continue;
        size_t at = count++;
        for (; at > 0 &&
               plain_before(world, row, ret_rows[at - 1], question->sort, question->descending);
             at--)
            ret_rows[at] = ret_rows[at - 1];
        ret_rows[at] = row;
    }
    return count;
}

/* Finds the same rows by pages, each from the cursor of the page before. */
static size_t paged_rows(struct world *world, const struct question *question,
                         uint32_t ret_rows[ROWS], size_t wanted, const struct counts *counts) {
    struct order order = {.descending = question->descending,
                          .column = table_find_column(&world->table, str_from(question->sort))};
    struct order_key keys[64], after;
    struct first_rows first = {
        .order = &order, .room = question->limit, .keys = keys, .marks = &question->marks};
    struct buf cursor, room;
    size_t count = 0;
    buf_init(&cursor, 1024);
    buf_init(&room, 1024);
    do {
        struct filter filters[3];
        uint64_t steps = UINT64_MAX;
        for (size_t i = 0; i < question->count; i++)
            filter_open(&filters[i], &question->filters[i], &world->table, &steps);
        first_rows_find(&first, &world->table, filters, question->count, count ? &after : NULL);
        for (size_t i = 0; i < question->count; i++) filter_release(&filters[i]);
        assert_int_equal(first.matched, counts->matched);
        assert_int_equal(first.unseen, counts->unseen);
        assert_int_equal(first.behind, wanted - count);
        for (size_t i = 0; i < first.count; i++) ret_rows[count++] = keys[i].line;
        if (first.count == 0) break;
        buf_clear(&cursor);
        cursor_write(&cursor, &order, &keys[first.count - 1]);
        assert_true(cursor_read(buf_str(&cursor), &order, &room, &after));
    } while (first.behind > first.count);
    buf_release(&cursor);
    buf_release(&room);
    return count;
}

static void random_questions_have_the_answers_of_a_plain_reference(void **state) {
    (void)state;
    static struct world world;
    static uint32_t wanted[ROWS], got[ROWS];
    fill(&world);
    for (unsigned i = 0; i < 2000; i++) {
        struct question question = {0};
        draw_question(&world, &question);
        struct counts counts;
        size_t count = plain_rows(&world, &question, wanted, &counts);
        assert_int_equal(paged_rows(&world, &question, got, count, &counts), count);
        assert_memory_equal(got, wanted, count * sizeof *got);
    }
    table_release(&world.table);
}

static void cursors_of_other_orders_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"",
                                      "0",
                                      "x",
                                      "-1",
                                      "1.",
                                      "1.q",
                                      "1.n",
                                      "1.n0",
                                      "1.t0",
                                      "1.tzz",
                                      "1.a0",
                                      "1.l0",
                                      "4294967295",
                                      "1",
                                      "1.n7ff8000000000000",
                                      "1.n7ff0000000000000",
                                      "1.bxxxxxxxxxxxxxxxx"};
    struct order by_line = {.is_line = true}, by_column = {.column = 0};
    struct order_key found;
    struct buf room;
    buf_init(&room, 1024);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(cursor_read(str_from(bad[i]), &by_column, &room, &found));
    assert_true(cursor_read(STR("1"), &by_line, &room, &found));
    assert_false(cursor_read(STR("1.a"), &by_line, &room, &found));
    assert_true(cursor_read(STR("7.n3ff8000000000000"), &by_column, &room, &found));
    assert_int_equal(found.line, 6);
    assert_true(found.number == 1.5);
    assert_true(cursor_read(STR("7.t6162"), &by_column, &room, &found));
    assert_true(str_is(found.text, "ab"));
    buf_release(&room);
}

static void a_table_takes_so_many_columns_and_texts(void **state) {
    (void)state;
    struct table table;
    char name[200];
    table_init(&table, 4, key);
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "field %u", i);
        uint32_t column = table_column_of(&table, str_from(name), 0);
        assert_true((column == TABLE_NO_COLUMN) == (i >= TABLE_COLUMNS_MAX - TABLE_FIXED_COUNT));
    }
    assert_int_equal(table.column_count, TABLE_COLUMNS_MAX);
    assert_int_equal(table.left_out, 1000 - (TABLE_COLUMNS_MAX - TABLE_FIXED_COUNT));
    table_release(&table);
    table_init(&table, 4, key);
    memset(name, 'n', sizeof name);
    name[TABLE_NAME_BYTES + 1] = '\0';
    assert_int_equal(table_column_of(&table, str_from(name), 0), TABLE_NO_COLUMN);
    name[TABLE_NAME_BYTES] = '\0';
    assert_int_equal(table_column_of(&table, str_from(name), 0), TABLE_FIXED_COUNT);
    table_release(&table);
    table_init(&table, 1000000, key); /* takes no pages of memory before rows come */
    assert_int_equal(table.columns_max, TABLE_BYTES_MAX / 8 / 1000000);
    table_release(&table);
}

static void equal_texts_have_one_number(void **state) {
    (void)state;
    struct table table;
    table_init(&table, 100, key);
    for (uint32_t row = 0; row < 100; row++) {
        char id[32];
        snprintf(id, sizeof id, "c-%u", row);
        table_set_text(&table, row, TABLE_OUTCOME, STR("c-1")); /* the same text elsewhere */
        table_set_text(&table, row, TABLE_CUSTOM_ID, str_from(id));
    }
    for (uint32_t row = 0; row < 100; row++) {
        char id[32];
        snprintf(id, sizeof id, "c-%u", row);
        uint64_t cell = table.columns[TABLE_CUSTOM_ID].cells[row];
        assert_int_equal(table_find_text(&table, str_from(id)), table_payload(cell));
    }
    assert_int_equal(table_find_text(&table, STR("c-100")), 0);
    table_release(&table);
}

/* Gives the table the rows of a run: row i has the custom_id of number `numbers[i]`. */
static void fill_ids(struct table *table, const uint32_t *numbers, uint32_t count) {
    char id[200];
    table_init(table, count, key);
    for (uint32_t row = 0; row < count; row++) {
        /* Every third one is longer than the texts that are kept. */
        int zeros = numbers[row] % 3 == 0 ? TABLE_TEXT_BYTES + 1 : 1;
        snprintf(id, sizeof id, "c-%0*u", zeros, numbers[row]);
        table_set_text(table, row, TABLE_CUSTOM_ID, str_from(id));
        table->sequences[row] = row + 1;
        table_note_id(table, row);
        assert_int_equal(table_find_id(table, str_from(id)), row);
    }
}

static void rows_of_two_runs_match_by_their_custom_ids(void **state) {
    (void)state;
    static uint32_t same[ROWS], turned[ROWS];
    struct table one, two, three;
    for (uint32_t i = 0; i < ROWS; i++) {
        same[i] = i;
        turned[i] = ROWS + 9 - i; /* ten numbers that the first run has not */
    }
    fill_ids(&one, same, ROWS);
    fill_ids(&two, turned, ROWS);
    fill_ids(&three, same, ROWS / 2);
    for (uint32_t row = 0; row < ROWS; row++) {
        uint32_t wanted = row < 10 ? TABLE_NO_ROW : ROWS + 9 - row;
        assert_int_equal(table_match_id(&one, &two, row), wanted);
        assert_int_equal(table_match_id(&one, &three, row), row < ROWS / 2 ? row : TABLE_NO_ROW);
        assert_int_equal(table_match_id(&one, &one, row), row);
    }
    assert_int_equal(table_find_id(&one, STR("c-x")), TABLE_NO_ROW);
    assert_int_equal(table_find_id(&one, STR("")), TABLE_NO_ROW);
    table_release(&one);
    table_release(&two);
    table_release(&three);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_two_runs_match_by_their_custom_ids),
        cmocka_unit_test(random_questions_have_the_answers_of_a_plain_reference),
        cmocka_unit_test(cursors_of_other_orders_are_refused),
        cmocka_unit_test(a_table_takes_so_many_columns_and_texts),
        cmocka_unit_test(equal_texts_have_one_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
