/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters with a frozen base that the ranks divide (ZeRO stage 3), compared with ranks that each have the whole base.
 * Losses, norms and all weights have the same bits, with a base in fp32, bf16 and 4 bits. The memory is as planned, and
 * each rank has its part. The test must find a shard with swapped words (of 4 bits: scales) and one that is not
 * gathered. test_frozen DEVICE ZERO_STAGE... */
#include "api/parallel/buckets.h"
#include "backends/nf4.h"
#include "models/lora/lora.h"
#include "tests/parallel/beside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 2, BLOCK = 16, VOCAB = 97, STEPS = 3 };

#define LLAMA                                                                                          \
    "{\"model_type\": \"llama\", \"vocab_size\": 97, \"hidden_size\": 128, \"num_hidden_layers\": 3, " \
    "\"num_attention_heads\": 4, \"intermediate_size\": 256, \"max_position_embeddings\": 32}"

typedef struct tested {
    const char *name;
    tx_dtype computed, packed; /* type that products compute in; type of the blocks' matrices if they have 4 bits */
    bool again;                /* activations are computed again */
} tested;
static const tested bases[] = {{"fp32", TX_F32, TX_F32, false},
                               {"bf16", TX_BF16, TX_F32, true},
                               {"nf4", TX_BF16, TX_NF4, false},
                               {"nf4 twice", TX_F32, TX_NF4_DOUBLE, true}};

/* The error that is planted in a divided model. */
typedef enum fault { NONE, MOVED, UNGATHERED } fault;

static tx_status make(const char *device, const tested *t, const tx_config *config, tx_comm *comm, int32_t stage,
                      side *s)
{
    const tx_engine_options engine = {.size = sizeof engine, .device = device, .threads = 1};
    const tx_parallel_options parallel = {.size = sizeof parallel, .bucket_bytes = 40000, .zero_stage = stage};
    const tx_checkpointing again = {.size = sizeof again};
    *s = (side){.rows = ROWS, .first = comm->rank * ROWS, .all = comm->size * ROWS};
    TX_TRY(tx_engine_create(&engine, &s->engine));
    TX_TRY(tx_model_create(s->engine, &s->model));
    TX_TRY(tx_model_parallel(s->model, comm, &parallel));
    TX_TRY(tx_graph_create(s->model, &s->graph));
    TX_TRY(tx_graph_autocast(s->graph, t->computed));
    if (t->again)
        TX_TRY(tx_graph_checkpointing(s->graph, &again));
    TX_TRY(beside_train(s, config, BLOCK, false, 0.0f));
    return beside_begin(s);
}

static tx_status step(side *s, int32_t number)
{
    int32_t tokens[ROWS * BLOCK], labels[ROWS * BLOCK];
    for (int32_t i = 0; i < ROWS * BLOCK; i++) {
        const int32_t at = s->first * BLOCK + i;
        tokens[i] = (at * at * 7 + at * number + 31 * number) % VOCAB;
        labels[i] = (tokens[i] * 3 + 1) % VOCAB;
    }
    TX_TRY(tx_model_set(s->model, TX_CONTROL_INVERSE_LABELS, 1.0 / (s->all * BLOCK)));
    TX_TRY(tx_model_set(s->model, TX_CONTROL_STEP, (double)number));
    TX_TRY(tx_plan_write(s->plan, s->tokens, tokens, sizeof tokens));
    TX_TRY(tx_plan_write(s->plan, s->labels, labels, sizeof labels));
    TX_TRY(tx_plan_run(s->plan));
    TX_TRY(beside_update(s));
    return tx_model_wait(s->model); /* another model uses the communicator next */
}

/* ---- Faults ------------------------------------------------------------------------------------------------- */

/* A frozen matrix of the last block. */
static const tx_param_record *matrix_of(const side *s)
{
    const tx_param_record *found = NULL;
    for (int32_t i = 0; i < s->model->params; i++) {
        const tx_param_record *r = &s->model->param[i];
        found = r->arena == TX_ARENA_FROZEN && strstr(r->name, "mlp.down_proj") ? r : found;
    }
    return found;
}

/* Two words of a matrix, of 4 bits two of its scales, change places on the rank that has them. */
static tx_status move_words(const side *s, const tx_param_record *r, const tx_bucket *b)
{
    const int64_t count = tx_shape_count(&r->spec.shape), shard = b->address + b->first * b->element,
                  scales = r->spec.dtype == TX_NF4          ? tx_nf4_absmax_at(count)
                           : r->spec.dtype == TX_NF4_DOUBLE ? tx_nf4_codes_at(count)
                                                            : 0,
                  at = r->offset + scales - shard;
    int32_t word[2], moved[2];
    if (at < 0 || at >= b->owned * b->element)
        return TX_OK;
    TX_TRY(tx_model_read_at(s->model, TX_ARENA_FROZEN_SHARDS, b->kept + at, word, sizeof word));
    moved[0] = word[1];
    moved[1] = word[0];
    TX_TRY(tx_model_write_at(s->model, TX_ARENA_FROZEN_SHARDS, b->kept + at, moved, sizeof moved));
    TX_TRY(s->engine->backend->finish(s->engine->context));
    return word[0] != word[1] ? TX_OK : tx_fail(TX_INTERNAL, "the words that change places are alike");
}

/* Rank 0's shard of a gathered bucket is attributed to rank 1, so that no rank receives it. */
static void leave_out(side *s, int32_t bucket)
{
    tx_parallel *p = s->model->parallel;
    for (int32_t n = 0; n < s->graph->nodes; n++) {
        const tx_node *node = &s->graph->node[n];
        if (node->op == TX_OP_GATHER_WEIGHTS && node->attrs.exchange.bucket == bucket)
            p->packing[node->attrs.exchange.packing - 1].shard[1] = 0;
    }
}

static tx_status spoil(side *s, fault wrong)
{
    const tx_param_record *r = matrix_of(s);
    if (wrong == NONE || !r)
        return r ? TX_OK : tx_fail(TX_INTERNAL, "no frozen matrix");
    const int32_t bucket = tx_parallel_bucket_at(s->model->parallel, TX_ARENA_FROZEN, r->offset);
    if (wrong == MOVED)
        return move_words(s, r, &s->model->parallel->bucket[bucket]);
    leave_out(s, bucket);
    return TX_OK;
}

/* ---- Comparing ---------------------------------------------------------------------------------------------- */

static tx_status same_values(const side *a, const side *b, int32_t index, bool *same)
{
    const char *name;
    const tx_param_spec *spec;
    TX_TRY(tx_model_param(a->model, index, &name, &spec));
    const size_t count = (size_t)tx_shape_count(&spec->logical);
    float *x = malloc(count * sizeof *x), *y = malloc(count * sizeof *y);
    tx_status status = x && y ? tx_model_read(a->model, TX_PARAM_WEIGHT, index, x) : TX_MEMORY;
    TX_THEN(status, tx_model_read(b->model, TX_PARAM_WEIGHT, index, y));
    *same = *same && !status && memcmp(x, y, count * sizeof *x) == 0;
    free(x);
    free(y);
    return status;
}

/* Some steps of both; whether losses, norms and all weights are the same to the bit on all ranks. */
static tx_status compare(side *whole, side *divided, tx_comm *comm, bool *same)
{
    static const tx_result compared[] = {TX_RESULT_LOSS, TX_RESULT_GRAD_NORM};
    *same = true;
    for (int32_t number = 0; number < STEPS; number++) {
        TX_TRY(step(whole, number));
        TX_TRY(step(divided, number));
        for (size_t r = 0; r < sizeof compared / sizeof compared[0]; r++)
            *same = *same && memcmp(&whole->results.value[compared[r]], &divided->results.value[compared[r]],
                                    sizeof(float)) == 0;
    }
    for (int32_t i = 0; i < tx_model_param_count(whole->model); i++)
        TX_TRY(same_values(whole, divided, i, same));
    int32_t others = !*same;
    TX_TRY(tx_comm_collect(comm, TX_ALL_REDUCE, &others, 1, TX_I32, 0));
    *same = others == 0;
    return TX_OK;
}

/* The allocated memory is that of the plan. Each rank has its part of the base, in whole blocks of words of a
 * bucket. */
static tx_status check_memory(const side *whole, const side *divided, int32_t stage, int32_t ranks)
{
    tx_memory planned, counted, all;
    TX_TRY(tx_model_memory(divided->model, &planned));
    TX_TRY(tx_engine_memory(divided->engine, &counted));
    TX_TRY(tx_engine_memory(whole->engine, &all));
    for (int k = 0; k < TX_MEMORY_COUNT; k++)
        if (k != TX_MEMORY_ACTIVATIONS && k != TX_MEMORY_TEMPORARY && planned.bytes[k] != counted.bytes[k])
            return tx_fail(TX_INTERNAL, "%s: %" PRId64 " bytes, planned %" PRId64, tx_memory_name((tx_memory_kind)k),
                           counted.bytes[k], planned.bytes[k]);
    const tx_parallel *p = divided->model->parallel;
    const int64_t slack = (p->buckets + p->frozen) * TX_PARAM_BLOCK * (int64_t)sizeof(int32_t);
    const int64_t found = counted.bytes[TX_MEMORY_WEIGHTS],
                  wanted = all.bytes[TX_MEMORY_WEIGHTS] / (stage == 3 ? ranks : 1);
    printf("weights: %" PRId64 " bytes of %" PRId64 "\n", found, all.bytes[TX_MEMORY_WEIGHTS]);
    if (stage == 3 && p->frozen < 3)
        return tx_fail(TX_INTERNAL, "%d frozen buckets: the test wants several", (int)p->frozen);
    return found >= wanted - slack && found <= wanted + slack
               ? TX_OK
               : tx_fail(TX_INTERNAL, "%" PRId64 " bytes of weights, wanted about %" PRId64, found, wanted);
}

static tx_status try_one(const char *device, const tested *t, const tx_config *config, tx_comm *comm, int32_t stage,
                         fault wrong)
{
    static const char *const names[] = {"", "words that have changed places", "a shard that is not gathered"};
    side whole = {0}, divided = {0};
    bool same = false;
    tx_status status = make(device, t, config, comm, 0, &whole);
    TX_THEN(status, make(device, t, config, comm, stage, &divided));
    TX_THEN(status, spoil(&divided, wrong));
    TX_THEN(status, compare(&whole, &divided, comm, &same));
    if (wrong == NONE)
        TX_THEN(status, check_memory(&whole, &divided, stage, comm->size));
    if (!status && wrong == NONE && !same)
        status = tx_fail(TX_INTERNAL, "stage %d has other losses or weights than stage 0", (int)stage);
    if (!status && wrong != NONE && same)
        status = tx_fail(TX_INTERNAL, "%s: not found", names[wrong]);
    if (!status && wrong == NONE)
        printf("%s: loss %.6f\n", t->name, (double)whole.results.value[TX_RESULT_LOSS]);
    beside_free(&whole);
    beside_free(&divided);
    return status;
}

static tx_status run(const char *device, tx_comm *comm, int32_t stage, int rests, char **rest)
{
    (void)rests;
    (void)rest;
    tx_status status = TX_OK;
    for (size_t i = 0; i < sizeof bases / sizeof bases[0] && !status; i++) {
        const tested *t = &bases[i];
        const tx_lora lora = {.rank = 4, .alpha = 8, .stored = t->computed, .targets = (char *)(uintptr_t)TX_LORA_ALL};
        tx_config *config = NULL;
        status = beside_config(LLAMA, &config);
        TX_THEN(status, tx_lora_copy(&lora, &config->lora));
        if (!status)
            config->packed = t->packed;
        const fault last = stage == 3 ? UNGATHERED : NONE;
        for (fault wrong = NONE; wrong <= last; wrong++)
            TX_THEN(status, try_one(device, t, config, comm, stage, wrong));
        status = tx_fail_in(status, "%s", t->name);
        tx_config_free(config);
    }
    return status;
}

int main(int argc, char **argv)
{
    return beside_main(argc, argv, run);
}
