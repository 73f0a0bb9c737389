/* SPDX-License-Identifier: Apache-2.0
 * The PCI function of an OpenCL device: every way in which drivers report it, and drivers that report nothing. */
#include "comm/topology/sources.h"
#include "tests/topology/helper.h"

/* The topology of a file with OpenCL devices joined to it. */
static tx_topology *joined_to(const char *path, const tx_topo_cl_device *devices, int32_t count)
{
    char *text = NULL;
    size_t size = 0;
    bool local = true;
    tx_draft draft;
    tx_topology *t = NULL;
    assert_ok(tx_file_read(path, 1 << 20, &text, &size));
    assert_ok(tx_draft_begin(TX_TOPO_ORIGIN_LIVE, &draft));
    assert_ok(tx_topo_hwloc_read(text, size, &draft, &local));
    assert_false(local);
    tx_topo_cl_join(&draft, devices, count);
    assert_ok(tx_draft_finish(&draft, &t));
    free(text);
    return t;
}

static tx_topology *joined(const char *fixture, const tx_topo_cl_device *devices, int32_t count)
{
    char path[512];
    snprintf(path, sizeof path, "%s%s", FIXTURES, fixture);
    return joined_to(path, devices, count);
}

#define AT(p, d, b, f)                                                                                        \
    {                                                                                                         \
        .platform = p, .device = d, .engine = -1, .gpu = true, .has_bus = true, .has_domain = true, .bus = b, \
        .function = f, .name = "Device"                                                                       \
    }

static void by_address(void **state)
{
    const tx_topo_cl_device devices[] = {
        AT(0, 0, 0x04, 0), AT(0, 1, 0x03, 0), AT(1, 0, 0x03, 0), AT(2, 0, 0x81, 0), AT(2, 1, 0x81, 0),
    };
    tx_topology *t = joined("classes.xml", devices, 5);
    assert_int_equal(t->gpus, 8);
    assert_int_equal(device_named(t, "0:0"), 1);
    /* Two platforms expose one card; two devices of one platform are its tiles. */
    assert_string_equal(t->devices[0].opencl, "0:1,1:0");
    assert_true(t->devices[0].platform == 0 && t->devices[0].device == 1);
    assert_int_equal(device_named(t, "2:0"), 5);
    assert_int_equal(device_named(t, "2:1"), 6);
    tx_topology_free(t);
}

/* The server's display controller counts when OpenCL has it; a function that has more devices than hwloc lists. */
static void vouched_for(void **state)
{
    tx_topo_cl_device devices[] = {AT(0, 0, 0x00, 0), AT(0, 1, 0x11, 0), AT(0, 2, 0x11, 0)};
    devices[0].slot = 0x1f;
    tx_topology *t = joined("classes.xml", devices, 3);
    assert_int_equal(t->gpus, 10);
    assert_int_equal(device_named(t, "0:0"), 0);
    assert_string_equal(t->devices[0].bus, "0000:00:1f.0");
    assert_cell(t, "0:1", "0:2", true, "LOC");
    tx_topology_free(t);
}

/* AMD's drivers report no domain. With one domain the device is certain, with several the order of the list decides. */
static void without_domain(void **state)
{
    tx_topo_cl_device device = AT(0, 0, 0x11, 0);
    device.has_domain = false;
    tx_topology *t = joined("classes.xml", &device, 1);
    assert_int_equal(device_named(t, "0:0"), 4);
    assert_true(!t->devices[4].guessed);
    tx_topology_free(t);
    char *data = test_data("topo/15-tuolumne-12xMI300A-tpx.xml");
    tx_topo_cl_device all[12];
    for (int32_t i = 0; i < 12; i++)
        all[i] = (tx_topo_cl_device){.platform = 0, .device = i, .engine = i, .gpu = true, .has_bus = true, .bus = 2};
    t = joined_to(data, all, 12);
    assert_int_equal(t->gpus, 12);
    for (int32_t i = 0; i < 12; i++) {
        assert_int_equal(t->devices[i].device, i);
        assert_true(t->devices[i].guessed);
    }
    assert_string_equal(t->devices[11].engine, "opencl:11");
    assert_true(has_note(t, "not its PCI domain, and 4 GPUs fit"));
    tx_topology_free(t);
    free(data);
}

#define WITHOUT_BUS(vendor, id, text)                                                                            \
    {                                                                                                            \
        .platform = 0, .device = 0, .engine = 0, .gpu = true, .vendor_id = vendor, .device_id = id, .name = text \
    }

static void without_address(void **state)
{
    /* Joined by the PCI device id, if only one GPU has it. */
    const tx_topo_cl_device id = WITHOUT_BUS(0x10de, 0x2342, "GH200");
    tx_topology *t = joined("unplaced.xml", &id, 1);
    assert_int_equal(device_named(t, "0:0"), 3);
    assert_true(!t->devices[3].guessed);
    tx_topology_free(t);
    /* Joined by the vendor, if only one GPU has it, as a guess. */
    const tx_topo_cl_device vendor = WITHOUT_BUS(0x10de, 0, "GH200");
    t = joined("unplaced.xml", &vendor, 1);
    assert_int_equal(device_named(t, "0:0"), 3);
    assert_true(t->devices[3].guessed && t->devices[3].note >= 0);
    tx_topology_free(t);
    /* Several fit: a device of its own without a place. */
    const tx_topo_cl_device lost = WITHOUT_BUS(0x1002, 0x66a1, "MI50");
    t = joined("unplaced.xml", &lost, 1);
    assert_int_equal(t->gpus, 5);
    assert_int_equal(device_named(t, "0:0"), 4);
    assert_cell(t, "0:0", "GPU0", true, "SYS");
    assert_true(has_note(t, "The PCI address of OpenCL 0:0 (MI50) is unknown"));
    assert_true(tx_topo_pair_of(t, 0, 4)->note >= 0);
    tx_topology_free(t);
}

static void cpu_devices(void **state)
{
    const tx_topo_cl_device devices[] = {
        {.platform = 0, .device = 0, .engine = 0, .cpu = true, .name = "PoCL", .memory = 4096, .vendor_id = 0x8086},
        {.platform = 1, .device = 0, .engine = 1, .cpu = true, .name = "Other"},
        {.platform = 2, .device = 0, .engine = -1, .name = "neither"},
    };
    tx_topology *t = joined("classes.xml", devices, 3);
    assert_int_equal(t->cpu_devices, 2);
    assert_cell(t, "CPU0", "GPU0", true, "HOST");
    assert_cell(t, "CPU0", "NIC0", true, "HOST");
    assert_cell(t, "CPU0", "CPU1", true, "LOC");
    assert_string_equal(t->devices[10].cpus, "0-7");
    assert_string_equal(t->devices[10].vendor, "AMD"); /* as the packages tell, not PoCL */
    assert_string_equal(t->devices[10].nodes, "0-1");
    assert_int_equal(device_named(t, "opencl:1"), 11);
    tx_topology_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_address),      cmocka_unit_test(vouched_for), cmocka_unit_test(without_domain),
        cmocka_unit_test(without_address), cmocka_unit_test(cpu_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
