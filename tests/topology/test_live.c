/* SPDX-License-Identifier: Apache-2.0
 * The topology of a live run: simulated vendors' libraries (found by LD_LIBRARY_PATH) and a simulated sysfs, on the
 * tree of a fixture that hwloc uses as this machine. */
#include "tests/topology/helper.h"

#include <sys/stat.h>

/* A live run on a fixture. */
static tx_topology *live(const char *fixture, const char *root, bool vendor)
{
    char path[512];
    tx_topology *t = NULL;
    tx_topo_options options = {.size = sizeof options, .root = root, .no_opencl = true, .no_vendor = !vendor};
    snprintf(path, sizeof path, "%s%s", FIXTURES, fixture);
    setenv("HWLOC_XMLFILE", path, 1);
    setenv("HWLOC_THISSYSTEM", "1", 1);
    assert_ok(tx_topology_live(&options, &t));
    return t;
}

static tx_topology *live_as(const char *variable, const char *mode)
{
    setenv(variable, mode, 1);
    tx_topology *t = live("classes.xml", "/nowhere", true);
    unsetenv(variable);
    return t;
}

/* ---- NVML ------------------------------------------------------------------------------------------ */

static void nvml_direct(void **state)
{
    tx_topology *t = live_as("FAKE_NVML", "");
    assert_cell(t, "GPU0", "GPU1", true, "NV2");
    assert_cell(t, "GPU0", "GPU2", true, "NV1");
    assert_cell(t, "GPU1", "GPU2", true, "PXB");
    const tx_topo_pair *pair = tx_topo_pair_of(t, 0, 1), *far = tx_topo_pair_of(t, 0, 2);
    assert_true(pair->class_source == TX_TOPO_FROM_NVML);
    assert_true(pair->p2p[TX_TOPO_ACCESS_READ] == TX_TOPO_P2P_OK && far->p2p[TX_TOPO_ACCESS_READ] == TX_TOPO_P2P_CNS);
    assert_true(far->p2p[TX_TOPO_ACCESS_WRITE] == TX_TOPO_P2P_DR && far->p2p[TX_TOPO_ACCESS_PROP] == TX_TOPO_P2P_NS);
    assert_string_equal(t->devices[1].name, "Made-up GPU 1");
    assert_true(t->devices[1].memory == INT64_C(17179869185));
    assert_false(has_note(t, "but the PCI tree shows"));
    tx_topology_free(t);
}

static void nvml_switch(void **state)
{
    tx_topology *t = live_as("FAKE_NVML", "switch");
    assert_cell(t, "GPU0", "GPU1", true, "NV6");
    assert_cell(t, "GPU0", "GPU2", true, "NV4");
    assert_false(has_note(t, "NVSwitch"));
    tx_topology_free(t);
    t = live_as("FAKE_NVML", "vm");
    assert_cell(t, "GPU1", "GPU2", true, "NV4");
    assert_true(has_note(t, "assumed to lead to an NVSwitch"));
    assert_true(tx_topo_pair_of(t, 1, 2)->note >= 0);
    tx_topology_free(t);
}

/* A failure gives a question mark and a note. Links that the other end reports are kept, and so is the rest of the
 * matrix. */
static void nvml_fails(void **state)
{
    tx_topology *t = live_as("FAKE_NVML", "lost");
    assert_cell(t, "GPU0", "GPU1", true, "NV2");
    assert_cell(t, "GPU1", "GPU2", true, "?");
    assert_cell(t, "GPU1", "GPU2", false, "PXB");
    assert_cell(t, "GPU0", "GPU3", true, "PHB");
    assert_true(has_note(t, "NVML fails on the links of 0000:04:00.0 (error 15)"));
    assert_true(tx_topo_pair_of(t, 1, 2)->note >= 0);
    tx_topology_free(t);
    t = live_as("FAKE_NVML", "dead");
    assert_cell(t, "GPU1", "GPU2", false, "PXB");
    assert_true(has_note(t, "libnvidia-ml.so.1 does not start (9)"));
    tx_topology_free(t);
}

static void nvml_differs(void **state)
{
    tx_topology *t = live_as("FAKE_NVML", "differ");
    assert_cell(t, "GPU1", "GPU2", false, "SYS");
    assert_true(has_note(t, "nvml reports SYS between GPU1 and GPU2, but the PCI tree shows PXB"));
    tx_topology_free(t);
    t = live_as("FAKE_NVML", "hidden");
    assert_int_equal(t->gpus, 7);
    assert_true(has_note(t, "1 NVIDIA GPU in the PCI tree that the driver does not list is left out"));
    tx_topology_free(t);
}

/* The oldest library: its missing functions are missed quietly. */
static void nvml_old(void **state)
{
    tx_topology *t = live("classes.xml", "/nowhere", true);
    assert_int_equal(t->gpus, 8);
    assert_cell(t, "GPU1", "GPU2", true, "PXB");
    assert_true(tx_topo_pair_of(t, 1, 2)->p2p[0] == TX_TOPO_P2P_UNASKED);
    tx_topology_free(t);
}

/* ---- ROCm SMI --------------------------------------------------------------------------------------- */

static void rsmi(void **state)
{
    tx_topology *t = live_as("FAKE_RSMI", "");
    assert_cell(t, "rsmi0", "rsmi1", true, "XG4");
    const tx_topo_pair *pair = tx_topo_pair_of(t, 3, 4), *back = tx_topo_pair_of(t, 4, 3);
    assert_true(pair->link_rate > 199.9 && pair->link_rate < 200.1 && pair->link_source == TX_TOPO_FROM_RSMI);
    assert_true(pair->p2p[TX_TOPO_ACCESS_READ] == TX_TOPO_P2P_OK && back->p2p[TX_TOPO_ACCESS_READ] == TX_TOPO_P2P_NS);
    assert_true(t->devices[3].memory == INT64_C(34359738368));
    tx_topology_free(t);
    t = live_as("FAKE_RSMI", "far");
    assert_cell(t, "rsmi0", "rsmi1", true, "XG");
    tx_topology_free(t);
    t = live_as("FAKE_RSMI", "parts");
    assert_int_equal(t->gpus, 10);
    assert_cell(t, "GPU3", "GPU4", true, "LOC");
    assert_cell(t, "GPU4", "GPU5", true, "XG4");
    tx_topology_free(t);
}

/* ---- A simulated sysfs ----------------------------------------------------------------------------------- */

/* Returns a path below `root` and creates its folder; allocated. */
static char *made_path(const char *root, const char *path)
{
    char *whole = tx_path_join(root, path), *slash = strrchr(whole, '/');
    *slash = '\0';
    assert_ok(tx_folder_create(whole));
    *slash = '/';
    return whole;
}

static void put(const char *root, const char *path, const char *text)
{
    char *whole = made_path(root, path);
    assert_ok(tx_file_write(whole, text, strlen(text)));
    free(whole);
}

static void put_link(const char *root, const char *path, const char *target)
{
    char *whole = made_path(root, path);
    assert_int_equal(symlink(target, whole), 0);
    free(whole);
}

#define PCI "sys/bus/pci/devices/0000:"

static void pci_facts(void **state)
{
    char *root = make_scratch();
    put(root, PCI "03:00.0/current_link_speed", "2.5 GT/s PCIe\n");
    put(root, PCI "03:00.0/current_link_width", "8\n");
    put(root, PCI "03:00.0/max_link_speed", "8.0 GT/s PCIe\n");
    put(root, PCI "03:00.0/max_link_width", "16\n");
    put(root, PCI "04:00.0/current_link_speed", "Unknown\n");
    put(root, PCI "04:00.0/current_link_width", "255\n");
    put_link(root, PCI "03:00.0/iommu_group", "../../../../kernel/iommu_groups/42");
    put(root, "proc/driver/nvidia/gpus/0000:03:00.0/numa_status", "Node: 9\nStatus: online\n");
    put(root, "sys/devices/system/node/node9/meminfo", "Node 9 MemTotal:       97871872 kB\n");
    tx_topology *t = live("classes.xml", root, false);
    const tx_topo_node *node = &t->nodes[t->devices[0].node], *other = &t->nodes[t->devices[1].node];
    assert_true(node->link.source == TX_TOPO_FROM_SYSFS && node->link.width == 8 && node->link.width_max == 16);
    assert_true(tx_topo_pcie_rate(&node->link, false) > 1.99 && tx_topo_pcie_rate(&node->link, false) < 2.01);
    assert_true(tx_topo_pcie_rate(&node->link, true) > 15.7 && tx_topo_pcie_rate(&node->link, true) < 15.8);
    assert_int_equal(node->iommu_group, 42);
    assert_true(other->link.source == TX_TOPO_FROM_HWLOC && other->iommu_group < 0);
    assert_int_equal(t->devices[0].gpu_numa, 9);
    assert_int_equal(t->numa_count, 3);
    assert_true(t->numa[2].device == 0 && t->numa[2].memory == INT64_C(97871872) * 1024);
    tx_topology_free(t);
    remove_scratch(root);
}

/* A hive of three, listed in another order than bus ids (21, 05, 08): four links, one, and none between 08 and 21. */
static void hive(void **state)
{
    static const char *const members[] = {"21:00.0", "05:00.0", "08:00.0"};
    static const char *const rows[] = {"00 04 00\n", "04 00 01\n", "00 01 00\n"};
    char *root = make_scratch(), path[128], target[64];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, PCI "%s/xgmi_num_links", members[i]);
        put(root, path, rows[i]);
        for (int k = 0; k < 3; k++) {
            snprintf(path, sizeof path, PCI "%s/xgmi_hive_info/node%d", members[i], k + 1);
            snprintf(target, sizeof target, "../../0000:%s", members[k]);
            put_link(root, path, target);
        }
    }
    tx_topology *t = live("unplaced.xml", root, false);
    assert_cell(t, "05:00.0", "21:00.0", true, "XG4");
    assert_cell(t, "05:00.0", "08:00.0", true, "XG1");
    assert_cell(t, "08:00.0", "21:00.0", true, "XG");
    assert_true(tx_topo_pair_of(t, 1, 2)->indirect);
    assert_true(has_note(t, "no direct XGMI link"));
    tx_topology_free(t);
    remove_scratch(root);
}

#define KFD "sys/class/kfd/kfd/topology/nodes/"

static void kfd(void **state)
{
    char *root = make_scratch();
    put(root, KFD "0/gpu_id", "0\n");
    put(root, KFD "0/properties", "cpu_cores_count 8\nsimd_count 0\nlocation_id 0\ndomain 0\n");
    put(root, KFD "1/gpu_id", "11\n");
    put(root, KFD "1/properties", "simd_count 240\nlocation_id 1280\ndomain 0\nhive_id 5\n"); /* 05:00.0 */
    put(root, KFD "2/gpu_id", "12\n");
    put(root, KFD "2/properties", "simd_count 240\nlocation_id 2048\ndomain 0\nhive_id 5\n"); /* 08:00.0 */
    put(root, KFD "3/gpu_id", "13\n");
    put(root, KFD "3/properties", "simd_count 240\nlocation_id 8448\ndomain 0\nhive_id 5\n"); /* 21:00.0 */
    put(root, KFD "1/io_links/0/properties", "type 2\nnode_from 1\nnode_to 0\nweight 20\n");
    put(root, KFD "1/io_links/1/properties",
        "type 11\nnode_from 1\nnode_to 2\nweight 15\nmin_bandwidth 50000\nmax_bandwidth 200000\n");
    put(root, KFD "1/io_links/2/properties",
        "type 11\nnode_from 1\nnode_to 3\nweight 30\nmin_bandwidth 0\nmax_bandwidth 0\n");
    tx_topology *t = live("unplaced.xml", root, false);
    assert_cell(t, "05:00.0", "08:00.0", true, "XG4");
    assert_cell(t, "05:00.0", "21:00.0", true, "XG");
    assert_true(tx_topo_pair_of(t, 0, 2)->indirect);
    assert_cell(t, "08:00.0", "21:00.0", true, "SYS");
    tx_topology_free(t);
    remove_scratch(root);
}

int main(int argc, char **argv)
{
    (void)argv;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nvml_direct),  cmocka_unit_test(nvml_switch), cmocka_unit_test(nvml_fails),
        cmocka_unit_test(nvml_differs), cmocka_unit_test(rsmi),        cmocka_unit_test(pci_facts),
        cmocka_unit_test(hive),         cmocka_unit_test(kfd),
    };
    const struct CMUnitTest old[] = {cmocka_unit_test(nvml_old)};
    return argc > 1 ? cmocka_run_group_tests(old, NULL, NULL) : cmocka_run_group_tests(tests, NULL, NULL);
}
