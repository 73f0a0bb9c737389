/* SPDX-License-Identifier: Apache-2.0
 * Information from sysfs and procfs: PCIe links and their maximum, IOMMU groups, GPU memory as NUMA nodes, and XGMI
 * links of AMD GPUs. */
#include "api/base/number.h"
#include "comm/topology/sources.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_SIZE 512

/* Writes the path below `root`; "" if it is too long. */
static void make_path(char path[PATH_SIZE], const char *root, const char *format, va_list args)
{
    const int used = snprintf(path, PATH_SIZE, "%s", root ? root : "");
    const int available = used < PATH_SIZE ? PATH_SIZE - used : 0;
    if (available == 0 || tx_format_list(path + used, (size_t)available, format, args) >= available)
        path[0] = '\0';
}

/* Reads a small text file below `root`, without the final newline. Returns false if there is none. */
TX_PRINTF(4, 5) static bool small_file(char *text, size_t size, const char *root, const char *format, ...)
{
    char path[PATH_SIZE];
    va_list args;
    va_start(args, format);
    make_path(path, root, format, args);
    va_end(args);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    size_t got = fread(text, 1, size - 1, file);
    const bool read = !ferror(file);
    fclose(file);
    while (got > 0 && text[got - 1] == '\n')
        got--;
    text[got] = '\0';
    return read;
}

/* Returns the last component of a symbolic link's target. */
TX_PRINTF(3, 4) static bool link_end(char text[64], const char *root, const char *format, ...)
{
    char path[PATH_SIZE], target[PATH_SIZE];
    va_list args;
    va_start(args, format);
    make_path(path, root, format, args);
    va_end(args);
    const ssize_t got = readlink(path, target, sizeof target - 1);
    if (got <= 0)
        return false;
    target[got] = '\0';
    const char *slash = strrchr(target, '/');
    return snprintf(text, 64, "%s", slash ? slash + 1 : target) < 64;
}

/* ---- PCI ------------------------------------------------------------------------------------- */

/* Returns the number at the start of a file of a PCI function, "16.0 GT/s PCIe". Returns 0 if it is not between 0
 * and `max`, because files contain "Unknown", or 0 or 255 lanes if there is no link. */
static double read_number(const char *root, const char *bus, const char *name, double max)
{
    char text[64];
    if (!small_file(text, sizeof text, root, "/sys/bus/pci/devices/%s/%s", bus, name))
        return 0;
    const double number = tx_number_read(text, NULL);
    return number > 0 && number <= max ? number : 0;
}

static void read_pci(const char *root, tx_topo_node *node)
{
    enum { SPEED = 1024, LANES = 32 };
    char text[64];
    tx_topo_pcie link = {.speed = read_number(root, node->bus, "current_link_speed", SPEED),
                         .speed_max = read_number(root, node->bus, "max_link_speed", SPEED),
                         .width = (int32_t)read_number(root, node->bus, "current_link_width", LANES),
                         .width_max = (int32_t)read_number(root, node->bus, "max_link_width", LANES),
                         .source = TX_TOPO_FROM_SYSFS};
    link.rate = tx_topo_pcie_rate(&link, false);
    if (link.speed > 0 && link.width > 0)
        node->link = link;
    if (link_end(text, root, "/sys/bus/pci/devices/%s/iommu_group", node->bus))
        node->iommu_group = (int32_t)strtol(text, NULL, 10);
}

/* Returns the number after `key`; -1 if there is none. */
static long long number_after(const char *text, const char *key)
{
    const char *field = strstr(text, key);
    return field ? strtoll(field + strlen(key), NULL, 10) : -1;
}

/* If a GPU's memory is a NUMA node (Grace), NVIDIA's driver reports its number: "Node: 4". hwloc hides these nodes. */
static void read_gpu_numa(tx_draft *draft, const char *root, int32_t gpu)
{
    char text[512];
    tx_topo_device *d = &draft->t->devices[gpu];
    if (d->partition > 0 || !*d->bus ||
        !small_file(text, sizeof text, root, "/proc/driver/nvidia/gpus/%s/numa_status", d->bus))
        return;
    const long long number = number_after(text, "Node:");
    if (number <= 0 || number > 4096)
        return;
    d->gpu_numa = (int32_t)number;
    for (int32_t i = 0; i < draft->t->numa_count; i++)
        if (draft->t->numa[i].number == number)
            return;
    const int32_t index = tx_draft_numa(draft, (int32_t)number);
    if (index < 0)
        return;
    tx_topo_numa *numa = &draft->t->numa[index];
    numa->device = gpu;
    for (numa->node = d->node; numa->node > 0 && draft->t->nodes[numa->node].kind >= TX_TOPO_HOST_BRIDGE;)
        numa->node = draft->t->nodes[numa->node].parent;
    /* "Node 1 MemTotal:       98765 kB" */
    if (!small_file(text, sizeof text, root, "/sys/devices/system/node/node%lld/meminfo", number))
        return;
    const long long kilobytes = number_after(text, "MemTotal:");
    numa->memory = kilobytes > 0 && kilobytes < INT64_MAX / 1024 ? (int64_t)kilobytes * 1024 : 0;
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

/* ---- XGMI: amdgpu's hives -------------------------------------------------------------------- */

static const char indirect_note[] = "Some GPUs have no direct XGMI link between them; the path goes through others";

/* Reads the row of link counts, one for each member of the GPU's hive in the kernel's order. */
static void read_hive(tx_draft *draft, const char *root, int32_t gpu)
{
    char row[1024], member[64];
    const tx_topo_device *d = &draft->t->devices[gpu];
    if (d->kind != TX_TOPO_GPU || d->partition > 0 || !*d->bus ||
        !small_file(row, sizeof row, root, "/sys/bus/pci/devices/%s/xgmi_num_links", d->bus))
        return;
    char *at = row, *end = NULL;
    for (int k = 1; link_end(member, root, "/sys/bus/pci/devices/%s/xgmi_hive_info/node%d", d->bus, k); k++, at = end) {
        const int32_t other = tx_draft_device_at(draft, tx_draft_find_bus(draft, member), 0);
        const long links = strtol(at, &end, 16);
        tx_topo_pair link = tx_draft_links(TX_TOPO_XGMI, TX_TOPO_FROM_SYSFS);
        if (end == at || links < 0 || links > 255)
            return;
        link.links = (int32_t)links;
        link.indirect = links == 0;
        if (other < 0 || other == gpu)
            continue;
        if (link.indirect)
            tx_draft_xgmi(draft, gpu, other, link, 0, 0, indirect_note);
        else
            tx_draft_state(draft, gpu, other, TX_DRAFT_LINKS, &link);
    }
}

/* ---- XGMI: the compute driver's topology ----------------------------------------------------- */

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
    char text[2048];
    if (!small_file(text, sizeof text, root, "/sys/class/kfd/kfd/topology/nodes/%d/properties", number))
        return -1;
    const long location = property(text, "location_id"), domain = property(text, "domain");
    if (location <= 0 || property(text, "simd_count") == 0)
        return -1;
    const uint64_t key = (uint64_t)(domain < 0 ? 0 : domain) << 16 | ((uint64_t)location & 0xFFFF);
    return tx_draft_device_at(draft, tx_draft_find_key(draft, key), 0);
}

static void read_kfd_links(tx_draft *draft, const char *root, int number, const int32_t *gpus, int count)
{
    char text[1024];
    const char *folder = "/sys/class/kfd/kfd/topology/nodes";
    for (int k = 0; k < KFD_NODES_MAX; k++) {
        if (!small_file(text, sizeof text, root, "%s/%d/io_links/%d/properties", folder, number, k))
            break;
        const long to = property(text, "node_to");
        if (property(text, "type") != 11 || to < 0 || to >= count || gpus[to] < 0)
            continue;
        /* Each hop has weight 15. MI200 and later report no bandwidth for pairs without a direct link; for others
         * they report the bandwidth of one link and of all links. */
        const long one = property(text, "min_bandwidth"), all = property(text, "max_bandwidth");
        tx_topo_pair link = tx_draft_links(TX_TOPO_XGMI, TX_TOPO_FROM_SYSFS);
        link.indirect = property(text, "weight") > 15 || all == 0;
        tx_draft_xgmi(draft, gpus[number], gpus[to], link, one, all,
                      link.indirect ? indirect_note : "The kernel does not report how many XGMI links there are");
    }
}

void tx_topo_sysfs_xgmi(tx_draft *draft, const char *root)
{
    char text[64];
    int32_t gpus[KFD_NODES_MAX], count = 0; /* index in the draft by the driver's node; -1 if there is none */
    for (int32_t i = 0; i < draft->t->device_count && !draft->status; i++)
        read_hive(draft, root, i);
    for (; count < KFD_NODES_MAX; count++) {
        if (!small_file(text, sizeof text, root, "/sys/class/kfd/kfd/topology/nodes/%d/gpu_id", count))
            break;
        gpus[count] = kfd_gpu(draft, root, count);
    }
    for (int i = 0; i < count && !draft->status; i++)
        if (gpus[i] >= 0)
            read_kfd_links(draft, root, i, gpus, count);
}
