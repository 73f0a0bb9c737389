/* SPDX-License-Identifier: Apache-2.0
 *
 * Example: GPT-2's training loop written out by hand, with everything that an application may want to change: gradient
 * accumulation, learning rate, clipping, results read one step late, saving for Hugging Face.
 *
 *     example_gpt2_loop FOLDER [DEVICE]     trains a small byte-level model and saves it in FOLDER */
#include "models/task/causal_lm.h"
#include "models/tx_text.h"

#include <stdio.h>
#include <string.h>

#define CHECK(call) \
    if (call)       \
    return fprintf(stderr, "example_gpt2_loop: %s\n", tx_error()), 1

enum { BATCH = 4, LENGTH = 32, MICRO_BATCHES = 2, STEPS = 30 };

static const char text[] = "She sells sea shells by the sea shore; the shells she sells are sea shells, I am sure. ";

/* Tokens of one sample, and as labels the tokens that follow them. */
static void take_sample(int32_t number, int32_t tokens[LENGTH], int32_t labels[LENGTH])
{
    for (int32_t t = 0; t < LENGTH; t++) {
        tokens[t] = (unsigned char)text[(number * 17 + t) % (int32_t)(sizeof text - 1)];
        labels[t] = (unsigned char)text[(number * 17 + t + 1) % (int32_t)(sizeof text - 1)];
    }
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3)
        return fprintf(stderr, "usage: example_gpt2_loop FOLDER [DEVICE]\n"), 2;
    tx_config *config = NULL;
    CHECK(tx_config_preset("gpt2", &config));
    config->vocab_size = TX_BYTES_VOCAB;
    config->bos_token_id = config->eos_token_id = TX_BYTES_END;
    config->positions = 64;
    config->width = 64;
    config->layers = config->heads = 2;

    /* One engine a device; one model; one graph and plan for forward and backward, one plan for the update. */
    tx_engine *engine;
    tx_model *model;
    tx_graph *graph;
    tx_plan *train, *update;
    tx_engine_options engine_options = {.size = sizeof engine_options, .device = argc > 2 ? argv[2] : "cpu"};
    tx_optimizer_options adamw = {
        .size = sizeof adamw, .kind = TX_ADAMW, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.01f};
    tx_arch_options options = {.size = sizeof options, .train = true};
    CHECK(tx_engine_create(&engine_options, &engine));
    CHECK(tx_model_create(engine, &model));
    CHECK(tx_graph_create(model, &graph));
    tx_tensor *tokens = tx_input(graph, "input_ids", TX_I32, TX_SHAPE(BATCH, LENGTH));
    tx_tensor *labels = tx_input(graph, "labels", TX_I32, TX_SHAPE(BATCH, LENGTH));
    tx_tensor *loss = tx_label_loss(graph, config, tx_arch_logits(graph, config, &options), 0.0f);
    CHECK(tx_backward(graph, loss));
    CHECK(tx_plan_create(graph, "train", &train));
    CHECK(tx_optimizer_create(model, &adamw, &update));
    CHECK(tx_model_init(model, 42)); /* or tx_arch_load(model, config, folder) */

    float first = 0, last = 0;
    int32_t sample = 0, x[BATCH][LENGTH], y[BATCH][LENGTH];
    tx_results results;
    CHECK(tx_model_set_seed(model, 42));
    CHECK(tx_model_set(model, TX_CONTROL_MAX_GRAD_NORM, 1.0));
    for (int step = 0; step <= STEPS; step++) {
        if (step < STEPS) {
            CHECK(tx_model_set(model, TX_CONTROL_STEP, step));
            CHECK(tx_model_set(model, TX_CONTROL_LEARNING_RATE, 3e-3 * (1.0 - (double)step / STEPS)));
            CHECK(tx_model_set(model, TX_CONTROL_INVERSE_LABELS, 1.0 / (MICRO_BATCHES * BATCH * LENGTH)));
            for (int micro = 0; micro < MICRO_BATCHES; micro++) {
                CHECK(tx_model_set(model, TX_CONTROL_ACCUMULATE, micro > 0));
                CHECK(tx_model_set(model, TX_CONTROL_SAMPLE, sample)); /* keys dropout */
                for (int b = 0; b < BATCH; b++)
                    take_sample(sample++, x[b], y[b]);
                CHECK(tx_plan_write(train, tokens, x, sizeof x));
                CHECK(tx_plan_write(train, labels, y, sizeof y));
                CHECK(tx_plan_run(train));
            }
            CHECK(tx_plan_run(update));
            CHECK(tx_model_fetch(model));
        }
        if (step == 0)
            continue;
        /* The results of the step before: the device is busy with this one meanwhile. */
        CHECK(tx_model_results(model, &results));
        last = results.value[TX_RESULT_LOSS];
        first = step == 1 ? last : first;
        printf("step %d loss %.4f norm %.3f\n", step, (double)last, (double)results.value[TX_RESULT_GRAD_NORM]);
    }
    CHECK(tx_arch_save(model, config, argv[1]));
    tx_tokenizer *tokenizer;
    CHECK(tx_tokenizer_bytes(&tokenizer));
    CHECK(tx_tokenizer_save(tokenizer, argv[1], config->positions));
    tx_tokenizer_free(tokenizer);
    tx_plan_free(train);
    tx_plan_free(update);
    tx_graph_free(graph);
    tx_model_free(model);
    tx_engine_free(engine);
    tx_config_free(config);
    return last < 0.7f * first ? 0 : 1;
}
