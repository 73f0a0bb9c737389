/* SPDX-License-Identifier: Apache-2.0
 * Names of the topology, bus ids, cells of the matrix, and rates of PCIe links. */
#include "comm/topology/draft.h"

#include "api/base/needs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ONLY(name, word) word,
#define FIRST(name, first, second) first,
#define SECOND(name, first, second) second,
const char *const tx_topo_class_names[] = {TX_TOPO_CLASS_MAP(FIRST)};
const char *const tx_topo_class_legends[] = {TX_TOPO_CLASS_MAP(SECOND)};
const char *const tx_topo_link_names[] = {TX_TOPO_LINK_MAP(FIRST)};
const char *const tx_topo_link_legends[] = {TX_TOPO_LINK_MAP(SECOND)};
const char *const tx_topo_p2p_names[] = {TX_TOPO_P2P_MAP(FIRST)};
const char *const tx_topo_p2p_legends[] = {TX_TOPO_P2P_MAP(SECOND)};
const char *const tx_topo_source_names[] = {TX_TOPO_SOURCE_MAP(ONLY)};
const char *const tx_topo_node_names[] = {TX_TOPO_NODE_MAP(ONLY)};
const char *const tx_topo_device_names[] = {TX_TOPO_DEVICE_MAP(ONLY)};
const char *const tx_topo_origin_names[] = {TX_TOPO_ORIGIN_MAP(ONLY)};

/* ---- Bus ids --------------------------------------------------------------------------------- */

bool tx_topo_bus_parse(const char *text, uint64_t *key)
{
    unsigned domain = 0, bus = 0, device = 0, function = 0;
    int used = 0;
    size_t length = strlen(text);
    if (length > 16 || strspn(text, "0123456789abcdefABCDEF:.") != length)
        return false;
    if (sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &used) != 4 || text[used]) {
        domain = 0;
        used = 0;
        if (sscanf(text, "%2x:%2x.%1x%n", &bus, &device, &function, &used) != 3 || text[used])
            return false;
    }
    if (device > 0x1F || function > 7)
        return false;
    *key = (uint64_t)domain << 16 | bus << 8 | device << 3 | function;
    return true;
}

const char *tx_topo_vendor(int32_t vendor_id)
{
    static const struct {
        int32_t id;
        const char *name;
    } known[] = {{0x1002, "AMD"},      {0x1022, "AMD"},           {0x10de, "NVIDIA"},    {0x8086, "Intel"},
                 {0x15b3, "Mellanox"}, {0x14e4, "Broadcom"},      {0x17db, "HPE"},       {0x1d0f, "Amazon"},
                 {0x1077, "QLogic"},   {0x1ed5, "Moore Threads"}, {0x13b5, "ARM"},       {0x1e52, "Tenstorrent"},
                 {0x1da3, "Habana"},   {0x10ee, "Xilinx"},        {0x1172, "Altera"},    {0x1bee, "IXI"},
                 {0x10b5, "PLX"},      {0x1000, "Broadcom"},      {0x11f8, "Microchip"}, {0x1b4b, "Marvell"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].id == vendor_id)
            return known[i].name;
    return "";
}

/* ---- Cells ----------------------------------------------------------------------------------- */

const tx_topo_pair *tx_topo_pair_of(const tx_topology *t, int32_t a, int32_t b)
{
    TX_NEEDS(t && a >= 0 && a < t->device_count && b >= 0 && b < t->device_count, NULL);
    return &t->pairs[(int64_t)a * t->device_count + b];
}

const char *tx_topo_cell(const tx_topology *topology, int32_t a, int32_t b, bool links, char text[16])
{
    TX_NEEDS(topology && text, NULL);
    const tx_topo_pair *pair = tx_topo_pair_of(topology, a, b);
    if (!pair)
        return NULL;
    const bool link = links && pair->link != TX_TOPO_NO_LINK;
    const char *name = link ? tx_topo_link_names[pair->link] : tx_topo_class_names[pair->class_];
    if (link && pair->links > 0)
        snprintf(text, 16, "%s%" PRId32, name, pair->links);
    else
        snprintf(text, 16, "%s", name);
    return text;
}

/* ---- Searches -------------------------------------------------------------------------------- */

bool tx_topo_has_class(const tx_topology *topology, tx_topo_class value)
{
    TX_NEEDS(topology, false);
    for (int64_t i = 0; i < (int64_t)topology->device_count * topology->device_count; i++)
        if (topology->pairs[i].class_ == value)
            return true;
    return false;
}

bool tx_topo_has_link(const tx_topology *topology, tx_topo_link_kind value)
{
    TX_NEEDS(topology, false);
    for (int64_t i = 0; i < (int64_t)topology->device_count * topology->device_count; i++)
        if (topology->pairs[i].link == value)
            return true;
    return false;
}

/* ---- Rates ----------------------------------------------------------------------------------- */

double tx_topo_pcie_rate(const tx_topo_pcie *link, bool max)
{
    TX_NEEDS(link, 0);
    double speed = max ? link->speed_max : link->speed;
    int32_t width = max ? link->width_max : link->width;
    if (speed <= 0 || width <= 0)
        return max ? 0 : link->rate;
    /* 8b/10b up to 5 GT/s, 128b/130b up to 32 GT/s, FLITs with 242 of 256 bytes of payload from 64 GT/s on. */
    double share = speed < 8 ? 0.8 : speed < 64 ? 128.0 / 130 : 242.0 / 256;
    return speed * share * width / 8;
}
