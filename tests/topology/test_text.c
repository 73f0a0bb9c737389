/* SPDX-License-Identifier: Apache-2.0
 * The tree as text: a line a node, links below their maximum, devices without a place, and files that nest deeply. */
#include "tests/topology/helper.h"

static char *tree_of(const tx_topology *t)
{
    char *text = NULL;
    PRINTED(text, tx_txtopo_tree(out, t));
    return text;
}

/* The tree has all of `wanted`, in this order. */
static void shows(const tx_topology *t, const char *const *wanted)
{
    char *text = tree_of(t);
    for (const char *at = text; *wanted; wanted++) {
        at = strstr(at, *wanted);
        if (!at)
            fail_msg("\"%s\" is missing (or out of order) in\n%s", *wanted, text);
    }
    free(text);
}

#define SHOWS(t, ...) shows(t, (const char *const[]){__VA_ARGS__, NULL})

static void tree(void **state)
{
    tx_topology *t = read_topology(FIXTURES "classes.xml");
    SHOWS(t, "machine", "\n  Package 0, CPUs 0-3, NUMA nodes 0\n", "\n    0000:[00-0f] host-bridge\n",
          "0000:03:00.0  GPU0 ", "0000:07:00.0  GPU2 ", "\n  Package 1, CPUs 4-7, NUMA nodes 1\n",
          "0000:82:00.0  GPU7 ");
    tx_topo_node *gpu0 = &t->nodes[t->devices[0].node];
    gpu0->link = (tx_topo_pcie){.speed = 8, .speed_max = 16, .width = 8, .width_max = 16};
    gpu0->iommu_group = 7;
    SHOWS(t, "GPU0 ", ", 8 GT/s x8 of at most 16 GT/s x16, 7.9 GB/s, IOMMU group 7\n");
    t->devices[7].node = 0;
    SHOWS(t, "machine", "\n  GPU7 ", "Package 0");
    /* Each node has one line, each device one place. */
    char *text = tree_of(t);
    int32_t lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        lines++;
    assert_int_equal(lines, t->node_count + 1);
    free(text);
    tx_topology_free(t);
}

/* A chain of bridges that is deeper than any stack of calls. */
static void deep(void **state)
{
    enum { DEPTH = 20000 };
    tx_topo_node *nodes = calloc(DEPTH, sizeof *nodes);
    assert_non_null(nodes);
    for (int32_t i = 0; i < DEPTH; i++)
        nodes[i] = (tx_topo_node){.kind = i ? TX_TOPO_BRIDGE : TX_TOPO_MACHINE,
                                  .parent = i - 1,
                                  .name = "",
                                  .bus = "",
                                  .cpus = "",
                                  .nodes = ""};
    char *text = tree_of(&(tx_topology){.nodes = nodes, .node_count = DEPTH});
    assert_true(strlen(text) < (size_t)DEPTH * 128);
    free(text);
    free(nodes);
}

static void machines(void **state)
{
    tx_topology *t = recorded("23-dgxa100-onenode-excerpt");
    SHOWS(t, "machine", "Package ", "0000:01:00.0 Broadcom", "0000:07:00.0  GPU0 ", "0000:0c:00.0  NIC0 ");
    tx_topology_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tree), cmocka_unit_test(deep), cmocka_unit_test(machines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
