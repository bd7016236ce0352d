/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu_share.h"

#include "../../tree.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static char root[] = "/tmp/quern-test-share-XXXXXX";

static int make_machine(void **state) {
    (void)state;
    memcpy(root + sizeof root - 7, "XXXXXX", 6);
    if (!mkdtemp(root)) return -1;
    tree_write(root, "/proc/self/cgroup", "0::/a.slice/b.service\n");
    return 0;
}

static int remove_machine(void **state) {
    (void)state;
    tree_remove(root);
    return 0;
}

static bool is_near(double value, double wanted) {
    return fabs(value - wanted) < 1e-9;
}

static void the_narrowest_group_around_counts(void **state) {
    (void)state;
    assert_true(is_near(cpu_share_cores_under(root), 0));
    tree_write(root, "/sys/fs/cgroup/a.slice/b.service/cpu.max", "max 100000\n");
    assert_true(is_near(cpu_share_cores_under(root), 0));
    tree_write(root, "/sys/fs/cgroup/a.slice/cpu.max", "150000 100000\n");
    assert_true(is_near(cpu_share_cores_under(root), 1.5));
    tree_write(root, "/sys/fs/cgroup/a.slice/b.service/cpu.max", "400000 100000\n");
    assert_true(is_near(cpu_share_cores_under(root), 1.5));
    tree_write(root, "/sys/fs/cgroup/cpu.max", "50000\n");
    assert_true(is_near(cpu_share_cores_under(root), 0.5));
    assert_true(is_near(cpu_share_cores_under("/nowhere"), 0));
}

static void groups_of_version_1_count(void **state) {
    (void)state;
    tree_write(root, "/proc/self/cgroup", "3:cpuset:/y\n2:cpu,cpuacct:/x\nnonsense\n");
    tree_write(root, "/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n");
    assert_true(is_near(cpu_share_cores_under(root), 0));
    tree_write(root, "/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "50000\n");
    assert_true(is_near(cpu_share_cores_under(root), 0.5));
    tree_write(root, "/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "25000\n");
    assert_true(is_near(cpu_share_cores_under(root), 2));
    tree_write(root, "/sys/fs/cgroup/cpu/y/cpu.cfs_quota_us", "1\n");
    assert_true(is_near(cpu_share_cores_under(root), 2));
}

static void what_the_host_takes_is_told(void **state) {
    (void)state;
    assert_true(is_near(cpu_share_stolen_under(root), 0));
    tree_write(root, "/proc/stat", "cpu  100 0 50 700 50 0 0 100 7 7\ncpu0 1 1 1\n");
    assert_true(is_near(cpu_share_stolen_under(root), 0.1));
    tree_write(root, "/proc/stat", "cpu  100 0 50\n");
    assert_true(is_near(cpu_share_stolen_under(root), 0));
    assert_true(cpu_share_stolen() >= 0 && cpu_share_stolen() < 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_narrowest_group_around_counts, make_machine,
                                        remove_machine),
        cmocka_unit_test_setup_teardown(groups_of_version_1_count, make_machine, remove_machine),
        cmocka_unit_test_setup_teardown(what_the_host_takes_is_told, make_machine, remove_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
