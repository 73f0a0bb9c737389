/* SPDX-License-Identifier: Apache-2.0
 *
 * How many processors there are for this process: those that it may run on, and the time that control groups let it
 * have on them, as containers are given "2 CPUs". */
#ifndef TX_API_CORES_H
#define TX_API_CORES_H

#include <stdbool.h>
#include <stdint.h>

/* Processors that the calling thread may run on; at least 1. */
int32_t tx_cores_allowed(void);
/* How many of them the control groups let all their processes keep busy, rounded up; INT32_MAX: there is no limit. */
int32_t tx_cores_quota(void);
/* The same from other files than /proc/self/cgroup and those in /sys/fs/cgroup. */
int32_t tx_cores_quota_of(const char *groups, const char *root);
/* The lesser of both. */
int32_t tx_cores(void);
/* Whether so many threads (0: tx_cores) would share processors, with each other, with other ranks of this host or with
 * other programs, so that one which spins while it waits takes time from those that work. `root` is the folder of
 * proc/:
 * "", or a test's. */
bool tx_cores_shared(const char *root, int32_t threads);

#endif
