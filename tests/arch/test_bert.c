/* SPDX-License-Identifier: Apache-2.0
 *
 * BERT: sizes of published models, keys that are kept or refused, heads and labels. Logits, losses and gradients of
 * both heads are compared with transformers' (bert_golden.h). tests/transformers/bert.py compares more.
 *
 *     test_bert [DEVICE]      exit status 77: there is no such device */
#include "models/arch/families.h"
#include "models/arch/labels.h"
#include "models/task/sequence.h"
#include "models/train/trainer.h"
#include "tests/arch/bert_golden.h"
#include "tests/arch/config_text.h"

enum { BATCH = 3, BLOCK = 7, MOST = 4096 };

static const char *device = "cpu";

/* deberta-v3-base without its last brace. */
#define DEBERTA "{\"model_type\": \"deberta-v2\""
#define DEBERTA_BASE                                                                                     \
    DEBERTA ", \"hidden_size\": 768, \"intermediate_size\": 3072, \"num_hidden_layers\": 12, "           \
            "\"num_attention_heads\": 12, \"relative_attention\": true, \"position_buckets\": 256, "     \
            "\"norm_rel_ebd\": \"layer_norm\", \"share_att_key\": true, \"pos_att_type\": \"p2c|c2p\", " \
            "\"position_biased_input\": false"

static void test_sizes(void **state)
{
    static const known_size known[] = {
        {"{\"model_type\": \"bert\", \"architectures\": [\"BertForSequenceClassification\"]}", 109483778},
        {"{\"model_type\": \"bert\", \"architectures\": [\"BertForMaskedLM\"]}", 109514298},
        {"{\"model_type\": \"bert\", \"vocab_size\": 28996}", 108340804}, /* bert-base-cased */
        {"{\"model_type\": \"roberta\", \"architectures\": [\"RobertaForSequenceClassification\"], "
         "\"max_position_embeddings\": 514, \"type_vocab_size\": 1}",
         124647170}, /* roberta-base */
        {"{\"model_type\": \"roberta\", \"max_position_embeddings\": 514, \"type_vocab_size\": 1}", 124697433},
        {"{\"model_type\": \"xlm-roberta\", \"architectures\": [\"XLMRobertaForTokenClassification\"], "
         "\"vocab_size\": 250002, \"max_position_embeddings\": 514, \"type_vocab_size\": 1, \"num_labels\": 9}",
         277459977}, /* xlm-roberta-base */
        {"{\"model_type\": \"distilbert\", \"architectures\": [\"DistilBertForSequenceClassification\"]}", 66955010},
        {"{\"model_type\": \"distilbert\"}", 66985530},
        {"{\"model_type\": \"electra\", \"architectures\": [\"ElectraForSequenceClassification\"]}", 13549314},
        {"{\"model_type\": \"electra\"}", 13546682}, /* electra-small */
        {"{\"model_type\": \"electra\", \"architectures\": [\"ElectraForTokenClassification\"], "
         "\"embedding_size\": 768, \"hidden_size\": 768, \"num_attention_heads\": 12, \"intermediate_size\": 3072}",
         108893186}, /* electra-base */
        {DEBERTA_BASE ", \"architectures\": [\"DebertaV2ForSequenceClassification\"]}", 184423682},
        {DEBERTA_BASE ", \"legacy\": false}", 184551780}, /* deberta-v3-base */
    };
    check_sizes(known, sizeof known / sizeof known[0]);
}

static void test_keys(void **state)
{
    static const char *const bad[][2] = {
        {"{\"model_type\": \"bert\", \"hidden_act\": \"mish\"}", "hidden_act"},
        {"{\"model_type\": \"bert\", \"is_decoder\": true}", "is_decoder"},
        {"{\"model_type\": \"bert\", \"position_embedding_type\": \"relative_key\"}", "position_embedding_type"},
        {"{\"model_type\": \"roberta\", \"is_decoder\": true}", "is_decoder"},
        {"{\"model_type\": \"distilbert\", \"sinusoidal_pos_embds\": true}", "sinusoidal_pos_embds"},
        {"{\"model_type\": \"electra\", \"tie_word_embeddings\": false}", "tie_word_embeddings"},
        {"{\"model_type\": \"bert\", \"problem_type\": \"ranking\"}", "problem_type"},
        {DEBERTA "}", "relative_attention"},
        {DEBERTA ", \"relative_attention\": true, \"pos_att_type\": [\"c2p\"]}", "pos_att_type"},
        {DEBERTA_BASE ", \"conv_kernel_size\": 3}", "conv_kernel_size"},
        {DEBERTA_BASE ", \"pooler_hidden_size\": 512}", "pooler_hidden_size"},
        {DEBERTA_BASE ", \"embedding_size\": 512}", "embedding_size"},
    };
    tx_config *config = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_refused(read_text(bad[i][0], &config), TX_UNSUPPORTED, bad[i][1]);
    assert_refused(read_text("{\"model_type\": \"bert\", \"hidden_size\": 770}", &config), TX_FORMAT, "770");
    assert_refused(read_text("{\"model_type\": \"distilbert\", \"dim\": 770}", &config), TX_FORMAT, "n_heads");
    assert_refused(read_text("{\"model_type\": \"roberta\", \"pad_token_id\": null}", &config), TX_FORMAT,
                   "pad_token_id");
    assert_refused(read_text("{\"model_type\": \"roberta\", \"max_position_embeddings\": 2}", &config), TX_FORMAT,
                   "pad_token_id");
    assert_refused(read_text("{\"model_type\": \"bert\", \"pad_token_id\": 30522}", &config), TX_FORMAT, "30522");
    assert_refused(read_text(DEBERTA_BASE ", \"max_relative_positions\": 129}", &config), TX_FORMAT,
                   "position_buckets");
    assert_refused(read_text("{\"model_type\": \"bert\", \"id2label\": {}}", &config), TX_FORMAT, "id2label");
}

/* RoBERTa's positions begin after the padding id, whatever the keys' values, and the file keeps its rows. */
static void test_positions(void **state)
{
    char *folder = make_scratch(), *path = tx_path_join(folder, "config.json"), *text;
    size_t size;
    tx_config *config;
    assert_ok(read_text("{\"model_type\": \"roberta\", \"max_position_embeddings\": 514}", &config));
    assert_int_equal(config->positions, 512);
    assert_ok(tx_config_override(config, "max_position_embeddings=66,pad_token_id=3"));
    assert_int_equal(config->positions, 62);
    assert_ok(tx_config_write(config, TX_F32, path));
    assert_ok(tx_file_read(path, 4096, &text, &size));
    assert_non_null(strstr(text, "\"max_position_embeddings\": 66"));
    free(text);
    tx_config_free(config);
    free(path);
    remove_scratch(folder);
}

/* A head of another kind is distinguished from the files' heads, and written with its labels. */
static void test_heads(void **state)
{
    static const char *const names[] = {"no", "perhaps", "yes"};
    char *folder = make_scratch(), *path = tx_path_join(folder, "config.json");
    tx_config *config, *back;
    assert_ok(
        read_text("{\"model_type\": \"bert\", \"architectures\": [\"BertForPreTraining\"], \"more\": 7}", &config));
    assert_ptr_equal(config->architecture, &tx_bert_masked_lm);
    assert_int_equal(tx_arch_columns(config), 30522);
    assert_refused(tx_config_set_head(config, TX_HEAD_CAUSAL_LM), TX_UNSUPPORTED, "BertForPreTraining");
    assert_ok(tx_config_set_head(config, TX_HEAD_MASKED_LM));
    assert_false(config->new_head);
    assert_ok(tx_config_set_head(config, TX_HEAD_SEQUENCE_CLASSIFICATION));
    assert_true(config->new_head);
    assert_ok(tx_labels_set(config, TX_PROBLEM_CLASSES, names, 3));
    assert_ok(tx_config_write(config, TX_F32, path));
    assert_ok(tx_config_read(path, &back));
    assert_ptr_equal(back->architecture, &tx_bert_classifier);
    assert_false(back->new_head);
    assert_int_equal(tx_arch_columns(back), 3);
    assert_string_equal(tx_label_name(back, 1), "perhaps");
    assert_null(tx_label_name(back, 3));
    assert_true(tx_json_has(back->source, "more"));
    tx_config_free(back);
    tx_config_free(config);
    /* A base encoder has no head. */
    assert_ok(read_text("{\"model_type\": \"distilbert\", \"architectures\": [\"DistilBertModel\"]}", &config));
    assert_ptr_equal(config->architecture, &tx_distilbert_masked_lm);
    assert_true(config->new_head);
    assert_ok(tx_config_write(config, TX_F32, path));
    assert_ok(tx_config_read(path, &back));
    assert_ptr_equal(back->architecture, &tx_distilbert_masked_lm);
    assert_false(back->new_head);
    tx_config_free(back);
    tx_config_free(config);
    free(path);
    remove_scratch(folder);
}

/* ---- Beside transformers --------------------------------------------------------------------------------- */

typedef struct side {
    tx_config *config;
    tx_engine *engine;
    tx_model *model;
    tx_graph *graph;
    tx_tensor *ids, *types, *lengths, *labels, *logits;
    tx_plan *plan;
} side;

static side open_side(const char *head)
{
    char text[512];
    side s = {0};
    const tx_engine_options on = {.size = sizeof on, .device = device};
    snprintf(text, sizeof text,
             "{\"model_type\": \"bert\", \"architectures\": [\"%s\"], \"vocab_size\": 23, \"hidden_size\": 15, "
             "\"num_hidden_layers\": 2, \"num_attention_heads\": 3, \"intermediate_size\": 19, "
             "\"max_position_embeddings\": 9, \"num_labels\": 3, \"hidden_dropout_prob\": 0, "
             "\"attention_probs_dropout_prob\": 0}",
             head);
    assert_ok(read_text(text, &s.config));
    const bool masked = s.config->architecture->head == TX_HEAD_MASKED_LM;
    assert_ok(tx_engine_create(&on, &s.engine));
    assert_ok(tx_model_create(s.engine, &s.model));
    assert_ok(tx_graph_create(s.model, &s.graph));
    s.ids = tx_input(s.graph, "input_ids", TX_I32, TX_SHAPE(BATCH, BLOCK));
    s.types = tx_input(s.graph, "token_type_ids", TX_I32, TX_SHAPE(BATCH, BLOCK));
    s.lengths = tx_input(s.graph, "attention_lengths", TX_I32, TX_SHAPE(BATCH));
    s.labels = tx_input(s.graph, "labels", TX_I32, masked ? TX_SHAPE(BATCH, BLOCK) : TX_SHAPE(BATCH));
    s.logits = tx_output(tx_arch_logits(s.graph, s.config, NULL));
    assert_ok(tx_backward(s.graph, tx_mean_loss(tx_cross_entropy(s.logits, s.labels, tx_arch_columns(s.config)))));
    assert_ok(tx_plan_create(s.graph, "golden", &s.plan));
    assert_ok(tx_model_allocate(s.model));
    return s;
}

static void close_side(side *s)
{
    tx_plan_free(s->plan);
    tx_graph_free(s->graph);
    tx_model_free(s->model);
    tx_engine_free(s->engine);
    tx_config_free(s->config);
}

static int64_t write_param(side *s, int32_t p, float *values)
{
    const char *name;
    const tx_param_spec *spec;
    assert_ok(tx_model_param(s->model, p, &name, &spec));
    const int64_t count = tx_shape_count(spec->logical.rank ? &spec->logical : &spec->shape);
    const float more = strstr(name, "LayerNorm.weight") ? 1.0f : 0.0f;
    assert_true(count <= MOST);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)(0.2 * sin(0.7 * (double)i + p)) + more;
    assert_ok(tx_model_write(s->model, TX_PARAM_WEIGHT, p, values));
    return count;
}

/* Weights and inputs as bert_golden.py has them; one run. */
static void run_side(side *s, const int32_t *labels, size_t count, int32_t counted)
{
    static const int32_t lengths[BATCH] = {7, 1, 4};
    float values[MOST];
    int32_t ids[BATCH * BLOCK], types[BATCH * BLOCK];
    for (int32_t p = 0; p < tx_model_param_count(s->model); p++)
        write_param(s, p, values);
    for (int32_t i = 0; i < BATCH * BLOCK; i++) {
        ids[i] = 1 + i * 5 % 22;
        types[i] = i % 3 / 2;
    }
    assert_ok(tx_plan_write(s->plan, s->ids, ids, sizeof ids));
    assert_ok(tx_plan_write(s->plan, s->types, types, sizeof types));
    assert_ok(tx_plan_write(s->plan, s->lengths, lengths, sizeof lengths));
    assert_ok(tx_plan_write(s->plan, s->labels, labels, count * sizeof *labels));
    assert_ok(tx_model_set(s->model, TX_CONTROL_INVERSE_LABELS, 1.0 / counted));
    assert_ok(tx_plan_run(s->plan));
}

static void expect_near(double got, double want, double tolerance, const char *what)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%s: %.9g, transformers has %.9g", what, got, want);
}

static void expect_loss_and_gradients(side *s, double loss, const double *norms, size_t count)
{
    tx_results results;
    assert_int_equal(tx_model_param_count(s->model), count);
    assert_ok(tx_model_fetch(s->model));
    assert_ok(tx_model_results(s->model, &results));
    expect_near((double)results.value[TX_RESULT_LOSS], loss, 1e-5, "loss");
    for (int32_t p = 0; p < (int32_t)count; p++) {
        float values[MOST];
        const char *name;
        const tx_param_spec *spec;
        double sum = 0.0;
        assert_ok(tx_model_param(s->model, p, &name, &spec));
        assert_ok(tx_model_read(s->model, TX_PARAM_GRADIENT, p, values));
        for (int64_t i = 0; i < tx_shape_count(spec->logical.rank ? &spec->logical : &spec->shape); i++)
            sum += (double)values[i] * (double)values[i];
        expect_near(sqrt(sum), norms[p], 1e-5, name);
    }
}

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static void test_classifier(void **state)
{
    const int32_t labels[BATCH] = {2, 0, 1};
    float logits[BATCH * 3];
    side s = open_side("BertForSequenceClassification");
    run_side(&s, labels, BATCH, BATCH);
    assert_ok(tx_plan_read(s.plan, s.logits, logits, sizeof logits));
    for (size_t i = 0; i < COUNT(classifier_logits); i++)
        expect_near((double)logits[i], classifier_logits[i], 1e-5, "logit");
    expect_loss_and_gradients(&s, classifier_loss, classifier_gradients, COUNT(classifier_gradients));
    close_side(&s);
}

/* Compares every eleventh logit of the positions that a row uses. */
static void test_masked(void **state)
{
    static const int32_t lengths[BATCH] = {7, 1, 4};
    int32_t labels[BATCH * BLOCK], counted = 0;
    static float logits[BATCH * BLOCK * TX_VOCAB_MULTIPLE];
    side s = open_side("BertForMaskedLM");
    for (int32_t i = 0; i < BATCH * BLOCK; i++) {
        const bool counts = i % BLOCK < lengths[i / BLOCK] && i % 2 == 0;
        labels[i] = counts ? i % 23 : TX_IGNORE_LABEL;
        counted += counts;
    }
    run_side(&s, labels, BATCH * BLOCK, counted);
    assert_ok(tx_plan_read(s.plan, s.logits, logits, sizeof logits));
    size_t at = 0;
    for (int32_t i = 0; i < BATCH * BLOCK; i++)
        for (int32_t v = 0; v < 23 && i % BLOCK < lengths[i / BLOCK]; v += 11)
            expect_near((double)logits[i * TX_VOCAB_MULTIPLE + v], masked_logits[at++], 1e-5, "logit");
    assert_int_equal(at, COUNT(masked_logits));
    expect_loss_and_gradients(&s, masked_loss, masked_gradients, COUNT(masked_gradients));
    close_side(&s);
}

/* ---- Rows of several lengths ------------------------------------------------------------------------------ */

enum { ROWS = 4, LONG = 48, SHORT = 5 };

/* Runs one step on short texts, declared to be short. Returns the loss, the runs of the plan for whole rows, and the
 * memory. */
static double step_of(int32_t lengths, int64_t longest, int64_t *runs, int64_t *memory)
{
    static const int32_t length[ROWS] = {3, SHORT, 1, 4};
    int32_t data[ROWS * (3 * LONG + 2)];
    tx_config *config;
    tx_engine *engine;
    tx_model *model;
    tx_trainer *trainer;
    tx_memory planned;
    tx_results results;
    const tx_engine_options on = {.size = sizeof on, .device = device};
    const tx_trainer_options options = {
        .size = sizeof options,
        .task = &tx_sequence_classification.task,
        .batch = ROWS,
        .block = LONG,
        .accumulation = 1,
        .eval_batch = ROWS,
        .lengths = lengths,
        .optimizer = {sizeof(tx_optimizer_options), TX_ADAMW, 0.9f, 0.999f, 1e-8f, .weight_decay = 0.0f}};
    assert_ok(
        read_text("{\"model_type\": \"bert\", \"architectures\": [\"BertForSequenceClassification\"], "
                  "\"vocab_size\": 50, \"hidden_size\": 16, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
                  "\"intermediate_size\": 24, \"max_position_embeddings\": 64}",
                  &config));
    assert_ok(tx_engine_create(&on, &engine));
    assert_ok(tx_model_create(engine, &model));
    assert_ok(tx_trainer_create(model, config, &options, &trainer));
    assert_ok(tx_model_init(model, 5));
    assert_ok(tx_model_memory(model, &planned));
    *memory = tx_memory_total(&planned);
    tx_batch batch = tx_batch_of(options.task, LONG, ROWS, data);
    for (int f = 0; options.task->fields[f].name; f++)
        tx_field_pad(&options.task->fields[f], batch.field[f], ROWS * tx_field_values(&options.task->fields[f], LONG));
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < length[r]; i++)
            ((int32_t *)batch.field[TX_SEQUENCE_INPUT_IDS])[r * LONG + i] = 1 + r * 7 + i;
        ((int32_t *)batch.field[TX_SEQUENCE_LENGTHS])[r] = length[r];
        ((int32_t *)batch.field[TX_SEQUENCE_LABELS])[r] = r % 2;
    }
    batch.longest = longest;
    assert_ok(tx_trainer_step(trainer, &batch, ROWS, 1e-3));
    assert_ok(tx_trainer_results(trainer, &results));
    tx_trainer_plan(trainer, TX_TRAINER_TRAIN, runs);
    tx_trainer_free(trainer);
    tx_model_free(model);
    tx_engine_free(engine);
    tx_config_free(config);
    return (double)results.value[TX_RESULT_LOSS];
}

/* Short rows run by a plan of their own. It gives the same loss, dropout included, and needs no more memory: all plans
 * share the memory of activations, and only scratch memory of kernels may differ. */
static void test_lengths(void **state)
{
    int64_t runs, memory, same_memory;
    const double whole = step_of(0, SHORT, &runs, &memory);
    assert_int_equal(runs, 1);
    expect_near(step_of(TX_LENGTHS_MAX, 0, &runs, &same_memory), whole, 1e-6, "loss of whole rows");
    assert_int_equal(runs, 1);
    assert_true(same_memory <= memory + memory / 50);
    expect_near(step_of(TX_LENGTHS_MAX, SHORT, &runs, &same_memory), whole, 1e-6, "loss of short rows");
    assert_int_equal(runs, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),     cmocka_unit_test(test_keys),       cmocka_unit_test(test_heads),
        cmocka_unit_test(test_positions), cmocka_unit_test(test_classifier), cmocka_unit_test(test_masked),
        cmocka_unit_test(test_lengths),
    };
    int32_t index;
    device = argc > 1 ? argv[1] : device;
    if (tx_device_find(device, &index))
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
