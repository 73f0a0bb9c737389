/* SPDX-License-Identifier: Apache-2.0
 * Matches OpenCL devices with PCI functions by the most reliable information of their drivers. A device without such
 * information is attached to the root. Platforms overlap: OpenCL devices of the same function on different platforms
 * are the same device. */
#include "comm/topology/sources.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct match {
    int32_t node; /* -1 if there is none */
    bool guessed;
    int32_t note;
} match;

static bool same_address(const tx_topo_cl_device *a, const tx_topo_cl_device *b)
{
    return a->platform == b->platform && b->has_bus && !b->has_domain && a->bus == b->bus && a->slot == b->slot &&
           a->function == b->function;
}

/* Finds the functions with a GPU at this address, in any domain if the driver does not report one. Writes function
 * number `wanted` to `node` and returns the number of functions. */
static int32_t functions_at(const tx_draft *draft, const tx_topo_cl_device *d, int32_t wanted, int32_t *node)
{
    const uint64_t address = d->bus << 8 | d->slot << 3 | d->function;
    int32_t count = 0;
    for (int32_t i = 0; i < draft->t->device_count; i++) {
        const tx_topo_device *gpu = &draft->t->devices[i];
        uint64_t key = 0;
        if (gpu->kind == TX_TOPO_GPU && gpu->partition == 0 && gpu->node > 0 && tx_topo_bus_parse(gpu->bus, &key) &&
            (key & 0xFFFF) == address && (!d->has_domain || key >> 16 == d->domain) && count++ == wanted)
            *node = gpu->node;
    }
    return count;
}

/* If several functions match, the platform's devices with this address are assigned to them in order. */
static match by_bus(tx_draft *draft, const tx_topo_cl_device *all, int32_t count, const tx_topo_cl_device *d)
{
    match m = {.node = -1, .note = -1};
    int32_t turn = 0, rivals = 0, candidates = functions_at(draft, d, 0, &m.node);
    if (candidates < 2)
        return m;
    for (int32_t i = 0; i < count; i++) {
        rivals += same_address(d, &all[i]);
        turn += &all[i] < d && same_address(d, &all[i]);
    }
    functions_at(draft, d, rivals > candidates ? turn * candidates / rivals : turn, &m.node);
    m.guessed = true;
    m.note = tx_draft_note(draft, true,
                           "OpenCL %d:%d reports its bus but not its PCI domain, and %d GPUs fit; they are matched in "
                           "the order of the platform's list",
                           d->platform, d->device, candidates);
    return m;
}

/* Returns the only GPU for which `fits` is true; -1 if there is none or several. */
static int32_t only_one(const tx_draft *draft, const tx_topo_cl_device *d,
                        bool (*fits)(const tx_topo_device *, const tx_topo_cl_device *))
{
    int32_t found = -1;
    for (int32_t i = 0; i < draft->t->device_count; i++) {
        const tx_topo_device *gpu = &draft->t->devices[i];
        if (gpu->kind != TX_TOPO_GPU || gpu->partition > 0 || !fits(gpu, d))
            continue;
        if (found >= 0)
            return -1;
        found = gpu->node;
    }
    return found;
}

static bool same_ids(const tx_topo_device *gpu, const tx_topo_cl_device *d)
{
    return d->device_id > 0 && gpu->device_id == d->device_id && (d->vendor_id == 0 || gpu->vendor_id == d->vendor_id);
}

static bool same_vendor(const tx_topo_device *gpu, const tx_topo_cl_device *d)
{
    return d->vendor_id > 0 && gpu->vendor_id == d->vendor_id;
}

static bool same_model(const tx_topo_device *gpu, const tx_topo_cl_device *d)
{
    return same_vendor(gpu, d) && *gpu->name && strcasecmp(gpu->name, d->name) == 0;
}

static match find_function(tx_draft *draft, const tx_topo_cl_device *all, int32_t count, const tx_topo_cl_device *d)
{
    match m = {.node = -1, .note = -1};
    if (d->has_bus)
        m = by_bus(draft, all, count, d);
    if (m.node < 0)
        m.node = only_one(draft, d, same_ids);
    if (m.node >= 0)
        return m;
    m.node = only_one(draft, d, same_model);
    if (m.node < 0)
        m.node = only_one(draft, d, same_vendor);
    if (m.node >= 0) {
        m.guessed = true;
        m.note = tx_draft_note(draft, true,
                               "OpenCL %d:%d (%s) reports no PCI address; it is matched to the only GPU of its vendor "
                               "or model",
                               d->platform, d->device, d->name);
    }
    return m;
}

/* Returns the device of a function that corresponds to this OpenCL device: the next partition without an OpenCL
 * device of its platform. Returns -1 if all `*before` partitions have one. */
static int32_t free_partition(const tx_draft *draft, int32_t node, int32_t platform, int32_t *before)
{
    char own[16];
    snprintf(own, sizeof own, "%" PRId32 ":", platform);
    for (*before = 0;; ++*before) {
        int32_t index = tx_draft_device_at(draft, node, *before);
        const char *named = index < 0 ? NULL : draft->t->devices[index].opencl;
        while (named && strncmp(named, own, strlen(own)) != 0)
            named = strchr(named, ',') ? strchr(named, ',') + 1 : NULL;
        if (index < 0 || !named)
            return index;
    }
}

/* Adds a device of a function, or one without a function. */
static int32_t add_device(tx_draft *draft, const tx_topo_cl_device *d, int32_t node, int32_t partition)
{
    int32_t index = tx_draft_device(draft, d->gpu ? TX_TOPO_GPU : TX_TOPO_CPU, node >= 0 ? node : 0);
    if (index < 0)
        return -1;
    tx_topo_device *device = &draft->t->devices[index];
    device->partition = partition;
    if (device->vendor_id == 0)
        device->vendor_id = d->vendor_id;
    /* PoCL reports Intel for every CPU. */
    for (int32_t i = 0; i < draft->t->node_count && d->cpu; i++)
        if (draft->t->nodes[i].kind == TX_TOPO_PACKAGE && draft->t->nodes[i].vendor_id > 0)
            device->vendor_id = draft->t->nodes[i].vendor_id;
    if (d->gpu && node < 0) {
        device->guessed = true;
        device->note =
            tx_draft_note(draft, true,
                          "The PCI address of OpenCL %d:%d (%s) is unknown, because its driver does not report it; SYS "
                          "is a guess",
                          d->platform, d->device, d->name);
    }
    return index;
}

static void join(tx_draft *draft, const tx_topo_cl_device *all, int32_t count, const tx_topo_cl_device *d)
{
    match m = {.node = -1, .note = -1};
    if (d->gpu)
        m = find_function(draft, all, count, d);
    int32_t partition = 0, index = m.node >= 0 ? free_partition(draft, m.node, d->platform, &partition) : -1;
    if (index < 0 && (index = add_device(draft, d, m.node, partition)) < 0)
        return;
    tx_topo_device *device = &draft->t->devices[index];
    device->opencl = tx_draft_format(draft, "%s%s%" PRId32 ":%" PRId32, device->opencl, *device->opencl ? "," : "",
                                     d->platform, d->device);
    if (device->source == TX_DRAFT_UNSURE)
        device->source = TX_TOPO_FROM_OPENCL;
    if (device->place == TX_TOPO_FROM_NOWHERE)
        device->place = TX_TOPO_FROM_OPENCL;
    if (device->platform < 0) {
        device->platform = d->platform;
        device->device = d->device;
        device->engine = d->engine < 0 ? "" : tx_draft_format(draft, "opencl:%" PRId32, d->engine);
    }
    if (!*device->vendor)
        device->vendor =
            *tx_topo_vendor(device->vendor_id) ? tx_topo_vendor(device->vendor_id) : tx_draft_text(draft, d->vendor);
    if (*d->name)
        device->name = tx_draft_text(draft, d->name);
    if (device->memory == 0)
        device->memory = d->memory;
    if (m.guessed) {
        device->guessed = true;
        device->note = m.note;
    }
}

void tx_topo_cl_join(tx_draft *draft, const tx_topo_cl_device *devices, int32_t count)
{
    for (int32_t i = 0; i < count && !draft->status; i++)
        if (devices[i].gpu || devices[i].cpu)
            join(draft, devices, count, &devices[i]);
}
