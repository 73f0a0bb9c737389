/* SPDX-License-Identifier: Apache-2.0
 * What the way between two devices carries: the defaults of NCCL (src/graph/topo.h) and RCCL for one link of each kind,
 * and the slowest part of a way. */
#include "comm/topology/rates.h"

/* What is left of a PCIe link's rate for data: NCCL reckons with 12 of the 15.75 GB/s of 16 lanes of generation 3. */
#define PCIE_SHARE (12 / 15.754)
/* The same of direct links whose generation is not known: NVLink 2 carries 20 of 25 GB/s. */
#define LINK_SHARE 0.8

typedef struct default_rate {
    int32_t vendor, first, last; /* PCI device ids */
    double rate;
} default_rate;

/* GB/s of one link. */
static const default_rate link_rates[] = {
    {0x10de, 0x15f0, 0x15ff, 18},   /* Pascal, NVLink 1 */
    {0x10de, 0x1d80, 0x20ff, 20},   /* Volta, Turing, Ampere's A100 */
    {0x10de, 0x2200, 0x22ff, 12},   /* Ampere's GA102 */
    {0x10de, 0x2300, 0x23ff, 20.6}, /* Hopper */
    {0x10de, 0x2900, 0xffff, 40.1}, /* Blackwell */
    {0x1002, 0x66a0, 0x66af, 24},   /* MI50, MI60 */
    {0x1002, 0x7380, 0x738f, 24},   /* MI100 */
    {0x1002, 0x7400, 0x740f, 36},   /* MI200 */
    {0x1002, 0x74a0, 0x75ff, 48},   /* MI300, MI350 */
};

/* GB/s between NUMA nodes, by the PCI ids of the CPUs' root ports. The first row that matches counts. */
static const default_rate numa_rates[] = {
    {0x8086, 0x352a, 0x352f, 22}, /* Sapphire Rapids */
    {0x8086, 0x2030, 0x2033, 10}, /* Skylake, Cascade Lake */
    {0x8086, 0x347a, 0x347d, 10}, /* Ice Lake */
    {0x8086, 0x0000, 0xffff, 6},  /* QPI */
    {0x1022, 0x0000, 0xffff, 16}, /* EPYC */
    {0x1014, 0x0000, 0xffff, 32}, /* POWER9 */
};

static double look_up(const default_rate *rates, size_t count, int32_t vendor, int32_t device)
{
    for (size_t i = 0; i < count; i++)
        if (rates[i].vendor == vendor && device >= rates[i].first && device <= rates[i].last)
            return rates[i].rate;
    return 0;
}

double tx_topo_pcie_expected(const tx_topo_pcie *link)
{
    tx_topo_pcie awake = *link;
    if (awake.speed_max > awake.speed)
        awake.speed = awake.speed_max;
    return tx_topo_pcie_rate(&awake, false) * PCIE_SHARE;
}

/* ---- One way -------------------------------------------------------------------------------------- */

static tx_topo_rate links_rate(const tx_topology *t, const tx_topo_pair *pair, int32_t a)
{
    const tx_topo_device *d = &t->devices[a];
    double one = look_up(link_rates, sizeof link_rates / sizeof link_rates[0], d->vendor_id, d->device_id);
    /* Of an unknown number there is at least one. */
    double rate = pair->link != TX_TOPO_XELINK ? one * (pair->links > 0 ? pair->links : 1) : 0;
    if (!(rate > 0))
        rate = pair->link_rate * LINK_SHARE;
    return (tx_topo_rate){rate > 0 ? TX_TOPO_LIMIT_LINKS : TX_TOPO_LIMIT_UNKNOWN, rate, -1};
}

/* Adds the PCIe links from `node` up to the one below `above`; where `above` is -1, all up to the host. Returns whether
 * one of them has a known rate. */
static bool add_links(const tx_topology *t, int32_t node, int32_t above, tx_topo_rate *slowest)
{
    bool known = false;
    for (; node != above && t->nodes[node].kind > TX_TOPO_HOST_BRIDGE; node = t->nodes[node].parent) {
        double rate = tx_topo_pcie_expected(&t->nodes[node].link);
        if (!(rate > 0))
            continue;
        known = true;
        if (slowest->limit == TX_TOPO_LIMIT_UNKNOWN || rate < slowest->rate)
            *slowest = (tx_topo_rate){TX_TOPO_LIMIT_PCIE, rate, node};
    }
    return known;
}

/* By the port of the CPU that a function hangs from; 0 unknown. */
static double numa_rate(const tx_topology *t, int32_t node)
{
    const tx_topo_node *port = NULL;
    for (; t->nodes[node].kind > TX_TOPO_HOST_BRIDGE; node = t->nodes[node].parent)
        if (t->nodes[node].kind == TX_TOPO_BRIDGE)
            port = &t->nodes[node];
    return port ? look_up(numa_rates, sizeof numa_rates / sizeof numa_rates[0], port->vendor_id, port->device_id) : 0;
}

/* Two PCI functions. */
static tx_topo_rate pci_rate(const tx_topology *t, const tx_topo_pair *pair, int32_t a, int32_t b)
{
    const tx_topo_rate unknown = {.node = -1};
    const int32_t node_a = t->devices[a].node, node_b = t->devices[b].node;
    tx_topo_rate slowest = unknown;
    if (pair->ancestor < 0 || pair->class_ == TX_TOPO_UNKNOWN || !add_links(t, node_a, pair->ancestor, &slowest) ||
        !add_links(t, node_b, pair->ancestor, &slowest))
        return unknown;
    if (pair->class_ != TX_TOPO_SYS)
        return slowest;
    const double between = numa_rate(t, node_a);
    if (!(between > 0))
        return unknown;
    return between < slowest.rate ? (tx_topo_rate){TX_TOPO_LIMIT_NUMA, between, -1} : slowest;
}

tx_topo_rate tx_topo_pair_rate(const tx_topology *t, int32_t a, int32_t b)
{
    const tx_topo_pair *pair = tx_topo_pair_of(t, a, b);
    tx_topo_rate slowest = {.node = -1};
    if (a == b || pair->class_ == TX_TOPO_LOC)
        return (tx_topo_rate){TX_TOPO_LIMIT_NONE, 0, -1};
    if (pair->link != TX_TOPO_NO_LINK && pair->link != TX_TOPO_LINK_UNKNOWN)
        return links_rate(t, pair, a);
    if (pair->class_ != TX_TOPO_HOST)
        return pci_rate(t, pair, a, b);
    /* A CPU device is the host: the way is that of the other one up to it. */
    int32_t other = t->devices[a].kind == TX_TOPO_CPU ? b : a;
    if (t->devices[other].kind == TX_TOPO_CPU)
        return (tx_topo_rate){TX_TOPO_LIMIT_NONE, 0, -1};
    add_links(t, t->devices[other].node, -1, &slowest);
    return slowest;
}

/* ---- A ring ------------------------------------------------------------------------------------------ */

tx_topo_rate tx_topo_ring_rate(const tx_topology *t, const int32_t *devices, int32_t count, int32_t slowest[2])
{
    tx_topo_rate ring = {TX_TOPO_LIMIT_NONE, 0, -1};
    slowest[0] = devices[0];
    slowest[1] = devices[1];
    for (int32_t i = 0; i < count; i++) {
        int32_t a = devices[i], b = devices[(i + 1) % count];
        tx_topo_rate way = tx_topo_pair_rate(t, a, b);
        if (way.limit == TX_TOPO_LIMIT_NONE ||
            (way.limit != TX_TOPO_LIMIT_UNKNOWN && ring.limit != TX_TOPO_LIMIT_NONE && way.rate >= ring.rate))
            continue;
        ring = way;
        slowest[0] = a;
        slowest[1] = b;
        if (way.limit == TX_TOPO_LIMIT_UNKNOWN)
            break;
    }
    return ring;
}

double tx_topo_allreduce_seconds(double bytes, int32_t ranks, double rate)
{
    return 2.0 * (ranks - 1) / ranks * bytes / (rate * 1e9);
}
