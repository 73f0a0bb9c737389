/* SPDX-License-Identifier: Apache-2.0
 * One command alone, on memory of its own. */
#include "backends/opencl/solo.h"

#include "api/base/half.h"

#include <math.h>
#include <string.h>

#define TIMED_RUNS 5
#define TIMED_SECONDS 0.25

tx_command tx_cl_solo_command(tx_op op, const tx_attrs *attrs)
{
    tx_command c = {.op = op, .attrs = *attrs};
    for (int i = 0; i < TX_MAX_IN; i++)
        c.in[i].dtype = TX_DTYPE_COUNT;
    for (int i = 0; i < TX_MAX_OUT; i++)
        c.out[i].dtype = TX_DTYPE_COUNT;
    return c;
}

static void place(tx_operand *o, int64_t *end)
{
    if (!tx_present(o))
        return;
    o->arena = TX_ARENA_PLANNED;
    o->chunk = 0;
    o->offset = *end;
    *end += (tx_operand_bytes(o) / TX_ALIGNMENT + 2) * TX_ALIGNMENT;
}

void tx_cl_solo_place(tx_cl_solo *s)
{
    s->bytes = TX_ALIGNMENT;
    for (int i = 0; i < TX_MAX_IN; i++)
        place(&s->command.in[i], &s->bytes);
    for (int i = 0; i < TX_MAX_OUT; i++)
        place(&s->command.out[i], &s->bytes);
}

void tx_cl_solo_put(void *data, tx_dtype type, int64_t i, float v)
{
    if (type == TX_F32)
        ((float *)data)[i] = v;
    else
        ((uint16_t *)data)[i] = type == TX_BF16 ? tx_f32_to_bf16(v) : tx_f32_to_f16(v);
}

float tx_cl_solo_get(const void *data, tx_dtype type, int64_t i)
{
    if (type == TX_F32)
        return ((const float *)data)[i];
    const uint16_t h = ((const uint16_t *)data)[i];
    return type == TX_BF16 ? tx_bf16_to_f32(h) : tx_f16_to_f32(h);
}

void tx_cl_solo_fill(const tx_cl_solo *s, int32_t integers, unsigned char *host)
{
    uint32_t random = 1;
    memset(host, 0, (size_t)s->bytes);
    for (int i = 0; i < TX_MAX_IN; i++) {
        const tx_operand *o = &s->command.in[i];
        for (int64_t k = 0; tx_present(o) && k < tx_operand_count(o); k++) {
            random = random * 1664525u + 1013904223u;
            if (o->dtype == TX_I32)
                ((int32_t *)(host + o->offset))[k] = integers;
            else
                tx_cl_solo_put(host + o->offset, o->dtype, k, (float)(int32_t)random * 0x1p-31f);
        }
    }
}

tx_status tx_cl_solo_open(tx_context *context, tx_cl_solo *s, const void *host)
{
    int64_t scratch = 0;
    s->program = (tx_program){1, &s->command};
    tx_status status = tx_cl_prepare(context, &s->program, &s->executable, &scratch);
    if (status == TX_OK && context->survey)
        return tx_fail(TX_UNSUPPORTED, "a survey runs nothing");
    if (status == TX_OK)
        status = tx_cl_allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, s->bytes, &s->memory);
    if (status == TX_OK && scratch > 0)
        status = tx_cl_allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, scratch, &s->scratch);
    if (status == TX_OK)
        status = tx_cl_allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, sizeof(tx_controls), &s->control);
    if (status != TX_OK)
        return status;
    tx_bindings bindings = {.arena = {[TX_ARENA_PLANNED] = {1, &s->memory},
                                      [TX_ARENA_CONTROL] = {1, &s->control},
                                      [TX_ARENA_SCRATCH] = {scratch > 0, &s->scratch}}};
    status = tx_cl_bind(s->executable, &bindings);
    if (status == TX_OK)
        status = tx_cl_write(context, TX_QUEUE_COMPUTE, s->control, 0, &s->controls, sizeof s->controls);
    if (status == TX_OK)
        status = tx_cl_write(context, TX_QUEUE_COMPUTE, s->memory, 0, host, s->bytes);
    return status == TX_OK ? tx_cl_finish(context) : status;
}

void tx_cl_solo_close(tx_context *context, tx_cl_solo *s)
{
    tx_cl_destroy(s->executable);
    tx_buffer *const buffers[] = {s->memory, s->scratch, s->control};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        if (buffers[i])
            tx_cl_release(context, buffers[i]);
    s->executable = NULL; /* it may be opened again, in vain */
    s->memory = s->scratch = s->control = NULL;
}

tx_status tx_cl_solo_run(tx_context *context, const tx_cl_solo *s)
{
    tx_status status = tx_cl_run_program(s->executable, 0, 1, &s->controls, NULL);
    return status == TX_OK ? tx_cl_finish(context) : status;
}

tx_status tx_cl_solo_time(tx_context *context, const tx_cl_solo *s, double *seconds)
{
    tx_status status = TX_OK;
    const double first = tx_cl_now();
    double best = INFINITY;
    for (int i = 0; i < TIMED_RUNS && !status && (i == 0 || tx_cl_now() - first < TIMED_SECONDS); i++) {
        const double start = tx_cl_now();
        status = tx_cl_solo_run(context, s);
        best = fmin(best, tx_cl_now() - start);
    }
    context->tune_spent += tx_cl_now() - first;
    if (!status)
        *seconds = best;
    return status;
}
