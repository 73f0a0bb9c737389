/* SPDX-License-Identifier: Apache-2.0
 * What the kernel tells in small files: PCIe links and their maxima, IOMMU groups, GPU memory as NUMA nodes, and the
 * XGMI links of AMD's GPUs. */
#include "comm/topology/sources.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_SIZE 512

static bool make_path(char path[PATH_SIZE], const char *root, const char *format, va_list args)
{
    int used = snprintf(path, PATH_SIZE, "%s", root ? root : "");
    if (used < 0 || used >= PATH_SIZE)
        return false;
    int more = vsnprintf(path + used, (size_t)(PATH_SIZE - used), format, args);
    return more >= 0 && more < PATH_SIZE - used;
}

bool tx_topo_small_file(char *text, size_t size, const char *root, const char *format, ...)
{
    char path[PATH_SIZE];
    va_list args;
    va_start(args, format);
    bool fits = make_path(path, root, format, args);
    va_end(args);
    int file = fits ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return false;
    ssize_t got = read(file, text, size - 1);
    close(file);
    if (got < 0)
        return false;
    while (got > 0 && text[got - 1] == '\n')
        got--;
    text[got] = '\0';
    return true;
}

/* The last part of where a link points to. */
static bool link_end(char *text, size_t size, const char *root, const char *format, ...) TX_PRINTF(4, 5);
static bool link_end(char *text, size_t size, const char *root, const char *format, ...)
{
    char path[PATH_SIZE], target[PATH_SIZE];
    va_list args;
    va_start(args, format);
    bool fits = make_path(path, root, format, args);
    va_end(args);
    ssize_t got = fits ? readlink(path, target, sizeof target - 1) : -1;
    if (got <= 0)
        return false;
    target[got] = '\0';
    const char *slash = strrchr(target, '/'), *end = slash ? slash + 1 : target;
    if (strlen(end) >= size)
        return false;
    memcpy(text, end, strlen(end) + 1);
    return true;
}

/* ---- PCI -------------------------------------------------------------------------------------------- */

/* "16.0 GT/s PCIe" */
static double read_speed(const char *root, const char *bus, const char *name)
{
    char text[64];
    if (!tx_topo_small_file(text, sizeof text, root, "/sys/bus/pci/devices/%s/%s", bus, name))
        return 0;
    double speed = strtod(text, NULL);
    return speed > 0 && speed < 1024 ? speed : 0; /* "Unknown" reads as 0 */
}

static int32_t read_width(const char *root, const char *bus, const char *name)
{
    char text[64];
    if (!tx_topo_small_file(text, sizeof text, root, "/sys/bus/pci/devices/%s/%s", bus, name))
        return 0;
    long width = strtol(text, NULL, 10);
    return width > 0 && width <= 32 ? (int32_t)width : 0; /* 0 or 255 where there is no link */
}

static void read_pci(const char *root, tx_topo_node *node)
{
    char text[64];
    tx_topo_pcie link = {.speed = read_speed(root, node->bus, "current_link_speed"),
                         .speed_max = read_speed(root, node->bus, "max_link_speed"),
                         .width = read_width(root, node->bus, "current_link_width"),
                         .width_max = read_width(root, node->bus, "max_link_width"),
                         .source = TX_TOPO_FROM_SYSFS};
    link.rate = tx_topo_pcie_rate(&link, false);
    if (link.speed > 0 && link.width > 0)
        node->link = link;
    if (link_end(text, sizeof text, root, "/sys/bus/pci/devices/%s/iommu_group", node->bus))
        node->iommu_group = (int32_t)strtol(text, NULL, 10);
}

/* Memory of a NUMA node: "Node 1 MemTotal:       98765 kB". */
static int64_t read_node_memory(const char *root, long number)
{
    char text[256];
    if (!tx_topo_small_file(text, sizeof text, root, "/sys/devices/system/node/node%ld/meminfo", number))
        return 0;
    const char *total = strstr(text, "MemTotal:");
    long long kilobytes = total ? strtoll(total + strlen("MemTotal:"), NULL, 10) : 0;
    return kilobytes > 0 && kilobytes < INT64_MAX / 1024 ? (int64_t)kilobytes * 1024 : 0;
}

/* Where a GPU's memory is a NUMA node (Grace), NVIDIA's driver says which: "Node: 4". hwloc hides these nodes. */
static void read_gpu_numa(tx_draft *draft, const char *root, int32_t gpu)
{
    char text[512];
    tx_topo_device *d = &draft->t->devices[gpu];
    if (d->partition > 0 || !*d->bus ||
        !tx_topo_small_file(text, sizeof text, root, "/proc/driver/nvidia/gpus/%s/numa_status", d->bus))
        return;
    const char *field = strstr(text, "Node:");
    long number = field ? strtol(field + strlen("Node:"), NULL, 10) : -1;
    if (number <= 0 || number > 4096)
        return;
    d->gpu_numa = (int32_t)number;
    for (int32_t i = 0; i < draft->t->numa_count; i++)
        if (draft->t->numa[i].number == number)
            return;
    int32_t place = d->node, index = tx_draft_numa(draft, (int32_t)number);
    while (place > 0 && draft->t->nodes[place].kind >= TX_TOPO_HOST_BRIDGE)
        place = draft->t->nodes[place].parent;
    if (index < 0)
        return;
    draft->t->numa[index].device = gpu;
    draft->t->numa[index].node = place;
    draft->t->numa[index].memory = read_node_memory(root, number);
}

void tx_topo_sysfs_pci(tx_draft *draft, const char *root)
{
    for (int32_t i = 0; i < draft->t->node_count; i++) {
        tx_topo_node *node = &draft->t->nodes[i];
        if (node->kind == TX_TOPO_BRIDGE || node->kind == TX_TOPO_FUNCTION)
            read_pci(root, node);
    }
    for (int32_t i = 0; i < draft->t->device_count; i++)
        if (draft->t->devices[i].kind == TX_TOPO_GPU)
            read_gpu_numa(draft, root, i);
}

/* ---- XGMI: amdgpu's hives -------------------------------------------------------------------------------- */

/* The members of a GPU's hive, in the order of the rows of xgmi_num_links; how many. Where the kernel does not list
 * them, the GPUs that have such a row, in order of bus ids, which `guessed` tells. */
static int32_t hive_members(const tx_draft *draft, const char *root, int32_t gpu, int32_t *members, bool *guessed)
{
    char text[64];
    int32_t count = 0;
    const tx_topology *t = draft->t;
    while (count < t->device_count && link_end(text, sizeof text, root, "/sys/bus/pci/devices/%s/xgmi_hive_info/node%d",
                                               t->devices[gpu].bus, count + 1))
        members[count++] = tx_draft_device_at(draft, tx_draft_find_bus(draft, text), 0);
    *guessed = count == 0;
    for (int32_t i = 0; i < t->device_count && *guessed; i++) {
        if (t->devices[i].kind != TX_TOPO_GPU || t->devices[i].partition > 0 ||
            !tx_topo_small_file(text, sizeof text, root, "/sys/bus/pci/devices/%s/xgmi_num_links", t->devices[i].bus))
            continue;
        uint64_t key = 0, other = 0;
        int32_t at = count++;
        tx_topo_bus_parse(t->devices[i].bus, &key);
        for (; at > 0 && tx_topo_bus_parse(t->devices[members[at - 1]].bus, &other) && other > key; at--)
            members[at] = members[at - 1];
        members[at] = i;
    }
    return count;
}

static int32_t note_indirect(tx_draft *draft)
{
    return tx_draft_note(draft, false,
                         "Some GPUs have no XGMI link of their own between them, the way goes through "
                         "others: XG stands without a number");
}

static void add_row(tx_draft *draft, int32_t gpu, const char *row, const int32_t *members, int32_t count, bool guessed)
{
    char *end = NULL;
    int32_t note = -1;
    if (guessed)
        note = tx_draft_note(draft, true,
                             "The kernel does not name the members of the XGMI hive: the numbers of XGMI "
                             "links are taken to be in the order of bus ids");
    for (int32_t i = 0; i < count; i++, row = end) {
        long links = strtol(row, &end, 16);
        if (end == row || links < 0 || links > 255)
            return;
        if (members[i] < 0 || members[i] == gpu)
            continue;
        tx_draft_link link = tx_draft_link_of(gpu, members[i], TX_TOPO_XGMI, TX_TOPO_FROM_SYSFS);
        link.links = (int32_t)links;
        link.indirect = links == 0;
        link.confidence = guessed ? TX_TOPO_GUESSED : TX_TOPO_STATED;
        link.note = note;
        if (links == 0)
            link.note = note_indirect(draft);
        tx_draft_link_add(draft, &link);
    }
}

/* ---- XGMI: the compute driver's topology --------------------------------------------------------------- */

#define KFD_NODES_MAX 1024

static long property(const char *text, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, name, length) == 0 && line[length] == ' ')
            return strtol(line + length, NULL, 10);
    return -1;
}

static int32_t kfd_gpu(const tx_draft *draft, const char *root, int number)
{
    char text[2048], bus[32];
    if (!tx_topo_small_file(text, sizeof text, root, "/sys/class/kfd/kfd/topology/nodes/%d/properties", number))
        return -1;
    long location = property(text, "location_id"), domain = property(text, "domain");
    if (location <= 0 || property(text, "simd_count") == 0)
        return -1;
    snprintf(bus, sizeof bus, "%04lx:%02lx:%02lx.%lx", domain < 0 ? 0 : domain, location >> 8 & 0xFF,
             location >> 3 & 0x1F, location & 7);
    return tx_draft_device_at(draft, tx_draft_find_bus(draft, bus), 0);
}

static void read_kfd_links(tx_draft *draft, const char *root, int number, const int32_t *gpus, int count)
{
    char text[1024];
    const char *folder = "/sys/class/kfd/kfd/topology/nodes";
    for (int k = 0; k < KFD_NODES_MAX; k++) {
        if (!tx_topo_small_file(text, sizeof text, root, "%s/%d/io_links/%d/properties", folder, number, k))
            break;
        long to = property(text, "node_to");
        if (property(text, "type") != 11 || to < 0 || to >= count || gpus[to] < 0)
            continue;
        /* A weight of 15 a hop; MI200 and later give no bandwidth to pairs without a link of their own, else the
         * bandwidth of one link and of all of them. */
        long one = property(text, "min_bandwidth"), all = property(text, "max_bandwidth");
        bool indirect = property(text, "weight") > 15 || all == 0;
        tx_draft_link link = tx_draft_link_of(gpus[number], gpus[to], TX_TOPO_XGMI, TX_TOPO_FROM_SYSFS);
        link.indirect = indirect;
        if (!indirect && one > 0 && all >= one && all / one < 100) {
            link.links = (int32_t)(all / one);
            link.rate = (double)all / 1000;
            link.confidence = TX_TOPO_DERIVED;
        } else if (indirect)
            link.note = note_indirect(draft);
        else
            link.note = tx_draft_note(draft, false,
                                      "The kernel does not tell how many XGMI links there are: XG stands "
                                      "without a number");
        tx_draft_link_add(draft, &link);
    }
}

void tx_topo_sysfs_xgmi(tx_draft *draft, const char *root)
{
    char row[1024];
    const tx_topology *t = draft->t;
    int32_t *members = calloc((size_t)t->device_count + 1, sizeof *members);
    int32_t *gpus = calloc(KFD_NODES_MAX, sizeof *gpus); /* devices of the draft by the driver's nodes; -1 none */
    for (int32_t i = 0; members && i < t->device_count && !draft->status; i++) {
        const tx_topo_device *d = &t->devices[i];
        bool guessed = false;
        if (d->kind != TX_TOPO_GPU || d->partition > 0 || !*d->bus ||
            !tx_topo_small_file(row, sizeof row, root, "/sys/bus/pci/devices/%s/xgmi_num_links", d->bus))
            continue;
        int32_t count = hive_members(draft, root, i, members, &guessed);
        add_row(draft, i, row, members, count, guessed);
    }
    int count = 0;
    for (; gpus && count < KFD_NODES_MAX; count++) {
        if (!tx_topo_small_file(row, sizeof row, root, "/sys/class/kfd/kfd/topology/nodes/%d/gpu_id", count))
            break;
        gpus[count] = kfd_gpu(draft, root, count);
    }
    for (int i = 0; gpus && i < count && !draft->status; i++)
        if (gpus[i] >= 0)
            read_kfd_links(draft, root, i, gpus, count);
    free(members);
    free(gpus);
}
