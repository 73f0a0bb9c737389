/* SPDX-License-Identifier: Apache-2.0
 * Processors: those that the process may run on, and the limits of its control groups. */
#define _GNU_SOURCE /* sched_setaffinity */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/base/cores.h"
#include "api/base/file.h"
#include "scratch.h"

#include <sched.h>

typedef struct limit {
    const char *file, *text; /* under the root; NULL: no more */
} limit;

/* Version 2, version 1 with a folder for several controllers, as systemd has it, and none. */
static const struct {
    const char *groups;
    limit limits[5];
    int32_t cores;
} cases[] = {
    {"0::/\n", {{"cpu.max", "200000 100000\n"}}, 2},
    {"0::/\n", {{"cpu.max", "250000 100000\n"}}, 3},
    {"0::/\n", {{"cpu.max", "10000 100000\n"}}, 1},
    {"0::/\n", {{"cpu.max", "max 100000\n"}}, INT32_MAX},
    {"0::/\n", {{"cpu.max", "200000\n"}}, INT32_MAX},
    {"0::/\n", {{"cpu.max", ""}}, INT32_MAX},
    {"0::/a/b\n", {{"a/b/cpu.max", "max 100000\n"}, {"a/cpu.max", "150000 100000\n"}}, 2},
    {"0::/a/b\n", {{"a/b/cpu.max", "400000 50000\n"}, {"a/cpu.max", "900000 100000\n"}}, 8},
    {"0::/docker/1\n", {{"cpu.max", "300000 100000\n"}}, 3}, /* the path is the host's */
    {"12:pids:/x\n4:cpu,cpuacct:/x\n0::/\n",
     {{"cpu,cpuacct/x/cpu.cfs_quota_us", "50000\n"}, {"cpu,cpuacct/x/cpu.cfs_period_us", "20000\n"}},
     3},
    {"4:cpu:/docker/1\n", {{"cpu/cpu.cfs_quota_us", "100000\n"}, {"cpu/cpu.cfs_period_us", "100000\n"}}, 1},
    {"4:cpu:/\n", {{"cpu/cpu.cfs_quota_us", "-1\n"}, {"cpu/cpu.cfs_period_us", "100000\n"}}, INT32_MAX},
    {"4:cpu:/\n", {{"cpu/cpu.cfs_quota_us", "100000\n"}, {"cpu/cpu.cfs_period_us", "0\n"}}, INT32_MAX},
    {"4:cpuset:/\n", {{"cpuset/cpu.cfs_quota_us", "1\n"}, {"cpuset/cpu.cfs_period_us", "1\n"}}, INT32_MAX},
    {"nonsense\n4:cpu\n\n", {{"cpu.max", "100000 100000\n"}}, INT32_MAX},
    {"", {{"cpu.max", "100000 100000\n"}}, INT32_MAX},
};

static void limits_of_groups(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *root = make_scratch(), *groups = tx_path_join(root, "groups");
        assert_ok(tx_file_write(groups, cases[i].groups, strlen(cases[i].groups)));
        for (const limit *l = cases[i].limits; l->file; l++) {
            char *path = tx_path_join(root, l->file), *slash = strrchr(path, '/');
            *slash = '\0';
            assert_ok(tx_folder_create(path));
            *slash = '/';
            assert_ok(tx_file_write(path, l->text, strlen(l->text)));
            free(path);
        }
        const int32_t cores = tx_cores_quota_of(groups, root);
        if (cores != cases[i].cores)
            fail_msg("case %zu: %d cores, not %d", i, (int)cores, (int)cases[i].cores);
        assert_int_equal(tx_cores_quota_of("/nowhere/groups", root), INT32_MAX);
        free(groups);
        remove_scratch(root);
    }
}

static void processors_of_the_process(void **state)
{
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_int_equal(tx_cores_allowed(), CPU_COUNT(&all));
    assert_true(tx_cores() >= 1 && tx_cores() <= tx_cores_allowed() && tx_cores() <= tx_cores_quota());
    int first = 0;
    while (!CPU_ISSET((size_t)first, &all))
        first++;
    CPU_ZERO(&one);
    CPU_SET((size_t)first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(tx_cores(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_of_groups),
        cmocka_unit_test(processors_of_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
