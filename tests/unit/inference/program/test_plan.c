/* SPDX-License-Identifier: Apache-2.0 */
#include "program/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ROWS 48u

struct rig {
    uint32_t slots[2][ROWS];
    struct attention_item items[2][ROWS];
    struct plan plan;
    uint32_t positions[ROWS];
    struct step_sequence sequences[2];
    struct step step;
};

/* Pages of two groups, 4 blocks each. */
static const uint32_t first_pages[8] = {5, 6, 7, 8, 15, 16, 17, 18};
static const uint32_t second_pages[8] = {5, 9, 0, 0, 15, 19, 0, 0};

/* A prompt's rows 10..49, and the one row of a sequence at position 20. */
static void open_rig(struct rig *rig) {
    *rig = (struct rig){
        .plan = {.page_count = 20, .is_causal = true, .group_count = 2},
        .sequences = {{.row_count = 40, .kv_tokens = 10, .page_stride = 4, .pages = first_pages},
                      {.row_first = 40,
                       .row_count = 1,
                       .kv_tokens = 20,
                       .page_stride = 4,
                       .pages = second_pages}},
    };
    for (uint32_t i = 0; i < 2; i++) {
        rig->plan.groups[i].slots = rig->slots[i];
        rig->plan.groups[i].items = rig->items[i];
    }
    for (uint32_t i = 0; i < 40; i++) rig->positions[i] = 10 + i;
    rig->positions[40] = 20;
    rig->step = (struct step){.row_count = 41,
                              .sequence_count = 2,
                              .positions = rig->positions,
                              .sequences = rig->sequences};
}

static void expect_item(const struct attention_item *item, uint32_t row, uint32_t count,
                        uint32_t position, const uint32_t *blocks) {
    assert_int_equal(item->row, row);
    assert_int_equal(item->row_count, count);
    assert_int_equal(item->position, position);
    assert_int_equal(item->key_count, position + count);
    assert_ptr_equal(item->blocks, blocks);
}

static void rows_get_the_slots_of_their_positions_in_every_group(void **state) {
    (void)state;
    struct rig rig;
    open_rig(&rig);
    plan_step(&rig.plan, &rig.step);
    assert_int_equal(rig.slots[0][0], 5 * 16 + 10);
    assert_int_equal(rig.slots[0][6], 6 * 16);
    assert_int_equal(rig.slots[0][39], 8 * 16 + 1);
    assert_int_equal(rig.slots[0][40], 9 * 16 + 4);
    assert_int_equal(rig.slots[1][6], 16 * 16);
    assert_int_equal(rig.slots[1][40], 19 * 16 + 4);
}

static void items_are_runs_of_one_sequence(void **state) {
    (void)state;
    struct rig rig;
    open_rig(&rig);
    plan_step(&rig.plan, &rig.step);
    assert_int_equal(rig.plan.item_count, 3);
    expect_item(&rig.items[0][0], 0, 32, 10, first_pages);
    expect_item(&rig.items[0][1], 32, 8, 42, first_pages);
    expect_item(&rig.items[0][2], 40, 1, 20, second_pages);
    expect_item(&rig.items[1][2], 40, 1, 20, second_pages + 4);
}

static void kept_rows_become_items_of_their_own(void **state) {
    (void)state;
    struct rig rig;
    open_rig(&rig);
    plan_step(&rig.plan, &rig.step);
    plan_keep(&rig.plan, &rig.step, (const uint32_t[]){3, 39, 40}, 3);
    assert_int_equal(rig.plan.item_count, 3);
    expect_item(&rig.items[0][0], 0, 1, 13, first_pages);
    expect_item(&rig.items[0][1], 1, 1, 49, first_pages);
    expect_item(&rig.items[1][2], 2, 1, 20, second_pages + 4);
    plan_keep(&rig.plan, &rig.step, NULL, 0);
    assert_int_equal(rig.plan.item_count, 0);
}

static void without_a_mask_an_item_reads_its_whole_sequence(void **state) {
    (void)state;
    struct rig rig;
    open_rig(&rig);
    rig.plan.is_causal = false;
    rig.sequences[0].kv_tokens = 0;
    for (uint32_t i = 0; i < 40; i++) rig.positions[i] = i;
    rig.step.row_count = 40;
    rig.step.sequence_count = 1;
    plan_step(&rig.plan, &rig.step);
    assert_int_equal(rig.plan.item_count, 2);
    assert_int_equal(rig.items[0][0].key_count, 40);
    assert_int_equal(rig.items[0][1].key_count, 40);
}

static void neighbours_share_full_leading_blocks(void **state) {
    (void)state;
    static const uint32_t a[] = {1, 2, 3, 4}, b[] = {1, 2, 9, 4}, c[] = {7, 7, 3, 4};
    struct attention_item at_a = {.row_count = 1, .position = 63, .blocks = a};
    struct attention_item at_b = {.row_count = 1, .position = 63, .blocks = b};
    struct attention_item at_c = {.row_count = 1, .position = 63, .blocks = c};
    struct attention_item early = {.row_count = 1, .position = 20, .blocks = b};
    assert_int_equal(plan_common_blocks(&at_a, &at_b, 0), 2);
    assert_int_equal(plan_common_blocks(&at_a, &at_c, 0), 0);
    assert_int_equal(plan_common_blocks(&at_a, &at_a, 0), 4);
    /* Position 20 fills one block only. */
    assert_int_equal(plan_common_blocks(&at_a, &early, 0), 1);
    /* With a window of 32 both rows begin at block 2: the pages before it do not matter. */
    assert_int_equal(plan_common_blocks(&at_a, &at_c, 32), 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_get_the_slots_of_their_positions_in_every_group),
        cmocka_unit_test(items_are_runs_of_one_sequence),
        cmocka_unit_test(kept_rows_become_items_of_their_own),
        cmocka_unit_test(without_a_mask_an_item_reads_its_whole_sequence),
        cmocka_unit_test(neighbours_share_full_leading_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
