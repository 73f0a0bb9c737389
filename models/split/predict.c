/* SPDX-License-Identifier: Apache-2.0
 * The model of divided training: time and memory of one split. The formulas are in the header. */
#include "models/split/split.h"

#include <math.h>
#include <string.h>

#define HALF_BYTES 2.0     /* of a number that leaves a stage, or goes to an expert, or round the ring */
#define FULL_BYTES 4.0     /* of one that is summed */
#define FORWARD 3.0        /* passes of as much work as the forward one: it and twice as much backward */
#define BACK_ATTENTION 2.5 /* times the forward pass */

/* ---- Links ------------------------------------------------------------------------------------------------ */

/* Of a group's ranks, how many share a host. */
static double near_ones(const tx_split_machine *m, int64_t stride, int64_t ranks)
{
    const int64_t near = m->host / stride;
    return (double)(near < 1 ? 1 : near < ranks ? near : ranks);
}

double tx_split_sum(const tx_split_machine *m, int64_t stride, int64_t ranks, double bytes)
{
    const double near = near_ones(m, stride, ranks), hosts = ceil((double)ranks / near);
    return 2.0 * (ceil(log2(near)) * m->inside.latency + (near - 1.0) / near * bytes / m->inside.rate) +
           2.0 * (ceil(log2(hosts)) * m->outside.latency + (hosts - 1.0) / hosts * bytes / near / m->outside.rate);
}

double tx_split_exchange(const tx_split_machine *m, int64_t stride, int64_t ranks, double bytes)
{
    const double near = near_ones(m, stride, ranks), n = (double)ranks, part = bytes / n;
    return (near - 1.0) * (m->inside.latency + part / m->inside.rate) +
           (n - near) * (m->outside.latency + part / m->outside.rate);
}

double tx_split_hop(const tx_split_machine *m, int64_t stride, int64_t ranks, double bytes)
{
    const tx_split_link *link = stride * ranks <= m->host ? &m->inside : &m->outside;
    return ranks > 1 ? link->latency + bytes / link->rate : 0.0;
}

/* ---- Pipeline --------------------------------------------------------------------------------------------- */

double tx_split_pipeline(int64_t stages, int64_t chunks, int64_t micro, double each, double last)
{
    return (double)micro * last + (double)(stages - 1) / (double)chunks * each;
}

double tx_split_held(const tx_split *s)
{
    const double p = (double)s->pipeline, v = (double)s->chunks, m = (double)s->micro;
    if (s->schedule == TX_SPLIT_GPIPE)
        return m;
    return fmin(m, s->schedule == TX_SPLIT_ONE ? p : p + (p - 1.0) / v);
}

/* ---- Time ------------------------------------------------------------------------------------------------- */

typedef struct costs {
    const tx_split_model *model;
    const tx_split_machine *machine;
    const tx_split *split;
    const tx_split_piece *layer, *ends;
    double layers; /* of a stage */
    double rows;   /* of a micro-batch, parts of rows counted as such */
    double tokens;
} costs;

static costs costs_of(const tx_split_model *model, const tx_split_machine *machine, const tx_split *s)
{
    int power = 0;
    while (INT64_C(1) << power < s->tensor)
        power++;
    const double rows = (double)s->batch / (double)s->context;
    return (costs){model,
                   machine,
                   s,
                   &model->layer[power][s->again],
                   &model->ends[power][s->again],
                   (double)model->layers / (double)s->pipeline,
                   rows,
                   rows * (double)model->block};
}

static double compute_of(const costs *c, const tx_split_piece *piece)
{
    return c->rows * (piece->flops / c->machine->rate + piece->moved / c->machine->moving);
}

/* What a stage waits for its tensor group in a micro-batch: in its layers, and for embedding and classifier. */
static double tensor_of(const costs *c)
{
    const double bytes = FULL_BYTES * c->tokens * (double)c->model->width;
    const double sums = 4.0 * c->layers + 2.0 / (double)c->split->pipeline;
    return sums * tx_split_sum(c->machine, 1, c->split->tensor, bytes);
}

/* The same for the next keys and values. */
static double context_of(const costs *c)
{
    const double hops = (double)(c->split->context - 1), parts = (double)(c->split->tensor * c->split->context);
    const double bytes = 2.0 * HALF_BYTES * c->tokens * (double)c->model->kv_width /
                         (double)(c->split->tensor < c->model->kv_heads ? c->split->tensor : c->model->kv_heads);
    const double hop = tx_split_hop(c->machine, c->split->tensor, c->split->context, bytes);
    /* Half of the pairs of queries and keys, twice (scores and values), two operations each. */
    const double attention = 2.0 * (double)c->split->batch * pow((double)c->model->block, 2.0) *
                             (double)c->model->width / parts / (double)c->split->context / c->machine->rate;
    const double forward = fmax(hop - attention, 0.0), backward = fmax(2.0 * hop - BACK_ATTENTION * attention, 0.0);
    return hops * (forward * (c->split->again ? 2.0 : 1.0) + backward);
}

/* The same for its tokens on their way to experts and back. */
static double expert_of(const costs *c)
{
    const double bytes = HALF_BYTES * c->tokens * (double)(c->model->width * c->model->chosen);
    const double times = c->split->again ? 6.0 : 4.0;
    return c->model->experts ? times * tx_split_exchange(c->machine, c->split->tensor, c->split->expert, bytes) : 0.0;
}

/* What a stage sends in a micro-batch, both ways. */
static double sending_of(const costs *c)
{
    const tx_split *s = c->split;
    const double bytes = HALF_BYTES * c->tokens * (double)c->model->width;
    return 2.0 * (double)s->chunks * tx_split_hop(c->machine, s->tensor * s->context * s->data, s->pipeline, bytes);
}

/* Of what a stage's `bytes` of layers and `ends` are, the share of a rank among which experts are divided. */
static double kept_share(const costs *c)
{
    return 1.0 - c->model->expert_share + c->model->expert_share / (double)c->split->expert;
}

/* Copies of the token table in what a model has beside its layers: 1 where embedding and head are one. */
static double tables(const costs *c)
{
    const double table = FULL_BYTES * (double)(c->model->vocab * c->model->width) / (double)c->split->tensor;
    return fmax(1.0, floor(c->ends->bytes[TX_MEMORY_WEIGHTS] / table + 0.25));
}

/* Of the ends, what one stage has. */
static double ends_share(const costs *c)
{
    return c->split->pipeline > 1 ? 1.0 / tables(c) : 1.0;
}

/* Seconds of a sum of all gradients of a stage. */
static double sum_gradients(const costs *c)
{
    const tx_split *s = c->split;
    const int64_t ranks = s->data * s->context;
    const double layers = c->layers * c->layer->bytes[TX_MEMORY_GRADIENTS], share = c->model->expert_share;
    const double dense = (1.0 - share) * layers + ends_share(c) * c->ends->bytes[TX_MEMORY_GRADIENTS];
    return tx_split_sum(c->machine, s->tensor, ranks, dense) +
           (share > 0.0
                ? tx_split_sum(c->machine, s->tensor * s->expert, ranks / s->expert, share * layers / (double)s->expert)
                : 0.0);
}

/* What a step waits for that: `stage` seconds are computed in a micro-batch. */
static double data_of(const costs *c, double stage)
{
    const double sum = sum_gradients(c), half = 0.5 * sum, micro = (double)c->split->micro, last = 1.0 / c->layers;
    const double backward = stage * (c->split->again ? 3.0 / 4.0 : 2.0 / FORWARD);
    if (c->split->data * c->split->context == 1)
        return 0.0;
    if (c->split->zero == 0)
        return fmax(sum - backward, sum * last);
    if (c->split->zero == 1)
        return fmax(half - backward, half * last) + half;
    if (c->split->zero == 2)
        return micro * fmax(half - backward, half * last) + half;
    return micro * fmax(3.0 * half - stage, 3.0 * half * last);
}

static double update_of(const costs *c)
{
    const double bytes = c->layers * kept_share(c) * c->layer->update + ends_share(c) * c->ends->update;
    const double ranks = c->split->zero > 0 ? (double)(c->split->data * c->split->context) : 1.0;
    return bytes / ranks / c->machine->moving;
}

/* ---- Memory ----------------------------------------------------------------------------------------------- */

/* A stage that holds the activations of so many micro-batches. */
static double fill_stage(const costs *c, double held, double bytes[TX_MEMORY_COUNT])
{
    static const struct {
        tx_memory_kind kind;
        int32_t zero; /* the first stage of ZeRO that divides it */
    } states[] = {{TX_MEMORY_WEIGHTS, 3}, {TX_MEMORY_COPIES, 4}, {TX_MEMORY_GRADIENTS, 2}, {TX_MEMORY_OPTIMIZER, 1}};
    const double ranks = (double)(c->split->data * c->split->context), ends = ends_share(c);
    double total = 0.0;
    for (int k = 0; k < TX_MEMORY_OFFLOADED; k++)
        bytes[k] = c->ends->bytes[k] * c->rows;
    bytes[TX_MEMORY_CACHE] = c->ends->bytes[TX_MEMORY_CACHE] + c->layers * c->layer->bytes[TX_MEMORY_CACHE];
    bytes[TX_MEMORY_ACTIVATIONS] += c->layers * held * c->layer->bytes[TX_MEMORY_ACTIVATIONS] * c->rows;
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        const double layers = c->layers * c->layer->bytes[states[i].kind], rest = ends * c->ends->bytes[states[i].kind];
        const bool divided = c->split->zero >= states[i].zero && ranks > 1.0;
        bytes[states[i].kind] = divided ? (layers + rest) / ranks : layers * kept_share(c) + rest;
    }
    if (c->split->zero >= 2 && ranks > 1.0)
        bytes[TX_MEMORY_EXCHANGE] +=
            c->model->buckets[c->split->zero - 2][c->split->again] * kept_share(c) / (double)c->split->tensor;
    if (c->split->zero == 3 && ranks > 1.0) /* they are made where they are read */
        bytes[TX_MEMORY_COPIES] = 0.0;
    for (int k = 0; k < TX_MEMORY_OFFLOADED; k++)
        total += bytes[k];
    return total;
}

void tx_split_predict(const tx_split_model *model, const tx_split_machine *machine, const tx_split *s,
                      tx_split_figures *f)
{
    const costs c = costs_of(model, machine, s);
    const double micro = (double)s->micro, layer = compute_of(&c, c.layer), ends = compute_of(&c, c.ends);
    const double waits[] = {tensor_of(&c), c.layers * context_of(&c), c.layers * expert_of(&c), sending_of(&c)};
    const double waiting = waits[0] + waits[1] + waits[2] + waits[3], each = c.layers * layer + waiting;
    const double all = tx_split_pipeline(s->pipeline, s->chunks, s->micro, each, each + ends);
    const double others = micro * ends * (1.0 - 1.0 / (double)s->pipeline); /* what these wait for the head */
    const double mean = micro * (c.layers * layer + ends / (double)s->pipeline);
    *f = (tx_split_figures){.term = {[TX_SPLIT_T_COMPUTE] = mean,
                                     [TX_SPLIT_T_BUBBLE] = all - micro * (each + ends) + others,
                                     [TX_SPLIT_T_TENSOR] = micro * waits[0],
                                     [TX_SPLIT_T_CONTEXT] = micro * waits[1],
                                     [TX_SPLIT_T_EXPERT] = micro * waits[2],
                                     [TX_SPLIT_T_PIPELINE] = micro * waits[3],
                                     [TX_SPLIT_T_DATA] = data_of(&c, c.layers * layer),
                                     [TX_SPLIT_T_UPDATE] = update_of(&c)}};
    for (int t = 0; t < TX_SPLIT_TERMS; t++)
        f->seconds += f->term[t];
    f->memory = fill_stage(&c, tx_split_held(s), f->bytes);
    const double flops = ((double)model->layers * model->layer[0][0].flops + model->ends[0][0].flops) *
                         (double)(s->batch * s->micro * s->data);
    f->mfu = flops / f->seconds / machine->peak / (double)(s->data * s->tensor * s->pipeline * s->context);
}
