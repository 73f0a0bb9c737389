/* SPDX-License-Identifier: Apache-2.0
 * hwloc's tree, live or from XML, becomes a draft; and hwloc's XML is written. */
#include "comm/topology/hwloc_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tx_topo_hwloc_version(char text[32])
{
    unsigned v = hwloc_get_api_version();
    snprintf(text, 32, "%u.%u.%u", v >> 16, v >> 8 & 0xFF, v & 0xFF);
}

/* ---- Nodes --------------------------------------------------------------------------------------- */

/* A bitmap as a list; "" where it has no end. */
static const char *set_text(tx_draft *draft, hwloc_const_bitmap_t set)
{
    char *text = NULL;
    if (!set || hwloc_bitmap_weight(set) < 0 || hwloc_bitmap_list_asprintf(&text, set) < 0)
        return "";
    const char *copy = tx_draft_text(draft, text);
    free(text);
    return copy;
}

static bool is_gpu_memory(hwloc_obj_t numa)
{
    return numa->subtype && strcmp(numa->subtype, "GPUMemory") == 0;
}

/* An object's NUMA nodes without those that are the memory of GPUs. */
static const char *nodes_text(const tx_hwloc_reader *r, hwloc_const_nodeset_t set)
{
    hwloc_bitmap_t cpus_only = hwloc_bitmap_dup(set); /* NULL of NULL */
    for (hwloc_obj_t n = NULL; (n = hwloc_get_next_obj_by_type(r->topology, HWLOC_OBJ_NUMANODE, n)) && cpus_only;)
        if (is_gpu_memory(n))
            hwloc_bitmap_clr(cpus_only, n->os_index);
    const char *text = set_text(r->draft, cpus_only);
    hwloc_bitmap_free(cpus_only);
    return text;
}

static tx_topo_node_kind kind_of(hwloc_obj_t obj)
{
    if (!obj->parent)
        return TX_TOPO_MACHINE;
    if (obj->type == HWLOC_OBJ_PACKAGE)
        return TX_TOPO_PACKAGE;
    if (obj->type == HWLOC_OBJ_PCI_DEVICE)
        return TX_TOPO_FUNCTION;
    if (obj->type != HWLOC_OBJ_BRIDGE)
        return TX_TOPO_GROUP;
    return obj->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST ? TX_TOPO_HOST_BRIDGE : TX_TOPO_BRIDGE;
}

/* The next object above that becomes a node. */
static hwloc_obj_t node_above(hwloc_obj_t obj)
{
    bool io = hwloc_obj_type_is_io(obj->type);
    for (obj = obj->parent; obj && obj->parent; obj = obj->parent) {
        if (obj->type == HWLOC_OBJ_OS_DEVICE || obj->type == HWLOC_OBJ_MISC || hwloc_obj_type_is_memory(obj->type))
            continue;
        if (io || obj->type == HWLOC_OBJ_PACKAGE || obj->memory_arity > 0)
            break;
    }
    return obj;
}

static void describe_pci(tx_hwloc_reader *r, hwloc_obj_t obj, tx_topo_node *node)
{
    const struct hwloc_pcidev_attr_s *pci =
        obj->type == HWLOC_OBJ_BRIDGE ? &obj->attr->bridge.upstream.pci : &obj->attr->pcidev;
    node->bus = tx_draft_format(r->draft, "%04x:%02x:%02x.%01x", (unsigned)pci->domain, pci->bus, pci->dev, pci->func);
    node->vendor_id = pci->vendor_id;
    node->device_id = pci->device_id;
    node->pci_class = pci->class_id;
    node->link.rate = pci->linkspeed > 0 && pci->linkspeed < 1e6f ? (double)pci->linkspeed : 0;
    node->link.source = node->link.rate > 0 ? TX_TOPO_FROM_HWLOC : TX_TOPO_FROM_NOWHERE;
    const char *vendor = tx_hwloc_info(obj, "PCIVendor"), *device = tx_hwloc_info(obj, "PCIDevice");
    node->name = tx_draft_format(r->draft, "%s%s%s", *vendor ? vendor : tx_topo_vendor(pci->vendor_id),
                                 *device ? " " : "", device);
}

int32_t tx_hwloc_node(tx_hwloc_reader *r, hwloc_obj_t obj)
{
    if (obj->userdata)
        return tx_hwloc_index(obj);
    hwloc_obj_t above = node_above(obj);
    int32_t parent = above ? tx_hwloc_node(r, above) : -1;
    int32_t index = tx_draft_node(r->draft, kind_of(obj), parent);
    if (index < 0)
        return -1;
    tx_topo_node node = r->draft->t->nodes[index];
    char type[64];
    hwloc_obj_type_snprintf(type, sizeof type, obj, 0);
    if (node.kind == TX_TOPO_FUNCTION || node.kind == TX_TOPO_BRIDGE)
        describe_pci(r, obj, &node);
    else if (node.kind == TX_TOPO_HOST_BRIDGE)
        node.bus = tx_draft_format(r->draft, "%04x:[%02x-%02x]", (unsigned)obj->attr->bridge.downstream.pci.domain,
                                   obj->attr->bridge.downstream.pci.secondary_bus,
                                   obj->attr->bridge.downstream.pci.subordinate_bus);
    if (node.kind == TX_TOPO_PACKAGE || node.kind == TX_TOPO_GROUP)
        node.name = tx_draft_format(r->draft, "%s %u", type, obj->logical_index);
    if (node.kind == TX_TOPO_PACKAGE)
        node.vendor_id = strcmp(tx_hwloc_info(obj, "CPUVendor"), "AuthenticAMD") == 0   ? 0x1022
                         : strcmp(tx_hwloc_info(obj, "CPUVendor"), "GenuineIntel") == 0 ? 0x8086
                                                                                        : 0;
    if (node.kind <= TX_TOPO_GROUP) {
        node.cpus = set_text(r->draft, obj->cpuset);
        node.nodes = nodes_text(r, obj->nodeset);
    }
    r->draft->t->nodes[index] = node;
    tx_hwloc_set_index(obj, index);
    return index;
}

/* ---- CPUs and memory --------------------------------------------------------------------------------- */

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
        numa->cpus = set_text(r->draft, n->cpuset);
        if (is_gpu_memory(n))
            numa->device = tx_draft_device_at(r->draft, tx_draft_find_bus(r->draft, tx_hwloc_info(n, "PCIBusID")), 0);
    }
}

/* The NUMA node with the fewest CPUs that has this one; -1 none. */
static int32_t nearest_numa(const tx_hwloc_reader *r, unsigned cpu)
{
    int32_t nearest = -1;
    int least = INT32_MAX;
    for (hwloc_obj_t n = NULL; (n = hwloc_get_next_obj_by_type(r->topology, HWLOC_OBJ_NUMANODE, n));) {
        int weight = n->cpuset && hwloc_bitmap_isset(n->cpuset, cpu) ? hwloc_bitmap_weight(n->cpuset) : -1;
        if (weight > 0 && weight < least && !is_gpu_memory(n)) {
            least = weight;
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

/* What the first package says, or the machine where that has no package, all CPUs are. */
static void read_model(tx_hwloc_reader *r, hwloc_obj_t root)
{
    tx_topology *t = r->draft->t;
    hwloc_obj_t package = hwloc_get_obj_by_type(r->topology, HWLOC_OBJ_PACKAGE, 0);
    hwloc_obj_t of = package ? package : root;
    t->arch = tx_draft_text(r->draft, tx_hwloc_info(root, "Architecture"));
    t->cpu_vendor = tx_draft_text(r->draft, tx_hwloc_info(of, "CPUVendor"));
    t->cpu_family = (int32_t)(strtoul(tx_hwloc_info(of, "CPUFamilyNumber"), NULL, 10) & 0xFFF);
    t->cpu_model = (int32_t)(strtoul(tx_hwloc_info(of, "CPUModelNumber"), NULL, 10) & 0xFFF);
}

/* ---- Loading and writing --------------------------------------------------------------------------------- */

/* PoCL, once it runs, hides hwloc's plugins from the whole process, so that its own use of hwloc does not end in OpenCL
 * again; TX leaves hwloc's OpenCL plugin out by itself, and shows the plugins while hwloc starts. */
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

/* Live where `xml` is NULL. */
static tx_status load(hwloc_topology_t *topology, const char *xml, size_t size)
{
    char version[32];
    tx_topo_hwloc_version(version);
    if (size >= INT32_MAX)
        return tx_fail(TX_FORMAT, "too large for hwloc");
    if (xml) /* TX says in one line what is wrong with a file */
        setenv("HWLOC_HIDE_ERRORS", "2", 0);
    if (start(topology))
        return tx_fail(TX_MEMORY, "hwloc %s does not start", version);
    hwloc_topology_set_io_types_filter(*topology, HWLOC_TYPE_FILTER_KEEP_ALL);
    /* TX asks OpenCL itself; "gl" would open X displays. */
    hwloc_topology_set_components(*topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "opencl");
    hwloc_topology_set_components(*topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "gl");
    if ((xml && hwloc_topology_set_xmlbuffer(*topology, xml, (int)size + 1)) || hwloc_topology_load(*topology)) {
        hwloc_topology_destroy(*topology);
        return tx_fail(TX_FORMAT,
                       xml ? "hwloc %s cannot read it: the XML is damaged or cut off"
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
    read_model(&r, root);
    *local = hwloc_topology_is_thissystem(r.topology);
    hwloc_topology_destroy(r.topology);
    return draft->status;
}

tx_status tx_topo_hwloc_export(const tx_topology *topology, const char *xml, size_t size, char **text)
{
    hwloc_topology_t loaded;
    tx_status status = load(&loaded, xml, size);
    if (status)
        return status;
    char *buffer = NULL;
    int length = 0;
    if (!xml)
        status = tx_hwloc_add_links(loaded, topology);
    if (!status && hwloc_topology_export_xmlbuffer(loaded, &buffer, &length, 0))
        status = tx_fail(TX_INTERNAL, "hwloc cannot write the topology as XML");
    if (!status && !(*text = strdup(buffer)))
        status = tx_fail(TX_MEMORY, "topology: out of memory");
    if (buffer)
        hwloc_free_xmlbuffer(loaded, buffer);
    hwloc_topology_destroy(loaded);
    return status;
}
