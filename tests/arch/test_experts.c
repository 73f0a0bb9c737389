/* SPDX-License-Identifier: Apache-2.0
 *
 * A layer of experts and the losses of its router, compared with a dense reference in double precision whose gradients
 * are finite differences. The cases are with and without a capacity, all tokens to the same experts, equal scores, and
 * scores of NaN. tests/transformers/experts.py compares whole models. */
#include "models/arch/experts.h"
#include "models/task/task.h"
#include "tests/arch/config_text.h"
#include "tests/device_model.h"

enum { N = 24, C = 8, E = 5, F = 6, MOST = 3, PARTS = 4, LARGEST = E * 2 * F * C };
enum { X, ROUTER, UP, DOWN };

static const char *const names[PARTS] = {"x", "model.layers.0.block_sparse_moe.gate.weight",
                                         "model.layers.0.block_sparse_moe.experts.*.w1|w3.weight",
                                         "model.layers.0.block_sparse_moe.experts.*.w2.weight"};
static const int sizes[PARTS] = {N * C, E *C, E * 2 * F *C, E *C *F};
static const char text[] =
    "{\"model_type\": \"mixtral\", \"vocab_size\": 40, \"hidden_size\": 8, \"intermediate_size\": 6, "
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"num_local_experts\": 5, "
    "\"max_position_embeddings\": 16}";

/* Settings of a layer, and its values. */
typedef struct layer {
    tx_experts experts;
    float capacity, z_loss;
    double balance;
    int padding;                                   /* so many of the last tokens */
    double part[PARTS][LARGEST], of_output[N * C]; /* gradients of the parameters, and of the output */
    int choice[N][MOST], dropped;
    bool is_kept[N][MOST];
} layer;

/* ---- The reference ----------------------------------------------------------------------------------------- */

static double silu(double x)
{
    return x / (1.0 + exp(-x));
}

/* Returns expert e's output for token n, times the gradient of the output. */
static double expert_of(const layer *l, int e, int n)
{
    const double *up = l->part[UP] + e * 2 * F * C, *down = l->part[DOWN] + e * C * F, *x = l->part[X] + n * C;
    double sum = 0.0;
    for (int f = 0; f < F; f++) {
        double gate = 0.0, value = 0.0;
        for (int c = 0; c < C; c++) {
            gate += up[f * C + c] * x[c];
            value += up[(F + f) * C + c] * x[c];
        }
        for (int c = 0; c < C; c++)
            sum += l->of_output[n * C + c] * down[c * F + f] * silu(gate) * value;
    }
    return sum;
}

/* Scores of token n; returns their log-sum-exp. */
static double score(const layer *l, int n, double logit[E])
{
    double sum = 0.0;
    for (int e = 0; e < E; e++) {
        logit[e] = 0.0;
        for (int c = 0; c < C; c++)
            logit[e] += l->part[ROUTER][e * C + c] * l->part[X][n * C + c];
        sum += exp(logit[e]);
    }
    return log(sum);
}

/* Chooses the experts of each token: in the order of scores, and of numbers if scores are equal. */
static void choose(layer *l)
{
    const int k = (int)l->experts.chosen, room = (int)ceil((double)l->capacity * (N - l->padding) * k / E);
    int taken[E] = {0};
    for (int n = 0; n < N; n++) {
        double logit[E];
        score(l, n, logit);
        for (int e = 0; e < E; e++) {
            int before = 0;
            for (int o = 0; o < E; o++)
                before += logit[o] > logit[e] || (logit[o] == logit[e] && o < e);
            if (before < k)
                l->choice[n][before] = e;
        }
    }
    l->dropped = 0;
    for (int j = 0; j < k; j++)
        for (int n = 0; n < N; n++) {
            l->is_kept[n][j] = n < N - l->padding && (l->capacity <= 0.0f || taken[l->choice[n][j]]++ < room);
            l->dropped += n < N - l->padding && !l->is_kept[n][j];
        }
}

/* The sum of the outputs times their gradients, and the losses of the router. */
static double reference(const layer *l)
{
    const int k = (int)l->experts.chosen, tokens = N - l->padding;
    double loss = 0.0, counts[E] = {0}, probabilities[E] = {0}, squares = 0.0;
    for (int n = 0; n < tokens; n++) {
        double logit[E], chosen = 0.0;
        const double lse = score(l, n, logit);
        for (int j = 0; j < k; j++)
            chosen += exp(logit[l->choice[n][j]] - lse);
        for (int j = 0; j < k; j++) {
            const int e = l->choice[n][j];
            const double weight = exp(logit[e] - lse) / (l->experts.normalise ? chosen : 1.0);
            loss += l->is_kept[n][j] ? weight * expert_of(l, e, n) : 0.0;
            counts[e] += 1.0;
        }
        for (int e = 0; e < E; e++)
            probabilities[e] += exp(logit[e] - lse);
        squares += lse * lse;
    }
    for (int e = 0; e < E; e++)
        loss += l->balance * E * (counts[e] / tokens) * (probabilities[e] / tokens);
    return loss + (double)l->z_loss * squares / tokens;
}

/* ---- The device ---------------------------------------------------------------------------------------------- */

static void draw(layer *l)
{
    uint32_t state = 7;
    for (int p = 0; p <= PARTS; p++)
        for (int i = 0; i < (p < PARTS ? sizes[p] : N * C); i++) {
            state = state * 1664525u + 1013904223u;
            *(p < PARTS ? &l->part[p][i] : &l->of_output[i]) = (double)(float)((double)(state >> 8) * 0x1p-23 - 1.0);
        }
}

static void write_floats(const double *from, int count, float *to)
{
    for (int i = 0; i < count; i++)
        to[i] = (float)from[i];
}

/* The model's parameters up to those of experts, the only ones that have slots here. */
enum { OTHER, OF_ROUTER, OF_GATE_UP, OF_DOWN, NO_BIAS };
static const tx_stack_row rows[] = {{.slot = OTHER, .name = "embed"},
                                    {.slot = OTHER, .name = "%d.input_norm"},
                                    {.slot = OTHER, .name = "%d.qkv"},
                                    {.slot = OTHER, .name = "%d.o"},
                                    {.slot = OTHER, .name = "%d.post_norm"},
                                    {.slot = OF_ROUTER, .name = "%d.router"},
                                    {.slot = OF_GATE_UP, .name = "%d.gate_up"},
                                    {.slot = OF_DOWN, .name = "%d.down"},
                                    {.name = NULL}};

/* Runs the layer forward and backward in this type. The output is written to y, and dropped choices are compared with
 * the reference. */
static void run_layer(fixture *f, const layer *l, tx_dtype dtype, float y[N * C], double *loss)
{
    tx_config *config;
    tx_tensor *own = NULL, *of_output = tx_input(f->graph, "of_output", TX_F32, TX_SHAPE(2, N / 2, C));
    const tx_arch_options options = {
        .size = sizeof options, .capacity = l->capacity, .z_loss = l->z_loss, .own_loss = &own};
    const tx_param_spec x = {.shape = TX_SHAPE(2, N / 2, C), .init = TX_INIT_ZERO};
    float buffer[LARGEST];
    tx_results results;
    int32_t index, ids[N];
    assert_ok(tx_graph_autocast(f->graph, dtype));
    assert_ok(read_text(text, &config));
    tx_stack stack = {.graph = f->graph, .config = config, .options = &options, .rows = rows};
    tx_experts experts = l->experts;
    experts.router = OF_ROUTER;
    experts.gate_up = OF_GATE_UP;
    experts.down = OF_DOWN;
    experts.router_bias = experts.choice_bias = experts.gate_up_bias = experts.down_bias = experts.factors = NO_BIAS;
    stack.tokens = tx_input(f->graph, "input_ids", TX_I32, TX_SHAPE(2, N / 2));
    tx_tensor *out = tx_output(tx_stack_experts(&stack, tx_param(f->graph, "x", &x), &experts));
    tx_tensor *sum = tx_reduce(tx_mul(out, of_output), TX_REDUCE_SUM, TX_AXIS_ALL);
    tx_stack_router_loss(&stack, &l->experts, l->balance);
    assert_true((own != NULL) == (l->experts.balance || l->z_loss > 0.0f));
    assert_ok(tx_backward(f->graph, own ? tx_add(sum, own) : sum));
    assert_ok(tx_plan_create(f->graph, "experts", &f->plan));
    for (int p = 0; p < PARTS; p++) {
        write_floats(l->part[p], sizes[p], buffer);
        assert_ok(tx_model_find(f->model, names[p], &index));
        assert_ok(tx_model_write(f->model, TX_PARAM_WEIGHT, index, buffer));
    }
    write_floats(l->of_output, N * C, buffer);
    assert_ok(tx_plan_write(f->plan, of_output, buffer, N * C * sizeof(float)));
    for (int n = 0; n < N; n++)
        ids[n] = n < N - l->padding ? n : TX_NO_TOKEN;
    assert_ok(tx_plan_write(f->plan, stack.tokens, ids, sizeof ids));
    assert_ok(tx_model_set(f->model, TX_CONTROL_LABEL_SHARE, 1.0));
    assert_ok(tx_model_set(f->model, TX_CONTROL_POSITIONS_PER_TOKEN, (double)N / (N - l->padding)));
    assert_ok(tx_plan_run(f->plan));
    assert_ok(tx_plan_read(f->plan, out, y, N * C * sizeof(float)));
    assert_ok(tx_model_fetch(f->model));
    assert_ok(tx_model_results(f->model, &results));
    *loss = (double)results.value[TX_RESULT_LOSS];
    assert_int_equal((int)results.value[TX_RESULT_DROPPED], l->dropped);
    tx_config_free(config);
}

static void read_gradient(fixture *f, int part, float *gradient)
{
    int32_t index;
    assert_ok(tx_model_find(f->model, names[part], &index));
    assert_ok(tx_model_read(f->model, TX_PARAM_GRADIENT, index, gradient));
}

static void compare(fixture *f, layer *l, const char *what)
{
    float y[N * C], gradient[LARGEST];
    double loss, wanted;
    choose(l);
    wanted = reference(l);
    run_layer(f, l, TX_F32, y, &loss);
    if (!(fabs(loss - wanted) <= 1e-5 * (1.0 + fabs(wanted))))
        fail_msg("%s: the loss is %.9g, not %.9g", what, loss, wanted);
    for (int p = 0; p < PARTS; p++) {
        double slope[LARGEST], largest = 0.0;
        for (int i = 0; i < sizes[p]; i++) {
            const double step = 1e-5, before = l->part[p][i];
            l->part[p][i] = before + step;
            slope[i] = reference(l);
            l->part[p][i] = before - step;
            slope[i] = (slope[i] - reference(l)) / (2.0 * step);
            l->part[p][i] = before;
            largest = fmax(largest, fabs(slope[i]));
        }
        read_gradient(f, p, gradient);
        for (int i = 0; i < sizes[p]; i++)
            if (!(fabs((double)gradient[i] - slope[i]) <= 2e-5 * largest + 1e-6))
                fail_msg("%s: gradient %d of %s is %.9g, not %.9g", what, i, names[p], (double)gradient[i], slope[i]);
    }
}

/* ---- Tests ---------------------------------------------------------------------------------------------------- */

/* Sizes of published models, and the active parameters of Mixtral 8x7B. */
static void test_sizes(void **state)
{
    static const known_size known[] = {
        {"{\"model_type\": \"mixtral\"}", 46702792704},   /* 8x7B: transformers' defaults */
        {"{\"model_type\": \"qwen2_moe\"}", 14315784192}, /* Qwen1.5-MoE-A2.7B: the same */
        {"{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 48, \"head_dim\": 128}", 30532122624},
        {"{\"model_type\": \"deepseek_v3\"}", 671026419200}, /* with the biases of choices */
        {"{\"model_type\": \"glm4_moe_lite\"}", 29943393920},
        {"{\"model_type\": \"ernie4_5_moe\"}", 21825437888},
    };
    tx_config *config;
    check_sizes(known, sizeof known / sizeof known[0]);
    assert_ok(read_text(known[0].text, &config));
    assert_true(tx_arch_flops(config) == 6.0 * (12879925248.0 - 131072000.0));
    tx_config_free(config);
}

static const layer setups[] = {
    {.experts = {.count = E, .chosen = 2, .normalise = true, .balance = false}},
    {.experts = {.count = E, .chosen = 2, .normalise = false, .balance = true}, .balance = 0.5},
    {.experts = {.count = E, .chosen = 3, .normalise = true, .balance = true}, .balance = 0.5, .z_loss = 0.1f},
    {.experts = {.count = E, .chosen = 1, .normalise = false, .balance = false}, .z_loss = 0.1f},
    {.experts = {.count = E, .chosen = 2, .normalise = true, .balance = true}, .balance = 0.5, .capacity = 0.75f},
    {.experts = {.count = E, .chosen = 2, .normalise = false, .balance = false}, .capacity = 1.25f},
    {.experts = {.count = E, .chosen = 1, .normalise = false, .balance = true}, .balance = 0.5, .capacity = 0.3f},
    {.experts = {.count = E, .chosen = 2, .normalise = true, .balance = true},
     .balance = 0.5,
     .z_loss = 0.1f,
     .padding = 5},
    {.experts = {.count = E, .chosen = 2, .normalise = false, .balance = true},
     .balance = 0.5,
     .z_loss = 0.1f,
     .capacity = 0.75f,
     .padding = 3},
};

static void test_reference(void **state)
{
    static layer l;
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++) {
        char what[32];
        if (i > 0) {
            tear_down(state);
            set_up(state);
        }
        l = setups[i];
        draw(&l);
        snprintf(what, sizeof what, "setup %zu", i);
        compare(*state, &l, what);
        assert_true((l.dropped > 0) == (l.capacity > 0.0f));
    }
}

/* With equal scores all tokens choose the experts of the lowest numbers, and the other experts are not trained. */
static void test_equal_scores(void **state)
{
    static layer l;
    float gradient[LARGEST];
    l = setups[1];
    draw(&l);
    memset(l.part[ROUTER], 0, sizeof l.part[ROUTER]);
    compare(*state, &l, "equal scores");
    for (int n = 0; n < N; n++)
        assert_true(l.choice[n][0] == 0 && l.choice[n][1] == 1);
    read_gradient(*state, UP, gradient);
    for (int i = 2 * 2 * F * C; i < sizes[UP]; i++)
        assert_true(gradient[i] == 0.0f);
}

/* All tokens choose expert 3. Without a capacity it computes all of them, with one all but the first are dropped. */
static void test_one_expert(void **state)
{
    static layer l;
    for (int bounded = 0; bounded < 2; bounded++) {
        if (bounded) {
            tear_down(state);
            set_up(state);
        }
        l = setups[3];
        draw(&l);
        l.capacity = bounded ? 0.5f : 0.0f;
        for (int n = 0; n < N; n++)
            l.part[X][n * C] = 1.0;
        for (int e = 0; e < E; e++)
            l.part[ROUTER][e * C] = e == 3 ? 9.0 : -9.0;
        compare(*state, &l, "one expert");
        assert_int_equal(l.dropped, bounded ? N - 3 : 0);
    }
}

/* In bf16 the scores of experts 0 and 1 would be equal, and all tokens of positive ones would take expert 0. */
static void test_precision(void **state)
{
    static layer l;
    float y[N * C];
    double loss, wanted;
    int second = 0;
    l = setups[3];
    draw(&l);
    l.z_loss = 0.0f;
    for (int c = 0; c < C; c++) {
        l.part[ROUTER][C + c] = l.part[ROUTER][c] * (1.0 + 0x1p-12);
        for (int e = 2; e < E; e++)
            l.part[ROUTER][e * C + c] = 0.0;
    }
    choose(&l);
    for (int n = 0; n < N; n++)
        second += l.choice[n][0] == 1;
    assert_true(second > N / 4);
    wanted = reference(&l);
    run_layer(*state, &l, TX_BF16, y, &loss);
    if (!(fabs(loss - wanted) <= 0.02 * (1.0 + fabs(wanted))))
        fail_msg("the loss is %.9g, not %.9g", loss, wanted);
}

/* A token of NaN affects only its own results. The step completes, and its norm is NaN. */
static void test_nan(void **state)
{
    static layer l;
    float y[N * C];
    double loss;
    l = setups[1];
    draw(&l);
    l.part[X][3 * C + 2] = (double)NAN;
    run_layer(*state, &l, TX_F32, y, &loss);
    assert_true(isnan(loss));
    for (int i = 0; i < N * C; i++)
        assert_true(isnan(y[i]) == (i / C == 3));
}

int main(int argc, char **argv)
{
    device = tx_test_device(argc > 1 ? argv[1] : device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test_setup_teardown(test_reference, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_equal_scores, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_one_expert, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_precision, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nan, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
