/* SPDX-License-Identifier: Apache-2.0
 * Which hosts count as alike, and what is said of the others. */
#include "tests/topology/helper.h"

/* What differs, allocated. */
static char *difference(const tx_topology *usual, const tx_topology *other)
{
    char *text = NULL;
    int32_t lines = 0;
    PRINTED(text, lines = tx_txtopo_differ(out, usual, other));
    assert_int_equal(tx_txtopo_differ(NULL, usual, other), lines);
    assert_true((lines == 0) == (*text == '\0'));
    return text;
}

static void assert_differs(const tx_topology *usual, const tx_topology *other, const char *wanted)
{
    char *text = difference(usual, other);
    assert_string_equal(text, wanted);
    free(text);
}

static tx_topology *fixture(void)
{
    return read_topology(FIXTURES "classes.xml");
}

static tx_topo_device *device(tx_topology *t, const char *label)
{
    int32_t index = tx_topo_find(t, label);
    assert_true(index >= 0);
    return &t->devices[index];
}

/* Names, bus ids, idle links and a little less memory make no other kind. */
static void alike(void **state)
{
    tx_topology *a = fixture(), *b = fixture();
    b->host = "node7";
    device(b, "NIC0")->system = "mlx5_9";
    device(b, "GPU3")->bus = "0000:0b:00.0";
    b->numa[0].memory -= b->numa[0].memory / 100;
    b->nodes[device(b, "GPU0")->node].link.speed = 2.5;
    b->nodes[device(b, "GPU0")->node].iommu_group = 99;
    assert_differs(a, b, "");
    tx_topology_free(a);
    tx_topology_free(b);
}

static void unlike(void **state)
{
    tx_topology *a = fixture(), *b = fixture();
    a->nodes[device(a, "GPU0")->node].link.width = 16;
    b->nodes[device(b, "GPU0")->node].link.width = 8;
    device(b, "GPU2")->name = "Tesla V100-SXM2-32GB";
    device(b, "GPU3")->platform = 1;
    device(b, "GPU4")->nodes = "1";
    b->pairs[0 * b->device_count + 1].links = 1;
    b->numa[1].memory /= 2;
    assert_differs(a, b,
                   "  GPU0: the link of 0000:03:00.0 has 8 lanes, not 16\n"
                   "  GPU2: is NVIDIA Tesla V100-SXM2-32GB, not NVIDIA Tesla V100-SXM2-16GB\n"
                   "  GPU3: is an OpenCL device\n"
                   "  GPU4: NUMA affinity 1, not 0\n"
                   "  GPU0-GPU1: NV1, not NV2\n"
                   "  NUMA node 1: 4.0 GiB, not 8.0 GiB\n");
    tx_topology_free(a);
    tx_topology_free(b);
}

static void missing(void **state)
{
    tx_topology *a = fixture(), *b = fixture();
    b->device_count--; /* NIC1, the last */
    b->nics--;
    assert_differs(a, b, "  NICs: 1, not 2\n  missing: 0000:08:00.1 Mellanox MT27800 Family [ConnectX-5]\n");
    assert_differs(b, a, "  NICs: 2, not 1\n  in addition: 0000:08:00.1 Mellanox MT27800 Family [ConnectX-5]\n");
    tx_topology_free(a);
    tx_topology_free(b);
}

/* Lines beyond the twentieth are counted. */
static void many(void **state)
{
    tx_topology *a = fixture(), *b = fixture();
    for (int64_t i = 0; i < (int64_t)b->device_count * b->device_count; i++)
        b->pairs[i].class_ = TX_TOPO_LOC;
    char *text = difference(a, b);
    assert_non_null(strstr(text, "\n  and "));
    free(text);
    tx_topology_free(a);
    tx_topology_free(b);
}

/* The most common kind first, whoever comes first; who failed is of none. */
static void kinds(void **state)
{
    char *text = NULL;
    static const char *const names[] = {"n0", "n1", "n2", "n3"};
    tx_txtopo_host hosts[5] = {0};
    for (int i = 0; i < 4; i++) {
        hosts[i].topology = fixture();
        hosts[i].topology->host = names[i];
    }
    hosts[4].error = strdup("n4: broken");
    hosts[0].topology->numa[0].memory /= 4;
    PRINTED(text, assert_ok(tx_txtopo_kinds(out, hosts, 5, true, false)));
    assert_true(strncmp(text, "5 hosts, 2 kinds.\n\nKind 1, 3 hosts: n1, n2, n3\n", 47) == 0);
    assert_non_null(strstr(text, "\nKind 2, 1 host: n0\nNot as in kind 1, which most hosts are:\n"
                                 "  NUMA node 0: 2.0 GiB, not 8.0 GiB\n"));
    free(text);
    free(hosts[4].error);
    for (int i = 0; i < 4; i++)
        tx_topology_free(hosts[i].topology);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alike), cmocka_unit_test(unlike), cmocka_unit_test(missing),
        cmocka_unit_test(many),  cmocka_unit_test(kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
