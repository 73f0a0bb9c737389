/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with epilogues, and norms with sums, train as the separate ops do. A backend that runs the ops one after the
 * other gives the same bits, other backends agree within rounding. Results with other readers are kept.
 *
 *     test_fuse [DEVICE]      exit status 77: there is no such device */
#include "api/model/model.h"
#include "api/passes/passes.h"
#include "tests/gradients.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call) \
    if (call)       \
    return fprintf(stderr, "test_fuse: %s\n", tx_error()), false

enum { ROWS = 70, WIDTH = 20, HIDDEN = 68, WEIGHTS = 2 * WIDTH * HIDDEN + WIDTH * WIDTH + HIDDEN + 5 * WIDTH };

typedef struct outcome {
    float loss, gradient[WEIGHTS];
    int32_t ops[TX_OP_COUNT], epilogues[4], kept;
    int32_t layer_norms, rms_norms, layer_norm_gradients; /* with a sum */
    int32_t dropouts, biases;                             /* in norms */
    int64_t planned;
} outcome;

static tx_tensor *weight(tx_graph *g, const char *name, tx_shape shape)
{
    tx_param_spec spec = {.shape = shape, .init = TX_INIT_UNIFORM, .scale = 0.5f};
    return tx_param(g, name, &spec);
}

/* x + down(gelu(up(x))) through the same layers twice, so that gradients on x are sums; then s + rms(n + silu(n)) with
 * n = layer_norm(s), s = x + dropout(silu(x)); then y + silu(layer_norm(y)) with y = linear(x). */
static tx_tensor *network(tx_graph *g, tx_tensor *x, bool exact)
{
    tx_tensor *up = weight(g, "up", TX_SHAPE(WIDTH, HIDDEN)), *up_bias = weight(g, "up_bias", TX_SHAPE(HIDDEN));
    tx_tensor *down = weight(g, "down", TX_SHAPE(HIDDEN, WIDTH)), *down_bias = weight(g, "down_bias", TX_SHAPE(WIDTH));
    for (int layer = 0; layer < 2; layer++) {
        tx_tensor *h = tx_gelu(tx_linear(x, up, up_bias, false), exact);
        x = tx_add(x, tx_linear(h, down, down_bias, false));
    }
    tx_tensor *gamma = weight(g, "gamma", TX_SHAPE(WIDTH)), *beta = weight(g, "beta", TX_SHAPE(WIDTH));
    tx_tensor *s = tx_add(x, tx_dropout(tx_silu(x), 0.25f, 3)), *n = tx_layer_norm(s, gamma, beta, 1e-5f);
    x = tx_add(s, tx_rms_norm(tx_add(n, tx_silu(n)), gamma, 1e-5f));
    tx_tensor *out = weight(g, "out", TX_SHAPE(WIDTH, WIDTH)), *bias = weight(g, "bias", TX_SHAPE(WIDTH));
    x = tx_add(x, tx_linear(tx_silu(x), out, bias, false));
    return tx_add(x, tx_silu(tx_layer_norm(x, weight(g, "gamma2", TX_SHAPE(WIDTH)), beta, 1e-5f)));
}

static void count(const tx_graph *g, outcome *out)
{
    for (int32_t i = 0; i < g->nodes; i++) {
        const tx_node *n = &g->node[i];
        out->ops[n->op]++;
        out->epilogues[n->attrs.epilogue]++;
        out->kept += n->op == TX_OP_MATMUL && n->out[1];
        out->layer_norms += n->op == TX_OP_LAYER_NORM && n->in[3] && n->out[3];
        out->rms_norms += n->op == TX_OP_RMS_NORM && n->in[2] && n->out[2];
        out->dropouts += n->op == TX_OP_LAYER_NORM && n->attrs.draw.p > 0.0f && n->attrs.draw.site == 3;
        out->layer_norm_gradients += n->op == TX_OP_LAYER_NORM_GRAD && n->in[5];
        out->biases += n->op == TX_OP_LAYER_NORM_GRAD && n->out[3];
    }
}

static bool make(tx_engine *engine, bool exact, bool fused, outcome *out)
{
    tx_model *model = NULL;
    tx_graph *graph = NULL;
    tx_plan *plan = NULL;
    float x[ROWS * WIDTH];
    memset(out, 0, sizeof *out);
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = (float)((i * 7919) % 1000) / 500.0f - 1.0f;
    setenv("TX_FUSE", fused ? "1" : "0", 1);
    CHECK(tx_model_create(engine, &model));
    CHECK(tx_graph_create(model, &graph));
    tx_tensor *in = tx_input(graph, "x", TX_F32, TX_SHAPE(ROWS, WIDTH));
    tx_tensor *y = network(graph, in, exact);
    CHECK(tx_backward(graph, tx_reduce(tx_mul(y, y), TX_REDUCE_MEAN, TX_AXIS_ALL)));
    CHECK(tx_plan_create(graph, "fuse", &plan));
    count(graph, out);
    CHECK(tx_model_init(model, 1));
    CHECK(tx_plan_write(plan, in, x, sizeof x));
    CHECK(tx_plan_run(plan));
    CHECK(read_gradients(model, &out->loss, out->gradient));
    tx_memory planned;
    CHECK(tx_model_memory(model, &planned));
    out->planned = planned.bytes[TX_MEMORY_ACTIVATIONS] + planned.bytes[TX_MEMORY_TEMPORARY];
    tx_plan_free(plan);
    tx_graph_free(graph);
    tx_model_free(model);
    return true;
}

/* In both layers GELU, its gradient and both sums of the forward pass are fused. In the backward pass the sum of dx and
 * the layer's gradient is fused only in the second layer, for x needs no gradient. In norms the inputs, the sums of
 * gradients of s and of y, and the gradient of the bias of y are fused. */
static bool fused_as_meant(const outcome *o)
{
    return o->ops[TX_OP_GELU] == 0 && o->ops[TX_OP_GELU_GRAD] == 0 && o->epilogues[TX_EPILOGUE_GELU] == 2 &&
           o->kept == 2 && o->epilogues[TX_EPILOGUE_GELU_GRAD] == 2 && o->epilogues[TX_EPILOGUE_ADD] == 4 &&
           o->layer_norms == 1 && o->rms_norms == 1 && o->layer_norm_gradients == 2 && o->dropouts == 1 &&
           o->biases == 1 && o->ops[TX_OP_DROPOUT] == 1; /* that of the gradient */
}

static bool train(tx_engine *engine, bool exact, bool same_bits)
{
    static outcome apart, fused, again;
    if (!make(engine, exact, false, &apart) || !make(engine, exact, true, &fused) || !make(engine, exact, true, &again))
        return false;
    const double off = relative_distance(fused.gradient, apart.gradient, WEIGHTS);
    const double loss = fabs((double)fused.loss - (double)apart.loss);
    const bool as_meant = fused_as_meant(&fused) && apart.ops[TX_OP_GELU] == 2 && apart.ops[TX_OP_GELU_GRAD] == 2 &&
                          apart.ops[TX_OP_ADD] == fused.ops[TX_OP_ADD] + 8 &&
                          apart.ops[TX_OP_REDUCE] == fused.ops[TX_OP_REDUCE] + 1;
    const bool close = off <= (same_bits ? 0.0 : 1e-6) && loss <= (same_bits ? 0.0 : 1e-6) * fabs((double)apart.loss);
    const bool same = memcmp(&fused, &again, sizeof fused) == 0;
    const bool good = as_meant && close && same && apart.loss > 0.0f && fused.planned <= apart.planned;
    printf("%s GELU: relative L2 distance %.1e, of the loss %.1e, %s bits again, %lld of %lld bytes, %s ops%s\n",
           exact ? "exact" : "tanh", off, loss, same ? "the same" : "OTHER", (long long)fused.planned,
           (long long)apart.planned, as_meant ? "the right" : "OTHER", good ? "" : "  WRONG");
    return good;
}

/* Products are not fused if another op reads their result. */
static bool leave(tx_engine *engine)
{
    tx_model *model = NULL;
    tx_graph *g = NULL;
    tx_plan *plan = NULL;
    outcome o = {0};
    CHECK(tx_model_create(engine, &model));
    CHECK(tx_graph_create(model, &g));
    tx_tensor *x = tx_input(g, "x", TX_F32, TX_SHAPE(3, WIDTH)), *w = weight(g, "w", TX_SHAPE(WIDTH, WIDTH));
    tx_tensor *shown = tx_output(tx_linear(x, w, NULL, false)), *twice = tx_linear(x, w, NULL, true);
    tx_tensor *viewed = tx_matmul(x, w, false, false);
    tx_output(tx_gelu(shown, true));
    tx_output(tx_add(twice, twice));
    tx_output(tx_add(x, tx_reshape(viewed, TX_SHAPE(3, WIDTH))));
    tx_output(tx_gelu(tx_reshape(viewed, TX_SHAPE(3 * WIDTH)), true));
    CHECK(tx_plan_create(g, "left", &plan));
    count(g, &o);
    tx_plan_free(plan);
    tx_graph_free(g);
    tx_model_free(model);
    const bool good = o.ops[TX_OP_GELU] == 2 && o.ops[TX_OP_ADD] == 2 && o.kept == 0;
    printf("not fused: %d GELU, %d sums%s\n", o.ops[TX_OP_GELU], o.ops[TX_OP_ADD], good ? "" : "  WRONG");
    return good;
}

int main(int argc, char **argv)
{
    tx_engine_options options = {.size = sizeof options, .device = argc > 1 ? argv[1] : "cpu"};
    tx_engine *engine;
    tx_status status = tx_engine_create(&options, &engine);
    if (status)
        return fprintf(stderr, "test_fuse: %s\n", tx_error()), status == TX_NOT_FOUND ? 77 : 1;
    const bool same_bits = strcmp(options.device, "cpu") == 0;
    bool good = train(engine, false, same_bits);
    good &= train(engine, true, same_bits);
    good &= leave(engine);
    tx_engine_free(engine);
    return good ? 0 : 1;
}
