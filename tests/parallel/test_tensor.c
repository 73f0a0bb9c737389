/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that divide products among them, beside the same model on each rank alone: the same weights to begin with,
 * every gradient, the norm, the losses of 12 steps, dropout included; ranks that have the same heads of keys and values
 * have the same weights and moments, to the bit; what the model takes is what was planned, and the parts of the weights
 * are as large as they are to be; weights and moments go to one rank and back. And two wrong gradients and a wrong
 * moment, which must be found.
 *   test_tensor DEVICE TENSOR[:ZERO_STAGE]... */
#include "api/graph/graph.h"
#include "api/parallel/own.h"
#include "comm/comm.h"
#include "tests/parallel/beside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FEW = 4, MANY = 24, BLOCK = 24, VOCAB = 97, CHUNK = 256 };

#define SIZES "\"vocab_size\": 97, "
#define LLAMA                                                                                                       \
    SIZES "\"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, " \
          "\"intermediate_size\": 24, \"attention_dropout\": 0.1, \"max_position_embeddings\": 32, "
/* Fewer heads of keys and values than ranks, of four: ranks have the same ones. */
#define SHARED(kv_heads)                                                                                   \
    SIZES "\"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "                    \
          "\"num_key_value_heads\": " kv_heads ", \"intermediate_size\": 24, \"attention_dropout\": 0.1, " \
          "\"max_position_embeddings\": 32"
#define GPT2 "{\"model_type\": \"gpt2\", " SIZES "\"n_layer\": 2, \"n_head\": 4, \"n_embd\": 32, \"n_positions\": 32}"
#define BERT                                                                                                       \
    SIZES "\"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"intermediate_size\": 48, " \
          "\"max_position_embeddings\": "
#define EXPERTS                                                                                    \
    LLAMA "\"num_local_experts\": 5, \"num_experts_per_tok\": 2, \"output_router_logits\": true, " \
          "\"router_aux_loss_coef\": 0.02, "
#define QWEN                                                                                                       \
    SIZES                                                                                                          \
    "\"hidden_size\": 32, \"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, "      \
    "\"intermediate_size\": 24, \"max_position_embeddings\": 32, \"num_experts\": 4, \"num_experts_per_tok\": 2, " \
    "\"moe_intermediate_size\": 8, \"shared_expert_intermediate_size\": 16, \"decoder_sparse_step\": 1"
static const struct tested {
    const char *name, *config;
    int32_t sums; /* in a layer: behind attention and MLP, and of the gradients before them; of Qwen3's head norms, of
                     what tokens weigh their experts by, and behind and before an expert of all tokens */
    int32_t rows; /* of a batch: MANY have the classifier by chunks */
    float smoothing;
    int32_t behind; /* sums of parameters behind and before the layers, where ranks have chunks of the positions: of
                       each one that is read between products in a layer there is a sum; 0: they have all positions */
} models[] = {
    {"gpt2", GPT2, 4, FEW, 0.0f, 0},
    {"gpt2 by chunks", GPT2, 4, MANY, 0.1f, 0},
    {"gpt2 by positions", GPT2, 6, FEW, 0.0f, 3},
    {"gpt2 by chunks and positions", GPT2, 6, MANY, 0.1f, 3},
    {"llama by positions", "{\"model_type\": \"llama\", " LLAMA "\"attention_bias\": true, \"mlp_bias\": true}", 4, FEW,
     0.0f, 1},
    {"qwen3 by positions", "{\"model_type\": \"qwen3\", " LLAMA "\"head_dim\": 8, \"tie_word_embeddings\": true}", 3,
     FEW, 0.0f, 1},
    {"llama", "{\"model_type\": \"llama\", " LLAMA "\"attention_bias\": true, \"mlp_bias\": true}", 4, FEW, 0.1f, 0},
    {"qwen3", "{\"model_type\": \"qwen3\", " LLAMA "\"head_dim\": 8, \"tie_word_embeddings\": true}", 5, FEW, 0.0f, 0},
    {"llama of one head of keys", "{\"model_type\": \"llama\", " SHARED("1") "}", 4, FEW, 0.0f, 0},
    {"qwen2 of one", "{\"model_type\": \"qwen2\", " SHARED("1") "}", 4, FEW, 0.0f, 0},
    {"qwen2 of two", "{\"model_type\": \"qwen2\", " SHARED("2") "}", 4, MANY, 0.0f, 0},
    {"qwen3 of one", "{\"model_type\": \"qwen3\", " SHARED("1") ", \"head_dim\": 12}", 5, FEW, 0.0f, 0},
    {"qwen3 of two by positions", "{\"model_type\": \"qwen3\", " SHARED("2") ", \"head_dim\": 8}", 3, FEW, 0.0f, 1},
    {"qwen2 of one by positions", "{\"model_type\": \"qwen2\", " SHARED("1") "}", 2, FEW, 0.0f, 1},
    {"mixtral", "{\"model_type\": \"mixtral\", " EXPERTS "\"sliding_window\": null}", 5, FEW, 0.0f, 0},
    {"qwen2_moe", "{\"model_type\": \"qwen2_moe\", " QWEN "}", 7, MANY, 0.0f, 0},
    {"bert", "{\"model_type\": \"bert\", \"architectures\": [\"BertForMaskedLM\"], " BERT "32}", 4, FEW, 0.0f, 0},
    {"roberta",
     "{\"model_type\": \"roberta\", \"architectures\": [\"RobertaForMaskedLM\"], \"pad_token_id\": 60, " BERT "96}", 4,
     FEW, 0.0f, 0},
};
enum { MODELS = sizeof models / sizeof models[0] };
typedef const struct tested tested;

/* ---- A model and its steps ---------------------------------------------------------------------------------- */

/* `parallel` NULL: of this rank alone. */
static tx_status make(const char *device, tested *t, const tx_config *config, bool routers, tx_comm *comm,
                      const tx_parallel_options *parallel, side *s)
{
    const tx_engine_options engine = {.size = sizeof engine, .device = device, .threads = 1};
    TX_TRY(tx_engine_create(&engine, &s->engine));
    TX_TRY(tx_model_create(s->engine, &s->model));
    if (parallel)
        TX_TRY(tx_model_parallel(s->model, comm, parallel));
    TX_TRY(tx_graph_create(s->model, &s->graph));
    s->graph->chunk_bytes = t->rows == MANY ? 1 : s->graph->chunk_bytes;
    TX_TRY(beside_train(s, config, BLOCK, routers, t->smoothing));
    return beside_begin(s);
}

/* The gradients of a step's rows. */
static tx_status backward(side *s, int32_t number, int32_t way)
{
    (void)way;
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
    TX_TRY(tx_model_set(s->model, TX_CONTROL_LABEL_SHARE, 1.0));
    TX_TRY(tx_model_set(s->model, TX_CONTROL_SAMPLE, (double)(number * s->all + s->first)));
    TX_TRY(tx_model_set(s->model, TX_CONTROL_STEP, (double)number));
    TX_TRY(tx_plan_write(s->plan, s->tokens, tokens + s->first * BLOCK, bytes));
    TX_TRY(tx_plan_write(s->plan, s->labels, labels + s->first * BLOCK, bytes));
    return tx_plan_run(s->plan);
}

/* ---- Memory -------------------------------------------------------------------------------------------------- */

/* Of what is split there is a part, of heads of keys and values one at least. */
static int64_t share_of(const tx_param_spec *spec, int32_t part, int32_t parts)
{
    (void)part;
    const tx_param_sections *s = &spec->sections;
    const int64_t count = tx_shape_count(&spec->shape) / (spec->split ? parts : 1);
    if (!spec->split || !s->unit)
        return count;
    int64_t rows = 0;
    for (int32_t i = 0; i < s->count; i++)
        rows += s->size[i] / parts > s->unit ? s->size[i] / parts : s->unit;
    return count * parts / spec->shape.dim[0] * rows;
}

/* ---- Sums ----------------------------------------------------------------------------------------------------- */

/* Whether ranks of the group have the same heads of keys and values of a parameter, the last of its sections. */
static bool has_replicas(const tx_param_spec *whole, int32_t parts)
{
    const tx_param_sections *of = &whole->sections;
    return of->unit && of->size[of->count - 1] / of->unit < parts;
}

/* Two more are those of the tokens' rows, and of the gradient before the classifier, if not by positions. Each chunk's
 * losses are joined, and each parameter with fewer heads of keys than ranks has a sum over those that have the same. */
static tx_status count_sums(const side *s, int32_t wanted, int32_t joins)
{
    int32_t found = 0, replicas = 0;
    for (int32_t i = 0; i < tx_plan_node_count(s->plan); i++) {
        tx_plan_node node;
        TX_TRY(tx_plan_node_at(s->plan, i, &node));
        found += strcmp(node.op, "part_sum") == 0;
        joins -= strcmp(node.op, "part_loss") == 0;
        replicas += strcmp(node.op, "sum_replicas") == 0;
    }
    for (int32_t i = 0, part; i < tx_model_param_count(s->model); i++) {
        const char *name;
        const tx_param_spec *spec;
        TX_TRY(tx_model_param(s->model, i, &name, &spec));
        replicas -= has_replicas(spec, tx_graph_parts(s->graph, &part));
    }
    if (replicas != 0)
        return tx_fail(TX_INTERNAL, "%d sums of replicas too many", (int)replicas);
    if (joins != 0)
        return tx_fail(TX_INTERNAL, "%d joins of losses are missing", (int)joins);
    return found == wanted ? TX_OK : tx_fail(TX_INTERNAL, "%d sums, not %d", (int)found, (int)wanted);
}

/* ---- Replicas -------------------------------------------------------------------------------------------------- */

/* What this rank holds of a part of a parameter: of its weights all, of its moments what ZeRO leaves it. */
static tx_status read_own(const side *s, tx_part part, int32_t index, int64_t count, float *own)
{
    const int64_t bytes = count * (int64_t)sizeof *own;
    for (int32_t i = 0; i < s->model->holdings; i++) {
        const tx_holding *h = &s->model->holding[i];
        const int64_t end = h->at + h->bytes < bytes ? h->at + h->bytes : bytes;
        if (h->param == index && h->part == part && h->at < end)
            TX_TRY(tx_model_read_at(s->model, h->arena, h->address, (char *)own + h->at, end - h->at));
    }
    return TX_OK;
}

/* That beside what the first of those has that have the same, which is what checkpoints hold; to the bit. */
static tx_status compare_own(const side *s, tx_part part, int32_t index, float *whole, float *taken, float *own)
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

static tx_status compare_part(const side *s, tx_part part, int32_t index)
{
    const size_t count = (size_t)tx_shape_count(&s->model->param[index].whole.shape);
    float *numbers = malloc(3 * count * sizeof *numbers);
    const tx_status status =
        numbers ? compare_own(s, part, index, numbers, numbers + count, numbers + 2 * count) : TX_MEMORY;
    free(numbers);
    return status;
}

/* `shards`: of weights the ranks have no more. */
static tx_status compare_replicas(const side *s, bool shards)
{
    for (int32_t i = 0; i < s->model->params; i++)
        for (int part = shards ? TX_PART_STATE : TX_PART_WEIGHT; part <= TX_PART_STATE + 1; part++)
            if (part != TX_PART_GRADIENT)
                TX_TRY(compare_part(s, (tx_part)part, i));
    return TX_OK;
}

/* The last value's moment becomes another on the last rank alone, where others have the same: that is found there. */
static tx_status plant_moment(const side *s, int32_t index, const tx_comm *tensor)
{
    const tx_part part = (tx_part)(TX_PART_STATE + 1);
    const bool last = tensor->rank == tensor->size - 1;
    const int64_t at = (tx_shape_count(&s->model->param[index].spec.shape) - 1) * (int64_t)sizeof(float);
    const float other = 7.0f;
    for (int32_t i = 0; i < s->model->holdings && last; i++) {
        const tx_holding *h = &s->model->holding[i];
        if (h->param == index && h->part == part && at >= h->at && at < h->at + h->bytes)
            TX_TRY(tx_model_write_at(s->model, h->arena, h->address + at - h->at, &other, sizeof other));
    }
    return compare_part(s, part, index) == (last ? TX_INTERNAL : TX_OK)
               ? TX_OK
               : tx_fail(TX_INTERNAL, "%s: another moment was not found", s->model->param[index].name);
}

static tx_status plant_moments(const side *s, const tx_comm *tensor)
{
    for (int32_t i = 0; i < s->model->params; i++)
        if (has_replicas(&s->model->param[i].whole, tensor->size))
            TX_TRY(plant_moment(s, i, tensor));
    return TX_OK;
}

/* ---- All of it ------------------------------------------------------------------------------------------------ */

static tx_status compare(const char *device, tested *t, const tx_config *config, tx_comm *data, tx_comm *tensor,
                         int32_t stage)
{
    const tx_parallel_options parallel = {.size = sizeof parallel,
                                          .bucket_bytes = 20000,
                                          .zero_stage = stage,
                                          .tensor = tensor,
                                          .sequence = t->behind > 0};
    const int32_t own = t->rows / data->size, joins = t->rows == MANY ? (own * BLOCK + CHUNK - 1) / CHUNK : 1;
    side together = {.rows = own, .first = data->rank * own, .all = t->rows}, alone = {.rows = t->rows, .all = t->rows};
    double off = (double)NAN;
    tx_status status = make(device, t, config, data->size == 1, data, &parallel, &together);
    TX_THEN(status, make(device, t, config, data->size == 1, NULL, NULL, &alone));
    TX_THEN(status, count_sums(&together, (int32_t)config->layers * t->sums + (t->behind ? t->behind : 2), joins));
    TX_THEN(status, count_sums(&alone, 0, 0));
    TX_THEN(status, beside_furthest(&together, &alone, TX_PART_WEIGHT, -1, 1.0, &off));
    if (!status && !(off <= 0.0))
        status = tx_fail(TX_INTERNAL, "other weights to begin with");
    TX_THEN(status, beside_steps(&together, 0, &alone, 0, backward, stage == 0));
    TX_THEN(status, tx_model_settle(together.model));
    TX_THEN(status, compare_replicas(&together, stage == 3 && data->size > 1));
    TX_THEN(status, beside_memory(&together, share_of, tensor->rank, tensor->size, stage == 3));
    TX_THEN(status, beside_carry(&together, &alone));
    if (stage == 0)
        TX_THEN(status, plant_moments(&together, tensor));
    beside_free(&together);
    beside_free(&alone);
    return status;
}

static tx_status run(const char *device, tx_comm *comm, int32_t parts, int rests, char **rest)
{
    const int32_t stage = rests > 0 ? (int32_t)strtol(rest[0], NULL, 10) : 0;
    tx_comm *data = NULL, *tensor = NULL;
    tx_status status = TX_OK;
    TX_TRY(tx_comm_sub(comm, comm->rank / parts, comm->rank, &tensor));
    TX_TRY(tx_comm_sub(comm, comm->rank % parts, comm->rank, &data));
    if (tensor->size != parts || data->size != comm->size / parts)
        return tx_fail(TX_INTERNAL, "groups of %d and %d ranks", (int)tensor->size, (int)data->size);
    for (int m = 0; m < MODELS && !status; m++) {
        tx_config *config = NULL;
        status = beside_config(models[m].config, &config);
        TX_THEN(status, compare(device, &models[m], config, data, tensor, stage));
        status = tx_fail_in(status, "%s", models[m].name);
        tx_config_free(config);
    }
    return status;
}

int main(int argc, char **argv)
{
    return beside_main(argc, argv, run);
}
