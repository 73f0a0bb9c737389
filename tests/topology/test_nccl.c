/* SPDX-License-Identifier: Apache-2.0
 * NCCL's topology XML: read beside its hwloc twin, in published structures and broken; written, and read again. */
#include "tests/topology/helper.h"

/* ---- Reading ------------------------------------------------------------------------------------------ */

static void nccl_equals_twin(void **state)
{
    tx_topology *nccl = read_topology(FIXTURES "twin.nccl.xml"), *hwloc = read_topology(FIXTURES "twin.xml");
    for (int k = 0; k < 2; k++) {
        char *a = printed(tx_txtopo_nvidia, nccl, k), *b = printed(tx_txtopo_nvidia, hwloc, k);
        assert_string_equal(a, b);
        free(a);
        free(b);
    }
    assert_true(has_note(nccl, "NODE may be PHB"));
    assert_true(has_note(nccl, "eth0"));
    assert_int_equal(nccl->numa_count, 2);
    const tx_topo_pcie *link = &nccl->nodes[nccl->devices[0].node].link;
    assert_true(link->speed > 7.9 && link->speed < 8.1 && link->width == 16 && link->rate > 15.7 && link->rate < 15.8);
    tx_topology_free(nccl);
    tx_topology_free(hwloc);
}

#define SWITCHED(bus, count)                                                                                   \
    "<pci busid='0000:" bus ":00.0' class='0x030200'><gpu dev='0'><nvlink target='0000:c0:00.0' count='" count \
    "' tclass='0x068000'/></gpu></pci>"

static void nccl_switches_and_partitions(void **state)
{
    tx_topology *t = read_good("<system><cpu numaid='0' affinity='ff'>" SWITCHED("01", "6") SWITCHED(
        "02", "4") "<pci busid='0000:03:00.0' class='0x120000' vendor='0x1002'><gpu dev='2' gcn='gfx942'>"
                   "<xgmi target='0000:04:00.0' count='2' tclass='0x120000'/></gpu><gpu dev='3'/></pci>"
                   "<pci busid='0000:04:00.0' class='0x120000' vendor='0x1002'/></cpu></system>");
    assert_int_equal(t->gpus, 5);
    assert_cell(t, "GPU0", "GPU1", true, "NV4");
    assert_cell(t, "GPU2", "GPU3", true, "LOC");
    assert_cell(t, "GPU2", "GPU4", true, "XG2");
    assert_cell(t, "GPU0", "GPU2", true, "NODE");
    assert_string_equal(t->devices[2].name, "gfx942");
    assert_string_equal(t->devices[0].cpus, "0-7");
    tx_topology_free(t);
}

/* What would move a cursor reads "?" in a topology, and names are told apart as they read: written and read again
 * nothing is lost. */
static void nccl_odd_names(void **state)
{
    tx_topology *again = NULL,
                *t = read_good("<system><cpu numaid='0'><nic><net name='a\xC2\x80'/><net name='a\xC2\x81'/><net "
                               "name='\xC3\xA9 '/><net name='\xC3\xA9'/></nic>"
                               "<pci busid='0000:01:00.0'><nic><net name='\xC2\x80'/><net "
                               "name='\xC2\x80'/><net name='ib0'/></nic></pci></cpu></system>");
    assert_true(has_note(t, "NIC a?? has"));
    assert_int_equal(t->device_count, 2);
    char *json = tx_topology_json(t, false);
    assert_non_null(json);
    assert_ok(tx_topology_parse(json, strlen(json), "json", &again));
    assert_int_equal(again->note_count, t->note_count);
    assert_int_equal(again->device_count, t->device_count);
    free(json);
    tx_topology_free(again);
    tx_topology_free(t);
}

/* Files that are handed to NCCL: functions by their class alone, Ethernet that does RDMA among them. */
static void nccl_by_class(void **state)
{
    tx_topology *t = read_good("<system version='1'><cpu numaid='0' affinity='ff'>"
                               "<pci busid='ffff:ff:01.0' class='0x060400' link_speed='8 GT/s' link_width='16'>"
                               "<pci busid='0000:10:1c.0' class='0x030200' link_speed='8 GT/s' link_width='16'/>"
                               "<pci busid='0000:10:1d.0' class='0x030200' link_speed='8 GT/s' link_width='16'/>"
                               "<pci busid='0000:10:1b.0' class='0x020000' link_speed='8 GT/s' link_width='16'/>"
                               "</pci></cpu></system>");
    assert_int_equal(t->gpus, 2);
    assert_int_equal(t->nics, 1);
    assert_cell(t, "GPU0", "NIC0", true, "PIX");
    assert_cell(t, "GPU0", "GPU1", true, "PIX");
    tx_topology_free(t);
}

/* Hosts joined by NVLink in one file: the same numbers and bus ids again. */
static void nccl_hosts(void **state)
{
    tx_topology *t = read_topology(FIXTURES "hosts.nccl.xml");
    assert_int_equal(t->gpus, 4);
    assert_int_equal(t->numa_count, 2);
    assert_cell(t, "GPU0", "GPU3", true, "NV18");
    assert_cell(t, "GPU0", "GPU3", false, "SYS");
    assert_int_equal(t->devices[2].sm, 100);
    assert_string_equal(t->devices[2].system, "nvml2");
    assert_true(has_note(t, "several hosts: the first is shown"));
    tx_topology_free(t);
}

/* The structures of published files: GPUs and Ethernet NICs of one switch are PIX. */
static void nccl_published(void **state)
{
    tx_topology *t = read_topology(FIXTURES "p4d.nccl.xml");
    assert_true(t->gpus == 8 && t->nics == 4);
    assert_cell(t, "GPU0", "GPU1", true, "PIX");
    for (int32_t i = 0; i < t->gpus; i++) {
        const tx_topo_pair *pair = tx_topo_pair_of(t, i, t->devices[i].nic);
        assert_true(t->devices[i].nic == 8 + i / 2 && pair->class_ == TX_TOPO_PIX);
    }
    assert_cell(t, "GPU1", "NIC1", true, "NODE");
    assert_cell(t, "GPU1", "NIC2", true, "SYS");
    tx_topology_free(t);
    t = read_topology(FIXTURES "oci.nccl.xml");
    assert_true(t->gpus == 8 && t->nics == 8);
    for (int32_t i = 0; i < t->gpus; i++)
        assert_true(tx_topo_pair_of(t, i, 8 + i)->class_ == TX_TOPO_PIX);
    assert_string_equal(t->devices[2].cpus, "32-63");
    tx_topology_free(t);
    assert_refused(tx_topology_read(FIXTURES "p5.nccl", &t), TX_FORMAT, "tells the class of none of its PCI functions");
    t = read_good("<system version='1'><cpu numaid='0'><pci busid='0000:01:00.0'/>"
                  "<pci busid='0000:02:00.0' class='0x030200'/></cpu></system>");
    assert_int_equal(t->device_count, 1);
    assert_true(has_note(t, "does not tell the class of 1 PCI functions"));
    tx_topology_free(t);
    /* RCCL's begin with what XML takes for no comment. */
    t = read_good("<!-----------\n - Copyright\n ------------>\n<system version='2'><cpu numaid='-1' affinity='ff'>"
                  "<pci busid='0000:01:00.0' class='0x038000'/></cpu></system>");
    assert_string_equal(t->devices[0].cpus, "0-7");
    assert_string_equal(t->devices[0].nodes, "");
    tx_topology_free(t);
    static const char broken[] = "<!-----------\n ------------>\n<system>\n</cpu>";
    refuses_text(broken, sizeof broken - 1, "line 4: mismatched tag");
}

/* NICs are numbered as nvidia-smi does, by name; two devices of one function are of one card. */
static void nccl_nics(void **state)
{
    tx_topology *t = read_good("<system><cpu numaid='0'><pci busid='0000:01:00.0' class='0x020700'><nic>"
                               "<net name='mlx5_10'/><net name='mlx5_2'/></nic></pci>"
                               "<pci busid='0000:02:00.0' class='0x020700'><nic><net name='mlx5_0'/></nic></pci>"
                               "</cpu></system>");
    char *text = printed(tx_txtopo_nvidia, t, true), *end = strstr(text, "NIC Legend:");
    assert_non_null(end);
    assert_string_equal(end, "NIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_2\n  NIC2: mlx5_10\n\n");
    assert_cell(t, "mlx5_2", "mlx5_10", true, "PIX");
    free(text);
    tx_topology_free(t);
}

static void nccl_broken(void **state)
{
    static const char *const files[][2] = {
        {"<system>", "line 1: no element found"},
        {"<system a='1'", "line 1: unclosed token"},
        {"<system>\n</cpu>", "line 2: mismatched tag"},
        {"<system a=1></system>", "line 1: not well-formed"},
        {"<system a='1' a='2'/>", "line 1: duplicate attribute"},
        {"<system/><system/>", "line 1: junk after document element"},
        {"<system a='\xFF'/>", "line 1: not well-formed"},
        {"<system>text</system>", "text between elements"},
        {"<system><cpu/></system>", "is no number of a NUMA node"},
        {"<system><cpu numaid='0'/><cpu numaid='0'/></system>", "listed twice"},
        {"<system><pci busid='0000:01:00.0'/></system>", "neither within <cpu>"},
        {"<system><cpu numaid='0'><pci busid='nonsense'/></cpu></system>", "is no PCI bus id"},
        {"<system><cpu numaid='0'><gpu/></cpu></system>", "<gpu> is not within"},
        {"<system><net name='a'/></system>", "<net> is not within"},
        {"<system><nvlink/></system>", "links are not within"},
        {"<system><!-- ", "line 1: unclosed token"},
        {"<system><cpu numaid='0'><pci busid='0000:01:00.0'><gpu/><pci busid='0000:02:00.0'/></pci></cpu></system>",
         "within a device"},
        {"<html></html>", "neither hwloc's"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        refuses_text(files[i][0], strlen(files[i][0]), files[i][1]);
    char deep[4096] = "<system><cpu numaid='0'>";
    for (int i = 0; i < 70; i++)
        strcat(deep, "<a>");
    refuses_text(deep, strlen(deep), "nested deeper");
}

/* ---- Writing ------------------------------------------------------------------------------------------- */

/* Every file comes back as the same matrix, and as the same file. */
static void written_again(void **state)
{
    static const char *const files[] = {"twin.nccl.xml", "p4d.nccl.xml", "oci.nccl.xml", "hosts.nccl.xml", "twin.xml"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s%s", FIXTURES, files[i]);
        tx_topology *t = read_topology(path), *again = NULL;
        char *text = as_nccl(t, &again), *lost = lost_as_nccl(t, again);
        if (*lost)
            fail_msg("%s: %s", files[i], lost);
        for (int k = 0; k < 2; k++) {
            char *a = printed(tx_txtopo_nvidia, t, k), *b = printed(tx_txtopo_nvidia, again, k);
            assert_string_equal(a, b);
            free(a);
            free(b);
        }
        tx_topology *third = NULL;
        char *second = as_nccl(again, &third);
        assert_string_equal(text, second);
        for (int32_t k = 0; k < t->device_count; k++)
            assert_int_equal(t->devices[k].sm, again->devices[k].sm);
        tx_topology_free(third);
        tx_topology_free(again);
        tx_topology_free(t);
        free(second);
        free(text);
        free(lost);
    }
}

/* What is written of each kind, and what is left out. */
static void written_words(void **state)
{
    tx_topology *again = NULL, *t = read_topology(FIXTURES "twin.nccl.xml");
    char *text = as_nccl(t, &again);
    assert_non_null(strstr(text, "<system version=\"1\">\n  <cpu numaid=\"0\" affinity=\"0000000f\" arch=\"x86_64\" "
                                 "vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\">\n    <pci "
                                 "busid=\"0000:01:00.0\" class=\"0x060400\" vendor=\"0x10b5\" device=\"0x8747\" "
                                 "link_speed=\"8.0 GT/s PCIe\" link_width=\"16\">\n"));
    assert_non_null(strstr(text, "        <gpu dev=\"0\" sm=\"70\">\n          <nvlink target=\"0000:04:00.0\" "
                                 "count=\"2\" tclass=\"0x030200\"/>\n"));
    assert_non_null(strstr(text, "<nic>\n          <net name=\"mlx5_0\"/>\n        </nic>\n"));
    assert_null(strstr(text, "rank="));
    tx_topology_free(t);
    tx_topology_free(again);
    free(text);
    /* RCCL's version; XGMI of an unknown number is left out, and CPU devices. */
    t = read_topology(FIXTURES "classes.xml");
    text = as_nccl(t, &again);
    char *lost = lost_as_nccl(t, again);
    assert_non_null(strstr(text, "<system version=\"1\">"));
    assert_non_null(strstr(text, " host_bridge=\"0000:[00-0f]\""));
    assert_non_null(
        strstr(lost, "The file tells GPU3-GPU4: NODE, where XG is known; GPU6-GPU7: PHB, where XL is known.\n"));
    tx_topology_free(t);
    tx_topology_free(again);
    free(text);
    free(lost);
    /* NCCL has no element for a root port, nor for a bridge that is no switch. */
    t = read_topology(FIXTURES "bridges.xml");
    text = as_nccl(t, &again);
    lost = lost_as_nccl(t, again);
    assert_string_equal(lost,
                        "The file tells GPU0-GPU1: PHB, where PXB is known; GPU2-GPU3: PHB, where PIX is known.\n");
    tx_topology_free(t);
    tx_topology_free(again);
    free(text);
    free(lost);
    /* Memory of a GPU that is a NUMA node is none of NCCL's. */
    t = read_topology(FIXTURES "unplaced.xml");
    text = as_nccl(t, &again);
    lost = lost_as_nccl(t, again);
    assert_non_null(strstr(text, "<cpu numaid=\"-1\" affinity=\"000000ff\""));
    assert_string_equal(lost, "GPU3: left out that its memory is NUMA node 2.\n");
    tx_topology_free(t);
    tx_topology_free(again);
    free(text);
    free(lost);
    t = read_good(
        "<system><cpu numaid='0' arch='x86_64' vendor='AuthenticAMD' familyid='143' modelid='49'>"
        "<pci busid='0000:03:00.0' class='0x038000' vendor='0x1002'><gpu dev='1' gcn='908'>"
        "<xgmi target='0000:04:00.0' count='1' tclass='0x038000'/></gpu></pci>"
        "<pci busid='0000:04:00.0' class='0x038000' vendor='0x1002'><gpu dev='0' gcn='908'/></pci></cpu></system>");
    assert_int_equal(t->cpu_family, 0x17);
    assert_string_equal(t->devices[0].system, "rsmi1");
    text = as_nccl(t, &again);
    assert_non_null(strstr(text, "<system version=\"2\">"));
    assert_non_null(strstr(text, "familyid=\"143\" modelid=\"49\""));
    assert_non_null(strstr(text, "<gpu dev=\"1\" gcn=\"908\">\n        <xgmi target=\"0000:04:00.0\" count=\"1\""));
    tx_topology_free(t);
    tx_topology_free(again);
    free(text);
}

/* NCCL's parser takes one space between attributes, no tabs, and values of at most 253 characters. */
static void written_for_its_parser(void **state)
{
    char file[2048] = "<system><cpu numaid='0' affinity='";
    for (int i = 0; i < 64; i++)
        strcat(file, i ? ",ffffffff" : "ffffffff");
    strcat(file,
           "'><pci busid='0000:01:00.0' class='0x020700'><nic><net name='a&lt;&quot;b'/></nic></pci></cpu></system>");
    tx_topology *again = NULL, *t = read_good(file);
    assert_string_equal(t->devices[0].cpus, "0-2047");
    char *text = as_nccl(t, &again);
    assert_null(strstr(text, "affinity"));
    assert_null(strchr(text, '\t'));
    for (size_t i = 0; text[i]; i++)
        assert_false(text[i] == ' ' && text[i + 1] == ' ' && text[i + strspn(text + i, " ")] != '<');
    assert_string_equal(again->devices[0].system, "a<\"b");
    char *lost = lost_as_nccl(t, again);
    assert_non_null(strstr(lost, "NIC0: the file tells CPUs N/A and NUMA nodes 0 near it, where 0-2047 and 0 are.\n"));
    tx_topology_free(t);
    tx_topology_free(again);
    free(text);
    free(lost);
}

/* This machine: its NUMA nodes, its GPUs and NICs. */
static void written_live(void **state)
{
    tx_topology *t = NULL, *again = NULL;
    int32_t nodes = 0;
    assert_ok(tx_topology_live(NULL, &t));
    char *text = as_nccl(t, &again), *lost = lost_as_nccl(t, again);
    assert_true(again->gpus == t->gpus && again->nics == t->nics);
    for (int32_t i = 0; i < t->numa_count; i++)
        if (t->numa[i].device < 0)
            assert_string_equal(t->numa[i].cpus, again->numa[nodes++].cpus);
    assert_int_equal(nodes, again->numa_count);
    assert_string_equal(t->cpu_vendor, again->cpu_vendor);
    assert_true(t->cpu_family == again->cpu_family && t->cpu_model == again->cpu_model);
    assert_null(strstr(lost, "left out, for its PCI function"));
    tx_topology_free(t);
    tx_topology_free(again);
    free(text);
    free(lost);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nccl_equals_twin),
        cmocka_unit_test(nccl_switches_and_partitions),
        cmocka_unit_test(nccl_odd_names),
        cmocka_unit_test(nccl_broken),
        cmocka_unit_test(nccl_by_class),
        cmocka_unit_test(nccl_published),
        cmocka_unit_test(nccl_hosts),
        cmocka_unit_test(nccl_nics),
        cmocka_unit_test(written_again),
        cmocka_unit_test(written_words),
        cmocka_unit_test(written_for_its_parser),
        cmocka_unit_test(written_live),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
