/* SPDX-License-Identifier: Apache-2.0
 * Smoothed labels against transformers' LabelSmoother (tests/train/smoothing_golden.py): loss and gradient.
 *
 *   test_smoothing DEVICE      exit status 77: there is no such device */
#include "tx.h"

#include "tests/train/smoothing_golden.h"

#include <math.h>
#include <stdio.h>

typedef struct machine {
    tx_engine *engine;
    tx_model *model;
    tx_graph *graph;
    tx_tensor *labels, *loss;
    tx_plan *plan;
} machine;

static tx_status run(machine *m, float *loss, float gradient[ROWS * VOCAB])
{
    const tx_param_spec spec = {.shape = TX_SHAPE(ROWS, VOCAB)};
    tx_status status = tx_model_create(m->engine, &m->model);
    TX_TRY(status ? status : tx_graph_create(m->model, &m->graph));
    m->labels = tx_input(m->graph, "labels", TX_I32, TX_SHAPE(ROWS));
    tx_tensor *scores = tx_param(m->graph, "logits", &spec);
    m->loss = tx_output(tx_mean_loss(tx_cross_entropy_smoothed(scores, m->labels, VOCAB, epsilon)));
    status = tx_backward(m->graph, m->loss);
    status = status ? status : tx_plan_create(m->graph, "train", &m->plan);
    status = status ? status : tx_model_allocate(m->model);
    status = status ? status : tx_model_write(m->model, TX_PART_WEIGHT, 0, logits);
    status = status ? status : tx_model_set(m->model, TX_CONTROL_INVERSE_LABELS, 1.0 / LABELS);
    status = status ? status : tx_plan_write(m->plan, m->labels, labels, sizeof labels);
    status = status ? status : tx_plan_run(m->plan);
    status = status ? status : tx_plan_read(m->plan, m->loss, loss, sizeof *loss);
    return status ? status : tx_model_read(m->model, TX_PART_GRADIENT, 0, gradient);
}

int main(int argc, char **argv)
{
    const float tolerance = 2e-6f;
    const tx_engine_options options = {.size = sizeof options, .device = argc > 1 ? argv[1] : "cpu"};
    float loss = NAN, gradient[ROWS * VOCAB], worst = 0.0f;
    machine m = {0};
    if (tx_engine_create(&options, &m.engine))
        return printf("skipped: %s\n", tx_error()), 77;
    const tx_status status = run(&m, &loss, gradient);
    tx_plan_free(m.plan);
    tx_graph_free(m.graph);
    tx_model_free(m.model);
    tx_engine_free(m.engine);
    if (status)
        return printf("%s\n", tx_error()), 1;
    for (int i = 0; i < ROWS * VOCAB; i++)
        worst = fabsf(gradient[i] - wanted_gradient[i]) <= worst ? worst : fabsf(gradient[i] - wanted_gradient[i]);
    printf("loss %.7f, transformers' is %.7f; gradients differ by up to %g\n", (double)loss, (double)wanted_loss,
           (double)worst);
    return !(fabsf(loss - wanted_loss) <= tolerance * wanted_loss && worst <= tolerance);
}
