/* SPDX-License-Identifier: Apache-2.0
 *
 * The topology of one host: its GPUs, NICs and OpenCL CPU devices, the PCI tree they hang in, how each two of them are
 * tied together, and which cores, memory and NIC are near. Collected from this machine (hwloc, OpenCL, the vendors'
 * libraries, sysfs) or read from a file; programs print it and the trainer places its ranks by it.
 *
 * Ownership: a topology owns every array and string in it; all go with tx_topology_free, and nothing in it changes
 * after it was made. Strings are never NULL; "" means unknown.
 * Units: memory in bytes; speeds of lanes in GT/s; rates in GB/s (1e9 bytes a second) in one direction. Numbers of CPUs
 * and NUMA nodes are the operating system's. Sets of them are lists such as "0-7,64-71" (tx_topo_set_parse). */
#ifndef TX_TOPOLOGY_H
#define TX_TOPOLOGY_H

#include "tx.h"

TX_API_BEGIN

/* Files with more devices are refused. */
#define TX_TOPO_DEVICES_MAX 1024
/* The largest number of a set of CPUs or NUMA nodes. */
#define TX_TOPO_SET_MAX (1 << 20)

/* ---- Words ----------------------------------------------------------------------------------- */

/* The constants of a list below, by the beginning of their names. */
#define TX_TOPO_ID_PLAIN(name, ...) TX_TOPO_##name,
#define TX_TOPO_ID_FROM(name, ...) TX_TOPO_FROM_##name,
#define TX_TOPO_ID_P2P(name, ...) TX_TOPO_P2P_##name,
#define TX_TOPO_ID_ACCESS(name, ...) TX_TOPO_ACCESS_##name,
#define TX_TOPO_ID_ORIGIN(name, ...) TX_TOPO_ORIGIN_##name,

/* X(NAME, "cell", "legend"): how two devices are tied together through PCI and the CPUs, nearest first. */
#define TX_TOPO_CLASS_MAP(X)                                                                                       \
    X(SELF, "X", "Self")                                                                                           \
    X(LOC, "LOC", "Connection inside one card or package (tiles, partitions of one PCI function)")                 \
    X(PIX, "PIX", "Connection traversing at most a single PCIe bridge")                                            \
    X(PXB, "PXB", "Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)")         \
    X(PHB, "PHB", "Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)")                  \
    X(NODE, "NODE",                                                                                                \
      "Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node")       \
    X(SYS, "SYS", "Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)") \
    X(HOST, "HOST", "Connection between a CPU device (the host's own cores and memory) and another device")        \
    X(UNKNOWN, "?", "Not known; a footnote says why")

typedef enum tx_topo_class { TX_TOPO_CLASS_MAP(TX_TOPO_ID_PLAIN) TX_TOPO_CLASS_COUNT } tx_topo_class;

/* X(NAME, "cell", "legend"): direct links between devices, beside PCI. The number of links follows the cell's text. */
#define TX_TOPO_LINK_MAP(X)                                                                                     \
    X(NO_LINK, "", "")                                                                                          \
    X(NVLINK, "NV", "Connection traversing a bonded set of # NVLinks")                                          \
    X(XGMI, "XG", "Connection traversing # XGMI (Infinity Fabric) links; no number where the count is unknown") \
    X(XELINK, "XL", "Connection traversing # Xe Link lanes; no number where the count is unknown")              \
    X(LINK_UNKNOWN, "?", "Whether there are links is not known; a footnote says why")

typedef enum tx_topo_link_kind { TX_TOPO_LINK_MAP(TX_TOPO_ID_PLAIN) TX_TOPO_LINK_COUNT } tx_topo_link_kind;

/* X(NAME, "key"): where a fact comes from. */
#define TX_TOPO_SOURCE_MAP(X)       \
    X(NOWHERE, "none")              \
    X(HWLOC, "hwloc")               \
    X(DISTANCES, "hwloc-distances") \
    X(OPENCL, "opencl")             \
    X(SYSFS, "sysfs")               \
    X(NVML, "nvml")                 \
    X(RSMI, "rocm-smi")             \
    X(MATRIX, "matrix-file")

typedef enum tx_topo_source { TX_TOPO_SOURCE_MAP(TX_TOPO_ID_FROM) TX_TOPO_SOURCE_COUNT } tx_topo_source;

/* X(NAME, "cell", "legend"): whether the driver promises peer-to-peer access. */
#define TX_TOPO_P2P_MAP(X)                  \
    X(UNASKED, "U", "Unknown")              \
    X(OK, "OK", "Status Ok")                \
    X(CNS, "CNS", "Chipset not supported")  \
    X(GNS, "GNS", "GPU not supported")      \
    X(TNS, "TNS", "Topology not supported") \
    X(NS, "NS", "Not supported")            \
    X(DR, "DR", "Disabled by regkey")

typedef enum tx_topo_p2p { TX_TOPO_P2P_MAP(TX_TOPO_ID_P2P) TX_TOPO_P2P_COUNT } tx_topo_p2p;

/* X(NAME, letter, "key"): what peer-to-peer access is asked for, in the letters of `-p2p`. */
#define TX_TOPO_ACCESS_MAP(X) \
    X(READ, 'r', "read") X(WRITE, 'w', "write") X(NVLINKS, 'n', "nvlink") X(ATOMICS, 'a', "atomics") X(PROP, 'p', "pci")

typedef enum tx_topo_access { TX_TOPO_ACCESS_MAP(TX_TOPO_ID_ACCESS) TX_TOPO_ACCESS_COUNT } tx_topo_access;

/* The words above, by value: "PIX", "Connection ...", "NV", "nvml". */
extern const char *const tx_topo_class_names[TX_TOPO_CLASS_COUNT];
extern const char *const tx_topo_class_legends[TX_TOPO_CLASS_COUNT];
extern const char *const tx_topo_link_names[TX_TOPO_LINK_COUNT];
extern const char *const tx_topo_link_legends[TX_TOPO_LINK_COUNT];
extern const char *const tx_topo_p2p_names[TX_TOPO_P2P_COUNT];
extern const char *const tx_topo_p2p_legends[TX_TOPO_P2P_COUNT];
extern const char *const tx_topo_source_names[TX_TOPO_SOURCE_COUNT];

/* ---- The tree ---------------------------------------------------------------------------------- */

/* X(NAME, "key"): MACHINE is the root, PACKAGE and GROUP are of the CPU's side, the rest of PCI's. A switch is
 * several BRIDGEs: its upstream port and its downstream ports. */
#define TX_TOPO_NODE_MAP(X)       \
    X(MACHINE, "machine")         \
    X(PACKAGE, "package")         \
    X(GROUP, "group")             \
    X(HOST_BRIDGE, "host-bridge") \
    X(BRIDGE, "bridge")           \
    X(FUNCTION, "function")

typedef enum tx_topo_node_kind { TX_TOPO_NODE_MAP(TX_TOPO_ID_PLAIN) TX_TOPO_NODE_COUNT } tx_topo_node_kind;

/* The PCIe link above a node; 0 is unknown. */
typedef struct tx_topo_pcie {
    double speed, speed_max;  /* of one lane */
    int32_t width, width_max; /* lanes */
    double rate;              /* as the source says, else from speed and width */
    tx_topo_source source;
} tx_topo_pcie;

/* Only what a device hangs from, packages, and NUMA nodes' places are kept. */
typedef struct tx_topo_node {
    tx_topo_node_kind kind;
    int32_t parent;               /* a lower index; -1 for the root, which is node 0 */
    const char *name;             /* "Package 0", "L3 2", "PLX PEX 8747", as far as known */
    const char *bus;              /* "0000:3b:00.0" of a BRIDGE or FUNCTION; "0000:[3a-44]" of a HOST_BRIDGE */
    int32_t vendor_id, device_id; /* PCI's numbers; 0 unknown. Of a PACKAGE its maker's */
    tx_topo_pcie link;            /* of a BRIDGE or FUNCTION */
    int32_t iommu_group;          /* -1 unknown */
    const char *cpus, *nodes;     /* sets of a MACHINE, PACKAGE or GROUP */
} tx_topo_node;

/* A NUMA node: memory of CPUs, or of a GPU. */
typedef struct tx_topo_numa {
    int32_t number;
    const char *cpus; /* the CPUs nearest to it */
    int64_t memory;
    int32_t node;   /* where it hangs in the tree */
    int32_t device; /* the GPU whose memory it is; -1: the CPUs' */
} tx_topo_numa;

/* A hardware thread that this process may use. */
typedef struct tx_topo_cpu {
    int32_t number;
    int32_t core;    /* threads of one core have the same number; from 0, without gaps */
    int32_t package; /* from 0 */
    int32_t numa;    /* number of the nearest NUMA node; -1 unknown */
} tx_topo_cpu;

/* ---- Devices and pairs -------------------------------------------------------------------------- */

/* X(NAME, "label") */
#define TX_TOPO_DEVICE_MAP(X) X(GPU, "GPU") X(NIC, "NIC") X(CPU, "CPU")

typedef enum tx_topo_device_kind { TX_TOPO_DEVICE_MAP(TX_TOPO_ID_PLAIN) TX_TOPO_DEVICE_COUNT } tx_topo_device_kind;

typedef struct tx_topo_device {
    tx_topo_device_kind kind;
    int32_t number;                /* among its kind */
    char label[16];                /* "GPU0", "NIC3", "CPU0" */
    int32_t node;                  /* its PCI function in the tree; the root where it has none or none is known */
    int32_t partition, partitions; /* its place among the devices of one PCI function, and how many these are */
    const char *bus;               /* "0000:3b:00.0" */
    int32_t vendor_id, device_id;  /* PCI's; 0 unknown */
    const char *vendor, *name;     /* "NVIDIA", "Tesla V100-SXM3-32GB" */
    const char *system;            /* the system's name: "mlx5_0", "nvml3"; of a NIC what the legend says */
    int64_t memory;                /* bytes; 0 unknown */
    int32_t platform, device;      /* the first OpenCL index that is this device; -1 none */
    const char *opencl;            /* all of them, "0:1,2:0" */
    const char *engine;            /* the name under which TX opens it, "opencl:1" */
    tx_topo_source source;         /* what says that the device is there */
    tx_topo_source place;          /* what says where it hangs */
    bool guessed;                  /* the place is likely, and a note says why it is a guess */
    const char *cpus, *nodes;      /* CPU affinity, NUMA affinity */
    int32_t gpu_numa;              /* number of the NUMA node that its own memory is; -1 none */
    int32_t nic;                   /* the nearest NIC, an index into devices; -1 none */
    int32_t note;                  /* a note about it; -1 none */
} tx_topo_device;

typedef struct tx_topo_pair {
    tx_topo_class class_; /* through PCI and CPUs alone */
    tx_topo_source class_source;
    tx_topo_link_kind link;
    int32_t links;    /* how many; 0 unknown */
    bool indirect;    /* the links go through another device */
    bool switched;    /* the links go through switches of their kind (NVSwitch) */
    double link_rate; /* of all the links together; 0 unknown */
    tx_topo_source link_source;
    int32_t ancestor;             /* the lowest node above both; -1 unknown */
    int32_t bridges_a, bridges_b; /* BRIDGE nodes strictly between it and each */
    tx_topo_p2p p2p[TX_TOPO_ACCESS_COUNT];
    int32_t note; /* why something is guessed or unknown; -1 none */
} tx_topo_pair;

/* A footnote: one sentence. */
typedef struct tx_topo_note {
    bool warning;     /* the matrix may be wrong; else it explains */
    const char *text; /* without a full stop's newline */
} tx_topo_note;

/* X(NAME, "key"): what a topology was made from. */
#define TX_TOPO_ORIGIN_MAP(X) X(LIVE, "live") X(XML, "hwloc-xml") X(PASTED, "matrix")

typedef enum tx_topo_origin { TX_TOPO_ORIGIN_MAP(TX_TOPO_ID_ORIGIN) TX_TOPO_ORIGIN_COUNT } tx_topo_origin;

extern const char *const tx_topo_origin_names[TX_TOPO_ORIGIN_COUNT];
extern const char *const tx_topo_device_names[TX_TOPO_DEVICE_COUNT];
extern const char *const tx_topo_node_names[TX_TOPO_NODE_COUNT];

typedef struct tx_topology {
    tx_topo_origin origin;
    const char *file; /* that was read; "" for this machine */
    const char *host; /* name of the machine, as far as known */
    /* GPUs, then NICs, then CPU devices, in the order of bus ids, but NICs of their names as nvidia-smi; a pasted
     * matrix keeps its order. */
    tx_topo_device *devices;
    int32_t device_count, gpus, nics, cpu_devices;
    tx_topo_pair *pairs; /* [a * device_count + b] */
    tx_topo_node *nodes; /* parents before children; a pasted matrix has the root alone */
    int32_t node_count;
    tx_topo_numa *numa; /* by number */
    int32_t numa_count;
    tx_topo_cpu *cpus; /* by number */
    int32_t cpu_count;
    tx_topo_note *notes;
    int32_t note_count;
    struct tx_topo_pool *pool; /* what owns the strings */
} tx_topology;

/* ---- Making -------------------------------------------------------------------------------------- */

typedef struct tx_topo_options {
    size_t size;      /* of this struct */
    const char *root; /* what stands before "/sys" and "/proc"; NULL: nothing */
    bool no_opencl;   /* do not look for OpenCL devices */
    bool no_vendor;   /* do not ask the vendors' libraries */
} tx_topo_options;

/* This machine. What cannot be asked is a note; only memory, or hwloc itself, can fail. `options` may be NULL. */
tx_status tx_topology_live(const tx_topo_options *options, tx_topology **topology);
/* A file: hwloc's XML (version 2) or text of `nvidia-smi topo -m`; the content tells which. Live devices are not looked
 * at. Broken files can kill hwloc, so a child process reads them first (SIGCHLD must not be ignored). */
tx_status tx_topology_read(const char *path, tx_topology **topology);
void tx_topology_free(tx_topology *topology); /* NULL is fine */
/* JSON text as tools/topology/txtopo.schema.json describes it, allocated; NULL when out of memory (the message is set).
 * The caller frees it. */
char *tx_topology_json(const tx_topology *topology);

/* ---- Asking --------------------------------------------------------------------------------------- */

/* NULL if `a` or `b` is not the number of a device. */
const tx_topo_pair *tx_topo_pair_of(const tx_topology *topology, int32_t a, int32_t b);

/* The cell of the matrix: "PIX", "NV6", "XG", "?", " X " as "X"; without `links`, only the class of the pair. Returns
 * `text`, or NULL if there is no such pair. */
const char *tx_topo_cell(const tx_topology *topology, int32_t a, int32_t b, bool links, char text[16]);
/* Whether any pair has that class, or that link. */
bool tx_topo_has_class(const tx_topology *topology, tx_topo_class value);
bool tx_topo_has_link(const tx_topology *topology, tx_topo_link_kind value);
/* The rate of the PCIe link above a node, by speed and width with the encoding's loss, or as told; 0 unknown. `max`:
 * what it could be. */
double tx_topo_pcie_rate(const tx_topo_pcie *link, bool max);
/* The numbers of a set, ascending. Allocated; the caller frees it. FORMAT for text that is no set. */
tx_status tx_topo_set_parse(const char *set, int32_t **numbers, int32_t *count);
/* ---- Placing -------------------------------------------------------------------------------------- */

#define TX_TOPO_RANKS_MAX 4096

typedef struct tx_topo_place {
    int32_t device; /* a GPU of the topology; -1: the rank computes on its cores */
    char *cpus;     /* the rank's hardware threads, a set: all that may be used of each of its cores */
    int32_t cores;
    char *nodes; /* the NUMA nodes of its memory, a set; "" unknown */
    int32_t nic; /* the nearest NIC; -1 none */
    bool far;    /* no core near its device may be used: it has others */
    bool shared; /* there are more ranks than cores near its device: others have its core as well */
} tx_topo_place;

typedef struct tx_placement {
    tx_topo_place *places; /* by rank */
    int32_t ranks;
    int32_t gpus; /* how many are used; fewer than ranks: each has several. 0: the ranks compute on cores */
    int32_t cores, least_cores, most_cores; /* of the host; of the rank that has least, most */
} tx_placement;

/* Places `ranks` ranks. With GPUs: those that are nearest to each other, ranks in their order; the cores near several
 * of them are shared out evenly. Without: the ranks are shared out among the NUMA nodes by their number of cores, and a
 * node's cores among its ranks, neighbours together. A core belongs to one rank alone unless there are more ranks than
 * cores. UNSUPPORTED where the topology does not tell the cores. */
tx_status tx_placement_make(const tx_topology *topology, int64_t ranks, tx_placement **placement);
void tx_placement_free(tx_placement *placement); /* NULL is fine */

TX_API_END

#endif
