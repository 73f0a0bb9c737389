/* SPDX-License-Identifier: Apache-2.0
 * Counts the processors of this process on Linux. Values that cannot be read impose no limit. */
#define _GNU_SOURCE /* for sets of more than 1024 processors */
#include "api/base/cores.h"

#include "api/base/control_groups.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

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

/* Applies the limit of one group if it is lower. Version 2 has both numbers in one file. Version 1 has a file for each,
 * and -1 for no limit. */
static void apply_limit(void *context, const char *folder, const char *name, bool second)
{
    (void)name;
    int32_t *limit = context;
    double both[2], quota[2], period[2];
    if (second && tx_read_numbers(folder, "cpu.max", "", 2, both)) {
        quota[0] = both[0];
        period[0] = both[1];
    } else if (second || !tx_read_numbers(folder, "cpu.cfs_quota_us", "", 1, quota) ||
               !tx_read_numbers(folder, "cpu.cfs_period_us", "", 1, period)) {
        return;
    }
    if (!(quota[0] > 0.0 && period[0] > 0.0 && quota[0] / period[0] < PROCESSORS_MAX))
        return;
    const int32_t whole = (int32_t)(quota[0] / period[0]);
    const int32_t cores = whole + ((double)whole * period[0] < quota[0]);
    *limit = cores < *limit ? cores : *limit;
}

int32_t tx_cores_quota_of(const char *groups, const char *root)
{
    int32_t limit = INT32_MAX;
    tx_control_groups(groups, root, "cpu", apply_limit, &limit);
    return limit;
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

/* ---- Other processes ------------------------------------------------------------------------------------------- */

/* Returns the number of ranks on this host, from the launcher's variables. */
static int32_t ranks_here(void)
{
    static const char *const names[] = {"MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (getenv(names[i]))
            return (int32_t)strtol(getenv(names[i]), NULL, 10);
    return 1;
}

/* Returns true if more than `most` processes run at each of a few moments. Processes that run for an instant do not
 * count. */
static bool run_more_than(const char *proc, double most)
{
    for (int i = 0; i < 4; i++) {
        double running = -1.0; /* if the system does not report it */
        if (i > 0)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        if (!tx_read_numbers(proc, "stat", "procs_running ", 1, &running) || running <= most)
            return running > most;
    }
    return true;
}

/* Processors are shared if some process waited for one for a tenth of the last ten seconds, or if the running processes
 * and the threads are more than the processors. Other programs may not have waited yet, but will once the threads
 * run. */
bool tx_cores_shared_at(const char *root, int32_t threads)
{
    const double waiting_limit = 10.0; /* percent */
    const int32_t all = (int32_t)sysconf(_SC_NPROCESSORS_ONLN), allowed = tx_cores_allowed(), requested = threads;
    const bool bound = allowed < all;
    threads = requested > 0 ? requested : tx_cores();
    if (threads > allowed || tx_cores_quota() < allowed)
        return true;
    if (!bound && ranks_here() > 1 && (int64_t)ranks_here() * (requested > 0 ? requested : 1) > allowed)
        return true;
    char proc[PATH_MAX];
    double waiting;
    snprintf(proc, sizeof proc, "%.1000s/proc", root);
    if (tx_read_numbers(proc, "pressure/cpu", "some avg10=", 1, &waiting) && waiting >= waiting_limit)
        return true;
    return run_more_than(proc, 1.0 + all - threads);
}

bool tx_cores_shared(int32_t threads)
{
    return tx_cores_shared_at("", threads);
}
