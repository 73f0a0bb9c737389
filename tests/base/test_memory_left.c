/* SPDX-License-Identifier: Apache-2.0
 * Memory that a host and control groups still have, from files of both versions that a test wrote. */
#include "api/base/memory_left.h"

#include "tests/scratch.h"

/* Writes ROOT/FOLDER/NAME. */
static void put(const char *root, const char *folder, const char *name, const char *text)
{
    char path[1000];
    snprintf(path, sizeof path, "%s/%s", root, folder);
    assert_ok(tx_folder_create(path));
    snprintf(path, sizeof path, "%s/%s/%s", root, folder, name);
    assert_ok(tx_file_write(path, text, strlen(text)));
}

static void expect(const char *root, int64_t bytes, const char *owner)
{
    char got[200] = "";
    assert_int_equal(tx_memory_left(root, got, sizeof got), bytes);
    assert_string_equal(got, owner);
}

static void the_host(void **state)
{
    expect(*state, INT64_MAX, "the host");
    put(*state, "proc", "meminfo", "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable:    3000 kB\n");
    expect(*state, 3072000, "the host");
    put(*state, "proc/self", "cgroup", "");
    expect(*state, 3072000, "the host");
    put(*state, "proc/self", "cgroup", "1:cpu:/a\n0::/nowhere\n4:memory:\nx\n\n:\n");
    expect(*state, 3072000, "the host");
}

static void version_1(void **state)
{
    static const char *const group = "sys/fs/cgroup/memory/outer/inner";
    put(*state, "proc/self", "cgroup", "9:name=systemd:/\n4:memory:/outer/inner\n0::/\n");
    put(*state, group, "memory.limit_in_bytes", "9223372036854771712\n");
    put(*state, group, "memory.usage_in_bytes", "5000\n");
    expect(*state, 3072000, "the host");
    put(*state, group, "memory.limit_in_bytes", "1000000\n");
    put(*state, group, "memory.usage_in_bytes", "900000\n");
    expect(*state, 100000, "the control group /outer/inner");
    put(*state, group, "memory.stat", "inactive_file 7\ntotal_inactive_file 50000\ntotal_active_file 1000\n");
    expect(*state, 151000, "the control group /outer/inner");
    put(*state, "sys/fs/cgroup/memory", "memory.limit_in_bytes", "100\n");
    put(*state, "sys/fs/cgroup/memory", "memory.usage_in_bytes", "100\n");
    expect(*state, 0, "the control group /");
}

static void version_2(void **state)
{
    static const char *const inner = "sys/fs/cgroup/outer/inner";
    put(*state, "proc/self", "cgroup", "0::/outer/inner\n");
    put(*state, inner, "memory.max", "max\n");
    put(*state, inner, "memory.current", "5000\n");
    expect(*state, 3072000, "the host");
    put(*state, "sys/fs/cgroup/outer", "memory.max", "2000000\n");
    put(*state, "sys/fs/cgroup/outer", "memory.current", "1500000\n");
    put(*state, "sys/fs/cgroup/outer", "memory.stat", "anon 9\nactive_file 30\ninactive_file 400\n");
    expect(*state, 500430, "the control group /outer");
    put(*state, inner, "memory.max", "1000\n");
    expect(*state, 0, "the control group /outer/inner");
    put(*state, inner, "memory.max", "nonsense\n");
    expect(*state, 500430, "the control group /outer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host),
        cmocka_unit_test(version_1),
        cmocka_unit_test(version_2),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
