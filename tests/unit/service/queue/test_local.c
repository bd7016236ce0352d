/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/queue.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct queue *open_queue(void) {
    struct queue *queue;
    struct error error;
    assert_int_equal(queue_open(&queue, "local", &error), OK);
    return queue;
}

static void a_queue_is_opened_by_its_name(void **state) {
    (void)state;
    struct queue *queue = NULL;
    struct error error;
    assert_int_equal(queue_open(&queue, "nowhere", &error), ERR_INVALID);
    assert_string_equal(error.text, "there is no queue 'nowhere'");
    queue = open_queue();
    queue->ops->close(queue);
}

static void places_are_taken_from_where_one_asks_and_then_from_the_front(void **state) {
    (void)state;
    struct queue *queue = open_queue();
    struct queue_lease lease;
    queue->ops->add(queue, &(struct queue_work){.batch = 1, .count = 10});
    assert_true(queue->ops->take(queue, 1, 4, 3, &lease));
    assert_int_equal(lease.first, 4);
    assert_int_equal(lease.count, 3);
    assert_true(queue->ops->take(queue, 1, 5, 100, &lease));
    assert_int_equal(lease.first, 7);
    assert_int_equal(lease.count, 3);
    assert_true(queue->ops->take(queue, 1, 10, 100, &lease));
    assert_int_equal(lease.first, 0);
    assert_int_equal(lease.count, 4);
    assert_false(queue->ops->take(queue, 1, 0, 100, &lease));
    assert_false(queue->ops->take(queue, 2, 0, 100, &lease));
    queue->ops->close(queue);
}

static void every_place_is_leased_once_however_leases_come_back(void **state) {
    (void)state;
    enum { PLACES = 5000 };
    static uint8_t done[PLACES];
    struct rng rng = {3};
    struct queue *queue = open_queue();
    struct queue_lease lease;
    queue->ops->add(queue, &(struct queue_work){.batch = 1, .count = PLACES, .epoch = 4});
    while (queue->ops->take(queue, 1, (uint32_t)rng_below(&rng, PLACES + 1),
                            1 + (uint32_t)rng_below(&rng, 256), &lease)) {
        assert_int_equal(lease.epoch, 4);
        uint32_t from = (uint32_t)rng_below(&rng, lease.count + 1);
        uint32_t to = from + (uint32_t)rng_below(&rng, lease.count - from + 1);
        for (uint32_t i = from; i < to; i++) done[lease.first + i]++;
        struct queue_lease front = lease, back = lease;
        front.count = from;
        back.first += to;
        back.count -= to;
        queue->ops->give_back(queue, &back);
        queue->ops->give_back(queue, &front);
    }
    for (size_t i = 0; i < PLACES; i++) assert_int_equal(done[i], 1);
    queue->ops->close(queue);
}

static void a_lease_of_an_older_epoch_is_worth_nothing(void **state) {
    (void)state;
    struct queue *queue = open_queue();
    struct queue_lease lease, again;
    queue->ops->add(queue, &(struct queue_work){.batch = 1, .count = 4, .epoch = 1});
    assert_true(queue->ops->take(queue, 1, 0, 4, &lease));
    queue->ops->remove(queue, 1);
    queue->ops->add(queue, &(struct queue_work){.batch = 1, .count = 4, .epoch = 2});
    assert_true(queue->ops->take(queue, 1, 0, 4, &again));
    queue->ops->give_back(queue, &lease);
    assert_false(queue->ops->take(queue, 1, 0, 4, &lease));
    queue->ops->close(queue);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_queue_is_opened_by_its_name),
        cmocka_unit_test(places_are_taken_from_where_one_asks_and_then_from_the_front),
        cmocka_unit_test(every_place_is_leased_once_however_leases_come_back),
        cmocka_unit_test(a_lease_of_an_older_epoch_is_worth_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
