/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists the programs that TX builds on NVIDIA cards for the models of models.def, without a driver, and writes their
 * texts to a folder (tx_record_write). Lines repeat if cards share programs.
 */
#include "models/arch/arch.h"
#include "models/lora/lora.h"
#include "models/task/causal_lm.h"
#include "models/task/sequence.h"
#include "tools/ptx/plans.h"
#include "tools/ptx/record.h"
#include "tx_json.h"

#include <string.h>

static const struct model {
    const char *name, *lora;
    tx_dtype packed;
    int64_t rows, block;
    const char *config;
} models[] = {
#define MODEL(...) {__VA_ARGS__},
#include "tools/ptx/models.def"
};

static tx_status config_of(const struct model *m, tx_config **config)
{
    char text[640];
    tx_json *json = NULL;
    const tx_lora lora = {.rank = 16, .alpha = 16, .targets = (char *)(uintptr_t)m->lora};
    snprintf(text, sizeof text, "{%s}", m->config);
    for (char *at = text; (at = strchr(at, '\'')) != NULL;)
        *at = '"';
    TX_TRY(tx_json_parse(text, strlen(text), m->name, &json));
    TX_TRY(tx_config_of_json(json, config));
    (*config)->packed = m->packed;
    return m->lora ? tx_lora_copy(&lora, &(*config)->lora) : TX_OK;
}

/* Makes the plans of training and of evaluation. */
static tx_status train(tx_engine *engine, tx_config *config, const struct model *m, tx_dtype type)
{
    const bool classifies = config->architecture->head == TX_HEAD_SEQUENCE_CLASSIFICATION;
    const tx_trainer_options options = {
        .size = sizeof options,
        .task = classifies ? &tx_sequence_classification.task : &tx_causal_lm,
        .batch = m->rows,
        .block = m->block,
        .accumulation = 2,
        .all_rows = m->rows,
        .parallel = {.size = sizeof options.parallel},
        .eval_batch = 8,
        .lengths = classifies ? TX_LENGTHS_MAX : 0,
        .autocast = type,
        .eval_autocast = type,
        .optimizer = {.size = sizeof options.optimizer, .kind = TX_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f}};
    if (config->lora)
        config->lora->stored = type;
    return tx_plan_training(engine, config, &options);
}

static tx_status collect(tx_engine *engine, const struct model *m)
{
    tx_config *config = NULL;
    tx_status status = config_of(m, &config);
    TX_THEN(status, train(engine, config, m, TX_F32));
    TX_THEN(status, train(engine, config, m, TX_BF16));
    TX_THEN(status, train(engine, config, m, TX_F16));
    tx_record_tf32(engine, true);
    TX_THEN(status, train(engine, config, m, TX_F32));
    tx_record_tf32(engine, false);
    if (!status && config->architecture->head == TX_HEAD_CAUSAL_LM && !config->lora)
        status = tx_plan_generation(engine, config);
    tx_config_free(config);
    return status ? tx_fail_in(status, "%s", m->name) : TX_OK;
}

static tx_status collect_all(const char *folder, FILE *list)
{
    tx_engine engine;
    tx_status status;
    for (int card = 0; (status = tx_record_open(card, &engine)) != TX_NOT_FOUND; card++) {
        for (size_t m = 0; m < sizeof models / sizeof models[0]; m++)
            TX_THEN(status, collect(&engine, &models[m]));
        TX_THEN(status, tx_record_write(&engine, folder, list));
        tx_record_close(&engine);
        TX_TRY(status);
    }
    return TX_OK;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return fprintf(stderr, "usage: tx_ptx FOLDER > LIST\n"), 2;
    if (!collect_all(argv[1], stdout))
        return 0;
    fprintf(stderr, "tx_ptx: %s\n", tx_error());
    return 1;
}
