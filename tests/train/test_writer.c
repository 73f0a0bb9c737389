/* SPDX-License-Identifier: Apache-2.0
 * Memory of the texts that evaluations write, by an encoder with a decoder and by a decoder, greedy and with beams. The
 * forecast equals the planned memory, and that the counted memory. Caches have the size of arithmetic by hand.
 *
 *     test_writer DEVICE      exit status 77: no device */
#include "models/arch/find.h"
#include "models/generate/generate.h"
#include "models/task/instruction.h"
#include "models/task/seq2seq.h"
#include "models/train/writer.h"
#include "tests/scratch.h"
#include "tests/skip.h"

enum { ROWS = 3, SOURCE = 40, TARGET = 16, NEW = 7, CONTEXT = 64, LAYERS = 2, WIDTH = 48, VOCAB = 300 };

static const char *device = "cpu";
static const char t5[] = "{\"model_type\": \"t5\", \"d_model\": 32, \"d_kv\": 12, \"d_ff\": 64, \"num_layers\": 2, "
                         "\"num_heads\": 4, \"vocab_size\": 300, \"decoder_start_token_id\": 0}";
static const char gpt2[] = "{\"model_type\": \"gpt2\", \"n_embd\": 48, \"n_layer\": 2, \"n_head\": 4, "
                           "\"n_positions\": 64, \"vocab_size\": 300}";
static const struct {
    const char *name, *config;
    int64_t caches; /* of keys and values, in a layer */
} models[] = {{"T5", t5, 4}, {"GPT-2", gpt2, 2}};

/* Trains a step and evaluates a batch, with its texts if there is a writer. Every text ends by its length. */
static void run(tx_trainer *trainer, const tx_generation *write)
{
    const tx_trainer_options *o = tx_trainer_options_of(trainer);
    int32_t *values = calloc(1, (size_t)(ROWS * tx_task_row_bytes(o->task, SOURCE)));
    double sums[TX_SUMS_MAX] = {0};
    float ids[ROWS * (NEW + 1)];
    tx_results results;
    assert_non_null(values);
    const tx_batch batch = tx_batch_of(o->task, SOURCE, ROWS, values);
    for (int32_t f = 0; o->task->fields[f].name; f++) {
        const bool lengths = strcmp(o->task->fields[f].name, TX_FIELD_LENGTHS) == 0;
        int32_t *field = batch.field[f];
        for (int64_t i = 0; i < ROWS * tx_field_values(&o->task->fields[f], SOURCE); i++)
            field[i] = (int32_t)(lengths ? SOURCE - i : 2 + (17 * i + f) % (VOCAB - 2));
    }
    assert_ok(tx_trainer_step(trainer, &batch, ROWS, 1e-3));
    assert_ok(tx_trainer_results(trainer, &results));
    assert_ok(tx_trainer_evaluate(trainer, &batch, sums, NULL));
    assert_true(sums[TX_SUM_LOSS] > 0.0);
    if (write) {
        assert_int_equal(tx_writer_columns(tx_trainer_writer(trainer)), NEW + 1);
        assert_ok(tx_writer_run(tx_trainer_writer(trainer), &batch, ROWS, 0, ids));
        for (int i = 0; i < ROWS * (NEW + 1); i++)
            assert_true((ids[i] >= 0.0f) == (i % (NEW + 1) < NEW));
    }
    free(values);
}

/* Compares forecast, plan and count, and returns the planned memory. */
static tx_memory compare(tx_engine *engine, const tx_config *config, const tx_trainer_options *options)
{
    tx_model *model = NULL;
    tx_trainer *trainer = NULL;
    tx_memory planned, counted;
    tx_forecast forecast;
    assert_ok(tx_trainer_forecast(engine, config, options, &forecast));
    assert_ok(tx_model_create(engine, &model));
    assert_ok(tx_trainer_create(model, config, options, &trainer));
    assert_ok(tx_model_memory(model, &planned));
    assert_ok(tx_model_init(model, 3));
    run(trainer, options->write);
    assert_ok(tx_engine_memory(engine, &counted));
    assert_int_equal(tx_memory_total(&counted), tx_memory_total(&planned));
    for (int k = 0; k < TX_MEMORY_COUNT; k++)
        if (k != TX_MEMORY_SCRATCH) /* only the kernels of a device know it */
            assert_int_equal(forecast.memory.bytes[k], planned.bytes[k]);
    tx_trainer_free(trainer);
    tx_model_free(model);
    return planned;
}

static const struct {
    tx_dtype autocast, stored;
} types[] = {{TX_F32, TX_F32}, {TX_BF16, TX_F32}, {TX_BF16, TX_BF16}};
static const int64_t beams[] = {0, 1, 4};

/* Compares evaluations without texts, with greedy ones, and with beams. Caches are in the type of the weights. */
static void of_types(tx_engine *engine, const tx_config *config, size_t m, size_t type)
{
    tx_memory without = {0};
    tx_own_task pairs;
    tx_seq2seq_sized(&pairs, TARGET, true);
    for (size_t b = 0; b < sizeof beams / sizeof beams[0]; b++) {
        tx_generation write = tx_generation_defaults(-1);
        write.max_new_tokens = NEW;
        write.num_beams = beams[b];
        const tx_trainer_options trainer = {.size = sizeof trainer,
                                            .task = m == 0 ? &pairs.task : &tx_instruction,
                                            .batch = ROWS,
                                            .block = SOURCE,
                                            .accumulation = 1,
                                            .eval_batch = ROWS,
                                            .autocast = types[type].autocast,
                                            .eval_autocast = types[type].autocast,
                                            .stored = types[type].stored,
                                            .optimizer = {.size = sizeof trainer.optimizer,
                                                          .kind = TX_ADAMW,
                                                          .beta1 = 0.9f,
                                                          .beta2 = 0.999f,
                                                          .eps = 1e-8f},
                                            .write = beams[b] ? &write : NULL};
        const tx_memory planned = compare(engine, config, &trainer);
        without = b ? without : planned;
        const int64_t count = models[m].caches * LAYERS, size = (int64_t)tx_dtype_size(types[type].stored),
                      more = planned.bytes[TX_MEMORY_CACHE] - without.bytes[TX_MEMORY_CACHE],
                      by_hand = count * ROWS * beams[b] * CONTEXT * WIDTH * size;
        print_message("%s, %s in %s, %d beams: %lld bytes, %lld of caches\n", models[m].name,
                      tx_dtype_name(types[type].autocast), tx_dtype_name(types[type].stored), (int)beams[b],
                      (long long)tx_memory_total(&planned), (long long)more);
        assert_in_range(more, by_hand, by_hand + count * TX_ALIGNMENT);
        assert_true(!b || tx_memory_total(&planned) >= tx_memory_total(&without) + by_hand);
    }
}

static void memory(void **state)
{
    const tx_engine_options options = {.size = sizeof options, .device = device, .threads = 1};
    char *folder = make_scratch(), *path = tx_path_join(folder, "config.json");
    tx_engine *engine = NULL;
    (void)state;
    assert_ok(tx_engine_create(&options, &engine));
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        tx_config *config = NULL;
        assert_ok(tx_file_write(path, models[m].config, strlen(models[m].config)));
        assert_ok(tx_config_find(path, &config));
        for (size_t type = 0; type < sizeof types / sizeof types[0]; type++)
            of_types(engine, config, m, type);
        tx_config_free(config);
    }
    tx_engine_free(engine);
    remove_scratch(folder);
    free(path);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory)};
    device = tx_test_device(argc > 1 ? argv[1] : "cpu");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
