/* SPDX-License-Identifier: Apache-2.0
 * Evaluation: the same loss for any batch size. The watch is informed of every batch, so that a long evaluation is not
 * reported as stuck. */
#include "tests/scratch.h"
#include "tests/train/small_gpt2.h"

enum { BLOCKS = 11 };

static int told;
static tx_watchdog *const watch = (tx_watchdog *)&told; /* only handed on */

/* In the place of the watch's. */
void __wrap_tx_watchdog_alive(tx_watchdog *w, const char *detail);
void __wrap_tx_watchdog_alive(tx_watchdog *w, const char *detail)
{
    assert_ptr_equal(w, watch);
    told++;
}

void __wrap_tx_watchdog_begin(tx_watchdog *w, tx_watchdog_phase phase);
void __wrap_tx_watchdog_begin(tx_watchdog *w, tx_watchdog_phase phase)
{
    assert_ptr_equal(w, watch);
    assert_int_equal(phase, TX_WATCHDOG_EVALUATING);
}

/* Evaluates a fresh model, the same each time, by batches of so many rows. */
static tx_run_evaluation evaluate(tx_engine *engine, const tx_dataset *data, int64_t rows)
{
    tx_config *config = NULL;
    tx_model *model = NULL;
    tx_trainer *trainer = NULL;
    tx_run_evaluation e = {0};
    const tx_samples samples = tx_causal_lm_samples(data);
    assert_ok(small_config(&config));
    tx_trainer_options options = small_options();
    options.eval_batch = rows;
    assert_ok(tx_model_create(engine, &model));
    assert_ok(tx_trainer_create(model, config, &options, &trainer));
    assert_ok(tx_model_init(model, 1));
    told = 0;
    assert_ok(tx_run_evaluate(trainer, &samples, watch, &e));
    tx_trainer_free(trainer);
    tx_model_free(model);
    tx_config_free(config);
    return e;
}

static void every_batch_is_told(void **state)
{
    tx_engine *engine = NULL;
    tx_engine_options options = {.size = sizeof options};
    tx_dataset *data = NULL;
    assert_ok(small_data(BLOCKS, &data));
    const int64_t blocks = tx_dataset_blocks(data);
    assert_true(blocks >= BLOCKS - 1);
    assert_ok(tx_engine_create(&options, &engine));
    const tx_run_evaluation whole = evaluate(engine, data, blocks);
    assert_int_equal(told, 1);
    assert_int_equal(whole.samples, blocks);
    assert_string_equal(whole.metrics[0].name, "eval_loss");
    assert_string_equal(whole.metrics[1].name, "perplexity");
    assert_true(fabs(whole.value[0] - log(257.0)) < 0.5);
    for (int64_t rows = 1; rows <= 3; rows++) {
        const tx_run_evaluation e = evaluate(engine, data, rows);
        assert_int_equal(told, (blocks + rows - 1) / rows);
        assert_int_equal(e.batches, told);
        assert_true(fabs(e.value[0] - whole.value[0]) < 1e-5);
        assert_true(fabs(e.value[1] - exp(e.value[0])) < 1e-6);
    }
    tx_dataset_free(data);
    tx_engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_batch_is_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
