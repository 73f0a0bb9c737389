/* SPDX-License-Identifier: Apache-2.0
 * Forecasts the memory and work of training: makes plans without allocating anything and discards them (tx_train.h). */
#include "api/base/memory_left.h"
#include "api/base/needs.h"
#include "models/arch/find.h"
#include "models/job/settings.h"
#include "models/lora/lora.h"
#include "models/names.h"
#include "models/split/pretend.h"
#include "models/task/causal_lm.h"
#include "models/task/seq2seq.h"
#include "models/train/writer.h"
#include "models/tx_train.h"

#include <stdlib.h>

struct tx_forecaster {
    char *model; /* that the options name */
    tx_engine *engine;
    tx_config *config;
    tx_comm *comm; /* pretended ranks; NULL for one rank */
};

/* Adds an adapter to the model, as txtrain's options do. */
static tx_status adapt(const tx_forecaster_options *o, tx_config *config)
{
    const char *targets = o->lora_target_modules ? o->lora_target_modules : config->architecture->lora_targets;
    const tx_lora lora = {.rank = o->lora_r, .alpha = 1, .targets = (char *)(uintptr_t)targets};
    if (!targets)
        return tx_fail(TX_INVALID, "--lora_target_modules is missing: name the modules of a %s to adapt",
                       config->architecture->type);
    tx_status status = tx_lora_check(&lora, config);
    if (o->load_in_4bit)
        tx_config_pack(config, o->double_quant ? TX_NF4_DOUBLE : TX_NF4);
    if (o->load_in_8bit)
        tx_config_pack(config, TX_Q8);
    return status ? status : tx_lora_copy(&lora, &config->lora);
}

static tx_status make(const tx_forecaster_options *o, tx_forecaster *f)
{
    const tx_engine_options engine = {.size = sizeof engine, .device = o->device};
    TX_TRY(tx_config_find(o->model, &f->config));
    TX_TRY(tx_copy_text(o->model, &f->model));
    if (o->lora_r)
        TX_TRY(adapt(o, f->config));
    TX_TRY(tx_engine_create(&engine, &f->engine));
    return o->ranks > 1 ? tx_fake_comm_open(o->ranks, o->ranks, &f->comm) : TX_OK;
}

tx_status tx_forecaster_open(const tx_forecaster_options *options, tx_forecaster **forecaster)
{
    TX_NEEDS(options && options->model && options->lora_r >= 0 && options->ranks >= 0 && forecaster, TX_INVALID);
    if (options->size != sizeof *options)
        return tx_fail(TX_INVALID, "tx_forecaster_open: the options' size field is %zu, expected %zu", options->size,
                       sizeof *options);
    tx_forecaster *created = calloc(1, sizeof *created);
    tx_status status = created ? make(options, created) : tx_fail(TX_MEMORY, "no memory for a forecast");
    return TX_RETURN(status, created, forecaster, tx_forecaster_free);
}

void tx_forecaster_free(tx_forecaster *f)
{
    if (!f)
        return;
    tx_fake_comm_close(f->comm);
    tx_engine_free(f->engine);
    tx_config_free(f->config);
    free(f->model);
    free(f);
}

int64_t tx_forecaster_params(const tx_forecaster *f)
{
    TX_NEEDS(f, 0);
    return tx_arch_param_count(f->config);
}

int64_t tx_forecaster_positions(const tx_forecaster *f)
{
    TX_NEEDS(f, 0);
    return f->config->positions;
}

bool tx_forecaster_reads_sources(const tx_forecaster *f)
{
    TX_NEEDS(f, false);
    return f->config->architecture->head == TX_HEAD_SEQ2SEQ;
}

const tx_device_info *tx_forecaster_device(const tx_forecaster *f)
{
    TX_NEEDS(f, NULL);
    return tx_engine_device(f->engine);
}

int64_t tx_forecaster_memory(const tx_forecaster *f)
{
    TX_NEEDS(f, 0);
    char owner[120];
    const tx_device_info *device = tx_engine_device(f->engine);
    if (device->type != TX_DEVICE_CPU)
        return device->memory;
    const int64_t left = tx_memory_left("", owner, sizeof owner);
    return left < INT64_MAX ? left : 0;
}

tx_status tx_forecaster_plan(const tx_forecaster *f, const tx_forecast_options *o, tx_forecast *forecast)
{
    TX_NEEDS(f && o && forecast, TX_INVALID);
    if (o->size != sizeof *o)
        return tx_fail(TX_INVALID, "tx_forecaster_plan: the options' size field is %zu, expected %zu", o->size,
                       sizeof *o);
    const int64_t target = tx_job_defaults.max_target_length;
    tx_own_task pairs;
    tx_generation write;
    tx_seq2seq_sized(&pairs, target, o->writes);
    if (o->writes)
        TX_TRY(tx_writer_settings(f->config, tx_is_folder(f->model) ? f->model : NULL, o->text ? o->text : target,
                                  o->beams, NULL, &write));
    tx_optimizer_options optimizer = tx_job_usual_optimizer(o->kind);
    optimizer.offload = o->offload;
    optimizer.offload_folder = "";
    const tx_trainer_options trainer = {
        .size = sizeof trainer,
        .task = tx_forecaster_reads_sources(f) ? &pairs.task : &tx_causal_lm,
        .batch = o->rows,
        .block = o->block,
        .accumulation = 1,
        .comm = f->comm,
        .parallel = {.size = sizeof trainer.parallel,
                     .zero_stage = o->zero_stage,
                     .whole = tx_optimizer_is_whole(o->kind)},
        .eval_batch = o->eval_rows || !o->writes ? o->eval_rows : tx_job_defaults.eval_batch,
        .stored = o->stored,
        .autocast = o->autocast,
        .eval_autocast = o->autocast,
        .checkpointing = {sizeof(tx_checkpointing), 0, o->whole, o->cheap},
        .offload_params = o->offload_params,
        .optimizer = optimizer,
        .offload_folder = "",
        .write = o->writes ? &write : NULL,
    };
    if (f->config->lora)
        f->config->lora->stored = o->autocast;
    return tx_trainer_forecast(f->engine, f->config, &trainer, forecast);
}
