/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits on the processors of this process: its affinity mask, and the CPU time that control groups allow. Containers
 * set such a limit ("2 CPUs"). */
#ifndef TX_API_CORES_H
#define TX_API_CORES_H

#include "tx_engine.h"

/* Returns the CPU limit of the control groups in processors, rounded up, or INT32_MAX if there is none. */
int32_t tx_cores_quota(void);
/* The same for other files than /proc/self/cgroup and /sys/fs/cgroup. */
int32_t tx_cores_quota_of(const char *groups, const char *root);
/* tx_cores_shared with `root` before /proc, for tests. */
bool tx_cores_shared_at(const char *root, int32_t threads);

#endif
