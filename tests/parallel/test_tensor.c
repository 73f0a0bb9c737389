/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that divide products among them, beside the same model on each rank alone: the same weights to begin with,
 * every gradient, the norm, the losses of 30 steps, dropout included; what the model takes is what was planned, and the
 * parts of the weights are as large as they are to be; weights and moments go to one rank and back. And two wrong
 * gradients, which must be found.
 *   test_tensor DEVICE TENSOR [ZERO_STAGE] */
#include "api/graph/graph.h"
#include "comm/comm.h"
#include "models/task/causal_lm.h"
#include "models/task/masked_lm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FEW = 4, MANY = 24, BLOCK = 24, VOCAB = 97, STEPS = 30, CHUNK = 256 };

#define SIZES "\"vocab_size\": 97, "
#define LLAMA                                                                                                       \
    SIZES "\"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, " \
          "\"intermediate_size\": 24, \"attention_dropout\": 0.1, \"max_position_embeddings\": 32, "
#define GPT2 "{\"model_type\": \"gpt2\", " SIZES "\"n_layer\": 2, \"n_head\": 4, \"n_embd\": 32, \"n_positions\": 32}"
#define BERT                                                                                                       \
    SIZES "\"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"intermediate_size\": 48, " \
          "\"max_position_embeddings\": "
static const struct tested {
    const char *name, *config;
    int32_t sums; /* in a layer: behind attention and MLP, and of the gradients before them; of Qwen3's head norms */
    int32_t rows; /* of a batch: MANY have the classifier by chunks */
    float smoothing;
} models[] = {
    {"gpt2", GPT2, 4, FEW, 0.0f},
    {"gpt2 by chunks", GPT2, 4, MANY, 0.1f},
    {"llama", "{\"model_type\": \"llama\", " LLAMA "\"attention_bias\": true, \"mlp_bias\": true}", 4, FEW, 0.1f},
    {"qwen3", "{\"model_type\": \"qwen3\", " LLAMA "\"head_dim\": 8, \"tie_word_embeddings\": true}", 5, FEW, 0.0f},
    {"bert", "{\"model_type\": \"bert\", \"architectures\": [\"BertForMaskedLM\"], " BERT "32}", 4, FEW, 0.0f},
    {"roberta",
     "{\"model_type\": \"roberta\", \"architectures\": [\"RobertaForMaskedLM\"], \"pad_token_id\": 60, " BERT "96}", 4,
     FEW, 0.0f},
};
enum { MODELS = sizeof models / sizeof models[0] };
typedef const struct tested tested;

/* A model, on the ranks together or on this one alone. */
typedef struct side {
    tx_engine *engine;
    tx_model *model;
    tx_graph *graph;
    tx_plan *plan, *update;
    tx_tensor *tokens, *labels;
    int32_t first, rows, all; /* of the batch */
    tx_results results;
} side;

/* ---- A model and its steps ---------------------------------------------------------------------------------- */

static tx_status build(tested *t, const tx_config *config, side *s)
{
    const tx_arch_options options = {.size = sizeof options, .train = true};
    const tx_task *task = config->architecture->head == TX_HEAD_MASKED_LM ? &tx_masked_lm : &tx_causal_lm;
    TX_TRY(tx_graph_create(s->model, &s->graph));
    s->graph->chunk_bytes = t->rows == MANY ? 1 : s->graph->chunk_bytes;
    s->tokens = tx_input(s->graph, "input_ids", TX_I32, TX_SHAPE(s->rows, BLOCK));
    s->labels = tx_input(s->graph, "labels", TX_I32, TX_SHAPE(s->rows, BLOCK));
    tx_tensor *loss = task->loss(s->graph, config, tx_arch_logits(s->graph, config, &options), t->smoothing);
    TX_TRY(tx_backward(s->graph, loss));
    return tx_plan_create(s->graph, "train", &s->plan);
}

/* `parallel` NULL: of this rank alone. */
static tx_status make(const char *device, tested *t, const tx_config *config, tx_comm *comm,
                      const tx_parallel_options *parallel, side *s)
{
    const tx_engine_options engine = {.size = sizeof engine, .device = device, .threads = 1};
    const tx_optimizer_options adamw = {
        .size = sizeof adamw, .kind = TX_ADAMW, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.1f};
    TX_TRY(tx_engine_create(&engine, &s->engine));
    TX_TRY(tx_model_create(s->engine, &s->model));
    if (parallel)
        TX_TRY(tx_model_parallel(s->model, comm, parallel));
    TX_TRY(build(t, config, s));
    TX_TRY(tx_optimizer_create(s->model, &adamw, &s->update));
    TX_TRY(tx_model_init(s->model, 5));
    TX_TRY(tx_model_set_seed(s->model, 9));
    TX_TRY(tx_model_set(s->model, TX_CONTROL_MAX_GRAD_NORM, 1.0));
    return tx_model_set(s->model, TX_CONTROL_LEARNING_RATE, 1e-3);
}

static void discard(side *s)
{
    tx_plan_free(s->plan);
    tx_plan_free(s->update);
    tx_graph_free(s->graph);
    tx_model_free(s->model);
    tx_engine_free(s->engine);
}

/* The gradients of a step's rows. */
static tx_status backward(side *s, int32_t number)
{
    int32_t tokens[MANY * BLOCK], labels[MANY * BLOCK];
    const size_t bytes = (size_t)(s->rows * BLOCK) * sizeof *tokens;
    for (int32_t i = 0; i < s->all * BLOCK; i++) {
        tokens[i] = (i * i * 7 + i * number + 31 * number) % VOCAB;
        labels[i] = i % 11 == 0 ? TX_IGNORE_LABEL : (tokens[i] * 3 + 1) % VOCAB;
    }
    int32_t counted = 0;
    for (int32_t i = 0; i < s->all * BLOCK; i++)
        counted += labels[i] != TX_IGNORE_LABEL;
    TX_TRY(tx_model_set(s->model, TX_CONTROL_INVERSE_LABELS, 1.0 / counted));
    TX_TRY(tx_model_set(s->model, TX_CONTROL_SAMPLE, (double)(number * s->all + s->first)));
    TX_TRY(tx_model_set(s->model, TX_CONTROL_STEP, (double)number));
    TX_TRY(tx_plan_write(s->plan, s->tokens, tokens + s->first * BLOCK, bytes));
    TX_TRY(tx_plan_write(s->plan, s->labels, labels + s->first * BLOCK, bytes));
    return tx_plan_run(s->plan);
}

static tx_status update(side *s)
{
    TX_TRY(tx_plan_run(s->update));
    TX_TRY(tx_model_fetch(s->model));
    return tx_model_results(s->model, &s->results);
}

/* ---- Comparing ---------------------------------------------------------------------------------------------- */

/* How far what the ranks have of a parameter is from what one rank has, relative; `factor` makes a gradient wrong. */
static tx_status distance(const side *together, const side *alone, tx_part part, int32_t index, double factor,
                          double *off)
{
    const char *name;
    const tx_param_spec *spec;
    TX_TRY(tx_model_param(alone->model, index, &name, &spec));
    const size_t count = (size_t)tx_shape_count(&spec->logical);
    float *x = malloc(count * sizeof *x), *y = malloc(count * sizeof *y);
    tx_status status = x && y ? tx_model_read(together->model, part, index, x) : TX_MEMORY;
    TX_THEN(status, tx_model_read(alone->model, part, index, y));
    double difference = 0.0, norm = 0.0;
    for (size_t i = 0; i < count && !status; i++) {
        const double d = factor * (double)x[i] - (double)y[i];
        difference += d * d;
        norm += (double)y[i] * (double)y[i];
    }
    free(x);
    free(y);
    *off = difference == 0.0 ? 0.0 : sqrt(difference / norm);
    return status;
}

/* The parameter that is furthest off; that of number `wrong` counts as `factor` times what it is. */
static tx_status furthest(const side *together, const side *alone, tx_part part, int32_t wrong, double factor,
                          double *most)
{
    *most = 0.0;
    for (int32_t i = 0; i < tx_model_param_count(alone->model); i++) {
        double off = (double)NAN;
        const char *name;
        const tx_param_spec *spec;
        TX_TRY(distance(together, alone, part, i, i == wrong ? factor : 1.0, &off));
        TX_TRY(tx_model_param(alone->model, i, &name, &spec));
        if (!(off <= 1e-5) && i != wrong)
            printf("%s: %s is %.2e off\n", part == TX_PART_WEIGHT ? "weights" : "gradients", name, off);
        *most = off > *most || isnan(off) ? off : *most;
    }
    return TX_OK;
}

static tx_status compare_gradients(const side *together, const side *alone)
{
    double most, halved, unsummed;
    int32_t norm = -1;
    const char *name;
    const tx_param_spec *spec;
    TX_TRY(furthest(together, alone, TX_PART_GRADIENT, -1, 1.0, &most));
    for (int32_t i = 0; i < tx_model_param_count(alone->model) && norm < 0; i++)
        if (!tx_model_param(alone->model, i, &name, &spec) && spec->init == TX_INIT_ONE)
            norm = i;
    TX_TRY(furthest(together, alone, TX_PART_GRADIENT, 0, 0.5, &halved));
    TX_TRY(furthest(together, alone, TX_PART_GRADIENT, norm, 1.003, &unsummed));
    printf("gradients: %.2e off at most; an embedding's halved %.2e, a norm's with 3e-3 more %.2e\n", most, halved,
           unsummed);
    if (!(most <= 1e-5))
        return tx_fail(TX_INTERNAL, "other gradients than one rank's");
    return halved > 1e-5 && unsummed > 1e-5 ? TX_OK : tx_fail(TX_INTERNAL, "wrong gradients were not found");
}

static bool near(float x, float y, double limit)
{
    return fabs((double)x - (double)y) <= limit * fabs((double)y);
}

static tx_status compare_steps(side *together, side *alone, int32_t stage)
{
    for (int32_t number = 0; number < STEPS; number++) {
        TX_TRY(backward(together, number));
        TX_TRY(backward(alone, number));
        if (number == 0 && stage == 0) /* else no rank has all of them */
            TX_TRY(compare_gradients(together, alone));
        TX_TRY(update(together));
        TX_TRY(update(alone));
        const float *x = together->results.value, *y = alone->results.value;
        if (!near(x[TX_RESULT_LOSS], y[TX_RESULT_LOSS], 2e-6) ||
            !near(x[TX_RESULT_GRAD_NORM], y[TX_RESULT_GRAD_NORM], 1e-5))
            return tx_fail(TX_INTERNAL, "step %d: loss %.9g, wanted %.9g; norm %.9g, wanted %.9g", (int)number,
                           (double)x[TX_RESULT_LOSS], (double)y[TX_RESULT_LOSS], (double)x[TX_RESULT_GRAD_NORM],
                           (double)y[TX_RESULT_GRAD_NORM]);
    }
    printf("30 steps: loss %.6f\n", (double)alone->results.value[TX_RESULT_LOSS]);
    return TX_OK;
}

/* ---- Files --------------------------------------------------------------------------------------------------- */

/* What is read of one model is there to the bit when it has been written to another. */
static tx_status carry(const side *from, const side *to, tx_part part, int32_t index, float *x, float *y, size_t count)
{
    TX_TRY(tx_model_read(from->model, part, index, x));
    for (size_t i = 0; i < count; i++) /* another one at each place */
        x[i] += (float)i;
    TX_TRY(tx_model_write(to->model, part, index, x));
    TX_TRY(tx_model_read(to->model, part, index, y));
    return memcmp(x, y, count * sizeof *x) == 0 ? TX_OK : tx_fail(TX_INTERNAL, "other numbers than were written");
}

/* Weights and moments go from the ranks to one and back. */
static tx_status carry_all(const side *together, const side *alone)
{
    tx_status status = TX_OK;
    for (int32_t i = 0; i < tx_model_param_count(alone->model) && !status; i++)
        for (int part = TX_PART_WEIGHT; part <= TX_PART_STATE + 1 && !status; part++) {
            const char *name;
            const tx_param_spec *spec;
            if (part == TX_PART_GRADIENT)
                continue;
            TX_TRY(tx_model_param(together->model, i, &name, &spec));
            const size_t count = (size_t)tx_shape_count(&spec->logical);
            float *x = malloc(count * sizeof *x), *y = malloc(count * sizeof *y);
            status = x && y ? carry(together, alone, (tx_part)part, i, x, y, count) : TX_MEMORY;
            TX_THEN(status, carry(alone, together, (tx_part)part, i, x, y, count));
            status = tx_fail_in(status, "%s, part %d", name, part);
            free(x);
            free(y);
        }
    return status;
}

/* ---- Memory -------------------------------------------------------------------------------------------------- */

/* What is planned is counted, and of what is split there is a part; in stage 3 of that the rank's shards. */
static tx_status compare_memory(const side *s, int32_t parts, int32_t stage)
{
    tx_memory planned, counted;
    int64_t weights = 0;
    const char *name;
    const tx_param_spec *spec;
    TX_TRY(tx_model_memory(s->model, &planned));
    TX_TRY(tx_engine_memory(s->engine, &counted));
    for (int32_t i = 0; i < tx_model_param_count(s->model); i++) {
        TX_TRY(tx_model_param(s->model, i, &name, &spec));
        const int64_t count = tx_shape_count(&spec->shape) / (spec->split ? parts : 1);
        weights += (count + TX_PARAM_BLOCK - 1) / TX_PARAM_BLOCK * TX_PARAM_BLOCK * (int64_t)sizeof(float);
    }
    for (int k = 0; k < TX_MEMORY_COUNT; k++)
        if (k != TX_MEMORY_ACTIVATIONS && k != TX_MEMORY_TEMPORARY && planned.bytes[k] != counted.bytes[k])
            return tx_fail(TX_INTERNAL, "%s: %lld bytes, planned %lld", tx_memory_name((tx_memory_kind)k),
                           (long long)counted.bytes[k], (long long)planned.bytes[k]);
    const int64_t found = counted.bytes[TX_MEMORY_WEIGHTS];
    return stage == 3 ? (found < weights ? TX_OK : tx_fail(TX_INTERNAL, "stage 3 spreads no weights"))
           : found == weights
               ? TX_OK
               : tx_fail(TX_INTERNAL, "%lld bytes of weights, wanted %lld", (long long)found, (long long)weights);
}

/* ---- Sums ----------------------------------------------------------------------------------------------------- */

/* Two more are those of the tokens' rows, and of the gradient before the classifier. Each chunk's losses are joined. */
static tx_status count_sums(const side *s, int32_t wanted, int32_t joins)
{
    int32_t found = 0;
    for (int32_t i = 0; i < tx_plan_node_count(s->plan); i++) {
        tx_plan_node node;
        TX_TRY(tx_plan_node_at(s->plan, i, &node));
        found += strcmp(node.op, "part_sum") == 0;
        joins -= strcmp(node.op, "part_loss") == 0;
    }
    if (joins != 0)
        return tx_fail(TX_INTERNAL, "%d joins of losses are missing", (int)joins);
    return found == wanted ? TX_OK : tx_fail(TX_INTERNAL, "%d sums, not %d", (int)found, (int)wanted);
}

/* ---- All of it ------------------------------------------------------------------------------------------------ */

static tx_status compare(const char *device, tested *t, const tx_config *config, tx_comm *data, tx_comm *tensor,
                         int32_t stage)
{
    const tx_parallel_options parallel = {
        .size = sizeof parallel, .bucket_bytes = 20000, .zero_stage = stage, .tensor = tensor};
    const int32_t own = t->rows / data->size, joins = t->rows == MANY ? (own * BLOCK + CHUNK - 1) / CHUNK : 1;
    side together = {.rows = own, .first = data->rank * own, .all = t->rows}, alone = {.rows = t->rows, .all = t->rows};
    double off = (double)NAN;
    tx_status status = make(device, t, config, data, &parallel, &together);
    TX_THEN(status, make(device, t, config, NULL, NULL, &alone));
    TX_THEN(status, count_sums(&together, (int32_t)config->layers * t->sums + 2, joins));
    TX_THEN(status, count_sums(&alone, 0, 0));
    TX_THEN(status, furthest(&together, &alone, TX_PART_WEIGHT, -1, 1.0, &off));
    if (!status && !(off <= 0.0))
        status = tx_fail(TX_INTERNAL, "other weights to begin with");
    TX_THEN(status, compare_steps(&together, &alone, stage));
    TX_THEN(status, tx_model_settle(together.model));
    TX_THEN(status, compare_memory(&together, tensor->size, stage));
    TX_THEN(status, carry_all(&together, &alone));
    discard(&together);
    discard(&alone);
    return status;
}

static tx_status run(const char *device, tx_comm *comm, int32_t parts, int32_t stage)
{
    tx_comm *data = NULL, *tensor = NULL;
    tx_status status = TX_OK;
    TX_TRY(tx_comm_sub(comm, comm->rank / parts, comm->rank, &tensor));
    TX_TRY(tx_comm_sub(comm, comm->rank % parts, comm->rank, &data));
    if (tensor->size != parts || data->size != comm->size / parts)
        return tx_fail(TX_INTERNAL, "groups of %d and %d ranks", (int)tensor->size, (int)data->size);
    for (int m = 0; m < MODELS && !status; m++) {
        tx_json *json = NULL;
        tx_config *config = NULL;
        status = tx_json_parse(models[m].config, strlen(models[m].config), "config", &json);
        TX_THEN(status, tx_config_of_json(json, &config));
        TX_THEN(status, compare(device, &models[m], config, data, tensor, stage));
        status = tx_fail_in(status, "%s", models[m].name);
        tx_config_free(config);
    }
    return status;
}

int main(int argc, char **argv)
{
    const char *device = argc > 1 ? argv[1] : "cpu";
    const int32_t parts = argc > 2 ? (int32_t)strtol(argv[2], NULL, 10) : 2;
    const int32_t stage = argc > 3 ? (int32_t)strtol(argv[3], NULL, 10) : 0;
    tx_comm *comm = NULL;
    int32_t found = -1;
    if (tx_device_find(device, &found)) {
        printf("skipped: no device %s\n", device);
        return 77;
    }
    tx_status status = tx_comm_open(&argc, &argv, &comm);
    TX_THEN(status, run(device, comm, parts, stage));
    if (status)
        fprintf(stderr, "test_tensor: %s\n", tx_error());
    tx_comm_close(comm);
    return status ? 1 : 0;
}
