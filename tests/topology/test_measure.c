/* SPDX-License-Identifier: Apache-2.0
 * Measured copies: complete on this machine, whatever it is, with rates that are numbers (how high they are decides
 * nothing); stopped; in JSON; and what is pointed out, on made-up rates. */
#include "comm/topology/copy.h"
#include "comm/topology/measure.h"
#include "comm/topology/placement.h"
#include "tests/topology/helper.h"

#include <math.h>

/* ---- This machine ------------------------------------------------------------------------------------- */

static tx_topology *live(void)
{
    tx_topology *t = NULL;
    assert_ok(tx_topology_live(NULL, &t));
    return t;
}

static int32_t count_kind(const tx_topology *t, tx_topo_copy_kind kind)
{
    int32_t count = 0;
    for (int32_t i = 0; i < t->copy_count; i++)
        count += t->copies[i].kind == kind;
    return count;
}

static bool counted(void *context, const tx_topology *t, const tx_topo_copy *next, int32_t done, int32_t count)
{
    int32_t *calls = context;
    assert_true(next->from < t->device_count && next->to < t->device_count);
    assert_int_equal(done, *calls);
    assert_true(done < count);
    ++*calls;
    return true;
}

static void assert_measured(const tx_topology *t, const tx_topo_copy *c)
{
    if (*c->failure)
        fail_msg("%s by %s was not measured: %s", tx_topo_copy_names[c->kind], tx_topo_method_names[c->method],
                 c->failure);
    assert_true(isfinite(c->bandwidth) && c->bandwidth > 0);
    assert_true(isfinite(c->latency) && (c->latency > 0) == (c->kind != TX_TOPO_COPY_IN_HOST));
    assert_true(c->bytes > 0 && c->runs >= 3 && c->runs % 2 == 1);
    assert_true(*tx_topo_method_names[c->method] && *tx_topo_method_texts[c->method]);
    if (c->kind != TX_TOPO_COPY_BETWEEN)
        return;
    bool same = t->devices[c->from].platform == t->devices[c->to].platform;
    assert_int_equal(c->method, same ? TX_TOPO_METHOD_ONE_CONTEXT : TX_TOPO_METHOD_THROUGH_HOST);
}

static void complete(void **state)
{
    int32_t calls = 0, nodes = 0, devices = 0;
    tx_topology *t = live(), *again = NULL;
    tx_topo_measure_options how = {.size = sizeof how, .bytes_max = 1 << 20, .go_on = counted, .context = &calls};
    assert_int_equal(t->copies_planned, 0);
    assert_ok(tx_topo_measure(t, &how));
    for (int32_t i = 0; i < t->numa_count; i++)
        nodes += t->numa[i].device < 0 && *t->numa[i].cpus;
    nodes += nodes == 0;
    for (int32_t i = 0; i < t->device_count; i++)
        devices += t->devices[i].platform >= 0;
    assert_int_equal(t->copy_count, t->copies_planned);
    assert_int_equal(t->copy_count, calls);
    assert_int_equal(count_kind(t, TX_TOPO_COPY_IN_HOST), nodes);
    assert_int_equal(count_kind(t, TX_TOPO_COPY_TO_DEVICE), 2 * nodes * devices);
    assert_int_equal(count_kind(t, TX_TOPO_COPY_FROM_DEVICE), 2 * nodes * devices);
    assert_int_equal(count_kind(t, TX_TOPO_COPY_BETWEEN), devices * (devices - 1));
    for (int32_t i = 0; i < t->copy_count; i++)
        assert_measured(t, &t->copies[i]);
    /* What is written reads the same. */
    for (int full = 0; full < 2; full++) {
        char *text = tx_topology_json(t, full), *second = NULL;
        assert_non_null(text);
        assert_ok(tx_topology_parse(text, strlen(text), "json", &again));
        second = tx_topology_json(again, full);
        assert_string_equal(text, second);
        free(text);
        free(second);
        tx_topology_free(again);
    }
    tx_topology_free(t);
}

static bool after_one(void *context, const tx_topology *t, const tx_topo_copy *next, int32_t done, int32_t count)
{
    (void)t;
    (void)next;
    (void)count;
    return done < 1;
}

static void partial(void **state)
{
    char *text = NULL;
    tx_topology *t = live();
    tx_topo_measure_options how = {.size = sizeof how, .bytes_max = 4096, .go_on = after_one};
    t->numa_count = 0; /* bound nowhere */
    assert_ok(tx_topo_measure(t, &how));
    assert_int_equal(t->copy_count, 1);
    assert_int_equal(t->copies[0].numa, -1);
    assert_int_equal(t->copies[0].bytes, 4096);
    if (t->copies_planned == 1)
        t->copies_planned = 2; /* no OpenCL device here */
    PRINTED(text, tx_txtopo_measured(out, t));
    assert_non_null(strstr(text, "\nStopped: 1 of "));
    free(text);
    tx_topology_free(t);
}

/* A node whose CPUs are not there, or cannot be used, is told, and the thread gets its own CPUs back. */
static void bound(void **state)
{
    char *before = NULL, *after = NULL;
    tx_topology *t = live();
    tx_topo_measure_options how = {.size = sizeof how, .bytes_max = 4096, .go_on = after_one};
    if (t->numa_count == 0)
        skip();
    t->numa[0].cpus = "65000";
    t->numa[0].device = -1;
    assert_ok(tx_placement_cpus(&before));
    assert_ok(tx_topo_measure(t, &how));
    assert_int_equal(t->copy_count, 1);
    assert_non_null(strstr(t->copies[0].failure, "cannot run on CPUs 65000"));
    assert_true(!(t->copies[0].bandwidth > 0));
    assert_ok(tx_placement_cpus(&after));
    assert_string_equal(before, after);
    free(before);
    free(after);
    tx_topology_free(t);
}

/* PoCL hides hwloc's plugins once it runs; a file and the machine read the same before and after. */
static void after_opencl(void **state)
{
    setenv("HWLOC_PLUGINS_PATH", "/dev/null", 1);
    tx_topology *t = read_topology(FIXTURES "classes.xml");
    assert_string_equal(getenv("HWLOC_PLUGINS_PATH"), "/dev/null");
    assert_cell(t, "GPU0", "GPU1", true, "NV2");
    tx_topology_free(t);
}

static void refused(void **state)
{
    tx_topology *t = read_topology(FIXTURES "classes.xml");
    tx_topo_measure_options how = {.size = 1};
    assert_refused(tx_topo_measure(t, NULL), TX_INVALID, "not of the machine that runs");
    assert_refused(tx_topo_measure(t, &how), TX_INVALID, "size is 1");
    tx_topology_free(t);
}

/* ---- What is pointed out ---------------------------------------------------------------------------------- */

static tx_topo_copy between(const tx_topology *t, const char *from, const char *to, double bandwidth)
{
    return (tx_topo_copy){.kind = TX_TOPO_COPY_BETWEEN,
                          .method = TX_TOPO_METHOD_ONE_CONTEXT,
                          .from = tx_topo_find(t, from),
                          .to = tx_topo_find(t, to),
                          .numa = -1,
                          .bytes = 4096,
                          .runs = 3,
                          .bandwidth = bandwidth,
                          .latency = 5,
                          .failure = ""};
}

static tx_topo_copy to_device(const tx_topology *t, const char *to, int32_t numa, double bandwidth)
{
    tx_topo_copy copy = between(t, to, to, bandwidth);
    copy.kind = TX_TOPO_COPY_TO_DEVICE;
    copy.method = TX_TOPO_METHOD_PINNED;
    copy.from = -1;
    copy.numa = numa;
    return copy;
}

/* NV2, PXB, PIX, NODE, SYS between devices; GPU0 hangs from NUMA node 0, GPU7 from node 1. */
enum { NV2, PXB, PIX, NODE, SYS, OTHER, NEAR, FAR, FAR_TOO, COPIES };

static tx_topology *made_up(void)
{
    tx_topology *t = read_topology(FIXTURES "classes.xml");
    tx_topo_copy *c = calloc(COPIES, sizeof *c);
    assert_non_null(c);
    c[NV2] = between(t, "GPU0", "GPU1", 40);
    c[PXB] = between(t, "GPU1", "GPU2", 12);
    c[PIX] = between(t, "GPU0", "NIC0", 13);
    c[NODE] = between(t, "GPU0", "GPU4", 10);
    c[SYS] = between(t, "GPU0", "GPU7", 9);
    c[OTHER] = between(t, "GPU0", "GPU5", 99); /* SYS, but another method */
    c[OTHER].method = TX_TOPO_METHOD_THROUGH_HOST;
    c[NEAR] = to_device(t, "GPU0", 0, 24);
    c[FAR] = to_device(t, "GPU0", 1, 20);
    c[FAR_TOO] = to_device(t, "GPU7", 0, 90); /* another device */
    t->copies = c;
    t->copy_count = t->copies_planned = COPIES;
    return t;
}

static void distances(void **state)
{
    static const int order[] = {NV2, PIX, PXB, NODE, SYS};
    tx_topology *t = made_up();
    for (int i = 0; i + 1 < 5; i++)
        assert_true(tx_topo_copy_distance(t, &t->copies[order[i]]) <
                    tx_topo_copy_distance(t, &t->copies[order[i + 1]]));
    assert_int_equal(tx_topo_copy_distance(t, &t->copies[NEAR]), 0);
    assert_int_equal(tx_topo_copy_distance(t, &t->copies[FAR]), 1);
    tx_topo_copy host = {.kind = TX_TOPO_COPY_IN_HOST, .from = -1, .to = -1};
    assert_int_equal(tx_topo_copy_distance(t, &host), -1);
    tx_topology_free(t);
}

static void pointed_out(void **state)
{
    char *text = NULL;
    tx_topology *t = made_up();
    for (int i = 0; i < COPIES; i++)
        assert_int_equal(tx_topo_copy_beaten(t, i), -1);
    t->copies[SYS].bandwidth = 13.2; /* within a tenth of PXB */
    assert_int_equal(tx_topo_copy_beaten(t, PXB), -1);
    assert_int_equal(tx_topo_copy_beaten(t, NODE), SYS);
    t->copies[SYS].bandwidth = 15;
    t->copies[NODE].bandwidth = 16;
    assert_int_equal(tx_topo_copy_beaten(t, PXB), NODE);
    assert_int_equal(tx_topo_copy_beaten(t, PIX), NODE);
    assert_int_equal(tx_topo_copy_beaten(t, NV2), -1);
    assert_int_equal(tx_topo_copy_beaten(t, NODE), -1);
    t->copies[FAR].bandwidth = 50;
    assert_int_equal(tx_topo_copy_beaten(t, NEAR), FAR);
    t->copies[PIX].bandwidth = 0; /* not measured */
    t->copies[PIX].failure = "clFinish: OpenCL error -36";
    assert_int_equal(tx_topo_copy_beaten(t, PIX), -1);
    PRINTED(text, tx_txtopo_measured(out, t); tx_txtopo_html(out, t));
    assert_non_null(strstr(text, "slower than GPU0 to GPU4 (NODE, 16.0 GB/s)"));
    assert_non_null(strstr(text, "slower than from NUMA node 1, which is far (50.0 GB/s)"));
    assert_non_null(strstr(text, "clFinish: OpenCL error -36\n"));
    assert_non_null(strstr(text, "<h2>Measured</h2>"));
    assert_non_null(strstr(text, "\nMeasured: 40.0 GB/s, 5.0 \xc2\xb5s (copy-buffer)"));
    free(text);
    tx_topology_free(t);
}

static void broken_json(void **state)
{
    static const char *const edits[][2] = {{"\"from\": 0, \"to\": 1", "\"from\": 0, \"to\": 0"},
                                           {"\"from\": 0, \"to\": 1", "\"from\": 0, \"to\": 10"},
                                           {"\"from\": 0, \"to\": 1", "\"from\": 0, \"to\": null"},
                                           {"\"planned\": 9", "\"planned\": 8"},
                                           {"\"pinned\"", "\"pinne!\""},
                                           {"\"bandwidth\": 40.0", "\"bandwidth\": -1.0"}};
    tx_topology *t = made_up(), *read = NULL;
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        char *text = tx_topology_json(t, false), *bad = calloc(strlen(text) + 8, 1), *at = strstr(text, "\"measured\"");
        assert_non_null(at);
        at = strstr(at, edits[i][0]);
        if (!at)
            fail_msg("%s is not in %s", edits[i][0], text);
        memcpy(bad, text, (size_t)(at - text));
        strcat(strcat(bad, edits[i][1]), at + strlen(edits[i][0]));
        assert_int_equal(tx_topology_parse(bad, strlen(bad), "json", &read), TX_FORMAT);
        free(text);
        free(bad);
    }
    tx_topology_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(complete),    cmocka_unit_test(partial),      cmocka_unit_test(bound),
        cmocka_unit_test(refused),     cmocka_unit_test(after_opencl), cmocka_unit_test(distances),
        cmocka_unit_test(pointed_out), cmocka_unit_test(broken_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
