/* SPDX-License-Identifier: Apache-2.0
 * Placements: cores and memory local to each rank's GPU, no core twice, hyperthreads together, even shares; hosts
 * without GPUs; more ranks than cores or GPUs. */
#include "comm/topology/placement.h"
#include "tests/topology/helper.h"

static const tx_topo_cpu *cpu_of(const tx_topology *t, int32_t number)
{
    for (int32_t i = 0; i < t->cpu_count; i++)
        if (t->cpus[i].number == number)
            return &t->cpus[i];
    fail_msg("CPU %d may not be used", (int)number);
    return NULL;
}

static bool lists(const char *set, int32_t number)
{
    int32_t *numbers = NULL, count = 0;
    bool found = false;
    assert_ok(tx_topo_set_parse(set, &numbers, &count));
    for (int32_t i = 0; i < count; i++)
        found = found || numbers[i] == number;
    free(numbers);
    return found;
}

/* A rank's threads are whole cores, near its device and its memory; `users` counts the ranks of each core. */
static void check_place(const tx_topology *t, const tx_topo_place *place, int32_t *users)
{
    int32_t *cpus = NULL, count = 0, cores = 0;
    assert_ok(tx_topo_set_parse(place->cpus, &cpus, &count));
    assert_true(count > 0);
    for (int32_t i = 0; i < count; i++) {
        const tx_topo_cpu *cpu = cpu_of(t, cpus[i]);
        bool first = true;
        for (int32_t k = 0; k < t->cpu_count; k++) {
            if (t->cpus[k].core != cpu->core)
                continue;
            assert_true(lists(place->cpus, t->cpus[k].number));
            first = first && t->cpus[k].number >= cpu->number;
        }
        cores += first;
        users[cpu->core] += first;
        if (cpu->numa >= 0)
            assert_true(lists(place->nodes, cpu->numa));
        if (place->device >= 0 && !place->far && *t->devices[place->device].cpus)
            assert_true(lists(t->devices[place->device].cpus, cpus[i]));
    }
    assert_int_equal(place->cores, cores);
    free(cpus);
}

static void check(const tx_topology *t, const tx_placement *p)
{
    int32_t least = INT32_MAX, most = 0;
    int32_t *users = calloc((size_t)t->cpu_count, sizeof *users);
    assert_non_null(users);
    for (int32_t r = 0; r < p->ranks; r++) {
        check_place(t, &p->places[r], users);
        least = p->places[r].cores < least ? p->places[r].cores : least;
        most = p->places[r].cores > most ? p->places[r].cores : most;
    }
    assert_true(p->least_cores == least && p->most_cores == most);
    for (int32_t r = 0; r < p->ranks; r++) {
        bool shared = false;
        for (int32_t i = 0; i < t->cpu_count; i++)
            shared = shared || (users[t->cpus[i].core] > 1 && lists(p->places[r].cpus, t->cpus[i].number));
        assert_int_equal(p->places[r].shared, shared);
    }
    free(users);
}

/* Places ranks, and checks their placement. */
static tx_placement *place(const tx_topology *t, int64_t ranks)
{
    tx_placement *p = NULL;
    assert_ok(tx_placement_make(t, ranks, &p));
    assert_int_equal(p->ranks, ranks);
    check(t, p);
    return p;
}

static void expect(const tx_topology *t, const tx_topo_place *place, const char *device, const char *cpus,
                   const char *nodes)
{
    assert_string_equal(place->device < 0 ? "" : t->devices[place->device].label, device);
    assert_string_equal(place->cpus, cpus);
    assert_string_equal(place->nodes, nodes);
}

/* ---- Recorded machines ---------------------------------------------------------------------------- */

static void machines_recorded(void **state)
{
    static const struct {
        const char *name;
        const char *devices[4], *cpus[4], *nodes[4];
    } machines[] = {
        {"01-dgx2h-16xV100-nvswitch", {"GPU0", "GPU1", "GPU8", "GPU9"}, {"0", "1", "24", "25"}, {"0", "0", "1", "1"}},
        {"12-corona-8xMI50",
         {"GPU0", "GPU1", "GPU2", "GPU3"},
         {"0-5,48-53", "6-11,54-59", "12-17,60-65", "18-23,66-71"},
         {"0", "0", "0", "0"}},
        {"13-tioga-8xMI250X-xgmi",
         {"GPU0", "GPU1", "GPU2", "GPU3"},
         {"48-55,112-119", "56-63,120-127", "16-23,80-87", "24-31,88-95"},
         {"3", "3", "1", "1"}},
        {"24-epyc7502-4x4090",
         {"GPU0", "GPU1", "GPU2", "GPU3"},
         {"0-15", "16-31", "32-47", "48-63"},
         {"0", "0", "0", "0"}},
    };
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
        tx_topology *t = recorded(machines[i].name);
        tx_placement *p = place(t, 4);
        for (int32_t r = 0; r < 4; r++) {
            assert_true(!p->places[r].shared && !p->places[r].far);
            assert_int_equal(p->places[r].nic, t->devices[p->places[r].device].nic);
            expect(t, &p->places[r], machines[i].devices[r], machines[i].cpus[r], machines[i].nodes[r]);
        }
        tx_placement_free(p);
        for (int32_t ranks = 1; ranks < 40; ranks++) {
            p = place(t, ranks);
            tx_placement_free(p);
        }
        tx_topology_free(t);
    }
}

/* ---- Fixtures -------------------------------------------------------------------------------------- */

static void gpus(void **state)
{
    tx_topology *t = read_topology(FIXTURES "classes.xml");
    /* Two tiles of one card, and their NUMA node's two cores. */
    tx_placement *p = place(t, 2);
    expect(t, &p->places[0], "GPU5", "4-5", "1");
    expect(t, &p->places[1], "GPU6", "6-7", "1");
    tx_placement_free(p);
    p = place(t, 3);
    tx_placement_free(p);
    /* All eight: five near two cores, three near two. */
    p = place(t, 8);
    assert_true(p->gpus == 8 && p->places[0].shared && p->places[7].shared);
    expect(t, &p->places[1], "GPU1", "2-3", "0");
    expect(t, &p->places[2], "GPU2", "0-1", "0");
    tx_placement_free(p);
    p = place(t, 20);
    assert_true(p->gpus == 8 && p->places[19].device == 7);
    tx_placement_free(p);
    assert_refused(tx_placement_make(t, 0, &p), TX_INVALID, "a host has 1 to");
    assert_refused(tx_placement_make(t, TX_TOPO_RANKS_MAX + 1, &p), TX_INVALID, "a host has 1 to");
    tx_topology_free(t);
}

static void no_cores_known(void **state)
{
    tx_placement *p = NULL;
    tx_topology *t = read_good("\tGPU0\nGPU0\t X \n");
    assert_refused(tx_placement_make(t, 2, &p), TX_UNSUPPORTED, "does not list the CPU cores");
    assert_null(p);
    tx_topology_free(t);
}

/* ---- Simulated hosts ------------------------------------------------------------------------------- */

enum { CPUS_MAX = 64, GPUS_MAX = 4 };

typedef struct host {
    tx_topology t;
    tx_topo_cpu cpus[CPUS_MAX];
    tx_topo_device devices[GPUS_MAX];
    tx_topo_pair pairs[GPUS_MAX * GPUS_MAX];
} host;

/* Cores of NUMA node i: cores[i], with two threads each: thread k of core c is CPU c + k * (number of cores). */
static void make_host(host *h, const int32_t *cores, int32_t nodes)
{
    int32_t total = 0, core = 0;
    *h = (host){.t = {.cpus = h->cpus, .devices = h->devices, .pairs = h->pairs, .file = ""}};
    for (int32_t n = 0; n < nodes; n++)
        total += cores[n];
    for (int32_t n = 0; n < nodes; n++)
        for (int32_t i = 0; i < cores[n]; i++, core++)
            for (int32_t k = 0; k < 2; k++)
                h->cpus[core + k * total] = (tx_topo_cpu){core + k * total, core, n, n};
    h->t.cpu_count = 2 * total;
}

static void add_device(host *h, tx_topo_device_kind kind, const char *cpus, const char *nodes)
{
    tx_topo_device *d = &h->devices[h->t.device_count++];
    *d = (tx_topo_device){.kind = kind, .cpus = cpus, .nodes = nodes, .bus = "", .engine = "", .system = "", .nic = -1};
    h->t.gpus += kind == TX_TOPO_GPU;
    h->t.nics += kind == TX_TOPO_NIC;
    snprintf(d->label, sizeof d->label, "%s%d", tx_topo_device_names[kind], (int)(h->t.device_count - 1));
    for (int32_t i = 0; i < GPUS_MAX * GPUS_MAX; i++)
        h->pairs[i] = (tx_topo_pair){.class_ = TX_TOPO_NODE, .ancestor = -1, .note = -1};
}

static void without_gpus(void **state)
{
    host h;
    const int32_t two[] = {4, 4}, odd[] = {6, 2};
    make_host(&h, two, 2);
    add_device(&h, TX_TOPO_NIC, "0-3,8-11", "0");
    add_device(&h, TX_TOPO_NIC, "4-7,12-15", "1");
    tx_placement *p = place(&h.t, 1);
    expect(&h.t, &p->places[0], "", "0-15", "0-1");
    tx_placement_free(p);
    p = place(&h.t, 2);
    expect(&h.t, &p->places[0], "", "0-3,8-11", "0");
    expect(&h.t, &p->places[1], "", "4-7,12-15", "1");
    assert_true(p->places[0].nic == 0 && p->places[1].nic == 1 && p->gpus == 0);
    tx_placement_free(p);
    /* No rank has cores of two nodes. */
    p = place(&h.t, 3);
    expect(&h.t, &p->places[0], "", "0-1,8-9", "0");
    expect(&h.t, &p->places[1], "", "2-3,10-11", "0");
    expect(&h.t, &p->places[2], "", "4-7,12-15", "1");
    assert_true(p->least_cores == 2 && p->most_cores == 4);
    tx_placement_free(p);
    p = place(&h.t, 8);
    for (int32_t r = 0; r < 8; r++)
        assert_true(p->places[r].cores == 1 && !p->places[r].shared);
    tx_placement_free(p);
    p = place(&h.t, 11);
    assert_true(p->places[0].shared && p->cores == 8);
    tx_placement_free(p);
    make_host(&h, odd, 2);
    p = place(&h.t, 4);
    expect(&h.t, &p->places[2], "", "4-5,12-13", "0");
    expect(&h.t, &p->places[3], "", "6-7,14-15", "1");
    tx_placement_free(p);
}

/* Overlapping affinities: a rank that may use few cores gets them, the others leave them to it. */
static void overlapping(void **state)
{
    host h;
    const int32_t one[] = {8};
    make_host(&h, one, 1);
    add_device(&h, TX_TOPO_GPU, "0-7,8-15", "0");
    add_device(&h, TX_TOPO_GPU, "0-3,8-11", "0");
    tx_placement *p = place(&h.t, 2);
    expect(&h.t, &p->places[0], "GPU0", "4-7,12-15", "0");
    expect(&h.t, &p->places[1], "GPU1", "0-3,8-11", "0");
    tx_placement_free(p);
}

/* A process that may not use the cores near a GPU; a GPU at an unknown place. */
static void restricted(void **state)
{
    host h;
    const int32_t one[] = {4};
    make_host(&h, one, 1);
    add_device(&h, TX_TOPO_GPU, "100-107", "1");
    add_device(&h, TX_TOPO_GPU, "", "");
    tx_placement *p = place(&h.t, 2);
    assert_true(p->places[0].far && !p->places[1].far);
    expect(&h.t, &p->places[0], "GPU0", "0-1,4-5", "0");
    expect(&h.t, &p->places[1], "GPU1", "2-3,6-7", "0");
    tx_placement_free(p);
    p = place(&h.t, 1); /* the one with cores */
    assert_int_equal(p->places[0].device, 1);
    tx_placement_free(p);
}

/* Some of the GPUs: the worst pair counts first, then all pairs. */
static void nearest(void **state)
{
    host h;
    const int32_t one[] = {8};
    make_host(&h, one, 1);
    for (int32_t i = 0; i < 4; i++)
        add_device(&h, TX_TOPO_GPU, "0-15", "0");
    h.pairs[2 * 4 + 3].class_ = h.pairs[3 * 4 + 2].class_ = TX_TOPO_PIX;
    tx_placement *p = place(&h.t, 3);
    assert_true(p->places[0].device == 0 && p->places[1].device == 2 && p->places[2].device == 3);
    tx_placement_free(p);
    p = place(&h.t, 2);
    assert_true(p->places[0].device == 2 && p->places[1].device == 3);
    tx_placement_free(p);
    for (int32_t i = 0; i < 4; i++) /* one is far from all others */
        h.pairs[2 * 4 + i].class_ = h.pairs[i * 4 + 2].class_ = i == 3 ? TX_TOPO_PIX : TX_TOPO_SYS;
    p = place(&h.t, 3);
    assert_true(p->places[0].device == 0 && p->places[1].device == 1 && p->places[2].device == 3);
    tx_placement_free(p);
}

/* A container's or a job's cores are shared out, and no others. */
static void confined(void **state)
{
    host h;
    const int32_t two[] = {4, 4};
    make_host(&h, two, 2);
    assert_refused(tx_placement_confine(&h.t, "20-30"), TX_UNSUPPORTED, "none of the CPUs 20-30");
    assert_refused(tx_placement_confine(&h.t, "x"), TX_FORMAT, "x");
    assert_int_equal(h.t.cpu_count, 16);
    assert_ok(tx_placement_confine(&h.t, "1,3-5,9,13,40"));
    tx_placement *p = place(&h.t, 2);
    assert_int_equal(p->cores, 4);
    expect(&h.t, &p->places[0], "", "1,3,9", "0");
    expect(&h.t, &p->places[1], "", "4-5,13", "1");
    tx_placement_free(p);
}

/* The lines for launchers; warnings. */
static void lines(void **state)
{
    static const char *const wanted[] = {
        "   2  cores   -       cpu        4      4-7,12-15  1            -\n",
        "Note: ranks have 2 to 4 cores",
        "  mpiexec -n 3 -bind-to user:0+1+8+9,2+3+10+11,4+5+6+7+12+13+14+15 PROGRAM\n",
        "  srun -n 3 --cpu-bind=mask_cpu:0x303,0xc0c,0xf0f0 PROGRAM\n",
        "  mpirun --bind-to none -n 1 env numactl --physcpubind=0-1,8-9 --membind=0 PROGRAM : -n 1 env numactl",
        "  hwloc-bind -p --cpubind pu:0-1 pu:8-9 --membind node:0 -- PROGRAM  # rank 0\n",
        "  hwloc-bind -p --cpubind pu:4-7 pu:12-15 --membind node:1 -- PROGRAM  # rank 2\n",
    };
    host h;
    const int32_t two[] = {4, 4};
    make_host(&h, two, 2);
    char *text = NULL;
    PRINTED(text, {
        assert_ok(tx_txtopo_bind(out, &h.t, 3));
        assert_ok(tx_txtopo_bind(out, &h.t, 9));
        add_device(&h, TX_TOPO_GPU, "100-107", "1");
        assert_ok(tx_txtopo_bind(out, &h.t, 2));
    });
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (!strstr(text, wanted[i]))
            fail_msg("\"%s\" is missing in\n%s", wanted[i], text);
    assert_non_null(strstr(text, "Warning: 2 ranks share cores with others: there are more ranks than usable cores"));
    assert_non_null(strstr(text, "Warning: 2 ranks share 1 GPU."));
    assert_non_null(strstr(text, "Warning: 2 ranks have cores far from their GPUs"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machines_recorded), cmocka_unit_test(gpus),        cmocka_unit_test(no_cores_known),
        cmocka_unit_test(without_gpus),      cmocka_unit_test(overlapping), cmocka_unit_test(restricted),
        cmocka_unit_test(nearest),           cmocka_unit_test(confined),    cmocka_unit_test(lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
