/* SPDX-License-Identifier: Apache-2.0 */
#include "costs/energy_meter.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/quern-powercap-XXXXXX";

static void put(const char *zone, const char *file, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, zone);
    (void)mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/%s", folder, zone, file);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fprintf(out, "%s\n", text);
    fclose(out);
}

static void put_zone(const char *zone, const char *name, const char *energy) {
    put(zone, "name", name);
    put(zone, "max_energy_range_uj", "1000000000");
    put(zone, "energy_uj", energy);
}

static void a_machine_without_counters_tells_nothing(void **state) {
    (void)state;
    struct energy_meter meter;
    energy_meter_open(&meter, "/nowhere/at/all");
    energy_meter_look(&meter);
    assert_true(isnan(energy_meter_joules(&meter)));
}

static void packages_and_memory_count_and_counters_wrap(void **state) {
    (void)state;
    struct energy_meter meter;
    assert_non_null(mkdtemp(folder));
    put_zone("intel-rapl:0", "package-0", "999000000");
    put_zone("intel-rapl:0:0", "core", "5");
    put_zone("intel-rapl:0:1", "dram", "1000000");
    put_zone("intel-rapl-mmio:0", "package-0", "999000000");
    energy_meter_open(&meter, folder);
    assert_int_equal(meter.zone_count, 2);
    assert_true(energy_meter_joules(&meter) == 0);
    put_zone("intel-rapl:0", "package-0", "2000000");
    put_zone("intel-rapl:0:0", "core", "4000000");
    put_zone("intel-rapl:0:1", "dram", "1500000");
    energy_meter_look(&meter);
    assert_true(fabs(energy_meter_joules(&meter) - 3.5) < 1e-9);
    energy_meter_look(&meter);
    assert_true(fabs(energy_meter_joules(&meter) - 3.5) < 1e-9);
    put("intel-rapl:0", "energy_uj", "");
    energy_meter_look(&meter);
    assert_true(isnan(energy_meter_joules(&meter)));
}

static int remove_folder(void **state) {
    (void)state;
    static const char *const zones[] = {"intel-rapl:0", "intel-rapl:0:0", "intel-rapl:0:1",
                                        "intel-rapl-mmio:0"};
    static const char *const files[] = {"name", "max_energy_range_uj", "energy_uj"};
    char path[256];
    for (size_t i = 0; i < sizeof zones / sizeof *zones; i++) {
        for (size_t j = 0; j < sizeof files / sizeof *files; j++) {
            snprintf(path, sizeof path, "%s/%s/%s", folder, zones[i], files[j]);
            (void)unlink(path);
        }
        snprintf(path, sizeof path, "%s/%s", folder, zones[i]);
        (void)rmdir(path);
    }
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_machine_without_counters_tells_nothing),
        cmocka_unit_test_teardown(packages_and_memory_count_and_counters_wrap, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
