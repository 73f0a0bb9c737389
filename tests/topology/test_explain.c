/* SPDX-License-Identifier: Apache-2.0
 * Rates to expect, and the way between two devices in words. */
#include "comm/topology/rates.h"
#include "tests/topology/helper.h"

static char *explained(const tx_topology *t, const char *pair)
{
    char *text = NULL;
    PRINTED(text, assert_ok(tx_txtopo_explain(out, t, pair)));
    return text;
}

/* What is said of a pair has all of `wanted`, in this order. */
static void says(const tx_topology *t, const char *pair, const char *const *wanted)
{
    char *text = explained(t, pair);
    for (const char *at = text; *wanted; wanted++) {
        at = strstr(at, *wanted);
        if (!at)
            fail_msg("%s: \"%s\" is missing (or out of order) in\n%s", pair, *wanted, text);
    }
    free(text);
}

#define SAYS(t, pair, ...) says(t, pair, (const char *const[]){__VA_ARGS__, NULL})

static void near(double value, double wanted)
{
    if (!(value > wanted * 0.999 && value < wanted * 1.001))
        fail_msg("%g, not %g", value, wanted);
}

static void expect_rate(const tx_topology *t, const char *a, const char *b, tx_topo_limit limit, double rate)
{
    tx_topo_rate found = tx_topo_pair_rate(t, tx_topo_find(t, a), tx_topo_find(t, b));
    tx_topo_rate back = tx_topo_pair_rate(t, tx_topo_find(t, b), tx_topo_find(t, a));
    if (found.limit != limit || back.limit != limit)
        fail_msg("%s-%s: limited by %d, not %d", a, b, (int)found.limit, (int)limit);
    if (rate > 0) {
        near(found.rate, rate);
        near(back.rate, rate);
    }
}

static void rates(void **state)
{
    tx_topology *t = read_topology(FIXTURES "classes.xml");
    expect_rate(t, "GPU0", "GPU1", TX_TOPO_LIMIT_LINKS, 40);
    expect_rate(t, "GPU0", "GPU2", TX_TOPO_LIMIT_LINKS, 20);
    expect_rate(t, "GPU1", "GPU2", TX_TOPO_LIMIT_PCIE, 12);
    expect_rate(t, "GPU3", "GPU4", TX_TOPO_LIMIT_LINKS, 24);
    expect_rate(t, "GPU0", "GPU7", TX_TOPO_LIMIT_NUMA, 10);
    expect_rate(t, "GPU5", "GPU6", TX_TOPO_LIMIT_NONE, 0);
    expect_rate(t, "GPU0", "GPU0", TX_TOPO_LIMIT_NONE, 0);
    const int32_t pcie[] = {0, 1, 2}, linked[] = {0, 1}, unknown[] = {0, 1, 7};
    int32_t slowest[2];
    tx_topo_rate ring = tx_topo_ring_rate(t, pcie, 3, slowest);
    assert_true(ring.limit == TX_TOPO_LIMIT_PCIE && slowest[0] == 1 && slowest[1] == 2);
    near(ring.rate, 12);
    ring = tx_topo_ring_rate(t, linked, 2, slowest);
    near(ring.rate, 40);
    ring = tx_topo_ring_rate(t, unknown, 3, slowest);
    near(ring.rate, 10);
    near(tx_topo_allreduce_seconds(1e9, 2, 40), 0.025);
    near(tx_topo_allreduce_seconds(1e9, 16, 120), 0.015625);
    /* An idle link counts with the speed that it can have and the lanes that it has. */
    const tx_topo_pcie idle = {.speed = 2.5, .speed_max = 16, .width = 8, .width_max = 16};
    near(tx_topo_pcie_expected(&idle), 15.754 * 12 / 15.754);
    tx_topology_free(t);
}

static void words(void **state)
{
    tx_topology *t = read_topology(FIXTURES "classes.xml");
    SAYS(t, "GPU0,GPU2", "NV1 ", "a bonded set of 1 NVLinks, 25.0 GB/s one way", "PXB ", "up    0000:03:00.0   GPU0",
         "up    0000:02:01.0", "top   0000:01:00.0", "both ways meet here", "down  0000:02:03.0",
         "down  0000:07:00.0   GPU2", "1 on the side of GPU0, 3 on the side of GPU2", "NUMA node: 0 for both",
         "the direct links, about 20.0 GB/s one way (1 of 20.0 GB/s)", "these 2: 1 B over 20.0 GB/s: 1 GB in 50.0 ms");
    SAYS(t, "gpu0,82:00.0", "SYS ", "Package 0", "NUMA node 0", "machine", "Package 1", "GPU0 at 0, GPU7 at 1",
         "between NUMA nodes, about 10.0 GB/s", "all 8 GPUs in order: no rate is known");
    SAYS(t, "rsmi0,rsmi1", "XG ", "XGMI (Infinity Fabric) links, their number not known", "if there is one");
    SAYS(t, "mlx5_0,GPU0", "NIC0 ", "PIX ", "What limits it: the PCIe link of");
    SAYS(t, "opencl:0:0,ze0.0", "GPU7");
    char *text = explained(t, "mlx5_0,GPU0");
    assert_null(strstr(text, "All-reduce"));
    free(text);
    char *nothing = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&nothing, &size);
    assert_refused(tx_txtopo_explain(out, t, "GPU0,GPU9"), TX_NOT_FOUND, "GPU9: no such device");
    assert_refused(tx_txtopo_explain(out, t, "GPU0"), TX_NOT_FOUND, "no such device");
    assert_refused(tx_txtopo_explain(out, t, "GPU0,03:00.0"), TX_INVALID, "the same device twice, GPU0");
    fclose(out);
    assert_int_equal(size, 0);
    free(nothing);
    tx_topology_free(t);
}

/* Links below their maximum, and IOMMU groups. */
static void advice(void **state)
{
    tx_topology *t = read_topology(FIXTURES "classes.xml");
    tx_topo_node *gpu0 = &t->nodes[t->devices[0].node], *gpu1 = &t->nodes[t->devices[1].node];
    gpu0->link = (tx_topo_pcie){.speed = 8, .speed_max = 16, .width = 8, .width_max = 16};
    gpu1->link = (tx_topo_pcie){.speed = 8, .speed_max = 8, .width = 4, .width_max = 16};
    t->nodes[gpu0->parent].link = (tx_topo_pcie){.speed = 8, .speed_max = 8, .width = 8, .width_max = 8};
    expect_rate(t, "GPU1", "GPU2", TX_TOPO_LIMIT_PCIE, 3);
    SAYS(t, "GPU1,GPU2", "the PCIe link of 0000:04:00.0, about 3.0 GB/s one way");
    gpu0->iommu_group = 7;
    gpu1->iommu_group = 8;
    SAYS(t, "GPU0,GPU1", "8 GT/s x8, 7.9 GB/s, at most 16 GT/s x16, 31.5 GB/s, IOMMU group 7", "8 GT/s x4, 3.9 GB/s",
         "IOMMU groups: 7 and 8: ACS may send", "0000:03:00.0 has 8 of the 16 lanes", "a wider slot would help",
         "0000:03:00.0 runs at 8 of 16 GT/s: what it is plugged into is no faster",
         "0000:04:00.0 has 4 of the 16 lanes", "look at its slot");
    gpu1->iommu_group = 7;
    SAYS(t, "GPU0,GPU1", "IOMMU group: 7 for both");
    tx_topology_free(t);
}

static void machines(void **state)
{
    tx_topology *t = recorded("01-dgx2h-16xV100-nvswitch");
    SAYS(t, "GPU0,GPU15", "a bonded set of 6 NVLinks, through switches, 150.0 GB/s", "SYS ", "0000:2b:00.0",
         "Package 0", "machine", "Package 1", "0000:e7:00.0", "5 on the side of GPU0, 5 on the side of GPU15",
         "(6 of 20.0 GB/s)", "these 2: 1 B over 120.0 GB/s: 1 GB in 8.3 ms",
         "all 16 GPUs in order: 1.875 B over 120.0 GB/s");
    tx_topology_free(t);
    t = recorded("13-tioga-8xMI250X-xgmi");
    SAYS(t, "GPU0,GPU1", "XG ", "their number not known", "NODE ", "L3 6", "L3 7", "NUMA node: 3 for both", "36.0 GB/s",
         "all 8 GPUs in order: 1.75 B over 36.0 GB/s");
    SAYS(t, "GPU0,NIC3", "SYS ", "the interconnect between NUMA nodes, about 16.0 GB/s");
    tx_topology_free(t);
    t = recorded("23-dgxa100-onenode-excerpt");
    SAYS(t, "GPU0,mlx5_0", "PXB ", "0000:07:00.0", "0000:01:00.0   Broadcom bridge", "both ways meet here",
         "0000:0c:00.0   NIC0", "5 on the side of GPU0, 3 on the side of NIC0", "NUMA node: 3 for both",
         "about 24.0 GB/s");
    SAYS(t, "GPU0,GPU1", "these 2: 1 B over 24.0 GB/s: 1 GB in 41.7 ms");
    tx_topology_free(t);
}

static void pasted(void **state)
{
    tx_topology *t = read_topology(FIXTURES "matrix.txt");
    SAYS(t, "GPU0,GPU1", "by matrix-file", "NUMA node", "What limits it: not known");
    tx_topology_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates),  cmocka_unit_test(words),    cmocka_unit_test(advice),
        cmocka_unit_test(pasted), cmocka_unit_test(machines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
