/* SPDX-License-Identifier: Apache-2.0
 * The model's list of buckets is that of the engine, which makes one where there are several ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "models/task/causal_lm.h"
#include "models/train/trainer.h"
#include "tests/scratch.h"
#include "tools/bench/scale.h"

static int by_size(const void *left, const void *right)
{
    const int64_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static void check(tx_comm *comm, const tx_config *config, int64_t cap)
{
    const tx_engine_options on = {.size = sizeof on, .device = "cpu", .threads = 1};
    const tx_parallel_options parallel = {.size = sizeof parallel, .bucket_bytes = cap};
    const tx_trainer_options options = {
        .size = sizeof options,
        .task = &tx_causal_lm,
        .batch = 1,
        .block = 16,
        .accumulation = 1,
        .optimizer = {sizeof options.optimizer, TX_ADAMW, 0.9f, 0.999f, 1e-8f, .weight_decay = 0.0f},
    };
    tx_engine *engine;
    tx_model *model;
    tx_trainer *trainer;
    assert_ok(tx_engine_create(&on, &engine));
    assert_ok(tx_model_create(engine, &model));
    assert_ok(tx_model_parallel(model, comm, &parallel));
    assert_ok(tx_trainer_create(model, config, &options, &trainer));
    tx_scale_layer layer[64];
    tx_scale_schedule s;
    const tx_scale_split split = {.cap = cap, .accumulation = 1};
    assert_true(tx_scale_layers(config) <= 64);
    tx_scale_divide(config, 16, 1.0, layer);
    assert_ok(tx_scale_schedule_make(config, layer, &split, &s));
    assert_int_equal(s.count, tx_model_bucket_count(model));
    /* In what order a layer's own gradients get ready is the engine's knowledge alone: sizes in order of size. */
    int64_t ours[256], engines[256];
    assert_true(s.count <= 256);
    for (int32_t i = 0; i < s.count; i++) {
        ours[i] = s.buckets[i].bytes;
        engines[i] = tx_model_bucket_elements(model, i) * (int64_t)sizeof(float);
    }
    qsort(ours, (size_t)s.count, sizeof *ours, by_size);
    qsort(engines, (size_t)s.count, sizeof *engines, by_size);
    assert_memory_equal(ours, engines, (size_t)s.count * sizeof *ours);
    free(s.buckets);
    tx_trainer_free(trainer);
    tx_model_free(model);
    tx_engine_free(engine);
}

static void test_buckets(void **state)
{
    tx_comm *comm = *state;
    tx_config *config = NULL;
    assert_int_equal(tx_comm_size_of(comm), 2);
    assert_ok(tx_config_preset("gpt2", &config));
    const int64_t caps[] = {0, 1 << 10, 1 << 20, 25 << 20, INT64_C(1) << 40};
    for (size_t i = 0; i < sizeof caps / sizeof caps[0]; i++)
        check(comm, config, caps[i]);
    tx_config_free(config);
}

static int open_ranks(void **state)
{
    return tx_comm_open(NULL, NULL, (tx_comm **)state);
}

static int close_ranks(void **state)
{
    tx_comm_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_buckets)};
    return cmocka_run_group_tests(tests, open_ranks, close_ranks);
}
