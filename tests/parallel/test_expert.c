/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that divide experts, beside the same model on each rank alone, which does the rows of one rank after the other:
 * the same weights to begin with, every gradient, the norm, the losses of 12 steps, dropout, routers' losses and
 * choices that are dropped included; memory as planned; weights and moments go to one rank and back; and where all
 * tokens choose the same experts, the bytes that all-to-alls send, to the byte. test_expert DEVICE
 * EXPERT[:ZERO_STAGE]...
 */
#include "comm/comm.h"
#include "tests/parallel/beside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 2, BLOCK = 24, VOCAB = 97, MOST_RANKS = 4, LAYERS = 2, WIDTH = 32, EXPERTS = 4, CHOSEN = 2 };

#define SIZES                                                                                         \
    "\"vocab_size\": 97, \"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, " \
    "\"num_key_value_heads\": 2, \"intermediate_size\": 24, \"max_position_embeddings\": 32, "        \
    "\"num_experts_per_tok\": 2, "
#define MIXTRAL                                                                                     \
    "{\"model_type\": \"mixtral\", " SIZES "\"num_local_experts\": 4, \"attention_dropout\": 0.1, " \
    "\"output_router_logits\": true, \"router_aux_loss_coef\": 0.02, \"sliding_window\": null}"
#define QWEN                                                                                      \
    "{\"model_type\": \"qwen2_moe\", " SIZES "\"num_experts\": 4, \"moe_intermediate_size\": 8, " \
    "\"shared_expert_intermediate_size\": 16, \"decoder_sparse_step\": 1}"

typedef struct tested {
    const char *name, *config;
    bool routers; /* have losses, and experts a capacity */
} tested;
static const tested models[] = {{"a capacity", MIXTRAL, true}, {"mixtral", MIXTRAL, false}, {"qwen2_moe", QWEN, false}};

typedef struct groups {
    tx_comm *all, *expert, *replicas;
} groups;

static tx_status make(const char *device, const tested *t, const tx_config *config, tx_comm *comm,
                      const tx_parallel_options *parallel, side *s)
{
    const tx_engine_options engine = {.size = sizeof engine, .device = device, .threads = 1};
    TX_TRY(tx_engine_create(&engine, &s->engine));
    TX_TRY(tx_model_create(s->engine, &s->model));
    if (parallel)
        TX_TRY(tx_model_parallel(s->model, comm, parallel));
    TX_TRY(tx_graph_create(s->model, &s->graph));
    TX_TRY(beside_train(s, config, BLOCK, t->routers, 0.0f));
    return beside_begin(s);
}

/* The gradients of a step: of this rank's rows, or, alone, of those of all ranks, rank after rank. */
static tx_status backward(side *s, int32_t number, int32_t ranks)
{
    int32_t tokens[MOST_RANKS * ROWS * BLOCK], labels[MOST_RANKS * ROWS * BLOCK], counted = 0;
    const size_t bytes = (size_t)(ROWS * BLOCK) * sizeof *tokens;
    for (int32_t i = 0; i < s->all * BLOCK; i++) {
        tokens[i] = (i * i * 7 + i * number + 31 * number) % VOCAB;
        labels[i] = i % 11 == 0 ? TX_IGNORE_LABEL : (tokens[i] * 3 + 1) % VOCAB;
        counted += labels[i] != TX_IGNORE_LABEL;
    }
    TX_TRY(tx_model_set(s->model, TX_CONTROL_INVERSE_LABELS, 1.0 / counted));
    TX_TRY(tx_model_set(s->model, TX_CONTROL_LABEL_SHARE, (double)ROWS / s->all));
    TX_TRY(tx_model_set(s->model, TX_CONTROL_STEP, (double)number));
    for (int32_t m = 0; m < ranks; m++) {
        const int32_t first = s->first + m * ROWS;
        TX_TRY(tx_model_set(s->model, TX_CONTROL_SAMPLE, (double)(number * s->all + first)));
        TX_TRY(tx_model_set(s->model, TX_CONTROL_ACCUMULATE, m > 0));
        TX_TRY(tx_plan_write(s->plan, s->tokens, tokens + first * BLOCK, bytes));
        TX_TRY(tx_plan_write(s->plan, s->labels, labels + first * BLOCK, bytes));
        TX_TRY(tx_plan_run(s->plan));
    }
    return TX_OK;
}

/* Of experts there is a part. */
static int64_t share_of(const tx_param_spec *spec, int32_t part, int32_t parts)
{
    (void)part;
    return tx_shape_count(&spec->shape) / (spec->experts ? parts : 1);
}

/* Routers that score all experts alike, of which the first are taken, and the bytes of a step: a layer's rows go forth
 * and come back, and so do their gradients; the numbers of rows go once. */
static tx_status count_bytes(side *s, const groups *g)
{
    static const float zeros[EXPERTS * WIDTH];
    const int64_t ranks = g->expert->size, own = EXPERTS / ranks, row = WIDTH * (int64_t)sizeof(float);
    int64_t wanted = (ranks - 1) * own * (int64_t)sizeof(int32_t);
    for (int64_t r = 0; r < ranks; r++) {
        const int64_t left = CHOSEN - r * own, chosen = left < 0 ? 0 : left < own ? left : own;
        wanted += 2 * ROWS * BLOCK * chosen * row * (r == g->expert->rank ? ranks - 1 : 1);
    }
    for (int32_t layer = 0; layer < LAYERS; layer++) {
        char name[96];
        int32_t index = -1;
        snprintf(name, sizeof name, "model.layers.%d.block_sparse_moe.gate.weight", (int)layer);
        TX_TRY(tx_model_find(s->model, name, &index));
        TX_TRY(tx_model_write(s->model, TX_PART_WEIGHT, index, zeros));
    }
    tx_comm_traffic before, after;
    g->expert->table->traffic(g->expert, &before);
    TX_TRY(backward(s, 0, 1));
    TX_TRY(tx_model_settle(s->model));
    g->expert->table->traffic(g->expert, &after);
    const long long sent = (long long)(after.sent - before.sent);
    printf("all-to-alls: %lld bytes sent\n", sent);
    return sent == (long long)(LAYERS * wanted)
               ? TX_OK
               : tx_fail(TX_INTERNAL, "%lld bytes sent, not %lld", sent, (long long)(LAYERS * wanted));
}

static tx_status compare(const char *device, const tested *t, const tx_config *config, const groups *g, int32_t stage)
{
    const tx_parallel_options parallel = {.size = sizeof parallel,
                                          .bucket_bytes = 20000,
                                          .zero_stage = stage,
                                          .expert = g->expert,
                                          .replicas = g->replicas};
    const int32_t ranks = g->all->size;
    side together = {.rows = ROWS, .first = g->all->rank * ROWS, .all = ranks * ROWS},
         alone = {.rows = ROWS, .all = ranks * ROWS};
    double off = (double)NAN;
    tx_status status = make(device, t, config, g->all, &parallel, &together);
    TX_THEN(status, make(device, t, config, NULL, NULL, &alone));
    TX_THEN(status, beside_furthest(&together, &alone, TX_PART_WEIGHT, -1, 1.0, &off));
    if (!status && !(off <= 0.0))
        status = tx_fail(TX_INTERNAL, "other weights to begin with");
    TX_THEN(status, beside_steps(&together, 1, &alone, ranks, backward, stage == 0));
    TX_THEN(status, tx_model_settle(together.model));
    TX_THEN(status, beside_memory(&together, share_of, g->expert->rank, g->expert->size, stage == 3));
    TX_THEN(status, beside_carry(&together, &alone));
    if (strcmp(t->name, "mixtral") == 0)
        TX_THEN(status, count_bytes(&together, g));
    beside_free(&together);
    beside_free(&alone);
    return status;
}

static tx_status run(const char *device, tx_comm *comm, int32_t experts, int rests, char **rest)
{
    const int32_t stage = rests > 0 ? (int32_t)strtol(rest[0], NULL, 10) : 0;
    groups g = {.all = comm};
    tx_status status = TX_OK;
    TX_TRY(tx_comm_sub(comm, comm->rank / experts, comm->rank, &g.expert));
    TX_TRY(tx_comm_sub(comm, comm->rank % experts, comm->rank, &g.replicas));
    for (size_t m = 0; m < sizeof models / sizeof models[0] && !status; m++) {
        tx_config *config = NULL;
        status = beside_config(models[m].config, &config);
        TX_THEN(status, compare(device, &models[m], config, &g, stage));
        status = tx_fail_in(status, "%s", models[m].name);
        tx_config_free(config);
    }
    return status;
}

int main(int argc, char **argv)
{
    return beside_main(argc, argv, run);
}
