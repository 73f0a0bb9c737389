/* SPDX-License-Identifier: Apache-2.0
 *
 * How many processors there are for this process: those that it may run on, and the time that control groups let it
 * have on them, as containers are given "2 CPUs". */
#ifndef TX_API_CORES_H
#define TX_API_CORES_H

#include "tx_engine.h"

/* How many processors the control groups let all their processes keep busy, rounded up; INT32_MAX: there is no limit.
 */
int32_t tx_cores_quota(void);
/* The same from other files than /proc/self/cgroup and those in /sys/fs/cgroup. */
int32_t tx_cores_quota_of(const char *groups, const char *root);
/* tx_cores_shared with another folder than / for proc/, for tests. */
bool tx_cores_shared_at(const char *root, int32_t threads);

#endif
