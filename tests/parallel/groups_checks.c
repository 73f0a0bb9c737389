/* SPDX-License-Identifier: Apache-2.0
 * Checks of tensor, context and expert parallelism that need no steps of training. */
#include "tests/parallel/groups.h"

#include "api/graph/op.h"
#include "api/parallel/own.h"
#include "api/plan/plan.h"

/* ---- Tensor parallelism ------------------------------------------------------------------------------------- */

/* Whether ranks of the group have the same heads of keys and values of a parameter, the last of its sections. */
static bool has_replicas(const tx_param_spec *whole, int32_t parts)
{
    const tx_param_sections *of = &whole->sections;
    const int64_t unit = of->count ? of->unit[of->count - 1] : 0;
    return unit && of->size[of->count - 1] / unit < parts;
}

/* Each chunk's losses are joined, and each parameter with fewer heads of keys than ranks has a sum over those that have
 * the same. */
static tx_status count_sums(const side *s, int32_t wanted, int32_t joins)
{
    int32_t found = 0, replicas = 0;
    for (int32_t i = 0; i < tx_plan_node_count(s->plan); i++) {
        tx_plan_node node;
        TX_TRY(tx_plan_node_at(s->plan, i, &node));
        found += strcmp(node.op, "tp_all_reduce") == 0;
        joins -= strcmp(node.op, "tp_cross_entropy") == 0;
        replicas += strcmp(node.op, "sum_replicas") == 0;
    }
    for (int32_t i = 0, part; i < tx_model_param_count(s->model); i++) {
        const char *name;
        const tx_param_spec *spec;
        TX_TRY(tx_model_param(s->model, i, &name, &spec));
        replicas -= has_replicas(spec, tx_graph_tp_size(s->graph, &part));
    }
    if (replicas != 0)
        return tx_fail(TX_INTERNAL, "%d sums of replicas too many", (int)replicas);
    if (joins != 0)
        return tx_fail(TX_INTERNAL, "%d joins of losses are missing", (int)joins);
    return found == wanted ? TX_OK : tx_fail(TX_INTERNAL, "%d sums, not %d", (int)found, (int)wanted);
}

/* Two more sums are those of the tokens' rows, and of the gradient before the classifier, if not by positions. */
tx_status check_sums(const tested *t, const side *together, const side *alone)
{
    enum { CHUNK = 256 };
    const int32_t joins = t->rows ? (t->rows * BLOCK + CHUNK - 1) / CHUNK : 1;
    TX_TRY(count_sums(together, ways.layers * t->sums + (t->outer ? t->outer : 2), joins));
    return count_sums(alone, 0, 0);
}

/* Returns this rank's elements of a part of a parameter: all of its weights, and its ZeRO shard of the moments. */
static tx_status read_own(const side *s, tx_param_role part, int32_t index, int64_t count, float *own)
{
    const int64_t bytes = count * (int64_t)sizeof *own;
    for (int32_t i = 0; i < s->model->holdings; i++) {
        const tx_param_slice *h = &s->model->holding[i];
        const int64_t end = h->at + h->bytes < bytes ? h->at + h->bytes : bytes;
        if (h->param == index && h->part == part && h->at < end)
            TX_TRY(tx_model_read_at(s->model, h->arena, h->address, (char *)own + h->at, end - h->at));
    }
    return TX_OK;
}

/* The own values of this rank equal those that checkpoints hold, of the first rank that has the same, to the bit. */
static tx_status compare_own(const side *s, tx_param_role part, int32_t index, float *whole, float *taken, float *own)
{
    const tx_param_record *r = &s->model->param[index];
    const int64_t count = tx_shape_count(&r->whole.logical), mine = tx_own_before(r, count);
    TX_TRY(tx_model_read(s->model, part, index, whole));
    tx_own_take(r, 0, count, whole, taken);
    memcpy(own, taken, (size_t)mine * sizeof *own);
    TX_TRY(read_own(s, part, index, mine, own));
    return memcmp(taken, own, (size_t)mine * sizeof *own) == 0
               ? TX_OK
               : tx_fail(TX_INTERNAL, "%s, part %d: ranks that have the same have other numbers", r->name, (int)part);
}

static tx_status compare_part(const side *s, tx_param_role part, int32_t index)
{
    const size_t count = (size_t)tx_shape_count(&s->model->param[index].whole.shape);
    float *numbers = malloc(3 * count * sizeof *numbers);
    const tx_status status =
        numbers ? compare_own(s, part, index, numbers, numbers + count, numbers + 2 * count) : TX_MEMORY;
    free(numbers);
    return status;
}

/* Changes the moment of the last value only on the last rank; the other ranks have replicas. The check must find it. */
static tx_status plant_moment(const side *s, int32_t index)
{
    const tx_param_role part = (tx_param_role)(TX_PARAM_STATE + 1);
    const bool last = groups.tensor->rank == groups.tensor->size - 1;
    const int64_t at = (tx_shape_count(&s->model->param[index].spec.shape) - 1) * (int64_t)sizeof(float);
    const float other = 7.0f;
    for (int32_t i = 0; i < s->model->holdings && last; i++) {
        const tx_param_slice *h = &s->model->holding[i];
        if (h->param == index && h->part == part && at >= h->at && at < h->at + h->bytes)
            TX_TRY(tx_model_write_at(s->model, h->arena, h->address + at - h->at, &other, sizeof other));
    }
    return compare_part(s, part, index) == (last ? TX_INTERNAL : TX_OK)
               ? TX_OK
               : tx_fail(TX_INTERNAL, "%s: another moment was not found", s->model->param[index].name);
}

tx_status check_replicas(const side *s)
{
    const bool shards = ways.zero == 3 && groups.data->size > 1; /* ranks have no more of the weights */
    for (int32_t i = 0; i < s->model->params; i++)
        for (int part = shards ? TX_PARAM_STATE : TX_PARAM_WEIGHT; part <= TX_PARAM_STATE + 1; part++)
            if (part != TX_PARAM_GRADIENT)
                TX_TRY(compare_part(s, (tx_param_role)part, i));
    for (int32_t i = 0; i < s->model->params && ways.zero == 0; i++)
        if (has_replicas(&s->model->param[i].whole, ways.tensor))
            TX_TRY(plant_moment(s, i));
    return TX_OK;
}

/* ---- Context parallelism -------------------------------------------------------------------------------------- */

/* Counts the bytes of keys and values. A rank sends those of its first chunk to all other ranks, and those of its
 * second chunk to the ranks before it, whose second chunks are later. It does so in the forward pass and when it
 * recomputes it. In the backward pass it returns as many gradients as it received keys and values. */
static tx_status count_messages(const tested *t, const side *s)
{
    int64_t sent = 0;
    const int64_t chunk = BLOCK / ways.context / 2, bytes = s->rows * chunk * t->keys * (int64_t)sizeof(float);
    const int64_t others = ways.context - 1, on = others + groups.context->rank, passes = t->segments ? 3 : 2;
    for (int32_t i = 0; i < s->graph->nodes; i++)
        if (s->graph->node[i].op == TX_OP_SEND)
            sent += tx_tensor_bytes(s->graph->node[i].in[0]);
    const int64_t wanted = ways.layers * bytes * (passes * on + others + others - groups.context->rank);
    return sent == wanted
               ? TX_OK
               : tx_fail(TX_INTERNAL, "%lld bytes of messages, not %lld", (long long)sent, (long long)wanted);
}

/* Multiply-adds of attention, forward and backward. */
static tx_status count_work(const side *s)
{
    float flops[MOST_RANKS] = {0};
    for (int32_t i = 0; i < s->plan->program.length; i++) {
        const tx_command *c = &s->plan->program.commands[i];
        double work = 0.0, bytes;
        if (c->op == TX_OP_ATTENTION || c->op == TX_OP_ATTENTION_GRAD)
            tx_op_work(c, &work, &bytes);
        flops[groups.context->rank] += (float)work;
    }
    TX_TRY(tx_comm_collect(groups.context, TX_ALL_REDUCE, flops, MOST_RANKS, TX_F32, 0));
    for (int32_t r = 0; r < ways.context; r++)
        if (!(flops[r] > 0.0f && flops[r] == flops[0]))
            return tx_fail(TX_INTERNAL, "%g multiply-adds of attention, of rank %d %g", (double)flops[0], (int)r,
                           (double)flops[r]);
    return TX_OK;
}

tx_status check_context(const tested *t, const side *together, const side *alone)
{
    const int64_t own = together->model->saved * ways.context, all = alone->model->saved;
    if (t->keys)
        TX_TRY(count_messages(t, together));
    TX_TRY(count_work(together));
    printf("activations for the backward pass: %lld bytes, of %lld\n", (long long)together->model->saved,
           (long long)all);
    return own <= all + all / 4 ? TX_OK : tx_fail(TX_INTERNAL, "activations are not divided");
}

/* ---- Expert parallelism --------------------------------------------------------------------------------------- */

/* Checks the bytes of a step. The routers score all experts alike, so that the first ones are chosen. A layer's rows
 * and their gradients are sent to the experts and back; the numbers of rows are sent once. */
tx_status check_bytes(side *s)
{
    enum { EXPERTS = 4, CHOSEN = 2 };
    static const float zeros[EXPERTS * WIDTH];
    const int64_t ranks = groups.expert->size, own = EXPERTS / ranks, row = WIDTH * (int64_t)sizeof(float);
    int64_t wanted = (ranks - 1) * own * (int64_t)sizeof(int32_t);
    for (int64_t r = 0; r < ranks; r++) {
        const int64_t left = CHOSEN - r * own, chosen = left < 0 ? 0 : left < own ? left : own;
        wanted += 2 * s->rows * BLOCK * chosen * row * (r == groups.expert->rank ? ranks - 1 : 1);
    }
    wanted *= ways.layers * ways.times;
    for (int32_t layer = 0; layer < ways.layers; layer++) {
        char name[96];
        int32_t index = -1;
        snprintf(name, sizeof name, "model.layers.%d.block_sparse_moe.gate.weight", (int)layer);
        TX_TRY(tx_model_find(s->model, name, &index));
        TX_TRY(tx_model_write(s->model, TX_PARAM_WEIGHT, index, zeros));
    }
    tx_comm_traffic before, after;
    groups.expert->table->traffic(groups.expert, &before);
    TX_TRY(groups_backward(s, 0, 1));
    TX_TRY(tx_model_wait(s->model));
    groups.expert->table->traffic(groups.expert, &after);
    const int64_t sent = after.sent - before.sent;
    printf("all-to-alls: %lld bytes sent\n", (long long)sent);
    return sent == wanted ? TX_OK
                          : tx_fail(TX_INTERNAL, "%lld bytes sent, not %lld", (long long)sent, (long long)wanted);
}
