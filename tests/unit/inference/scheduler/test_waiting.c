/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/waiting.h"

#include "base/min_max.h"
#include "base/rng.h"
#include "scheduler/backend.h"

#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TOKENS 4u

/* An item whose prompt is the digits of `text`, as in "112". */
static struct waiting_item *item_of(const char *text, int64_t priority) {
    struct waiting_item *item = calloc(1, sizeof *item + 16 * sizeof(int32_t));
    assert_non_null(item);
    int32_t *tokens = (int32_t *)(item + 1);
    for (; text[item->token_count]; item->token_count++)
        tokens[item->token_count] = text[item->token_count] - '0';
    item->tokens = tokens;
    item->priority = priority;
    return item;
}

static void expect_first(struct waiting *waiting, struct waiting_item *item) {
    assert_ptr_equal(waiting_first(waiting), item);
    waiting_begin_first(waiting);
    free(item);
}

static void prompts_that_share_a_prefix_come_one_after_the_other(void **state) {
    (void)state;
    struct waiting waiting = {0};
    const char *order[] = {"1", "11", "112", "113", "12", "2", "211"};
    const uint32_t arrival[] = {5, 2, 0, 6, 3, 1, 4};
    struct waiting_item *items[7];
    for (uint32_t i = 0; i < 7; i++) {
        items[arrival[i]] = item_of(order[arrival[i]], 0);
        waiting_add(&waiting, items[arrival[i]]);
    }
    for (uint32_t i = 0; i < 7; i++) expect_first(&waiting, items[i]);
    assert_null(waiting_first(&waiting));
    assert_int_equal(waiting.count, 0);
}

static void equal_prompts_go_by_arrival(void **state) {
    (void)state;
    struct waiting waiting = {0};
    struct waiting_item *items[20];
    for (uint32_t i = 0; i < 20; i++) waiting_add(&waiting, items[i] = item_of("11", 0));
    for (uint32_t i = 0; i < 20; i++) expect_first(&waiting, items[i]);
}

static void a_lower_priority_number_goes_first_even_when_it_comes_late(void **state) {
    (void)state;
    struct waiting waiting = {0};
    struct waiting_item *low = item_of("1", 5);
    struct waiting_item *low_too = item_of("2", 5);
    struct waiting_item *urgent = item_of("9", -5);
    waiting_add(&waiting, low);
    waiting_add(&waiting, low_too);
    expect_first(&waiting, low);
    waiting_add(&waiting, urgent);
    expect_first(&waiting, urgent);
    expect_first(&waiting, low_too);
}

static void a_late_arrival_that_is_still_ahead_gets_on_the_sweep(void **state) {
    (void)state;
    struct waiting waiting = {0};
    struct waiting_item *one = item_of("1", 0);
    struct waiting_item *three = item_of("3", 0);
    struct waiting_item *five = item_of("5", 0);
    waiting_add(&waiting, one);
    waiting_add(&waiting, three);
    waiting_add(&waiting, five);
    expect_first(&waiting, one);
    struct waiting_item *behind = item_of("2", 0);
    struct waiting_item *ahead = item_of("4", 0);
    waiting_add(&waiting, behind);
    waiting_add(&waiting, ahead);
    expect_first(&waiting, three);
    expect_first(&waiting, ahead);
    expect_first(&waiting, five);
    expect_first(&waiting, behind);
}

static void a_stream_of_arrivals_ahead_cannot_hold_back_a_request(void **state) {
    (void)state;
    struct waiting waiting = {0};
    struct waiting_item *last = item_of("9", 0);
    waiting_add(&waiting, item_of("1", 0));
    waiting_add(&waiting, item_of("1", 0));
    waiting_add(&waiting, last);
    uint32_t begun = 0;
    while (waiting_first(&waiting) != last) {
        struct waiting_item *first = waiting_first(&waiting);
        waiting_begin_first(&waiting);
        free(first);
        begun++;
        assert_true(begun <= 6);
        waiting_add(&waiting, item_of("1", 0)); /* never behind, always before the last */
    }
    while (waiting_first(&waiting)) {
        struct waiting_item *first = waiting_first(&waiting);
        waiting_begin_first(&waiting);
        free(first);
    }
}

static int by_order(const void *a, const void *b) {
    const struct waiting_item *x = *(struct waiting_item *const *)a;
    const struct waiting_item *y = *(struct waiting_item *const *)b;
    if (x->priority != y->priority) return x->priority < y->priority ? -1 : 1;
    int order = waiting_compare_tokens(x->tokens, x->token_count, y->tokens, y->token_count);
    if (order != 0) return order;
    return x->arrival < y->arrival ? -1 : 1;
}

static void any_item_can_be_taken_out_and_the_order_of_the_others_stays(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct rng rng = {seed};
        struct waiting waiting = {0};
        struct waiting_item *items[64];
        uint32_t count = 1 + (uint32_t)rng_below(&rng, 64);
        for (uint32_t i = 0; i < count; i++) {
            char text[TOKENS + 1] = {0};
            uint32_t length = 1 + (uint32_t)rng_below(&rng, TOKENS);
            for (uint32_t k = 0; k < length; k++) text[k] = (char)('0' + rng_below(&rng, 3));
            items[i] = item_of(text, (int64_t)rng_below(&rng, 2));
            waiting_add(&waiting, items[i]);
        }
        uint32_t kept = 0;
        for (uint32_t i = 0; i < count; i++) {
            if (rng_below(&rng, 3) == 0) {
                waiting_remove(&waiting, items[i]);
                free(items[i]);
            } else {
                items[kept++] = items[i];
            }
        }
        assert_int_equal(waiting.count, kept);
        qsort(items, kept, sizeof items[0], by_order);
        for (uint32_t i = 0; i < kept; i++) expect_first(&waiting, items[i]);
        assert_null(waiting_first(&waiting));
    }
}

#define PREFIXES 3u
#define SHARED (2u * BACKEND_BLOCK_TOKENS)

/* An item whose prompt is `prefix` for whole blocks, then `rest`. */
static struct waiting_item *long_item(int32_t prefix, int32_t rest, uint32_t answer_max) {
    struct waiting_item *item = calloc(1, sizeof *item + (SHARED + 1) * sizeof(int32_t));
    assert_non_null(item);
    int32_t *tokens = (int32_t *)(item + 1);
    for (uint32_t i = 0; i < SHARED; i++) tokens[i] = prefix;
    tokens[SHARED] = rest;
    item->tokens = tokens;
    item->token_count = SHARED + 1;
    item->answer_max = answer_max;
    return item;
}

static void longer_answers_go_first_among_requests_that_share_as_much(void **state) {
    (void)state;
    struct waiting waiting = {0};
    struct waiting_item *short_one = long_item(1, 0, 10);
    struct waiting_item *long_one = long_item(1, 1, 500);
    struct waiting_item *middle = long_item(1, 2, 100);
    struct waiting_item *middle_too = long_item(1, 3, 100);
    struct waiting_item *other = long_item(2, 0, 900);
    waiting_add(&waiting, short_one);
    waiting_add(&waiting, other);
    waiting_add(&waiting, middle_too);
    waiting_add(&waiting, long_one);
    waiting_add(&waiting, middle);
    expect_first(&waiting, long_one);
    expect_first(&waiting, middle);
    expect_first(&waiting, middle_too);
    expect_first(&waiting, short_one);
    expect_first(&waiting, other);
}

static uint32_t blocks_shared(const struct waiting_item *a, const struct waiting_item *b) {
    uint32_t count = 0;
    while (count < a->token_count && count < b->token_count && a->tokens[count] == b->tokens[count])
        count++;
    return count / BACKEND_BLOCK_TOKENS;
}

/* The least (priority, sweep) of the items. */
static bool is_of_first_sweep(struct waiting_item *const *items, uint32_t count,
                              const struct waiting_item *item) {
    for (uint32_t i = 0; i < count; i++)
        if (items[i]->priority < item->priority ||
            (items[i]->priority == item->priority && items[i]->sweep < item->sweep))
            return false;
    return true;
}

/* With all items there from the beginning, each next one shares the most blocks with the one
 * before, and has the longest answer of those that do. */
static void each_next_one_shares_the_most_and_then_has_the_longest_answer(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct rng rng = {seed};
        struct waiting waiting = {0};
        struct waiting_item *items[64];
        uint32_t count = 2 + (uint32_t)rng_below(&rng, 62);
        for (uint32_t i = 0; i < count; i++) {
            items[i] = long_item((int32_t)rng_below(&rng, PREFIXES), (int32_t)rng_below(&rng, 9),
                                 (uint32_t)rng_below(&rng, 6));
            waiting_add(&waiting, items[i]);
        }
        struct waiting_item *before = waiting_first(&waiting);
        waiting_begin_first(&waiting);
        while (waiting_first(&waiting)) {
            for (uint32_t i = 0; i < count; i++)
                if (items[i] == before) items[i--] = items[--count];
            struct waiting_item *next = waiting_first(&waiting);
            assert_true(is_of_first_sweep(items, count, next));
            for (uint32_t i = 0; i < count && next->sweep == before->sweep; i++) {
                if (items[i]->sweep != next->sweep) continue;
                assert_true(blocks_shared(items[i], before) <= blocks_shared(next, before));
                if (blocks_shared(items[i], before) == blocks_shared(next, before))
                    assert_true(items[i]->answer_max <= next->answer_max);
            }
            waiting_begin_first(&waiting);
            free(before);
            before = next;
        }
        assert_int_equal(count, 1);
        free(before);
    }
}

/* Whatever comes and goes, the queue begins each item once and none of a later sweep. */
static void items_that_come_and_go_begin_once_each(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct rng rng = {seed};
        struct waiting waiting = {0};
        struct waiting_item *items[400];
        uint32_t count = 0;
        uint32_t ended = 0;
        uint32_t added = 0;
        while (added < 400 || count > 0) {
            uint64_t what = rng_below(&rng, added < 400 ? 5 : 2);
            if (what >= 2) {
                items[count] = long_item((int32_t)rng_below(&rng, PREFIXES),
                                         (int32_t)rng_below(&rng, 9), (uint32_t)rng_below(&rng, 6));
                items[count]->priority = (int64_t)rng_below(&rng, 2);
                waiting_add(&waiting, items[count++]);
                added++;
                continue;
            }
            if (count == 0) continue;
            struct waiting_item *gone = waiting_first(&waiting);
            assert_true(is_of_first_sweep(items, count, gone));
            if (what == 0) {
                waiting_begin_first(&waiting);
            } else {
                gone = items[rng_below(&rng, count)];
                waiting_remove(&waiting, gone);
            }
            uint32_t at = 0;
            while (items[at] != gone) assert_true(++at < count);
            items[at] = items[--count];
            free(gone);
            ended++;
            assert_int_equal(waiting.count, count);
        }
        assert_null(waiting_first(&waiting));
        assert_int_equal(ended, 400);
    }
}

static void tokens_compare_beyond_a_cache_line(void **state) {
    (void)state;
    int32_t a[40];
    int32_t b[40];
    for (int32_t i = 0; i < 40; i++) a[i] = b[i] = 256 * i;
    assert_int_equal(waiting_compare_tokens(a, 40, b, 40), 0);
    assert_true(waiting_compare_tokens(a, 39, b, 40) < 0);
    assert_true(waiting_compare_tokens(a, 40, b, 16) > 0);
    a[20] = 1; /* below 256 * 20, though its first byte is above */
    assert_true(waiting_compare_tokens(a, 40, b, 40) < 0);
    assert_true(waiting_compare_tokens(b, 40, a, 40) > 0);
}

static void branches_are_where_queued_prompts_leave_another(void **state) {
    (void)state;
    struct waiting waiting = {0};
    const char *texts[] = {"1", "12", "1234", "1239", "1239", "13", "2", "1299"};
    struct waiting_item *items[8], *own = item_of("123", 0), *other = item_of("1234", 0);
    uint32_t count = 99;
    assert_int_equal(waiting_branch(&waiting, own, 0, &count), 0);
    for (uint32_t i = 0; i < 8; i++) waiting_add(&waiting, items[i] = item_of(texts[i], 0));
    own->sweep = items[0]->sweep;
    assert_int_equal(waiting_branch(&waiting, own, 0, &count), 1);
    assert_int_equal(count, 7);
    assert_int_equal(waiting_branch(&waiting, own, 1, &count), 2);
    assert_int_equal(count, 5);
    assert_int_equal(waiting_branch(&waiting, own, 2, &count), 3);
    assert_int_equal(count, 3);
    assert_int_equal(waiting_branch(&waiting, own, 3, &count), 0);
    /* A queued prompt counts itself; one of another priority or sweep has no branches here. */
    assert_int_equal(waiting_branch(&waiting, items[2], 3, &count), 4);
    assert_int_equal(count, 1);
    other->priority = 1;
    waiting_add(&waiting, other);
    assert_int_equal(waiting_branch(&waiting, other, 0, &count), 4);
    waiting_remove(&waiting, other);
    assert_int_equal(waiting_branch(&waiting, other, 0, &count), 0);
    own->sweep++;
    assert_int_equal(waiting_branch(&waiting, own, 0, &count), 0);
    for (uint32_t i = 0; i < 8; i++) free(items[i]);
    free(own);
    free(other);
}

/* Against a walk through all items. */
static void branches_are_those_of_all_items(void **state) {
    (void)state;
    struct rng rng = {.state = 5};
    struct waiting waiting = {0};
    struct waiting_item *items[200];
    char text[9];
    for (uint32_t i = 0; i < 200; i++) {
        const uint32_t length = 1 + (uint32_t)rng_below(&rng, 8);
        for (uint32_t k = 0; k < length; k++) text[k] = (char)('0' + rng_below(&rng, 2));
        text[length] = 0;
        waiting_add(&waiting, items[i] = item_of(text, 0));
    }
    for (uint32_t i = 0; i < 200; i++) {
        for (uint32_t from = 0; from < 9; from++) {
            uint32_t least = 0, count = 0, found = 0;
            for (uint32_t k = 0; k < 200; k++) {
                uint32_t common = 0;
                while (common < min_u32(items[i]->token_count, items[k]->token_count) &&
                       items[i]->tokens[common] == items[k]->tokens[common])
                    common++;
                if (common <= from || items[k]->sweep != items[i]->sweep) continue;
                least = count++ == 0 ? common : min_u32(least, common);
            }
            assert_int_equal(waiting_branch(&waiting, items[i], from, &found), least);
            if (least > 0) assert_int_equal(found, count);
        }
    }
    for (uint32_t i = 0; i < 200; i++) free(items[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(branches_are_where_queued_prompts_leave_another),
        cmocka_unit_test(branches_are_those_of_all_items),
        cmocka_unit_test(prompts_that_share_a_prefix_come_one_after_the_other),
        cmocka_unit_test(equal_prompts_go_by_arrival),
        cmocka_unit_test(a_lower_priority_number_goes_first_even_when_it_comes_late),
        cmocka_unit_test(a_late_arrival_that_is_still_ahead_gets_on_the_sweep),
        cmocka_unit_test(a_stream_of_arrivals_ahead_cannot_hold_back_a_request),
        cmocka_unit_test(any_item_can_be_taken_out_and_the_order_of_the_others_stays),
        cmocka_unit_test(longer_answers_go_first_among_requests_that_share_as_much),
        cmocka_unit_test(each_next_one_shares_the_most_and_then_has_the_longest_answer),
        cmocka_unit_test(items_that_come_and_go_begin_once_each),
        cmocka_unit_test(tokens_compare_beyond_a_cache_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
