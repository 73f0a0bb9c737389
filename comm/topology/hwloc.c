/* SPDX-License-Identifier: Apache-2.0
 * Converts a machine as seen by hwloc, live or from XML, into a draft. */
#include "comm/topology/hwloc_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void tx_topo_hwloc_version(char text[32])
{
    unsigned v = hwloc_get_api_version();
    snprintf(text, 32, "%u.%u.%u", v >> 16, v >> 8 & 0xFF, v & 0xFF);
}

/* ---- CPUs and memory ------------------------------------------------------------------------- */

static void read_numa(tx_hwloc_reader *r)
{
    for (hwloc_obj_t n = NULL; (n = hwloc_get_next_obj_by_type(r->topology, HWLOC_OBJ_NUMANODE, n));) {
        hwloc_obj_t place = n;
        while (place->parent && hwloc_obj_type_is_memory(place->type))
            place = place->parent;
        int32_t node = tx_hwloc_node(r, place), index = tx_draft_numa(r->draft, (int32_t)(n->os_index & INT32_MAX));
        if (index < 0)
            return;
        tx_topo_numa *numa = &r->draft->t->numa[index];
        uint64_t memory = n->attr->numanode.local_memory;
        numa->node = node < 0 ? 0 : node;
        numa->memory = memory > INT64_MAX ? 0 : (int64_t)memory;
        numa->cpus = tx_hwloc_set(r->draft, n->cpuset);
        if (tx_hwloc_is_gpu_memory(n))
            numa->device = tx_draft_device_at(r->draft, tx_draft_find_bus(r->draft, tx_hwloc_info(n, "PCIBusID")), 0);
    }
}

/* Returns the NUMA node with the fewest CPUs that contains this CPU; -1 if there is none. */
static int32_t nearest_numa(const tx_hwloc_reader *r, unsigned cpu)
{
    int32_t nearest = -1;
    int fewest = INT32_MAX;
    for (hwloc_obj_t n = NULL; (n = hwloc_get_next_obj_by_type(r->topology, HWLOC_OBJ_NUMANODE, n));) {
        int weight = n->cpuset && hwloc_bitmap_isset(n->cpuset, cpu) ? hwloc_bitmap_weight(n->cpuset) : -1;
        if (weight > 0 && weight < fewest && !tx_hwloc_is_gpu_memory(n)) {
            fewest = weight;
            nearest = (int32_t)(n->os_index & INT32_MAX);
        }
    }
    return nearest;
}

static void read_cpus(tx_hwloc_reader *r)
{
    for (hwloc_obj_t pu = NULL; (pu = hwloc_get_next_obj_by_type(r->topology, HWLOC_OBJ_PU, pu));) {
        hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(r->topology, HWLOC_OBJ_CORE, pu);
        hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(r->topology, HWLOC_OBJ_PACKAGE, pu);
        tx_topo_cpu *cpu = TX_DRAFT_APPEND(r->draft, r->draft->t->cpus, r->draft->t->cpu_count);
        if (!cpu)
            return;
        cpu->number = (int32_t)(pu->os_index & INT32_MAX);
        cpu->core = (int32_t)(core ? core->logical_index : pu->logical_index);
        cpu->package = package ? (int32_t)package->logical_index : 0;
        cpu->numa = nearest_numa(r, pu->os_index);
    }
}

/* ---- Loading --------------------------------------------------------------------------------- */

/* PoCL uses hwloc itself. While it runs, it hides hwloc's plugins from the whole process, so that hwloc does not
 * call OpenCL again. TX excludes hwloc's OpenCL plugin explicitly, and makes the plugins visible while hwloc
 * starts. */
static int start(hwloc_topology_t *topology)
{
    static const char variable[] = "HWLOC_PLUGINS_PATH", nowhere[] = "/dev/null";
    const char *path = getenv(variable);
    const bool hidden = path && strcmp(path, nowhere) == 0;
    if (hidden)
        unsetenv(variable);
    const int failed = hwloc_topology_init(topology);
    if (hidden)
        setenv(variable, nowhere, 1);
    return failed;
}

/* Loads this machine if `xml` is NULL. */
static tx_status load(hwloc_topology_t *topology, const char *xml, size_t size)
{
    char version[32];
    tx_topo_hwloc_version(version);
    if (size >= INT32_MAX)
        return tx_fail(TX_FORMAT, "the file is too large for hwloc");
    setenv("HWLOC_HIDE_ERRORS", "2", 0); /* TX has a line of its own for a broken file and for a missing /sys */
    if (start(topology))
        return tx_fail(TX_MEMORY, "hwloc %s does not start", version);
    hwloc_topology_set_io_types_filter(*topology, HWLOC_TYPE_FILTER_KEEP_ALL);
    /* TX queries OpenCL itself; "gl" would open X displays. */
    hwloc_topology_set_components(*topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "opencl");
    hwloc_topology_set_components(*topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "gl");
    if ((xml && hwloc_topology_set_xmlbuffer(*topology, xml, (int)size + 1)) || hwloc_topology_load(*topology)) {
        hwloc_topology_destroy(*topology);
        return tx_fail(TX_FORMAT,
                       xml ? "hwloc %s cannot read this file; the XML is damaged or truncated"
                           : "hwloc %s cannot load the topology of this machine",
                       version);
    }
    return TX_OK;
}

tx_status tx_topo_hwloc_read(const char *xml, size_t size, tx_draft *draft, bool *local)
{
    tx_hwloc_reader r = {.draft = draft};
    tx_status status = load(&r.topology, xml, size);
    if (status)
        return status;
    hwloc_obj_t root = hwloc_get_root_obj(r.topology);
    tx_hwloc_node(&r, root);
    tx_hwloc_read_devices(&r);
    read_numa(&r);
    read_cpus(&r);
    tx_hwloc_read_links(&r);
    draft->t->host = tx_draft_text(draft, tx_hwloc_info(root, "HostName"));
    *local = hwloc_topology_is_thissystem(r.topology);
    if (!xml && *local && access("/sys/devices/system", F_OK))
        tx_draft_note(draft, true,
                      "there is no /sys here, so that cores, NUMA nodes, GPUs and NICs are not found: mount -t sysfs "
                      "sysfs /sys");
    hwloc_topology_destroy(r.topology);
    return draft->status;
}
