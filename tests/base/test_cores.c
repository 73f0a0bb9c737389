/* SPDX-License-Identifier: Apache-2.0
 * Processors: those that the process may run on, and the limits of its control groups. */
#define _GNU_SOURCE /* sched_setaffinity */
#include "tests/unit.h"

#include "api/base/cores.h"
#include "api/base/file.h"
#include "models/files/folder.h"
#include "tests/scratch.h"

#include <sched.h>

typedef struct limit {
    const char *file, *text; /* path below the root; NULL ends the list */
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

/* The load of other programs, from files below a root, and of other ranks, from the environment. */
static void sharing(void **state)
{
    static const struct {
        const char *pressure, *stat; /* NULL if there is no such file */
        int32_t threads;
        const char *ranks;
        bool shared;
    } rows[] = {
        {"some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n", NULL, 1, NULL, false},
        {"some avg10=9.99 avg60=50.00 avg300=0.00 total=1\n", "procs_running 1\n", 1, NULL, false},
        {"some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n", "procs_running 100000\n", 1, NULL, true},
        {"some avg10=10.01 avg60=0.00 avg300=0.00 total=1\n", NULL, 1, NULL, true},
        {NULL, "cpu 1 2\nprocs_running 1\n", 1, NULL, false},
        {NULL, "cpu 1 2\nprocs_running 100000\n", 1, NULL, true},
        {NULL, NULL, 1, NULL, false},
        {NULL, NULL, 100000, NULL, true}, /* more threads than processors */
        {NULL, NULL, 0, "100000", true},
        {NULL, NULL, 0, "1", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *root = make_scratch();
        assert_ok(tx_folder_create(TX_PATH(root, "proc")));
        assert_ok(tx_folder_create(TX_PATH(root, "proc/pressure")));
        if (rows[i].pressure)
            assert_ok(tx_file_write(TX_PATH(root, "proc/pressure/cpu"), rows[i].pressure, strlen(rows[i].pressure)));
        if (rows[i].stat)
            assert_ok(tx_file_write(TX_PATH(root, "proc/stat"), rows[i].stat, strlen(rows[i].stat)));
        unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
        unsetenv("MPI_LOCALNRANKS");
        if (rows[i].ranks)
            setenv("MPI_LOCALNRANKS", rows[i].ranks, 1);
        if (tx_cores_quota() >= tx_cores_allowed()) /* else cores are always shared */
            assert_int_equal(tx_cores_shared_at(root, rows[i].threads), rows[i].shared);
        remove_scratch(root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_of_groups),
        cmocka_unit_test(sharing),
        cmocka_unit_test(processors_of_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
