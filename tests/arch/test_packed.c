/* SPDX-License-Identifier: Apache-2.0
 *
 * Two samples packed in one row, whose positions attend only to their own sample, give the loss and the gradients of
 * the two separate samples. Invalid starts and positions are refused. */
#include "tests/arch/config_text.h"
#include "tests/device_model.h"

enum { FIRST = 70, SECOND = 61, ROW = FIRST + SECOND, MOST = 4096 };

static const char *const models[] = {
    "{\"model_type\": \"gpt2\", \"vocab_size\": 40, \"n_embd\": 12, \"n_layer\": 2, \"n_head\": 3, \"n_positions\": "
    "140, "
    "\"resid_pdrop\": 0, \"embd_pdrop\": 0, \"attn_pdrop\": 0, \"initializer_range\": 0.2}",
    "{\"model_type\": \"qwen3\", \"vocab_size\": 40, \"hidden_size\": 12, \"intermediate_size\": 10, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 3, \"num_key_value_heads\": 1, \"head_dim\": 8, "
    "\"max_position_embeddings\": 140, \"use_sliding_window\": true, \"sliding_window\": 20, \"max_window_layers\": 1, "
    "\"initializer_range\": 0.2}",
    "{\"model_type\": \"qwen3_5_text\", \"vocab_size\": 40, \"hidden_size\": 12, \"intermediate_size\": 10, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 3, \"num_key_value_heads\": 1, \"head_dim\": 8, "
    "\"max_position_embeddings\": 140, \"full_attention_interval\": 2, \"linear_num_key_heads\": 2, "
    "\"linear_num_value_heads\": 4, \"linear_key_head_dim\": 5, \"linear_value_head_dim\": 6, "
    "\"initializer_range\": 0.2}",
    "{\"model_type\": \"granitemoehybrid\", \"vocab_size\": 40, \"hidden_size\": 12, \"num_local_experts\": 0, "
    "\"shared_intermediate_size\": 10, \"num_hidden_layers\": 2, \"num_attention_heads\": 3, "
    "\"max_position_embeddings\": 140, \"layer_types\": [\"mamba\", \"attention\"], \"mamba_n_heads\": 4, "
    "\"mamba_n_groups\": 2, \"mamba_d_state\": 5, \"initializer_range\": 0.2}",
    "{\"model_type\": \"lfm2\", \"vocab_size\": 40, \"hidden_size\": 12, \"intermediate_size\": 12, "
    "\"block_multiple_of\": 2, \"num_hidden_layers\": 2, \"num_attention_heads\": 3, \"num_key_value_heads\": 1, "
    "\"max_position_embeddings\": 140, \"full_attn_idxs\": [1], \"initializer_range\": 0.2}",
    "{\"model_type\": \"qwen3_next\", \"vocab_size\": 40, \"hidden_size\": 12, \"intermediate_size\": 10, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 3, \"num_key_value_heads\": 1, \"head_dim\": 8, "
    "\"max_position_embeddings\": 140, \"full_attention_interval\": 2, \"linear_num_key_heads\": 2, "
    "\"linear_num_value_heads\": 4, \"linear_key_head_dim\": 5, \"linear_value_head_dim\": 6, \"num_experts\": 3, "
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 10, \"shared_expert_intermediate_size\": 8, "
    "\"initializer_range\": 0.2}",
    "{\"model_type\": \"qwen3_5_moe_text\", \"vocab_size\": 40, \"hidden_size\": 12, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 3, \"num_key_value_heads\": 1, \"head_dim\": 8, "
    "\"max_position_embeddings\": 140, \"full_attention_interval\": 2, \"linear_num_key_heads\": 2, "
    "\"linear_num_value_heads\": 4, \"linear_key_head_dim\": 5, \"linear_value_head_dim\": 6, \"num_experts\": 3, "
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 10, \"shared_expert_intermediate_size\": 8, "
    "\"initializer_range\": 0.2}",
    "{\"model_type\": \"falcon_h1\", \"vocab_size\": 40, \"hidden_size\": 12, \"intermediate_size\": 10, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 3, \"num_key_value_heads\": 1, "
    "\"max_position_embeddings\": 140, \"mamba_d_ssm\": 24, \"mamba_n_heads\": 4, \"mamba_n_groups\": 2, "
    "\"mamba_d_state\": 5, \"ssm_multipliers\": [0.9, 1.1, 0.7, 1.3, 0.8], \"initializer_range\": 0.2}",
    "{\"model_type\": \"mamba2\", \"vocab_size\": 40, \"hidden_size\": 12, \"num_hidden_layers\": 2, "
    "\"num_heads\": 4, \"head_dim\": 6, \"n_groups\": 2, \"state_size\": 5, \"initializer_range\": 0.2}",
    "{\"model_type\": \"nemotron_h\", \"vocab_size\": 40, \"hidden_size\": 12, \"intermediate_size\": 10, "
    "\"hybrid_override_pattern\": \"M*E-\", \"num_attention_heads\": 3, \"num_key_value_heads\": 1, \"head_dim\": 8, "
    "\"max_position_embeddings\": 140, \"mamba_num_heads\": 4, \"mamba_head_dim\": 6, \"n_groups\": 2, "
    "\"ssm_state_size\": 5, \"n_routed_experts\": 3, \"moe_intermediate_size\": 10, "
    "\"moe_shared_expert_intermediate_size\": 8, \"initializer_range\": 0.2}",
};

/* A plan of training over one row of `count` tokens. */
typedef struct rows {
    tx_graph *graph;
    tx_tensor *ids, *labels, *starts, *positions;
    tx_plan *plan;
} rows;

static rows open_rows(tx_model *model, const tx_config *config, int64_t count, bool packed)
{
    const tx_shape shape = TX_SHAPE(1, count);
    rows r = {0};
    assert_ok(tx_graph_create(model, &r.graph));
    r.ids = tx_input(r.graph, "input_ids", TX_I32, shape);
    r.labels = tx_input(r.graph, "labels", TX_I32, shape);
    r.starts = packed ? tx_input(r.graph, "attention_starts", TX_I32, shape) : NULL;
    r.positions = packed ? tx_input(r.graph, "position_ids", TX_I32, shape) : NULL;
    tx_tensor *logits = tx_arch_logits(r.graph, config, NULL);
    assert_ok(tx_backward(r.graph, tx_mean_loss(tx_cross_entropy(logits, r.labels, tx_arch_columns(config)))));
    assert_ok(tx_plan_create(r.graph, packed ? "packed" : "alone", &r.plan));
    return r;
}

static void close_rows(rows *r)
{
    tx_plan_free(r->plan);
    tx_graph_free(r->graph);
}

/* Tokens `from`.. of the two samples, with the labels of each. */
static void run_rows(rows *r, tx_model *model, int32_t from, int32_t count)
{
    int32_t ids[ROW], labels[ROW], starts[ROW], positions[ROW];
    for (int32_t i = 0; i < count; i++) {
        const int32_t at = from + i, start = at < FIRST ? 0 : FIRST;
        ids[i] = at * 7 % 39;
        labels[i] = at == FIRST - 1 || at == ROW - 1 ? TX_IGNORE_LABEL : (at + 1) * 7 % 39;
        starts[i] = start;
        positions[i] = at - start;
    }
    const size_t bytes = (size_t)count * sizeof *ids;
    assert_ok(tx_plan_write(r->plan, r->ids, ids, bytes));
    assert_ok(tx_plan_write(r->plan, r->labels, labels, bytes));
    if (r->starts) {
        assert_ok(tx_plan_write(r->plan, r->starts, starts, bytes));
        assert_ok(tx_plan_write(r->plan, r->positions, positions, bytes));
    }
    assert_ok(tx_model_set(model, TX_CONTROL_INVERSE_LABELS, 1.0 / (ROW - 2)));
    assert_ok(tx_plan_run(r->plan));
}

static double loss_of(tx_model *model)
{
    tx_results results;
    assert_ok(tx_model_fetch(model));
    assert_ok(tx_model_results(model, &results));
    return (double)results.value[TX_RESULT_LOSS];
}

static int64_t read_gradient(tx_model *model, int32_t p, float values[MOST], const char **name)
{
    const tx_param_spec *spec;
    assert_ok(tx_model_param(model, p, name, &spec));
    if (spec->frozen)
        return 0;
    const int64_t count = tx_shape_count(spec->logical.rank ? &spec->logical : &spec->shape);
    assert_true(count <= MOST);
    assert_ok(tx_model_read(model, TX_PARAM_GRADIENT, p, values));
    return count;
}

/* Gradients may differ by `most`, relative to the largest one of the parameter, if that is above 0.1. */
static void compare(fixture *f, const char *text, double most)
{
    static float together[64][MOST];
    float apart[MOST];
    const char *name;
    tx_config *config;
    assert_ok(read_text(text, &config));
    rows packed = open_rows(f->model, config, ROW, true), first = open_rows(f->model, config, FIRST, false);
    rows second = open_rows(f->model, config, SECOND, false);
    const int32_t params = tx_model_param_count(f->model);
    assert_true(params <= 64);
    assert_ok(tx_model_init(f->model, 5));
    run_rows(&packed, f->model, 0, ROW);
    const double loss = loss_of(f->model);
    for (int32_t p = 0; p < params; p++)
        read_gradient(f->model, p, together[p], &name);
    run_rows(&first, f->model, 0, FIRST);
    assert_ok(tx_model_set(f->model, TX_CONTROL_ACCUMULATE, 1.0));
    run_rows(&second, f->model, FIRST, SECOND);
    const double of_two = loss_of(f->model);
    if (!(fabs(loss - of_two) <= 1e-6 * of_two))
        fail_msg("%s: loss %.9g, of two separate samples %.9g", config->architecture->type, loss, of_two);
    for (int32_t p = 0; p < params; p++) {
        const int64_t count = read_gradient(f->model, p, apart, &name);
        double top = 0.0;
        for (int64_t i = 0; i < count; i++)
            top = fmax(top, fabs((double)apart[i]));
        for (int64_t i = 0; i < count; i++)
            if (!(fabs((double)together[p][i] - (double)apart[i]) <= most * fmax(top, 0.1)))
                fail_msg("%s: gradient %lld of %s: %.9g, of two separate samples %.9g", config->architecture->type,
                         (long long)i, name, (double)together[p][i], (double)apart[i]);
    }
    close_rows(&packed);
    close_rows(&first);
    close_rows(&second);
    tx_config_free(config);
}

static void test_gpt2(void **state)
{
    compare(*state, models[0], 1e-6);
}

static void test_qwen3(void **state)
{
    compare(*state, models[1], 1e-6);
}

static void test_qwen3_5(void **state)
{
    compare(*state, models[2], 1e-5);
}

static void test_granite(void **state)
{
    compare(*state, models[3], 1e-5);
}

static void test_lfm2(void **state)
{
    compare(*state, models[4], 1e-6);
}

static void test_qwen3_next(void **state)
{
    compare(*state, models[5], 1e-5);
}

static void test_qwen3_5_moe(void **state)
{
    compare(*state, models[6], 1e-5);
}

static void test_falcon_h1(void **state)
{
    compare(*state, models[7], 1e-5);
}

static void test_mamba2(void **state)
{
    compare(*state, models[8], 1e-5);
}

static void test_nemotron_h(void **state)
{
    compare(*state, models[9], 1e-5);
}

static void test_refused(void **state)
{
    fixture *f = *state;
    tx_config *config;
    int32_t values[ROW] = {0};
    assert_ok(read_text(models[0], &config));
    rows r = open_rows(f->model, config, ROW, true);
    values[3] = ROW;
    assert_refused(tx_plan_write(r.plan, r.starts, values, sizeof values), TX_INVALID, "attention_starts");
    assert_ok(tx_plan_write(r.plan, r.positions, values, sizeof values));
    values[3] = 140;
    assert_refused(tx_plan_write(r.plan, r.positions, values, sizeof values), TX_INVALID, "position_ids");
    values[3] = -1;
    assert_refused(tx_plan_write(r.plan, r.starts, values, sizeof values), TX_INVALID, "attention_starts");
    close_rows(&r);
    const tx_arch_options options = {.size = sizeof options, .cache = ROW};
    tx_input(f->graph, "input_ids", TX_I32, TX_SHAPE(1, 4));
    tx_input(f->graph, "positions", TX_I32, TX_SHAPE(1));
    tx_input(f->graph, "position_ids", TX_I32, TX_SHAPE(1, 4));
    assert_null(tx_arch_logits(f->graph, config, &options));
    assert_refused(tx_plan_create(f->graph, "cached", &f->plan), TX_INVALID,
                   "attention_starts and position_ids cannot be used");
    tx_config_free(config);
}

int main(int argc, char **argv)
{
    device = tx_test_device(argc > 1 ? argv[1] : device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_gpt2, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_qwen3, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_qwen3_5, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_granite, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lfm2, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_qwen3_next, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_qwen3_5_moe, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_falcon_h1, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_mamba2, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nemotron_h, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refused, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
