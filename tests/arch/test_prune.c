/* SPDX-License-Identifier: Apache-2.0
 * Magnitude pruning: the matrices, the number and the choice of the pruned weights; refusals.
 *   test_prune DEVICE */
#include "models/arch/prune.h"

#include "tests/arch/config_text.h"
#include "tests/device_model.h"

static const char gpt2[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 24, \"n_head\": 2, \"n_positions\": 8, "
    "\"n_inner\": 36, \"vocab_size\": 40}";
static const char llama[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 24, \"num_hidden_layers\": 2, \"num_attention_heads\": 3, "
    "\"num_key_value_heads\": 1, \"intermediate_size\": 20, \"max_position_embeddings\": 8, \"vocab_size\": 40}";
static const char bert[] =
    "{\"model_type\": \"bert\", \"architectures\": [\"BertForSequenceClassification\"], \"hidden_size\": 24, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"intermediate_size\": 36, \"max_position_embeddings\": 8, "
    "\"vocab_size\": 40}";
/* Matrices in a block as files hold them, and which dimension is that of the inputs. */
static const struct {
    const char *config;
    int matrices, input;
} models[] = {{gpt2, 4, 0}, {llama, 7, 1}, {bert, 6, 1}};
enum { MODELS = sizeof models / sizeof models[0], MOST = 24 * 72, PARAMS = 40 };

static tx_config *build(fixture *f, const char *text, tx_dtype stored)
{
    tx_config *config;
    tx_graph_free(f->graph);
    tx_model_free(f->model);
    f->graph = NULL;
    f->model = NULL;
    assert_ok(read_text(text, &config));
    assert_ok(tx_model_create(f->engine, &f->model));
    assert_ok(tx_model_store(f->model, stored));
    assert_ok(tx_graph_create(f->model, &f->graph));
    assert_non_null(tx_input(f->graph, "input_ids", TX_I32, TX_SHAPE(1, 8)));
    if (stored == TX_BF16)
        assert_ok(tx_graph_autocast(f->graph, stored));
    assert_non_null(tx_arch_logits(f->graph, config, &(tx_arch_options){.size = sizeof(tx_arch_options)}));
    assert_ok(tx_model_init(f->model, 3));
    return config;
}

/* Returns whether exactly `zeros` of `count` weights, which are `stride` apart, became zero: those of the least
 * magnitude, the first ones if equal. */
static void check_group(const float *before, const float *after, int64_t count, int64_t stride, int64_t zeros)
{
    int64_t gone = 0;
    for (int64_t i = 0; i < count; i++) {
        const float size = fabsf(before[i * stride]);
        int64_t smaller = 0;
        for (int64_t k = 0; k < count; k++)
            smaller += fabsf(before[k * stride]) < size || (fabsf(before[k * stride]) == size && k < i);
        assert_true(after[i * stride] == (smaller < zeros ? 0.0f : before[i * stride]));
        gone += after[i * stride] == 0.0f;
    }
    assert_int_equal(gone, zeros);
}

static void check_piece(const float *before, const float *after, const tx_shape *shape, int input, const tx_pruning *p)
{
    const int64_t columns = shape->dim[1], count = tx_shape_count(shape);
    if (!p->group) {
        check_group(before, after, count, 1, llrint(p->sparsity * (double)count));
        return;
    }
    for (int64_t o = 0; o < shape->dim[1 - input]; o++)
        for (int64_t i = 0; i < shape->dim[input]; i += p->group) {
            const int64_t at = input ? o * columns + i : i * columns + o;
            check_group(before + at, after + at, p->group, input ? 1 : columns, p->group - p->kept);
        }
}

/* Prunes the model and compares every parameter with its old values. Returns the number of pruned matrices. */
static int compare(fixture *f, const tx_config *config, int input, const tx_pruning *p, tx_pruned *pruned)
{
    static float before[PARAMS][MOST], after[MOST];
    const int32_t params = tx_model_param_count(f->model);
    const char *name;
    const tx_param_spec *spec;
    int found = 0;
    assert_true(params <= PARAMS);
    for (int32_t i = 0; i < params; i++)
        assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, i, before[i]));
    assert_ok(tx_prune(f->model, config, p, pruned));
    for (int32_t i = 0; i < params; i++) {
        tx_weights_piece piece[TX_MAX_SECTIONS];
        assert_ok(tx_model_param(f->model, i, &name, &spec));
        assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, i, after));
        const bool in_block = strstr(name, "h.") || strstr(name, "layer");
        if (!in_block || spec->shape.rank != 2) {
            assert_memory_equal(before[i], after, (size_t)tx_shape_count(&spec->logical) * sizeof *after);
            continue;
        }
        for (int32_t k = 0, n = tx_weights_pieces(name, spec, i, TX_MAX_SECTIONS, piece); k < n; k++, found++)
            check_piece(before[i] + piece[k].first, after + piece[k].first, &piece[k].shape, input, p);
    }
    return found;
}

static void the_least_go(void **state)
{
    static const struct {
        const char *structure;
        double sparsity;
    } ways[] = {{"2:4", 0},
                {"2:4", 0.5},
                {"1:4", 0},
                {"3:4", 0},
                {"unstructured", 0.5},
                {"unstructured", 0.37},
                {"unstructured", 0.99999},
                {"unstructured", 1e-9}};
    for (int m = 0; m < MODELS; m++)
        for (size_t w = 0; w < 2 * sizeof ways / sizeof ways[0]; w++) {
            tx_pruning p;
            tx_pruned pruned, again;
            /* In 16 bits many magnitudes are equal. */
            tx_config *config = build(*state, models[m].config, w & 1 ? TX_BF16 : TX_F32);
            assert_ok(tx_pruning_read(ways[w / 2].structure, ways[w / 2].sparsity, &p));
            assert_int_equal(compare(*state, config, models[m].input, &p, &pruned), 2 * models[m].matrices);
            assert_int_equal(pruned.matrices, 2 * models[m].matrices);
            if (p.group)
                assert_int_equal(pruned.zeros * p.group, pruned.weights * (p.group - p.kept));
            compare(*state, config, models[m].input, &p, &again); /* nothing more */
            assert_memory_equal(&pruned, &again, sizeof again);
            tx_config_free(config);
        }
}

/* Weights of which all are the same: the first go. */
static void ties_go_in_order(void **state)
{
    fixture *f = *state;
    tx_config *config = build(f, gpt2, TX_F32);
    int32_t index;
    tx_pruned pruned;
    float w[24 * 72];
    assert_ok(tx_model_find(f->model, "transformer.h.0.attn.c_attn.weight", &index));
    for (int i = 0; i < 24 * 72; i++)
        w[i] = i % 2 ? 0.5f : -0.5f;
    assert_ok(tx_model_write(f->model, TX_PARAM_WEIGHT, index, w));
    assert_ok(tx_prune(f->model, config, &(tx_pruning){.sparsity = 0.25}, &pruned));
    assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, index, w));
    for (int i = 0; i < 24 * 72; i++)
        assert_true(w[i] == (i < 24 * 18 ? 0.0f : i % 2 ? 0.5f : -0.5f));
    tx_config_free(config);
}

static void what_cannot_be(void **state)
{
    tx_pruning p;
    tx_pruned pruned;
    static const char *const structures[] = {"",     "2",     "2:",   "0:4",   "4:4",    "5:4",        "2:65",
                                             "2:4x", "2:4:8", "-1:4", "2: 4 ", "random", "unstructure"};
    for (size_t i = 0; i < sizeof structures / sizeof structures[0]; i++)
        assert_int_equal(tx_pruning_read(structures[i], 0, &p), TX_INVALID);
    assert_int_equal(tx_pruning_read("unstructured", 0, &p), TX_INVALID);
    assert_int_equal(tx_pruning_read("1:4", 0.5, &p), TX_INVALID);
    assert_non_null(strstr(tx_error(), "0.75"));
    assert_ok(tx_pruning_read("5:16", 0, &p));
    for (int m = 0; m < MODELS; m++) {
        tx_config *config = build(*state, models[m].config, TX_F32);
        assert_int_equal(tx_pruning_check(&p, config), TX_UNSUPPORTED);
        assert_non_null(strstr(tx_error(), "24 inputs"));
        assert_int_equal(tx_prune(((fixture *)*state)->model, config, &p, &pruned), TX_UNSUPPORTED);
        tx_config_free(config);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(the_least_go, set_up, tear_down),
                                       cmocka_unit_test_setup_teardown(ties_go_in_order, set_up, tear_down),
                                       cmocka_unit_test_setup_teardown(what_cannot_be, set_up, tear_down)};
    device = tx_test_device(argc > 1 ? argv[1] : device);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
