/* SPDX-License-Identifier: Apache-2.0
 *
 * The members of a topology's JSON objects, a table a struct, by which json.c reads and writes them. */
#ifndef TX_COMM_TOPOLOGY_JSON_FIELDS_H
#define TX_COMM_TOPOLOGY_JSON_FIELDS_H

#include "comm/topology/draft.h"

#include <stddef.h>

typedef enum field_kind {
    TEXT,  /* const char * */
    LABEL, /* char [] */
    WORD,  /* an enum */
    FLAG,  /* bool */
    INT,   /* int32_t, below 0 null */
    COUNT, /* int32_t that cannot be 0: null */
    LONG,  /* int64_t, below 0 null */
    BYTES, /* int64_t that cannot be 0: null */
    SIZE   /* double that cannot be 0: null */
} field_kind;

/* Largest places, which depend on what was read before. */
enum { IN_DEVICES = -1, IN_NODES = -2, IN_NOTES = -3 };

typedef struct field {
    const char *key;
    field_kind kind;
    size_t offset;
    int64_t most; /* of a number; of a WORD how many there are; 0: it follows from the others, and is only written */
    const char *const *words;
} field;

/* A field that is a text, a word, and a number or flag of a kind up to `most`. In the order in which they are written.
 */
/* clang-format off */
#define T(key, member) {key, TEXT, offsetof(OWNER, member), 1, NULL}
#define W(key, member, name) \
    {key, WORD, offsetof(OWNER, member), sizeof tx_topo_##name##_names / sizeof(char *), tx_topo_##name##_names}
#define END {0}
#define N(key, kind, member, most) {key, kind, offsetof(OWNER, member), most, NULL}
#define OWNER tx_topo_device
static const field device_fields[] = {
    N("label", LABEL, label, 0), W("kind", kind, device), N("number", INT, number, 999999), N("node", INT, node, IN_NODES),
    N("partition", INT, partition, TX_TOPO_DEVICES_MAX), N("partitions", INT, partitions, 0), T("bus_id", bus),
    N("vendor_id", INT, vendor_id, 0xFFFF), N("device_id", INT, device_id, 0xFFFF), T("vendor", vendor), T("name", name),
    T("system_name", system), N("memory", BYTES, memory, INT64_MAX),
    N("sm", COUNT, sm, 9999), T("opencl", opencl), T("tx_device", engine),
    W("source", source, source), W("place_source", place, source), W("place_confidence", confidence, confidence),
    T("cpu_affinity", cpus), T("numa_affinity", nodes), N("gpu_numa", INT, gpu_numa, INT32_MAX),
    N("nearest_nic", INT, nic, 0), N("note", INT, note, IN_NOTES), END};
#undef OWNER
#define OWNER tx_topo_node
static const field node_fields[] = {
    W("kind", kind, node), N("parent", INT, parent, IN_NODES), T("name", name), T("bus_id", bus),
    N("vendor_id", INT, vendor_id, 0xFFFF), N("device_id", INT, device_id, 0xFFFF), N("pci_class", INT, pci_class, 0xFFFF),
    N("link_speed", SIZE, link.speed, 1), N("link_speed_max", SIZE, link.speed_max, 1),
    N("link_width", COUNT, link.width, 1024), N("link_width_max", COUNT, link.width_max, 1024),
    N("link_rate", SIZE, link.rate, 1), W("link_source", link.source, source),
    N("iommu_group", INT, iommu_group, INT32_MAX), T("cpus", cpus), T("numa_nodes", nodes), END};
#undef OWNER
#define OWNER tx_topo_pair
static const field pair_fields[] = {
    W("class", class_, class), W("class_source", class_source, source), W("class_confidence", class_confidence, confidence),
    W("link", link, link), N("links", COUNT, links, 999999), N("link_indirect", FLAG, indirect, 1),
    N("link_switched", FLAG, switched, 1),
    N("link_rate", SIZE, link_rate, 1), W("link_source", link_source, source),
    W("link_confidence", link_confidence, confidence), N("ancestor", INT, ancestor, 0), N("bridges_a", INT, bridges_a, 0),
    N("bridges_b", INT, bridges_b, 0), N("note", INT, note, IN_NOTES), END};
#define X(name, letter, key) W(key, p2p[TX_TOPO_ACCESS_##name], p2p),
static const field p2p_fields[] = {TX_TOPO_ACCESS_MAP(X) END};
#undef X
#undef OWNER
#define OWNER tx_topo_numa
static const field numa_fields[] = {
    N("number", INT, number, INT32_MAX), T("cpus", cpus), N("memory", BYTES, memory, INT64_MAX),
    N("node", INT, node, IN_NODES), N("device", INT, device, IN_DEVICES), END};
#undef OWNER
#define OWNER tx_topo_cpu
static const field cpu_fields[] = {
    N("number", INT, number, INT32_MAX), N("core", INT, core, INT32_MAX), N("package", INT, package, INT32_MAX),
    N("numa", INT, numa, INT32_MAX), END};
#undef OWNER
#define OWNER tx_topo_note
static const field note_fields[] = {N("warning", FLAG, warning, 1), T("text", text), END};
#undef OWNER
#define OWNER tx_topology
static const field root_fields[] = {W("origin", origin, origin), T("file", file), T("host", host), T("arch", arch),
    T("cpu_vendor", cpu_vendor), N("cpu_family", COUNT, cpu_family, 0xFFF), N("cpu_model", COUNT, cpu_model, 0xFFF), END};
#undef OWNER

/* The arrays of structs in a topology: its pointer, its count, the bytes of an element. */
typedef struct list {
    const char *key;
    const field *fields;
    size_t array, count, size;
} list;

#define LIST(key, name, array, count) \
    {key, name##_fields, offsetof(tx_topology, array), offsetof(tx_topology, count), sizeof *((tx_topology *)NULL)->array}
enum { NOTES, NODES, DEVICES, NUMA, CPUS };
static const list lists[] = {
    LIST("notes", note, notes, note_count), LIST("nodes", node, nodes, node_count),
    LIST("devices", device, devices, device_count), LIST("numa", numa, numa, numa_count),
    LIST("cpus", cpu, cpus, cpu_count)};
/* clang-format on */

#endif
