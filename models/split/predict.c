/* SPDX-License-Identifier: Apache-2.0
 * The performance model of divided training: time and memory of one split. split.h explains the formulas. */
#include "models/split/split.h"

#include <math.h>
#include <string.h>

#define HALF_BYTES 2.0     /* bytes of a number that is sent to a stage, to an expert, or around the ring */
#define FULL_BYTES 4.0     /* bytes of a number that is all-reduced */
#define FORWARD 3.0        /* work of a step in forward passes: one forward, and two for the backward pass */
#define BACK_ATTENTION 2.5 /* work of attention's backward pass in forward passes */

/* ---- Links ------------------------------------------------------------------------------------------------ */

/* The number of a group's ranks that share a host. */
static double ranks_per_host(const tx_split_machine *m, int64_t stride, int64_t ranks)
{
    const int64_t near = m->host / stride;
    return (double)(near < 1 ? 1 : near < ranks ? near : ranks);
}

int64_t tx_split_shards(const tx_split_machine *m, const tx_split *s)
{
    const int64_t ranks = s->data * s->context;
    return s->hybrid ? (int64_t)ranks_per_host(m, s->tensor, ranks) : ranks;
}

/* The part of an all-reduce between hosts. */
static double sum_between(const tx_split_machine *m, int64_t stride, int64_t ranks, double bytes)
{
    const double near = ranks_per_host(m, stride, ranks), hosts = ceil((double)ranks / near);
    return 2.0 * (ceil(log2(hosts)) * m->outside.latency + (hosts - 1.0) / hosts * bytes / near / m->outside.rate);
}

double tx_split_sum(const tx_split_machine *m, int64_t stride, int64_t ranks, double bytes)
{
    const double near = ranks_per_host(m, stride, ranks);
    return 2.0 * (ceil(log2(near)) * m->inside.latency + (near - 1.0) / near * bytes / m->inside.rate) +
           sum_between(m, stride, ranks, bytes);
}

double tx_split_exchange(const tx_split_machine *m, int64_t stride, int64_t ranks, double bytes)
{
    const double near = ranks_per_host(m, stride, ranks), n = (double)ranks, part = bytes / n;
    return (near - 1.0) * (m->inside.latency + part / m->inside.rate) +
           (n - near) * (m->outside.latency + part / m->outside.rate);
}

double tx_split_hop(const tx_split_machine *m, int64_t stride, int64_t ranks, double bytes)
{
    const tx_split_link *link = stride * ranks <= m->host ? &m->inside : &m->outside;
    return ranks > 1 ? link->latency + bytes / link->rate : 0.0;
}

/* ---- Pipeline --------------------------------------------------------------------------------------------- */

double tx_split_pipeline(int64_t stages, int64_t chunks, int64_t micro, double each, double slowest)
{
    return (double)micro * slowest + (double)(stages - 1) / (double)chunks * each;
}

double tx_split_held(const tx_split *s, int64_t rank)
{
    const double p = (double)s->pipeline, v = (double)s->chunks, m = (double)s->micro, r = (double)rank;
    if (s->schedule == TX_PIPELINE_GPIPE)
        return m;
    return fmin(m, s->schedule == TX_PIPELINE_1F1B ? p - r : p + (p - 1.0 - 2.0 * r) / v);
}

/* ---- Time ------------------------------------------------------------------------------------------------- */

typedef struct costs {
    const tx_split_model *model;
    const tx_split_machine *machine;
    const tx_split *split;
    const tx_split_piece *layer, *ends;
    double layers; /* mean number of layers of a rank */
    double most;   /* largest number of layers of a rank */
    double rows;   /* of a micro-batch, with fractions for context parallelism */
    double tokens;
    int32_t blocks[TX_SPLIT_STAGES]; /* of each stage, after divide_blocks */
} costs;

static costs costs_of(const tx_split_model *model, const tx_split_machine *machine, const tx_split *s)
{
    const int power = tx_split_power(s->tensor);
    const double rows = (double)s->batch / (double)s->context;
    return (costs){.model = model,
                   .machine = machine,
                   .split = s,
                   .layer = &model->layer[power][s->again],
                   .ends = &model->ends[power][s->again],
                   .layers = (double)model->layers / (double)s->pipeline,
                   .rows = rows,
                   .tokens = rows * (double)model->block};
}

static double compute_of(const costs *c, const tx_split_piece *piece)
{
    return c->rows * (piece->flops / c->machine->rate + piece->moved / c->machine->moving);
}

/* Seconds of an all-reduce of a micro-batch's hidden states in a tensor-parallel group. */
static double tensor_of(const costs *c)
{
    return tx_split_sum(c->machine, 1, c->split->tensor, FULL_BYTES * c->tokens * (double)c->model->width);
}

/* Seconds that a layer waits for keys and values of other context-parallel ranks. */
static double context_of(const costs *c)
{
    const double hops = (double)(c->split->context - 1), parts = (double)(c->split->tensor * c->split->context);
    const double bytes = 2.0 * HALF_BYTES * c->tokens * (double)c->model->kv_width /
                         (double)(c->split->tensor < c->model->kv_heads ? c->split->tensor : c->model->kv_heads);
    const double hop = tx_split_hop(c->machine, c->split->tensor, c->split->context, bytes);
    /* Causal attention has half of the pairs of queries and keys, in two products (scores and values), with two
     * operations each. */
    const double attention = 2.0 * (double)c->split->batch * pow((double)c->model->block, 2.0) *
                             (double)c->model->width / parts / (double)c->split->context / c->machine->rate;
    const double forward = fmax(hop - attention, 0.0), backward = fmax(2.0 * hop - BACK_ATTENTION * attention, 0.0);
    return hops * (forward * (c->split->again ? 2.0 : 1.0) + backward);
}

/* Seconds of a layer's all-to-alls to the experts and back. */
static double expert_of(const costs *c)
{
    const double bytes = HALF_BYTES * c->tokens * (double)(c->model->width * c->model->chosen);
    const double times = c->split->again ? 6.0 : 4.0;
    return c->model->experts ? times * tx_split_exchange(c->machine, c->split->tensor, c->split->expert, bytes) : 0.0;
}

/* Seconds that a stage sends in a micro-batch, in both directions. */
static double sending_of(const costs *c)
{
    const tx_split *s = c->split;
    const double bytes = HALF_BYTES * c->tokens * (double)c->model->width;
    return 2.0 * (double)s->chunks * tx_split_hop(c->machine, s->tensor * s->context * s->data, s->pipeline, bytes);
}

/* The share of a layer's weights that an expert-parallel rank holds. */
static double kept_share(const costs *c)
{
    return 1.0 - c->model->expert_share + c->model->expert_share / (double)c->split->expert;
}

/* The number of token tables in the ends of a model: 1 if embedding and head are tied. */
static double tables(const costs *c)
{
    const double table = FULL_BYTES * (double)(c->model->vocab * c->model->width) / (double)c->split->tensor;
    return fmax(1.0, floor(c->ends->bytes[TX_MEMORY_WEIGHTS] / table + 0.25));
}

/* The share of the ends that one stage has. */
static double ends_share(const costs *c)
{
    return c->split->pipeline > 1 ? 1.0 / tables(c) : 1.0;
}

/* The machine with the links that gradients have: between hosts they may have fewer bytes. */
static tx_split_machine machine_of_gradients(const costs *c)
{
    tx_split_machine m = *c->machine;
    m.outside.rate *= c->model->sent > 0.0 ? FULL_BYTES / c->model->sent : 1.0;
    return m;
}

/* Seconds of an all-reduce of the gradients of the stage with the most layers. `*between` is the part that hybrid
 * sharding makes once a step. */
static double sum_gradients(const costs *c, const tx_split_machine *m, double *between)
{
    const tx_split *s = c->split;
    const int64_t ranks = s->data * s->context;
    const double layers = c->most * c->layer->bytes[TX_MEMORY_GRADIENTS], share = c->model->expert_share;
    const double dense = (1.0 - share) * layers + ends_share(c) * c->ends->bytes[TX_MEMORY_GRADIENTS];
    *between = s->hybrid ? sum_between(m, s->tensor, ranks, dense) : 0.0;
    return tx_split_sum(m, s->tensor, ranks, dense) - *between +
           (share > 0.0 ? tx_split_sum(m, s->tensor * s->expert, ranks / s->expert, share * layers / (double)s->expert)
                        : 0.0);
}

/* The share of a stage's gradients that is summed at the end, when no work overlaps. */
static double last_share(const costs *c)
{
    const double bytes =
        c->most * c->layer->bytes[TX_MEMORY_GRADIENTS] + ends_share(c) * c->ends->bytes[TX_MEMORY_GRADIENTS];
    const double buckets = c->model->bucket > 0.0 ? fmax(1.0, ceil(bytes / c->model->bucket)) : c->most;
    return fmax(1.0 / c->most, 1.0 / buckets);
}

/* Seconds that a transfer is waited for which overlaps with work, except for the share `last` of both. */
static double waited(double transfer, double work, double last)
{
    return transfer * last + (1.0 - last) * fmax(transfer - work, 0.0);
}

/* Seconds that a step waits for the exchange of gradients and weights. A micro-batch computes for `stage` seconds. */
static double data_of(const costs *c, double stage)
{
    const tx_split_machine m = machine_of_gradients(c);
    double between, whole;
    const double sum = sum_gradients(c, &m, &between), half = 0.5 * sum, last = last_share(c);
    const double weights = 0.5 * sum_gradients(c, c->machine, &whole);
    const double before = (double)c->split->micro - 1.0; /* micro-batches before the last one */
    const double backward = stage * (c->split->again ? 3.0 / 4.0 : 2.0 / FORWARD);
    if (c->split->data * c->split->context == 1)
        return 0.0;
    if (c->split->zero == 0)
        return waited(sum, backward, last);
    if (c->split->zero == 1)
        return waited(half, backward, last) + between + weights;
    if (c->split->zero == 2)
        return before * waited(half, backward, last) + waited(half + between, backward, last) + weights;
    const double gather = (c->layer->bytes[TX_MEMORY_COPIES] > 0.0 ? HALF_BYTES / FULL_BYTES : 1.0) * weights;
    const double moved = half + 2.0 * (1.0 - last) * gather;
    return before * waited(moved, stage, last) + waited(moved + between, stage, last) + last * gather;
}

/* Dividing a pipeline needs no machine, and has no hybrid sharding. */
static int64_t shards_of(const costs *c)
{
    return c->machine ? tx_split_shards(c->machine, c->split) : c->split->data * c->split->context;
}

static double update_of(const costs *c)
{
    const double bytes = c->most * kept_share(c) * c->layer->update + ends_share(c) * c->ends->update;
    const double ranks = c->split->zero > 0 ? (double)shards_of(c) : 1.0;
    return bytes / ranks / c->machine->moving;
}

/* ---- Memory ----------------------------------------------------------------------------------------------- */

static bool is_end(const tx_split *s, int64_t rank)
{
    return rank == 0 || rank == s->pipeline - 1;
}

/* The memory of a pipeline rank with `blocks` blocks. Temporary memory is counted in full on every rank, although only
 * the first and the last rank compute the ends. */
static double fill_rank(const costs *c, int64_t rank, double blocks, double bytes[TX_MEMORY_COUNT])
{
    static const struct {
        tx_memory_kind kind;
        int32_t zero; /* the first ZeRO stage that shards it */
    } states[] = {{TX_MEMORY_WEIGHTS, 3}, {TX_MEMORY_COPIES, 3}, {TX_MEMORY_GRADIENTS, 2}, {TX_MEMORY_OPTIMIZER, 1}};
    const double ranks = (double)shards_of(c), held = tx_split_held(c->split, rank);
    const double ends = is_end(c->split, rank) ? ends_share(c) : 0.0;
    double total = 0.0;
    for (int k = 0; k < TX_MEMORY_OFFLOADED; k++)
        bytes[k] = c->ends->bytes[k] * c->rows;
    bytes[TX_MEMORY_CACHE] = c->ends->bytes[TX_MEMORY_CACHE] + blocks * c->layer->bytes[TX_MEMORY_CACHE];
    bytes[TX_MEMORY_ACTIVATIONS] += blocks * held * c->layer->bytes[TX_MEMORY_ACTIVATIONS] * c->rows;
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        const double layers = blocks * c->layer->bytes[states[i].kind], rest = ends * c->ends->bytes[states[i].kind];
        const bool divided = c->split->zero >= states[i].zero && ranks > 1.0;
        bytes[states[i].kind] = divided ? (layers + rest) / ranks : layers * kept_share(c) + rest;
    }
    if (c->split->zero >= 2 && ranks > 1.0)
        bytes[TX_MEMORY_EXCHANGE] +=
            c->model->buckets[c->split->zero - 2][c->split->again] * kept_share(c) / (double)c->split->tensor;
    for (int k = 0; k < TX_MEMORY_OFFLOADED; k++)
        total += bytes[k];
    return total;
}

/* ---- Stages ----------------------------------------------------------------------------------------------- */

/* The work of a row, with `sums` all-reduces over a tensor-parallel group. */
static double work_of(const costs *c, const tx_split_piece *piece, double sums)
{
    const double ranks = (double)c->split->tensor;
    const double summed = 2.0 * (ranks - 1.0) / ranks * FULL_BYTES * (double)(c->model->block * c->model->width);
    return fmax(piece->flops + TX_SPLIT_BALANCE * piece->moved, 0.0) + TX_SPLIT_SUMMING * sums * summed;
}

static double work_of_block(const costs *c)
{
    return work_of(c, c->layer, 4.0);
}

static double work_of_head(const costs *c)
{
    return work_of(c, c->ends, 1.0);
}

/* The blocks of all stages of a rank. */
static int32_t blocks_of(const tx_split *s, const int32_t *stages, int64_t rank)
{
    int32_t sum = 0;
    for (int64_t v = 0; v < s->chunks; v++)
        sum += stages[v * s->pipeline + rank];
    return sum;
}

/* The load of a rank. Looking up embeddings is negligible, so the last stage has all work of the ends. */
static tx_split_load load_of(const costs *c, int64_t rank)
{
    double bytes[TX_MEMORY_COUNT];
    const double none = fill_rank(c, rank, 0.0, bytes), one = fill_rank(c, rank, 1.0, bytes);
    return (tx_split_load){rank == c->split->pipeline - 1 ? work_of_head(c) : 0.0, work_of_block(c), none, one - none};
}

/* Divides blocks among ranks, whose total work decides the time, and then the blocks of a rank among its stages. The
 * last stage has the head. */
static void divide_blocks(const costs *c, double room, int32_t *stages)
{
    const tx_split *s = c->split;
    const int32_t ranks = (int32_t)s->pipeline, chunks = (int32_t)s->chunks;
    tx_split_load load[TX_SPLIT_STAGES] = {{0}};
    int32_t of_rank[TX_SPLIT_STAGES], of_chunk[TX_SPLIT_STAGES];
    for (int32_t r = 0; r < ranks; r++)
        load[r] = load_of(c, r);
    tx_split_share(load, ranks, chunks, (int32_t)c->model->layers, room, of_rank);
    for (int32_t r = 0; r < ranks; r++) {
        for (int32_t v = 0; v < chunks; v++)
            load[v] =
                (tx_split_load){r == ranks - 1 && v == chunks - 1 ? work_of_head(c) : 0.0, work_of_block(c), 0.0, 0.0};
        tx_split_share(load, chunks, 1, of_rank[r], 0.0, of_chunk);
        for (int32_t v = 0; v < chunks; v++)
            stages[v * ranks + r] = of_chunk[v];
    }
}

void tx_split_stages(const tx_split_model *model, const tx_split *split, double room, int32_t *blocks)
{
    const costs c = costs_of(model, NULL, split);
    divide_blocks(&c, room, blocks);
}

double tx_split_slowest(const tx_split_model *model, const tx_split *split, const int32_t *blocks)
{
    const costs c = costs_of(model, NULL, split);
    double most = 0.0, all = 0.0;
    for (int64_t r = 0; r < split->pipeline; r++) {
        const double work =
            blocks_of(split, blocks, r) * work_of_block(&c) + (r == split->pipeline - 1 ? work_of_head(&c) : 0.0);
        most = fmax(most, work);
        all += work;
    }
    return most / all;
}

/* ---- A step ----------------------------------------------------------------------------------------------- */

/* Returns the seconds of a micro-batch summed over all pipeline ranks, and `*slowest` of the slowest rank. A block
 * takes `block` seconds, the other work of every rank `rest`, and the head on the last rank `ends`. */
static double add_up(const costs *c, double block, double rest, double ends, double *slowest)
{
    double all = 0.0;
    *slowest = 0.0;
    for (int64_t r = 0; r < c->split->pipeline; r++) {
        const double one =
            blocks_of(c->split, c->blocks, r) * block + rest + (r == c->split->pipeline - 1 ? ends : 0.0);
        *slowest = fmax(*slowest, one);
        all += one;
    }
    return all;
}

/* The memory of the rank with the most memory. */
static double fill_most(const costs *c, double bytes[TX_MEMORY_COUNT])
{
    double most = 0.0;
    for (int64_t r = 0; r < c->split->pipeline; r++) {
        double of_rank[TX_MEMORY_COUNT] = {0};
        const double total = fill_rank(c, r, blocks_of(c->split, c->blocks, r), of_rank);
        if (total > most)
            memcpy(bytes, of_rank, sizeof of_rank);
        most = fmax(most, total);
    }
    return most;
}

void tx_split_predict(const tx_split_model *model, const tx_split_machine *machine, const tx_split *s,
                      tx_split_figures *f)
{
    costs c = costs_of(model, machine, s);
    divide_blocks(&c, machine->room, c.blocks);
    for (int64_t r = 0; r < s->pipeline; r++)
        c.most = fmax(c.most, blocks_of(s, c.blocks, r));
    const double p = (double)s->pipeline, micro = (double)s->micro;
    const double layer = compute_of(&c, c.layer), ends = compute_of(&c, c.ends);
    const double sum = tensor_of(&c), context = context_of(&c), expert = expert_of(&c), sending = sending_of(&c);
    const double sums = 4.0 * c.layers + 2.0 / p; /* all-reduces of the layers, and of embedding and classifier */
    double slowest;
    const double together = add_up(&c, layer + 4.0 * sum + context + expert, 2.0 / p * sum + sending, ends, &slowest);
    const double each = p > 1.0 ? (together - slowest) / (p - 1.0) : 0.0;
    *f = (tx_split_figures){
        .term = {[TX_SPLIT_T_COMPUTE] = micro * (c.layers * layer + ends / p),
                 [TX_SPLIT_T_BUBBLE] =
                     tx_split_pipeline(s->pipeline, s->chunks, s->micro, each, slowest) - micro * together / p,
                 [TX_SPLIT_T_TENSOR] = micro * sums * sum,
                 [TX_SPLIT_T_CONTEXT] = micro * c.layers * context,
                 [TX_SPLIT_T_EXPERT] = micro * c.layers * expert,
                 [TX_SPLIT_T_PIPELINE] = micro * sending,
                 [TX_SPLIT_T_DATA] = data_of(&c, c.most * layer),
                 [TX_SPLIT_T_UPDATE] = update_of(&c)}};
    for (int t = 0; t < TX_SPLIT_TERMS; t++)
        f->seconds += f->term[t];
    f->memory = fill_most(&c, f->bytes);
    const double flops = ((double)model->layers * model->layer[0][0].flops + model->ends[0][0].flops) *
                         (double)(s->batch * s->micro * s->data);
    f->mfu = flops / f->seconds / machine->peak / (double)(s->data * s->tensor * s->pipeline * s->context);
}
