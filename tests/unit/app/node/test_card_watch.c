/* SPDX-License-Identifier: Apache-2.0 */
#include "node/card_watch.h"

#include "base/clock.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The watch over the made-up library of tests/nvml, whose numbers stand in a file. The clock is
 * moved, so a round of one second comes at once. */

#define STEP_MS 250 /* a sample is old after 40 of them */
#define CARD_0 "GPU-00000000-0000-0000-0000-000000000000"

static char path[64];
static _Atomic uint64_t tokens;
static atomic_bool is_used;
static atomic_uint asked;

static size_t uses(void *context, struct card_use ret_uses[CARDS_MAX]) {
    (void)context;
    atomic_fetch_add(&asked, 1);
    if (!atomic_load(&is_used)) return 0;
    snprintf(ret_uses[0].uuid, sizeof ret_uses[0].uuid, CARD_0);
    ret_uses[0].tokens = atomic_load(&tokens);
    return 1;
}

/* Replaces the file at once: a reader sees the old lines or the new ones. */
static void set(const char *lines) {
    char other[80];
    snprintf(other, sizeof other, "%s.new", path);
    FILE *file = fopen(other, "we");
    assert_non_null(file);
    fputs(lines, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(rename(other, path), 0);
}

static struct card_watch *start(const char *library) {
    atomic_store(&tokens, 1000);
    atomic_store(&is_used, true);
    const struct card_watch_options options = {.uses = uses, .library = library};
    struct card_watch *watch = card_watch_open(&options);
    assert_non_null(watch);
    return watch;
}

/* Lets seconds pass until the card is as the test wants it. */
static struct card_status wait_for(struct card_watch *watch,
                                   bool (*holds)(const struct card_status *card)) {
    struct card_status cards[CARDS_MAX];
    while (card_watch_read(watch, cards) != 1 || !holds(&cards[0])) {
        clock_move_ms(STEP_MS);
        clock_sleep_ms(CLOCK_LOOK_MS);
    }
    return cards[0];
}

/* Waits until the watch has asked so often again. */
static void let_rounds_pass(unsigned count) {
    unsigned then = atomic_load(&asked) + count;
    while (atomic_load(&asked) < then) {
        clock_move_ms(STEP_MS);
        clock_sleep_ms(CLOCK_LOOK_MS);
    }
}

static bool is_up(const struct card_status *card) {
    return card->is_up;
}
static bool is_down(const struct card_status *card) {
    return !card->is_up;
}
static bool has_rate(const struct card_status *card) {
    return card->tokens_per_s > 0 && card->joules_per_1000_tokens > 0;
}
static bool has_no_rate(const struct card_status *card) {
    return card->is_up && !(card->tokens_per_s > 0);
}
static bool has_error(const struct card_status *card) {
    return card->xid_count > 0;
}
static bool is_hot(const struct card_status *card) {
    return card->brakes[CARD_BRAKE_HEAT];
}

static void a_card_tells_its_values(void **state) {
    (void)state;
    set("memory_used 1000\ncelsius 60\npower_mw 123000\necc unknown\n");
    struct card_watch *watch = start(FAKE_NVML);
    struct card_status card = wait_for(watch, is_up);
    assert_string_equal(card.uuid, CARD_0);
    assert_string_equal(card.name, "fake card 0");
    assert_true(card.values[CARD_MEMORY_BYTES] == 17179869184.0);
    assert_true(card.values[CARD_MEMORY_USED_BYTES] == 1000);
    assert_true(card.values[CARD_UTILISATION] == 0.75 && card.values[CARD_CELSIUS] == 60);
    assert_true(card.values[CARD_POWER_WATTS] == 123 && card.values[CARD_POWER_LIMIT_WATTS] == 700);
    assert_true(card.values[CARD_SM_CLOCK_HERTZ] == 1980e6);
    assert_true(isnan(card.values[CARD_ECC_ERRORS]));
    assert_false(card.brakes[CARD_BRAKE_HEAT] || card.brakes[CARD_BRAKE_POWER]);
    set("throttle 32\n");
    card = wait_for(watch, is_hot);
    assert_false(card.brakes[CARD_BRAKE_POWER] || card.brakes[CARD_BRAKE_HARDWARE]);
    card_watch_close(watch);
}

static void rates_are_of_the_last_minute_and_begin_anew_with_an_engine(void **state) {
    (void)state;
    set("energy_mj 1000000\n");
    struct card_watch *watch = start(FAKE_NVML);
    (void)wait_for(watch, is_up);
    atomic_store(&tokens, 3000);
    set("energy_mj 2000000\n");
    struct card_status card = wait_for(watch, has_rate);
    assert_true(card.joules_per_1000_tokens <= 500.0001);
    atomic_store(&tokens, 0); /* it has started again */
    card = wait_for(watch, has_no_rate);
    assert_true(isnan(card.joules_per_1000_tokens));
    card_watch_close(watch);
}

static void an_error_of_the_driver_is_counted_with_its_number(void **state) {
    (void)state;
    set("");
    struct card_watch *watch = start(FAKE_NVML);
    (void)wait_for(watch, is_up);
    set("xid 79\n");
    struct card_status card = wait_for(watch, has_error);
    assert_true(card.xid_count == 1 && card.xid_last == 79);
    card_watch_close(watch);
}

static void a_lost_card_is_down_and_comes_back(void **state) {
    (void)state;
    set("");
    struct card_watch *watch = start(FAKE_NVML);
    (void)wait_for(watch, is_up);
    set("cards gone\n");
    (void)wait_for(watch, is_down);
    set("");
    (void)wait_for(watch, is_up);
    card_watch_close(watch);
}

static void a_card_that_tells_nothing_is_down(void **state) {
    (void)state;
    set("memory_total gone\nutilisation gone\npower_mw gone\npower_limit_mw gone\nenergy_mj gone\n"
        "sm_mhz gone\nmemory_mhz gone\ncelsius gone\necc gone\n");
    struct card_watch *watch = start(FAKE_NVML);
    (void)wait_for(watch, is_down);
    let_rounds_pass(2);
    (void)wait_for(watch, is_down);
    card_watch_close(watch);
}

static void old_values_are_not_told_as_new(void **state) {
    (void)state;
    set("");
    struct card_watch *watch = start(FAKE_NVML);
    (void)wait_for(watch, is_up);
    atomic_store(&is_used, false); /* its engine has left */
    struct card_status card = wait_for(watch, is_down);
    assert_true(card.values[CARD_CELSIUS] == 51);
    card_watch_close(watch);
}

static void without_a_card_or_a_library_nothing_is_told(void **state) {
    (void)state;
    struct card_status cards[CARDS_MAX];
    set("");
    struct card_watch *watch = start("/nowhere/libnvidia-ml.so.1");
    let_rounds_pass(3);
    assert_true(card_watch_read(watch, cards) == 1 && !cards[0].is_up);
    card_watch_close(watch);
    watch = start(FAKE_NVML);
    atomic_store(&is_used, false);
    let_rounds_pass(3);
    card_watch_close(watch);
    assert_int_equal(card_watch_read(NULL, cards), 0);
    card_watch_close(NULL);
}

int main(void) {
    snprintf(path, sizeof path, "/tmp/quern-test-nvml-XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0 || close(fd) != 0) return 1;
    setenv("QUERN_FAKE_NVML", path, 1);
    clock_make_movable();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_card_tells_its_values),
        cmocka_unit_test(rates_are_of_the_last_minute_and_begin_anew_with_an_engine),
        cmocka_unit_test(an_error_of_the_driver_is_counted_with_its_number),
        cmocka_unit_test(a_lost_card_is_down_and_comes_back),
        cmocka_unit_test(a_card_that_tells_nothing_is_down),
        cmocka_unit_test(old_values_are_not_told_as_new),
        cmocka_unit_test(without_a_card_or_a_library_nothing_is_told),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
