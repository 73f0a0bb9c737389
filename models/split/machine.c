/* SPDX-License-Identifier: Apache-2.0
 * Measures the devices and links of a run's ranks. */
#include "models/split/split.h"

#include "comm/comm.h"

#include <math.h>
#include <stdlib.h>

/* Starting a plan takes nearly a millisecond on a CPU, a quarter of the time of a product of size 512 on one core. */
enum { RUNS = 3, SMALLEST = 1024, SUMMED = 1 << 22, SCALED = 1 << 24 };
#define ENOUGH 5e-3 /* seconds of a product that make the start of its plan negligible */

/* ---- The device ------------------------------------------------------------------------------------------------ */

/* The minimum time of a plan's runs, except the first. */
static tx_status time_plan(tx_engine *engine, tx_graph *graph, tx_tensor *result, double *seconds)
{
    tx_plan *plan = NULL;
    tx_output(result);
    tx_status status = tx_plan_create(graph, "measured", &plan);
    *seconds = INFINITY;
    for (int i = 0; i <= RUNS && !status; i++) {
        const double begin = tx_now();
        status = tx_plan_run(plan);
        TX_THEN(status, tx_engine_finish(engine));
        *seconds = i ? fmin(*seconds, tx_now() - begin) : *seconds;
    }
    tx_plan_free(plan);
    return status;
}

/* Builds a result with `size` numbers in each dimension. The operands of products have the type `dtype`. */
typedef tx_tensor *compute(tx_graph *graph, int64_t size, tx_dtype dtype);

static tx_tensor *product(tx_graph *graph, int64_t size, tx_dtype dtype)
{
    tx_tensor *a = tx_fill(graph, TX_SHAPE(size, size), 1.0f);
    a = dtype == TX_F32 ? a : tx_cast(a, dtype);
    return tx_matmul(a, a, false, false);
}

/* Writes an array, reads it and writes another. There is no input, since the host would keep several copies of it. */
static tx_tensor *scaling(tx_graph *graph, int64_t count, tx_dtype dtype)
{
    (void)dtype;
    return tx_scale(tx_fill(graph, TX_SHAPE(count), 1.0f), 2.0f);
}

static tx_status time_result(tx_engine *engine, compute *result, int64_t size, tx_dtype dtype, double *seconds)
{
    tx_model *model = NULL;
    tx_graph *graph = NULL;
    tx_status status = tx_model_create(engine, &model);
    TX_THEN(status, tx_graph_create(model, &graph));
    TX_THEN(status, time_plan(engine, graph, result(graph, size, dtype), seconds));
    tx_graph_free(graph);
    tx_model_free(model);
    return status;
}

/* Whether a few fp32 arrays of `count` numbers need little of the device's memory. */
static bool is_small(const tx_device_info *device, int64_t count)
{
    const int64_t bytes = 4 * (int64_t)sizeof(float) * count;
    return (!device->memory || bytes <= device->memory / 8) &&
           (!device->max_allocation || bytes <= device->max_allocation);
}

static tx_status measure_device(tx_engine *engine, tx_dtype products, tx_split_machine *m)
{
    const tx_device_info *device = tx_engine_device(engine);
    double seconds = 0.0;
    for (int64_t size = SMALLEST; size == SMALLEST || (is_small(device, size * size) && seconds < ENOUGH); size *= 2) {
        TX_TRY(time_result(engine, product, size, products, &seconds));
        m->rate = fmax(m->rate, 2.0 * pow((double)size, 3.0) / seconds);
    }
    int64_t count = SCALED;
    while (!is_small(device, count) && count > SMALLEST)
        count /= 2;
    TX_TRY(time_result(engine, scaling, count, TX_F32, &seconds));
    m->moving = 3.0 * sizeof(float) * (double)count / seconds;
    m->peak = m->rate;
    return TX_OK;
}

/* ---- Links ----------------------------------------------------------------------------------------------------- */

static tx_status time_sum(tx_comm *comm, float *data, int64_t count, double *seconds)
{
    *seconds = INFINITY;
    for (int i = 0; i <= RUNS; i++) {
        TX_TRY(tx_comm_collect(comm, TX_BARRIER, NULL, 0, TX_F32, 0));
        const double begin = tx_now();
        TX_TRY(tx_comm_collect(comm, TX_ALL_REDUCE, data, count, TX_F32, 0));
        *seconds = i ? fmin(*seconds, tx_now() - begin) : *seconds;
    }
    return TX_OK;
}

/* Measures a link by all-reduces of one number and of many numbers, and solves tx_split_sum for its terms. One rank has
 * no link: its rate is infinite. */
static tx_status measure_link(tx_comm *comm, float *data, tx_split_link *link)
{
    const double n = (double)comm->size;
    double small, large;
    *link = (tx_split_link){INFINITY, 0.0};
    if (comm->size == 1)
        return TX_OK;
    TX_TRY(time_sum(comm, data, 1, &small));
    TX_TRY(time_sum(comm, data, SUMMED, &large));
    link->latency = small / (2.0 * ceil(log2(n)));
    link->rate = 2.0 * (n - 1.0) / n * sizeof(float) * SUMMED / fmax(large - small, 1e-9);
    return TX_OK;
}

/* Measures links within a host, and between hosts with one rank of each host. */
static tx_status measure_links(tx_comm *comm, tx_split_machine *m)
{
    tx_comm *inside = NULL, *outside = NULL;
    const tx_comm_rank *mine = &comm->ranks[comm->rank];
    TX_TRY(tx_comm_sub(comm, mine->host, comm->rank, &inside));
    TX_TRY(tx_comm_sub(comm, comm->local_rank, comm->rank, &outside));
    float *data = calloc(SUMMED, sizeof *data);
    if (!data)
        return tx_fail(TX_MEMORY, "no memory to measure the links");
    tx_status status = measure_link(inside, data, &m->inside);
    TX_THEN(status, measure_link(outside, data, &m->outside));
    free(data);
    m->host = comm->local_size;
    return status;
}

/* ---- All ------------------------------------------------------------------------------------------------------- */

static void keep_slower(tx_split_link *link, const tx_split_link *other)
{
    link->rate = fmin(link->rate, other->rate);
    link->latency = fmax(link->latency, other->latency);
}

tx_status tx_split_measure(tx_engine *engine, tx_comm *comm, tx_dtype products, tx_split_machine *machine)
{
    tx_split_machine *all = calloc((size_t)comm->size, sizeof *all), *mine = &all[comm->rank];
    if (!all)
        return tx_fail(TX_MEMORY, "no memory to compare the ranks");
    tx_status status = measure_device(engine, products, mine);
    TX_THEN(status, measure_links(comm, mine));
    TX_THEN(status, tx_comm_share(comm, all, sizeof *all));
    *machine = all[0];
    for (int32_t r = 1; r < comm->size; r++) {
        machine->rate = machine->peak = fmin(machine->rate, all[r].rate);
        machine->moving = fmin(machine->moving, all[r].moving);
        machine->host = all[r].host < machine->host ? all[r].host : machine->host;
        keep_slower(&machine->inside, &all[r].inside);
        keep_slower(&machine->outside, &all[r].outside);
    }
    free(all);
    return status;
}
