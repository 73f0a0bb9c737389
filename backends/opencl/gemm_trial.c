/* SPDX-License-Identifier: Apache-2.0
 * Trials of matrix products: the command, and data with which fp32 sums are exact. */
#include "backends/opencl/gemm.h"

#include "backends/nf4.h"

#include <math.h>

/* A product that is measured is proven as well if it has no more multiplications than this: the cpu backend takes a
 * moment for it. */
#define PROVEN 500e6

enum { A, B, BIAS, Z };

/* Relative to the largest value: an epilogue's exponentials differ in the last bits. */
#define EPILOGUE_TOLERANCE 1e-5

/* Numbers of 4 bits: -1, 0 and 1 times 1/2, 1 or 3/2 by block. With double quantisation the map contains its code less
 * 1, scale and mean of the groups are 1/2. */
static void put_packed(unsigned char *data, tx_dtype type, int64_t count)
{
    static const unsigned char codes[] = {0, 7, 15};
    float *absmax = (float *)(void *)(data + tx_nf4_absmax_at(count)),
          *map = (float *)(void *)(data + tx_nf4_map_at(count)),
          *groups = (float *)(void *)(data + tx_nf4_groups_at(count));
    uint32_t random = 1;
    for (int64_t i = 0; i < count / 2; i++) {
        random = random * 1664525u + 1013904223u;
        data[i] = (unsigned char)(codes[(random >> 24) % 3] << 4 | codes[(random >> 16) % 256 % 3]);
    }
    for (int64_t b = 0; b < count / TX_NF4_BLOCK; b++)
        if (type == TX_NF4)
            absmax[b] = 0.5f * (float)(1 + b % 3);
        else
            data[tx_nf4_codes_at(count) + b] = (unsigned char)(1 + b % 3);
    for (int i = 0; i < TX_NF4_MAP && type != TX_NF4; i++)
        map[i] = (float)i - 1.0f;
    for (int64_t g = 0; g < 2 * tx_nf4_groups(count) && type != TX_NF4; g++)
        groups[g] = 0.5f;
}

static tx_shape matrix(int64_t batch, int64_t rows, int64_t columns)
{
    return batch > 1 ? TX_SHAPE(batch, rows, columns) : TX_SHAPE(rows, columns);
}

/* Where group e begins: groups have 0, 5, 3, 1, 6, 4 and 2 shares, again and again, and one share is of none. */
static int64_t group_begin(const tx_cl_trial *t, int64_t e)
{
    const int64_t rows = t->trans_a ? t->k : t->m;
    int64_t before = 0, all = 1;
    for (int64_t i = 0; i < t->groups; i++) {
        all += i * 5 % 7;
        before += i < e ? i * 5 % 7 : 0;
    }
    return rows * before / all;
}

/* A MATMUL becomes one by groups. */
static void lay_out_groups(const tx_cl_trial *t, tx_command *c)
{
    c->op = t->trans_a ? TX_OP_GROUPED_MATMUL_GRAD : TX_OP_GROUPED_MATMUL;
    c->in[BIAS] = (tx_operand){.dtype = TX_I32, .shape = TX_SHAPE(t->groups + 1)};
    if (t->trans_a)
        c->out[0].shape = TX_SHAPE(t->groups, t->m, t->n);
    else
        c->in[B].shape = t->trans_b ? TX_SHAPE(t->groups, t->n, t->k) : TX_SHAPE(t->groups, t->k, t->n);
}

static void lay_out(const tx_cl_trial *t, tx_command *c)
{
    const bool keeps = t->epilogue == TX_EPILOGUE_GELU;
    const tx_attrs attrs = {.trans_a = t->trans_a,
                            .trans_b = t->trans_b,
                            .flat = t->batch == 1,
                            .accumulate = t->accumulate,
                            .epilogue = t->epilogue,
                            .exact = t->exact,
                            .keeps = keeps};
    *c = tx_probe_command(TX_OP_MATMUL, &attrs);
    c->in[A].dtype = c->in[B].dtype = t->from;
    if (t->packed != TX_F32)
        c->in[B].dtype = t->packed;
    c->in[A].shape = t->trans_a ? matrix(t->batch, t->k, t->m) : matrix(t->batch, t->m, t->k);
    c->in[B].shape = t->trans_b ? matrix(t->batch, t->n, t->k) : matrix(t->batch, t->k, t->n);
    if (t->bias)
        c->in[BIAS] = (tx_operand){.dtype = TX_F32, .shape = TX_SHAPE(t->n)};
    c->out[0].dtype = t->to;
    c->out[0].shape = matrix(t->batch, t->m, t->n);
    if (keeps)
        c->out[1] = c->out[0];
    else if (t->epilogue != TX_EPILOGUE_NONE)
        c->in[Z] = c->out[0];
    if (t->groups > 0)
        lay_out_groups(t, c);
}

static tx_status create(const tx_cl_trial *t, tx_probe_numbers numbers, tx_probe *probe)
{
    const bool rounds = t->epilogue == TX_EPILOGUE_GELU || t->epilogue == TX_EPILOGUE_GELU_GRAD;
    *probe = (tx_probe){.tolerance = {rounds ? EPILOGUE_TOLERANCE : 0.0}};
    lay_out(t, &probe->command);
    TX_TRY(tx_probe_create(probe));
    tx_probe_fill(probe, numbers, 0);
    const tx_operand *b = &probe->command.in[B], *offsets = &probe->command.in[BIAS];
    if (t->packed != TX_F32)
        put_packed(probe->data + b->offset, t->packed, tx_operand_count(b));
    for (int64_t e = 0; t->groups > 0 && e <= t->groups; e++)
        ((int32_t *)(void *)(probe->data + offsets->offset))[e] = (int32_t)group_begin(t, e);
    return TX_OK;
}

tx_status tx_cl_gemm_trial(tx_context *context, const char *provider, const tx_cl_trial *trial, double *seconds)
{
    const tx_cl_forced forced = {TX_CL_PRODUCT, provider};
    tx_probe probe;
    tx_status status = create(trial, TX_PROBE_EXACT, &probe);
    if (!status && (!seconds || (double)(trial->batch * trial->m * trial->n) * (double)trial->k <= PROVEN))
        status = tx_cl_trial_prove(context, &forced, &probe);
    if (!status && seconds)
        status = tx_cl_trial_measure(context, &forced, &probe, seconds);
    tx_probe_free(&probe);
    return status;
}

/* ---- Errors of data that have all bits ------------------------------------------------------------------------ */

#define ERROR_SIDE 64 /* rows and columns of such a product */

static double error_of(const tx_cl_trial *t, const tx_probe *probe, const unsigned char *got)
{
    const tx_operand *a = &probe->command.in[A], *b = &probe->command.in[B], *y = &probe->command.out[0];
    double squares = 0.0, errors = 0.0;
    for (int64_t i = 0; i < t->m; i++)
        for (int64_t j = 0; j < t->n; j++) {
            double sum = 0.0;
            for (int64_t p = 0; p < t->k; p++)
                sum += (double)tx_probe_get(got, a, t->trans_a ? p * t->m + i : i * t->k + p) *
                       (double)tx_probe_get(got, b, t->trans_b ? j * t->k + p : p * t->n + j);
            const double error = (double)tx_probe_get(got, y, i * t->n + j) - sum;
            squares += sum * sum;
            errors += error * error;
        }
    return sqrt(errors / squares);
}

tx_status tx_cl_gemm_error(tx_context *context, const char *provider, bool trans_a, bool trans_b, int64_t k,
                           double *error)
{
    const tx_cl_forced forced = {TX_CL_PRODUCT, provider};
    const tx_cl_trial trial = {.batch = 1,
                               .m = ERROR_SIDE,
                               .n = ERROR_SIDE,
                               .k = k,
                               .trans_a = trans_a,
                               .trans_b = trans_b,
                               .from = TX_F32,
                               .to = TX_F32};
    tx_probe probe;
    tx_probe_run run = {.backend = NULL};
    tx_status status = create(&trial, TX_PROBE_ROUGH, &probe);
    if (!status)
        status = tx_cl_trial_open(context, &forced, &probe, &run);
    if (!status)
        status = tx_probe_launch(&run);
    if (!status)
        status = tx_probe_read(&run, probe.data);
    if (!status)
        *error = error_of(&trial, &probe, probe.data);
    tx_probe_close(&run);
    tx_probe_free(&probe);
    return status;
}
