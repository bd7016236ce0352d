/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/plan_decode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ROOM 512u

struct rig {
    struct gpu_decode_item items[ROOM];
    struct gpu_merge_item merges[ROOM];
    struct plan_decode plan;
};

static void open_rig(struct rig *rig) {
    *rig = (struct rig){0};
    rig->plan = (struct plan_decode){.items = rig->items,
                                     .item_room = ROOM,
                                     .merges = rig->merges,
                                     .merge_room = ROOM,
                                     .partial_first = 10,
                                     .partial_room = ROOM};
}

static struct gpu_decode_item item_of(uint32_t row, uint32_t tokens) {
    return (struct gpu_decode_item){
        .row = row, .position = tokens - 1, .end = tokens, .partial_out = GPU_NONE};
}

static const struct plan_decode_shape large = {
    .kv_heads = 8, .multiprocessors = 132, .split_tokens = 256};

static void many_items_stay_whole_the_costly_ones_first(void **state) {
    (void)state;
    struct rig rig;
    open_rig(&rig);
    struct gpu_decode_item whole[64];
    for (uint32_t i = 0; i < 64; i++) whole[i] = item_of(i, 100 + i * 37 % 64 * 100);
    plan_decode_fill(&rig.plan, whole, 64, &large);
    assert_int_equal(rig.plan.item_count, 64);
    assert_int_equal(rig.plan.merge_count, 0);
    assert_int_equal(rig.items[0].end, 6400);
    for (uint32_t i = 1; i < 64; i++) assert_true(rig.items[i].end <= rig.items[i - 1].end);
}

static void a_lone_item_is_cut_at_multiples_of_the_split(void **state) {
    (void)state;
    struct rig rig;
    open_rig(&rig);
    struct gpu_decode_item whole = item_of(3, 1000);
    whole.begin = 100;
    whole.partial_in = 4;
    whole.partial_count = 2;
    plan_decode_fill(&rig.plan, &whole, 1, &large);
    assert_int_equal(rig.plan.item_count, 4);
    assert_int_equal(rig.plan.partial_count, 4);
    assert_int_equal(rig.plan.merge_count, 1);
    assert_memory_equal(&rig.merges[0], (&(struct gpu_merge_item){3, 10, 4, 0}),
                        sizeof rig.merges[0]);
    uint32_t tokens = 0;
    for (uint32_t i = 0; i < 4; i++) {
        const struct gpu_decode_item *piece = &rig.items[i];
        assert_true(piece->begin == 100 || piece->begin % 256 == 0);
        assert_true(piece->end == 1000 || piece->end % 256 == 0);
        /* Only the piece that begins the item continues from its partials. */
        assert_int_equal(piece->partial_count, piece->begin == 100 ? 2 : 0);
        assert_int_equal(piece->partial_out, 10 + piece->begin / 256);
        tokens += piece->end - piece->begin;
    }
    assert_int_equal(tokens, 900);
}

static void pieces_are_no_more_than_the_gpu_wants(void **state) {
    (void)state;
    struct rig rig;
    open_rig(&rig);
    struct gpu_decode_item whole[8];
    for (uint32_t i = 0; i < 8; i++) whole[i] = item_of(i, 8192);
    plan_decode_fill(&rig.plan, whole, 8, &large);
    /* 17 items are wanted: pieces of 2,048 tokens make 32, and of 4,096 only 16. */
    assert_int_equal(rig.plan.item_count, 32);
    assert_true(rig.plan.item_count <= 8 + plan_decode_pieces_max(8, 132));
}

static void keys_that_the_window_hides_are_left_out(void **state) {
    (void)state;
    struct rig rig;
    open_rig(&rig);
    struct gpu_decode_item whole = item_of(0, 1000);
    struct plan_decode_shape shape = large;
    shape.window = 64;
    plan_decode_fill(&rig.plan, &whole, 1, &shape);
    assert_int_equal(rig.plan.item_count, 1);
    assert_int_equal(rig.items[0].begin, 936);
    assert_int_equal(rig.items[0].end, 1000);
}

static void an_item_without_room_for_its_pieces_stays_whole(void **state) {
    (void)state;
    struct rig rig;
    open_rig(&rig);
    struct gpu_decode_item whole[2] = {item_of(0, 1000), item_of(1, 1000)};
    rig.plan.item_room = 5;
    plan_decode_fill(&rig.plan, whole, 2, &large);
    assert_int_equal(rig.plan.item_count, 5);
    assert_int_equal(rig.plan.merge_count, 1);
    rig.plan.item_room = ROOM;
    rig.plan.partial_room = 3;
    plan_decode_fill(&rig.plan, whole, 2, &large);
    assert_int_equal(rig.plan.item_count, 2);
    assert_int_equal(rig.plan.merge_count, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_items_stay_whole_the_costly_ones_first),
        cmocka_unit_test(a_lone_item_is_cut_at_multiples_of_the_split),
        cmocka_unit_test(pieces_are_no_more_than_the_gpu_wants),
        cmocka_unit_test(keys_that_the_window_hides_are_left_out),
        cmocka_unit_test(an_item_without_room_for_its_pieces_stays_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
