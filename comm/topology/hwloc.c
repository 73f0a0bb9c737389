/* SPDX-License-Identifier: Apache-2.0
 * The only file that knows hwloc: its tree, live or from XML, becomes a draft; and hwloc's XML is written. Its PCI
 * functions name TX's devices; partitions of one function are as many as one of its backends lists. */
#include "comm/topology/sources.h"

#include <hwloc.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARTITIONS_MAX 64

typedef struct reader {
    hwloc_topology_t topology;
    tx_draft *draft;
} reader;

void tx_topo_hwloc_version(char text[32])
{
    unsigned v = hwloc_get_api_version();
    snprintf(text, 32, "%u.%u.%u", v >> 16, v >> 8 & 0xFF, v & 0xFF);
}

/* ---- Nodes --------------------------------------------------------------------------------------- */

/* An object's node or device plus 1 is kept in its userdata, which hwloc leaves NULL. */
static int32_t index_of(hwloc_obj_t obj)
{
    return (int32_t)(intptr_t)obj->userdata - 1;
}

static void set_index(hwloc_obj_t obj, int32_t index)
{
    obj->userdata = (void *)(intptr_t)(index + 1);
}

static const char *info(hwloc_obj_t obj, const char *key)
{
    const char *value = hwloc_obj_get_info_by_name(obj, key);
    return value ? value : "";
}

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
static const char *nodes_text(const reader *r, hwloc_const_nodeset_t set)
{
    hwloc_bitmap_t cpus_only = set ? hwloc_bitmap_dup(set) : NULL;
    if (!cpus_only)
        return "";
    for (hwloc_obj_t n = NULL; (n = hwloc_get_next_obj_by_type(r->topology, HWLOC_OBJ_NUMANODE, n));)
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

static void describe_pci(reader *r, hwloc_obj_t obj, tx_topo_node *node)
{
    const struct hwloc_pcidev_attr_s *pci =
        obj->type == HWLOC_OBJ_BRIDGE ? &obj->attr->bridge.upstream.pci : &obj->attr->pcidev;
    node->bus = tx_draft_format(r->draft, "%04x:%02x:%02x.%01x", (unsigned)pci->domain, pci->bus, pci->dev, pci->func);
    node->vendor_id = pci->vendor_id;
    node->device_id = pci->device_id;
    node->pci_class = pci->class_id;
    node->link.rate = pci->linkspeed > 0 && pci->linkspeed < 1e6f ? (double)pci->linkspeed : 0;
    node->link.source = node->link.rate > 0 ? TX_TOPO_FROM_HWLOC : TX_TOPO_FROM_NOWHERE;
    const char *vendor = info(obj, "PCIVendor"), *device = info(obj, "PCIDevice");
    node->name = tx_draft_format(r->draft, "%s%s%s", *vendor ? vendor : tx_topo_vendor(pci->vendor_id),
                                 *device ? " " : "", device);
}

/* The node of an object; made, with those above it, where it is not there yet. -1 after a failure. */
static int32_t node_of(reader *r, hwloc_obj_t obj)
{
    if (obj->userdata)
        return index_of(obj);
    hwloc_obj_t above = node_above(obj);
    int32_t parent = above ? node_of(r, above) : -1;
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
    if (node.kind <= TX_TOPO_GROUP) {
        node.cpus = set_text(r->draft, obj->cpuset);
        node.nodes = nodes_text(r, obj->nodeset);
    }
    r->draft->t->nodes[index] = node;
    set_index(obj, index);
    return index;
}

/* ---- Devices --------------------------------------------------------------------------------------- */

/* The backends of hwloc whose devices compute, best names first. */
static const char *const families[] = {"nvml", "rsmi", "ze", "cuda", "opencl"};
enum { FAMILIES = sizeof families / sizeof families[0], OPENCL = FAMILIES - 1 };

/* The family of an OS device, by its name: "nvml3", "ze0", "opencl0d1"; -1 none. */
static int family_of(hwloc_obj_t obj)
{
    for (int f = 0; obj->name && f < FAMILIES; f++) {
        size_t length = strlen(families[f]);
        if (strncmp(obj->name, families[f], length) == 0 && obj->name[length] >= '0' && obj->name[length] <= '9')
            return f;
    }
    return -1;
}

static hwloc_obj_t next_os_device(hwloc_obj_t pci, hwloc_obj_t last)
{
    hwloc_obj_t obj = last ? last->next_sibling : pci->io_first_child;
    while (obj && obj->type != HWLOC_OBJ_OS_DEVICE)
        obj = obj->next_sibling;
    return obj;
}

/* A device of Level Zero that has tiles is listed beside them ("ze0", "ze0.0", "ze0.1"): the tiles count. */
static bool has_tiles(hwloc_obj_t pci, hwloc_obj_t device)
{
    size_t length = strlen(device->name);
    for (hwloc_obj_t o = NULL; (o = next_os_device(pci, o));)
        if (o->name && strncmp(o->name, device->name, length) == 0 && o->name[length] == '.')
            return true;
    return false;
}

/* The place of an OS device among those of its family (of its OpenCL platform) under the same function; -1 when it is
 * no device of its own. */
static int32_t place_in_family(hwloc_obj_t pci, hwloc_obj_t device)
{
    int family = family_of(device);
    unsigned platform = 0, other = 0;
    int32_t place = 0;
    if (family < 0 || has_tiles(pci, device))
        return -1;
    if (family == OPENCL && sscanf(device->name, "opencl%u", &platform) != 1)
        return -1;
    for (hwloc_obj_t o = NULL; (o = next_os_device(pci, o)) && o != device;) {
        if (family_of(o) != family || has_tiles(pci, o))
            continue;
        if (family == OPENCL && (sscanf(o->name, "opencl%u", &other) != 1 || other != platform))
            continue;
        place++;
    }
    return place < PARTITIONS_MAX ? place : -1;
}

/* Whether a function is a display or compute device at all; `sure`: that it computes. */
static bool is_gpu(hwloc_obj_t pci, int32_t *partitions, bool *sure)
{
    const struct hwloc_pcidev_attr_s *p = &pci->attr->pcidev;
    bool render = false;
    *partitions = 0;
    for (hwloc_obj_t o = NULL; (o = next_os_device(pci, o));) {
        int32_t place = place_in_family(pci, o);
        if (place >= *partitions)
            *partitions = place + 1;
        render = render || (o->name && strncmp(o->name, "renderD", 7) == 0);
    }
    bool maker = p->vendor_id == 0x1002 || p->vendor_id == 0x10de || p->vendor_id == 0x8086;
    bool second = p->vendor_id == 0x8086 && p->func > 0; /* Intel's display controllers list themselves twice */
    *sure = *partitions > 0 || p->class_id == 0x0302 || (p->class_id == 0x0380 && !second) ||
            (p->class_id == 0x1200 && p->vendor_id == 0x1002) || (p->class_id == 0x0300 && p->vendor_id == 0x10de) ||
            (p->class_id == 0x0300 && maker && render);
    bool gpu = *partitions > 0 || p->class_id >> 8 == 0x03 || p->class_id == 0x1200;
    if (*partitions == 0)
        *partitions = 1;
    return gpu;
}

/* Kilobytes in `key`, as bytes. */
static int64_t kilobytes(hwloc_obj_t obj, const char *key)
{
    int64_t value = strtoll(info(obj, key), NULL, 10);
    return value > 0 && value < INT64_MAX / 1024 ? value * 1024 : 0;
}

/* Adds what an OS device tells about a device of the draft. Families are met best first. */
static void describe_device(tx_draft *draft, tx_topo_device *d, hwloc_obj_t os, int family)
{
    unsigned platform = 0, device = 0;
    static const char *const sizes[FAMILIES] = {"", "RSMIVRAMSize", "LevelZeroHBMSize", "CUDAGlobalMemorySize",
                                                "OpenCLGlobalMemorySize"};
    if (!*d->system)
        d->system = tx_draft_text(draft, os->name);
    if (!*d->name)
        d->name = tx_draft_text(draft, info(os, "GPUModel"));
    if (d->memory == 0)
        d->memory = kilobytes(os, sizes[family]);
    if (family == OPENCL && sscanf(os->name, "opencl%ud%u", &platform, &device) == 2 && platform < 1000 &&
        device < 1000) {
        d->opencl = tx_draft_format(draft, "%s%s%u:%u", d->opencl, *d->opencl ? "," : "", platform, device);
        if (d->platform < 0) {
            d->platform = (int32_t)platform;
            d->device = (int32_t)device;
        }
    }
}

static void read_gpu(reader *r, hwloc_obj_t pci, int32_t partitions, bool sure)
{
    tx_draft *draft = r->draft;
    int32_t node = node_of(r, pci), first = draft->t->device_count;
    for (int32_t k = 0; k < partitions; k++) {
        int32_t index = tx_draft_device(draft, TX_TOPO_GPU, node);
        if (index < 0)
            return;
        tx_topo_device *d = &draft->t->devices[index];
        d->partition = k;
        d->vendor = tx_draft_text(draft, tx_topo_vendor(d->vendor_id));
        d->source = sure ? TX_TOPO_FROM_HWLOC : TX_DRAFT_UNSURE;
        d->place = TX_TOPO_FROM_HWLOC;
    }
    for (int f = 0; f < FAMILIES; f++)
        for (hwloc_obj_t o = NULL; (o = next_os_device(pci, o));) {
            int32_t place = family_of(o) == f ? place_in_family(pci, o) : -1;
            if (place < 0)
                continue;
            set_index(o, first + place);
            describe_device(draft, &draft->t->devices[first + place], o, f);
        }
    const char *model = ""; /* a device with tiles has it, the tiles do not */
    for (hwloc_obj_t o = NULL; !*model && (o = next_os_device(pci, o));)
        model = info(o, "GPUModel");
    for (int32_t k = first; k < draft->t->device_count; k++)
        if (!*draft->t->devices[k].name)
            draft->t->devices[k].name = tx_draft_text(draft, *model ? model : info(pci, "PCIDevice"));
}

static void add_nic(reader *r, hwloc_obj_t pci, const char *name)
{
    tx_draft *draft = r->draft;
    int32_t node = node_of(r, pci), index = tx_draft_device(draft, TX_TOPO_NIC, node), before = 0;
    if (index < 0)
        return;
    for (int32_t i = 0; i < index; i++)
        before += draft->t->devices[i].node == node && draft->t->devices[i].kind == TX_TOPO_NIC;
    tx_topo_device *d = &draft->t->devices[index];
    d->partition = before;
    d->source = d->place = TX_TOPO_FROM_HWLOC;
    d->system = tx_draft_text(draft, *name ? name : d->bus);
    d->vendor = tx_draft_text(draft, tx_topo_vendor(d->vendor_id));
    d->name = tx_draft_text(draft, info(pci, "PCIDevice"));
}

/* What does RDMA counts, as for nvidia-smi: one NIC an InfiniBand device; Slingshot's have network interfaces only. */
static void read_nics(reader *r, hwloc_obj_t pci)
{
    const struct hwloc_pcidev_attr_s *p = &pci->attr->pcidev;
    const char *interface = "";
    bool found = false;
    for (hwloc_obj_t o = NULL; (o = next_os_device(pci, o));) {
        if (o->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS) {
            add_nic(r, pci, o->name ? o->name : "");
            found = true;
        } else if (o->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK && o->name)
            interface = o->name;
    }
    if (!found && (p->class_id == 0x0207 || (p->class_id == 0x0200 && p->vendor_id == 0x17db)))
        add_nic(r, pci, interface);
}

/* A function that is not on the bus of the host bridge it hangs from: the bridges between were not exported. */
static bool bridges_missing(hwloc_obj_t pci)
{
    hwloc_obj_t parent = pci->parent;
    if (!parent || parent->type != HWLOC_OBJ_BRIDGE)
        return true;
    return parent->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST &&
           parent->attr->bridge.downstream.pci.secondary_bus != pci->attr->pcidev.bus;
}

static void read_devices(reader *r)
{
    const char *missing = NULL;
    for (hwloc_obj_t pci = NULL; (pci = hwloc_get_next_pcidev(r->topology, pci)) && !r->draft->status;) {
        int32_t partitions = 0, before = r->draft->t->device_count;
        bool sure = false;
        if (is_gpu(pci, &partitions, &sure))
            read_gpu(r, pci, partitions, sure);
        else
            read_nics(r, pci);
        bool listed = r->draft->t->device_count > before && r->draft->t->devices[before].source != TX_DRAFT_UNSURE;
        if (listed && !missing && bridges_missing(pci))
            missing = r->draft->t->devices[before].bus;
    }
    if (missing && r->draft->t->device_count > 1)
        tx_draft_note(r->draft, true,
                      "PCI bridges are missing (above %s at least): PIX and PXB may show as PHB or NODE; an XML file "
                      "that has them is made with lstopo --filter io:all FILE.xml",
                      missing);
}

/* ---- CPUs and memory --------------------------------------------------------------------------------- */

static void read_numa(reader *r)
{
    for (hwloc_obj_t n = NULL; (n = hwloc_get_next_obj_by_type(r->topology, HWLOC_OBJ_NUMANODE, n));) {
        hwloc_obj_t place = n;
        while (place->parent && hwloc_obj_type_is_memory(place->type))
            place = place->parent;
        int32_t node = node_of(r, place), index = tx_draft_numa(r->draft, (int32_t)(n->os_index & INT32_MAX));
        if (index < 0)
            return;
        tx_topo_numa *numa = &r->draft->t->numa[index];
        uint64_t memory = n->attr->numanode.local_memory;
        numa->node = node < 0 ? 0 : node;
        numa->memory = memory > INT64_MAX ? 0 : (int64_t)memory;
        numa->cpus = set_text(r->draft, n->cpuset);
        if (is_gpu_memory(n))
            numa->device = tx_draft_device_at(r->draft, tx_draft_find_bus(r->draft, info(n, "PCIBusID")), 0);
    }
}

/* The NUMA node with the fewest CPUs that has this one; -1 none. */
static int32_t nearest_numa(const reader *r, unsigned cpu)
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

static void read_cpus(reader *r)
{
    for (hwloc_obj_t pu = NULL; (pu = hwloc_get_next_obj_by_type(r->topology, HWLOC_OBJ_PU, pu));) {
        hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(r->topology, HWLOC_OBJ_CORE, pu);
        hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(r->topology, HWLOC_OBJ_PACKAGE, pu);
        int32_t index = tx_draft_cpu(r->draft, (int32_t)(pu->os_index & INT32_MAX));
        if (index < 0)
            return;
        tx_topo_cpu *cpu = &r->draft->t->cpus[index];
        cpu->core = (int32_t)(core ? core->logical_index : pu->logical_index);
        cpu->package = package ? (int32_t)package->logical_index : 0;
        cpu->numa = nearest_numa(r, pu->os_index);
    }
}

/* ---- Direct links ------------------------------------------------------------------------------------- */

/* MB/s of one NVLink as hwloc counts it, by GPU: generation 1 (Pascal), 2 (Volta, Turing), 3 and 4. */
static uint64_t nvlink_rate(const tx_topo_device *gpu)
{
    if ((gpu->device_id >= 0x15f0 && gpu->device_id <= 0x15ff) || strstr(gpu->name, "P100"))
        return 20000;
    if ((gpu->device_id >= 0x1d80 && gpu->device_id <= 0x21ff) || strstr(gpu->name, "V100"))
        return 25000;
    return 50000;
}

static int32_t device_of(const reader *r, hwloc_obj_t obj)
{
    if (!obj || !obj->userdata)
        return -1;
    if (obj->type == HWLOC_OBJ_OS_DEVICE)
        return index_of(obj);
    return obj->type == HWLOC_OBJ_PCI_DEVICE ? tx_draft_device_at(r->draft, index_of(obj), 0) : -1;
}

static void add_link(reader *r, int32_t a, int32_t b, tx_topo_link_kind kind, uint64_t value)
{
    tx_draft_link link = {
        .a = a, .b = b, .kind = kind, .source = TX_TOPO_FROM_DISTANCES, .confidence = TX_TOPO_STATED, .note = -1};
    if (kind == TX_TOPO_NVLINK) {
        uint64_t one = nvlink_rate(&r->draft->t->devices[a]), links = value / one;
        link.links = links < 1000 ? (int32_t)links : 0;
        link.rate = (double)link.links * (one == 50000 ? 25 : (double)one / 1000); /* of these hwloc counts both ways */
        link.confidence = TX_TOPO_DERIVED;
        if (value % one != 0 || links == 0) {
            link.confidence = TX_TOPO_GUESSED;
            link.note = tx_draft_note(r->draft, true,
                                      "The number of NVLinks is a guess: the rate in the file is no multiple of one "
                                      "link's rate of this GPU");
        }
    } else {
        const char *name = kind == TX_TOPO_XGMI ? "XGMI links" : "Xe Link lanes";
        link.note = tx_draft_note(r->draft, false,
                                  "hwloc does not tell how many %s there are: %s stands without a "
                                  "number",
                                  name, tx_topo_link_name(kind));
    }
    tx_draft_link_add(r->draft, &link);
}

/* Ports of NVSwitches become links between GPUs. The second transformation is for that case alone: it zeroes direct
 * links. */
static void merge_switches(reader *r, struct hwloc_distances_s *distances)
{
    if (hwloc_distances_transform(r->topology, distances, HWLOC_DISTANCES_TRANSFORM_MERGE_SWITCH_PORTS, NULL, 0) == 0)
        hwloc_distances_transform(r->topology, distances, HWLOC_DISTANCES_TRANSFORM_TRANSITIVE_CLOSURE, NULL, 0);
}

static void read_links(reader *r, const char *name, tx_topo_link_kind kind)
{
    struct hwloc_distances_s *d = NULL;
    unsigned count = 1;
    if (hwloc_distances_get_by_name(r->topology, name, &count, &d, 0) || count == 0 || !d)
        return;
    if (kind == TX_TOPO_NVLINK)
        merge_switches(r, d);
    for (unsigned i = 0; i < d->nbobjs; i++)
        for (unsigned k = i + 1; k < d->nbobjs; k++) {
            int32_t a = device_of(r, d->objs[i]), b = device_of(r, d->objs[k]);
            uint64_t value = d->values[(size_t)i * d->nbobjs + k], back = d->values[(size_t)k * d->nbobjs + i];
            if (a >= 0 && b >= 0 && (value > 0 || back > 0))
                add_link(r, a, b, kind, value > back ? value : back);
        }
    hwloc_distances_release(r->topology, d);
}

/* ---- Loading and writing --------------------------------------------------------------------------------- */

/* Live where `xml` is NULL. */
static tx_status load(hwloc_topology_t *topology, const char *xml, size_t size)
{
    char version[32];
    tx_topo_hwloc_version(version);
    if (size >= INT32_MAX)
        return tx_fail(TX_FORMAT, "too large for hwloc");
    bool hidden = tx_topo_plugins_show();
    int failed = hwloc_topology_init(topology);
    tx_topo_plugins_hide(hidden);
    if (failed)
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

static void read_all(reader *r)
{
    node_of(r, hwloc_get_root_obj(r->topology));
    read_devices(r);
    read_numa(r);
    read_cpus(r);
    read_links(r, "NVLinkBandwidth", TX_TOPO_NVLINK);
    read_links(r, "XGMIBandwidth", TX_TOPO_XGMI);
    read_links(r, "XeLinkBandwidth", TX_TOPO_XELINK);
    r->draft->t->host = tx_draft_text(r->draft, info(hwloc_get_root_obj(r->topology), "HostName"));
}

tx_status tx_topo_hwloc_read(const char *xml, size_t size, tx_draft *draft, bool *local)
{
    reader r = {.draft = draft};
    tx_status status = load(&r.topology, xml, size);
    if (status)
        return status;
    read_all(&r);
    *local = hwloc_topology_is_thissystem(r.topology);
    hwloc_topology_destroy(r.topology);
    return draft->status;
}

/* The PCI object of each GPU of `topology`, NULL where there is none; partitions of one function have one object. */
static void find_objects(hwloc_topology_t loaded, const tx_topology *topology, hwloc_obj_t *objs)
{
    for (int32_t i = 0; i < topology->gpus; i++)
        objs[i] = topology->devices[i].partition == 0
                      ? hwloc_get_pcidev_by_busidstring(loaded, topology->devices[i].bus)
                      : NULL;
}

/* What hwloc's plugins would have written of links of one kind. */
static void write_links(hwloc_topology_t loaded, const tx_topology *t, const char *name, tx_topo_link_kind kind,
                        hwloc_obj_t *objs, hwloc_uint64_t *values)
{
    unsigned count = 0;
    bool any = false;
    int32_t *gpus = calloc((size_t)t->gpus + 1, sizeof *gpus);
    for (int32_t i = 0; gpus && i < t->gpus; i++)
        if (objs[i]) {
            objs[count] = objs[i];
            gpus[count++] = i;
        }
    for (unsigned i = 0; gpus && i < count; i++)
        for (unsigned k = 0; k < count; k++) {
            const tx_topo_pair *pair = tx_topo_pair_of(t, gpus[i], gpus[k]);
            bool linked = pair->link == kind;
            uint64_t one = kind == TX_TOPO_NVLINK ? nvlink_rate(&t->devices[gpus[i]]) : 100000;
            uint64_t links = kind == TX_TOPO_NVLINK && pair->links > 0 ? (uint64_t)pair->links : 1;
            values[(size_t)i * count + k] = linked ? one * links : i == k ? 1000000 : 0;
            any = any || linked;
        }
    free(gpus);
    if (!any)
        return;
    unsigned long how = HWLOC_DISTANCES_KIND_FROM_USER | HWLOC_DISTANCES_KIND_MEANS_BANDWIDTH;
    hwloc_distances_add_handle_t handle = hwloc_distances_add_create(loaded, name, how, 0);
    if (handle && hwloc_distances_add_values(loaded, handle, count, objs, values, 0) == 0)
        hwloc_distances_add_commit(loaded, handle, 0);
}

static tx_status add_links(hwloc_topology_t loaded, const tx_topology *t)
{
    static const struct {
        const char *name;
        tx_topo_link_kind kind;
    } all[] = {
        {"NVLinkBandwidth", TX_TOPO_NVLINK}, {"XGMIBandwidth", TX_TOPO_XGMI}, {"XeLinkBandwidth", TX_TOPO_XELINK}};
    size_t n = (size_t)t->gpus;
    hwloc_obj_t *objs = calloc(n + 1, sizeof *objs);
    hwloc_uint64_t *values = calloc(n * n + 1, sizeof *values);
    for (size_t i = 0; objs && values && i < sizeof all / sizeof all[0]; i++) {
        find_objects(loaded, t, objs);
        write_links(loaded, t, all[i].name, all[i].kind, objs, values);
    }
    bool room = objs && values;
    free(objs);
    free(values);
    return room ? TX_OK : tx_fail(TX_MEMORY, "topology: out of memory");
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
        status = add_links(loaded, topology);
    if (!status && hwloc_topology_export_xmlbuffer(loaded, &buffer, &length, 0))
        status = tx_fail(TX_INTERNAL, "hwloc cannot write the topology as XML");
    if (!status && !(*text = strdup(buffer)))
        status = tx_fail(TX_MEMORY, "topology: out of memory");
    if (buffer)
        hwloc_free_xmlbuffer(loaded, buffer);
    hwloc_topology_destroy(loaded);
    return status;
}
