/* SPDX-License-Identifier: Apache-2.0
 *
 * The topology of one host: its GPUs, NICs and OpenCL CPU devices, and the PCI tree that contains them. It also
 * describes the connection of each pair of devices, and the cores, memory and NIC that are near each device. The
 * topology is collected from this machine (hwloc, OpenCL, vendor libraries, sysfs) or read from a file. Programs
 * print it, and the trainer places its ranks by it.
 *
 * Ownership: a topology owns all of its arrays and strings, and tx_topology_free frees them. A topology does not
 * change after its creation. Strings are never NULL; "" means unknown.
 *
 * Units: memory is in bytes, lane speeds are in GT/s, and rates are in GB/s (1e9 bytes per second) in one direction.
 * CPUs and NUMA nodes have the numbers of the operating system. Sets of them are lists such as "0-7,64-71"
 * (tx_topo_set_parse). */
#ifndef TX_TOPOLOGY_H
#define TX_TOPOLOGY_H

#include "tx.h"

TX_API_BEGIN

/* Files with more devices are rejected. */
#define TX_TOPO_DEVICES_MAX 1024
/* The largest number in a set of CPUs or NUMA nodes. */
#define TX_TOPO_SET_MAX (1 << 20)

/* ---- Names ----------------------------------------------------------------------------------- */

/* The constants of the lists below, by prefix. */
#define TX_TOPO_ID_PLAIN(name, ...) TX_TOPO_##name,
#define TX_TOPO_ID_FROM(name, ...) TX_TOPO_FROM_##name,
#define TX_TOPO_ID_P2P(name, ...) TX_TOPO_P2P_##name,
#define TX_TOPO_ID_ACCESS(name, ...) TX_TOPO_ACCESS_##name,
#define TX_TOPO_ID_ORIGIN(name, ...) TX_TOPO_ORIGIN_##name,

/* X(NAME, "cell", "legend"): the connection of two devices through PCI and the CPUs, nearest first. */
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
    X(UNKNOWN, "?", "Unknown; see the footnote")

typedef enum tx_topo_class { TX_TOPO_CLASS_MAP(TX_TOPO_ID_PLAIN) TX_TOPO_CLASS_COUNT } tx_topo_class;

/* X(NAME, "cell", "legend"): direct links between devices, in addition to PCI. In a cell, the number of links
 * follows the name. */
#define TX_TOPO_LINK_MAP(X)                                                                                  \
    X(NO_LINK, "", "")                                                                                       \
    X(NVLINK, "NV", "Connection traversing a bonded set of # NVLinks")                                       \
    X(XGMI, "XG", "Connection traversing # XGMI (Infinity Fabric) links; no number if the count is unknown") \
    X(XELINK, "XL", "Connection traversing # Xe Link lanes; no number if the count is unknown")              \
    X(LINK_UNKNOWN, "?", "Number of links unknown; see the footnote")

typedef enum tx_topo_link_kind { TX_TOPO_LINK_MAP(TX_TOPO_ID_PLAIN) TX_TOPO_LINK_COUNT } tx_topo_link_kind;

/* X(NAME, "key"): the source of a fact. */
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

/* X(NAME, "cell", "legend"): peer-to-peer access according to the driver. */
#define TX_TOPO_P2P_MAP(X)                  \
    X(UNASKED, "U", "Unknown")              \
    X(OK, "OK", "Status Ok")                \
    X(CNS, "CNS", "Chipset not supported")  \
    X(GNS, "GNS", "GPU not supported")      \
    X(TNS, "TNS", "Topology not supported") \
    X(NS, "NS", "Not supported")            \
    X(DR, "DR", "Disabled by regkey")

typedef enum tx_topo_p2p { TX_TOPO_P2P_MAP(TX_TOPO_ID_P2P) TX_TOPO_P2P_COUNT } tx_topo_p2p;

/* X(NAME, letter, "key"): kinds of peer-to-peer access, with the letters of `-p2p`. */
#define TX_TOPO_ACCESS_MAP(X) \
    X(READ, 'r', "read") X(WRITE, 'w', "write") X(NVLINKS, 'n', "nvlink") X(ATOMICS, 'a', "atomics") X(PROP, 'p', "pci")

typedef enum tx_topo_access { TX_TOPO_ACCESS_MAP(TX_TOPO_ID_ACCESS) TX_TOPO_ACCESS_COUNT } tx_topo_access;

/* The names above, indexed by value: "PIX", "Connection ...", "NV", "nvml". */
extern const char *const tx_topo_class_names[TX_TOPO_CLASS_COUNT];
extern const char *const tx_topo_class_legends[TX_TOPO_CLASS_COUNT];
extern const char *const tx_topo_link_names[TX_TOPO_LINK_COUNT];
extern const char *const tx_topo_link_legends[TX_TOPO_LINK_COUNT];
extern const char *const tx_topo_p2p_names[TX_TOPO_P2P_COUNT];
extern const char *const tx_topo_p2p_legends[TX_TOPO_P2P_COUNT];
extern const char *const tx_topo_source_names[TX_TOPO_SOURCE_COUNT];

/* ---- The tree -------------------------------------------------------------------------------- */

/* X(NAME, "key"): MACHINE is the root. PACKAGE and GROUP are on the CPU side, the others on the PCI side. A switch
 * is several BRIDGEs: its upstream port and its downstream ports. */
#define TX_TOPO_NODE_MAP(X)       \
    X(MACHINE, "machine")         \
    X(PACKAGE, "package")         \
    X(GROUP, "group")             \
    X(HOST_BRIDGE, "host-bridge") \
    X(BRIDGE, "bridge")           \
    X(FUNCTION, "function")

typedef enum tx_topo_node_kind { TX_TOPO_NODE_MAP(TX_TOPO_ID_PLAIN) TX_TOPO_NODE_COUNT } tx_topo_node_kind;

/* The PCIe link above a node; 0 means unknown. */
typedef struct tx_topo_pcie {
    double speed, speed_max;  /* of one lane */
    int32_t width, width_max; /* number of lanes */
    double rate;              /* from the source, or computed from speed and width */
    tx_topo_source source;
} tx_topo_pcie;

/* The tree contains only ancestors of devices, packages, and locations of NUMA nodes. */
typedef struct tx_topo_node {
    tx_topo_node_kind kind;
    int32_t parent;               /* a lower index; -1 for the root, which is node 0 */
    const char *name;             /* "Package 0", "L3 2", "PLX PEX 8747", as far as known */
    const char *bus;              /* "0000:3b:00.0" for a BRIDGE or FUNCTION; "0000:[3a-44]" for a HOST_BRIDGE */
    int32_t vendor_id, device_id; /* PCI ids; 0 if unknown. For a PACKAGE, vendor_id is the CPU's vendor */
    tx_topo_pcie link;            /* for a BRIDGE or FUNCTION */
    int32_t iommu_group;          /* -1 if unknown */
    const char *cpus, *nodes;     /* sets for a MACHINE, PACKAGE or GROUP */
} tx_topo_node;

/* A NUMA node: memory of CPUs, or of a GPU. */
typedef struct tx_topo_numa {
    int32_t number;
    const char *cpus; /* the CPUs nearest to it */
    int64_t memory;
    int32_t node;   /* its location in the tree */
    int32_t device; /* the GPU that owns the memory; -1 for memory of CPUs */
} tx_topo_numa;

/* A hardware thread that this process may use. */
typedef struct tx_topo_cpu {
    int32_t number;
    int32_t core;    /* threads of one core have the same number; numbers are contiguous from 0 */
    int32_t package; /* contiguous from 0 */
    int32_t numa;    /* number of the nearest NUMA node; -1 if unknown */
} tx_topo_cpu;

/* ---- Devices and pairs ----------------------------------------------------------------------- */

/* X(NAME, "label") */
#define TX_TOPO_DEVICE_MAP(X) X(GPU, "GPU") X(NIC, "NIC") X(CPU, "CPU")

typedef enum tx_topo_device_kind { TX_TOPO_DEVICE_MAP(TX_TOPO_ID_PLAIN) TX_TOPO_DEVICE_COUNT } tx_topo_device_kind;

typedef struct tx_topo_device {
    tx_topo_device_kind kind;
    int32_t number; /* index among devices of its kind */
    char label[16]; /* "GPU0", "NIC3", "CPU0" */
    int32_t node;   /* its PCI function in the tree; the root if it has none or the function is unknown */
    int32_t partition, partitions; /* index among the devices of one PCI function, and their number */
    const char *bus;               /* "0000:3b:00.0" */
    int32_t vendor_id, device_id;  /* PCI ids; 0 if unknown */
    const char *vendor, *name;     /* "NVIDIA", "Tesla V100-SXM3-32GB" */
    const char *system;            /* name in the system: "mlx5_0", "nvml3"; for a NIC, the name in the legend */
    int64_t memory;                /* bytes; 0 if unknown */
    int32_t platform, device;      /* the first OpenCL platform and device index of this device; -1 if there is none */
    const char *opencl;            /* all OpenCL indices, "0:1,2:0" */
    const char *engine;            /* the name by which TX opens it, "opencl:1" */
    tx_topo_source source;         /* the source that reports the device */
    tx_topo_source place;          /* the source of its location */
    bool guessed;                  /* the location is a guess, and a note explains why */
    const char *cpus, *nodes;      /* CPU affinity, NUMA affinity */
    int32_t gpu_numa;              /* number of the NUMA node that is its own memory; -1 if there is none */
    int32_t nic;                   /* index in `devices` of the nearest NIC; -1 if there is none */
    int32_t note;                  /* index of a note about it; -1 if there is none */
} tx_topo_device;

typedef struct tx_topo_pair {
    tx_topo_class class_; /* through PCI and CPUs only */
    tx_topo_source class_source;
    tx_topo_link_kind link;
    int32_t links;    /* number of links; 0 if unknown */
    bool indirect;    /* the links pass through another device */
    bool switched;    /* the links pass through switches of their kind (NVSwitch) */
    double link_rate; /* total of all links; 0 if unknown */
    tx_topo_source link_source;
    int32_t ancestor;             /* the lowest node above both devices; -1 if unknown */
    int32_t bridges_a, bridges_b; /* BRIDGE nodes strictly between `ancestor` and each device */
    tx_topo_p2p p2p[TX_TOPO_ACCESS_COUNT];
    int32_t note; /* index of a note about a guess or unknown value; -1 if there is none */
} tx_topo_pair;

/* A footnote of one sentence. */
typedef struct tx_topo_note {
    bool warning;     /* the matrix may be wrong; otherwise the note is an explanation */
    const char *text; /* without a final period or newline */
} tx_topo_note;

/* X(NAME, "key"): the kind of input of a topology. */
#define TX_TOPO_ORIGIN_MAP(X) X(LIVE, "live") X(XML, "hwloc-xml") X(PASTED, "matrix")

typedef enum tx_topo_origin { TX_TOPO_ORIGIN_MAP(TX_TOPO_ID_ORIGIN) TX_TOPO_ORIGIN_COUNT } tx_topo_origin;

extern const char *const tx_topo_origin_names[TX_TOPO_ORIGIN_COUNT];
extern const char *const tx_topo_device_names[TX_TOPO_DEVICE_COUNT];
extern const char *const tx_topo_node_names[TX_TOPO_NODE_COUNT];

typedef struct tx_topology {
    tx_topo_origin origin;
    const char *file; /* path of the file; "" for this machine */
    const char *host; /* name of the machine, as far as known */
    /* GPUs, then NICs, then CPU devices. GPUs and CPU devices are ordered by bus id, NICs by name as in nvidia-smi.
     * A pasted matrix keeps its order. */
    tx_topo_device *devices;
    int32_t device_count, gpus, nics, cpu_devices;
    tx_topo_pair *pairs; /* [a * device_count + b] */
    tx_topo_node *nodes; /* parents before children; a pasted matrix has only the root */
    int32_t node_count;
    tx_topo_numa *numa; /* by number */
    int32_t numa_count;
    tx_topo_cpu *cpus; /* by number */
    int32_t cpu_count;
    tx_topo_note *notes;
    int32_t note_count;
    struct tx_topo_pool *pool; /* owner of the strings */
} tx_topology;

/* ---- Creation -------------------------------------------------------------------------------- */

typedef struct tx_topo_options {
    size_t size;      /* size of this struct */
    const char *root; /* prefix of "/sys" and "/proc"; NULL means no prefix */
    bool no_opencl;   /* do not list OpenCL devices */
    bool no_vendor;   /* do not query the vendor libraries */
} tx_topo_options;

/* Collects the topology of this machine. A source that fails becomes a note; only lack of memory or a failure of
 * hwloc is an error. `options` may be NULL. */
tx_status tx_topology_live(const tx_topo_options *options, tx_topology **topology);
/* Reads a file: hwloc's XML (version 2), or the output of `nvidia-smi topo -m`. The content determines the format.
 * Live devices are not queried. Broken files can crash hwloc, so a child process reads them first (SIGCHLD must not
 * be ignored). */
tx_status tx_topology_read(const char *path, tx_topology **topology);
void tx_topology_free(tx_topology *topology); /* accepts NULL */
/* Returns JSON text as described by tools/topology/txtopo.schema.json. The caller frees it. Returns NULL and sets
 * the error message if out of memory. */
char *tx_topology_json(const tx_topology *topology);

/* ---- Queries --------------------------------------------------------------------------------- */

/* Returns NULL if `a` or `b` is not a valid device index. */
const tx_topo_pair *tx_topo_pair_of(const tx_topology *topology, int32_t a, int32_t b);

/* Writes the cell of the matrix: "PIX", "NV6", "XG", "?", or "X" for a device itself. Without `links`, it is only the
 * class of the pair. Returns `text`, or NULL if there is no such pair. */
const char *tx_topo_cell(const tx_topology *topology, int32_t a, int32_t b, bool links, char text[16]);
/* Returns true if any pair has that class, or that link. */
bool tx_topo_has_class(const tx_topology *topology, tx_topo_class value);
bool tx_topo_has_link(const tx_topology *topology, tx_topo_link_kind value);
/* Returns the rate of the PCIe link above a node; 0 if unknown. It is computed from speed and width minus the
 * encoding overhead, or taken from the source. With `max`, returns the maximum rate. */
double tx_topo_pcie_rate(const tx_topo_pcie *link, bool max);
/* Returns the numbers of a set in ascending order. The caller frees them. Returns FORMAT if the text is not a set. */
tx_status tx_topo_set_parse(const char *set, int32_t **numbers, int32_t *count);
/* ---- Measurements ---------------------------------------------------------------------------- */

#define TX_TOPO_CARDS 16
#define TX_TOPO_ENGINES 8

/* An engine of a GPU, in DRM's fdinfo. */
typedef struct tx_topo_engine {
    char name[24];
    double seconds;  /* computed by all clients; cycles if `total` has the cycles of the clock, else 0 */
    double capacity; /* number of engines of this name, or 0 */
    double total;
} tx_topo_engine;

/* A GPU as its driver shows it in /sys, or else in the fdinfo of processes; NaN for a value that the driver does not
 * report. NVIDIA's own driver reports nothing there. */
typedef struct tx_topo_card {
    char name[16], bus[32], driver[32];     /* "card0", "0000:03:00.0", "amdgpu" */
    double memory, memory_used;             /* bytes */
    double busy;                            /* share of the time in which it computes, 0 to 1 */
    double temperature, power;              /* degrees Celsius; watts */
    double energy;                          /* joules since the driver was loaded */
    int32_t clients;                        /* processes' clients with fdinfo, */
    double client_memory;                   /* their memory in bytes, */
    tx_topo_engine engine[TX_TOPO_ENGINES]; /* and engines; unused ones have no name */
} tx_topo_card;

/* Begin with {0}. */
typedef struct tx_topo_cards {
    tx_topo_card card[TX_TOPO_CARDS];
    int32_t count;
    double seconds; /* time of the measurement */
} tx_topo_cards;

/* Measures all GPUs that report a value. If a driver only counts energy, power is the mean since the measurement that
 * `cards` held before; so is the use by engine times. `all` counts the clients of all processes that may be read, else
 * only those of this process. `root` is a prefix of "/sys" and "/proc"; NULL means TX_SYS_ROOT of the environment, or
 * none. */
void tx_topo_cards_read(const char *root, bool all, tx_topo_cards *cards);
/* [{"card", "bus", "memory", "memory_used", "use", "celsius", "watts"}, ..], without unknown values. The caller frees
 * it. NULL if out of memory. */
char *tx_topo_cards_json(const tx_topo_cards *cards);

/* ---- Placement ------------------------------------------------------------------------------- */

#define TX_TOPO_RANKS_MAX 4096

typedef struct tx_topo_place {
    int32_t device; /* a GPU of the topology; -1 if the rank computes on its cores */
    char *cpus;     /* the rank's hardware threads as a set; contains all usable threads of each of its cores */
    int32_t cores;
    char *nodes; /* NUMA nodes of its memory as a set; "" if unknown */
    int32_t nic; /* the nearest NIC; -1 if there is none */
    bool far;    /* no core near its device is usable, so the rank has distant cores */
    bool shared; /* there are more ranks than cores near its device, so ranks share its core */
} tx_topo_place;

typedef struct tx_placement {
    tx_topo_place *places; /* by rank */
    int32_t ranks;
    int32_t gpus; /* number of used GPUs; fewer than ranks if ranks share GPUs; 0 if the ranks compute on cores */
    int32_t cores, least_cores, most_cores; /* cores of the host; minimum and maximum cores of a rank */
} tx_placement;

/* Places `ranks` ranks. With GPUs, the closest GPUs are chosen and assigned to the ranks in order. The cores near
 * several of these GPUs are divided evenly. Without GPUs, ranks are distributed among the NUMA nodes by their
 * number of cores. The cores of a node are divided among its ranks in contiguous blocks. Each core belongs to only
 * one rank, unless there are more ranks than cores. Returns UNSUPPORTED if the topology does not list the cores. */
tx_status tx_placement_make(const tx_topology *topology, int64_t ranks, tx_placement **placement);
void tx_placement_free(tx_placement *placement); /* accepts NULL */

TX_API_END

#endif
