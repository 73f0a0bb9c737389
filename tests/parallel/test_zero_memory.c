/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that the backend allocates on each rank is that of ZeRO (Rajbhandari et al., 2020, section 5), for GPT-2
 * 124M in fp32. A parameter takes 4 bytes of weights (stage 3: 4/N) and 4 of gradients (stages 2 and 3: 4/N). AdamW's
 * moments take 8/N (stage 0: 8), and other optimizers keep their own states. Mixed precision adds 2 of copies (stage 3:
 * 2/N). The planner predicts the same. For an adapter this holds for the trained parameters; each rank has the whole
 * base, or 1/N in stage 3.
 *
 *   test_zero_memory STAGE [DEVICE [OPTIMIZER [BASE]]]      BASE: BF16, NF4, NF4_DOUBLE */
#include "models/arch/arch.h"
#include "models/lora/lora.h"
#include "models/task/causal_lm.h"
#include "models/train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The optimizers, and the bytes of their states for each parameter of GPT-2 124M. With adamw_8bit, 85.0 million
 * parameters take 2 bytes and 8 a block of 256, and the rest (embeddings and small ones) 8 bytes. With muon, 84.9
 * million take 4 bytes, and the rest 8. With apollo the 110,592 channels of these take 8 bytes times the rank. */
static const struct {
    const char *name;
    tx_optimizer_options options;
    double bytes;
    tx_dtype stored, read; /* weights and gradients, and what products read of them */
} optimizers[] = {
    {"adamw", {.kind = TX_ADAMW}, 8.0, TX_F32, TX_F32},
    {"sgd", {.kind = TX_SGD}, 0.0, TX_F32, TX_F32},
    {"momentum", {.kind = TX_SGD, .momentum = 0.9f}, 4.0, TX_F32, TX_F32},
    {"lion", {.kind = TX_LION}, 4.0, TX_F32, TX_F32},
    {"adafactor", {.kind = TX_ADAFACTOR}, 0.0102, TX_F32, TX_F32},
    {"adamw_8bit", {.kind = TX_ADAMW_8BIT}, 3.926, TX_F32, TX_F32},
    {"anyprecision",
     {.kind = TX_ADAMW_ANYPRECISION, .momentum_dtype = TX_BF16, .variance_dtype = TX_BF16},
     4.0,
     TX_F32,
     TX_F32},
    {"kahan", {.kind = TX_ADAMW_ANYPRECISION, .kahan = true, .compensation_dtype = TX_BF16}, 10.0, TX_F32, TX_F32},
    {"muon", {.kind = TX_MUON, .momentum = 0.95f}, 5.27, TX_F32, TX_F32},
    {"lion_8bit", {.kind = TX_LION_8BIT}, 1.957, TX_F32, TX_F32},
    {"ademamix", {.kind = TX_ADEMAMIX}, 12.0, TX_F32, TX_F32},
    {"free_adamw", {.kind = TX_SCHEDULE_FREE_ADAMW}, 12.0, TX_F32, TX_F32},
    {"free_sgd", {.kind = TX_SCHEDULE_FREE_SGD}, 8.0, TX_F32, TX_F32},
    {"stable_adamw", {.kind = TX_STABLE_ADAMW}, 8.0, TX_F32, TX_F32},
    {"apollo", {.kind = TX_APOLLO, .rank = 128, .update_proj_gap = 200, .scale = 1}, 3.450, TX_F32, TX_F32},
    {"apollo_mini",
     {.kind = TX_APOLLO, .rank = 1, .update_proj_gap = 200, .scale = 128, .scale_by_tensor = true},
     2.547,
     TX_F32,
     TX_F32},
    {"pure_bf16", {.kind = TX_ADAMW}, 4.0, TX_BF16, TX_BF16},
    {"mixed", {.kind = TX_ADAMW}, 8.0, TX_F32, TX_BF16},
};
enum { OPTIMIZERS = sizeof optimizers / sizeof optimizers[0] };

static tx_status make(tx_engine *engine, tx_comm *comm, const tx_config *config, int32_t stage, int32_t optimizer,
                      tx_model **model, tx_trainer **trainer)
{
    tx_trainer_options options = {
        .size = sizeof options,
        .task = &tx_causal_lm,
        .batch = 1,
        .block = 8,
        .accumulation = 1,
        .comm = comm,
        .parallel = {.size = sizeof options.parallel,
                     .zero_stage = stage,
                     .whole = tx_optimizer_is_whole(optimizers[optimizer].options.kind)},
        .stored = optimizers[optimizer].stored,
        .autocast = optimizers[optimizer].read,
        .optimizer = optimizers[optimizer].options,
    };
    options.optimizer.size = sizeof options.optimizer;
    options.optimizer.beta1 = 0.9f;
    options.optimizer.beta2 = 0.999f;
    options.optimizer.eps = 1e-8f;
    TX_TRY(tx_model_create(engine, model));
    TX_TRY(tx_trainer_create(*model, config, &options, trainer));
    return tx_model_allocate(*model);
}

/* An adapter of the model's attention; of no base there is none. */
static tx_status adapt(tx_config *config, const char *base)
{
    const tx_lora lora = {.rank = 8, .alpha = 8, .stored = TX_BF16, .targets = (char *)(uintptr_t) "c_attn"};
    if (!base)
        return TX_OK;
    for (int d = 0; d < TX_DTYPE_COUNT; d++)
        if (tx_dtype_packed((tx_dtype)d) && strcmp(tx_dtype_name((tx_dtype)d), base) == 0)
            config->packed = (tx_dtype)d;
    if (config->packed == TX_F32 && strcmp(base, "BF16") != 0)
        return tx_fail(TX_INVALID, "there is no base in %s", base);
    return tx_lora_copy(&lora, &config->lora);
}

/* Parameters that are trained, and bytes of those that are frozen. */
static tx_status count(const tx_model *model, double *trained, double *frozen)
{
    *trained = *frozen = 0.0;
    for (int32_t i = 0; i < tx_model_param_count(model); i++) {
        const char *name;
        const tx_param_spec *spec;
        TX_TRY(tx_model_param(model, i, &name, &spec));
        const int64_t elements = tx_shape_count(&spec->shape);
        *trained += spec->frozen ? 0.0 : (double)elements;
        *frozen += spec->frozen ? (double)tx_dtype_bytes(spec->dtype, elements) : 0.0;
    }
    return TX_OK;
}

/* The counted memory is within 2 percent of the formula, and equal to the plan to the byte. */
static int judge(const tx_memory *planned, const tx_memory *counted, double params, double frozen, int32_t stage,
                 int32_t ranks, double weight, double copy, double state)
{
    const double n = ranks;
    const struct {
        tx_memory_kind kind;
        double bytes;
    } formula[] = {{TX_MEMORY_WEIGHTS, (weight * params + frozen) / (stage == 3 ? n : 1.0)},
                   {TX_MEMORY_COPIES, stage == 3 ? copy * params / n : copy * params},
                   {TX_MEMORY_GRADIENTS, stage >= 2 ? weight * params / n : weight * params},
                   {TX_MEMORY_OPTIMIZER, stage > 0 ? state * params / n : state * params}};
    int failed = 0;
    for (size_t i = 0; i < sizeof formula / sizeof formula[0]; i++) {
        double held = (double)counted->bytes[formula[i].kind],
               off = (held - formula[i].bytes) / fmax(formula[i].bytes, 1.0);
        bool good = off <= 0.02 && off >= -0.02 && counted->bytes[formula[i].kind] == planned->bytes[formula[i].kind];
        printf("%-18s %12.0f bytes, %.3f a parameter, formula %.3f, %+.2f %%%s\n", tx_memory_name(formula[i].kind),
               held, held / params, formula[i].bytes / params, 100.0 * off, good ? "" : "  WRONG");
        failed |= !good;
    }
    static const tx_memory_kind others[] = {TX_MEMORY_SCRATCH, TX_MEMORY_EXCHANGE, TX_MEMORY_CACHE,
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
    int32_t optimizer = 0;
    while (argc > 3 && optimizer < OPTIMIZERS && strcmp(argv[3], optimizers[optimizer].name) != 0)
        optimizer++;
    if (optimizer == OPTIMIZERS)
        return fprintf(stderr, "test_zero_memory: there is no optimizer %s\n", argv[3]), 2;
    const int32_t stage = argc > 1 ? (int32_t)strtol(argv[1], NULL, 10) : 0;
    const tx_engine_options options = {.size = sizeof options, .device = argc > 2 ? argv[2] : "cpu", .threads = 1};
    tx_comm *comm = NULL;
    tx_engine *engine = NULL;
    tx_model *model = NULL;
    tx_trainer *trainer = NULL;
    tx_config *config = NULL;
    tx_memory planned, counted;
    double trained, frozen;
    if (tx_comm_open(&argc, &argv, &comm) || tx_config_preset("gpt2", &config) ||
        adapt(config, argc > 4 ? argv[4] : NULL) || tx_engine_create(&options, &engine) ||
        make(engine, comm, config, stage, optimizer, &model, &trainer) || tx_model_memory(model, &planned) ||
        tx_engine_memory(engine, &counted) || count(model, &trained, &frozen)) {
        fprintf(stderr, "test_zero_memory: %s\n", tx_error());
        return 1;
    }
    int failed =
        judge(&planned, &counted, trained, frozen, stage, tx_comm_size_of(comm),
              (double)tx_dtype_size(optimizers[optimizer].stored),
              optimizers[optimizer].read != optimizers[optimizer].stored ? 2.0 : 0.0, optimizers[optimizer].bytes);
    tx_trainer_free(trainer);
    tx_model_free(model);
    tx_engine_free(engine);
    tx_comm_close(comm);
    tx_config_free(config);
    return failed;
}
