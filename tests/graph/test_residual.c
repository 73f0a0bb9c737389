/* SPDX-License-Identifier: Apache-2.0
 * The residual stream in bf16: which tensors have 16 bits, and that gradients are close to those of fp32.
 * test_residual DEVICE */

#include "api/graph/graph.h"
#include "api/model/model.h"
#include "tests/gradients.h"
#include "tests/graph/transformer.h"

/* The stream of a transformer in bf16: embedding and sums, and the products that are added, have 16 bits; norms read
 * them, and their statistics stay fp32. There are no casts. Its gradient has 16 bits unless the option keeps it in
 * fp32.
 */
static void residual_stream(bool fp32_gradient)
{
    void *state;
    assert_int_equal(set_up(&state), 0);
    fixture *f = state;
    const network n = build(f);
    assert_ok(tx_graph_autocast(f->graph, TX_BF16));
    assert_ok(tx_graph_residual_dtype(f->graph, TX_BF16));
    if (fp32_gradient)
        assert_ok(tx_graph_fp32_residual_gradient(f->graph));
    assert_ok(tx_backward(f->graph, n.loss));
    assert_ok(tx_plan_create(f->graph, "train", &f->plan));
    assert_int_equal(tx_graph_residual_dtype(f->graph, TX_BF16), TX_INVALID);
    const tx_tensor *const half[] = {n.x, n.projected, n.down, n.normed, n.logits};
    for (size_t i = 0; i < sizeof half / sizeof half[0]; i++)
        assert_int_equal(half[i]->dtype, TX_BF16);
    int32_t norms = 0, casts = 0;
    for (int32_t i = 0; i < f->graph->nodes; i++) {
        const tx_node *node = &f->graph->node[i];
        casts += node->op == TX_OP_CAST;
        if (node->op == TX_OP_LAYER_NORM) {
            assert_int_equal(node->in[0]->dtype, TX_BF16);
            assert_int_equal(node->out[1]->dtype, TX_F32);
        }
        if (node->op == TX_OP_LAYER_NORM_GRAD) {
            norms++;
            assert_int_equal(node->in[1]->dtype, TX_BF16);
            assert_int_equal(node->out[0]->dtype, fp32_gradient ? TX_F32 : TX_BF16);
        }
    }
    assert_int_equal(norms, 3);
    assert_int_equal(casts, fp32_gradient ? 2 : 0); /* for both products whose results are added */
    tear_down(&state);
}

static void residual_stream_of_16_bits(void **state)
{
    (void)state;
    residual_stream(false);
    residual_stream(true);
}

/* A sum of two branches is a term of the stream, and so is what only rounds: a scale, dropout. Other sums are not: of
 * two results of one input, or of an input and what no product computes. A stream after norms is that of their results.
 */
static void terms_of_the_stream(void **state)
{
    fixture *f = *state;
    tx_tensor *tokens = tx_input(f->graph, "tokens", TX_I32, TX_SHAPE(BATCH, LENGTH)),
              *w = matrix(f, "w", WIDTH, WIDTH);
    tx_tensor *e = tx_embedding(tokens, matrix(f, "table", PADDED, WIDTH), NULL, NULL), *x = tx_scale(e, 4.0f);
    tx_tensor *h = norm(f, x, "norm1"), *left = tx_linear(h, w, NULL, false);
    tx_tensor *right = tx_dropout(tx_linear(h, w, NULL, true), 0.25f, 1);
    tx_tensor *branches = tx_add(left, right), *sum = tx_add(branches, x);
    tx_tensor *clipped = tx_add(sum, tx_relu(tx_scale(sum, 2.0f)));
    tx_tensor *y = norm(f, clipped, "norm2"), *z = tx_add(y, tx_linear(y, w, NULL, false));
    tx_output(tx_reduce(norm(f, z, "norm3"), TX_REDUCE_MEAN, TX_AXIS_ALL));
    assert_ok(tx_graph_autocast(f->graph, TX_BF16));
    assert_ok(tx_graph_residual_dtype(f->graph, TX_BF16));
    assert_ok(tx_plan_create(f->graph, "terms", &f->plan));
    const tx_tensor *const half[] = {e, x, h, left, right, branches, sum, y, z};
    for (size_t i = 0; i < sizeof half / sizeof half[0]; i++)
        assert_int_equal(half[i]->dtype, TX_BF16);
    assert_int_equal(clipped->dtype, TX_F32);
}

/* What each layer adds to a product, such as a bias of attention, is not the stream although later layers depend on it.
 */
static void shared_biases(void **state)
{
    fixture *f = *state;
    tx_tensor *x = tx_input(f->graph, "x", TX_F32, TX_SHAPE(ROWS, WIDTH)), *w = matrix(f, "w", WIDTH, WIDTH);
    tx_tensor *bias = tx_input(f->graph, "bias", TX_F32, TX_SHAPE(ROWS, WIDTH)), *biased[3], *sum[3];
    for (int i = 0; i < 3; i++) {
        const char name[] = {(char)('a' + i), '\0'};
        biased[i] = tx_add(tx_linear(norm(f, x, name), w, NULL, false), bias);
        x = sum[i] = tx_add(x, tx_linear(tx_gelu(biased[i], true), w, NULL, true));
    }
    tx_output(tx_reduce(x, TX_REDUCE_MEAN, TX_AXIS_ALL));
    assert_ok(tx_graph_autocast(f->graph, TX_BF16));
    assert_ok(tx_graph_residual_dtype(f->graph, TX_BF16));
    assert_ok(tx_plan_create(f->graph, "biases", &f->plan));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(biased[i]->dtype, TX_F32);
        assert_int_equal(sum[i]->dtype, TX_BF16);
    }
}

/* Without mixed precision in that type the plan is refused, and fp16 with a reason. */
static void residual_types_refused(void **state)
{
    fixture *f = *state;
    const network n = build(f);
    assert_int_equal(tx_graph_residual_dtype(f->graph, TX_F16), TX_INVALID);
    assert_non_null(strstr(tx_error(), "65504"));
    assert_int_equal(tx_graph_residual_dtype(f->graph, TX_I32), TX_INVALID);
    assert_ok(tx_graph_residual_dtype(f->graph, TX_BF16));
    assert_ok(tx_graph_autocast(f->graph, TX_F16));
    tx_output(n.loss);
    assert_int_equal(tx_plan_create(f->graph, "evaluate", &f->plan), TX_INVALID);
}

/* Runs forward and backward pass on fixed tokens. Stores the gradients, and returns the planned bytes of activations.
 */
static int64_t train(tx_dtype products, tx_dtype residual, float gradient[WEIGHTS])
{
    int32_t tokens[ROWS], labels[ROWS];
    float loss;
    void *state;
    tx_memory memory;
    assert_int_equal(set_up(&state), 0);
    fixture *f = state;
    const network n = build(f);
    for (int i = 0; i < ROWS; i++) {
        tokens[i] = i * 7 % VOCAB;
        labels[i] = i * 11 % VOCAB;
    }
    assert_ok(tx_graph_autocast(f->graph, products));
    assert_ok(tx_graph_residual_dtype(f->graph, residual));
    assert_ok(tx_backward(f->graph, n.loss));
    assert_ok(tx_plan_create(f->graph, "train", &f->plan));
    assert_ok(tx_model_init(f->model, 1));
    assert_ok(tx_model_set(f->model, TX_CONTROL_INVERSE_LABELS, 1.0 / ROWS));
    assert_ok(tx_plan_write(f->plan, n.tokens, tokens, sizeof tokens));
    assert_ok(tx_plan_write(f->plan, n.labels, labels, sizeof labels));
    assert_ok(tx_plan_run(f->plan));
    memset(gradient, 0, WEIGHTS * sizeof *gradient);
    assert_ok(read_gradients(f->model, &loss, gradient));
    assert_ok(tx_model_memory(f->model, &memory));
    tear_down(&state);
    return memory.bytes[TX_MEMORY_ACTIVATIONS];
}

/* Gradients err more than with a stream in fp32, but within the precision of 8 bits. Activations take less memory. */
static void gradients_and_memory(void **state)
{
    (void)state;
    static float full[WEIGHTS], without[WEIGHTS], with[WEIGHTS];
    train(TX_F32, TX_F32, full);
    const int64_t before = train(TX_BF16, TX_F32, without), after = train(TX_BF16, TX_BF16, with);
    const double own = relative_distance(without, full, WEIGHTS), more = relative_distance(with, full, WEIGHTS);
    assert_true(own > 0.0 && more > own && more < 2.0 * own && more < 0.02);
    assert_true(after < before);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(residual_stream_of_16_bits),
        TEST(terms_of_the_stream),
        TEST(shared_biases),
        TEST(residual_types_refused),
        cmocka_unit_test(gradients_and_memory),
    };
    device = tx_test_device(argc > 1 ? argv[1] : device);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
