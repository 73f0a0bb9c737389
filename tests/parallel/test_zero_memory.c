/* SPDX-License-Identifier: Apache-2.0
 *
 * What the backend's allocation calls hold on each rank is what ZeRO promises (Rajbhandari et al., 2020, section 5),
 * for GPT-2 124M and AdamW in fp32: 4 bytes a parameter of weights, 4 of gradients (stage 2: 4/N), 8/N of moments
 * (stage 0: 8); and it is what the planner said.
 *
 *   test_zero_memory STAGE [DEVICE] */
#include "api/base/check.h"
#include "models/arch/arch.h"
#include "models/task/causal_lm.h"
#include "models/train/trainer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static tx_status make(tx_engine *engine, tx_comm *comm, const tx_config *config, int32_t stage, tx_model **model,
                      tx_trainer **trainer)
{
    tx_trainer_options options = {
        .size = sizeof options,
        .task = &tx_causal_lm,
        .batch = 1,
        .block = 8,
        .accumulation = 1,
        .comm = comm,
        .parallel = {.size = sizeof options.parallel, .zero_stage = stage},
        .optimizer = {.size = sizeof options.optimizer, .kind = TX_ADAMW, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f},
    };
    TX_CHECK(tx_model_create(engine, model));
    TX_CHECK(tx_trainer_create(*model, config, &options, trainer));
    return tx_model_allocate(*model);
}

/* Within 2 percent of the formula, and to the byte what was planned. */
static int judge(const tx_memory *planned, const tx_memory *counted, double params, int32_t stage, int32_t ranks)
{
    const double n = ranks;
    const struct {
        tx_memory_kind kind;
        double bytes;
    } formula[] = {{TX_MEMORY_WEIGHTS, 4.0 * params},
                   {TX_MEMORY_GRADIENTS, stage == 2 ? 4.0 * params / n : 4.0 * params},
                   {TX_MEMORY_OPTIMIZER, stage > 0 ? 8.0 * params / n : 8.0 * params}};
    int failed = 0;
    for (size_t i = 0; i < sizeof formula / sizeof formula[0]; i++) {
        double held = (double)counted->bytes[formula[i].kind], off = held / formula[i].bytes - 1.0;
        bool good = off <= 0.02 && off >= -0.02 && counted->bytes[formula[i].kind] == planned->bytes[formula[i].kind];
        printf("%-18s %12.0f bytes, %.3f a parameter, formula %.3f, %+.2f %%%s\n", tx_memory_name(formula[i].kind),
               held, held / params, formula[i].bytes / params, 100.0 * off, good ? "" : "  WRONG");
        failed |= !good;
    }
    static const tx_memory_kind others[] = {TX_MEMORY_COPIES, TX_MEMORY_SCRATCH, TX_MEMORY_EXCHANGE, TX_MEMORY_CACHE,
                                            TX_MEMORY_FUNCTIONALITY};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const int64_t held = counted->bytes[others[i]], was_planned = planned->bytes[others[i]];
        printf("%-18s %12" PRId64 " bytes, planned %" PRId64 "%s\n", tx_memory_name(others[i]), held, was_planned,
               held == was_planned ? "" : "  WRONG");
        failed |= held != was_planned;
    }
    return failed;
}

int main(int argc, char **argv)
{
    const int32_t stage = argc > 1 ? (int32_t)strtol(argv[1], NULL, 10) : 0;
    const tx_engine_options options = {.size = sizeof options, .device = argc > 2 ? argv[2] : "cpu", .threads = 1};
    tx_comm *comm = NULL;
    tx_engine *engine = NULL;
    tx_model *model = NULL;
    tx_trainer *trainer = NULL;
    tx_config *config = NULL;
    tx_memory planned, counted;
    if (tx_comm_open(&argc, &argv, &comm) || tx_config_preset("gpt2", &config) || tx_engine_create(&options, &engine) ||
        make(engine, comm, config, stage, &model, &trainer) || tx_model_memory(model, &planned) ||
        tx_engine_memory(engine, &counted)) {
        fprintf(stderr, "test_zero_memory: %s\n", tx_error());
        return 1;
    }
    int failed = judge(&planned, &counted, (double)tx_arch_param_count(config), stage, tx_comm_size_of(comm));
    tx_trainer_free(trainer);
    tx_model_free(model);
    tx_engine_free(engine);
    tx_comm_close(comm);
    tx_config_free(config);
    return failed;
}
