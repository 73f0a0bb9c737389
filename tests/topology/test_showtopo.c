/* SPDX-License-Identifier: Apache-2.0
 * Text of rocm-smi --showtopo: the forms of ROCm 4 to 6, tables that are missing, and damage. */
#include "tests/topology/helper.h"

#define HEAD "       GPU0         GPU1         \n"
#define WEIGHTS "====== Weight between two GPUs ======\n" HEAD
#define HOPS "====== Hops between two GPUs ======\n" HEAD
#define TYPES "====== Link Type between two GPUs ======\n" HEAD
#define ROWS(a, b) "GPU0   0            " a "\nGPU1   " b "            0\n\n"

/* Two pairs joined by XGMI, one over another GPU; the pairs on NUMA nodes of their own. */
static void whole(void **state)
{
    tx_topology *t = read_topology(FIXTURES "showtopo.txt");
    assert_int_equal(t->device_count, 4);
    assert_int_equal(t->gpus, 4);
    assert_cell(t, "GPU0", "GPU1", true, "XG");
    assert_cell(t, "GPU0", "GPU1", false, "NODE");
    assert_cell(t, "GPU2", "GPU3", true, "XG");
    assert_cell(t, "GPU0", "GPU2", true, "SYS");
    assert_cell(t, "GPU1", "GPU3", false, "SYS");
    assert_false(tx_topo_pair_of(t, 0, 1)->indirect);
    assert_true(tx_topo_pair_of(t, 2, 3)->indirect);
    assert_true(tx_topo_pair_of(t, 0, 2)->class_confidence == TX_TOPO_STATED);
    assert_true(tx_topo_pair_of(t, 0, 1)->class_confidence == TX_TOPO_GUESSED);
    assert_string_equal(t->devices[1].nodes, "0");
    assert_string_equal(t->devices[3].nodes, "1");
    assert_string_equal(t->devices[3].vendor, "AMD");
    assert_int_equal(tx_topo_find(t, "rsmi3"), 3);
    assert_true(has_note(t, "does not tell how many XGMI links"));
    char *text = printed(tx_txtopo_nvidia, t, true);
    assert_non_null(strstr(text, "GPU3\tSYS\tSYS\tNODE\t X \tN/A\t1\t\tN/A\n"));
    free(text);
    tx_topology_free(t);
}

/* PCIe alone, on one NUMA node and on two. */
static void pcie(void **state)
{
    tx_topology *t = read_good(WEIGHTS ROWS("40", "40") HOPS ROWS("2", "2") TYPES ROWS("PCIE", "PCIE"));
    assert_cell(t, "GPU0", "GPU1", true, "NODE");
    assert_true(has_note(t, "NODE may be PIX, PXB or PHB"));
    assert_string_equal(t->devices[0].nodes, "");
    tx_topology_free(t);
    t = read_good(WEIGHTS ROWS("72", "72") HOPS ROWS("3", "3") TYPES ROWS("PCIE", "PCIE"));
    assert_cell(t, "GPU0", "GPU1", true, "SYS");
    assert_int_equal(t->note_count, 0);
    tx_topology_free(t);
}

/* NUMA nodes without tables of hops, in the two spellings; -1 is none. */
static void numa(void **state)
{
    tx_topology *t = read_good(TYPES ROWS("PCIE", "PCIE") "== Numa Nodes ==\nGPU[0]\t\t: (Topology) Numa Node: 0\n"
                                                          "GPU[0]\t\t: (Topology) Numa Affinity: 3\n"
                                                          "GPU[1]\t\t: (Topology) Numa Node: 1\n");
    assert_string_equal(t->devices[0].nodes, "3");
    assert_string_equal(t->devices[1].nodes, "1");
    assert_cell(t, "GPU0", "GPU1", true, "SYS");
    tx_topology_free(t);
    t = read_good(TYPES ROWS("PCIE", "PCIE") "GPU 0          : (Topology) Numa Affinity: 2\n"
                                             "GPU 1          : (Topology) Numa Affinity: 2\n");
    assert_cell(t, "GPU0", "GPU1", true, "NODE");
    tx_topology_free(t);
    t = read_good(TYPES ROWS("PCIE", "PCIE") "GPU[0]\t\t: (Topology) Numa Affinity: -1\n"
                                             "GPU[1]\t\t: (Topology) Numa Affinity: 4294967295\n");
    assert_cell(t, "GPU0", "GPU1", true, "?");
    assert_true(has_note(t, "neither NUMA nodes nor hops"));
    tx_topology_free(t);
}

/* Around the tables what terminals show: prompts, warnings, colours, ends of lines; GPUs that were chosen by number. */
static void variants(void **state)
{
    tx_topology *t =
        read_good("$ rocm-smi --showtopo\r\n\x1b[1m=== Link Type between two GPUs ===\x1b[0m\r\n"
                  "ERROR: GPU[6]\t: Cannot read Link Type: Not supported on this machine\r\n"
                  "\tGPU2\tGPU6\tGPU10\r\nGPU2\t0\t0\tXGMI\r\nGPU6\t0\t0\tXXXX\r\nGPU10\tXGMI\tXXXX\t0\r\n");
    assert_int_equal(t->devices[2].number, 10);
    assert_cell(t, "GPU2", "GPU10", true, "XG");
    assert_cell(t, "GPU2", "GPU6", true, "?");
    assert_cell(t, "GPU6", "GPU10", true, "?");
    assert_true(has_note(t, "does not tell the type of some links"));
    tx_topology_free(t);
    t = read_good("== Link Type between two GPUs ==\n       GPU0\nGPU0   0\n\n== Numa Nodes ==\n"
                  "GPU[0]\t\t: (Topology) Numa Affinity: 0\n");
    assert_int_equal(t->device_count, 1);
    assert_string_equal(t->devices[0].nodes, "0");
    tx_topology_free(t);
    t = read_good(TYPES ROWS("XGMI", "XGMI") "== Link accessibility between two GPUs ==\n" HEAD
                                             "GPU0   True  False\nGPU1   True  True\n");
    assert_true(tx_topo_pair_of(t, 0, 1)->p2p[TX_TOPO_ACCESS_READ] == TX_TOPO_P2P_NS);
    assert_true(tx_topo_pair_of(t, 1, 0)->p2p[TX_TOPO_ACCESS_WRITE] == TX_TOPO_P2P_OK);
    tx_topology_free(t);
}

static void broken(void **state)
{
    static const char *const files[][2] = {
        {WEIGHTS ROWS("15", "15"), "has no table \"Link Type between two GPUs\""},
        {"what is between two GPUs\n", "has no table \"Link Type"},
        {TYPES, "line 2: the table \"Link Type between two GPUs\" ends after 0 of 2 rows"},
        {"== Link Type between two GPUs ==\n", "ends after 0 of 0 rows"},
        {TYPES "GPU0   0   XGMI\n", "ends after 1 of 2 rows"},
        {TYPES "GPU0   0   XGMI\n" HOPS ROWS("1", "1"),
         "line 4: the table \"Link Type between two GPUs\" ends after 1"},
        {TYPES "GPU1   XGMI   0\n", "line 3: the rows are not in the header's order: GPU1"},
        {TYPES "GPU0   0\n", "line 3: the row has not as many cells as the header"},
        {TYPES "GPU0   0   XGMI  XGMI\n", "the row has not as many cells as the header"},
        {TYPES ROWS("NVLINK", "XGMI"), "no cell of the table \"Link Type between two GPUs\": NVLINK"},
        {TYPES ROWS("XGMI", "PCIE"), "the link from GPU0 to GPU1 has another type than the one back"},
        {TYPES ROWS("XGMI", "XGMI") HOPS ROWS("one", "1"), "no cell of the table \"Hops between two GPUs\": one"},
        {TYPES ROWS("XGMI", "XGMI") WEIGHTS ROWS("-15", "15"), "no cell of the table \"Weight"},
        {TYPES ROWS("XGMI", "XGMI") TYPES ROWS("XGMI", "XGMI"), "there are two tables"},
        {TYPES ROWS("XGMI", "XGMI") "== Hops between two GPUs ==\n GPU0 GPU2\n", "not of the same GPUs: GPU2"},
        {TYPES ROWS("XGMI", "XGMI") "== Hops between two GPUs ==\n GPU0\n", "not of the same GPUs: GPU0"},
        {"== Link Type between two GPUs ==\n GPU0 GPU0\n", "names a device twice: GPU0"},
        {TYPES ROWS("XGMI", "XGMI") "GPU[7]\t\t: (Topology) Numa Affinity: 0\n", "the tables name no GPU7"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        refuses_text(files[i][0], strlen(files[i][0]), files[i][1]);
    char *text = NULL;
    size_t size = 0;
    assert_ok(tx_file_read(FIXTURES "showtopo.txt", 1 << 20, &text, &size));
    const size_t last = (size_t)(strstr(text, "Numa Nodes") - text);
    for (size_t cut = 1; cut + 100 < last; cut += 13)
        refuses_text(text, cut, "");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole),    cmocka_unit_test(pcie),   cmocka_unit_test(numa),
        cmocka_unit_test(variants), cmocka_unit_test(broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
