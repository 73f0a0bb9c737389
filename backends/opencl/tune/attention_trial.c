/* SPDX-License-Identifier: Apache-2.0
 *
 * Known-answer tests and measurements of the forms of attention kernels.
 */
#include "backends/opencl/tune/trials.h"

/* Limits of measured commands, which bound time and memory. */
#define MEASURE_TOKENS 4096         /* of a row */
#define MEASURE_ELEMENTS (16 << 20) /* of qkv, unless one row has more */

typedef struct extent {
    int64_t B, T;
    int32_t heads, kv_heads;
    tx_dtype type;
} extent;

/* Returns the command of `a` with other sizes. */
static tx_command command_of(const tx_cl_attention_job *a, tx_cl_attention_kernel kernel, const extent *e)
{
    const bool backward = kernel != TX_CL_FORWARD;
    const int64_t width = (int64_t)(e->heads + 2 * e->kv_heads) * a->d;
    const tx_operand qkv = {.dtype = e->type, .shape = TX_SHAPE(e->B, e->T, width)},
                     o = {.dtype = e->type, .shape = TX_SHAPE(e->B, e->T, (int64_t)e->heads * a->d)},
                     lse = {.dtype = TX_F32, .shape = TX_SHAPE(e->B, e->heads, e->T)};
    const int lengths = backward ? 4 : 1, starts = lengths + 1;
    tx_command c = tx_probe_command(a->command->op, &a->command->attrs);
    c.attrs.attention.heads = e->heads;
    c.attrs.attention.kv_heads = e->kv_heads;
    c.in[0] = backward ? o : qkv;
    if (backward) {
        c.in[1] = qkv;
        c.in[2] = o;
        c.in[3] = lse;
    }
    if (tx_present(&a->command->in[lengths]))
        c.in[lengths] = (tx_operand){.dtype = TX_I32, .shape = TX_SHAPE(e->B)};
    if (tx_present(&a->command->in[starts]))
        c.in[starts] = (tx_operand){.dtype = TX_I32, .shape = TX_SHAPE(e->B, e->T)};
    if (a->sinks)
        c.in[3] = (tx_operand){.dtype = TX_F32, .shape = TX_SHAPE(e->heads)};
    c.out[0] = backward ? qkv : o;
    c.out[1] = lse;
    return c;
}

/* Row t belongs to the packed sample that begins at a multiple of `sample`. */
static void put_starts(tx_probe *probe, const tx_operand *starts, int64_t sample)
{
    for (int64_t i = 0; tx_present(starts) && i < tx_operand_count(starts); i++)
        ((int32_t *)(void *)(probe->data + starts->offset))[i] =
            (int32_t)(i % tx_shape_last(&starts->shape) / sample * sample);
}

/* ---- Known-answer test ----------------------------------------------------------------------- */

/* The last queries of T keys, ending two before the end. */
static tx_command cached_command(const tx_cl_attention_job *a, const extent *e, int64_t queries)
{
    const tx_operand cache = {.dtype = TX_F32, .shape = TX_SHAPE(1, e->T, (int64_t)e->kv_heads * a->d)};
    tx_command c = tx_probe_command(a->command->op, &a->command->attrs);
    c.attrs.attention.heads = e->heads;
    c.attrs.attention.kv_heads = e->kv_heads;
    c.attrs.attention.causal = true;
    c.attrs.draw.p = 0.0f;
    c.in[0] =
        (tx_operand){.dtype = TX_F32, .shape = TX_SHAPE(1, queries, (int64_t)(e->heads + 2 * e->kv_heads) * a->d)};
    c.in[1] = c.in[2] = cache;
    c.in[3] = (tx_operand){.dtype = TX_I32, .shape = TX_SHAPE(1)};
    if (a->sinks)
        c.in[5] = (tx_operand){.dtype = TX_F32, .shape = TX_SHAPE(e->heads)};
    c.out[0] = (tx_operand){.dtype = TX_F32, .shape = TX_SHAPE(1, queries, (int64_t)e->heads * a->d)};
    return c;
}

/* One row of several tiles with few heads. A window or packed samples of the command end within tiles. */
static tx_status create(const tx_cl_attention_job *a, tx_cl_attention_kernel kernel, const tx_cl_attention_form *form,
                        tx_probe *probe)
{
    const int64_t tile = form->rows > form->cols ? form->rows : form->cols, queries = a->T > 1 ? form->rows + 5 : 1;
    extent e = {.B = 1, .T = 3 * tile - 11, .kv_heads = a->kv_heads > 1 ? 2 : 1};
    e.heads = a->heads > a->kv_heads ? 2 * e.kv_heads : e.kv_heads;
    e.type = a->type; /* of the program that the plan launches */
    *probe = (tx_probe){.command = a->cached ? cached_command(a, &e, queries) : command_of(a, kernel, &e)};
    probe->command.attrs.attention.window = a->command->attrs.attention.window > 0 ? (int32_t)tile / 2 + 3 : 0;
    TX_TRY(tx_probe_create(probe));
    tx_probe_fill(probe, TX_PROBE_ROUGH, (int32_t)(a->cached ? e.T - queries - 2 : e.T - 5));
    if (!a->cached)
        put_starts(probe, &probe->command.in[kernel == TX_CL_FORWARD ? 2 : 5], tile + 7);
    const tx_operand *lse = &probe->command.in[3];
    /* Makes most probabilities less than 1. */
    for (int64_t i = 0; kernel != TX_CL_FORWARD && i < tx_operand_count(lse); i++)
        tx_probe_put(probe->data, lse, i, 4.0f + tx_probe_get(probe->data, lse, i));
    return TX_OK;
}

/* Tolerances for fp32, or for scores and results that are rounded to 16 bits. */
static void set_tolerances(tx_cl_attention_kernel kernel, const tx_cl_attention_job *a, tx_probe *probe)
{
    const tx_dtype type = probe->command.out[0].dtype;
    const int64_t queries = (int64_t)probe->command.attrs.attention.heads * a->d,
                  keys = (int64_t)probe->command.attrs.attention.kv_heads * a->d;
    probe->tolerance[0] = type == TX_F32 ? 2e-5 : type == TX_BF16 ? 0x1.8p-7 : 0x1.8p-10;
    probe->tolerance[1] = kernel == TX_CL_FORWARD ? 2e-5 : -1.0;
    if (kernel == TX_CL_GRAD_Q)
        probe->part[0] = (tx_columns){0, queries};
    else if (kernel == TX_CL_GRAD_KV) {
        probe->part[0] = (tx_columns){queries, keys};
        probe->part[1] = (tx_columns){queries + keys, keys};
    }
}

tx_status tx_cl_attention_verify(const tx_cl_builder *b, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel,
                                 const tx_cl_attention_form *form)
{
    const tx_cl_forced forced = {a->cached ? TX_CL_ATTENTION_CACHED : tx_cl_attention_keys[kernel], form->name,
                                 b->limits};
    tx_probe probe;
    tx_status status = create(a, kernel, form, &probe);
    set_tolerances(kernel, a, &probe);
    TX_THEN(status, tx_cl_verify_candidate(b, &forced, &probe));
    tx_probe_free(&probe);
    return status;
}

/* ---- Measurement ----------------------------------------------------------------------------- */

void tx_cl_attention_cut(const tx_cl_attention_job *a, int64_t *B, int64_t *T)
{
    *T = tx_cl_least(a->T, MEASURE_TOKENS);
    const int64_t samples = MEASURE_ELEMENTS / (*T * a->last);
    *B = tx_cl_least(a->B, samples > 1 ? samples : 1);
}

tx_status tx_cl_attention_measure(const tx_cl_builder *b, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel,
                                  const char *form, tx_dtype type, double *seconds)
{
    const tx_cl_forced forced = {tx_cl_attention_keys[kernel], form, b->limits};
    extent e = {.heads = a->heads, .kv_heads = a->kv_heads, .type = type};
    tx_cl_attention_cut(a, &e.B, &e.T);
    tx_probe probe = {.command = command_of(a, kernel, &e)};
    if (b->ahead)
        return tx_cl_want_candidate(b, &forced, &probe.command);
    tx_status status = tx_probe_create(&probe);
    if (!status) {
        tx_probe_fill(&probe, TX_PROBE_ROUGH, (int32_t)e.T); /* lengths of whole rows */
        put_starts(&probe, &probe.command.in[kernel == TX_CL_FORWARD ? 2 : 5], e.T);
        status = tx_cl_measure_candidate(b, &forced, &probe, seconds);
    }
    tx_probe_free(&probe);
    return status;
}
