/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared functions of the files that use hwloc. They convert hwloc's tree (live or from XML) into a draft. */
#ifndef TX_COMM_TOPOLOGY_HWLOC_TREE_H
#define TX_COMM_TOPOLOGY_HWLOC_TREE_H

#include "comm/topology/sources.h"

#include <hwloc.h>

typedef struct tx_hwloc_reader {
    hwloc_topology_t topology;
    tx_draft *draft;
} tx_hwloc_reader;

/* An object's userdata, which hwloc leaves NULL, stores the index of its node or device plus 1. */
static inline int32_t tx_hwloc_index(hwloc_obj_t obj)
{
    return (int32_t)(intptr_t)obj->userdata - 1;
}

static inline void tx_hwloc_set_index(hwloc_obj_t obj, int32_t index)
{
    obj->userdata = (void *)(intptr_t)(index + 1);
}

/* Returns the value of an object's info `key`; "" if there is none. */
static inline const char *tx_hwloc_info(hwloc_obj_t obj, const char *key)
{
    const char *value = hwloc_obj_get_info_by_name(obj, key);
    return value ? value : "";
}

/* hwloc_tree.c: returns the node of an object. Creates it and its ancestors if necessary. Returns -1 after a
 * failure. */
int32_t tx_hwloc_node(tx_hwloc_reader *r, hwloc_obj_t obj);
/* Returns a bitmap as a list; "" if it is infinite. */
const char *tx_hwloc_set(tx_draft *draft, hwloc_const_bitmap_t set);
/* Returns true if a NUMA node is the memory of a GPU. */
bool tx_hwloc_is_gpu_memory(hwloc_obj_t obj);

/* hwloc_devices.c: reads GPUs and NICs. Failures are stored in the draft. */
void tx_hwloc_read_devices(tx_hwloc_reader *r);

/* hwloc_links.c: reads direct links between the devices. */
void tx_hwloc_read_links(tx_hwloc_reader *r);

#endif
