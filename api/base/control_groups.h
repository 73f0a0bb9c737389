/* SPDX-License-Identifier: Apache-2.0
 *
 * The control groups that this process is in, of both versions: the limits of each hold for it. */
#ifndef TX_API_CONTROL_GROUPS_H
#define TX_API_CONTROL_GROUPS_H

#include <stdbool.h>

/* A control group of a controller: the folder with its files, its name, and whether it is of version 2. */
typedef void tx_control_group(void *context, const char *folder, const char *name, bool second);

/* Visits the groups that `list` (/proc/self/cgroup) names for a controller ("cpu", "memory"), and those that they are
 * in, under `root` (/sys/fs/cgroup). A container may see its own group as the uppermost one under a path that is
 * another one's: a folder need not be there. */
void tx_control_groups(const char *list, const char *root, const char *controller, tx_control_group *visit,
                       void *context);

/* Reads `count` numbers after `key` from the first line of a file that begins with it and has them. False if there is
 * no such line: "max" stands for no limit and is no number. */
bool tx_read_numbers(const char *folder, const char *file, const char *key, int count, double *number);

#endif
