/* SPDX-License-Identifier: Apache-2.0 */
#include "scratch.h"
#include "store/outbox.h"

#define URL_A "https://a.example/hook?token=1"
#define URL_B "https://b.example:8443"

static struct store_batch make(struct scratch *s, int number, const char *url) {
    struct store_batch batch = {
        .created_unix_s = 100, .status = BATCH_FINALIZING, .webhook_url = url ? strdup(url) : NULL};
    snprintf(batch.id, sizeof batch.id, "batch_%032d", number);
    assert_int_equal(store_batch_insert(s->store, &batch, &s->error), OK);
    return batch;
}

static void end(struct scratch *s, struct store_batch *batch, int64_t now) {
    batch->status = BATCH_COMPLETED;
    batch->completed_unix_s = now;
    assert_int_equal(store_batch_update(s->store, batch, BATCH_FINALIZING, NULL, &s->error), OK);
    store_batch_release(batch);
}

static void ask(struct scratch *s, uint32_t events) {
    store_outbox_set_rules(s->store, &(struct store_outbox_rules){.config_events = events});
}

static void a_batch_that_nobody_asked_about_leaves_no_row(void **state) {
    (void)state;
    struct scratch s;
    uint64_t count = 9;
    scratch_open(&s);
    struct store_batch batch = make(&s, 1, NULL);
    end(&s, &batch, 200);
    assert_int_equal(store_outbox_open_count(s.store, &count, &s.error), OK);
    assert_int_equal(count, 0);
    scratch_remove(&s);
}

static void the_end_of_a_batch_is_there_after_a_reopen_for_both_receivers(void **state) {
    (void)state;
    struct scratch s;
    struct store_outbox_row first, second;
    scratch_open(&s);
    ask(&s, OUTBOX_EVENTS_DEFAULT);
    struct store_batch batch = make(&s, 1, URL_A);
    end(&s, &batch, 200);
    store_close(s.store);
    assert_int_equal(scratch_reopen(&s), OK);
    assert_int_equal(store_outbox_next(s.store, 200000, NULL, 0, &first, &s.error), OK);
    assert_null(first.url);
    const char *busy[] = {first.receiver};
    assert_int_equal(store_outbox_next(s.store, 200000, busy, 1, &second, &s.error), OK);
    assert_string_equal(second.url, URL_A);
    assert_string_equal(second.receiver, "https://a.example");
    assert_string_equal(first.event_id, second.event_id);
    assert_string_equal(second.type, "batch.completed");
    assert_int_equal(second.created_unix_s, 200);
    store_outbox_release(&first);
    store_outbox_release(&second);
    scratch_remove(&s);
}

static void an_update_that_does_not_happen_leaves_no_row(void **state) {
    (void)state;
    struct scratch s;
    uint64_t count = 9;
    scratch_open(&s);
    struct store_batch batch = make(&s, 1, URL_A);
    batch.status = BATCH_COMPLETED;
    assert_int_equal(store_batch_update(s.store, &batch, BATCH_CANCELLING, NULL, &s.error),
                     ERR_CONFLICT);
    assert_int_equal(store_outbox_open_count(s.store, &count, &s.error), OK);
    assert_int_equal(count, 0);
    store_batch_release(&batch);
    scratch_remove(&s);
}

static void settle(struct scratch *s, const struct store_outbox_row *row, enum outbox_state state,
                   int64_t due_ms, bool unreachable) {
    struct store_outbox_attempt attempt = {row->sequence, state, due_ms,
                                           unreachable ? row->receiver : NULL};
    assert_int_equal(store_outbox_settle(s->store, &attempt, &s->error), OK);
}

static void a_failed_attempt_is_due_again_later_and_a_delivered_one_never(void **state) {
    (void)state;
    struct scratch s;
    struct store_outbox_row row, again;
    int64_t due;
    scratch_open(&s);
    struct store_batch batch = make(&s, 1, URL_A);
    end(&s, &batch, 200);
    assert_int_equal(store_outbox_next(s.store, 199999, NULL, 0, &row, &s.error), ERR_NOT_FOUND);
    assert_int_equal(store_outbox_next(s.store, 200000, NULL, 0, &row, &s.error), OK);
    settle(&s, &row, OUTBOX_OPEN, 205000, false);
    assert_int_equal(store_outbox_next(s.store, 204999, NULL, 0, &again, &s.error), ERR_NOT_FOUND);
    assert_int_equal(store_outbox_due(s.store, &due, &s.error), OK);
    assert_int_equal(due, 205000);
    assert_int_equal(store_outbox_next(s.store, 205000, NULL, 0, &again, &s.error), OK);
    assert_int_equal(again.attempts, 1);
    assert_string_equal(again.event_id, row.event_id);
    settle(&s, &again, OUTBOX_DELIVERED, 0, false);
    assert_int_equal(store_outbox_due(s.store, &due, &s.error), ERR_NOT_FOUND);
    store_outbox_release(&row);
    store_outbox_release(&again);
    scratch_remove(&s);
}

static void an_unreachable_receiver_puts_off_its_own_rows_only(void **state) {
    (void)state;
    struct scratch s;
    struct store_outbox_row row, other;
    scratch_open(&s);
    for (int i = 0; i < 4; i++) {
        struct store_batch batch = make(&s, i, i < 3 ? URL_A : URL_B);
        end(&s, &batch, 200);
    }
    assert_int_equal(store_outbox_next(s.store, 200000, NULL, 0, &row, &s.error), OK);
    settle(&s, &row, OUTBOX_OPEN, 300000, true);
    assert_int_equal(store_outbox_next(s.store, 299999, NULL, 0, &other, &s.error), OK);
    assert_string_equal(other.receiver, URL_B);
    settle(&s, &other, OUTBOX_DELIVERED, 0, false);
    store_outbox_release(&row);
    store_outbox_release(&other);
    assert_int_equal(store_outbox_next(s.store, 299999, NULL, 0, &row, &s.error), ERR_NOT_FOUND);
    assert_int_equal(store_outbox_next(s.store, 300000, NULL, 0, &row, &s.error), OK);
    store_outbox_release(&row);
    scratch_remove(&s);
}

static void other_events_go_where_they_were_asked_for(void **state) {
    (void)state;
    struct scratch s;
    struct store_outbox_row row;
    uint64_t count = 0;
    scratch_open(&s);
    ask(&s, OUTBOX_EVENTS_DEFAULT);
    assert_int_equal(store_outbox_add(s.store, OUTBOX_BATCH_STUCK, STR("batch_1"), 5, &s.error),
                     OK);
    assert_int_equal(store_outbox_open_count(s.store, &count, &s.error), OK);
    assert_int_equal(count, 0);
    ask(&s, 1u << OUTBOX_BATCH_STUCK);
    assert_int_equal(store_outbox_add(s.store, OUTBOX_BATCH_STUCK, STR("batch_1"), 5, &s.error),
                     OK);
    assert_int_equal(store_outbox_next(s.store, 5000, NULL, 0, &row, &s.error), OK);
    assert_string_equal(row.type, "quern.batch.stuck");
    assert_string_equal(row.subject, "batch_1");
    store_outbox_release(&row);
    scratch_remove(&s);
}

static void names_of_events_are_found_again(void **state) {
    (void)state;
    enum outbox_event event;
    for (int i = 0; i < OUTBOX_EVENT_COUNT; i++) {
        assert_true(outbox_event_find(str_from(outbox_event_name((enum outbox_event)i)), &event));
        assert_int_equal(event, i);
    }
    assert_false(outbox_event_find(STR("batch"), &event));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_that_nobody_asked_about_leaves_no_row),
        cmocka_unit_test(the_end_of_a_batch_is_there_after_a_reopen_for_both_receivers),
        cmocka_unit_test(an_update_that_does_not_happen_leaves_no_row),
        cmocka_unit_test(a_failed_attempt_is_due_again_later_and_a_delivered_one_never),
        cmocka_unit_test(an_unreachable_receiver_puts_off_its_own_rows_only),
        cmocka_unit_test(other_events_go_where_they_were_asked_for),
        cmocka_unit_test(names_of_events_are_found_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
