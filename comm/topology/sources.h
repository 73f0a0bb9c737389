/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a topology comes from: hwloc, OpenCL, sysfs, the vendors' libraries, files. Each adds to a draft. */
#ifndef TX_COMM_TOPOLOGY_SOURCES_H
#define TX_COMM_TOPOLOGY_SOURCES_H

#include "comm/topology/draft.h"

/* ---- hwloc*.c: the only files that know hwloc ------------------------------------------------------ */

/* The tree, PCI devices, CPUs and NUMA nodes that XML text of `size` bytes tells (a NUL follows them), or where `xml`
 * is NULL those of this machine, or of the one that hwloc's environment variables name: `local` tells whether it is
 * this one. Broken XML may kill the process. */
tx_status tx_topo_hwloc_read(const char *xml, size_t size, tx_draft *draft, bool *local);
/* "2.9.0" */
void tx_topo_hwloc_version(char text[32]);

/* ---- child.c ---------------------------------------------------------------------------------------- */

/* Does `work`, which broken input can kill, in a child process; the caller repeats it when it succeeded there. FORMAT
 * if the child dies or hangs; `what` starts the message. */
tx_status tx_topo_rehearse(const char *what, tx_status (*work)(const void *), const void *data);

/* ---- opencl.c ------------------------------------------------------------------------------------------ */

typedef struct tx_topo_cl_device {
    void *id; /* OpenCL's */
    int32_t platform, device;
    int32_t engine; /* place among the devices that TX can use; -1 none */
    bool gpu, cpu;
    char name[128], vendor[128];
    int64_t memory;
    int32_t vendor_id, device_id; /* PCI's; 0 unknown */
    bool has_bus, has_domain;     /* a PCI address is known, and its domain as well */
    uint32_t domain, bus, slot, function;
} tx_topo_cl_device;

/* All devices of all platforms. NOT_FOUND where there is no platform (the message says what the loader said). The
 * caller frees `*devices`. */
tx_status tx_topo_cl_list(tx_topo_cl_device **devices, int32_t *count);
/* join.c: finds the function of each OpenCL device among the draft's, or adds a device. */
void tx_topo_cl_join(tx_draft *draft, const tx_topo_cl_device *devices, int32_t count);

/* ---- Live facts: what fails is a note --------------------------------------------------------------------- */

/* sysfs.c: link widths and speeds, IOMMU groups, GPU NUMA nodes; XGMI links. `root` stands before "/sys" and "/proc".
 */
void tx_topo_sysfs_pci(tx_draft *draft, const char *root);
void tx_topo_sysfs_xgmi(tx_draft *draft, const char *root);
/* nvml.c, rsmi.c: libraries that are loaded while they are asked. */
void tx_topo_nvml(tx_draft *draft);
void tx_topo_rsmi(tx_draft *draft);

/* ---- Files -------------------------------------------------------------------------------------------------- */

/* Text of nvidia-smi topo -m. */
tx_status tx_topo_matrix_parse(const char *text, size_t size, tx_draft *draft);

#endif
