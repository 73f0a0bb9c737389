/* SPDX-License-Identifier: Apache-2.0
 * NVLink, XGMI and Xe Link between GPUs, from hwloc's bandwidth matrices. */
#include "comm/topology/hwloc_tree.h"

#include <string.h>

static const struct {
    const char *distances; /* name of the matrix in hwloc */
    tx_topo_link_kind kind;
} link_kinds[] = {
    {"NVLinkBandwidth", TX_TOPO_NVLINK}, {"XGMIBandwidth", TX_TOPO_XGMI}, {"XeLinkBandwidth", TX_TOPO_XELINK}};
enum { LINK_KINDS = sizeof link_kinds / sizeof link_kinds[0] };

/* Returns the bandwidth of one NVLink in MB/s, as hwloc counts it: generation 1 (Pascal), 2 (Volta, Turing), 3 and
 * 4. */
static uint64_t nvlink_rate(const tx_topo_device *gpu)
{
    if ((gpu->device_id >= 0x15f0 && gpu->device_id <= 0x15ff) || strstr(gpu->name, "P100"))
        return 20000;
    if ((gpu->device_id >= 0x1d80 && gpu->device_id <= 0x21ff) || strstr(gpu->name, "V100"))
        return 25000;
    return 50000;
}

static int32_t device_of(const tx_hwloc_reader *r, hwloc_obj_t obj)
{
    if (!obj || !obj->userdata)
        return -1;
    if (obj->type == HWLOC_OBJ_OS_DEVICE)
        return tx_hwloc_index(obj);
    return obj->type == HWLOC_OBJ_PCI_DEVICE ? tx_draft_device_at(r->draft, tx_hwloc_index(obj), 0) : -1;
}

static void add_link(tx_hwloc_reader *r, int32_t a, int32_t b, tx_topo_link_kind kind, bool switched, uint64_t value)
{
    tx_topo_pair link = tx_draft_links(kind, TX_TOPO_FROM_DISTANCES);
    link.switched = switched;
    if (kind == TX_TOPO_NVLINK) {
        uint64_t one = nvlink_rate(&r->draft->t->devices[a]), links = value / one;
        link.links = links < 1000 ? (int32_t)links : 0;
        link.link_rate =
            (double)link.links *
            (one == 50000 ? 25 : (double)one / 1000); /* for generations 3 and 4 hwloc counts both directions */
        if (value % one != 0 || links == 0) {
            link.note = tx_draft_note(r->draft, true,
                                      "The number of NVLinks is a guess, because the rate in the file is not a "
                                      "multiple of the rate of one link of this GPU");
        }
    } else {
        const char *name = kind == TX_TOPO_XGMI ? "XGMI links" : "Xe Link lanes";
        link.note = tx_draft_note(r->draft, false,
                                  "hwloc does not report how many %s there are; %s has no "
                                  "number",
                                  name, tx_topo_link_names[kind]);
    }
    tx_draft_state(r->draft, a, b, TX_DRAFT_LINKS, &link);
}

/* Converts ports of NVSwitches to links between GPUs. Returns true if there are switches. The second transformation
 * must only run in that case, because it zeroes direct links. */
static bool merge_switches(tx_hwloc_reader *r, struct hwloc_distances_s *distances)
{
    if (hwloc_distances_transform(r->topology, distances, HWLOC_DISTANCES_TRANSFORM_MERGE_SWITCH_PORTS, NULL, 0))
        return false;
    return hwloc_distances_transform(r->topology, distances, HWLOC_DISTANCES_TRANSFORM_TRANSITIVE_CLOSURE, NULL, 0) ==
           0;
}

static void read_kind(tx_hwloc_reader *r, const char *name, tx_topo_link_kind kind)
{
    struct hwloc_distances_s *d = NULL;
    unsigned count = 1;
    if (hwloc_distances_get_by_name(r->topology, name, &count, &d, 0) || count == 0 || !d)
        return;
    const bool switched = kind == TX_TOPO_NVLINK && merge_switches(r, d);
    for (unsigned i = 0; i < d->nbobjs; i++)
        for (unsigned k = i + 1; k < d->nbobjs; k++) {
            int32_t a = device_of(r, d->objs[i]), b = device_of(r, d->objs[k]);
            uint64_t value = d->values[(size_t)i * d->nbobjs + k], back = d->values[(size_t)k * d->nbobjs + i];
            if (a >= 0 && b >= 0 && (value > 0 || back > 0))
                add_link(r, a, b, kind, switched, value > back ? value : back);
        }
    hwloc_distances_release(r->topology, d);
}

void tx_hwloc_read_links(tx_hwloc_reader *r)
{
    for (int i = 0; i < LINK_KINDS; i++)
        read_kind(r, link_kinds[i].distances, link_kinds[i].kind);
}
