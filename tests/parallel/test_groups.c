/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that divide a model in one or several ways, compared with the same model undivided, which computes the rows of
 * one group after the other. The initial weights, every gradient, the norm and the losses of 12 steps are the same. The
 * cases include groups of several kinds, pipelines with several micro-batches, dropout, losses of routers and dropped
 * choices. The memory is as planned, and each rank has its part of the weights. Weights and moments are copied to one
 * rank and back. groups.h declares the further checks. The test must find gradients that are summed over the wrong
 * ranks, and a loss that counts twice.
 *   test_groups DEVICE TENSOR:CONTEXT:EXPERT:STAGES[:ZERO_STAGE[:SCHEDULE[:BLOCKS,BLOCKS,...]]]...
 * BLOCKS is the number of blocks of each stage, by default as even as possible. */
#include "tests/parallel/groups.h"

#include <math.h>

#define BASE "\"vocab_size\": 97, \"hidden_size\": 32, \"num_hidden_layers\": 2, \"attention_dropout\": 0.1, "
#define HEADS(heads, kv_heads) "\"num_attention_heads\": " heads ", \"num_key_value_heads\": " kv_heads ", "
#define SIZES BASE "\"intermediate_size\": 24, \"max_position_embeddings\": 32, "
#define LLAMA "{\"model_type\": \"llama\", " SIZES HEADS("8", "4") "\"attention_bias\": true, \"mlp_bias\": true}"
#define QWEN3 "{\"model_type\": \"qwen3\", " SIZES HEADS("8", "4") "\"head_dim\": 8, \"tie_word_embeddings\": true}"
/* Fewer heads of keys and values than ranks, of four: ranks have the same ones. */
#define SHARED(model, kv_heads) "{\"model_type\": \"" model "\", " SIZES HEADS("4", kv_heads) "\"use_cache\": true"
#define GPT2                                                                                         \
    "{\"model_type\": \"gpt2\", \"vocab_size\": 97, \"n_layer\": 2, \"n_head\": 4, \"n_embd\": 32, " \
    "\"n_positions\": 32}"
#define BERT                                                                                          \
    "\"vocab_size\": 97, \"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, " \
    "\"intermediate_size\": 48, \"max_position_embeddings\": "
#define MIXTRAL "{\"model_type\": \"mixtral\", " SIZES HEADS("4", "2") "\"num_local_experts\": 4"
#define BALANCED ", \"output_router_logits\": true, \"router_aux_loss_coef\": 0.02"
#define MISTRAL "{\"model_type\": \"mistral\", " SIZES HEADS("8", "4") "\"sliding_window\": 7}"
#define GPT_OSS                                                                                          \
    "{\"model_type\": \"gpt_oss\", " SIZES HEADS("8", "4") "\"head_dim\": 8, \"num_local_experts\": 4, " \
                                                           "\"num_experts_per_tok\": 2, \"sliding_window\": 7}"
#define QWEN2                                                                             \
    "{\"model_type\": \"qwen2\", " SIZES HEADS("8", "4") "\"use_sliding_window\": true, " \
                                                         "\"sliding_window\": 9, \"max_window_layers\": 1}"
#define QWEN                                                         \
    "{\"model_type\": \"qwen2_moe\", " SIZES HEADS(                  \
        "4", "2") "\"num_experts\": 4, \"num_experts_per_tok\": 2, " \
                  "\"moe_intermediate_size\": 8, \"shared_expert_intermediate_size\": 16"
static const tested models[] = {
    {.name = "mixtral, its routers with losses", .config = MIXTRAL BALANCED "}", .experts = true, .routers = true},
    {.name = "mixtral, its routers with losses, by positions",
     .config = MIXTRAL BALANCED "}",
     .experts = true,
     .routers = true,
     .sums = 5,
     .outer = 1},
    {.name = "mixtral", .config = MIXTRAL "}", .experts = true, .sums = 5},
    {.name = "qwen2_moe, some layers dense",
     .config = QWEN ", \"mlp_only_layers\": [1, 2]" BALANCED "}",
     .experts = true},
    {.name = "qwen2_moe", .config = QWEN "}", .users = TENSOR_ALONE, .experts = true, .rows = MANY, .sums = 7},
    {.name = "qwen2_moe by positions", .config = QWEN "}", .experts = true, .routers = true, .sums = 6, .outer = 1},
    {.name = "gpt2", .config = GPT2, .sums = 4, .keys = 2 * WIDTH, .smoothing = 0.1f},
    {.name = "gpt2 by chunks", .config = GPT2, .users = TENSOR_ALONE, .rows = MANY, .sums = 4, .smoothing = 0.1f},
    {.name = "gpt2 by positions", .config = GPT2, .users = TENSOR_ALONE, .sums = 6, .outer = 3},
    {.name = "gpt2 by chunks and positions",
     .config = GPT2,
     .users = TENSOR_ALONE,
     .rows = MANY,
     .sums = 6,
     .outer = 3,
     .smoothing = 0.1f},
    {.name = "gpt2 again", .config = GPT2, .users = CONTEXT_ONLY, .segments = 2, .keys = 2 * WIDTH},
    {.name = "llama", .config = LLAMA, .sums = 4, .keys = WIDTH, .smoothing = 0.1f},
    {.name = "llama by positions", .config = LLAMA, .users = TENSOR_ALONE, .sums = 4, .outer = 1},
    {.name = "qwen3, its table tied", .config = QWEN3, .sums = 5, .keys = 2 * WIDTH},
    {.name = "qwen3 by positions", .config = QWEN3, .users = TENSOR_ALONE, .sums = 3, .outer = 1},
    {.name = "llama of one head of keys", .config = SHARED("llama", "1") "}", .users = TENSOR_ALONE, .sums = 4},
    {.name = "qwen2 of one", .config = SHARED("qwen2", "1") "}", .users = TENSOR_ALONE, .sums = 4},
    {.name = "qwen2 of two", .config = SHARED("qwen2", "2") "}", .users = TENSOR_ALONE, .rows = MANY, .sums = 4},
    {.name = "qwen3 of one", .config = SHARED("qwen3", "1") ", \"head_dim\": 12}", .users = TENSOR_ALONE, .sums = 5},
    {.name = "qwen3 of two by positions",
     .config = SHARED("qwen3", "2") ", \"head_dim\": 8}",
     .users = TENSOR_ALONE,
     .sums = 3,
     .outer = 1},
    {.name = "qwen2 of one by positions",
     .config = SHARED("qwen2", "1") "}",
     .users = TENSOR_ALONE,
     .sums = 2,
     .outer = 1},
    {.name = "llama of packed rows", .config = LLAMA, .users = CONTEXT_ONLY, .packed = true, .smoothing = 0.1f},
    {.name = "gpt2 of padded rows", .config = GPT2, .users = CONTEXT_ONLY, .padded = true, .segments = 2},
    {.name = "mistral of windows", .config = MISTRAL, .users = CONTEXT_ONLY, .packed = true, .padded = true},
    {.name = "qwen2, a window in its last layer", .config = QWEN2, .users = CONTEXT_ONLY},
    {.name = "gpt_oss, with sinks", .config = GPT_OSS, .users = CONTEXT_WITHOUT_TENSOR},
    {.name = "bert",
     .config = "{\"model_type\": \"bert\", \"architectures\": [\"BertForMaskedLM\"], " BERT "32}",
     .sums = 4},
    {.name = "bert by positions",
     .config = "{\"model_type\": \"bert\", \"architectures\": [\"BertForMaskedLM\"], " BERT "32}",
     .users = TENSOR_ALONE,
     .sums = 6,
     .outer = 8},
    {.name = "bert of padded rows",
     .config = "{\"model_type\": \"bert\", \"architectures\": [\"BertForMaskedLM\"], " BERT "32}",
     .users = CONTEXT_ONLY,
     .padded = true},
    {.name = "roberta",
     .config =
         "{\"model_type\": \"roberta\", \"architectures\": [\"RobertaForMaskedLM\"], \"pad_token_id\": 60, " BERT "96}",
     .users = TENSOR_ALONE,
     .sums = 4},
    {.name = "roberta by positions",
     .config =
         "{\"model_type\": \"roberta\", \"architectures\": [\"RobertaForMaskedLM\"], \"pad_token_id\": 60, " BERT "96}",
     .users = TENSOR_ALONE,
     .sums = 6,
     .outer = 8},
};
enum { MODELS = sizeof models / sizeof models[0] };

struct ways ways;
struct groups groups;

bool only_tensor(void)
{
    return ways.tensor > 1 && ways.context * ways.expert * ways.stages == 1;
}

bool only_context(void)
{
    return ways.context > 1 && ways.tensor * ways.expert * ways.stages == 1;
}

bool only_expert(void)
{
    return ways.expert > 1 && ways.tensor * ways.context * ways.stages == 1;
}

static bool only_stages(void)
{
    return ways.stages > 1 && ways.tensor * ways.context * ways.expert == 1;
}

/* Whether the ways of a case train a model. */
static bool trains(const tested *t)
{
    if ((ways.expert > 1 && !t->experts) || (ways.context > 1 && t->routers) ||
        (ways.tensor > 1 && t->users == CONTEXT_WITHOUT_TENSOR))
        return false;
    return t->users == TENSOR_ALONE ? only_tensor() : t->users == ALL_WAYS || ways.context > 1;
}

/* ---- A model and its steps ---------------------------------------------------------------------------------- */

/* Without `sums` the model is of one rank. */
static tx_status make(const char *device, const tested *t, const tx_config *config, tx_comm *sums, tx_comm *replicas,
                      side *s)
{
    const tx_engine_options engine = {.size = sizeof engine, .device = device, .threads = 1};
    const tx_checkpointing again = {.size = sizeof again, .segments = t->segments, .whole = t->segments};
    const tx_parallel_options parallel = {.size = sizeof parallel,
                                          .bucket_bytes = 20000,
                                          .zero_stage = ways.zero,
                                          .tensor = groups.tensor,
                                          .sequence = t->outer > 0,
                                          .context = groups.context,
                                          .expert = groups.expert,
                                          .replicas = replicas,
                                          .pipeline = groups.pipeline,
                                          .ends = groups.ends,
                                          .blocks = ways.layers,
                                          .stage_blocks = ways.of_stage,
                                          .micro_batches = ways.times,
                                          .chunks = ways.chunks,
                                          .schedule = ways.schedule};
    s->rows = t->rows ? t->rows : ROWS;
    s->packed = t->packed;
    s->padded = t->padded;
    TX_TRY(tx_engine_create(&engine, &s->engine));
    TX_TRY(tx_model_create(s->engine, &s->model));
    if (sums)
        TX_TRY(tx_model_parallel(s->model, sums, &parallel));
    TX_TRY(tx_graph_create(s->model, &s->graph));
    s->graph->chunk_bytes = t->rows ? 1 : s->graph->chunk_bytes;
    if (t->segments)
        TX_TRY(tx_graph_checkpointing(s->graph, &again));
    TX_TRY(beside_train(s, config, sums ? BLOCK / ways.context : BLOCK, t->routers, t->smoothing));
    return beside_begin(s);
}

/* Of rows, the two chunks that this rank has. */
static const int32_t *own_chunks(const int32_t *rows, int32_t count, int32_t *own)
{
    const int32_t half = BLOCK / (2 * ways.context), rank = groups.context->rank;
    const int32_t second = (2 * ways.context - 1 - rank) * half;
    for (int32_t r = 0; r < count; r++) {
        memcpy(own + 2 * r * half, rows + r * BLOCK + rank * half, (size_t)half * sizeof *own);
        memcpy(own + (2 * r + 1) * half, rows + r * BLOCK + second, (size_t)half * sizeof *own);
    }
    return own;
}

/* Writes this rank's part of `rows`, one number for each token, to an input of micro-batch `input`. */
static tx_status write_rows(const side *s, bool together, tx_tensor *to, int32_t input, const int32_t *rows)
{
    int32_t own[MANY * BLOCK];
    const size_t bytes = (size_t)(s->rows * BLOCK / (together ? ways.context : 1)) * sizeof *own;
    return tx_plan_write(s->plan, tx_plan_input(s->plan, to, input), together ? own_chunks(rows, s->rows, own) : rows,
                         bytes);
}

/* Writes the same numbers for each row: samples of 11, 9 and the other tokens, and lengths. */
static tx_status write_samples(const side *s, bool together, int32_t input)
{
    int32_t starts[MANY * BLOCK], places[MANY * BLOCK], lengths[MANY];
    for (int32_t i = 0; i < s->rows * BLOCK; i++) {
        const int32_t t = i % BLOCK;
        starts[i] = t < 11 ? 0 : t < 20 ? 11 : 20;
        places[i] = t - starts[i];
        lengths[i / BLOCK] = BLOCK - 5 * (i / BLOCK % 3);
    }
    if (s->packed) {
        TX_TRY(write_rows(s, together, s->starts, input, starts));
        TX_TRY(write_rows(s, together, s->places, input, places));
    }
    return s->padded ? tx_plan_write(s->plan, tx_plan_input(s->plan, s->lengths, input), lengths,
                                     (size_t)s->rows * sizeof *lengths)
                     : TX_OK;
}

/* The rows of a group in a micro-batch; `m` is its number among the runs of the step, or of a pipeline's inputs. */
static tx_status write_batch(const side *s, bool together, int32_t m, const int32_t *tokens, const int32_t *labels)
{
    const int32_t input = together && ways.stages > 1 ? m : 0;
    TX_TRY(tx_model_set(s->model, TX_CONTROL_ACCUMULATE, m > 0));
    TX_TRY(tx_model_keep_controls(s->model, m));
    TX_TRY(write_samples(s, together, input));
    TX_TRY(write_rows(s, together, s->tokens, input, tokens));
    return write_rows(s, together, s->labels, input, labels);
}

tx_status groups_backward(side *s, int32_t number, int32_t together)
{
    enum { MOST = MOST_TIMES * MOST_RANKS * MANY * BLOCK };
    static int32_t tokens[MOST], labels[MOST];
    const int32_t all = groups.data->size, runs = together ? ways.times : ways.times * all;
    const int32_t rows = ways.times * all * s->rows;
    int32_t counted = 0;
    for (int32_t i = 0; i < rows * BLOCK; i++) {
        tokens[i] = (i % 9973 * (i % 9973) * 7 + i * number + 31 * number) % VOCAB;
        labels[i] = i % 11 == 0 ? TX_IGNORE_LABEL : (tokens[i] * 3 + 1) % VOCAB;
        counted += labels[i] != TX_IGNORE_LABEL;
    }
    TX_TRY(tx_model_set(s->model, TX_CONTROL_INVERSE_LABELS, 1.0 / counted));
    TX_TRY(tx_model_set(s->model, TX_CONTROL_LABEL_SHARE, 1.0 / (ways.times * all)));
    TX_TRY(tx_model_set(s->model, TX_CONTROL_STEP, (double)number));
    for (int32_t m = 0; m < runs; m++) {
        const int32_t first = s->rows * (together ? m * all + groups.data->rank : m);
        TX_TRY(tx_model_set(s->model, TX_CONTROL_SAMPLE, (double)(number * rows + first)));
        TX_TRY(write_batch(s, together, m, tokens + first * BLOCK, labels + first * BLOCK));
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
        rows += s->size[i] / parts > s->unit[i] ? s->size[i] / parts : s->unit[i];
    return s->unit[0] ? count / spec->shape.dim[0] * rows : count / parts;
}

/* The number of a parameter's elements on a rank. An expert group divides whole experts, a tensor group the split
 * matrices, and the stages the blocks. */
static int64_t share_of(const tx_param_spec *spec, int32_t rank, int32_t ranks)
{
    const int32_t block = spec->block;
    bool has = block == 0 ? rank == 0 || (spec->tied && rank == ranks - 1) : block < 0 && rank == ranks - 1;
    for (int32_t s = 0, first = 0; s < ranks * ways.chunks; first += ways.of_stage[s++])
        has = has || (s % ranks == rank && block > first && block <= first + ways.of_stage[s]);
    return has ? part_of(spec) / (spec->experts ? ways.expert : 1) : 0;
}

/* ---- Faults --------------------------------------------------------------------------------------------------- */

/* Gradients of experts that are summed over ranks which have others, or of chunks over none of the others. */
static tx_status sum_wrongly(const char *device, const tested *t, const tx_config *config, const side *alone)
{
    side wrong = {0};
    double off = 0.0;
    const bool by_experts = ways.expert > 1;
    if (ways.zero > 0 || (!by_experts && ways.context == 1))
        return TX_OK;
    tx_status status = make(device, t, config, by_experts ? groups.sums : groups.data,
                            by_experts ? groups.sums : groups.replicas, &wrong);
    TX_THEN(status, groups_backward(&wrong, 0, 1));
    TX_THEN(status, tx_model_wait(wrong.model));
    TX_THEN(status, beside_furthest(&wrong, alone, TX_PARAM_GRADIENT, -1, 1.0, &off));
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

/* Blocks of stages that do not make the model are refused, before anything is exchanged. */
static tx_status try_wrong_blocks(const char *device)
{
    static const char *const says[] = {"needs 1 or more", "blocks, the model", "needs the blocks of each stage"};
    int32_t wrong[MOST_LAYERS] = {ways.layers};
    const tx_engine_options options = {.size = sizeof options, .device = device, .threads = 1};
    tx_parallel_options parallel = {.size = sizeof parallel,
                                    .pipeline = groups.pipeline,
                                    .ends = groups.ends,
                                    .blocks = ways.layers,
                                    .stage_blocks = wrong,
                                    .micro_batches = ways.times};
    tx_engine *engine = NULL;
    tx_model *model = NULL;
    TX_TRY(tx_engine_create(&options, &engine));
    tx_status status = tx_model_create(engine, &model);
    for (int i = 0; i < 3 && !status; i++) {
        parallel.stage_blocks = i < 2 ? wrong : NULL;
        if (tx_model_parallel(model, groups.sums, &parallel) != TX_INVALID || !strstr(tx_error(), says[i]))
            status = tx_fail(TX_INTERNAL, "wrong blocks of stages were taken: %s", tx_error());
        for (int32_t s = 0; s < ways.layers; s++)
            wrong[s] = ways.layers;
    }
    tx_model_free(model);
    tx_engine_free(engine);
    return status;
}

/* ---- All of it ------------------------------------------------------------------------------------------------ */

static tx_status compare(const char *device, const tested *t, const tx_config *config)
{
    side together = {0}, alone = {0};
    double off = (double)NAN;
    tx_status status = make(device, t, config, groups.sums, groups.replicas, &together);
    TX_THEN(status, make(device, t, config, NULL, NULL, &alone));
    TX_THEN(status, beside_furthest(&together, &alone, TX_PARAM_WEIGHT, -1, 1.0, &off));
    if (!status && !(off <= 0.0))
        status = tx_fail(TX_INTERNAL, "other weights to begin with");
    if (only_tensor() && t->sums)
        TX_THEN(status, check_sums(t, &together, &alone));
    if (only_context())
        TX_THEN(status, check_context(t, &together, &alone));
    TX_THEN(status, groups_backward(&alone, 0, 0));
    TX_THEN(status, sum_wrongly(device, t, config, &alone));
    TX_THEN(status, beside_steps(&together, 1, &alone, 0, groups_backward, ways.zero == 0));
    TX_THEN(status, count_twice(&together, &alone));
    TX_THEN(status, tx_model_wait(together.model));
    TX_THEN(status, beside_memory(&together, share_of, groups.pipeline->rank, ways.stages, ways.zero == 3));
    TX_THEN(status, beside_carry(&together, &alone));
    if (only_tensor())
        TX_THEN(status, check_replicas(&together));
    if (only_expert() && strcmp(t->name, "mixtral") == 0)
        TX_THEN(status, check_bytes(&together));
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

/* Sets the layers of each stage from the list, or as evenly as possible without a list. */
static tx_status find_blocks(char *list)
{
    const int32_t stages = ways.stages * ways.chunks;
    ways.layers = stages == 1 ? 2 : !only_stages() ? 4 : stages > 5 ? MOST_LAYERS : 5;
    for (int32_t s = 0; s < stages && s < ways.layers; s++) {
        ways.of_stage[s] =
            list ? (int32_t)strtol(list, &list, 10) : ways.layers * (s + 1) / stages - ways.layers * s / stages;
        list += list && *list == ',';
    }
    return stages <= ways.layers && !(list && *list) ? TX_OK
                                                     : tx_fail(TX_INVALID, "test_groups: a number for each stage");
}

static tx_status run(const char *device, tx_comm *comm, int32_t tensor, int rests, char **rest)
{
    static const char *const schedules[] = {
#define X(name, text) text,
        TX_PIPELINE_MAP(X)
#undef X
    };
    int32_t *const sizes[] = {&ways.context, &ways.expert, &ways.stages, &ways.zero};
    tx_status status = TX_OK;
    ways = (struct ways){tensor, 1, 1, 1, .schedule = TX_PIPELINE_1F1B};
    for (int i = 0; i < 4 && i < rests; i++)
        *sizes[i] = (int32_t)strtol(rest[i], NULL, 10);
    while (rests > 4 && strcmp(rest[4], schedules[ways.schedule]) != 0)
        ways.schedule++;
    ways.chunks = ways.schedule == TX_PIPELINE_INTERLEAVED ? 2 : 1;
    ways.times = only_stages() ? MOST_TIMES : only_tensor() || only_context() || only_expert() ? 1 : 2;
    TX_TRY(find_blocks(rests > 5 ? rest[5] : NULL));
    TX_TRY(make_groups(comm));
    if (ways.stages > 1)
        TX_TRY(try_wrong_blocks(device));
    for (int m = 0; m < MODELS && !status; m++) {
        tx_config *config = NULL;
        if (!trains(&models[m]))
            continue;
        printf("%s\n", models[m].name);
        status = beside_config(models[m].config, &config);
        if (!status)
            config->layers = ways.layers;
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
