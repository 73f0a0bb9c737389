/* SPDX-License-Identifier: Apache-2.0
 * Trials of matrix products: a one-command program on data of its own, checked on the host and timed. */
#include "backends/opencl/gemm.h"
#include "backends/opencl/solo.h"

#include "backends/nf4.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Elements checked: all when they cost no more than this many multiplications, else this many samples. */
#define CHECK_ALL 20000000
#define CHECK_SAMPLES 1000

enum { A, B, BIAS, Z, Y, KEPT, OPERANDS };

typedef struct trial_data {
    const tx_cl_trial *t;
    tx_cl_solo solo;
    unsigned char *host; /* as written, later as read */
} trial_data;

/* Eighths in [-1, 1], which all types hold: products are multiples of 1/64 and sums of 2^17 of them exact in fp32. */
static float pattern(int operand, int64_t index)
{
    uint64_t h = ((uint64_t)index + 1) * 0x9E3779B97F4A7C15u ^ (uint64_t)(operand + 1) * 0xC2B2AE3D27D4EB4Fu;
    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9u;
    return ((float)((h >> 40) % 17) - 8.0f) / 8.0f;
}

/* Of 4 bits, -1, 0 and 1 times 1/2, 1 or 3/2: a number for each block. */
static float block_of(int64_t index)
{
    return 0.5f * (float)(1 + index / TX_NF4_BLOCK % 3);
}

static float pattern_of(const tx_cl_trial *t, int operand, int64_t index)
{
    const float v = pattern(operand, index);
    if (operand != B || t->packed == TX_F32)
        return v;
    return v < -0.4f ? -block_of(index) : v > 0.4f ? block_of(index) : 0.0f;
}

/* With double quantisation the map holds its code less 1, scale and mean of the groups are 1/2. */
static void put_packed(unsigned char *data, tx_dtype type, const tx_cl_trial *t, int64_t count)
{
    const int64_t blocks = count / TX_NF4_BLOCK;
    for (int64_t i = 0; i < count; i += 2) {
        const float first = pattern_of(t, B, i), second = pattern_of(t, B, i + 1);
        data[i / 2] = (unsigned char)((first < 0.0f   ? 0
                                       : first > 0.0f ? 15
                                                      : 7)
                                          << 4 |
                                      (second < 0.0f   ? 0
                                       : second > 0.0f ? 15
                                                       : 7));
    }
    float *absmax = (float *)(void *)(data + tx_nf4_absmax_at(count)),
          *map = (float *)(void *)(data + tx_nf4_map_at(count)),
          *groups = (float *)(void *)(data + tx_nf4_groups_at(count));
    for (int64_t b = 0; b < blocks; b++)
        if (type == TX_NF4)
            absmax[b] = block_of(b * TX_NF4_BLOCK);
        else
            data[tx_nf4_codes_at(count) + b] = (unsigned char)(2.0f * block_of(b * TX_NF4_BLOCK));
    for (int i = 0; i < TX_NF4_MAP && type != TX_NF4; i++)
        map[i] = (float)i - 1.0f;
    for (int64_t g = 0; g < tx_nf4_groups(count) && type != TX_NF4; g++) {
        groups[2 * g] = 0.5f;
        groups[2 * g + 1] = 0.5f;
    }
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

/* m, or with trans_a k, counts the rows of all groups. */
static tx_gemm gemm_of(const tx_cl_trial *t)
{
    const bool grouped = t->groups > 0;
    return (tx_gemm){.batch = grouped ? t->groups : t->batch,
                     .m = t->m,
                     .n = t->n,
                     .k = t->k,
                     .lda = t->trans_a ? t->m : t->k,
                     .ldb = t->trans_b ? t->k : t->n,
                     .ldc = t->n,
                     .stride_a = grouped ? 0 : t->m * t->k,
                     .stride_b = grouped && t->trans_a ? 0 : t->k * t->n,
                     .stride_c = t->m * t->n};
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

/* The command, its operands with guards around them. */
static void lay_out(trial_data *d)
{
    const tx_cl_trial *t = d->t;
    tx_command *c = &d->solo.command;
    const bool keeps = t->epilogue == TX_EPILOGUE_GELU;
    const tx_attrs attrs = {.trans_a = t->trans_a,
                            .trans_b = t->trans_b,
                            .flat = t->batch == 1,
                            .accumulate = t->accumulate,
                            .epilogue = t->epilogue,
                            .exact = t->exact,
                            .keeps = keeps};
    *c = tx_cl_solo_command(TX_OP_MATMUL, &attrs);
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
    tx_cl_solo_place(&d->solo);
}

static const tx_operand *operand(const trial_data *d, int which)
{
    return which < Y ? &d->solo.command.in[which] : &d->solo.command.out[which - Y];
}

static void fill(trial_data *d)
{
    memset(d->host, 0xFF, (size_t)d->solo.bytes); /* guards, and NaN in what is to be stored over */
    for (int which = 0; which < OPERANDS; which++) {
        const tx_operand *o = operand(d, which);
        if (!tx_present(o) || which == KEPT || (which == Y && d->t->accumulate == TX_STORE))
            continue;
        const int64_t count = tx_operand_count(o);
        if (tx_dtype_packed(o->dtype))
            put_packed(d->host + o->offset, o->dtype, d->t, count);
        for (int64_t e = 0; e < count && o->dtype == TX_I32; e++)
            ((int32_t *)(void *)(d->host + o->offset))[e] = (int32_t)group_begin(d->t, e);
        for (int64_t i = 0; i < count && !tx_dtype_packed(o->dtype) && o->dtype != TX_I32; i++)
            tx_cl_solo_put(d->host + o->offset, o->dtype, i, pattern(which, i));
    }
}

static double expected(const trial_data *d, const tx_gemm *g, int64_t index)
{
    const tx_cl_trial *t = d->t;
    const int64_t i = index / g->n % g->m, j = index % g->n;
    int64_t batch = index / (g->m * g->n), first = 0, end = g->k;
    double sum = t->bias ? (double)pattern(BIAS, j) : 0.0;
    if (t->groups > 0 && t->trans_a) {
        first = group_begin(t, batch);
        end = group_begin(t, batch + 1);
    } else if (t->groups > 0) {
        while (batch < t->groups && i >= group_begin(t, batch + 1))
            batch++;
        end = batch < t->groups ? end : 0;
    }
    for (int64_t p = first; p < end; p++)
        sum += (double)pattern(A, batch * g->stride_a + (t->trans_a ? p * g->lda + i : i * g->lda + p)) *
               (double)pattern_of(t, B, batch * g->stride_b + (t->trans_b ? j * g->ldb + p : p * g->ldb + j));
    return t->accumulate == TX_ADD ? sum + (double)pattern(Y, index) : sum;
}

static tx_status check_guards(const trial_data *d)
{
    int64_t end = 0;
    for (int which = 0; which < OPERANDS; which++) {
        const tx_operand *o = operand(d, which);
        for (int64_t i = end; tx_present(o) && i < o->offset; i++)
            if (d->host[i] != 0xFF)
                return tx_fail(TX_DEVICE, "a matrix product wrote outside its result");
        if (tx_present(o))
            end = o->offset + tx_operand_bytes(o);
    }
    for (int64_t i = end; i < d->solo.bytes; i++)
        if (d->host[i] != 0xFF)
            return tx_fail(TX_DEVICE, "a matrix product wrote behind its result");
    return TX_OK;
}

/* What the epilogue makes of a sum; *tolerance: beside the rounding of a result that is stored in 16 bits. */
static double finish(const tx_cl_trial *t, double sum, double z, double *tolerance)
{
    const double x = t->epilogue == TX_EPILOGUE_GELU ? sum : z, u = 0.7978845608028654 * (x + 0.044715 * x * x * x);
    const double below = t->exact ? 0.5 * erfc(-x * 0.7071067811865476) : 0.5 * (1.0 + tanh(u));
    const double slope = t->exact
                             ? below + x * 0.3989422804014327 * exp(-0.5 * x * x)
                             : below + 2.0 * below * (1.0 - below) * x * 0.7978845608028654 * (1.0 + 0.134145 * x * x);
    *tolerance = 1e-5 * (1.0 + fabs(sum));
    if (t->epilogue == TX_EPILOGUE_GELU)
        return x * below;
    if (t->epilogue == TX_EPILOGUE_GELU_GRAD)
        return sum * slope;
    *tolerance = 0.0;
    return t->epilogue == TX_EPILOGUE_ADD ? sum + z : sum;
}

static double rounded(tx_dtype type, double v)
{
    uint32_t stored;
    tx_cl_solo_put(&stored, type, 0, (float)v);
    return (double)tx_cl_solo_get(&stored, type, 0);
}

/* fp32 sums are exact; others are rounded once, and before an epilogue. */
static bool is_right(const trial_data *d, int64_t at, double sum, double *want)
{
    const tx_operand *y = operand(d, Y), *kept = operand(d, KEPT);
    const double epsilon = y->dtype == TX_F32 ? 0.0 : y->dtype == TX_BF16 ? 0x1p-8 : 0x1p-11;
    const double z = tx_present(operand(d, Z)) ? (double)pattern(Z, at) : 0.0;
    double tolerance;
    if (d->t->epilogue != TX_EPILOGUE_NONE)
        sum = rounded(y->dtype, sum);
    *want = finish(d->t, sum, z, &tolerance);
    return fabs((double)tx_cl_solo_get(d->host + y->offset, y->dtype, at) - *want) <=
               epsilon * fabs(*want) + tolerance &&
           (!tx_present(kept) || (double)tx_cl_solo_get(d->host + kept->offset, kept->dtype, at) == sum);
}

static tx_status check(const trial_data *d)
{
    const tx_operand *y = &d->solo.command.out[0];
    const tx_gemm g = gemm_of(d->t);
    const int64_t count = tx_operand_count(y), most = CHECK_ALL / g.k;
    const int64_t checked = count <= most ? count : CHECK_SAMPLES;
    for (int64_t i = 0; i < checked; i++) {
        /* Samples: the last elements, and others by a stride that is odd and near the golden section. */
        const int64_t stride = (int64_t)((double)count * 0.6180339887) | 1;
        const int64_t at = count <= most ? i : i < 50 ? count - 1 - i : i * stride % count;
        double want;
        if (!is_right(d, at, expected(d, &g, at), &want))
            return tx_fail(TX_DEVICE, "element %lld of a %lld x %lld x %lld product is %g and should be %g",
                           (long long)at, (long long)g.m, (long long)g.n, (long long)g.k,
                           (double)tx_cl_solo_get(d->host + y->offset, y->dtype, at), want);
    }
    return check_guards(d);
}

static tx_status run(tx_context *context, const char *provider, trial_data *d)
{
    const struct tx_cl_forced forced = {TX_CL_PRODUCT, provider};
    context->forced = &forced;
    tx_status status = tx_cl_solo_open(context, &d->solo, d->host);
    context->forced = NULL;
    if (status == TX_OK)
        status = tx_cl_solo_run(context, &d->solo);
    if (status == TX_OK)
        status = tx_cl_read(context, d->solo.memory, 0, d->host, d->solo.bytes);
    return status;
}

tx_status tx_cl_gemm_trial(tx_context *context, const char *provider, const tx_cl_trial *trial, double *seconds)
{
    trial_data d = {.t = trial};
    lay_out(&d);
    d.host = malloc((size_t)d.solo.bytes);
    if (!d.host)
        return tx_fail(TX_MEMORY, "out of host memory");
    fill(&d);
    tx_status status = run(context, provider, &d);
    if (status == TX_OK)
        status = check(&d);
    if (status == TX_OK && seconds)
        status = tx_cl_solo_time(context, &d.solo, seconds);
    tx_cl_solo_close(context, &d.solo);
    free(d.host);
    return status;
}

/* ---- Errors of data that have all bits ------------------------------------------------------------------------ */

#define ERROR_SIDE 64 /* rows and columns of such a product */

/* In (-1, 1). */
static float rough(int operand, int64_t index)
{
    uint64_t h = ((uint64_t)index + 1) * 0x9E3779B97F4A7C15u ^ (uint64_t)(operand + 1) * 0xC2B2AE3D27D4EB4Fu;
    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9u;
    return ((float)(h >> 40) - 8388607.5f) / 8388608.0f;
}

static double error_of(const trial_data *d)
{
    const tx_cl_trial *t = d->t;
    const float *y = (const float *)(const void *)(d->host + operand(d, Y)->offset);
    double squares = 0.0, errors = 0.0;
    for (int64_t i = 0; i < t->m; i++)
        for (int64_t j = 0; j < t->n; j++) {
            double sum = 0.0;
            for (int64_t p = 0; p < t->k; p++)
                sum += (double)rough(A, t->trans_a ? p * t->m + i : i * t->k + p) *
                       (double)rough(B, t->trans_b ? j * t->k + p : p * t->n + j);
            const double error = (double)y[i * t->n + j] - sum;
            squares += sum * sum;
            errors += error * error;
        }
    return sqrt(errors / squares);
}

tx_status tx_cl_gemm_error(tx_context *context, const char *provider, bool trans_a, bool trans_b, int64_t k,
                           double *error)
{
    const tx_cl_trial trial = {.batch = 1,
                               .m = ERROR_SIDE,
                               .n = ERROR_SIDE,
                               .k = k,
                               .trans_a = trans_a,
                               .trans_b = trans_b,
                               .from = TX_F32,
                               .to = TX_F32};
    trial_data d = {.t = &trial};
    lay_out(&d);
    d.host = malloc((size_t)d.solo.bytes);
    if (!d.host)
        return tx_fail(TX_MEMORY, "out of host memory");
    for (int which = A; which <= B; which++)
        for (int64_t i = 0; i < ERROR_SIDE * k; i++)
            tx_cl_solo_put(d.host + operand(&d, which)->offset, TX_F32, i, rough(which, i));
    tx_status status = run(context, provider, &d);
    if (status == TX_OK)
        *error = error_of(&d);
    tx_cl_solo_close(context, &d.solo);
    free(d.host);
    return status;
}
