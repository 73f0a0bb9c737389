/* SPDX-License-Identifier: Apache-2.0
 * Reads the available memory from the files of Linux. */
#include "api/base/memory_left.h"

#include "api/base/control_groups.h"

#include <stdio.h>

/* The files of a control group in versions 1 and 2. */
typedef struct version {
    const char *limit, *used, *active, *inactive;
} version;

static const version versions[] = {
    {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_active_file ", "total_inactive_file "},
    {"memory.max", "memory.current", "active_file ", "inactive_file "},
};

/* The minimum so far and its owner. */
typedef struct minimum {
    int64_t left;
    char *owner;
    size_t room;
} minimum;

/* Returns the number after `key` at the start of a line, or -1 if there is none. */
static int64_t number_in(const char *folder, const char *file, const char *key)
{
    double number;
    if (!tx_read_numbers(folder, file, key, 1, &number))
        return -1;
    return number < 0x1p63 ? (int64_t)number : INT64_MAX;
}

static int64_t at_least_zero(int64_t number)
{
    return number > 0 ? number : 0;
}

/* Applies the remaining memory of a control group. File caches are reclaimed before an allocation fails, so they count
 * as free. */
static void apply_limit(void *context, const char *folder, const char *name, bool second)
{
    minimum *l = context;
    const version *v = &versions[second];
    const int64_t limit = number_in(folder, v->limit, ""), used = number_in(folder, v->used, "");
    if (limit < 0 || used < 0)
        return;
    const int64_t caches = at_least_zero(number_in(folder, "memory.stat", v->active)) +
                           at_least_zero(number_in(folder, "memory.stat", v->inactive));
    const int64_t left = at_least_zero(limit - at_least_zero(used - caches));
    if (left < l->left) {
        l->left = left;
        snprintf(l->owner, l->room, "the control group %s", name);
    }
}

int64_t tx_memory_left(const char *root, char *owner, size_t room)
{
    char list[200], base[160];
    snprintf(base, sizeof base, "%.100s/proc", root);
    const int64_t kilobytes = number_in(base, "meminfo", "MemAvailable:");
    minimum l = {kilobytes < 0 ? INT64_MAX : kilobytes * 1024, owner, room};
    snprintf(owner, room, "the host");
    snprintf(list, sizeof list, "%s/self/cgroup", base);
    snprintf(base, sizeof base, "%.100s/sys/fs/cgroup", root);
    tx_control_groups(list, base, "memory", apply_limit, &l);
    return l.left;
}
