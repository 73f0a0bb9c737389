/* SPDX-License-Identifier: Apache-2.0
 * How much memory there is to take, as the files of Linux tell it. */
#include "comm/memory_left.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The files of a control group, in the two versions of them. */
typedef struct version {
    const char *base, *limit, *used, *active, *inactive;
} version;

static const version versions[] = {
    {"memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_active_file ", "total_inactive_file "},
    {"", "memory.max", "memory.current", "active_file ", "inactive_file "},
};

/* The number behind `key` at the beginning of a line; -1 where there is none. */
static int64_t number_in(const char *folder, const char *file, const char *key)
{
    char path[4400], line[256];
    int64_t found = -1;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *from = fopen(path, "re");
    while (from && found < 0 && fgets(line, sizeof line, from)) {
        char *end = line;
        long long number = strncmp(line, key, strlen(key)) == 0 ? strtoll(line + strlen(key), &end, 10) : -1;
        found = end > line + strlen(key) ? number : -1;
    }
    if (from)
        fclose(from);
    return found;
}

static int64_t not_less(int64_t number)
{
    return number > 0 ? number : 0;
}

/* What a control group still has; caches of files are given up before anything is refused. */
static int64_t left_in(const version *v, const char *folder)
{
    const int64_t limit = number_in(folder, v->limit, ""), used = number_in(folder, v->used, "");
    if (limit < 0 || used < 0)
        return INT64_MAX;
    const int64_t caches =
        not_less(number_in(folder, "memory.stat", v->active)) + not_less(number_in(folder, "memory.stat", v->inactive));
    return not_less(limit - not_less(used - caches));
}

/* The least of a control group, a path from `base`, and those that it is in. */
static void look_at_group(const version *v, const char *base, char *group, int64_t *left, char *owner, size_t room)
{
    char folder[4300];
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
        *end = 0;
        snprintf(folder, sizeof folder, "%.150s/%s%.4000s", base, v->base, group);
        const int64_t here = left_in(v, folder);
        if (here < *left) {
            *left = here;
            snprintf(owner, room, "the control group %s", *group ? group : "/");
        }
    }
}

int64_t tx_memory_left(const char *root, char *owner, size_t room)
{
    char path[200], base[160], line[4200];
    snprintf(base, sizeof base, "%.100s/proc", root);
    const int64_t kilobytes = number_in(base, "meminfo", "MemAvailable:");
    int64_t left = kilobytes < 0 ? INT64_MAX : kilobytes * 1024;
    snprintf(owner, room, "the host");
    snprintf(path, sizeof path, "%s/self/cgroup", base);
    snprintf(base, sizeof base, "%.100s/sys/fs/cgroup", root);
    FILE *groups = fopen(path, "re");
    while (groups && fgets(line, sizeof line, groups)) { /* NUMBER:CONTROLLERS:PATH */
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = 0;
        const bool second = controllers[1] == 0;
        if (second || strstr(controllers, "memory"))
            look_at_group(&versions[second], base, group, &left, owner, room);
    }
    if (groups)
        fclose(groups);
    return left;
}
