/* SPDX-License-Identifier: Apache-2.0
 * The TX side of torch_curve.py, torch_optimizers.py and torch_residual.py: trains a model folder on given tokens and
 * labels and prints loss and gradient norm of every step.
 *
 *     curve FOLDER DATA STEPS BATCH BLOCK ACCUMULATION RATE DECAY DEVICE SMOOTHING [OPTIM OPTIM_ARGS | PRECISION]
 *
 * DATA holds, for every step, int32 tokens [ACCUMULATION * BATCH, BLOCK] and then labels of the same shape, shifted.
 * The rate falls linearly from RATE. PRECISION is fp32, bf16, or residual: bf16 with the residual stream in bf16. */
#include "models/arch/arch.h"
#include "models/job/settings.h"
#include "models/options/option.h"
#include "models/task/causal_lm.h"
#include "models/train/trainer.h"
#include "tests/train/data.h"

#include <stdlib.h>
#include <string.h>

static int fail(const char *what)
{
    fprintf(stderr, "curve: %s: %s\n", what, tx_error());
    return 1;
}

static int train(tx_trainer *trainer, FILE *data, long steps, double rate)
{
    const tx_trainer_options *o = tx_trainer_options_of(trainer);
    const size_t count = (size_t)(o->accumulation * o->batch * o->block);
    int32_t *tokens = malloc(2 * count * sizeof *tokens), *labels = tokens + count;
    int result = tokens ? 0 : fail("memory");
    const tx_batch batch = {.rows = o->accumulation * o->batch, .field = {tokens, labels}};
    for (long step = 0; step < steps && !result; step++) {
        tx_results results;
        if (fread(tokens, sizeof *tokens, 2 * count, data) != 2 * count)
            result = fail("the data end early");
        else if (tx_trainer_step(trainer, &batch, tx_batch_labels(o->task, o->block, &batch),
                                 rate * (double)(steps - step) / (double)steps) ||
                 tx_trainer_results(trainer, &results))
            result = fail("step");
        else
            printf("%.9g %.9g\n", (double)results.value[TX_RESULT_LOSS], (double)results.value[TX_RESULT_GRAD_NORM]);
    }
    free(tokens);
    return result;
}

int main(int argc, char **argv)
{
    if (argc < 11 || argc > 13)
        return fail("usage: curve FOLDER DATA STEPS BATCH BLOCK ACCUMULATION RATE DECAY DEVICE SMOOTHING [OPTIM "
                    "OPTIM_ARGS | PRECISION]");
    const char *precision = argc == 12 ? argv[11] : "fp32";
    int32_t index;
    if (tx_device_find(argv[9], &index))
        return TX_TEST_SKIPPED;
    char path[1024];
    snprintf(path, sizeof path, "%s/config.json", argv[1]);
    long steps = atol(argv[3]), batch = atol(argv[4]), block = atol(argv[5]), accumulation = atol(argv[6]);
    tx_config *config = NULL;
    tx_engine *engine = NULL;
    tx_model *model = NULL;
    tx_trainer *trainer = NULL;
    tx_engine_options device = {.size = sizeof device, .device = argv[9], .threads = 0};
    tx_job_settings set = tx_job_defaults;
    tx_trainer_options options = {
        .size = sizeof options,
        .set = &set,
        .task = &tx_causal_lm,
        .batch = batch,
        .block = block,
        .accumulation = accumulation,
        .autocast = strcmp(precision, "fp32") == 0 ? TX_F32 : TX_BF16,
        .residual = strcmp(precision, "residual") == 0 ? TX_BF16 : TX_F32,
    };
    tx_option_values values = {.table = tx_job_table, .values = &set};
    if (tx_option_set(&values, "weight_decay", argv[8]) || tx_option_set(&values, "label_smoothing_factor", argv[10]) ||
        (argc > 12 && tx_option_set(&values, "optim", argv[11])) ||
        (argc > 12 && *argv[12] && tx_option_set(&values, "optim_args", argv[12])) ||
        tx_job_optimizer(&set, &options.optimizer))
        return fail("the optimizer");
    FILE *data = fopen(argv[2], "rb");
    if (!data || tx_config_read(path, &config))
        return fail(argv[2]);
    if (tx_engine_create(&device, &engine) || tx_model_create(engine, &model) ||
        tx_trainer_create(model, config, &options, &trainer) || tx_arch_load(model, config, argv[1], NULL))
        return fail(argv[1]);
    int result = train(trainer, data, steps, strtod(argv[7], NULL));
    fclose(data);
    tx_trainer_free(trainer);
    tx_model_free(model);
    tx_engine_free(engine);
    tx_config_free(config);
    tx_option_values_free(&values);
    return result;
}
