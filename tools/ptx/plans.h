/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles the plans of training and of generation on an engine that records programs, and frees them. */
#ifndef TX_TOOLS_PTX_PLANS_H
#define TX_TOOLS_PTX_PLANS_H

#include "models/generate/slots.h"
#include "models/train/trainer.h"

static inline tx_status tx_plan_training(tx_engine *engine, const tx_config *config, const tx_trainer_options *options)
{
    tx_model *model = NULL;
    tx_trainer *trainer = NULL;
    tx_status status = tx_model_create(engine, &model);
    TX_THEN(status, tx_trainer_create(model, config, options, &trainer));
    tx_trainer_free(trainer);
    tx_model_free(model);
    return status;
}

static inline tx_status tx_plan_generation(tx_engine *engine, const tx_config *config)
{
    tx_model *model = NULL;
    tx_slots *slots = NULL;
    tx_status status = tx_model_create(engine, &model);
    TX_THEN(status,
            tx_slots_create(model, config, &(tx_slots_options){.count = 1, .context = 1024, .prompt = 512, .beams = 1},
                            &slots));
    tx_slots_free(slots);
    tx_model_free(model);
    return status;
}

#endif
