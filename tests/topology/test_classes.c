/* SPDX-License-Identifier: Apache-2.0
 * Every class and link on simulated machines, the nearest NUMA node of a device, the path between two, and queries. */
#include "tests/topology/helper.h"

/* A pair of every class, with and without links, in hwloc's words. */
static void every_class(void **state)
{
    static const char *const wanted[][4] = {
        {"nvml0", "nvml1", "PIX", "NV2"},  {"nvml0", "nvml2", "PXB", "NV1"},   {"nvml1", "nvml2", "PXB", "PXB"},
        {"nvml0", "rsmi0", "PHB", "PHB"},  {"rsmi0", "rsmi1", "NODE", "XG"},   {"nvml0", "rsmi1", "NODE", "NODE"},
        {"nvml0", "ze1", "SYS", "SYS"},    {"ze0.0", "ze0.1", "LOC", "LOC"},   {"ze0.1", "ze1", "PHB", "XL"},
        {"ze0.0", "ze1", "PHB", "PHB"},    {"mlx5_0", "mlx5_1", "PIX", "PIX"}, {"mlx5_0", "nvml0", "PIX", "PIX"},
        {"mlx5_1", "nvml2", "PXB", "PXB"}, {"mlx5_0", "rsmi0", "PHB", "PHB"},  {"mlx5_0", "rsmi1", "NODE", "NODE"},
        {"mlx5_0", "ze1", "SYS", "SYS"},
    };
    tx_topology *t = read_topology(FIXTURES "classes.xml");
    assert_int_equal(t->gpus, 8);
    assert_int_equal(t->nics, 2);
    assert_int_equal(t->device_count, 10); /* the server's own display controller does not count */
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        assert_cell(t, wanted[i][0], wanted[i][1], false, wanted[i][2]);
        assert_cell(t, wanted[i][0], wanted[i][1], true, wanted[i][3]);
    }
    assert_true(has_note(t, "hwloc does not report how many XGMI links"));
    assert_true(has_note(t, "hwloc does not report how many Xe Link lanes"));
    const tx_topo_pair *nv = tx_topo_pair_of(t, 0, 1), *xg = tx_topo_pair_of(t, 3, 4);
    assert_true(nv->link == TX_TOPO_NVLINK && nv->links == 2 && nv->link_source == TX_TOPO_FROM_DISTANCES);
    assert_true(nv->link_rate > 49.9 && nv->link_rate < 50.1);
    assert_true(xg->link == TX_TOPO_XGMI && xg->links == 0 && xg->note >= 0);
    tx_topology_free(t);
}

/* PIX is at most one bridge on either side. */
static void bridges_count(void **state)
{
    tx_topology *t = read_topology(FIXTURES "bridges.xml");
    assert_cell(t, "nvml0", "nvml1", false, "PXB");
    assert_true(tx_topo_pair_of(t, 0, 1)->bridges_a == 1 && tx_topo_pair_of(t, 0, 1)->bridges_b == 2);
    assert_cell(t, "nvml2", "nvml3", false, "PIX");
    assert_cell(t, "nvml0", "nvml2", false, "PHB");
    assert_int_equal(t->note_count, 0);
    tx_topology_free(t);
}

static void what_is_near(void **state)
{
    tx_topology *t = read_topology(FIXTURES "classes.xml");
    const tx_topo_device *gpu = &t->devices[device_named(t, "GPU0")], *far = &t->devices[device_named(t, "GPU7")];
    assert_string_equal(gpu->cpus, "0-3");
    assert_string_equal(gpu->nodes, "0");
    assert_string_equal(far->cpus, "4-7");
    assert_string_equal(far->nodes, "1");
    /* Equally near NICs are shared out. */
    assert_int_equal(t->devices[0].nic, device_named(t, "mlx5_0"));
    assert_int_equal(t->devices[1].nic, device_named(t, "mlx5_1"));
    assert_int_equal(t->numa_count, 2);
    assert_string_equal(t->numa[1].cpus, "4-7");
    assert_true(t->numa[1].memory == INT64_C(8589934592));
    assert_int_equal(t->cpu_count, 8);
    for (int32_t i = 0; i < 8; i++) {
        assert_int_equal(t->cpus[i].number, i);
        assert_int_equal(t->cpus[i].core, i / 2);
        assert_int_equal(t->cpus[i].package, i / 4);
        assert_int_equal(t->cpus[i].numa, i / 4);
    }
    assert_string_equal(t->host, "classes");
    tx_topology_free(t);
}

static void the_way(void **state)
{
    tx_topology *t = read_topology(FIXTURES "classes.xml");
    const int32_t a = device_named(t, "GPU0"), b = device_named(t, "GPU2");
    const tx_topo_pair *pair = tx_topo_pair_of(t, a, b), *back = tx_topo_pair_of(t, b, a);
    assert_string_equal(t->nodes[pair->ancestor].bus, "0000:01:00.0");
    assert_true(pair->bridges_a == 1 && pair->bridges_b == 3 && back->bridges_a == 3 && back->bridges_b == 1);
    for (int32_t i = 1; i < t->node_count; i++)
        assert_true(t->nodes[i].parent >= 0 && t->nodes[i].parent < i);
    tx_topology_free(t);
}

/* A system that hides its NUMA nodes; switches inside packages; GPU memory as a NUMA node. */
static void guesses(void **state)
{
    tx_topology *t = read_topology(FIXTURES "unplaced.xml");
    assert_cell(t, "rsmi0", "rsmi2", true, "SYS");
    assert_cell(t, "rsmi0", "rsmi1", true, "PXB");
    assert_cell(t, "rsmi0", "nvml0", true, "SYS");
    assert_true(tx_topo_pair_of(t, 0, 2)->note >= 0);
    assert_true(tx_topo_pair_of(t, 0, 3)->note >= 0);
    assert_true(has_note(t, "the NUMA node of GPU0, GPU1, GPU2;"));
    assert_true(has_note(t, "inside the packages of GPU0, GPU1 are counted"));
    const tx_topo_device *hopper = &t->devices[3];
    assert_int_equal(hopper->gpu_numa, 2);
    assert_string_equal(hopper->nodes, "1");
    assert_int_equal(t->numa[2].device, 3);
    tx_topology_free(t);
}

static void sets(void **state)
{
    static const char *const good[] = {"", "0", "0-3", "0-7,64-71", "1,3,5", "0-1,3"};
    static const char *const bad[] = {"-", "1-", "3-1", "1,,2", "1,", ",1", "2,1", "a", "1 2", "0-99999999", "1-2-3"};
    int32_t *numbers = NULL, count = 0;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_ok(tx_topo_set_parse(good[i], &numbers, &count));
        char *text = tx_topo_set_text(numbers, count);
        assert_string_equal(text, good[i]);
        free(text);
        free(numbers);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_refused(tx_topo_set_parse(bad[i], &numbers, &count), TX_FORMAT, "is not a set");
}

static void rates(void **state)
{
    tx_topo_pcie link = {.speed = 8, .speed_max = 16, .width = 8, .width_max = 16, .rate = 1};
    assert_true(tx_topo_pcie_rate(&link, false) > 7.87 && tx_topo_pcie_rate(&link, false) < 7.88);
    assert_true(tx_topo_pcie_rate(&link, true) > 31.50 && tx_topo_pcie_rate(&link, true) < 31.51);
    link = (tx_topo_pcie){.rate = 15.75};
    assert_true(tx_topo_pcie_rate(&link, false) > 15.7);
    assert_true(!(tx_topo_pcie_rate(&link, true) > 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_class), cmocka_unit_test(bridges_count), cmocka_unit_test(what_is_near),
        cmocka_unit_test(the_way),     cmocka_unit_test(guesses),       cmocka_unit_test(sets),
        cmocka_unit_test(rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
