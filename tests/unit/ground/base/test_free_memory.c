/* SPDX-License-Identifier: Apache-2.0 */
#include "base/free_memory.h"

#include "../../tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MIB (1ull << 20)

static char root[] = "/tmp/quern-test-memory-XXXXXX";

static int make_machine(void **state) {
    (void)state;
    memcpy(root + sizeof root - 7, "XXXXXX", 6);
    if (!mkdtemp(root)) return -1;
    tree_write(root, "/proc/meminfo", "MemTotal:  8388608 kB\nMemAvailable:   4194304 kB\n");
    return 0;
}

static int remove_machine(void **state) {
    (void)state;
    tree_remove(root);
    return 0;
}

static void a_machine_without_limits_has_what_is_available(void **state) {
    (void)state;
    assert_int_equal(free_memory_bytes_under(root), 4096 * MIB);
    tree_write(root, "/proc/self/cgroup", "0::/\n");
    tree_write(root, "/sys/fs/cgroup/memory.max", "max\n");
    assert_int_equal(free_memory_bytes_under(root), 4096 * MIB);
    assert_int_equal(free_memory_bytes_under("/nowhere"), 0);
    assert_true(free_memory_bytes() > 0);
}

static void the_narrowest_group_around_counts_without_the_pages_of_files(void **state) {
    (void)state;
    tree_write(root, "/proc/self/cgroup", "0::/system.slice/quern.service\n");
    tree_write(root, "/sys/fs/cgroup/system.slice/memory.max", "1073741824\n");
    tree_write(root, "/sys/fs/cgroup/system.slice/memory.current", "943718400\n");
    assert_int_equal(free_memory_bytes_under(root), 124 * MIB);
    tree_write(root, "/sys/fs/cgroup/system.slice/memory.stat",
               "anon 1\nactive_file 104857600\ninactive_file 52428800\ninactive_anon 5\n");
    assert_int_equal(free_memory_bytes_under(root), 274 * MIB);
    tree_write(root, "/sys/fs/cgroup/system.slice/quern.service/memory.max", "104857600\n");
    tree_write(root, "/sys/fs/cgroup/system.slice/quern.service/memory.current", "209715200\n");
    assert_int_equal(free_memory_bytes_under(root), 0);
}

static void groups_of_version_1_and_a_container_whose_path_is_the_hosts_count(void **state) {
    (void)state;
    tree_write(root, "/proc/self/cgroup", "8:pids:/x\n4:memory:/docker/0123\n1:cpu:/y\nnonsense\n");
    tree_write(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
    tree_write(root, "/sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n");
    tree_write(root, "/sys/fs/cgroup/memory/memory.stat",
               "inactive_file 7\ntotal_inactive_file 536870912\ntotal_active_file 0\n");
    assert_int_equal(free_memory_bytes_under(root), 1536 * MIB);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_machine_without_limits_has_what_is_available,
                                        make_machine, remove_machine),
        cmocka_unit_test_setup_teardown(
            the_narrowest_group_around_counts_without_the_pages_of_files, make_machine,
            remove_machine),
        cmocka_unit_test_setup_teardown(
            groups_of_version_1_and_a_container_whose_path_is_the_hosts_count, make_machine,
            remove_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
