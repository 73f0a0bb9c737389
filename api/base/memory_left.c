/* SPDX-License-Identifier: Apache-2.0
 * How much memory there is to take, as the files of Linux tell it. */
#include "api/base/memory_left.h"

#include "api/base/control_groups.h"

#include <stdio.h>

/* The files of a control group, in the two versions of them. */
typedef struct version {
    const char *limit, *used, *active, *inactive;
} version;

static const version versions[] = {
    {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_active_file ", "total_inactive_file "},
    {"memory.max", "memory.current", "active_file ", "inactive_file "},
};

/* The least so far, and whose it is. */
typedef struct least {
    int64_t left;
    char *owner;
    size_t room;
} least;

/* The number after `key` at the beginning of a line; -1 if there is none. */
static int64_t number_in(const char *folder, const char *file, const char *key)
{
    double number;
    if (!tx_read_numbers(folder, file, key, 1, &number))
        return -1;
    return number < 0x1p63 ? (int64_t)number : INT64_MAX;
}

static int64_t not_less(int64_t number)
{
    return number > 0 ? number : 0;
}

/* What a control group still has; caches of files are given up before anything is refused. */
static void look_at_group(void *context, const char *folder, const char *name, bool second)
{
    least *l = context;
    const version *v = &versions[second];
    const int64_t limit = number_in(folder, v->limit, ""), used = number_in(folder, v->used, "");
    if (limit < 0 || used < 0)
        return;
    const int64_t caches =
        not_less(number_in(folder, "memory.stat", v->active)) + not_less(number_in(folder, "memory.stat", v->inactive));
    const int64_t left = not_less(limit - not_less(used - caches));
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
    least l = {kilobytes < 0 ? INT64_MAX : kilobytes * 1024, owner, room};
    snprintf(owner, room, "the host");
    snprintf(list, sizeof list, "%s/self/cgroup", base);
    snprintf(base, sizeof base, "%.100s/sys/fs/cgroup", root);
    tx_control_groups(list, base, "memory", look_at_group, &l);
    return l.left;
}
