/* SPDX-License-Identifier: Apache-2.0
 * Which form of attention's kernels is fastest on the device, measured in tuning runs. */
#include "backends/opencl/attention.h"
#include "backends/opencl/solo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Measured commands are cut to these, which bounds time and memory. */
#define MEASURE_TOKENS 4096         /* of a row */
#define MEASURE_ELEMENTS (16 << 20) /* of qkv, where one row is not more */
#define ROUNDS 3
#define HOPELESS 1.5   /* times the best so far */
#define GAIN 0.03      /* a form that is to be preferred stays unless another takes so much less time */
#define DIFFERENT 1e-5 /* relative L2 distance of two forms' results, both summed in fp32 */

/* The command with fewer and shorter rows. */
static void cut(const tx_cl_attention_job *a, tx_command *c)
{
    const int64_t T = tx_cl_least(a->T, MEASURE_TOKENS), room = MEASURE_ELEMENTS / (T * a->last);
    const int64_t B = tx_cl_least(a->B, room > 1 ? room : 1);
    *c = *a->command;
    for (int i = 0; i < TX_MAX_IN + TX_MAX_OUT; i++) {
        tx_operand *o = i < TX_MAX_IN ? &c->in[i] : &c->out[i - TX_MAX_IN];
        const bool sums = i == TX_MAX_IN + 1 || (c->op == TX_OP_ATTENTION_GRAD && i == 3); /* [B, heads, T] */
        if (!tx_present(o))
            continue;
        if (o->dtype == TX_I32)
            o->shape = TX_SHAPE(B);
        else
            o->shape = sums ? TX_SHAPE(B, a->heads, T) : TX_SHAPE(B, T, tx_shape_last(&o->shape));
    }
}

/* Relative L2 distance of the results; NaN where one is not finite. */
static double distance(const float *x, const float *y, int64_t count)
{
    double off = 0.0, norm = 0.0;
    for (int64_t i = 0; i < count; i++) {
        off += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        norm += (double)y[i] * (double)y[i];
    }
    return off / norm;
}

typedef struct measurement {
    tx_cl_solo solo;
    unsigned char *host; /* operands */
    float *first, *now;  /* results of the first form and of the one being measured */
} measurement;

/* One form: its result into m->now, then its time. */
static tx_status measure(tx_context *context, measurement *m, const tx_cl_attention_trial *trial, double *seconds)
{
    const tx_operand *y = &m->solo.command.out[0];
    context->attention_trial = trial;
    tx_status status = tx_cl_solo_open(context, &m->solo, m->host);
    context->attention_trial = NULL;
    if (status == TX_OK)
        status = tx_cl_solo_run(context, &m->solo);
    if (status == TX_OK)
        status = tx_cl_read(context, m->solo.memory, y->offset, m->now, tx_operand_bytes(y));
    if (status == TX_OK)
        status = tx_cl_solo_time(context, &m->solo, seconds);
    tx_cl_solo_close(context, &m->solo);
    return status;
}

/* Whether the form that was measured computes what the first does; the first sets what that is. */
static bool agrees(measurement *m, bool *have_first)
{
    const int64_t count = tx_operand_count(&m->solo.command.out[0]);
    if (!*have_first)
        memcpy(m->first, m->now, (size_t)count * sizeof *m->first);
    *have_first = true;
    return distance(m->now, m->first, count) <= DIFFERENT * DIFFERENT;
}

static bool set_up(const tx_cl_attention_job *a, measurement *m)
{
    cut(a, &m->solo.command);
    tx_cl_solo_place(&m->solo);
    const size_t bytes = (size_t)tx_operand_bytes(&m->solo.command.out[0]);
    m->host = malloc((size_t)m->solo.bytes);
    m->first = malloc(bytes);
    m->now = malloc(bytes);
    if (!m->host || !m->first || !m->now)
        return false;
    tx_cl_solo_fill(&m->solo, (int32_t)tx_cl_least(a->T, MEASURE_TOKENS), m->host); /* lengths of whole rows */
    return true;
}

/* Seconds of all forms, the least of a few rounds, in which other work on the machine shows less than in one; forms
 * that are hopeless after the first are left out of the others. INFINITY: failed or wrong, or the time was up. */
static void measure_all(tx_context *context, measurement *m, tx_cl_attention_kernel kernel,
                        const tx_cl_attention_forms *forms, double until, double least[TX_CL_ATTENTION_FORMS])
{
    bool have_first = false;
    double best = INFINITY;
    for (int i = 0; i < forms->count; i++)
        least[i] = INFINITY;
    for (int i = 0; i < ROUNDS * forms->count && tx_cl_now() < until; i++) {
        const int which = i % forms->count;
        const tx_cl_attention_trial trial = {kernel, forms->form[which].name};
        double seconds;
        if (i >= forms->count && least[which] > HOPELESS * best)
            continue;
        if (measure(context, m, &trial, &seconds) != TX_OK || !agrees(m, &have_first))
            continue;
        least[which] = fmin(least[which], seconds);
        best = fmin(best, seconds);
    }
}

/* For people to read: the form, its time, and of what. */
static void store(tx_context *context, const measurement *m, tx_cl_attention_kernel kernel, const char *key,
                  const char *name, double seconds)
{
    const bool forward = kernel == TX_CL_FORWARD;
    const tx_shape *qkv = &m->solo.command.in[forward ? 0 : 1].shape;
    char value[128];
    snprintf(value, sizeof value, "%s %.3f ms %s at %lld x %lld tokens", name, 1e3 * seconds,
             forward ? "forward" : "backward", (long long)qkv->dim[0], (long long)qkv->dim[1]);
    tx_cl_table_put(context, key, value);
    tx_cl_tell(context, key);
}

const tx_cl_attention_form *tx_cl_attention_measure(tx_context *context, const tx_cl_attention_job *a,
                                                    tx_cl_attention_kernel kernel, const tx_cl_attention_forms *forms,
                                                    const char *key)
{
    const double start = tx_cl_now(), until = start + context->tune->seconds - context->tune_spent;
    measurement m = {.host = NULL};
    double least[TX_CL_ATTENTION_FORMS];
    int winner = -1;
    if (start < until && set_up(a, &m)) {
        measure_all(context, &m, kernel, forms, until, least);
        for (int i = 0; i < forms->count; i++)
            if (least[i] < INFINITY && (winner < 0 || least[i] < (1.0 - GAIN) * least[winner]))
                winner = i;
    }
    free(m.host);
    free(m.first);
    free(m.now);
    context->tune_spent += tx_cl_now() - start;
    if (winner < 0)
        return NULL;
    store(context, &m, kernel, key, forms->form[winner].name, least[winner]);
    return &forms->form[winner];
}
