/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that form several kinds of groups at once, beside the same model on each rank alone, which does the rows of one
 * group after the other: the same weights to begin with, every gradient, the norm, the losses of 12 steps of two
 * micro-batches, dropout, routers' losses and choices that are dropped included; memory as planned, and of each rank
 * its part of the weights; weights and moments go to one rank and back. Gradients that are summed over the wrong ranks
 * must be found, and a loss that counts twice.
 *   test_groups DEVICE TENSOR:CONTEXT:EXPERT:STAGES[:ZERO_STAGE[:SCHEDULE]]... */
#include "comm/comm.h"
#include "tests/parallel/beside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 2, TIMES = 2, BLOCK = 32, VOCAB = 97, LAYERS = 4, MOST_RANKS = 8 };

#define SIZES                                                                                         \
    "\"vocab_size\": 97, \"hidden_size\": 32, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, " \
    "\"num_key_value_heads\": 2, \"intermediate_size\": 24, \"max_position_embeddings\": 32, "        \
    "\"attention_dropout\": 0.1, "
#define MIXTRAL "{\"model_type\": \"mixtral\", " SIZES "\"num_local_experts\": 4, \"num_experts_per_tok\": 2"
#define BALANCED ", \"output_router_logits\": true, \"router_aux_loss_coef\": 0.02"
#define QWEN                                                                                    \
    "{\"model_type\": \"qwen2_moe\", " SIZES "\"num_experts\": 4, \"num_experts_per_tok\": 2, " \
    "\"moe_intermediate_size\": 8, \"shared_expert_intermediate_size\": 16, \"mlp_only_layers\": [1, 2]}"
static const struct tested {
    const char *name, *config;
    bool experts, routers; /* has some; these have losses, and a capacity, which go by whole rows */
} models[] = {
    {"mixtral, its routers with losses", MIXTRAL BALANCED "}", true, true},
    {"mixtral", MIXTRAL "}", true, false},
    {"qwen2_moe", QWEN, true, false},
    {"gpt2",
     "{\"model_type\": \"gpt2\", \"vocab_size\": 97, \"n_layer\": 4, \"n_head\": 4, \"n_embd\": 32, "
     "\"n_positions\": 32}",
     false, false},
    {"qwen3, its table tied", "{\"model_type\": \"qwen3\", " SIZES "\"head_dim\": 8, \"tie_word_embeddings\": true}",
     false, false},
};
enum { MODELS = sizeof models / sizeof models[0] };
typedef const struct tested tested;

/* How the ranks are divided, and this one's groups. */
static struct ways {
    int32_t tensor, context, expert, stages, chunks, zero; /* chunks: stages of a rank */
    tx_pipeline_schedule schedule;
} ways;
static struct groups {
    tx_comm *tensor, *pipeline, *ends, *sums, *context, *data, *expert, *replicas;
} groups;

/* ---- A model and its steps ---------------------------------------------------------------------------------- */

/* Those of the stages before this one, which are as even as can be. */
static int32_t blocks_before(int32_t stage, int32_t stages)
{
    return LAYERS * stage / stages;
}

/* `sums` NULL: of this rank alone. */
static tx_status make(const char *device, tested *t, const tx_config *config, tx_comm *sums, tx_comm *replicas, side *s)
{
    const tx_engine_options engine = {.size = sizeof engine, .device = device, .threads = 1};
    int32_t of_stage[LAYERS];
    const tx_parallel_options parallel = {.size = sizeof parallel,
                                          .bucket_bytes = 20000,
                                          .zero_stage = ways.zero,
                                          .tensor = groups.tensor,
                                          .context = groups.context,
                                          .expert = groups.expert,
                                          .replicas = replicas,
                                          .pipeline = groups.pipeline,
                                          .ends = groups.ends,
                                          .blocks = LAYERS,
                                          .stage_blocks = of_stage,
                                          .micro_batches = TIMES,
                                          .chunks = ways.chunks,
                                          .schedule = ways.schedule};
    for (int32_t stage = 0; stage < ways.stages * ways.chunks; stage++)
        of_stage[stage] =
            blocks_before(stage + 1, ways.stages * ways.chunks) - blocks_before(stage, ways.stages * ways.chunks);
    TX_TRY(tx_engine_create(&engine, &s->engine));
    TX_TRY(tx_model_create(s->engine, &s->model));
    if (sums)
        TX_TRY(tx_model_parallel(s->model, sums, &parallel));
    TX_TRY(tx_graph_create(s->model, &s->graph));
    TX_TRY(beside_train(s, config, sums ? BLOCK / ways.context : BLOCK, t->routers, 0.0f));
    return beside_begin(s);
}

/* Of rows, the two chunks that this rank has. */
static const int32_t *own_chunks(const int32_t *rows, bool together, int32_t *own)
{
    const int32_t half = BLOCK / (2 * ways.context), rank = groups.context->rank;
    const int32_t second = (2 * ways.context - 1 - rank) * half;
    if (!together)
        return rows;
    for (int32_t r = 0; r < ROWS; r++) {
        memcpy(own + 2 * r * half, rows + r * BLOCK + rank * half, (size_t)half * sizeof *own);
        memcpy(own + (2 * r + 1) * half, rows + r * BLOCK + second, (size_t)half * sizeof *own);
    }
    return own;
}

/* The rows of a group in a micro-batch; `m` is its number among the runs of the step, or of a pipeline's inputs. */
static tx_status give(const side *s, bool together, int32_t m, const int32_t *tokens, const int32_t *labels)
{
    int32_t own[ROWS * BLOCK];
    const size_t bytes = (size_t)(ROWS * BLOCK / (together ? ways.context : 1)) * sizeof *own;
    const int32_t input = together && ways.stages > 1 ? m : 0;
    TX_TRY(tx_model_set(s->model, TX_CONTROL_ACCUMULATE, m > 0));
    TX_TRY(tx_model_keep_controls(s->model, m));
    TX_TRY(tx_plan_write(s->plan, tx_plan_input(s->plan, s->tokens, input), own_chunks(tokens, together, own), bytes));
    return tx_plan_write(s->plan, tx_plan_input(s->plan, s->labels, input), own_chunks(labels, together, own), bytes);
}

/* The gradients of a step: of this rank's rows, or, alone, of those of all groups, one after the other. */
static tx_status backward(side *s, int32_t number, int32_t together)
{
    enum { MOST = TIMES * MOST_RANKS * ROWS * BLOCK };
    int32_t tokens[MOST], labels[MOST], counted = 0;
    const int32_t all = groups.data->size, runs = together ? TIMES : TIMES * all;
    for (int32_t i = 0; i < TIMES * all * ROWS * BLOCK; i++) {
        tokens[i] = (i * i * 7 + i * number + 31 * number) % VOCAB;
        labels[i] = i % 11 == 0 ? TX_IGNORE_LABEL : (tokens[i] * 3 + 1) % VOCAB;
        counted += labels[i] != TX_IGNORE_LABEL;
    }
    TX_TRY(tx_model_set(s->model, TX_CONTROL_INVERSE_LABELS, 1.0 / counted));
    TX_TRY(tx_model_set(s->model, TX_CONTROL_LABEL_SHARE, 1.0 / (TIMES * all)));
    TX_TRY(tx_model_set(s->model, TX_CONTROL_STEP, (double)number));
    for (int32_t m = 0; m < runs; m++) {
        const int32_t first = ROWS * (together ? m * all + groups.data->rank : m);
        TX_TRY(tx_model_set(s->model, TX_CONTROL_SAMPLE, (double)(number * TIMES * all * ROWS + first)));
        TX_TRY(give(s, together, m, tokens + first * BLOCK, labels + first * BLOCK));
        TX_TRY(tx_model_synchronize(s->model, m == runs - 1));
        if (!together || ways.stages == 1 || m == runs - 1)
            TX_TRY(tx_plan_run(s->plan));
    }
    return TX_OK;
}

/* ---- Memory -------------------------------------------------------------------------------------------------- */

/* The tensor group's part, of heads of keys and values one at least. */
static int64_t part_of(const tx_param_spec *spec)
{
    const tx_param_sections *s = &spec->sections;
    const int64_t count = tx_shape_count(&spec->shape), parts = spec->split ? ways.tensor : 1;
    int64_t rows = 0;
    for (int32_t i = 0; i < s->count; i++)
        rows += s->size[i] / parts > s->unit ? s->size[i] / parts : s->unit;
    return s->unit ? count / spec->shape.dim[0] * rows : count / parts;
}

/* Whole experts go to the ranks of an expert group, parts of what is split to those of a tensor group, blocks to the
 * stages, which are as even as can be. */
static int64_t share_of(const tx_param_spec *spec, int32_t rank, int32_t ranks)
{
    const int32_t stages = ranks * ways.chunks;
    bool has = spec->block == 0 ? rank == 0 || (spec->tied && rank == ranks - 1) : spec->block < 0 && rank == ranks - 1;
    for (int32_t s = rank; s < stages; s += ranks)
        has = has || (spec->block > blocks_before(s, stages) && spec->block <= blocks_before(s + 1, stages));
    return has ? part_of(spec) / (spec->experts ? ways.expert : 1) : 0;
}

/* ---- Faults --------------------------------------------------------------------------------------------------- */

/* Gradients of experts that are summed over ranks which have others, or of chunks over none of the others. */
static tx_status sum_wrongly(const char *device, tested *t, const tx_config *config, const side *alone)
{
    side wrong = {.rows = ROWS};
    double off = 0.0;
    const bool by_experts = ways.expert > 1;
    if (ways.zero > 0 || (!by_experts && ways.context == 1))
        return TX_OK;
    tx_status status = make(device, t, config, by_experts ? groups.sums : groups.data,
                            by_experts ? groups.sums : groups.replicas, &wrong);
    TX_THEN(status, backward(&wrong, 0, 1));
    TX_THEN(status, tx_model_settle(wrong.model));
    TX_THEN(status, beside_furthest(&wrong, alone, TX_PART_GRADIENT, -1, 1.0, &off));
    beside_free(&wrong);
    if (!status && !(off > 1e-5))
        status = tx_fail(TX_INTERNAL, "gradients summed over the wrong ranks were not found");
    return status;
}

static tx_status count_twice(side *together, const side *alone)
{
    together->results.value[TX_RESULT_LOSS] *= 2.0f;
    return beside_results(together, alone, BESIDE_STEPS) ? TX_OK
                                                         : tx_fail(TX_INTERNAL, "a loss counted twice was not found");
}

/* ---- All of it ------------------------------------------------------------------------------------------------ */

static tx_status compare(const char *device, tested *t, const tx_config *config)
{
    side together = {.rows = ROWS}, alone = {.rows = ROWS};
    double off = (double)NAN;
    tx_status status = make(device, t, config, groups.sums, groups.replicas, &together);
    TX_THEN(status, make(device, t, config, NULL, NULL, &alone));
    TX_THEN(status, beside_furthest(&together, &alone, TX_PART_WEIGHT, -1, 1.0, &off));
    if (!status && !(off <= 0.0))
        status = tx_fail(TX_INTERNAL, "other weights to begin with");
    TX_THEN(status, backward(&alone, 0, 0));
    TX_THEN(status, sum_wrongly(device, t, config, &alone));
    TX_THEN(status, beside_steps(&together, 1, &alone, 0, backward, ways.zero == 0));
    TX_THEN(status, count_twice(&together, &alone));
    TX_THEN(status, tx_model_settle(together.model));
    TX_THEN(status, beside_memory(&together, share_of, groups.pipeline ? groups.pipeline->rank : 0, ways.stages,
                                  ways.zero == 3));
    TX_THEN(status, beside_carry(&together, &alone));
    beside_free(&together);
    beside_free(&alone);
    return status;
}

static tx_status make_groups(tx_comm *comm)
{
    const int32_t of_stage = comm->size / ways.stages, stage = comm->rank / of_stage, part = comm->rank % ways.tensor;
    TX_TRY(tx_comm_sub(comm, comm->rank / ways.tensor, comm->rank, &groups.tensor));
    TX_TRY(tx_comm_sub(comm, comm->rank % of_stage, comm->rank, &groups.pipeline));
    TX_TRY(tx_comm_sub(groups.pipeline, stage > 0 && stage < ways.stages - 1, comm->rank, &groups.ends));
    TX_TRY(tx_comm_sub(comm, stage * ways.tensor + part, comm->rank, &groups.sums));
    const int32_t row = groups.sums->rank;
    TX_TRY(tx_comm_sub(groups.sums, row / ways.context, row, &groups.context));
    TX_TRY(tx_comm_sub(groups.sums, row % ways.context, row, &groups.data));
    TX_TRY(tx_comm_sub(groups.sums, row / ways.expert, row, &groups.expert));
    return tx_comm_sub(groups.sums, row % ways.expert, row, &groups.replicas);
}

static tx_status run(const char *device, tx_comm *comm, int32_t tensor, int rests, char **rest)
{
    int32_t *const sizes[] = {&ways.context, &ways.expert, &ways.stages, &ways.zero};
    tx_status status = TX_OK;
    ways = (struct ways){tensor, 1, 1, 1, 1, 0, TX_PIPELINE_1F1B};
    for (int i = 0; i < 4 && i < rests; i++)
        *sizes[i] = (int32_t)strtol(rest[i], NULL, 10);
    if (rests > 4 && strcmp(rest[4], "interleaved") == 0) {
        ways.schedule = TX_PIPELINE_INTERLEAVED;
        ways.chunks = 2;
    }
    TX_TRY(make_groups(comm));
    for (int m = 0; m < MODELS && !status; m++) {
        tx_config *config = NULL;
        if ((ways.expert > 1 && !models[m].experts) || (ways.context > 1 && models[m].routers))
            continue;
        printf("%s\n", models[m].name);
        status = beside_config(models[m].config, &config);
        TX_THEN(status, compare(device, &models[m], config));
        status = tx_fail_in(status, "%s", models[m].name);
        tx_config_free(config);
    }
    return status;
}

int main(int argc, char **argv)
{
    return beside_main(argc, argv, run);
}
