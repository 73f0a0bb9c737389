/* SPDX-License-Identifier: Apache-2.0
 * What is measured, in which order, how long, and what of it is odd. */
#include "comm/topology/measure.h"

#include "api/base/clock.h"
#include "comm/topology/copy.h"
#include "comm/topology/draft.h"
#include "comm/topology/placement.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SMALL = 4,        /* bytes of a copy that takes nothing but its latency */
    FIRST = 1 << 20,  /* bytes to guess the rate by; no bandwidth is measured with less */
    MOST = 128 << 20, /* beyond caches, and on PCIe 5 still far above any latency */
    WARM = 2,         /* runs that are not counted */
    RUNS = 7,         /* for the bandwidth */
    SMALL_RUNS = 51,  /* for the latency */
};
#define RUN_SECONDS 0.04 /* of one run, at most about this */

typedef struct measuring {
    tx_topology *t;
    const tx_topo_measure_options *options;
    tx_topo_cl *cl;
    tx_topo_copy *copies;
    int32_t count;
    tx_draft draft; /* keeps the first failure */
} measuring;

/* ---- What there is to measure ---------------------------------------------------------------------- */

static void plan(measuring *m, tx_topo_copy_kind kind, tx_topo_method method, int32_t from, int32_t to, int32_t numa)
{
    tx_topo_copy *copy = TX_DRAFT_APPEND(&m->draft, m->copies, m->count);
    if (copy)
        *copy = (tx_topo_copy){.kind = kind, .method = method, .from = from, .to = to, .numa = numa, .failure = ""};
}

/* All that is measured with the host's memory on one NUMA node. */
static void plan_node(measuring *m, int32_t numa)
{
    static const tx_topo_method methods[] = {TX_TOPO_METHOD_PINNED, TX_TOPO_METHOD_PAGEABLE};
    plan(m, TX_TOPO_COPY_IN_HOST, TX_TOPO_METHOD_MEMCPY, -1, -1, numa);
    for (int32_t i = 0; i < m->t->device_count; i++)
        for (int k = 0; k < 2 && m->t->devices[i].platform >= 0; k++) {
            plan(m, TX_TOPO_COPY_TO_DEVICE, methods[k], -1, i, numa);
            plan(m, TX_TOPO_COPY_FROM_DEVICE, methods[k], i, -1, numa);
        }
}

static void plan_all(measuring *m)
{
    const tx_topology *t = m->t;
    for (int32_t i = 0; i < t->numa_count; i++)
        if (t->numa[i].device < 0 && *t->numa[i].cpus)
            plan_node(m, t->numa[i].number);
    if (m->count == 0)
        plan_node(m, -1);
    for (int32_t a = 0; a < t->device_count; a++)
        for (int32_t b = 0; b < t->device_count; b++) {
            const int32_t from = t->devices[a].platform, to = t->devices[b].platform;
            if (a != b && from >= 0 && to >= 0)
                plan(m, TX_TOPO_COPY_BETWEEN, from == to ? TX_TOPO_METHOD_ONE_CONTEXT : TX_TOPO_METHOD_THROUGH_HOST, a,
                     b, -1);
        }
}

/* ---- One copy -------------------------------------------------------------------------------------------- */

/* The buffers of a copy: OpenCL's, or two of the host. */
typedef struct way {
    tx_topo_cl_way *cl;
    char *source, *target;
    size_t bytes;
} way;

static void close_way(way *w)
{
#ifdef TX_OPENCL
    tx_topo_cl_way_close(w->cl);
#endif
    free(w->source);
    free(w->target);
    *w = (way){0};
}

static tx_status open_way(measuring *m, const tx_topo_copy *copy, size_t bytes, way *w)
{
    *w = (way){.bytes = bytes};
#ifdef TX_OPENCL
    if (copy->kind != TX_TOPO_COPY_IN_HOST)
        return tx_topo_cl_way_open(m->cl, copy, bytes, &w->cl);
#else
    (void)m;
    (void)copy;
#endif
    w->source = malloc(bytes);
    w->target = malloc(bytes);
    if (!w->source || !w->target) {
        close_way(w);
        return tx_fail(TX_MEMORY, "%zu bytes of host memory: out of memory", 2 * bytes);
    }
    memset(w->source, 1, bytes); /* by this thread, so that the memory is of its node */
    memset(w->target, 2, bytes);
    return TX_OK;
}

static tx_status run_way(way *w, double *seconds)
{
#ifdef TX_OPENCL
    if (w->cl)
        return tx_topo_cl_way_run(w->cl, seconds);
#endif
    double start = tx_now();
    memcpy(w->target, w->source, w->bytes);
    *seconds = tx_now() - start;
    w->source[0] = (char)(w->target[w->bytes - 1] + 1); /* what is copied is used, so it cannot be left out */
    return TX_OK;
}

static int compare(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

double tx_topo_median(double *values, int32_t count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return count > 0 ? values[count / 2] : 0;
}

/* Median of `runs` (odd, at most SMALL_RUNS) copies of `bytes`; slow ones are repeated less often, at least thrice. */
static tx_status median(measuring *m, const tx_topo_copy *copy, size_t bytes, int32_t runs, double *seconds,
                        int32_t *made)
{
    double times[SMALL_RUNS], warm = 0;
    int32_t count = 0;
    way w;
    tx_status status = open_way(m, copy, bytes, &w);
    if (status)
        return status;
    for (int32_t i = 0; i < WARM && !status; i++)
        status = run_way(&w, &warm);
    const double end = tx_now() + 0.5;
    while (!status && count < runs && (count < 3 || count % 2 == 0 || tx_now() < end)) {
        status = run_way(&w, &times[count]);
        count += !status;
    }
    close_way(&w);
    if (status)
        return status;
    *seconds = tx_topo_median(times, count);
    *made = count;
    return TX_OK;
}

static int64_t least(int64_t limit, int64_t memory, int64_t share)
{
    return memory > 0 && memory / share < limit ? memory / share : limit;
}

/* The most that one run may take of the memories that it uses. */
static int64_t limit_of(const measuring *m, const tx_topo_copy *copy)
{
    int64_t limit = m->options->bytes_max > 0 ? m->options->bytes_max : MOST;
    if (copy->from >= 0)
        limit = least(limit, m->t->devices[copy->from].memory, 8);
    if (copy->to >= 0)
        limit = least(limit, m->t->devices[copy->to].memory, 8);
    for (int32_t i = 0; i < m->t->numa_count; i++)
        if (m->t->numa[i].number == copy->numa)
            limit = least(limit, m->t->numa[i].memory, 16);
    return limit;
}

static tx_status measure(measuring *m, tx_topo_copy *copy)
{
    double latency = 0, first = 0, seconds = 0;
    int64_t bytes = FIRST, limit = limit_of(m, copy);
    int32_t runs = 0;
    if (limit < bytes)
        bytes = limit < SMALL ? SMALL : limit / SMALL * SMALL;
    tx_status status = median(m, copy, SMALL, SMALL_RUNS, &latency, &runs);
    TX_THEN(status, median(m, copy, (size_t)bytes, 3, &first, &runs));
    if (status)
        return status;
    for (double expected = first; 2 * expected <= RUN_SECONDS && 2 * bytes <= limit; expected *= 2)
        bytes *= 2;
    status = median(m, copy, (size_t)bytes, RUNS, &seconds, &runs);
    if (status)
        return status;
    copy->bytes = bytes;
    copy->runs = runs;
    copy->bandwidth = seconds > 0 ? (double)bytes / seconds / 1e9 : 0;
    copy->latency = copy->kind == TX_TOPO_COPY_IN_HOST ? 0 : latency * 1e6;
    return seconds > 0 ? TX_OK : tx_fail(TX_IO, "the clock did not move during a copy of %" PRId64 " bytes", bytes);
}

/* What fails is told in the copy; only memory for telling it can fail. */
static tx_status measure_on_node(measuring *m, tx_topo_copy *copy)
{
    char *own = NULL;
    const char *cpus = "";
    for (int32_t i = 0; i < m->t->numa_count; i++)
        if (copy->numa >= 0 && m->t->numa[i].number == copy->numa)
            cpus = m->t->numa[i].cpus;
    tx_status status = *cpus ? tx_placement_cpus(&own) : TX_OK;
    if (!status && *cpus)
        status = tx_topo_cpus_move(cpus);
    TX_THEN(status, measure(m, copy));
    if (status)
        copy->failure = tx_topo_pool_text(m->t->pool, tx_error());
    /* These were the thread's own; the kernel refuses them only when an administrator took them away meanwhile. */
    if (own)
        tx_topo_cpus_move(own);
    free(own);
    if (copy->failure)
        return TX_OK;
    copy->failure = "";
    return tx_fail(TX_MEMORY, "topology: out of memory");
}

/* ---- All of them --------------------------------------------------------------------------------------------- */

tx_status tx_topo_measure(tx_topology *topology, const tx_topo_measure_options *options)
{
    static const tx_topo_measure_options defaults = {.size = sizeof defaults};
    measuring m = {.t = topology, .options = options ? options : &defaults};
    if (m.options->size != sizeof defaults)
        return tx_fail(TX_INVALID, "tx_topo_measure_options: size is %zu, not %zu", m.options->size, sizeof defaults);
    if (topology->origin != TX_TOPO_ORIGIN_LIVE || *topology->file || !*topology->host)
        return tx_fail(TX_INVALID, "a topology that is not of the machine that runs cannot be measured");
    plan_all(&m);
#ifdef TX_OPENCL
    if (!m.draft.status)
        m.draft.status = tx_topo_cl_open(topology, &m.cl);
#endif
    int32_t done = 0;
    for (; done < m.count && !m.draft.status; done++) {
        tx_topo_copy *copy = &m.copies[done];
        if (m.options->go_on && !m.options->go_on(m.options->context, topology, copy, done, m.count))
            break;
        m.draft.status = measure_on_node(&m, copy);
    }
#ifdef TX_OPENCL
    tx_topo_cl_close(m.cl);
#endif
    if (m.draft.status) {
        free(m.copies);
        return m.draft.status;
    }
    free(topology->copies);
    topology->copies = m.copies;
    topology->copy_count = done;
    topology->copies_planned = m.count;
    return TX_OK;
}

/* ---- What is odd ------------------------------------------------------------------------------------------------ */

int32_t tx_topo_copy_distance(const tx_topology *topology, const tx_topo_copy *copy)
{
    enum { LINKED = TX_TOPO_LOC + 1 };
    if (copy->kind == TX_TOPO_COPY_IN_HOST)
        return -1;
    if (copy->kind != TX_TOPO_COPY_BETWEEN) {
        const tx_topo_device *d = &topology->devices[copy->from >= 0 ? copy->from : copy->to];
        char node[16];
        snprintf(node, sizeof node, "%" PRId32, copy->numa);
        return !*d->nodes || copy->numa < 0 || d->kind == TX_TOPO_CPU ? -1 : !tx_topo_sets_meet(d->nodes, node);
    }
    const tx_topo_pair *pair = tx_topo_pair_of(topology, copy->from, copy->to);
    if (pair->link == TX_TOPO_LINK_UNKNOWN || pair->indirect || pair->class_ >= TX_TOPO_HOST)
        return -1;
    if (pair->class_ == TX_TOPO_LOC)
        return TX_TOPO_LOC;
    return pair->link != TX_TOPO_NO_LINK ? LINKED : (int32_t)pair->class_ + 1;
}

int32_t tx_topo_copy_beaten(const tx_topology *topology, int32_t index)
{
    const tx_topo_copy *near = &topology->copies[index];
    const int32_t distance = tx_topo_copy_distance(topology, near);
    int32_t fastest = -1;
    double rate = near->bandwidth / 0.9;
    for (int32_t i = 0; i < topology->copy_count && distance >= 0 && near->bandwidth > 0; i++) {
        const tx_topo_copy *far = &topology->copies[i];
        bool ends = near->kind == TX_TOPO_COPY_BETWEEN || (near->from == far->from && near->to == far->to);
        if (ends && far->kind == near->kind && far->method == near->method && far->bandwidth > rate &&
            tx_topo_copy_distance(topology, far) > distance) {
            fastest = i;
            rate = far->bandwidth;
        }
    }
    return fastest;
}
