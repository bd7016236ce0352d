/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/config_file.h"
#include "cli/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* --- the text of a file --- */

static void settings_are_read_line_by_line(void **state) {
    (void)state;
    struct config_reader reader = {
        .rest = STR("# first\n\n  port = 81 \r\nmodel=a=/b c.gguf # no comment\n\tx-1\t=\ty")};
    struct config_setting setting;
    struct error error;
    enum err err;
    assert_true(config_next(&reader, &setting, &err, &error));
    assert_true(str_is(setting.key, "port") && str_is(setting.value, "81"));
    assert_int_equal(reader.line, 3);
    assert_true(config_next(&reader, &setting, &err, &error));
    assert_true(str_is(setting.key, "model"));
    assert_true(str_is(setting.value, "a=/b c.gguf # no comment"));
    assert_true(config_next(&reader, &setting, &err, &error));
    assert_true(str_is(setting.key, "x-1") && str_is(setting.value, "y"));
    assert_int_equal(reader.line, 5);
    assert_false(config_next(&reader, &setting, &err, &error));
    assert_int_equal(err, OK);
}

static void everything_else_is_an_error_with_its_line(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"ok = 1\n[server]\n", "there are no sections"},
        {"ok = 1\nport 8080\n", "'key = value'"},
        {"ok = 1\n = 8080\n", "not the name of an option"},
        {"ok = 1\n--port = 8080\n", "without dashes"},
        {"ok = 1\nPort = 8080\n", "lower-case"},
        {"ok = 1\nport =\n", "'port' has no value"},
        {"ok = 1\nport = a\x01\n", "clean UTF-8"},
        {"ok = 1\nport = \xff\n", "clean UTF-8"},
        {"ok = 1\n\xef\xbb\xbfport = 1\n", "not the name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config_reader reader = {.rest = str_from(cases[i].text)};
        struct config_setting setting;
        struct error error;
        enum err err;
        assert_true(config_next(&reader, &setting, &err, &error));
        assert_false(config_next(&reader, &setting, &err, &error));
        assert_int_equal(err, ERR_INVALID);
        assert_int_equal(reader.line, 2);
        if (!strstr(error.text, cases[i].says)) fail_msg("%s", error.text);
    }
}

/* --- all sources --- */

static char folder[] = "/tmp/quern-test-settings-XXXXXX";

static int make_folder(void **state) {
    (void)state;
    char path[128];
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/quern", folder);
    return mkdir(path, 0700) || setenv("XDG_CONFIG_HOME", folder, 1);
}

static void write_user_file(const char *text) {
    char path[128];
    snprintf(path, sizeof path, "%s/quern/config", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

struct target {
    int64_t port;
    bool caching;
    const char *host;
    struct option_list models;
};

#define AT(field) offsetof(struct target, field)
static const struct option rows[] = {
    {"port", OPTION_INTEGER, AT(port), "N", .max = 65535},
    {"enable-prefix-caching", OPTION_SWITCH, AT(caching), .value = NULL},
    {"host", OPTION_TEXT, AT(host), .value = "ADDRESS"},
    {"model", OPTION_LIST, AT(models), .value = "M"},
    {"input-file", OPTION_TEXT, AT(host), .value = "F", .only_flag = true},
    {0},
};
static const struct option_table table = {rows, 0};

static struct options options; /* as the last read_with left them */

static enum err read_with(struct settings *settings, struct target *target, int argc,
                          const char **argv, struct error *error) {
    *settings = (struct settings){0};
    *target = (struct target){.port = 8080, .caching = true};
    options_bind(&options, &table, 1, target);
    enum err err = settings_load(settings, &options, NULL, error);
    if (err != OK) return err;
    return options_read(&options, argc, (char **)(uintptr_t)argv, NULL, 0, NULL, error);
}

static void flags_win_over_the_environment_and_that_over_the_file(void **state) {
    (void)state;
    struct settings settings;
    struct target target;
    struct error error;
    const char *flags[] = {"--port", "3"};
    write_user_file("port = 1\nhost = file\nenable-prefix-caching = false\n");
    assert_int_equal(read_with(&settings, &target, 0, NULL, &error), OK);
    assert_int_equal(target.port, 1);
    assert_false(target.caching);
    assert_string_equal(target.host, "file");
    assert_non_null(strstr(options.at[0].origin, "/quern/config:1"));
    settings_release(&settings);
    setenv("QUERN_PORT", "2", 1);
    setenv("QUERN_ENABLE_PREFIX_CACHING", "true", 1);
    assert_int_equal(read_with(&settings, &target, 0, NULL, &error), OK);
    assert_int_equal(target.port, 2);
    assert_true(target.caching);
    assert_string_equal(options.at[0].origin, "QUERN_PORT");
    settings_release(&settings);
    assert_int_equal(read_with(&settings, &target, 2, flags, &error), OK);
    assert_int_equal(target.port, 3);
    assert_string_equal(target.host, "file");
    settings_release(&settings);
    unsetenv("QUERN_PORT");
    unsetenv("QUERN_ENABLE_PREFIX_CACHING");
}

static void a_list_takes_the_place_of_the_list_before(void **state) {
    (void)state;
    struct settings settings;
    struct target target;
    struct error error;
    const char *flags[] = {"--model", "d"};
    write_user_file("model = a\nmodel = b c\n");
    assert_int_equal(read_with(&settings, &target, 0, NULL, &error), OK);
    assert_int_equal(target.models.count, 2);
    assert_string_equal(target.models.values[1], "b c");
    settings_release(&settings);
    setenv("QUERN_MODEL", "x, y,z", 1);
    assert_int_equal(read_with(&settings, &target, 0, NULL, &error), OK);
    assert_int_equal(target.models.count, 3);
    assert_string_equal(target.models.values[1], "y");
    settings_release(&settings);
    assert_int_equal(read_with(&settings, &target, 2, flags, &error), OK);
    assert_int_equal(target.models.count, 1);
    assert_string_equal(target.models.values[0], "d");
    settings_release(&settings);
    unsetenv("QUERN_MODEL");
}

static void what_is_wrong_in_a_file_names_file_and_line(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"port = 1\nprot = 2\n", "config:2: no option --prot; did you mean --port?"},
        {"port = 1\nport = 2\n", "config:2: 'port' was set in line 1 already"},
        {"port = 70000\n", "config:1: --port: 70000 is outside 0 to 65535"},
        {"enable-prefix-caching = yes\n", "config:1: 'enable-prefix-caching' is true or false"},
        {"input-file = x\n", "config:1: 'input-file' is for the command line only"},
        {"port\n", "config:1: this line is not"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct settings settings;
        struct target target;
        struct error error;
        write_user_file(cases[i].text);
        assert_int_equal(read_with(&settings, &target, 0, NULL, &error), ERR_INVALID);
        if (!strstr(error.text, cases[i].says)) fail_msg("%s", error.text);
        settings_release(&settings);
    }
}

static void a_key_of_another_command_is_passed_over(void **state) {
    (void)state;
    struct settings settings;
    struct target target;
    struct error error;
    write_user_file("drain-seconds = 5\nkernels = ref\nport = 7\n");
    assert_int_equal(read_with(&settings, &target, 0, NULL, &error), OK);
    assert_int_equal(target.port, 7);
    settings_release(&settings);
}

static void a_named_file_takes_the_place_of_the_usual_ones(void **state) {
    (void)state;
    struct settings settings;
    struct target target;
    struct error error;
    char path[128];
    write_user_file("port = 7\n");
    snprintf(path, sizeof path, "%s/own", folder);
    setenv("QUERN_CONFIG", path, 1);
    assert_int_equal(read_with(&settings, &target, 0, NULL, &error), ERR_NOT_FOUND);
    settings_release(&settings);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("host = own\n", file);
    fclose(file);
    assert_int_equal(read_with(&settings, &target, 0, NULL, &error), OK);
    assert_int_equal(target.port, 8080);
    assert_string_equal(target.host, "own");
    settings_release(&settings);
    unsetenv("QUERN_CONFIG");
    unlink(path);
}

static int remove_folder(void **state) {
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/quern/config", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/quern", folder);
    rmdir(path);
    return rmdir(folder);
}

/* --- sizes and foreign options --- */

static void a_size_takes_the_units_that_vllm_takes(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"4096", 4096},        {"64k", 64000},      {"64K", 65536},   {"2GiB", 2ll << 30},
                {"1.5GiB", 3 << 29},   {"2GB", 2000000000}, {"25.6k", 25600}, {"1 MiB", 1 << 20},
                {"3t", 3000000000000}, {"1Ti", 1ll << 40}};
    static const char *const bad[] = {"",    "k",   "1x",        "1KiBs", "-1k",
                                      "1.5", "1e3", "99999999T", "1..2k"};
    int64_t value;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        value = 0;
        if (!option_size(str_from(good[i].text), &value) || value != good[i].value)
            fail_msg("%s: %lld", good[i].text, (long long)value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (option_size(str_from(bad[i]), &value)) fail_msg("'%s' is taken", bad[i]);
}

struct flags {
    int64_t bytes, mib, cards;
    struct option_list models;
};

static const struct option flag_rows[] = {
    {"some-bytes", OPTION_INTEGER, offsetof(struct flags, bytes), "N", .help = "", .is_size = true},
    {"some-mib", OPTION_INTEGER, offsetof(struct flags, mib), "N", .help = "", .is_size = true},
    {"cards", OPTION_INTEGER, offsetof(struct flags, cards), "N", .help = "", .brief = "tp"},
    {"model", OPTION_LIST, offsetof(struct flags, models), "M", .help = ""},
    {0},
};
static const struct option foreign_rows[] = {
    {"eager", OPTION_FOREIGN_SWITCH, .help = "why"},
    {"stages", OPTION_FOREIGN, .value = "N", .takes = "1", .help = "why", .brief = "pp"},
    {"adapters", OPTION_FOREIGN_SWITCH, .takes = "", .help = "merge them"},
    {"model", OPTION_FOREIGN, .value = "N", .takes = "", .help = "not this one"},
    {0},
};

static enum err read_flags(struct flags *flags, struct error *error, const char *const *argv) {
    const struct option_table tables[] = {{flag_rows, 0}, {foreign_rows, 0}};
    struct options bound;
    int argc = 0;
    while (argv[argc]) argc++;
    *flags = (struct flags){.bytes = 0};
    options_bind(&bound, tables, 2, flags);
    return options_read(&bound, argc, (char **)(uintptr_t)argv, NULL, 0, "model", error);
}

#define READ(...) read_flags(&flags, &error, (const char *[]){__VA_ARGS__, NULL})

static void foreign_options_are_noted_or_refused_and_never_ignored(void **state) {
    (void)state;
    struct flags flags;
    struct error error;
    assert_int_equal(READ("--some_bytes", "64K", "--some-mib=24GiB", "-tp", "1", "a", "--eager",
                          "--no-eager", "-pp", "1", "b", "--model", "c", "--no-adapters"),
                     OK);
    assert_int_equal(flags.bytes, 65536);
    assert_int_equal(flags.mib, 24 * 1024);
    assert_int_equal(flags.cards, 1);
    assert_int_equal(flags.models.count, 3);
    assert_string_equal(flags.models.values[1], "b");
    assert_int_equal(READ("--some-mib", "24"), OK);
    assert_int_equal(flags.mib, 24);
    assert_int_equal(READ("--stages", "2"), ERR_INVALID);
    assert_non_null(strstr(error.text, "--stages 2 is not supported (1): why"));
    assert_int_equal(READ("--adapters"), ERR_INVALID);
    assert_non_null(strstr(error.text, "merge them"));
    assert_int_equal(READ("--some-bytes", "many"), ERR_INVALID);
    assert_non_null(strstr(error.text, "64k"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_are_read_line_by_line),
        cmocka_unit_test(everything_else_is_an_error_with_its_line),
        cmocka_unit_test(flags_win_over_the_environment_and_that_over_the_file),
        cmocka_unit_test(a_list_takes_the_place_of_the_list_before),
        cmocka_unit_test(what_is_wrong_in_a_file_names_file_and_line),
        cmocka_unit_test(a_key_of_another_command_is_passed_over),
        cmocka_unit_test(a_named_file_takes_the_place_of_the_usual_ones),
        cmocka_unit_test(a_size_takes_the_units_that_vllm_takes),
        cmocka_unit_test(foreign_options_are_noted_or_refused_and_never_ignored),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
