/* SPDX-License-Identifier: Apache-2.0
 * Finds GPUs and NICs among hwloc's PCI functions. The number of partitions of a function is the number of devices
 * that one of hwloc's backends lists. */
#include "comm/topology/hwloc_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LISTED_MAX 256 /* limit of OS devices that are read for a function */

/* hwloc backends that list compute devices, in order of preference for names. */
static const char *const families[] = {"nvml", "rsmi", "ze", "cuda", "opencl"};
enum { FAMILIES = sizeof families / sizeof families[0], OPENCL = FAMILIES - 1 };

/* Returns the family of an OS device by its name: "nvml3", "ze0", "opencl0d1"; -1 if there is none. */
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

/* Level Zero lists a device with tiles in addition to its tiles ("ze0", "ze0.0", "ze0.1"). Only the tiles are used. */
static bool has_tiles(hwloc_obj_t pci, hwloc_obj_t device)
{
    size_t length = strlen(device->name);
    for (hwloc_obj_t o = NULL; (o = next_os_device(pci, o));)
        if (o->name && strncmp(o->name, device->name, length) == 0 && o->name[length] == '.')
            return true;
    return false;
}

/* A device of a function, as listed by a backend. */
typedef struct listed {
    hwloc_obj_t obj;
    int family;
    unsigned platform, device; /* OpenCL indices */
    int32_t place;             /* partition: index among the devices of its family and platform under the function */
} listed;

/* Lists the devices of a function from all backends, best names first. Returns their number. */
static int32_t list_devices(hwloc_obj_t pci, listed *list)
{
    int32_t count = 0;
    for (int f = 0; f < FAMILIES; f++)
        for (hwloc_obj_t o = NULL; (o = next_os_device(pci, o)) && count < LISTED_MAX;) {
            listed one = {.obj = o, .family = f};
            if (family_of(o) != f || has_tiles(pci, o) ||
                (f == OPENCL && sscanf(o->name, "opencl%3ud%3u", &one.platform, &one.device) != 2))
                continue;
            for (int32_t i = 0; i < count; i++)
                one.place += list[i].family == f && list[i].platform == one.platform;
            list[count++] = one;
        }
    return count;
}

/* Returns true if a function is a display or compute device. `sure` is set if it is a compute device. */
static bool is_gpu(hwloc_obj_t pci, bool computes, bool *sure)
{
    const struct hwloc_pcidev_attr_s *p = &pci->attr->pcidev;
    bool render = false;
    for (hwloc_obj_t o = NULL; (o = next_os_device(pci, o));)
        render = render || (o->name && strncmp(o->name, "renderD", 7) == 0);
    bool maker = p->vendor_id == 0x1002 || p->vendor_id == 0x10de || p->vendor_id == 0x8086;
    bool second = p->vendor_id == 0x8086 && p->func > 0; /* Intel's display controllers appear as two functions */
    *sure = computes || p->class_id == 0x0302 || (p->class_id == 0x0380 && !second) ||
            (p->class_id == 0x1200 && p->vendor_id == 0x1002) || (p->class_id == 0x0300 && p->vendor_id == 0x10de) ||
            (p->class_id == 0x0300 && maker && render);
    return computes || p->class_id >> 8 == 0x03 || p->class_id == 0x1200;
}

/* Returns the value of `key`, which is in kilobytes, in bytes. */
static int64_t kilobytes(hwloc_obj_t obj, const char *key)
{
    int64_t value = strtoll(tx_hwloc_info(obj, key), NULL, 10);
    return value > 0 && value < INT64_MAX / 1024 ? value * 1024 : 0;
}

/* Adds a backend's information to a device of the draft. */
static void describe_device(tx_draft *draft, tx_topo_device *d, const listed *l)
{
    static const char *const sizes[FAMILIES] = {"", "RSMIVRAMSize", "LevelZeroHBMSize", "CUDAGlobalMemorySize",
                                                "OpenCLGlobalMemorySize"};
    if (!*d->system)
        d->system = tx_draft_text(draft, l->obj->name);
    if (!*d->name)
        d->name = tx_draft_text(draft, tx_hwloc_info(l->obj, "GPUModel"));
    if (d->memory == 0)
        d->memory = kilobytes(l->obj, sizes[l->family]);
    if (l->family != OPENCL)
        return;
    d->opencl = tx_draft_format(draft, "%s%s%u:%u", d->opencl, *d->opencl ? "," : "", l->platform, l->device);
    if (d->platform < 0) {
        d->platform = (int32_t)l->platform;
        d->device = (int32_t)l->device;
    }
}

/* Adds as many devices as a backend lists, at least one. Returns false if the function is not a GPU. */
static bool read_gpu(tx_hwloc_reader *r, hwloc_obj_t pci)
{
    tx_draft *draft = r->draft;
    listed list[LISTED_MAX];
    bool sure = false;
    const int32_t count = list_devices(pci, list), first = draft->t->device_count;
    int32_t partitions = 1;
    for (int32_t i = 0; i < count; i++)
        partitions = list[i].place >= partitions ? list[i].place + 1 : partitions;
    if (!is_gpu(pci, count > 0, &sure))
        return false;
    const int32_t node = tx_hwloc_node(r, pci);
    for (int32_t k = 0; k < partitions; k++) {
        int32_t index = tx_draft_device(draft, TX_TOPO_GPU, node);
        if (index < 0)
            return true;
        draft->t->devices[index].partition = k;
        draft->t->devices[index].source = sure ? TX_TOPO_FROM_HWLOC : TX_DRAFT_UNSURE;
        draft->t->devices[index].place = TX_TOPO_FROM_HWLOC;
    }
    for (int32_t i = 0; i < count; i++) {
        tx_hwloc_set_index(list[i].obj, first + list[i].place);
        describe_device(draft, &draft->t->devices[first + list[i].place], &list[i]);
    }
    const char *model = ""; /* the name is stored with the device, not with its tiles */
    for (hwloc_obj_t o = NULL; !*model && (o = next_os_device(pci, o));)
        model = tx_hwloc_info(o, "GPUModel");
    for (int32_t k = first; k < draft->t->device_count; k++)
        if (!*draft->t->devices[k].name)
            draft->t->devices[k].name = tx_draft_text(draft, *model ? model : tx_hwloc_info(pci, "PCIDevice"));
    return true;
}

static void add_nic(tx_hwloc_reader *r, hwloc_obj_t pci, const char *name)
{
    tx_draft *draft = r->draft;
    int32_t node = tx_hwloc_node(r, pci), index = tx_draft_device(draft, TX_TOPO_NIC, node), before = 0;
    if (index < 0)
        return;
    for (int32_t i = 0; i < index; i++)
        before += draft->t->devices[i].node == node && draft->t->devices[i].kind == TX_TOPO_NIC;
    tx_topo_device *d = &draft->t->devices[index];
    d->partition = before;
    d->source = d->place = TX_TOPO_FROM_HWLOC;
    d->system = tx_draft_text(draft, *name ? name : d->bus);
    d->name = tx_draft_text(draft, tx_hwloc_info(pci, "PCIDevice"));
}

/* Only RDMA devices are listed, as in nvidia-smi: one NIC per InfiniBand device. Slingshot NICs have only network
 * interfaces. */
static void read_nics(tx_hwloc_reader *r, hwloc_obj_t pci)
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

/* Returns true if a function is not on the bus of its host bridge. The bridges between them were then not exported. */
static bool bridges_missing(hwloc_obj_t pci)
{
    hwloc_obj_t parent = pci->parent;
    if (!parent || parent->type != HWLOC_OBJ_BRIDGE)
        return true;
    return parent->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST &&
           parent->attr->bridge.downstream.pci.secondary_bus != pci->attr->pcidev.bus;
}

void tx_hwloc_read_devices(tx_hwloc_reader *r)
{
    const char *missing = NULL;
    for (hwloc_obj_t pci = NULL; (pci = hwloc_get_next_pcidev(r->topology, pci)) && !r->draft->status;) {
        const int32_t before = r->draft->t->device_count;
        if (!read_gpu(r, pci))
            read_nics(r, pci);
        bool known = r->draft->t->device_count > before && r->draft->t->devices[before].source != TX_DRAFT_UNSURE;
        if (known && !missing && bridges_missing(pci))
            missing = r->draft->t->devices[before].bus;
    }
    if (missing && r->draft->t->device_count > 1)
        tx_draft_note(r->draft, true,
                      "PCI bridges are missing (at least above %s); PIX and PXB may show as PHB or NODE; create an XML "
                      "file that includes them with lstopo --filter io:all FILE.xml",
                      missing);
}
