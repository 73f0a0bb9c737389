/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that have a stage of a model each, or two, beside the same model on each rank alone: the same weights to begin
 * with, every gradient, the norm, the losses of 12 steps of several micro-batches, dropout included; all schedules to
 * the bit; memory as planned, and of each rank its weights; weights and moments go to one rank and back. Wrong
 * gradients must be found, and timetables that never end. test_stages DEVICE
 * RANKS:SCHEDULE[:ZERO_STAGE[:BLOCKS,BLOCKS,...]]...; BLOCKS is a number for each stage, as even as can be by default.
 */
#include "comm/comm.h"
#include "tests/parallel/beside.h"
#include "tests/parallel/trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 2, TIMES = 4, BLOCK = 24, VOCAB = 97, LAYERS = 5, MOST_LAYERS = 8 };

static int32_t chunks = 1;            /* stages of a rank */
static int32_t layers = LAYERS;       /* of the models; MOST_LAYERS where there are more stages */
static int32_t of_stage[MOST_LAYERS]; /* blocks of each stage */

#define SIZES "\"vocab_size\": 97, "
#define LLAMA                                                                                                       \
    SIZES "\"hidden_size\": 32, \"num_hidden_layers\": 5, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, " \
          "\"intermediate_size\": 24, \"attention_dropout\": 0.1, \"max_position_embeddings\": 32, "
static const struct {
    const char *name, *config;
} models[] = {
    {"gpt2", "{\"model_type\": \"gpt2\", " SIZES "\"n_layer\": 5, \"n_head\": 4, \"n_embd\": 32, \"n_positions\": 32}"},
    {"llama", "{\"model_type\": \"llama\", " LLAMA "\"attention_bias\": true}"},
    {"qwen3", "{\"model_type\": \"qwen3\", " LLAMA "\"head_dim\": 8, \"tie_word_embeddings\": true}"},
    {"bert", "{\"model_type\": \"bert\", \"architectures\": [\"BertForMaskedLM\"], " SIZES
             "\"hidden_size\": 32, \"num_hidden_layers\": 5, \"num_attention_heads\": 4, \"intermediate_size\": 48, "
             "\"max_position_embeddings\": 32}"},
    {"mixtral", "{\"model_type\": \"mixtral\", " LLAMA
                "\"num_local_experts\": 5, \"output_router_logits\": true, \"router_aux_loss_coef\": 0.02}"},
    {"qwen2_moe",
     "{\"model_type\": \"qwen2_moe\", " LLAMA
     "\"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 8, "
     "\"shared_expert_intermediate_size\": 16, \"mlp_only_layers\": [1, 2], \"output_router_logits\": true}"},
};
enum { MODELS = sizeof models / sizeof models[0] };

/* ---- Timetables ---------------------------------------------------------------------------------------------- */

static tx_status make_tables(tx_pipeline_schedule schedule, int32_t ranks, int32_t each, int32_t times,
                             tx_timetable *table)
{
    for (int32_t r = 0; r < ranks; r++)
        TX_TRY(tx_timetable_make(schedule, r, ranks, each, times, &table[r]));
    return TX_OK;
}

/* The most parts of micro-batches whose forward part is over and whose backward part is not. */
static int32_t most_kept(const tx_timetable *t)
{
    int32_t now = 0, most = 0;
    for (int32_t i = 0; i < t->turns; i++)
        if (t->turn[i].kind == TX_TURN_COMPUTE) {
            now += t->turn[i].backward ? -1 : 1;
            most = now > most ? now : most;
        }
    return most;
}

static int32_t find_turn(const tx_timetable *t, tx_turn_kind kind, bool backward)
{
    int32_t i = 0;
    while (i < t->turns && (t->turn[i].kind != kind || t->turn[i].backward != backward))
        i++;
    return i;
}

/* Stage 0 waits for a gradient before it sends what that follows from; then a message is called for and never sent. */
static tx_status plant_faults(tx_timetable *table, int32_t stages)
{
    tx_timetable *t = &table[0];
    const int32_t sends = find_turn(t, TX_TURN_SEND, false), waits = find_turn(t, TX_TURN_RECEIVED, true);
    const tx_turn send = t->turn[sends];
    memmove(t->turn + sends, t->turn + sends + 1, (size_t)(waits - sends) * sizeof send);
    t->turn[waits] = send;
    if (try_together(table, stages) != TX_INTERNAL || !strstr(tx_error(), "waits for ever"))
        return tx_fail(TX_INTERNAL, "a circle of waiting stages was not found: %s", tx_error());
    t->turn[waits].kind = TX_TURN_RECEIVE;
    if (try_together(table, stages) != TX_INTERNAL || !strstr(tx_error(), "no other end"))
        return tx_fail(TX_INTERNAL, "a message without another end was not found: %s", tx_error());
    return TX_OK;
}

enum { MOST = 9 }; /* ranks */

/* How many parts a rank has to keep at most. */
static int32_t kept_by(tx_pipeline_schedule schedule, int32_t rank, int32_t ranks, int32_t each, int32_t times)
{
    const int32_t parts = each * times, behind = ranks - 1 - rank;
    const int32_t few = 1 + (schedule == TX_PIPELINE_INTERLEAVED ? 2 * behind + (each - 1) * ranks : behind);
    return schedule == TX_PIPELINE_GPIPE || few > parts ? parts : few;
}

static tx_status try_tables_of(tx_pipeline_schedule schedule, int32_t ranks, int32_t each, int32_t times)
{
    tx_timetable table[MOST] = {0};
    TX_TRY(make_tables(schedule, ranks, each, times, table));
    tx_status status = try_together(table, ranks);
    for (int32_t r = 0; r < ranks && !status; r++) {
        const int32_t wanted = kept_by(schedule, r, ranks, each, times);
        if (most_kept(&table[r]) != wanted)
            status = tx_fail(TX_INTERNAL, "rank %d of %d keeps %d parts, not %d", (int)r, (int)ranks,
                             (int)most_kept(&table[r]), (int)wanted);
    }
    if (ranks > 1 && times > 1)
        TX_THEN(status, plant_faults(table, ranks));
    for (int32_t r = 0; r < ranks; r++)
        tx_timetable_free(&table[r]);
    return tx_fail_in(status, "schedule %d, %d chunks, %d micro-batches", (int)schedule, (int)each, (int)times);
}

static tx_status try_tables(void)
{
    for (int32_t ranks = 1; ranks <= MOST; ranks++)
        for (int32_t times = 1; times <= 2 * MOST; times += times < 4 ? 1 : 5) {
            TX_TRY(try_tables_of(TX_PIPELINE_1F1B, ranks, 1, times));
            TX_TRY(try_tables_of(TX_PIPELINE_GPIPE, ranks, 1, times));
        }
    for (int32_t ranks = 2; ranks <= MOST; ranks++)
        for (int32_t each = 2; each <= 4; each++)
            for (int32_t rounds = 1; rounds <= 3; rounds++)
                TX_TRY(try_tables_of(TX_PIPELINE_INTERLEAVED, ranks, each, rounds * ranks));
    return TX_OK;
}

/* ---- A model and its steps ----------------------------------------------------------------------------------- */

static tx_status make(const char *device, const tx_config *config, bool routers, tx_comm *comm,
                      const tx_parallel_options *parallel, side *s)
{
    const tx_engine_options engine = {.size = sizeof engine, .device = device, .threads = 1};
    TX_TRY(tx_engine_create(&engine, &s->engine));
    TX_TRY(tx_model_create(s->engine, &s->model));
    if (parallel)
        TX_TRY(tx_model_parallel(s->model, comm, parallel));
    TX_TRY(tx_graph_create(s->model, &s->graph));
    TX_TRY(beside_train(s, config, BLOCK, routers, 0.0f));
    return beside_begin(s);
}

/* The gradients of a step: of the pipeline in one run, alone in one a micro-batch. */
static tx_status backward(side *s, int32_t number, int32_t staged)
{
    enum { ALL = 2 * ROWS * TIMES * BLOCK };
    int32_t tokens[ALL], labels[ALL];
    const int32_t every = 2 * ROWS * BLOCK; /* positions of a micro-batch, on at most two pipelines */
    int32_t counted = 0;
    for (int32_t i = 0; i < ALL; i++) {
        tokens[i] = (i * i * 7 + i * number + 31 * number) % VOCAB;
        labels[i] = i % 11 == 0 ? TX_IGNORE_LABEL : (tokens[i] * 3 + 1) % VOCAB;
        counted += labels[i] != TX_IGNORE_LABEL;
    }
    TX_TRY(tx_model_set(s->model, TX_CONTROL_INVERSE_LABELS, 1.0 / counted));
    TX_TRY(tx_model_set(s->model, TX_CONTROL_LABEL_SHARE, 1.0 / TIMES));
    TX_TRY(tx_model_set(s->model, TX_CONTROL_STEP, (double)number));
    for (int32_t m = 0; m < TIMES; m++) {
        const int32_t at = m * every + s->first * BLOCK, input = staged ? m : 0;
        const size_t bytes = (size_t)(s->rows * BLOCK) * sizeof *tokens;
        TX_TRY(tx_model_set(s->model, TX_CONTROL_SAMPLE, (double)(2 * ROWS * m + s->first)));
        TX_TRY(tx_model_set(s->model, TX_CONTROL_ACCUMULATE, m > 0));
        TX_TRY(tx_model_keep_controls(s->model, m));
        TX_TRY(tx_plan_write(s->plan, tx_plan_input(s->plan, s->tokens, input), tokens + at, bytes));
        TX_TRY(tx_plan_write(s->plan, tx_plan_input(s->plan, s->labels, input), labels + at, bytes));
        if (!staged || m == TIMES - 1)
            TX_TRY(tx_plan_run(s->plan));
    }
    return TX_OK;
}

/* A rank has the weights of its stages' blocks, and what is in front of them or behind. */
static int64_t share_of(const tx_param_spec *spec, int32_t rank, int32_t ranks)
{
    const int32_t stages = ranks * chunks, block = spec->block;
    bool has = block == 0 ? rank == 0 || (spec->tied && rank == ranks - 1) : block < 0 && rank == ranks - 1;
    for (int32_t s = 0, first = 0; s < stages; first += of_stage[s++])
        has = has || (s % ranks == rank && block > first && block <= first + of_stage[s]);
    return has ? tx_shape_count(&spec->shape) : 0;
}

/* ---- All of it ----------------------------------------------------------------------------------------------- */

typedef struct groups {
    tx_comm *data, *pipeline, *ends;
} groups;

static tx_status compare(const char *device, const tx_config *config, const groups *g, tx_pipeline_schedule schedule,
                         int32_t zero_stage)
{
    const tx_parallel_options parallel = {.size = sizeof parallel,
                                          .bucket_bytes = 20000,
                                          .zero_stage = zero_stage,
                                          .pipeline = g->pipeline,
                                          .ends = g->ends,
                                          .blocks = layers,
                                          .stage_blocks = of_stage,
                                          .micro_batches = TIMES,
                                          .chunks = chunks,
                                          .schedule = schedule};
    side together = {.rows = 2 * ROWS / g->data->size, .first = g->data->rank * ROWS}, alone = {.rows = 2 * ROWS};
    double off = (double)NAN;
    tx_status status = make(device, config, g->data->size == 1, g->data, &parallel, &together);
    TX_THEN(status, make(device, config, g->data->size == 1, NULL, NULL, &alone));
    TX_THEN(status, beside_furthest(&together, &alone, TX_PART_WEIGHT, -1, 1.0, &off));
    if (!status && !(off <= 0.0))
        status = tx_fail(TX_INTERNAL, "other weights to begin with");
    TX_THEN(status, beside_steps(&together, 1, &alone, 0, backward, zero_stage == 0));
    TX_THEN(status, tx_model_settle(together.model));
    TX_THEN(status, beside_memory(&together, share_of, g->pipeline->rank, g->pipeline->size, false));
    TX_THEN(status, beside_carry(&together, &alone));
    beside_free(&together);
    beside_free(&alone);
    return status;
}

/* As the list says; NULL: as even as can be. */
static tx_status find_blocks(int32_t stages, char *list)
{
    layers = stages > LAYERS ? MOST_LAYERS : LAYERS;
    for (int32_t s = 0; s < stages && s < layers; s++) {
        of_stage[s] = list ? (int32_t)strtol(list, &list, 10) : layers * (s + 1) / stages - layers * s / stages;
        list += list && *list == ',';
    }
    return stages <= layers && !(list && *list) ? TX_OK : tx_fail(TX_INVALID, "test_stages: a number for each stage");
}

/* What does not make the model is refused, before anything is exchanged. */
static tx_status try_wrong_blocks(const char *device, const groups *g)
{
    static const char *const says[] = {"takes 1 or more", "blocks, the model", "needs the blocks of each stage"};
    int32_t wrong[MOST_LAYERS] = {layers};
    const tx_engine_options options = {.size = sizeof options, .device = device, .threads = 1};
    tx_parallel_options parallel = {.size = sizeof parallel,
                                    .pipeline = g->pipeline,
                                    .ends = g->ends,
                                    .blocks = layers,
                                    .stage_blocks = wrong,
                                    .micro_batches = TIMES};
    tx_engine *engine = NULL;
    tx_model *model = NULL;
    TX_TRY(tx_engine_create(&options, &engine));
    tx_status status = tx_model_create(engine, &model);
    for (int i = 0; i < 3 && !status; i++) {
        parallel.stage_blocks = i < 2 ? wrong : NULL;
        if (tx_model_parallel(model, g->data, &parallel) != TX_INVALID || !strstr(tx_error(), says[i]))
            status = tx_fail(TX_INTERNAL, "wrong blocks of stages were taken: %s", tx_error());
        for (int32_t s = 0; s < layers; s++)
            wrong[s] = layers;
    }
    tx_model_free(model);
    tx_engine_free(engine);
    return status;
}

static tx_status run(const char *device, tx_comm *comm, int32_t stages, int rests, char **rest)
{
    static const char *const words[] = {
#define X(name, text) text,
        TX_PIPELINE_MAP(X)
#undef X
    };
    tx_pipeline_schedule schedule = TX_PIPELINE_1F1B;
    while (rests > 0 && strcmp(rest[0], words[schedule]) != 0)
        schedule++;
    chunks = schedule == TX_PIPELINE_INTERLEAVED ? 2 : 1;
    const int32_t zero_stage = rests > 1 ? (int32_t)strtol(rest[1], NULL, 10) : 0;
    groups g;
    tx_status status = TX_OK;
    const int32_t ranks = comm->size / stages, stage = comm->rank / ranks;
    TX_TRY(try_tables());
    TX_TRY(find_blocks(stages * chunks, rests > 2 ? rest[2] : NULL));
    TX_TRY(tx_comm_sub(comm, comm->rank % ranks, comm->rank, &g.pipeline));
    TX_TRY(tx_comm_sub(g.pipeline, stage > 0 && stage < stages - 1, comm->rank, &g.ends));
    TX_TRY(tx_comm_sub(comm, stage, comm->rank, &g.data));
    TX_THEN(status, try_wrong_blocks(device, &g));
    for (int m = 0; m < MODELS && !status; m++) {
        tx_config *config = NULL;
        status = beside_config(models[m].config, &config);
        if (!status)
            config->layers = layers;
        TX_THEN(status, compare(device, config, &g, schedule, zero_stage));
        status = tx_fail_in(status, "%s", models[m].name);
        tx_config_free(config);
    }
    return status;
}

int main(int argc, char **argv)
{
    return beside_main(argc, argv, run);
}
