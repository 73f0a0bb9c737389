/* SPDX-License-Identifier: Apache-2.0
 * Example: a small network with only tx.h. It learns in which of three rings a point of the plane lies. */
#include "tx.h"

#include <math.h>
#include <stdio.h>

#define CHECK(call) \
    if (call)       \
    return fprintf(stderr, "example_mlp: %s\n", tx_error()), 1

enum { POINTS = 512, HIDDEN = 64, CLASSES = 3, STEPS = 200 };

/* y = x W + b with fresh parameters. */
static tx_tensor *layer(tx_tensor *x, tx_graph *g, const char *weight, const char *bias, int64_t in, int64_t out)
{
    tx_param_spec w = {
        .shape = TX_SHAPE(in, out), .init = TX_INIT_NORMAL, .scale = sqrtf(2.0f / (float)in), .decay = true};
    tx_param_spec b = {.shape = TX_SHAPE(out), .init = TX_INIT_ZERO};
    return tx_linear(x, tx_param(g, weight, &w), tx_param(g, bias, &b), false);
}

int main(int argc, char **argv)
{
    tx_engine *engine;
    tx_model *model;
    tx_graph *graph;
    tx_plan *train, *update;
    CHECK(tx_engine_create(
        &(tx_engine_options){.size = sizeof(tx_engine_options), .device = argc > 1 ? argv[1] : "cpu"}, &engine));
    CHECK(tx_model_create(engine, &model));
    CHECK(tx_graph_create(model, &graph));

    tx_tensor *x = tx_input(graph, "x", TX_F32, TX_SHAPE(POINTS, 2));
    tx_tensor *labels = tx_input(graph, "labels", TX_I32, TX_SHAPE(POINTS));
    tx_tensor *hidden = tx_gelu(layer(x, graph, "w1", "b1", 2, HIDDEN), false);
    tx_tensor *logits = tx_output(layer(hidden, graph, "w2", "b2", HIDDEN, CLASSES));
    tx_tensor *loss = tx_mean_loss(tx_cross_entropy(logits, labels, CLASSES));
    CHECK(tx_backward(graph, loss));
    CHECK(tx_plan_create(graph, "train", &train));
    CHECK(tx_optimizer_create(model,
                              &(tx_optimizer_options){.size = sizeof(tx_optimizer_options),
                                                      .kind = TX_ADAMW,
                                                      .beta1 = 0.9f,
                                                      .beta2 = 0.999f,
                                                      .eps = 1e-8f,
                                                      .weight_decay = 0.01f},
                              &update));
    CHECK(tx_model_init(model, 1));
    CHECK(tx_model_set(model, TX_CONTROL_LEARNING_RATE, 0.02));
    CHECK(tx_model_set(model, TX_CONTROL_INVERSE_LABELS, 1.0 / POINTS));

    static float points[POINTS][2], scores[POINTS][CLASSES];
    static int32_t ring[POINTS];
    for (int i = 0; i < POINTS; i++) { /* a spiral that crosses all rings evenly */
        float radius = 3.0f * sqrtf(((float)i + 0.5f) / POINTS), angle = 2.399963f * (float)i;
        points[i][0] = radius * cosf(angle);
        points[i][1] = radius * sinf(angle);
        ring[i] = (int32_t)radius;
    }

    float first = 0;
    tx_results results;
    for (int step = 0; step < STEPS; step++) {
        CHECK(tx_plan_write(train, x, points, sizeof points));
        CHECK(tx_plan_write(train, labels, ring, sizeof ring));
        CHECK(tx_plan_run(train));
        CHECK(tx_plan_run(update));
        CHECK(tx_model_fetch(model));
        CHECK(tx_model_results(model, &results));
        if (step == 0)
            first = results.value[TX_RESULT_LOSS];
    }
    CHECK(tx_plan_read(train, logits, scores, sizeof scores));
    int right = 0;
    for (int i = 0; i < POINTS; i++) {
        int best = scores[i][1] > scores[i][0];
        best = scores[i][2] > scores[i][best] ? 2 : best;
        right += best == ring[i];
    }
    float last = results.value[TX_RESULT_LOSS];
    printf("loss %.4f -> %.4f, %d of %d points right\n", (double)first, (double)last, right, POINTS);
    tx_plan_free(train);
    tx_plan_free(update);
    tx_graph_free(graph);
    tx_model_free(model);
    tx_engine_free(engine);
    return last < 0.2f * first && right > POINTS * 95 / 100 ? 0 : 1;
}
