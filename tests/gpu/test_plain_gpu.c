/* SPDX-License-Identifier: Apache-2.0 */
#include "plain_internal.h"
#include "plain_test.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The life of the plain GPU from list to close, its faults and its refusals. */

static const struct world_traits windowed = {.width = 32,
                                             .ffn = 48,
                                             .heads = 4,
                                             .kv_heads = 2,
                                             .head_dim = 16,
                                             .window = 20,
                                             .embed_scale = 1.0f};

static void set(const char *name, const char *value) {
    assert_int_equal(value ? setenv(name, value, 1) : unsetenv(name), 0);
}

/* A world whose GPU is open, and not prepared. */
static void open_bare(struct world *world, uint64_t memory_bytes) {
    struct error error = {0};
    struct gpu_options options = {.memory_bytes = memory_bytes};
    world_make(world, &world_small, 1);
    expect_ok(world->table->open(&world->gpu, &options, &error), &error);
}

static enum err prepare(struct world *world, struct error *error) {
    return world->table->prepare(world->gpu, &world->program, &world->limits, &world->ledger,
                                 error);
}

/* ---- GPUs ---- */

static void cards_are_listed_without_being_opened(void **state) {
    (void)state;
    const struct gpu_table *table = quern_gpu_table();
    struct gpu_info infos[2] = {0};
    struct error error = {0};
    uint32_t count = 0;
    set("QUERN_PLAIN_CARDS", "3");
    set("QUERN_PLAIN_MEMORY_MIB", "100");
    expect_ok(table->list(infos, 2, &count, &error), &error);
    assert_int_equal(count, 3);
    assert_string_equal(infos[1].name, "plain card 1");
    assert_int_equal(infos[1].index, 1);
    assert_int_equal(infos[1].memory_bytes, 100u << 20);
    set("QUERN_PLAIN_CARDS", "none");
    assert_int_equal(table->list(infos, 2, &count, &error), ERR_UNAVAILABLE);
    set("QUERN_PLAIN_CARDS", NULL);
    set("QUERN_PLAIN_MEMORY_MIB", NULL);
}

static void a_card_that_is_not_there_or_too_small_is_not_opened(void **state) {
    (void)state;
    const struct gpu_table *table = quern_gpu_table();
    struct gpu *gpu = NULL;
    struct error error = {0};
    set("QUERN_PLAIN_MEMORY_MIB", "100");
    struct gpu_options options = {.index = 1, .memory_bytes = 1u << 20};
    assert_int_equal(table->open(&gpu, &options, &error), ERR_UNAVAILABLE);
    options = (struct gpu_options){.memory_bytes = 101u << 20};
    assert_int_equal(table->open(&gpu, &options, &error), ERR_LIMIT);
    options = (struct gpu_options){.memory_bytes = 1u << 20, .library = "/no/such/library"};
    assert_int_equal(table->open(&gpu, &options, &error), ERR_UNAVAILABLE);
    set("QUERN_PLAIN_MEMORY_MIB", NULL);
    table->close(NULL);
}

static void the_plugin_has_the_same_table(void **state) {
    (void)state;
    void *plugin = dlopen(getenv("QUERN_PLAIN_MODULE"), RTLD_NOW | RTLD_LOCAL);
    if (!plugin) fail_msg("%s", dlerror());
    void *symbol = dlsym(plugin, GPU_SYMBOL);
    gpu_table_fn *function;
    memcpy(&function, &symbol, sizeof function);
    const struct gpu_table *table = function(), *own = quern_gpu_table();
    assert_int_equal(table->abi, GPU_ABI);
    assert_int_equal(table->bytes, sizeof *table);
    assert_string_equal(table->version, QUERN_VERSION);
    assert_string_equal(table->kind, "plain");
    assert_ptr_not_equal(table->list, own->list);
    uint32_t count = 0;
    assert_int_equal(table->list(NULL, 0, &count, NULL), OK);
    assert_int_equal(count, 1);
    assert_int_equal(dlclose(plugin), 0);
}

/* ---- memory ---- */

static uint64_t sum_of(const struct memory_ledger *ledger) {
    return ledger->context + ledger->weights + ledger->activations + ledger->logits +
           ledger->steps + ledger->workspace + ledger->kv;
}

static void the_ledger_adds_up_and_pages_fill_the_memory(void **state) {
    (void)state;
    struct world world;
    struct error error = {0};
    open_bare(&world, 64u << 20);
    world.limits.page_count_max = 20;
    expect_ok(prepare(&world, &error), &error);
    struct memory_ledger *ledger = &world.ledger;
    assert_int_equal(ledger->page_count, 20);
    assert_int_equal(ledger->page_bytes, 2 * WORLD_LAYERS * 16 * 2 * 16 * sizeof(float));
    assert_int_equal(ledger->kv, 20 * ledger->page_bytes);
    assert_int_equal(ledger->used, sum_of(ledger));
    uint64_t used = ledger->used, page_bytes = ledger->page_bytes;
    world_close(&world);

    open_bare(&world, used - 4 * page_bytes - 1);
    world.limits.page_count_max = 20;
    expect_ok(prepare(&world, &error), &error);
    assert_int_equal(world.ledger.page_count, 15);
    assert_true(world.ledger.used <= world.ledger.limit);
    world_close(&world);
}

static void a_cache_that_does_not_fit_is_refused_with_its_ledger(void **state) {
    (void)state;
    struct world world;
    struct error error = {0};
    open_bare(&world, 1u << 20);
    assert_int_equal(prepare(&world, &error), ERR_LIMIT);
    assert_int_equal(world.ledger.page_count, world.limits.page_count_min);
    assert_true(world.ledger.used > world.ledger.limit);
    assert_int_equal(world.ledger.used, sum_of(&world.ledger));
    world_close(&world);
}

static void forms_and_shapes_without_kernels_are_refused(void **state) {
    (void)state;
    struct world world;
    struct error error = {0};
    open_bare(&world, 64u << 20);
    world.matrices[2].form = GPU_INT8;
    assert_int_equal(prepare(&world, &error), ERR_INVALID);
    world_close(&world);
    open_bare(&world, 64u << 20);
    world.limits.kv_form = GPU_INT8;
    assert_int_equal(prepare(&world, &error), ERR_INVALID);
    world_close(&world);
}

static void e4m3_has_its_values_to_the_nearest_even(void **state) {
    (void)state;
    for (int code = 0; code < 256; code++)
        if ((code & 0x7f) != 0x7f)
            assert_int_equal(plain_e4m3_from(plain_e4m3_to((uint8_t)code)), code);
    assert_true(plain_e4m3_to(0x7e) == 448.0f && plain_e4m3_to(0x01) == 0x1p-9f);
    assert_int_equal(plain_e4m3_from(1e9f), 0x7e);
    assert_true(plain_e4m3_to(plain_e4m3_from(17.0f)) == 16.0f);
    assert_true(plain_e4m3_to(plain_e4m3_from(19.0f)) == 20.0f);
    assert_true(plain_e4m3_to(plain_e4m3_from(15.9f)) == 16.0f);
}

/* ---- weights ---- */

static void rows_outside_a_matrix_are_refused(void **state) {
    (void)state;
    struct world world;
    struct error error = {0};
    open_bare(&world, 64u << 20);
    expect_ok(prepare(&world, &error), &error);
    struct gpu_rows rows = {
        .matrix = 1, .row_first = 50, .rows = 7, .type = TENSOR_F32, .blocks = world.values[1]};
    assert_int_equal(world.table->fill(world.gpu, &rows, &error), ERR_INVALID);
    rows = (struct gpu_rows){.matrix = 1, .rows = 1, .type = TENSOR_Q4_K};
    assert_int_equal(world.table->fill(world.gpu, &rows, &error), ERR_INVALID);
    world_close(&world);
}

static void warm_names_the_rows_that_are_missing(void **state) {
    (void)state;
    struct world world;
    struct error error = {0};
    open_bare(&world, 64u << 20);
    expect_ok(prepare(&world, &error), &error);
    for (uint32_t i = 0; i < world.program.matrix_count; i++)
        if (i != 3) world_fill(&world, i);
    struct gpu_rows rows = {.matrix = 3, .rows = 5, .type = TENSOR_F32, .blocks = world.values[3]};
    expect_ok(world.table->fill(world.gpu, &rows, &error), &error);
    assert_int_equal(world.table->warm(world.gpu, &error), ERR_INVALID);
    assert_string_equal(error.text, "matrix 3: rows 5..31 of 32 are not filled");
    rows.row_first = 5, rows.rows = 27;
    expect_ok(world.table->fill(world.gpu, &rows, &error), &error);
    expect_ok(world.table->warm(world.gpu, &error), &error);
    world_close(&world);
}

/* ---- faults ---- */

/* Submits and waits for a step; the result of the first call that fails. */
static enum err one_step(struct world *world, uint64_t number, struct error *error) {
    struct world_step *step = calloc(1, sizeof *step);
    const struct world_run runs[] = {{0, 0, 3, false}};
    struct gpu_result result = {0};
    world_plan(world, step, number, runs, 1, false, 0);
    enum err err = world->table->submit(world->gpu, &step->step, NULL, error);
    if (err == OK) err = world->table->wait(world->gpu, number, &result, error);
    free(step);
    return err;
}

static void the_call_that_the_environment_names_fails(void **state) {
    (void)state;
    struct world world;
    struct error error = {0};
    set("QUERN_PLAIN_FAULT", "wait:2:error");
    world_open(&world, &world_small, 1);
    assert_int_equal(one_step(&world, 1, &error), OK);
    assert_int_equal(one_step(&world, 2, &error), ERR_IO);
    assert_int_equal(one_step(&world, 3, &error), ERR_CONFLICT);
    world_close(&world);

    set("QUERN_PLAIN_FAULT", "submit:1:lost");
    world_open(&world, &world_small, 1);
    assert_int_equal(one_step(&world, 1, &error), ERR_IO);
    assert_string_equal(error.text, "plain device: the GPU is lost");
    assert_int_equal(world.table->counters(world.gpu, &(struct gpu_counters){0}, &error),
                     ERR_CONFLICT);
    world_close(&world);

    set("QUERN_PLAIN_FAULT", "prepare:1:error");
    open_bare(&world, 64u << 20);
    assert_int_equal(prepare(&world, &error), ERR_IO);
    world_close(&world);
    set("QUERN_PLAIN_FAULT", "list:1:error");
    uint32_t count;
    assert_int_equal(quern_gpu_table()->list(NULL, 0, &count, &error), ERR_IO);
    set("QUERN_PLAIN_FAULT", NULL);
}

static void a_hanging_call_hangs(void **state) {
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct world world;
        struct error error = {0};
        (void)setenv("QUERN_PLAIN_FAULT", "wait:1:hang", 1);
        world_open(&world, &world_small, 1);
        (void)alarm(1);
        (void)one_step(&world, 1, &error);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
}

/* ---- the referee ---- */

/* A step of 40 rows of sequence 0 and 12 of sequence 3 with one thing wrong, which a later step may
 * have to come upon. */
struct wrong {
    const char *sentence; /* a part of it */
    void (*make)(struct world_step *step);
    unsigned how;
};

static void make_slot_twice(struct world_step *step) {
    step->slots[0][16] = step->slots[0][0];
}
static void make_slot_of_another_offset(struct world_step *step) {
    step->slots[0][3]++;
}
static void make_slot_out_of_range(struct world_step *step) {
    step->slots[0][3] = 1u << 20;
}
static void make_page_out_of_range(struct world_step *step) {
    step->pages[0][1] = 1u << 20;
}
static void make_page_not_written(struct world_step *step) {
    step->pages[0][1] = step->pages[0][5];
}
static void make_page_of_other_keys(struct world_step *step) {
    step->pages[0][1] = step->pages[0][0];
}
static void make_key_missing(struct world_step *step) {
    step->items[0][0].decode[20].begin = 1;
}
static void make_keys_twice(struct world_step *step) {
    step->items[0][0].decode[47].begin = 16; /* first part of a row cut in two: 0..31, 32..39 */
}
static void make_another_key_twice(struct world_step *step) {
    step->items[0][0].decode[46].begin = 1; /* row 39: 1..31, 31..39 */
    step->items[0][0].decode[47].begin = 31;
}
static void make_no_result(struct world_step *step) {
    step->groups[0].all.decode_count--;
}
static void make_two_results(struct world_step *step) {
    step->items[0][0].decode[1] = step->items[0][0].decode[0];
}
static void make_partial_never_left(struct world_step *step) {
    step->items[0][0].merges[0].first += 400;
}
static void make_partial_of_another_row(struct world_step *step) {
    step->items[0][0].merges[0].first += 2;
}
static void make_partial_left_twice(struct world_step *step) {
    step->items[0][0].decode[47].partial_out--;
}
static void make_partial_of_own_launch(struct world_step *step) {
    struct gpu_decode_item *items = step->items[0][0].decode;
    items[33].partial_in = items[32].partial_out;
    items[33].partial_count = 1;
}
static void make_tile_too_large(struct world_step *step) {
    step->items[0][0].tiles[0].row_count = 17;
}
static void make_token_never_drawn(struct world_step *step) {
    step->tokens[0] = ~0;
}
static void make_wanted_descend(struct world_step *step) {
    step->wanted[1] = 0;
}
static void make_position_far(struct world_step *step) {
    step->positions[5] = WORLD_CONTEXT;
}

static const struct wrong wrongs[] = {
    {"row 16 of group 0 writes slot", make_slot_twice, 0},
    {"at another offset", make_slot_of_another_offset, 0},
    {"row 3 has slot 1048576", make_slot_out_of_range, 0},
    {"reads page 1048576", make_page_out_of_range, 0},
    {"which is not written", make_page_not_written, 0},
    {"which has key 0 of group 0", make_page_of_other_keys, 0},
    {"row 20 at position 20 sees 21 keys, and its items have 20", make_key_missing, 0},
    {"and its items have", make_keys_twice, PLAN_CUT},
    {"its items have keys twice and lack others", make_another_key_twice, PLAN_CUT},
    {"row 51 gets no result", make_no_result, 0},
    {"row 0 gets two results", make_two_results, 0},
    {"which nothing left", make_partial_never_left, PLAN_CUT},
    {"reads partial 2, which is of row 33", make_partial_of_another_row, PLAN_CUT},
    {"which is row", make_partial_left_twice, PLAN_CUT},
    {"of its own launch", make_partial_of_own_launch, PLAN_CUT},
    {"has 17 rows, of 16", make_tile_too_large, PLAN_TILES},
    {"no token was drawn for slot 0", make_token_never_drawn, 0},
    {"does not ascend", make_wanted_descend, 0},
    {"row 5 is at position 96", make_position_far, 0},
};

static void run_wrong(const struct wrong *wrong) {
    const struct world_run runs[] = {{0, 0, 40, false}, {3, 0, 12, false}};
    struct world world;
    struct world_step step;
    struct error error = {0};
    struct gpu_result result = {0};
    world_open(&world, &world_small, 1);
    world_plan(&world, &step, 1, runs, 2, false, wrong->how);
    wrong->make(&step);
    if (world.table->submit(world.gpu, &step.step, NULL, &error) == OK)
        (void)world.table->wait(world.gpu, 1, &result, &error);
}

/* Runs it in a child process; its standard error in ret_text. */
static int status_of(const struct wrong *wrong, char *ret_text, size_t room) {
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        (void)signal(SIGABRT, SIG_DFL);
        run_wrong(wrong);
        _exit(0);
    }
    (void)close(ends[1]);
    size_t bytes = 0;
    ssize_t count;
    while (bytes + 1 < room && (count = read(ends[0], ret_text + bytes, room - 1 - bytes)) > 0)
        bytes += (size_t)count;
    ret_text[bytes] = 0;
    (void)close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void a_broken_invariant_ends_the_process_with_a_sentence(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        char text[1024];
        int status = status_of(&wrongs[i], text, sizeof text);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
            fail_msg("\"%s\" did not abort: %s", wrongs[i].sentence, text);
        if (!strstr(text, wrongs[i].sentence))
            fail_msg("\"%s\" is not in: %s", wrongs[i].sentence, text);
    }
}

static void groups_of_two_windows_have_pages_of_their_own(void **state) {
    (void)state;
    struct world world;
    struct error error = {0};
    world_open(&world, &windowed, 1);
    assert_int_equal(world.limits.group_count, 2);
    assert_int_equal(one_step(&world, 1, &error), OK);
    world_close(&world);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cards_are_listed_without_being_opened),
        cmocka_unit_test(a_card_that_is_not_there_or_too_small_is_not_opened),
        cmocka_unit_test(the_plugin_has_the_same_table),
        cmocka_unit_test(the_ledger_adds_up_and_pages_fill_the_memory),
        cmocka_unit_test(a_cache_that_does_not_fit_is_refused_with_its_ledger),
        cmocka_unit_test(forms_and_shapes_without_kernels_are_refused),
        cmocka_unit_test(e4m3_has_its_values_to_the_nearest_even),
        cmocka_unit_test(rows_outside_a_matrix_are_refused),
        cmocka_unit_test(warm_names_the_rows_that_are_missing),
        cmocka_unit_test(the_call_that_the_environment_names_fails),
        cmocka_unit_test(a_hanging_call_hangs),
        cmocka_unit_test(a_broken_invariant_ends_the_process_with_a_sentence),
        cmocka_unit_test(groups_of_two_windows_have_pages_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
