/* SPDX-License-Identifier: Apache-2.0
 * Gradients of graphs on a device against finite differences of the same graph run by the references. */
#include "api/model/engine.h"
#include "tests/ops/conformance.h"
#include "tests/ops/graphs.h"
#include "tests/ops/mock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers are multiples of 2^-12 within [-2, 2], so that steps of 2^-9 from them are exact in fp32. */
#define GRAIN 4096.0
#define STEP 0x1p-9
/* The loss carries this factor into every gradient. */
#define LOSS_SCALE 4.0f

/* A compiled graph on an engine, with its gradients or with only the loss. */
typedef struct machine {
    tx_engine engine;
    tx_model *model;
    tx_plan *plan;
    tx_builder builder;
    tx_tensor *weights; /* of the outputs in the loss */
} machine;

static double draw(uint32_t a, uint32_t b, int64_t i)
{
    uint64_t z = ((uint64_t)a << 40) + ((uint64_t)b << 32) + (uint64_t)i * UINT64_C(0x9E3779B97F4A7C15) + 7;
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static double coarse(double x)
{
    return floor(x * GRAIN) / GRAIN;
}

static tx_status machine_create(const tx_target *target, const tx_graph_case *c, bool gradients, machine *m)
{
    *m = (machine){.engine = {.backend = target->backend, .context = target->context, .device = target->info}};
    if (m->engine.device.max_allocation == 0)
        m->engine.device.max_allocation = INT64_C(1) << 28;
    tx_status status = tx_model_create(&m->engine, &m->model);
    TX_THEN(status, tx_graph_create(m->model, &m->builder.graph));
    if (status)
        return status;
    tx_tensor *y = c->build(&m->builder);
    if (y)
        m->weights = tx_input(m->builder.graph, "weights of the loss", TX_F32, *tx_tensor_shape(y));
    tx_tensor *loss = tx_reduce(tx_mul(y, m->weights), TX_REDUCE_SUM, TX_AXIS_ALL);
    tx_output(loss);
    if (gradients)
        status = tx_backward(m->builder.graph, loss);
    TX_THEN(status, tx_plan_create(m->builder.graph, c->name, &m->plan));
    const tx_results begin = {.value = {[TX_RESULT_LOSS_SCALE] = LOSS_SCALE}};
    TX_THEN(status, tx_model_restore(m->model, &begin));
    TX_THEN(status, tx_model_set(m->model, TX_CONTROL_INVERSE_LABELS, 0.125));
    TX_THEN(status, tx_model_set(m->model, TX_CONTROL_STEP, 3));
    return status ? status : tx_model_set_seed(m->model, 77);
}

static void machine_free(machine *m)
{
    tx_plan_free(m->plan);
    tx_graph_free(m->builder.graph);
    tx_model_free(m->model);
}

static float param_value(const tx_param_spec *spec, int32_t index, int64_t i)
{
    double centre = spec->init == TX_INIT_ONE ? 1.0 : 0.0;
    return (float)coarse(centre + (double)spec->scale * (2.0 * draw(1, (uint32_t)index, i) - 1.0));
}

/* Writes parameter `index` with its usual values, except for element `at`, to which `move` is added. */
static tx_status write_param(machine *m, int32_t index, int64_t at, double move)
{
    const char *name;
    const tx_param_spec *spec;
    tx_status status = tx_model_param(m->model, index, &name, &spec);
    if (status)
        return status;
    int64_t count = tx_shape_count(&spec->shape);
    float *data = malloc((size_t)count * sizeof *data);
    if (!data)
        return tx_fail(TX_MEMORY, "autodiff: no memory for a parameter");
    for (int64_t i = 0; i < count; i++)
        data[i] = param_value(spec, index, i);
    if (at >= 0)
        data[at] += (float)move;
    status = tx_model_write(m->model, TX_PARAM_WEIGHT, index, data);
    free(data);
    return status;
}

static tx_status write_input(machine *m, tx_tensor *t, double lo, double hi, uint32_t key, int32_t micro)
{
    const tx_shape *shape = tx_tensor_shape(t);
    int64_t count = tx_shape_count(shape);
    union {
        float f32;
        int32_t i32;
    } *data = malloc((size_t)count * sizeof *data);
    if (!data)
        return tx_fail(TX_MEMORY, "autodiff: no memory for an input");
    for (int64_t i = 0; i < count; i++) {
        double x = lo + (hi - lo) * draw(2 + (uint32_t)micro, key, i);
        if (tx_tensor_dtype(t) == TX_F32)
            data[i].f32 = (float)coarse(x);
        else
            data[i].i32 = i % 5 == 2 && m->builder.labels == t ? TX_IGNORE_LABEL : (int32_t)floor(x);
    }
    tx_status status = tx_plan_write(m->plan, t, data, (size_t)count * sizeof *data);
    free(data);
    return status;
}

/* Inputs of one micro-batch, and its number as the sample that keys dropout. */
static tx_status write_inputs(machine *m, int32_t micro)
{
    tx_status status = write_input(m, m->weights, -1.0, 1.0, 99, micro);
    for (int32_t i = 0; i < m->builder.inputs && !status; i++)
        status = write_input(m, m->builder.input[i].tensor, m->builder.input[i].lo, m->builder.input[i].hi, (uint32_t)i,
                             micro);
    return status ? status : tx_model_set(m->model, TX_CONTROL_SAMPLE, 10 * micro);
}

/* ---- The two sides ------------------------------------------------------------------------------ */

/* The loss in double precision with one parameter element moved. */
static tx_status loss_at(machine *mock, int32_t index, int64_t at, double move, double *loss)
{
    tx_status status = write_param(mock, index, at, move);
    TX_THEN(status, tx_plan_run(mock->plan));
    *loss = tx_mock_last(mock->engine.context);
    return status;
}

/* (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12 h: fourth order. Adds to *sum. */
static tx_status add_slope(machine *mock, int32_t index, int64_t at, double *sum)
{
    double near_above = 0.0, near_below = 0.0, far_above = 0.0, far_below = 0.0;
    tx_status status = loss_at(mock, index, at, STEP, &near_above);
    TX_THEN(status, loss_at(mock, index, at, -STEP, &near_below));
    TX_THEN(status, loss_at(mock, index, at, 2.0 * STEP, &far_above));
    TX_THEN(status, loss_at(mock, index, at, -2.0 * STEP, &far_below));
    *sum += (8.0 * (near_above - near_below) - (far_above - far_below)) / (12.0 * STEP);
    return status;
}

/* Slopes of up to 40 elements of a parameter, `stride` apart, summed over the micro-batches. */
static tx_status slopes_of(machine *mock, const tx_graph_case *c, int32_t index, int64_t count, int64_t stride,
                           double *slope)
{
    tx_status status = TX_OK;
    for (int32_t micro = 0; micro < c->micro_batches && !status; micro++) {
        status = write_inputs(mock, micro);
        for (int64_t i = 0; i < count && !status; i += stride)
            status = add_slope(mock, index, i, &slope[i / stride]);
    }
    return status ? status : write_param(mock, index, -1, 0.0);
}

/* Gradients on the device, accumulated over the micro-batches. */
static tx_status differentiate(machine *device, const tx_graph_case *c)
{
    tx_status status = TX_OK;
    for (int32_t i = 0; i < tx_model_param_count(device->model) && !status; i++)
        status = write_param(device, i, -1, 0.0);
    for (int32_t micro = 0; micro < c->micro_batches && !status; micro++) {
        status = write_inputs(device, micro);
        if (!status)
            status = tx_model_set(device->model, TX_CONTROL_ACCUMULATE, micro > 0 ? 1.0 : 0.0);
        TX_THEN(status, tx_plan_run(device->plan));
    }
    return status;
}

static tx_status compare(const char *name, const float *gradient, const double *slope, int64_t count, int64_t stride,
                         double *worst)
{
    double square = 0.0;
    int64_t compared = (count + stride - 1) / stride;
    for (int64_t k = 0; k < compared; k++)
        square += slope[k] * slope[k] / (double)compared;
    if (!(square > 0.0))
        return tx_fail(TX_INTERNAL, "%s: all slopes are zero: mend the case", name);
    for (int64_t k = 0; k < compared; k++) {
        double got = (double)(gradient[k * stride] / LOSS_SCALE), error = fabs(got - slope[k]);
        double tolerance = 5e-6 * (fabs(slope[k]) + sqrt(square));
        if (!(error <= tolerance))
            return tx_fail(TX_INTERNAL, "gradient of %s: element %lld is %.8g, finite difference %.8g, tolerance %.2g",
                           name, (long long)(k * stride), got, slope[k], tolerance);
        *worst = fmax(*worst, error / tolerance);
    }
    return TX_OK;
}

static tx_status check_param(machine *device, machine *mock, const tx_graph_case *c, int32_t index, double *worst)
{
    const char *name;
    const tx_param_spec *spec;
    tx_status status = tx_model_param(device->model, index, &name, &spec);
    if (status)
        return status;
    int64_t count = tx_shape_count(&spec->shape), stride = count / 40 + 1;
    int32_t on_mock = 0;
    double *slope = calloc((size_t)count, sizeof *slope);
    float *gradient = malloc((size_t)count * sizeof *gradient);
    if (!slope || !gradient)
        status = tx_fail(TX_MEMORY, "autodiff: no memory for a gradient");
    TX_THEN(status, tx_model_find(mock->model, name, &on_mock));
    TX_THEN(status, slopes_of(mock, c, on_mock, count, stride, slope));
    TX_THEN(status, tx_model_read(device->model, TX_PARAM_GRADIENT, index, gradient));
    TX_THEN(status, compare(name, gradient, slope, count, stride, worst));
    free(slope);
    free(gradient);
    return status;
}

static tx_status check_graph(const tx_target *target, const tx_target *references, const tx_graph_case *c,
                             double *worst)
{
    machine device, mock = {0};
    tx_status status = machine_create(target, c, true, &device);
    TX_THEN(status, machine_create(references, c, false, &mock));
    TX_THEN(status, differentiate(&device, c));
    for (int32_t i = 0; !status && i < tx_model_param_count(mock.model); i++)
        status = write_param(&mock, i, -1, 0.0);
    for (int32_t i = 0; !status && i < tx_model_param_count(device.model); i++)
        status = check_param(&device, &mock, c, i, worst);
    machine_free(&device);
    machine_free(&mock);
    return status;
}

tx_status tx_conformance_autodiff(const tx_target *target,
                                  void (*report)(void *user, const char *graph, double worst, const char *failure),
                                  void *user)
{
    tx_target references = {.backend = &tx_backend_mock};
    TX_TRY(tx_mock_open(TX_FAULT_NONE, &references.context));
    int32_t count = 0, failed = 0;
    const tx_graph_case *cases = tx_graph_cases(&count);
    for (int32_t i = 0; i < count; i++) {
        double worst = 0.0;
        bool good = check_graph(target, &references, &cases[i], &worst) == TX_OK;
        failed += !good;
        report(user, cases[i].name, worst, good ? NULL : tx_error());
    }
    tx_backend_mock.close(references.context);
    return failed ? tx_fail(TX_INTERNAL, "%d of %d graphs have wrong gradients", failed, count) : TX_OK;
}
