/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that have two chunks each of the positions of the same rows, beside the same model on each rank alone: every
 * gradient, the norm, the losses of 12 steps, dropout included; what the model takes is what was planned, and the
 * activations of chunks are fewer; attention is as much work for each; messages are as many bytes as the keys, values
 * and gradients that others need; weights and moments go to one rank and back. And wrong gradients, which must be
 * found. test_context DEVICE RANKS[:ZERO_STAGE]... */
#include "api/graph/graph.h"
#include "api/graph/op.h"
#include "api/model/model.h"
#include "api/plan/plan.h"
#include "comm/comm.h"
#include "tests/parallel/beside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 4, BLOCK = 64, VOCAB = 97, LAYERS = 2, WIDTH = 32 };

#define SIZES "\"vocab_size\": 97, "
#define LLAMA                                                                                                       \
    SIZES "\"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, " \
          "\"intermediate_size\": 24, \"attention_dropout\": 0.1, \"max_position_embeddings\": 64}"
static const struct tested {
    const char *name, *config;
    int64_t keys; /* columns of keys and values, together */
    int32_t segments;
} models[] = {
    {"gpt2", "{\"model_type\": \"gpt2\", " SIZES "\"n_layer\": 2, \"n_head\": 4, \"n_embd\": 32, \"n_positions\": 64}",
     2 * WIDTH, 0},
    {"gpt2 again",
     "{\"model_type\": \"gpt2\", " SIZES "\"n_layer\": 2, \"n_head\": 4, \"n_embd\": 32, \"n_positions\": 64}",
     2 * WIDTH, 2},
    {"llama", "{\"model_type\": \"llama\", " LLAMA, WIDTH, 0},
    {"qwen3", "{\"model_type\": \"qwen3\", \"head_dim\": 4, \"tie_word_embeddings\": true, " LLAMA, WIDTH, 0},
};
enum { MODELS = sizeof models / sizeof models[0] };
typedef const struct tested tested;

/* ---- A model and its steps ---------------------------------------------------------------------------------- */

/* `parallel` NULL: of this rank alone. */
static tx_status make(const char *device, tested *t, const tx_config *config, tx_comm *comm,
                      const tx_parallel_options *parallel, int32_t length, side *s)
{
    const tx_engine_options engine = {.size = sizeof engine, .device = device, .threads = 1};
    const tx_checkpointing again = {.size = sizeof again, .segments = t->segments, .whole = t->segments};
    TX_TRY(tx_engine_create(&engine, &s->engine));
    TX_TRY(tx_model_create(s->engine, &s->model));
    if (parallel)
        TX_TRY(tx_model_parallel(s->model, comm, parallel));
    TX_TRY(tx_graph_create(s->model, &s->graph));
    if (t->segments)
        TX_TRY(tx_graph_checkpointing(s->graph, &again));
    TX_TRY(beside_train(s, config, length, false, 0.1f));
    return beside_begin(s);
}

/* The gradients of a step's rows, or of the two chunks of them that rank `rank` of a group has. */
static tx_status backward(side *s, int32_t number, int32_t rank)
{
    const int32_t length = (int32_t)tx_tensor_shape(s->tokens)->dim[1], half = length / 2;
    const int32_t first = rank * half, second = (2 * (BLOCK / length) - 1 - rank) * half;
    int32_t tokens[ROWS * BLOCK], labels[ROWS * BLOCK], counted = 0, put = 0;
    for (int32_t i = 0; i < s->all * BLOCK; i++) {
        const int32_t token = (i * i * 7 + i * number + 31 * number) % VOCAB, row = i / BLOCK, place = i % BLOCK;
        const int32_t label = i % 11 == 0 ? TX_IGNORE_LABEL : (token * 3 + 1) % VOCAB;
        counted += label != TX_IGNORE_LABEL;
        const bool here = (place >= first && place < first + half) || (place >= second && place < second + half);
        if (row < s->first || row >= s->first + s->rows || !here)
            continue;
        tokens[put] = token;
        labels[put++] = label;
    }
    TX_TRY(tx_model_set(s->model, TX_CONTROL_INVERSE_LABELS, 1.0 / counted));
    TX_TRY(tx_model_set(s->model, TX_CONTROL_SAMPLE, (double)(number * s->all + s->first)));
    TX_TRY(tx_model_set(s->model, TX_CONTROL_STEP, (double)number));
    TX_TRY(tx_plan_write(s->plan, s->tokens, tokens, (size_t)put * sizeof *tokens));
    TX_TRY(tx_plan_write(s->plan, s->labels, labels, (size_t)put * sizeof *labels));
    return tx_plan_run(s->plan);
}

/* ---- Messages ------------------------------------------------------------------------------------------------- */

/* Keys and values of a rank's first chunk go to all others, those of its second to the ranks before it, whose second
 * chunks are later: in the forward pass, where it is computed again, and in the backward pass, from which each rank
 * returns as many gradients as it got keys and values. */
static tx_status count_messages(const side *s, tested *t, int32_t length, const tx_comm *context)
{
    int64_t sent = 0;
    const int64_t bytes = (int64_t)s->rows * (length / 2) * t->keys * (int64_t)sizeof(float),
                  others = context->size - 1;
    const int64_t on = others + context->rank, back = others + others - context->rank, passes = t->segments ? 3 : 2;
    for (int32_t i = 0; i < s->graph->nodes; i++)
        if (s->graph->node[i].op == TX_OP_SEND)
            sent += tx_tensor_bytes(s->graph->node[i].in[0]);
    const int64_t wanted = LAYERS * bytes * (passes * on + back);
    return sent == wanted
               ? TX_OK
               : tx_fail(TX_INTERNAL, "%lld bytes of messages, not %lld", (long long)sent, (long long)wanted);
}

/* Multiply-adds of attention, forward and backward: as many for each rank of a group as for any other. */
static tx_status count_work(const side *s, tx_comm *context)
{
    float flops[8] = {0};
    if (context->size > 8)
        return tx_fail(TX_UNSUPPORTED, "at most 8 chunks");
    for (int32_t i = 0; i < s->plan->program.length; i++) {
        const tx_command *c = &s->plan->program.commands[i];
        double work = 0.0, bytes;
        if (c->op == TX_OP_ATTENTION || c->op == TX_OP_ATTENTION_GRAD)
            tx_op_work(c, &work, &bytes);
        flops[context->rank] += (float)work;
    }
    TX_TRY(tx_comm_collect(context, TX_ALL_REDUCE, flops, 8, TX_F32, 0));
    for (int32_t r = 0; r < context->size; r++)
        if (!(flops[r] > 0.0f && flops[r] == flops[0]))
            return tx_fail(TX_INTERNAL, "%g multiply-adds of attention, of rank %d %g", (double)flops[0], (int)r,
                           (double)flops[r]);
    return TX_OK;
}

static int64_t share_of(const tx_param_spec *spec, int32_t part, int32_t parts)
{
    (void)part;
    (void)parts;
    return tx_shape_count(&spec->shape);
}

static tx_status compare_memory(const side *together, const side *alone, const tx_comm *comm, int32_t stage)
{
    TX_TRY(beside_memory(together, share_of, 0, 1, stage == 3));
    const int64_t own = together->model->saved * comm->size, all = alone->model->saved;
    printf("activations for the backward pass: %lld bytes, of %lld\n", (long long)together->model->saved,
           (long long)all);
    return own <= all + all / 8 ? TX_OK : tx_fail(TX_INTERNAL, "activations are not divided");
}

/* ---- All of it ------------------------------------------------------------------------------------------------ */

static tx_status compare(const char *device, tested *t, const tx_config *config, tx_comm *comm, tx_comm *context,
                         int32_t stage)
{
    const tx_parallel_options parallel = {
        .size = sizeof parallel, .bucket_bytes = 20000, .zero_stage = stage, .context = context};
    const int32_t groups = comm->size / context->size, own = ROWS / groups, length = BLOCK / context->size;
    side together = {.rows = own, .first = comm->rank / context->size * own, .all = ROWS},
         alone = {.rows = ROWS, .all = ROWS};
    tx_status status = make(device, t, config, comm, &parallel, length, &together);
    TX_THEN(status, make(device, t, config, NULL, NULL, BLOCK, &alone));
    TX_THEN(status, count_messages(&together, t, length, context));
    TX_THEN(status, count_work(&together, context));
    TX_THEN(status, beside_steps(&together, context->rank, &alone, 0, backward, stage == 0));
    TX_THEN(status, tx_model_settle(together.model));
    TX_THEN(status, compare_memory(&together, &alone, comm, stage));
    TX_THEN(status, beside_carry(&together, &alone));
    beside_free(&together);
    beside_free(&alone);
    return status;
}

static tx_status run(const char *device, tx_comm *comm, int32_t chunks, int rests, char **rest)
{
    const int32_t stage = rests > 0 ? (int32_t)strtol(rest[0], NULL, 10) : 0;
    tx_comm *context = NULL;
    tx_status status = TX_OK;
    TX_TRY(tx_comm_sub(comm, comm->rank / chunks, comm->rank, &context));
    for (int m = 0; m < MODELS && !status; m++) {
        tx_config *config = NULL;
        status = beside_config(models[m].config, &config);
        TX_THEN(status, compare(device, &models[m], config, comm, context, stage));
        status = tx_fail_in(status, "%s", models[m].name);
        tx_config_free(config);
    }
    return status;
}

int main(int argc, char **argv)
{
    return beside_main(argc, argv, run);
}
