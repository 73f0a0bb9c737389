/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters: their gradients compared with those of the merged weights, the frozen parameters, memory, names of modules,
 * and peft's folder. tests/transformers/lora.py compares with peft. */
#include "models/lora/lora.h"
#include "tests/arch/config_text.h"
#include "tests/device_model.h"

#define RANK 3
#define ROWS 2
#define TOKENS 5
#define SIZES \
    "\"vocab_size\": 40, \"num_hidden_layers\": 2, \"num_attention_heads\": 3, \"max_position_embeddings\": 16"
#define LLAMA(width, more)                                                                                \
    "{\"model_type\": \"llama\", " SIZES ", \"hidden_size\": " width ", \"intermediate_size\": 10, " more \
    "\"num_key_value_heads\": 1}"
static const char llama[] = LLAMA("12", "");
static const char gpt2[] = "{\"model_type\": \"gpt2\", " SIZES ", \"hidden_size\": 12, \"resid_pdrop\": 0, "
                           "\"attn_pdrop\": 0, \"embd_pdrop\": 0}";
static const char bert[] = "{\"model_type\": \"bert\", \"architectures\": [\"BertForSequenceClassification\"], " SIZES
                           ", \"hidden_size\": 12, \"intermediate_size\": 10}";

/* A configuration with an adapter; the names are not copied before tx_lora_copy. */
static tx_config *adapted(const char *text, const char *targets, const char *saved)
{
    tx_config *config;
    const tx_lora lora = {.rank = RANK,
                          .alpha = 5,
                          .targets = (char *)(uintptr_t)targets,
                          .saved = (char *)(uintptr_t)saved,
                          .base = (char *)(uintptr_t) "somebody/model"};
    assert_ok(read_text(text, &config));
    assert_ok(tx_lora_copy(&lora, &config->lora));
    return config;
}

/* Compiles a training step of a model in one, and its update; or an evaluation. Returns the loss. */
static tx_tensor *build(fixture *f, const tx_config *config, bool backward)
{
    tx_arch_options options = {.size = sizeof options, .train = backward};
    tx_input(f->graph, "input_ids", TX_I32, TX_SHAPE(ROWS, TOKENS));
    tx_tensor *labels = tx_input(f->graph, "labels", TX_I32, TX_SHAPE(ROWS, TOKENS));
    tx_tensor *logits = tx_arch_logits(f->graph, config, &options);
    tx_tensor *loss = tx_output(tx_mean_loss(tx_cross_entropy(logits, labels, config->vocab_size)));
    if (backward)
        assert_ok(tx_backward(f->graph, loss));
    if (tx_plan_create(f->graph, "step", &f->plan))
        fail_msg("%s", tx_error());
    const tx_optimizer_options adamw = {
        .size = sizeof adamw, .kind = TX_ADAMW, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f};
    if (backward)
        assert_ok(tx_optimizer_create(f->model, &adamw, &f->update));
    assert_ok(tx_model_init(f->model, 3));
    return loss;
}

static void run_plan(fixture *f)
{
    int32_t ids[ROWS * TOKENS];
    for (int i = 0; i < ROWS * TOKENS; i++)
        ids[i] = (7 * i + i * i) % 40;
    assert_ok(tx_plan_write(f->plan, tx_find_input(f->graph, "input_ids"), ids, sizeof ids));
    assert_ok(tx_plan_write(f->plan, tx_find_input(f->graph, "labels"), ids, sizeof ids));
    assert_ok(tx_model_set(f->model, TX_CONTROL_INVERSE_LABELS, 1.0 / (ROWS * TOKENS)));
    assert_ok(tx_model_set(f->model, TX_CONTROL_ACCUMULATE, 0));
    assert_ok(tx_plan_run(f->plan));
}

/* A step's loss. */
static float run(fixture *f)
{
    tx_results results;
    assert_ok(tx_model_restore(f->model, &(tx_results){{0}}));
    run_plan(f);
    assert_ok(tx_model_fetch(f->model));
    assert_ok(tx_model_results(f->model, &results));
    return results.value[TX_RESULT_LOSS];
}

/* The loss of a plan without gradients. */
static float evaluate(fixture *f, tx_tensor *loss)
{
    float value;
    run_plan(f);
    assert_ok(tx_plan_read(f->plan, loss, &value, sizeof value));
    return value;
}

/* A part of a parameter; the caller frees. */
static float *part_of(fixture *f, tx_param_role part, const char *name, int64_t *count)
{
    int32_t index;
    const char *found;
    const tx_param_spec *spec;
    assert_ok(tx_model_find(f->model, name, &index));
    assert_ok(tx_model_param(f->model, index, &found, &spec));
    *count = tx_shape_count(&spec->logical);
    float *data = malloc((size_t)*count * sizeof *data);
    assert_non_null(data);
    assert_ok(tx_model_read(f->model, part, index, data));
    return data;
}

/* B begins as zero: draws all numbers that it holds. */
static void draw_b(fixture *f)
{
    uint64_t seed = 5;
    for (int32_t i = 0; i < tx_model_param_count(f->model); i++) {
        const char *name;
        const tx_param_spec *spec;
        float b[64 * RANK];
        assert_ok(tx_model_param(f->model, i, &name, &spec));
        for (int64_t k = 0; strstr(name, "lora_B") && k < tx_shape_count(&spec->shape); k++)
            b[k] = (float)((double)(next_random(&seed) >> 40) * 0x1p-24 - 0.5);
        if (strstr(name, "lora_B"))
            assert_ok(tx_model_write(f->model, TX_PARAM_WEIGHT, i, b));
    }
}

/* Gives the parameters of `to` the values of those of the same name. */
static void copy_base(fixture *from, fixture *to)
{
    for (int32_t i = 0; i < tx_model_param_count(to->model); i++) {
        const char *name;
        const tx_param_spec *spec;
        int64_t count;
        assert_ok(tx_model_param(to->model, i, &name, &spec));
        float *data = part_of(from, TX_PARAM_WEIGHT, name, &count);
        assert_ok(tx_model_write(to->model, TX_PARAM_WEIGHT, i, data));
        free(data);
    }
}

/* A weight's module: `in` by `out`, which begins at `row` of A and output `column` of the weight. */
typedef struct module {
    const char *a, *b, *weight;
    bool inputs_first;
    int row, column, in, out, all; /* all: outputs of the weight */
} module;

static double at(const module *m, const float *weight, int i, int o)
{
    return (double)(m->inputs_first ? weight[i * m->all + m->column + o] : weight[(m->column + o) * m->in + i]);
}

static void assert_near(const char *what, int k, double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-6 + 1e-4 * fabs(wanted)))
        fail_msg("%s, element %d: %.8g, should be %.8g", what, k, got, wanted);
}

/* dA = scale B^T dW and dB = scale dW A^T, with dW the gradient at W + scale B A. */
static void compare_gradients(fixture *f, fixture *merged, const module *m)
{
    const double scale = 5.0 / RANK;
    int64_t count;
    float *a = part_of(f, TX_PARAM_WEIGHT, m->a, &count), *da = part_of(f, TX_PARAM_GRADIENT, m->a, &count);
    float *b = part_of(f, TX_PARAM_WEIGHT, m->b, &count), *db = part_of(f, TX_PARAM_GRADIENT, m->b, &count);
    assert_int_equal(count, m->out * RANK);
    float *dw = part_of(merged, TX_PARAM_GRADIENT, m->weight, &count);
    for (int k = 0; k < RANK; k++) {
        for (int i = 0; i < m->in; i++) {
            double sum = 0;
            for (int o = 0; o < m->out; o++)
                sum += (double)b[o * RANK + k] * at(m, dw, i, o);
            assert_near(m->a, i, (double)da[(m->row + k) * m->in + i], scale * sum);
        }
        for (int o = 0; o < m->out; o++) {
            double sum = 0;
            for (int i = 0; i < m->in; i++)
                sum += at(m, dw, i, o) * (double)a[(m->row + k) * m->in + i];
            assert_near(m->b, o, (double)db[o * RANK + k], scale * sum);
        }
    }
    free(a);
    free(b);
    free(da);
    free(db);
    free(dw);
}

static void check_gradients(fixture *f, const char *text, const char *targets, const module *modules, int count)
{
    fixture *merged;
    tx_config *config = adapted(text, targets, NULL), *plain;
    char *folder = make_scratch();
    tx_lora *lora;
    assert_int_equal(set_up((void **)&merged), 0);
    assert_ok(read_text(text, &plain));
    build(f, config, true);
    build(merged, plain, true);
    draw_b(f);
    copy_base(f, merged);
    assert_ok(tx_arch_save(merged->model, plain, folder));
    assert_ok(tx_lora_save(f->model, config, folder));
    assert_ok(tx_lora_read(folder, &lora));
    assert_ok(tx_lora_check_files(lora, plain, folder));
    assert_ok(tx_lora_merge(merged->model, plain, lora, folder, folder));
    const float loss = run(f);
    assert_near("loss", 0, (double)loss, (double)run(merged));
    for (int i = 0; i < count; i++)
        compare_gradients(f, merged, &modules[i]);
    tx_lora_free(lora);
    tx_config_free(config);
    tx_config_free(plain);
    remove_scratch(folder);
    tear_down((void **)&merged);
}

#define Q "model.layers.1.self_attn."
static void gradients_of_sections(void **state)
{
    const char *joint = Q "q_proj|v_proj.lora_A.weight", *weight = Q "q_proj|k_proj|v_proj.weight";
    const module modules[] = {{joint, Q "q_proj.lora_B.weight", weight, false, 0, 0, 12, 12, 20},
                              {joint, Q "v_proj.lora_B.weight", weight, false, RANK, 16, 12, 4, 20}};
    check_gradients(*state, llama, "q_proj,v_proj", modules, 2);
}

static void gradients_of_one_section(void **state)
{
    const module k = {
        Q "k_proj.lora_A.weight", Q "k_proj.lora_B.weight", Q "q_proj|k_proj|v_proj.weight", false, 0, 12, 12, 4, 20};
    check_gradients(*state, llama, "k_proj", &k, 1);
}

#define H "transformer.h.0."
static void gradients_of_inputs_first(void **state)
{
    const module modules[] = {
        {H "attn.c_attn.lora_A.weight", H "attn.c_attn.lora_B.weight", H "attn.c_attn.weight", true, 0, 0, 12, 36, 36},
        {H "mlp.c_proj.lora_A.weight", H "mlp.c_proj.lora_B.weight", H "mlp.c_proj.weight", true, 0, 0, 48, 12, 12}};
    check_gradients(*state, gpt2, "c_attn,mlp.c_proj", modules, 2);
}

/* An update changes only A, B and modules to save. Only these have gradients and moments, and memory is as planned. */
static void only_the_adapter_is_trained(void **state)
{
    fixture *f = *state;
    tx_config *config = adapted(llama, "all-linear", "norm,lm_head");
    tx_memory planned, counted;
    float *before[64], *after;
    int64_t count, trained = 0;
    const char *name;
    const tx_param_spec *spec;
    build(f, config, true);
    draw_b(f);
    assert_in_range(tx_model_param_count(f->model), 10, 64);
    for (int32_t i = 0; i < tx_model_param_count(f->model); i++) {
        assert_ok(tx_model_param(f->model, i, &name, &spec));
        before[i] = part_of(f, TX_PARAM_WEIGHT, name, &count);
    }
    run(f);
    assert_ok(tx_model_set(f->model, TX_CONTROL_LEARNING_RATE, 0.01));
    assert_ok(tx_plan_run(f->update));
    for (int32_t i = 0; i < tx_model_param_count(f->model); i++) {
        assert_ok(tx_model_param(f->model, i, &name, &spec));
        after = part_of(f, TX_PARAM_WEIGHT, name, &count);
        const bool is_trained =
            strstr(name, ".lora_") || strstr(name, "norm.weight") || strcmp(name, "lm_head.weight") == 0;
        assert_true(spec->frozen != is_trained);
        assert_true((memcmp(before[i], after, (size_t)count * sizeof *after) != 0) == is_trained);
        assert_int_equal(tx_model_read(f->model, TX_PARAM_GRADIENT, i, after), is_trained ? TX_OK : TX_NOT_FOUND);
        trained += is_trained ? (tx_shape_count(&spec->shape) + TX_PARAM_BLOCK - 1) / TX_PARAM_BLOCK : 0;
        free(before[i]);
        free(after);
    }
    assert_ok(tx_model_memory(f->model, &planned));
    assert_ok(tx_engine_memory(f->engine, &counted));
    assert_int_equal(tx_memory_total(&planned), tx_memory_total(&counted));
    assert_int_equal(counted.bytes[TX_MEMORY_GRADIENTS], trained * TX_PARAM_BLOCK * 4);
    assert_int_equal(counted.bytes[TX_MEMORY_OPTIMIZER], trained * TX_PARAM_BLOCK * 8);
    tx_config_free(config);
}

/* While B is zero the model's results do not change. The adapter's dropout is applied only in training. */
static void dropout_in_training(void **state)
{
    fixture *f = *state, *other;
    tx_config *config = adapted(gpt2, "c_attn", NULL), *plain;
    assert_int_equal(set_up((void **)&other), 0);
    assert_ok(read_text(gpt2, &plain));
    config->lora->dropout = 0.5;
    build(f, config, true);
    build(other, plain, true);
    copy_base(f, other);
    const float loss = run(other), begin = run(f);
    assert_memory_equal(&loss, &begin, sizeof loss);
    draw_b(f);
    const float dropped = run(f), again = run(f);
    assert_memory_equal(&dropped, &again, sizeof again);
    assert_ok(tx_model_set(f->model, TX_CONTROL_STEP, 1));
    assert_true(run(f) != dropped);
    tx_config_free(config);
    tx_config_free(plain);
    tear_down((void **)&other);
}

/* With magnitudes the initial model is unchanged, also with dropped inputs. After an update the merged model is the
 * same. */
static void magnitudes(void **state)
{
    static const char *const models[] = {llama, gpt2}, *const targets[] = {"q_proj,v_proj,up_proj", "all-linear"};
    for (int k = 0; k < 4; k++) {
        fixture *f, *other;
        tx_config *config = adapted(models[k / 2], targets[k / 2], NULL), *plain;
        char *folder = make_scratch();
        config->lora->dora = true;
        config->lora->dropout = k % 2 ? 0.5 : 0;
        assert_int_equal(set_up((void **)&f), 0);
        assert_int_equal(set_up((void **)&other), 0);
        assert_ok(read_text(models[k / 2], &plain));
        build(f, config, true);
        tx_tensor *loss = build(other, plain, false);
        copy_base(f, other);
        assert_ok(tx_lora_init(f->model, config, 9));
        const float base = evaluate(other, loss);
        assert_near("the first loss", k, (double)run(f), (double)base);
        assert_ok(tx_model_set(f->model, TX_CONTROL_LEARNING_RATE, 0.05));
        assert_ok(tx_plan_run(f->update));
        config->lora->dropout = 0;
        assert_ok(tx_lora_save(f->model, config, folder));
        assert_ok(tx_arch_save(other->model, plain, folder));
        assert_ok(tx_lora_merge(other->model, plain, config->lora, folder, folder));
        const float merged = evaluate(other, loss);
        assert_true(fabsf(merged - base) > 1e-3f);
        if (k % 2 == 0)
            assert_near("the second loss", k, (double)run(f), (double)merged);
        tx_config_free(config);
        tx_config_free(plain);
        remove_scratch(folder);
        tear_down((void **)&other);
        tear_down((void **)&f);
    }
}

static void names_of_modules(void **state)
{
    static const struct {
        const char *config, *targets, *saved, *text; /* text: part of the message, or NULL if the row is accepted */
        tx_status status;
    } rows[] = {
        {llama, "q_proj, v_proj", NULL, NULL, TX_OK},
        {llama, "self_attn.o_proj,mlp.up_proj", "norm", NULL, TX_OK},
        {llama, "q_prj", NULL, "q_prj: llama has no such module; its modules are embed_tokens, q_proj, k_proj",
         TX_INVALID},
        {llama, "embed_tokens", NULL, NULL, TX_OK},
        {llama, ".*\\.[qv]_proj", NULL, NULL, TX_OK},
        {llama, ".*\\.(x_proj", NULL, "target_modules: \".*\\.(x_proj\": regular expression", TX_UNSUPPORTED},
        {llama, ".*\\.x_proj", NULL, "no module matches", TX_INVALID},
        {llama, "proj", NULL, "target module proj", TX_INVALID},
        {llama, "q_proj,lm_head", NULL, NULL, TX_OK},
        {llama, "q_proj,norm", NULL, "target module norm: TX adapts linear layers", TX_UNSUPPORTED},
        {llama, "q_proj,down_proj", "self_attn,layers.0.mlp,layernorm", NULL, TX_OK},
        {llama, "q_proj", "proj", "modules to save proj: model.layers.0.self_attn.q_proj is a target module",
         TX_UNSUPPORTED},
        {llama, "q_proj,o_proj", "self_attn", "no module matches", TX_INVALID},
        {gpt2, "c_fc", "attn", "transformer.h.0.attn.c_attn is in two of them", TX_UNSUPPORTED},
        {gpt2, "c_attn", "lm_head", "tie_word_embeddings", TX_UNSUPPORTED},
        {gpt2, "lm_head,c_attn", NULL, "tie_word_embeddings", TX_UNSUPPORTED},
        {gpt2, "wpe,c_attn", NULL, "target module wpe: TX adapts linear layers", TX_UNSUPPORTED},
        {llama, "q_proj", "k_proj", "module to save k_proj", TX_UNSUPPORTED},
        {llama, "q_proj", "classifier", "module to save classifier", TX_INVALID},
        {gpt2, "c_proj", "ln_f", NULL, TX_OK},
        {gpt2, "c_attn", "wte", "tie_word_embeddings", TX_UNSUPPORTED},
        {bert, "query,value", "classifier", NULL, TX_OK},
        {bert, "pooler.dense", "classifier", NULL, TX_OK},
        {bert, "word_embeddings", "classifier", NULL, TX_OK},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tx_config *config = adapted(rows[i].config, rows[i].targets, rows[i].saved);
        const tx_status status = tx_lora_check(config->lora, config);
        if (status != rows[i].status || (rows[i].text && !strstr(tx_error(), rows[i].text)))
            fail_msg("row %zu: status %d, %s", i, (int)status, status ? tx_error() : "");
        tx_config_free(config);
    }
}

/* adapter_config.json with more keys. */
static void write_keys(const char *folder, const char *keys)
{
    char text[512];
    snprintf(text, sizeof text, "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 1, %s}", keys);
    assert_ok(tx_file_write(TX_PATH(folder, TX_LORA_CONFIG), text, strlen(text)));
}

#define TARGETS "\"target_modules\": [\"q_proj\"], "

/* Each key of adapter_config.json is obeyed or refused by its name. */
static void keys(void **state)
{
    static const struct {
        const char *keys, *said; /* said is NULL if the file is valid */
        tx_status status;
    } rows[] = {
        {"\"peft_version\": \"0.21.2\"", "target_modules is missing", TX_FORMAT},
        {"\"target_modules\": \".*q\"", NULL, TX_OK},
        {"\"target_modules\": [3]", "target_modules", TX_FORMAT},
        {TARGETS "\"bias\": \"some\"", "bias", TX_UNSUPPORTED},
        {TARGETS "\"rank_pattern\": {\"q_proj\": 4}, \"layers_to_transform\": 0", NULL, TX_OK},
        {TARGETS "\"trainable_token_indices\": [1]", NULL, TX_OK},
        {TARGETS "\"velora_config\": {}", "velora_config", TX_UNSUPPORTED},
        {TARGETS "\"a_later_key\": 1", "a_later_key", TX_UNSUPPORTED},
        {TARGETS "\"init_lora_weights\": \"pissa_niter_4\"", "init_lora_weights: \"pissa_niter_4\"", TX_UNSUPPORTED},
        {TARGETS "\"revision\": \"v2\"", "revision", TX_UNSUPPORTED},
        {TARGETS "\"revision\": \"main\", \"a_later_key\": {}, \"another\": false", NULL, TX_OK},
        {TARGETS "\"init_lora_weights\": \"gaussian\", \"layers_to_transform\": []", NULL, TX_OK},
        {TARGETS "\"init_lora_weights\": false, \"eva_config\": {\"rho\": 2.0}", NULL, TX_OK},
        {TARGETS "\"ensure_weight_tying\": true, \"megatron_core\": \"megatron.core\"", NULL, TX_OK},
    };
    char *folder = make_scratch();
    tx_lora *lora;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_keys(folder, rows[i].keys);
        const tx_status status = tx_lora_read(folder, &lora);
        if (status != rows[i].status || (status && !strstr(tx_error(), rows[i].said)))
            fail_msg("row %zu: status %d, %s", i, (int)status, status ? tx_error() : "");
        if (!status)
            tx_lora_free(lora);
    }
    assert_ok(tx_file_write(TX_PATH(folder, TX_LORA_CONFIG), "{\"peft_type\": \"IA3\"}", 20));
    assert_refused(tx_lora_read(folder, &lora), TX_UNSUPPORTED, "peft_type");
    assert_ok(tx_file_write(TX_PATH(folder, TX_LORA_CONFIG), "{\"r\": 2}", 8));
    assert_refused(tx_lora_read(folder, &lora), TX_FORMAT, "peft_type");
    remove_scratch(folder);
}

/* adapter_config.json is read back as it was written. */
static void folders(void **state)
{
    fixture *f = *state;
    char *folder = make_scratch();
    tx_config *config = adapted(llama, "q_proj,o_proj", "norm");
    tx_lora *lora;
    config->lora->alpha = 2.5;
    config->lora->rank_stabilised = true;
    build(f, config, false);
    assert_false(tx_lora_is_folder(folder));
    assert_ok(tx_lora_save(f->model, config, folder));
    assert_true(tx_lora_is_folder(folder));
    assert_ok(tx_lora_read(folder, &lora));
    assert_true(lora->rank == RANK && lora->alpha == 2.5 && lora->rank_stabilised && lora->dropout == 0);
    assert_string_equal(lora->targets, "q_proj,o_proj");
    assert_string_equal(lora->saved, "norm");
    assert_string_equal(lora->base, "somebody/model");
    tx_lora_free(lora);
    config->lora->saved[0] = 'N'; /* the file has tensors that this adapter lacks */
    assert_refused(tx_lora_load(f->model, config, folder, NULL), TX_FORMAT,
                   "unexpected base_model.model.model.layers.0.input_layernorm.weight");
    /* As peft writes a classifier's: of two heads the model has one. */
    write_keys(folder, "\"task_type\": \"SEQ_CLS\", \"target_modules\": [\"query\"], "
                       "\"modules_to_save\": [\"classifier\", \"score\"]");
    assert_ok(tx_lora_read(folder, &lora));
    assert_string_equal(lora->saved, "classifier");
    assert_refused(tx_lora_check(lora, config), TX_INVALID, "the adapter belongs to a classifier");
    tx_lora_free(lora);
    tx_config_free(config);
    remove_scratch(folder);
}

/* The adapter's own config.json must be of the same model. */
static void other_models(void **state)
{
    static const struct {
        const char *beside, *said;
    } rows[] = {{gpt2, "the adapter belongs to a gpt2, the model is a llama"},
                {LLAMA("24", ""), "hidden_size"},
                {LLAMA("12", "\"rope_theta\": 5e5, "), "the rotary embedding"},
                {LLAMA("12", "\"eos_token_id\": 7, \"attention_dropout\": 0, "), NULL}};
    char *folder = make_scratch();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tx_config *config;
        assert_ok(read_text(llama, &config));
        assert_ok(tx_file_write(TX_PATH(folder, "config.json"), rows[i].beside, strlen(rows[i].beside)));
        const tx_status status = tx_lora_adapted_config(folder, &config);
        assert_true(rows[i].said ? status == TX_INVALID && strstr(tx_error(), rows[i].said) : !status);
        tx_config_free(config);
    }
    remove_scratch(folder);
}

int main(int argc, char **argv)
{
    device = tx_test_device(argc > 1 ? argv[1] : device);
#define LORA(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        LORA(gradients_of_sections),
        LORA(gradients_of_one_section),
        LORA(gradients_of_inputs_first),
        LORA(only_the_adapter_is_trained),
        LORA(dropout_in_training),
        LORA(magnitudes),
        LORA(names_of_modules),
        LORA(folders),
        LORA(keys),
        LORA(other_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
