/* SPDX-License-Identifier: Apache-2.0
 * Processors of this process, as Linux tells them. What cannot be read is no limit. */
#define _GNU_SOURCE /* sets of more than 1024 processors */
#include "api/base/cores.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROCESSORS_MAX (1 << 16)

int32_t tx_cores_allowed(void)
{
    cpu_set_t *set = CPU_ALLOC(PROCESSORS_MAX);
    const size_t size = CPU_ALLOC_SIZE(PROCESSORS_MAX);
    const int count = set && sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 1;
    if (set)
        CPU_FREE(set);
    return count > 0 ? count : 1;
}

/* ---- Control groups ----------------------------------------------------------------------------------- */

/* Reads as many numbers from a file; false where it has fewer: no limit is written "max". */
static bool read_numbers(const char *folder, const char *name, int count, double number[2])
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return false;
    FILE *file = fopen(path, "r");
    const int found = file ? fscanf(file, "%lf %lf", &number[0], &number[1]) : 0;
    if (file)
        fclose(file);
    return found >= count;
}

/* The limit of one group: version 2 has both numbers in a file, version 1 a file for each and -1 for none. */
static int32_t quota_of_group(const char *folder)
{
    double both[2], quota[2], period[2];
    if (read_numbers(folder, "cpu.max", 2, both)) {
        quota[0] = both[0];
        period[0] = both[1];
    } else if (!read_numbers(folder, "cpu.cfs_quota_us", 1, quota) ||
               !read_numbers(folder, "cpu.cfs_period_us", 1, period)) {
        return INT32_MAX;
    }
    if (!(quota[0] > 0.0 && period[0] > 0.0 && quota[0] / period[0] < PROCESSORS_MAX))
        return INT32_MAX;
    const int32_t whole = (int32_t)(quota[0] / period[0]);
    return whole + ((double)whole * period[0] < quota[0]);
}

/* The least limit of a group and of those that it is in. A container may see its own group as the uppermost one under a
 * path that is another one's: what is not there is no limit. */
static int32_t quota_of_path(const char *root, const char *controller, const char *path)
{
    char folder[PATH_MAX];
    const int top = snprintf(folder, sizeof folder, "%s%s%s", root, *controller ? "/" : "", controller);
    if (top >= (int)sizeof folder ||
        snprintf(folder + top, sizeof folder - (size_t)top, "%s", path) >= (int)(sizeof folder - (size_t)top))
        return INT32_MAX;
    int32_t least = quota_of_group(folder);
    for (char *slash = strrchr(folder + top, '/'); slash; slash = strrchr(folder + top, '/')) {
        *slash = '\0';
        const int32_t above = quota_of_group(folder);
        least = above < least ? above : least;
    }
    return least;
}

static bool has_word(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, word, length) == 0 && (at[length] == ',' || !at[length]))
            return true;
    return false;
}

int32_t tx_cores_quota_of(const char *groups, const char *root)
{
    char line[PATH_MAX + 256];
    int32_t least = INT32_MAX;
    FILE *file = fopen(groups, "r");
    while (file && fgets(line, sizeof line, file)) { /* "4:cpu,cpuacct:/path", or "0::/path" of version 2 */
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        controllers++;
        if (*controllers && !has_word(controllers, "cpu"))
            continue;
        const int32_t quota = quota_of_path(root, controllers, path);
        least = quota < least ? quota : least;
    }
    if (file)
        fclose(file);
    return least;
}

int32_t tx_cores_quota(void)
{
    return tx_cores_quota_of("/proc/self/cgroup", "/sys/fs/cgroup");
}

int32_t tx_cores(void)
{
    const int32_t allowed = tx_cores_allowed(), quota = tx_cores_quota();
    return quota < allowed ? quota : allowed;
}
