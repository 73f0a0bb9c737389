/* SPDX-License-Identifier: Apache-2.0
 * Files: pasted matrices in the forms that are met, and everything broken.
 */
#include "tests/topology/helper.h"

/* ---- Pasted matrices ----------------------------------------------------------------------------------- */

static void pasted_as_printed(void **state)
{
    tx_topology *t = read_good("\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
                               "GPU0\t X \tNV12\tPXB\tPXB\t0-63\t0\t\tN/A\n"
                               "GPU1\tNV12\t X \tPIX\tSYS\t64-127\t1\t\t2\n"
                               "NIC0\tPXB\tPIX\t X \tPXB\t\t\t\t\n"
                               "NIC1\tPXB\tSYS\tPXB\t X \t\t\t\t\n\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n"
                               "  NIC0: mlx5_0\n  NIC1: mlx5_1\n");
    assert_cell(t, "GPU0", "GPU1", true, "NV12");
    assert_cell(t, "GPU0", "GPU1", false, "?");
    assert_cell(t, "GPU1", "mlx5_0", true, "PIX");
    assert_cell(t, "mlx5_0", "mlx5_1", true, "PXB");
    assert_string_equal(t->devices[1].cpus, "64-127");
    assert_string_equal(t->devices[1].nodes, "1");
    assert_int_equal(t->devices[1].gpu_numa, 2);
    assert_true(t->devices[0].gpu_numa < 0);
    assert_int_equal(t->devices[1].nic, 2);
    assert_true(has_note(t, "links, not the PCI path"));
    tx_topology_free(t);
}

/* Spaces for tabs, SOC for SYS, NICs by their devices, DCGM's PSB, no affinity, text around. */
static void pasted_variants(void **state)
{
    tx_topology *t = read_good("$ nvidia-smi topo -m\r\n        GPU0    GPU1    mlx5_0  CPU Affinity\r\n"
                               "GPU0     X      SOC     PHB     0-11,24-35\r\nGPU1    SOC      X      PSB     N/A\r\n"
                               "mlx5_0  PHB     PSB      X \r\n\r\nLegend:\r\n");
    assert_cell(t, "GPU0", "GPU1", true, "SYS");
    assert_cell(t, "GPU1", "mlx5_0", true, "PIX");
    assert_string_equal(t->devices[0].cpus, "0-11,24-35");
    assert_string_equal(t->devices[1].cpus, "");
    tx_topology_free(t);
    t = read_good("\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-7\t\tN/A\t\tN/A\n");
    assert_int_equal(t->device_count, 1);
    assert_string_equal(t->devices[0].nodes, "");
    tx_topology_free(t);
    t = read_good("\tGPU0\tGPU1\nGPU0\tX\tnv4\nGPU1\tnv4\tX\n");
    assert_cell(t, "GPU0", "GPU1", true, "NV4");
    tx_topology_free(t);
    t = read_good("\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tXG\t0-7\t0-1\nGPU1\tXG\t X \t0-7\t0-1\n");
    assert_cell(t, "GPU0", "GPU1", true, "XG");
    assert_string_equal(t->devices[0].nodes, "0-1");
    tx_topology_free(t);
}

static void pasted_broken(void **state)
{
    static const char *const files[][2] = {
        {"hello\n", "neither hwloc's XML nor"},
        {"\tGPU0\tGPU1\n", "ends after 0 of 2 rows"},
        {"\tGPU0\tGPU1\nGPU0\t X \n", "shorter than the header"},
        {"\tGPU0\tGPU1\nGPU0\t X \tFOO\n", "invalid matrix cell: FOO"},
        {"\tGPU0\tGPU1\nGPU0\tPIX\t X \n", "X is not on the diagonal"},
        {"\tGPU0\tGPU1\nGPU1\tPIX\t X \n", "not in the header's order"},
        {"\tGPU0\tGPU0\n", "names a device twice"},
        {"\tGPU0\tGPU1\nGPU0\t X \tNV\n", "invalid matrix cell: NV"},
        {"\tGPU0\tGPU1\nGPU0\t X \tNV99999999\n", "invalid matrix cell"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        refuses_text(files[i][0], strlen(files[i][0]), files[i][1]);
}

/* ---- Broken files ----------------------------------------------------------------------------------------- */

static void broken_files(void **state)
{
    char *text = NULL, *folder = make_scratch();
    size_t size = 0;
    tx_topology *t = NULL;
    assert_ok(tx_file_read(FIXTURES "classes.xml", 1 << 20, &text, &size));
    for (size_t cut = 120; cut < size - 13; cut += 997)
        refuses_text(text, cut, "");
    char *version = strstr(text, "<topology version=\"2.0\"");
    version[strlen("<topology version=\"")] = '3';
    refuses_text(text, size, "is hwloc XML of version 3, which hwloc 2");
    refuses_text(text, size, "lstopo --export-xml-flags v2");
    refuses_text("", 0, "is empty");
    refuses_text(" \n\t", 3, "is empty");
    refuses_text("a\0b", 3, "holds a NUL byte");
    uint64_t random = 7;
    for (int i = 0; i < 50; i++) {
        char noise[512];
        for (size_t k = 0; k < sizeof noise; k++)
            noise[k] = (char)next_random(&random);
        refuses_text(noise, sizeof noise, "");
    }
    assert_int_not_equal(tx_topology_read(folder, &t), TX_OK);
    assert_int_equal(tx_topology_read(FIXTURES "no such file", &t), TX_NOT_FOUND);
    assert_null(t);
    refuses_text("{\"version\": 1}", 14, "neither hwloc's XML nor");
    free(text);
    remove_scratch(folder);
}

/* One more device than is read. */
static void too_many(void **state)
{
    const size_t room = 64 << 10;
    char *text = malloc(room);
    size_t used = 0;
    assert_non_null(text);
    for (int32_t i = 0; i <= TX_TOPO_DEVICES_MAX; i++)
        used += (size_t)snprintf(text + used, room - used, "\tGPU%d", i);
    text[used++] = '\n';
    refuses_text(text, used, "more than 1024 devices");
    free(text);
}

static void too_many_in_hwloc(void **state)
{
    char *text = NULL, *more = NULL;
    size_t size = 0, used = 0, room = 8 << 20;
    assert_ok(tx_file_read(FIXTURES "classes.xml", 1 << 20, &text, &size));
    assert_non_null(more = malloc(room));
    const char *place = strstr(text, "<object type=\"PCIDev\"");
    used = (size_t)snprintf(more, room, "%.*s", (int)(place - text), text);
    for (int i = 0; i <= TX_TOPO_DEVICES_MAX; i++)
        used += (size_t)snprintf(more + used, room - used,
                                 "<object type=\"PCIDev\" gp_index=\"%d\" pci_busid=\"%04x:03:00.0\" pci_type=\"0302 "
                                 "[10de:1db1] [0000:0000] 00\" pci_link_speed=\"0\"/>\n",
                                 10000 + i, i + 1);
    used += (size_t)snprintf(more + used, room - used, "%s", place);
    refuses_text(more, used, "more than 1024 devices");
    free(more);
    free(text);
}

/* PoCL hides hwloc's plugins once it runs; a file reads the same then. */
static void after_opencl(void **state)
{
    setenv("HWLOC_PLUGINS_PATH", "/dev/null", 1);
    tx_topology *t = read_topology(FIXTURES "classes.xml");
    assert_string_equal(getenv("HWLOC_PLUGINS_PATH"), "/dev/null");
    assert_cell(t, "GPU0", "GPU1", true, "NV2");
    tx_topology_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pasted_as_printed), cmocka_unit_test(pasted_variants), cmocka_unit_test(pasted_broken),
        cmocka_unit_test(broken_files),      cmocka_unit_test(too_many),        cmocka_unit_test(too_many_in_hwloc),
        cmocka_unit_test(after_opencl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
