/* SPDX-License-Identifier: Apache-2.0
 * The graph without a device: validation, differentiation, and the memory plan. */
#include "api/fusion/fusion.h"
#include "api/model/model.h"
#include "api/passes/passes.h"
#include "api/plan/layout.h"
#include "tests/unit.h"

/* A model whose backend is never called. */
typedef struct fixture {
    tx_engine engine;
    tx_model *model;
    tx_graph *graph;
} fixture;

static tx_status finish(tx_context *context)
{
    return TX_OK;
}

static int set_up(void **state)
{
    static const tx_backend none = {.version = TX_BACKEND_VERSION, .name = "none", .finish = finish};
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->engine = (tx_engine){.backend = &none, .device = {.max_allocation = 1 << 20}};
    assert_int_equal(tx_model_create(&f->engine, &f->model), TX_OK);
    assert_int_equal(tx_graph_create(f->model, &f->graph), TX_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    tx_graph_free(f->graph);
    tx_model_free(f->model);
    free(f);
    return 0;
}

static tx_tensor *param(tx_graph *g, const char *name, tx_shape shape)
{
    return tx_param(g, name, &(tx_param_spec){.shape = shape, .init = TX_INIT_NORMAL, .scale = 1, .decay = true});
}

/* ---- validation ----------------------------------------------------------------------------- */

static void assert_fails_with(const tx_graph *graph, const char *part)
{
    assert_int_equal(tx_graph_check(graph), TX_INVALID);
    if (!strstr(tx_error(), part))
        fail_msg("\"%s\" does not name \"%s\"", tx_error(), part);
}

static void names_op_and_shapes(void **state)
{
    fixture *f = *state;
    tx_tensor *x = tx_input(f->graph, "x", TX_F32, TX_SHAPE(4, 5));
    assert_null(tx_linear(x, param(f->graph, "w", TX_SHAPE(6, 7)), NULL, false));
    assert_fails_with(f->graph, "matmul");
    assert_fails_with(f->graph, "[4, 5]");
    assert_fails_with(f->graph, "[6, 7]");
}

static void keeps_first_failure_and_passes_null_on(void **state)
{
    fixture *f = *state;
    tx_tensor *x = tx_input(f->graph, "x", TX_F32, TX_SHAPE(4, 5)), *i = tx_input(f->graph, "i", TX_I32, TX_SHAPE(4));
    tx_tensor *bad = tx_add(x, tx_input(f->graph, "y", TX_F32, TX_SHAPE(4, 6)));
    assert_null(bad);
    assert_null(tx_gelu(bad, false));
    assert_null(tx_softmax(i));
    assert_fails_with(f->graph, "add: shapes [4, 5] and [4, 6] differ");
    assert_int_equal(tx_backward(f->graph, tx_mean_loss(bad)), TX_INVALID);
}

static void refuses_impossible_shapes(void **state)
{
    fixture *f = *state;
    assert_null(tx_input(f->graph, "x", TX_F32, TX_SHAPE(INT64_MAX / 2, 8)));
    assert_fails_with(f->graph, "impossible shape");
}

static void finds_inputs_by_name(void **state)
{
    fixture *f = *state;
    tx_tensor *x = tx_input(f->graph, "x", TX_F32, TX_SHAPE(4, 5)), *y = tx_input(f->graph, "y", TX_I32, TX_SHAPE(4));
    param(f->graph, "w", TX_SHAPE(6, 7));
    assert_ptr_equal(tx_find_input(f->graph, "x"), x);
    assert_ptr_equal(tx_find_input(f->graph, "y"), y);
    assert_null(tx_find_input(f->graph, "w"));
}

static void parameters_agree_among_graphs(void **state)
{
    fixture *f = *state;
    tx_tensor *w = param(f->graph, "w", TX_SHAPE(3, 4));
    assert_ptr_equal(param(f->graph, "w", TX_SHAPE(3, 4)), w);
    assert_ptr_equal(tx_param(f->graph, "w", NULL), w);
    assert_null(param(f->graph, "w", TX_SHAPE(4, 3)));
    assert_fails_with(f->graph, "w was declared differently");
}

/* ---- differentiation ------------------------------------------------------------------------ */

static int count_writes(const tx_graph *g, int64_t address, tx_accumulate mode)
{
    int found = 0;
    for (int32_t i = 0; i < g->nodes; i++)
        for (int k = 0; k < TX_MAX_OUT; k++) {
            const tx_tensor *t = g->node[i].out[k];
            found += t && t->arena == TX_ARENA_GRADIENTS && t->offset == address && g->node[i].attrs.accumulate == mode;
        }
    return found;
}

/* A tied parameter is written once by the first contribution of a micro-batch, and added to by the second. */
static void differentiate(tx_graph *graph, tx_tensor *loss)
{
    assert_int_equal(tx_backward(graph, loss), TX_OK);
    assert_int_equal(tx_autodiff(graph), TX_OK);
}

static void tied_parameter_adds_in_node_order(void **state)
{
    fixture *f = *state;
    tx_graph *g = f->graph;
    tx_tensor *tokens = tx_input(g, "tokens", TX_I32, TX_SHAPE(2, 3)),
              *labels = tx_input(g, "labels", TX_I32, TX_SHAPE(2, 3));
    tx_tensor *first = param(g, "first", TX_SHAPE(7)), *w = param(g, "w", TX_SHAPE(11, 7));
    tx_tensor *x = tx_embedding(tokens, w, NULL, NULL);
    x = tx_layer_norm(x, first, param(g, "beta", TX_SHAPE(7)), 1e-5f);
    tx_tensor *loss = tx_mean_loss(tx_cross_entropy(tx_linear(x, w, NULL, true), labels, 11));
    differentiate(g, loss);
    assert_int_equal(count_writes(g, w->offset, TX_ADD_CONTROL), 1);
    assert_int_equal(count_writes(g, w->offset, TX_ADD), 1);
    assert_int_equal(count_writes(g, first->offset, TX_ADD_CONTROL), 1);
    assert_int_equal(tokens->range.high, 11);
    assert_false(tokens->range.ignore);
    assert_true(labels->range.ignore);
}

static void loss_without_parameters_is_refused(void **state)
{
    fixture *f = *state;
    tx_tensor *x = tx_input(f->graph, "x", TX_F32, TX_SHAPE(4));
    assert_int_equal(tx_backward(f->graph, tx_mean_loss(x)), TX_INVALID);
}

static void missing_gradient_is_named(void **state)
{
    fixture *f = *state;
    tx_tensor *m = tx_reduce(param(f->graph, "w", TX_SHAPE(4, 4)), TX_REDUCE_MAX, TX_AXIS_ALL);
    assert_int_equal(tx_backward(f->graph, m), TX_OK);
    assert_int_equal(tx_autodiff(f->graph), TX_UNSUPPORTED);
    assert_non_null(strstr(tx_error(), "reduce"));
}

/* ---- memory plan ---------------------------------------------------------------------------- */

static int64_t rounded(const tx_tensor *t)
{
    return (tx_tensor_bytes(t) + TX_ALIGNMENT - 1) / TX_ALIGNMENT * TX_ALIGNMENT;
}

static tx_tensor *small_network(tx_graph *g)
{
    tx_tensor *x = tx_input(g, "x", TX_F32, TX_SHAPE(64, 100));
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        tx_tensor *h = tx_gelu(tx_linear(x, param(g, name, TX_SHAPE(100, 100)), NULL, false), false);
        x = tx_add(x, h);
    }
    return tx_reduce(x, TX_REDUCE_SUMSQ, TX_AXIS_ALL);
}

static void check_layout(tx_graph *g, int64_t chunk_bytes)
{
    tx_layout layout = {.arena[TX_ARENA_PLANNED].chunk_bytes = chunk_bytes};
    assert_int_equal(tx_plan_layout(g, &layout), TX_OK);
    for (int32_t i = 0; i < g->tensors; i++) {
        const tx_tensor *a = g->tensor[i];
        if (a->base || a->arena != TX_ARENA_PLANNED || a->first < 0)
            continue;
        assert_int_equal(a->offset % TX_ALIGNMENT, 0);
        assert_true(a->offset % chunk_bytes + tx_tensor_bytes(a) <= chunk_bytes);
        for (int32_t k = 0; k < i; k++) {
            const tx_tensor *b = g->tensor[k];
            bool planned = !b->base && b->arena == TX_ARENA_PLANNED && b->first >= 0;
            bool alive = planned && a->first <= b->last && b->first <= a->last;
            bool apart = a->offset + rounded(a) <= b->offset || b->offset + rounded(b) <= a->offset;
            if (alive && !apart)
                fail_msg("tensors %d and %d overlap", i, k);
        }
    }
    assert_true(layout.saved > 0 && layout.saved <= tx_arena_bytes(&layout.arena[TX_ARENA_PLANNED]));
}

static void live_tensors_do_not_overlap(void **state)
{
    fixture *f = *state;
    differentiate(f->graph, small_network(f->graph));
    check_layout(f->graph, INT64_C(1) << 40);
}

static void no_tensor_straddles_a_chunk(void **state)
{
    fixture *f = *state;
    differentiate(f->graph, small_network(f->graph));
    check_layout(f->graph, 70 * TX_ALIGNMENT);
}

static void too_large_for_one_allocation_is_told(void **state)
{
    fixture *f = *state;
    differentiate(f->graph, small_network(f->graph));
    tx_layout layout = {.arena[TX_ARENA_PLANNED].chunk_bytes = 20 * TX_ALIGNMENT};
    assert_int_equal(tx_plan_layout(f->graph, &layout), TX_MEMORY);
    assert_non_null(strstr(tx_error(), "smaller batch"));
}

/* In a chain of element-wise ops without gradient all tensors share one buffer. */
static void reuses_in_place(void **state)
{
    fixture *f = *state;
    tx_tensor *x = tx_linear(tx_input(f->graph, "x", TX_F32, TX_SHAPE(8, 128)),
                             param(f->graph, "w", TX_SHAPE(128, 128)), NULL, false);
    tx_tensor *y = tx_silu(tx_scale(tx_gelu(x, true), 2.0f));
    tx_tensor *z = tx_output(tx_scale(y, 3.0f));
    tx_layout layout = {.arena[TX_ARENA_PLANNED].chunk_bytes = INT64_C(1) << 40};
    assert_int_equal(tx_plan_layout(f->graph, &layout), TX_OK);
    assert_ptr_equal(tx_tensor_root(y), x);
    assert_null(z->base);
}

static void parameters_fill_chunks_without_straddling(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 10; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        tx_tensor *w = param(f->graph, name, TX_SHAPE(100, 1000));
        assert_int_equal(w->offset % (TX_PARAM_BLOCK * 4), 0);
        assert_true(w->offset % (1 << 20) + 400000 <= 1 << 20);
    }
    assert_int_equal(f->model->arena[TX_ARENA_WEIGHTS].chunks, 5);
}

/* ---- the classifier in chunks ----------------------------------------------------------------- */

enum { CLASSIFIER_ROWS = 600, CLASSIFIER_VOCAB = 512 };

static tx_status chunk(tx_graph *g)
{
    g->chunk_bytes = (int64_t)256 * CLASSIFIER_VOCAB * 4;
    return tx_chunk(g);
}

typedef struct network {
    tx_tensor *table, *logits, *losses, *loss;
} network;

/* Embedding, norm and classifier share a table. */
static network tied_network(tx_graph *g, int64_t rows)
{
    tx_tensor *tokens = tx_input(g, "tokens", TX_I32, TX_SHAPE(2, rows / 2)),
              *labels = tx_input(g, "labels", TX_I32, TX_SHAPE(2, rows / 2));
    network n = {.table = param(g, "table", TX_SHAPE(CLASSIFIER_VOCAB, 16))};
    tx_tensor *x = tx_rms_norm(tx_embedding(tokens, n.table, NULL, NULL), param(g, "gamma", TX_SHAPE(16)), 1e-5f);
    n.logits = tx_linear(x, n.table, NULL, true);
    n.losses = tx_cross_entropy(n.logits, labels, CLASSIFIER_VOCAB);
    n.loss = tx_mean_loss(n.losses);
    return n;
}

static int count_ops(const tx_graph *g, tx_op op)
{
    int found = 0;
    for (int32_t i = 0; i < g->nodes; i++)
        found += g->node[i].op == op;
    return found;
}

/* No tensor holds logits of more rows than a chunk. Views lie within their tensors, and are aligned unless they are
 * results, which are single words. */
static void check_views(const tx_graph *g)
{
    for (int32_t i = 0; i < g->nodes; i++)
        for (int k = 0; k < TX_MAX_IN + TX_MAX_OUT; k++) {
            tx_tensor *t = k < TX_MAX_IN ? g->node[i].in[k] : g->node[i].out[k - TX_MAX_IN];
            if (!t)
                continue;
            const tx_tensor *root = tx_tensor_root(t);
            const int64_t at = tx_tensor_address(t);
            assert_true(tx_shape_last(&t->shape) != CLASSIFIER_VOCAB || tx_shape_rows(&t->shape) <= 256);
            assert_true(at >= root->offset && at + tx_tensor_bytes(t) <= root->offset + tx_tensor_bytes(root));
            assert_int_equal(root->arena == TX_ARENA_RESULT ? 0 : at % TX_ALIGNMENT, 0);
        }
}

static void classifier_goes_by_chunks(void **state)
{
    fixture *f = *state;
    tx_graph *g = f->graph;
    const network n = tied_network(g, CLASSIFIER_ROWS);
    differentiate(g, n.loss);
    assert_int_equal(chunk(g), TX_OK);
    assert_int_equal(count_ops(g, TX_OP_CROSS_ENTROPY), 3);
    assert_int_equal(count_ops(g, TX_OP_CROSS_ENTROPY_GRAD), 3);
    assert_int_equal(count_ops(g, TX_OP_MATMUL), 9);
    /* The table is written once, then added to by chunks, and by the embedding at the end. */
    assert_int_equal(count_writes(g, n.table->offset, TX_ADD_CONTROL), 1);
    assert_int_equal(count_writes(g, n.table->offset, TX_ADD), 3);
    assert_int_equal(g->node[g->nodes - 1].op, TX_OP_SCATTER_ADD);
    check_layout(g, INT64_C(1) << 40);
    check_views(g);
    const int32_t nodes = g->nodes;
    assert_int_equal(chunk(g), TX_OK);
    assert_int_equal(g->nodes, nodes);
}

static void forward_classifier_goes_by_chunks(void **state)
{
    fixture *f = *state;
    tx_layout layout = {.arena[TX_ARENA_PLANNED].chunk_bytes = INT64_C(1) << 40};
    tx_output(tied_network(f->graph, CLASSIFIER_ROWS).losses);
    assert_int_equal(chunk(f->graph), TX_OK);
    assert_int_equal(count_ops(f->graph, TX_OP_CROSS_ENTROPY), 3);
    assert_int_equal(count_ops(f->graph, TX_OP_MATMUL), 3);
    assert_int_equal(tx_plan_layout(f->graph, &layout), TX_OK);
    assert_int_equal(layout.saved, 0);
    check_views(f->graph);
}

static void assert_left_alone(tx_graph *g, tx_tensor *loss)
{
    if (loss)
        differentiate(g, loss);
    const int32_t nodes = g->nodes;
    assert_int_equal(chunk(g), TX_OK);
    assert_int_equal(g->nodes, nodes);
    assert_int_equal(count_ops(g, TX_OP_CROSS_ENTROPY), 1);
}

static void few_rows_stay_whole(void **state)
{
    fixture *f = *state;
    assert_left_alone(f->graph, tied_network(f->graph, 256).loss);
}

static void logits_that_are_asked_for_stay_whole(void **state)
{
    fixture *f = *state;
    const network n = tied_network(f->graph, CLASSIFIER_ROWS);
    tx_output(n.logits);
    assert_left_alone(f->graph, n.loss);
}

static void logits_with_another_reader_stay_whole(void **state)
{
    fixture *f = *state;
    const network n = tied_network(f->graph, CLASSIFIER_ROWS);
    tx_output(tx_reduce(n.logits, TX_REDUCE_MAX, TX_AXIS_LAST));
    assert_left_alone(f->graph, NULL);
}

/* The gradient of a square depends on the loss that is squared: chunks of losses come first, and chunks of gradients
 * compute their logits again. */
static void assert_two_rounds(tx_graph *g, tx_tensor *loss)
{
    differentiate(g, loss);
    assert_int_equal(chunk(g), TX_OK);
    assert_int_equal(count_ops(g, TX_OP_CROSS_ENTROPY), 3);
    assert_int_equal(count_ops(g, TX_OP_CROSS_ENTROPY_GRAD), 3);
    assert_int_equal(count_ops(g, TX_OP_MATMUL), 3 * 4); /* logits twice, and two gradients */
    check_views(g);
}

static void losses_that_are_squared_need_two_rounds(void **state)
{
    fixture *f = *state;
    const network n = tied_network(f->graph, CLASSIFIER_ROWS);
    assert_two_rounds(f->graph, tx_reduce(n.losses, TX_REDUCE_SUMSQ, TX_AXIS_ALL));
}

static void a_loss_that_is_squared_needs_two_rounds(void **state)
{
    fixture *f = *state;
    const network n = tied_network(f->graph, CLASSIFIER_ROWS);
    assert_two_rounds(f->graph, tx_mul(n.loss, n.loss));
}

/* A bias' gradient is a third reader of the logits' gradient. */
static void classifier_with_bias_stays_whole(void **state)
{
    fixture *f = *state;
    tx_graph *g = f->graph;
    tx_tensor *x = tx_input(g, "x", TX_F32, TX_SHAPE(CLASSIFIER_ROWS, 16)),
              *labels = tx_input(g, "labels", TX_I32, TX_SHAPE(CLASSIFIER_ROWS));
    tx_tensor *w = param(g, "w", TX_SHAPE(16, CLASSIFIER_VOCAB)), *b = param(g, "b", TX_SHAPE(CLASSIFIER_VOCAB));
    assert_left_alone(g, tx_mean_loss(tx_cross_entropy(tx_linear(x, w, b, false), labels, CLASSIFIER_VOCAB)));
}

/* Without it, and with the table the other way round, dtable = x^T dlogits is the sum. */
static void classifier_of_columns_goes_by_chunks(void **state)
{
    fixture *f = *state;
    tx_graph *g = f->graph;
    tx_tensor *x = tx_input(g, "x", TX_F32, TX_SHAPE(CLASSIFIER_ROWS, 16)),
              *labels = tx_input(g, "labels", TX_I32, TX_SHAPE(CLASSIFIER_ROWS));
    tx_tensor *w = param(g, "w", TX_SHAPE(16, CLASSIFIER_VOCAB));
    tx_tensor *losses = tx_cross_entropy(tx_linear(x, w, NULL, false), labels, CLASSIFIER_VOCAB);
    differentiate(g, tx_mean_loss(losses));
    assert_int_equal(chunk(g), TX_OK);
    assert_int_equal(count_ops(g, TX_OP_CROSS_ENTROPY_GRAD), 3);
    assert_int_equal(count_writes(g, w->offset, TX_ADD_CONTROL), 1);
    assert_int_equal(count_writes(g, w->offset, TX_ADD), 2);
}

static void graph_with_a_plan_stays_as_it_is(void **state)
{
    fixture *f = *state;
    const network n = tied_network(f->graph, CLASSIFIER_ROWS);
    f->graph->planned = true;
    tx_output(n.logits);
    assert_false(n.logits->is_output);
    assert_null(tx_softmax(n.logits));
    assert_fails_with(f->graph, "the graph has a plan");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(names_op_and_shapes),
        TEST(keeps_first_failure_and_passes_null_on),
        TEST(refuses_impossible_shapes),
        TEST(finds_inputs_by_name),
        TEST(parameters_agree_among_graphs),
        TEST(tied_parameter_adds_in_node_order),
        TEST(loss_without_parameters_is_refused),
        TEST(missing_gradient_is_named),
        TEST(live_tensors_do_not_overlap),
        TEST(no_tensor_straddles_a_chunk),
        TEST(too_large_for_one_allocation_is_told),
        TEST(reuses_in_place),
        TEST(parameters_fill_chunks_without_straddling),
        TEST(classifier_goes_by_chunks),
        TEST(forward_classifier_goes_by_chunks),
        TEST(few_rows_stay_whole),
        TEST(logits_that_are_asked_for_stay_whole),
        TEST(logits_with_another_reader_stay_whole),
        TEST(losses_that_are_squared_need_two_rounds),
        TEST(a_loss_that_is_squared_needs_two_rounds),
        TEST(classifier_with_bias_stays_whole),
        TEST(classifier_of_columns_goes_by_chunks),
        TEST(graph_with_a_plan_stays_as_it_is),
    };
    return cmocka_run_group_tests_name("graph", tests, NULL, NULL);
}
