/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/queue.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static bool all(void *context, uint64_t batch) {
    (void)context;
    (void)batch;
    return true;
}

static bool not_one(void *context, uint64_t batch) {
    return batch != *(const uint64_t *)context;
}

static struct queue *open_queue(void) {
    struct queue *queue;
    struct error error;
    assert_int_equal(queue_local_open(&queue, &error), OK);
    return queue;
}

static void lower_priority_numbers_and_older_batches_are_served_first(void **state) {
    (void)state;
    struct queue *queue = open_queue();
    const struct queue_work works[] = {{.batch = 3, .count = 1},
                                       {.batch = 2, .count = 1, .priority = -1},
                                       {.batch = 1, .count = 1},
                                       {.batch = 9, .count = 1, .tier = 1, .priority = -9}};
    const uint64_t expected[] = {2, 1, 3, 9};
    for (int i = 0; i < 4; i++) queue->ops->add(queue, &works[i]);
    struct queue_lease lease;
    for (int i = 0; i < 4; i++) {
        assert_true(queue->ops->take(queue, 10, all, NULL, &lease));
        assert_int_equal(lease.batch, expected[i]);
    }
    assert_false(queue->ops->take(queue, 10, all, NULL, &lease));
    queue->ops->close(queue);
}

static void a_batch_that_is_not_allowed_is_stepped_over(void **state) {
    (void)state;
    struct queue *queue = open_queue();
    uint64_t one = 1;
    struct queue_lease lease;
    queue->ops->add(queue, &(struct queue_work){.batch = 1, .count = 5});
    queue->ops->add(queue, &(struct queue_work){.batch = 2, .count = 5});
    assert_true(queue->ops->take(queue, 3, not_one, &one, &lease));
    assert_int_equal(lease.batch, 2);
    assert_int_equal(lease.count, 3);
    queue->ops->remove(queue, 2);
    assert_false(queue->ops->take(queue, 3, not_one, &one, &lease));
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
    while (queue->ops->take(queue, 1 + (uint32_t)rng_below(&rng, 256), all, NULL, &lease)) {
        assert_int_equal(lease.epoch, 4);
        uint32_t kept = (uint32_t)rng_below(&rng, lease.count + 1);
        for (uint32_t i = 0; i < kept; i++) done[lease.first + i]++;
        lease.first += kept;
        lease.count -= kept;
        queue->ops->give_back(queue, &lease);
    }
    for (size_t i = 0; i < PLACES; i++) assert_int_equal(done[i], 1);
    queue->ops->close(queue);
}

static void a_lease_of_an_older_epoch_is_worth_nothing(void **state) {
    (void)state;
    struct queue *queue = open_queue();
    struct queue_lease lease, again;
    queue->ops->add(queue, &(struct queue_work){.batch = 1, .count = 4, .epoch = 1});
    assert_true(queue->ops->take(queue, 4, all, NULL, &lease));
    queue->ops->remove(queue, 1);
    queue->ops->add(queue, &(struct queue_work){.batch = 1, .count = 4, .epoch = 2});
    assert_true(queue->ops->take(queue, 4, all, NULL, &again));
    queue->ops->give_back(queue, &lease);
    assert_false(queue->ops->take(queue, 4, all, NULL, &lease));
    queue->ops->close(queue);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lower_priority_numbers_and_older_batches_are_served_first),
        cmocka_unit_test(a_batch_that_is_not_allowed_is_stepped_over),
        cmocka_unit_test(every_place_is_leased_once_however_leases_come_back),
        cmocka_unit_test(a_lease_of_an_older_epoch_is_worth_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
