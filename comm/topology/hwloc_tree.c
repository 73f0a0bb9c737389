/* SPDX-License-Identifier: Apache-2.0
 * Converts nodes of hwloc's tree into nodes of the draft. */
#include "comm/topology/hwloc_tree.h"

#include <stdlib.h>
#include <string.h>

const char *tx_hwloc_set(tx_draft *draft, hwloc_const_bitmap_t set)
{
    char *text = NULL;
    if (!set || hwloc_bitmap_weight(set) < 0 || hwloc_bitmap_list_asprintf(&text, set) < 0)
        return "";
    const char *copy = tx_draft_text(draft, text);
    free(text);
    return copy;
}

bool tx_hwloc_is_gpu_memory(hwloc_obj_t numa)
{
    return numa->subtype && strcmp(numa->subtype, "GPUMemory") == 0;
}

/* Returns an object's NUMA nodes, without those that are the memory of GPUs. */
static const char *nodes_text(const tx_hwloc_reader *r, hwloc_const_nodeset_t set)
{
    hwloc_bitmap_t cpus_only = hwloc_bitmap_dup(set); /* returns NULL for NULL */
    for (hwloc_obj_t n = NULL; (n = hwloc_get_next_obj_by_type(r->topology, HWLOC_OBJ_NUMANODE, n)) && cpus_only;)
        if (tx_hwloc_is_gpu_memory(n))
            hwloc_bitmap_clr(cpus_only, n->os_index);
    const char *text = tx_hwloc_set(r->draft, cpus_only);
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

/* Returns the nearest ancestor that becomes a node. */
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
        node.cpus = tx_hwloc_set(r->draft, obj->cpuset);
        node.nodes = nodes_text(r, obj->nodeset);
    }
    r->draft->t->nodes[index] = node;
    tx_hwloc_set_index(obj, index);
    return index;
}
