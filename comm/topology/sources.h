/* SPDX-License-Identifier: Apache-2.0
 *
 * The sources of a topology: hwloc, OpenCL, sysfs, vendor libraries and files. Each adds its information to a draft. */
#ifndef TX_COMM_TOPOLOGY_SOURCES_H
#define TX_COMM_TOPOLOGY_SOURCES_H

#include "comm/topology/draft.h"

/* ---- hwloc*.c: the only files that use hwloc ------------------------------------------------- */

/* Reads the tree, PCI devices, CPUs and NUMA nodes from XML text of `size` bytes, followed by a NUL. If `xml` is
 * NULL, reads this machine, or the one that hwloc's environment variables select; `local` is true for this machine.
 * Broken XML may crash the process. */
tx_status tx_topo_hwloc_read(const char *xml, size_t size, tx_draft *draft, bool *local);
/* Writes the version of hwloc, "2.9.0". */
void tx_topo_hwloc_version(char text[32]);

/* ---- opencl.c -------------------------------------------------------------------------------- */

typedef struct tx_topo_cl_device {
    void *id; /* cl_device_id */
    int32_t platform, device;
    int32_t engine; /* index among the devices that TX can use; -1 if TX cannot use it */
    bool gpu, cpu;
    char name[128], vendor[128];
    int64_t memory;
    int32_t vendor_id, device_id; /* PCI ids; 0 if unknown */
    bool has_bus, has_domain;     /* the PCI address is known, and its domain is known */
    uint32_t domain, bus, slot, function;
} tx_topo_cl_device;

/* Lists all devices of all platforms. Returns NOT_FOUND if there is no platform; the message contains the loader's
 * error. The caller frees `*devices`. */
tx_status tx_topo_cl_list(tx_topo_cl_device **devices, int32_t *count);
/* join.c: matches each OpenCL device with a function of the draft, or adds a device. */
void tx_topo_cl_join(tx_draft *draft, const tx_topo_cl_device *devices, int32_t count);

/* ---- Live sources. A failure becomes a note. ------------------------------------------------- */

/* sysfs.c: link widths and speeds, IOMMU groups, NUMA nodes of GPUs; XGMI links. `root` is a prefix of "/sys" and
 * "/proc". */
void tx_topo_sysfs_pci(tx_draft *draft, const char *root);
void tx_topo_sysfs_xgmi(tx_draft *draft, const char *root);
/* nvml.c, rsmi.c: vendor libraries, loaded only for the query. */
void tx_topo_nvml(tx_draft *draft);
void tx_topo_rsmi(tx_draft *draft);

/* ---- Files ----------------------------------------------------------------------------------- */

/* Parses the output of nvidia-smi topo -m. */
tx_status tx_topo_matrix_parse(const char *text, size_t size, tx_draft *draft);

#endif
