/* SPDX-License-Identifier: Apache-2.0
 *
 * Known-answer tests and measurements of matrix products: the command, and data for which fp32 sums are exact.
 */
#include "backends/opencl/tune/trials.h"

#include "api/base/half.h"
#include "backends/nf4.h"
#include "backends/q8.h"

#include <math.h>

/* A measured product is also tested if it has at most this many multiplications, because the cpu backend then takes
 * only a moment. */
#define PROVEN 500e6

enum { A, B, BIAS, Z };

/* Relative to the largest value, because the exponentials of an epilogue differ in the last bits. */
#define EPILOGUE_TOLERANCE 1e-5

/* Test data of 8 bits: -1, 0 and 1 times 1/2 or 1 by block. */
static void put_q8(unsigned char *data, int64_t count)
{
    uint16_t *scales = (uint16_t *)(void *)(data + count);
    for (int64_t i = 0; i < count; i++)
        data[i] = (unsigned char)(i * i % 3 - i / 5 % 2);
    for (int64_t b = 0; b < count / TX_Q8_BLOCK; b++)
        scales[b] = tx_f32_to_f16(b % 2 ? 1.0f : 0.5f);
}

/* 4-bit test data: -1, 0 and 1 times 1/2, 1 or 3/2 by block. With double quantization map[code] is code - 1, and
 * scale and mean of the groups are 1/2. */
static void put_nf4(unsigned char *data, tx_dtype type, int64_t count)
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

/* Test data of MXFP4: -1, 0 and 1 times 1/2 or 1 by block. */
static void put_mxfp4(unsigned char *data, int64_t count)
{
    static const unsigned char codes[] = {0, 2, 10};
    for (int64_t i = 0; i < count / 2; i++)
        data[i] = (unsigned char)(codes[(i * i + i / 7) % 3] << 4 | codes[(i + i / 5) % 3]);
    for (int64_t b = 0; b < count / TX_E2M1_BLOCK; b++)
        data[count / 2 + b] = (unsigned char)(126 + b % 2);
}

static tx_shape matrix(int64_t batch, int64_t rows, int64_t columns)
{
    return batch > 1 ? TX_SHAPE(batch, rows, columns) : TX_SHAPE(rows, columns);
}

/* Returns the first row of group e. Groups have 0, 5, 3, 1, 6, 4 and 2 shares, repeatedly, and one share belongs to
 * no group. */
static int64_t group_begin(const tx_cl_gemm_case *t, int64_t e)
{
    const int64_t rows = t->trans_a ? t->k : t->m;
    int64_t before = 0, all = 1;
    for (int64_t i = 0; i < t->groups; i++) {
        all += i * 5 % 7;
        before += i < e ? i * 5 % 7 : 0;
    }
    return rows * before / all;
}

/* Changes a MATMUL to a grouped product. */
static void set_groups(const tx_cl_gemm_case *t, tx_command *c)
{
    c->op = t->op;
    c->in[BIAS] = (tx_operand){.dtype = TX_I32, .shape = TX_SHAPE(t->groups + 1)};
    if (t->trans_a)
        c->out[0].shape = TX_SHAPE(t->groups, t->m, t->n);
    else
        c->in[B].shape = t->trans_b ? TX_SHAPE(t->groups, t->n, t->k) : TX_SHAPE(t->groups, t->k, t->n);
}

static void set_shapes(const tx_cl_gemm_case *t, tx_command *c)
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
        set_groups(t, c);
}

/* If each addition rounds, the error of a sum of `terms` random numbers is a random walk with steps of a third of a
 * unit in the last place. Elements with large partial sums have up to four times that error; tf32 products have a
 * hundred times that error. */
static double rough_error(int64_t terms)
{
    return 4.0 * 0.425 * 0x1p-24 * sqrt((double)terms / 2.0);
}

static tx_status create(const tx_cl_gemm_case *t, tx_probe *probe)
{
    const bool rounds = t->epilogue == TX_EPILOGUE_GELU || t->epilogue == TX_EPILOGUE_GELU_GRAD;
    *probe = (tx_probe){.tolerance = {t->rough ? rough_error(t->k) : rounds ? EPILOGUE_TOLERANCE : 0.0}};
    set_shapes(t, &probe->command);
    TX_TRY(tx_probe_create(probe));
    tx_probe_fill(probe, t->rough ? TX_PROBE_ROUGH : TX_PROBE_EXACT, 0);
    const tx_operand *b = &probe->command.in[B], *offsets = &probe->command.in[BIAS];
    if (t->packed == TX_Q8)
        put_q8(probe->data + b->offset, tx_operand_count(b));
    else if (t->packed == TX_MXFP4)
        put_mxfp4(probe->data + b->offset, tx_operand_count(b));
    else if (t->packed != TX_F32)
        put_nf4(probe->data + b->offset, t->packed, tx_operand_count(b));
    for (int64_t e = 0; t->groups > 0 && e <= t->groups; e++)
        ((int32_t *)(void *)(probe->data + offsets->offset))[e] = (int32_t)group_begin(t, e);
    return TX_OK;
}

tx_status tx_cl_gemm_verify(const tx_cl_builder *b, const char *provider, const tx_cl_gemm_case *trial, double *seconds)
{
    const tx_cl_forced forced = {TX_CL_PRODUCT, provider, b->limits};
    tx_probe probe;
    if (b->ahead) { /* the data would take long */
        set_shapes(trial, &probe.command);
        return tx_cl_want_candidate(b, &forced, &probe.command);
    }
    tx_status status = create(trial, &probe);
    if (!status && (!seconds || (double)(trial->batch * trial->m * trial->n) * (double)trial->k <= PROVEN))
        status = tx_cl_verify_candidate(b, &forced, &probe);
    if (!status && seconds)
        status = tx_cl_measure_candidate(b, &forced, &probe, seconds);
    tx_probe_free(&probe);
    return status;
}
