/* SPDX-License-Identifier: Apache-2.0
 *
 * The control groups (versions 1 and 2) of this process. The limits of each of them apply. */
#ifndef TX_API_CONTROL_GROUPS_H
#define TX_API_CONTROL_GROUPS_H

#include <stdbool.h>

/* Called with a control group of a controller: the folder of its files, its name, and whether it is of version 2. */
typedef void tx_control_group(void *context, const char *folder, const char *name, bool second);

/* Visits the groups in `list` (/proc/self/cgroup) for a controller ("cpu", "memory"), and their parents, under `root`
 * (/sys/fs/cgroup). Folders may be missing, because a container may see its own group as the root. */
void tx_control_groups(const char *list, const char *root, const char *controller, tx_control_group *visit,
                       void *context);

/* Reads `count` numbers after `key` from the first line of a file that starts with `key` and has them. Returns false if
 * there is no such line; "max" (no limit) is not a number. */
bool tx_read_numbers(const char *folder, const char *file, const char *key, int count, double *number);

#endif
