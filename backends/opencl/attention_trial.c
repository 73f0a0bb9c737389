/* SPDX-License-Identifier: Apache-2.0
 * Trials of attention's forms: one kernel on a small problem of several tiles, compared with plain C in double
 * precision. */
#include "backends/opencl/attention.h"
#include "backends/opencl/solo.h"

#include "backends/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEED_LO = 7, SEED_HI = 3, STEP = 5, SAMPLE = 11 };

/* Of the largest value of a result: inputs, sums and results are fp32, or scores and results are rounded to 16 bits. */
static double tolerance_of(tx_dtype type)
{
    return type == TX_F32 ? 2e-5 : type == TX_BF16 ? 0x1.8p-7 : 0x1.8p-10;
}

typedef struct trial {
    tx_cl_solo solo;
    tx_cl_attention_kernel kernel;
    tx_dtype type;
    int64_t T, length; /* T: rows of keys */
    int64_t sample;    /* tokens of a sample, where a row has several; else of a row */
    int64_t first;     /* query that the command's first is: with caches it has the last ones alone */
    bool cached;
    int32_t heads, kv_heads, d, last;
    unsigned char *before, *after;
    float *wide[2];               /* the first inputs in fp32 */
    float *all;                   /* [T, last]: qkv with the keys and values of the caches; NULL without */
    double *o, *lse, *dqkv, *row; /* what is right; row: probabilities and factors of dropout of a query, [2, T] */
} trial;

const char *const tx_cl_attention_keys[] = {TX_CL_ATTENTION " forward", TX_CL_ATTENTION " dq", TX_CL_ATTENTION " dkv"};

bool tx_cl_attention_runs(const tx_context *context, tx_cl_attention_kernel kernel)
{
    const struct tx_cl_forced *forced = context->forced;
    bool meant = false;
    for (int i = 0; forced && i < 3; i++)
        meant = meant || strcmp(forced->begins, tx_cl_attention_keys[i]) == 0;
    return !meant || strcmp(forced->begins, tx_cl_attention_keys[kernel]) == 0;
}

/* ---- What is right ------------------------------------------------------------------------------------------------- */

/* Of one of the first two inputs, or one of fp32. */
static const float *row_of(const trial *t, int in, int64_t row, int64_t width)
{
    const float *data = in < 2 ? t->wide[in] : (const float *)(t->before + t->solo.command.in[in].offset);
    return data + row * width;
}

static double dot(const float *x, const float *y, int32_t d)
{
    double sum = 0.0;
    for (int32_t c = 0; c < d; c++)
        sum += (double)x[c] * (double)y[c];
    return sum;
}

/* Where the sample of a position begins, where a row has several: in the middle of tiles. */
static int64_t start_of(const trial *t, int64_t i)
{
    return i / t->sample * t->sample;
}

/* The end of the keys that query i sees, their probabilities from key 0 on, and what dropout makes of these. */
static int64_t attend(const trial *t, const float *qkv, int32_t head, int64_t i, double *lse)
{
    const tx_attrs *attrs = &t->solo.command.attrs;
    const int64_t keys = i >= t->length ? 0 : attrs->attention.causal ? i + 1 : t->length;
    const int64_t first =
        attrs->attention.window > 0 && i >= attrs->attention.window ? i - attrs->attention.window + 1 : 0;
    const int32_t key = t->heads + head / (t->heads / t->kv_heads);
    double *p = t->row, *factor = t->row + t->T, sum = 0.0;
    for (int64_t j = 0; j < keys; j++) {
        const bool hidden = j < first || j < start_of(t, i);
        const tx_random draw =
            tx_draw(SEED_LO, SEED_HI, STEP, SAMPLE, (uint32_t)attrs->draw.site, (uint32_t)(attrs->first + head),
                    (uint32_t)(attrs->draw.row + i), (uint32_t)(attrs->draw.column + j) >> 2);
        p[j] = hidden ? 0.0
                      : exp((double)attrs->scale *
                            dot(qkv + i * t->last + head * t->d, qkv + j * t->last + key * t->d, t->d));
        factor[j] = attrs->draw.p <= 0.0f                                     ? 1.0
                    : draw.word[j & 3] >= tx_dropout_threshold(attrs->draw.p) ? 1.0 / (1.0 - (double)attrs->draw.p)
                                                                              : 0.0;
        sum += p[j];
    }
    for (int64_t j = 0; j < keys; j++)
        p[j] /= sum;
    *lse = keys ? log(sum) : 0.0;
    return keys;
}

static void work_out_forward(const trial *t, const float *qkv)
{
    const int32_t group = t->heads / t->kv_heads;
    for (int32_t head = 0; head < t->heads; head++)
        for (int64_t i = 0; i < t->T; i++) {
            double *o = t->o + (i * t->heads + head) * t->d;
            const float *v = qkv + (t->heads + t->kv_heads + head / group) * t->d;
            const int64_t keys = attend(t, qkv, head, i, &t->lse[head * t->T + i]);
            for (int64_t j = 0; j < keys; j++)
                for (int32_t c = 0; c < t->d; c++)
                    o[c] += t->row[j] * t->row[t->T + j] * (double)v[j * t->last + c];
        }
}

static void work_out_backward(const trial *t, const float *qkv)
{
    const int32_t group = t->heads / t->kv_heads, d = t->d;
    const double scale = (double)t->solo.command.attrs.scale;
    for (int32_t head = 0; head < t->heads; head++)
        for (int64_t i = 0; i < t->T; i++) {
            const int32_t q = head * d, k = (t->heads + head / group) * d, v = k + t->kv_heads * d;
            const float *dy = row_of(t, 0, i * t->heads + head, d);
            double delta = 0.0, lse;
            const int64_t keys = attend(t, qkv, head, i, &lse);
            for (int32_t c = 0; c < d; c++)
                delta += (double)dy[c] * t->o[(i * t->heads + head) * d + c];
            for (int64_t j = 0; j < keys; j++) {
                const double p = t->row[j], factor = t->row[t->T + j];
                const double slope = scale * p * (factor * dot(dy, qkv + j * t->last + v, d) - delta);
                double *here = t->dqkv + i * t->last, *there = t->dqkv + j * t->last;
                for (int32_t c = 0; c < d; c++) {
                    here[q + c] += slope * (double)qkv[j * t->last + k + c];
                    there[k + c] += slope * (double)qkv[i * t->last + q + c];
                    there[v + c] += p * factor * (double)dy[c];
                }
            }
        }
}

/* ---- The command ----------------------------------------------------------------------------------------------------- */

/* qkv of the last queries, the caches of all keys, and where the first query stands. */
static void lay_out_cached(trial *t, const tx_cl_attention_job *a, const tx_cl_attention_form *form)
{
    tx_command *c = &t->solo.command;
    const int64_t queries = a->T > 1 ? form->rows + 5 : 1;
    const tx_operand cache = {.dtype = TX_F32, .shape = TX_SHAPE(1, t->T, t->kv_heads * t->d)};
    t->first = t->T - queries - 2;
    t->length = t->T;
    c->attrs.attention.causal = true;
    c->attrs.draw.p = 0.0f;
    c->in[0] = (tx_operand){.dtype = TX_F32, .shape = TX_SHAPE(1, queries, t->last)};
    c->in[1] = c->in[2] = cache;
    c->in[3] = (tx_operand){.dtype = TX_I32, .shape = TX_SHAPE(1)};
    c->out[0] = (tx_operand){.dtype = TX_F32, .shape = TX_SHAPE(1, queries, t->heads * t->d)};
    tx_cl_solo_place(&t->solo);
}

/* That of `a` with one row of some tiles and few heads. */
static void lay_out(trial *t, const tx_cl_attention_job *a, const tx_cl_attention_form *form)
{
    const bool backward = t->kernel != TX_CL_FORWARD;
    const int64_t tile = form->rows > form->cols ? form->rows : form->cols;
    tx_command *c = &t->solo.command;
    t->T = 3 * tile - 11;
    t->kv_heads = a->kv_heads > 1 ? 2 : 1;
    t->heads = a->heads > a->kv_heads ? 2 * t->kv_heads : t->kv_heads;
    t->d = a->d;
    t->last = (t->heads + 2 * t->kv_heads) * t->d;
    *c = tx_cl_solo_command(a->command->op, &a->command->attrs);
    c->attrs.attention.heads = t->heads;
    c->attrs.attention.kv_heads = t->kv_heads;
    c->attrs.attention.window =
        a->command->attrs.attention.window > 0 ? (int32_t)tile / 2 + 3 : 0; /* tiles are passed over */
    t->sample = t->T;
    t->cached = a->cached;
    if (a->cached) {
        lay_out_cached(t, a, form);
        return;
    }
    const tx_operand qkv = {.dtype = t->type, .shape = TX_SHAPE(1, t->T, t->last)},
                     o = {.dtype = t->type, .shape = TX_SHAPE(1, t->T, t->heads * t->d)},
                     lse = {.dtype = TX_F32, .shape = TX_SHAPE(1, t->heads, t->T)};
    const tx_operand *lengths = &a->command->in[backward ? 4 : 1];
    t->length = tx_present(lengths) ? t->T - 5 : t->T;
    c->in[0] = backward ? o : qkv;
    if (backward) {
        c->in[1] = qkv;
        c->in[2] = o;
        c->in[3] = lse;
    }
    if (tx_present(lengths))
        c->in[backward ? 4 : 1] = (tx_operand){.dtype = TX_I32, .shape = TX_SHAPE(1)};
    if (tx_present(&lengths[1])) {
        c->in[backward ? 5 : 2] = (tx_operand){.dtype = TX_I32, .shape = TX_SHAPE(1, t->T)};
        t->sample = tile + 7;
    }
    c->out[0] = backward ? qkv : o;
    c->out[1] = lse;
    t->solo.controls.word[TX_CONTROL_SEED_LO].u32 = SEED_LO;
    t->solo.controls.word[TX_CONTROL_SEED_HI].u32 = SEED_HI;
    t->solo.controls.word[TX_CONTROL_STEP].u32 = STEP;
    t->solo.controls.word[TX_CONTROL_SAMPLE].u32 = SAMPLE;
    tx_cl_solo_place(&t->solo);
}

static void put(const trial *t, const tx_operand *o, const double *values)
{
    for (int64_t i = 0; i < tx_operand_count(o); i++)
        tx_cl_solo_put(t->before + o->offset, o->dtype, i, (float)values[i]);
}

/* Queries where they stand, and keys and values beside them. */
static tx_status gather_cached(trial *t)
{
    const int64_t width = (int64_t)t->kv_heads * t->d, queries = (int64_t)t->heads * t->d;
    const int64_t count = t->solo.command.in[0].shape.dim[1];
    t->all = calloc((size_t)(t->T * t->last), sizeof *t->all);
    if (!t->all)
        return tx_fail(TX_MEMORY, "out of host memory");
    for (int64_t i = 0; i < t->T; i++) {
        float *row = t->all + i * t->last;
        if (i >= t->first && i < t->first + count)
            memcpy(row, row_of(t, 0, i - t->first, t->last), (size_t)queries * sizeof *row);
        memcpy(row + queries, row_of(t, 1, i, width), (size_t)width * sizeof *row);
        memcpy(row + queries + width, row_of(t, 2, i, width), (size_t)width * sizeof *row);
    }
    return TX_OK;
}

/* The first inputs as they are rounded. */
static tx_status widen(trial *t)
{
    for (int in = 0; in < 2 && tx_present(&t->solo.command.in[in]); in++) {
        const tx_operand *o = &t->solo.command.in[in];
        t->wide[in] = o->dtype == TX_I32 ? NULL : malloc((size_t)tx_operand_count(o) * sizeof(float));
        if (o->dtype != TX_I32 && !t->wide[in])
            return tx_fail(TX_MEMORY, "out of host memory");
        for (int64_t i = 0; t->wide[in] && i < tx_operand_count(o); i++)
            t->wide[in][i] = tx_cl_solo_get(t->before + o->offset, o->dtype, i);
    }
    return TX_OK;
}

static tx_status set_up(trial *t)
{
    tx_command *c = &t->solo.command;
    const bool backward = t->kernel != TX_CL_FORWARD;
    t->before = malloc((size_t)t->solo.bytes);
    t->after = malloc((size_t)t->solo.bytes);
    t->o = calloc((size_t)(t->T * t->heads * t->d), sizeof *t->o);
    t->lse = calloc((size_t)(t->T * t->heads), sizeof *t->lse);
    t->dqkv = calloc((size_t)(t->T * t->last), sizeof *t->dqkv);
    t->row = calloc((size_t)(2 * t->T), sizeof *t->row);
    if (!t->before || !t->after || !t->o || !t->lse || !t->dqkv || !t->row)
        return tx_fail(TX_MEMORY, "out of host memory");
    tx_cl_solo_fill(&t->solo, (int32_t)(t->cached ? t->first : t->length), t->before);
    for (int64_t i = 0; t->sample < t->T && i < t->T; i++)
        ((int32_t *)(void *)(t->before + c->in[backward ? 5 : 2].offset))[i] = (int32_t)start_of(t, i);
    for (int i = 0; i < 2; i++) /* NaN in what is to be stored over */
        if (tx_present(&c->out[i]))
            memset(t->before + c->out[i].offset, 0xFF, (size_t)tx_operand_bytes(&c->out[i]));
    tx_status status = widen(t);
    if (!status && t->cached)
        status = gather_cached(t);
    if (status)
        return status;
    const float *qkv = t->cached ? t->all : row_of(t, backward ? 1 : 0, 0, 0);
    work_out_forward(t, qkv);
    if (backward) {
        put(t, &c->in[2], t->o);
        put(t, &c->in[3], t->lse);
        work_out_backward(t, qkv);
    }
    return TX_OK;
}

/* ---- Verdict --------------------------------------------------------------------------------------------------------- */

/* Columns from..to - 1 of `width` of an output, beside the largest of them. */
static tx_status compare(const trial *t, int out, const double *want, int64_t width, int64_t from, int64_t to)
{
    const tx_operand *y = &t->solo.command.out[out];
    const int64_t count = tx_operand_count(y);
    const double tolerance = tolerance_of(y->dtype);
    double top = 0.0;
    for (int64_t i = 0; i < count; i++)
        top = i % width >= from && i % width < to ? fmax(top, fabs(want[i])) : top;
    for (int64_t i = 0; i < count; i++) {
        const double got = (double)tx_cl_solo_get(t->after + y->offset, y->dtype, i);
        if (i % width >= from && i % width < to && !(fabs(got - want[i]) <= tolerance * top))
            return tx_fail(TX_DEVICE, "element %lld of row %lld of attention is %.9g and should be %.9g",
                           (long long)(i % width), (long long)(i / width), got, want[i]);
    }
    return TX_OK;
}

static tx_status judge(const trial *t)
{
    const int64_t queries = (int64_t)t->heads * t->d, values = queries + (int64_t)t->kv_heads * t->d;
    const tx_operand *out = t->solo.command.out;
    tx_status status;
    if (t->kernel == TX_CL_FORWARD) {
        status = compare(t, 0, t->o + t->first * queries, queries, 0, queries);
        if (!status && !t->cached)
            status = compare(t, 1, t->lse, t->T, 0, t->T);
    } else {
        const bool q = t->kernel == TX_CL_GRAD_Q;
        status = compare(t, 0, t->dqkv, t->last, q ? 0 : queries, q ? queries : values);
        if (!status && !q)
            status = compare(t, 0, t->dqkv, t->last, values, t->last);
    }
    for (int i = 0; i < 2; i++) /* all else is as it was */
        if (tx_present(&out[i]))
            memcpy(t->after + out[i].offset, t->before + out[i].offset, (size_t)tx_operand_bytes(&out[i]));
    if (!status && memcmp(t->before, t->after, (size_t)t->solo.bytes) != 0)
        status = tx_fail(TX_DEVICE, "attention wrote outside its result");
    return status;
}

tx_status tx_cl_attention_trial(tx_context *context, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel,
                                const tx_cl_attention_form *form)
{
    const struct tx_cl_forced forced = {a->cached ? TX_CL_ATTENTION_CACHED : tx_cl_attention_keys[kernel], form->name};
    trial t = {.kernel = kernel, .type = form->matrix ? a->type : TX_F32};
    lay_out(&t, a, form);
    tx_status status = context->survey ? TX_OK : set_up(&t);
    context->forced = &forced;
    if (!status)
        status = tx_cl_solo_open(context, &t.solo, t.before);
    context->forced = NULL;
    if (!status)
        status = tx_cl_solo_run(context, &t.solo);
    if (!status)
        status = tx_cl_read(context, t.solo.memory, 0, t.after, t.solo.bytes);
    if (!status)
        status = judge(&t);
    tx_cl_solo_close(context, &t.solo);
    void *const blocks[] = {t.before, t.after, t.wide[0], t.wide[1], t.all, t.o, t.lse, t.dqkv, t.row};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        free(blocks[i]);
    return status;
}
