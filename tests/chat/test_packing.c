/* SPDX-License-Identifier: Apache-2.0
 * Packed samples are independent. Loss and gradients of a step with packed rows equal those of the single samples, for
 * GPT-2 (learned positions) and Llama (rotary ones), and so does an evaluation.
 *
 *   test_packing [DEVICE] */
#include "tests/scratch.h"

#include "models/arch/find.h"
#include "models/task/instruction.h"
#include "models/train/trainer.h"
#include "tests/arch/config_text.h"
#include "tests/gradients.h"

enum { BLOCK = 96, SAMPLES = 23 };

static const char *device = "cpu";

static const char *const architectures[] = {
    "{\"model_type\": \"gpt2\", \"initializer_range\": 0.3, \"vocab_size\": 257, \"n_embd\": 24, \"n_layer\": 2, "
    "\"n_head\": 3, \"n_positions\": "
    "96, "
    "\"embd_pdrop\": 0, \"attn_pdrop\": 0, \"resid_pdrop\": 0, \"bos_token_id\": 256, \"eos_token_id\": 256}",
    "{\"model_type\": \"llama\", \"initializer_range\": 0.3, \"vocab_size\": 257, \"hidden_size\": 24, "
    "\"intermediate_size\": 40, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8, "
    "\"max_position_embeddings\": 96, \"bos_token_id\": null, \"eos_token_id\": 256}",
};

/* A step over all rows, and an evaluation of them. */
typedef struct outcome {
    int64_t rows, labels, numbers;
    float loss, *gradient;
    double sums[TX_SUMS_MAX];
} outcome;

/* Prompts and completions of many lengths, which have the same words. */
static void write_samples(const char *path)
{
    char text[8192] = "";
    for (int i = 0; i < SAMPLES; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "{\"prompt\": \"%.*s\", \"completion\": \"%.*s\"}\n",
                 1 + i * 5 % 23, "abcabcabcabcabcabcabcabc", 1 + i * 3 % 17, "cbacbacbacbacbacbacba");
    assert_ok(tx_file_write(path, text, strlen(text)));
}

static void run_rows(tx_trainer *trainer, const tx_samples *samples, outcome *made)
{
    const int64_t bytes = tx_task_row_bytes(samples->task, BLOCK);
    void *memory = malloc((size_t)(samples->count * bytes));
    tx_results results;
    assert_non_null(memory);
    tx_batch batch = tx_batch_of(samples->task, BLOCK, samples->count, memory);
    assert_ok(tx_samples_rows(samples, &(tx_sample_order){.shuffle = false}, 0, &batch));
    batch.longest = tx_batch_longest(samples->task, &batch);
    made->labels = tx_batch_labels(samples->task, BLOCK, &batch);
    for (int64_t r = 0; r < samples->count; r++) {
        tx_batch row = tx_batch_rows(samples->task, BLOCK, &batch, r, 1);
        row.longest = tx_batch_longest(samples->task, &row);
        assert_ok(tx_trainer_evaluate(trainer, &row, made->sums, NULL));
    }
    assert_ok(tx_trainer_step(trainer, &batch, made->labels, 1e-3));
    assert_ok(tx_trainer_results(trainer, &results));
    free(memory);
}

/* `lengths`: how many lengths rows have. */
static outcome run(const char *text, const tx_task *task, int32_t lengths, tx_dtype autocast)
{
    char *folder = make_scratch(), *path = tx_path_join(folder, "a.jsonl");
    tx_tokenizer *tokenizer;
    tx_config *config;
    tx_engine *engine;
    tx_model *model;
    tx_trainer *trainer;
    tx_samples samples;
    outcome made = {0};
    write_samples(path);
    assert_ok(tx_tokenizer_bytes(&tokenizer));
    assert_ok(read_text(text, &config));
    const tx_job_settings set = {.completion_only = true, .packing = !task->packed};
    const tx_data_options data = {
        .set = &set, .config = config, .tokenizer = tokenizer, .block = BLOCK, .to = 100, .seed = 3};
    assert_ok(tx_samples_open(task, path, &data, &samples));
    made.rows = samples.count;
    const tx_engine_options on = {.size = sizeof on, .device = device};
    const tx_trainer_options options = {
        .size = sizeof options,
        .task = task,
        .batch = 1,
        .block = BLOCK,
        .accumulation = samples.count,
        .eval_batch = 1,
        .lengths = lengths,
        .autocast = autocast,
        .eval_autocast = autocast,
        .optimizer = {sizeof(tx_optimizer_options), TX_ADAMW, 0.9f, 0.999f, 1e-8f, .weight_decay = 0.0f}};
    assert_ok(tx_engine_create(&on, &engine));
    assert_ok(tx_model_create(engine, &model));
    assert_ok(tx_trainer_create(model, config, &options, &trainer));
    assert_ok(tx_model_init(model, 5));
    made.numbers = tx_arch_param_count(config);
    made.gradient = calloc((size_t)made.numbers + 4096, sizeof *made.gradient);
    run_rows(trainer, &samples, &made);
    assert_ok(read_gradients(model, &made.loss, made.gradient));
    tx_samples_close(&samples);
    tx_trainer_free(trainer);
    tx_model_free(model);
    tx_engine_free(engine);
    tx_config_free(config);
    tx_tokenizer_free(tokenizer);
    free(path);
    remove_scratch(folder);
    return made;
}

static void expect_same(const outcome *a, const outcome *b, double tolerance)
{
    assert_int_equal(a->labels, b->labels);
    assert_int_equal((int64_t)a->sums[TX_SUM_LABELS], (int64_t)b->sums[TX_SUM_LABELS]);
    const double eval = a->sums[TX_SUM_LOSS] / b->sums[TX_SUM_LOSS] - 1.0;
    const double loss = (double)a->loss / (double)b->loss - 1.0;
    const double gradient = relative_distance(a->gradient, b->gradient, (int)a->numbers);
    if (!(fabs(eval) < tolerance && fabs(loss) < tolerance && gradient < 10 * tolerance))
        fail_msg("loss %g, evaluation %g, gradients %g apart", loss, eval, gradient);
}

static void test_packed_is_one_by_one(void **state)
{
    for (size_t i = 0; i < sizeof architectures / sizeof architectures[0]; i++) {
        outcome alone = run(architectures[i], &tx_instruction, 0, TX_F32);
        outcome packed = run(architectures[i], &tx_instruction_packed, 0, TX_F32);
        outcome lengths = run(architectures[i], &tx_instruction_packed, TX_LENGTHS_MAX, TX_F32);
        assert_int_equal(alone.rows, SAMPLES);
        assert_true(packed.rows < SAMPLES / 2);
        expect_same(&packed, &alone, 1e-5);
        expect_same(&lengths, &alone, 1e-5);
        free(alone.gradient);
        free(packed.gradient);
        free(lengths.gradient);
    }
}

static void test_packed_in_bf16(void **state)
{
    outcome alone = run(architectures[1], &tx_instruction, 0, TX_BF16);
    outcome packed = run(architectures[1], &tx_instruction_packed, 0, TX_BF16);
    expect_same(&packed, &alone, 5e-3);
    free(alone.gradient);
    free(packed.gradient);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed_is_one_by_one),
        cmocka_unit_test(test_packed_in_bf16),
    };
    int32_t index;
    device = argc > 1 ? argv[1] : device;
    if (tx_device_find(device, &index))
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
