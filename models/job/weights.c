/* SPDX-License-Identifier: Apache-2.0
 * Loads the initial weights of a run, and writes the files of a model folder. */
#include "models/job/results.h"

#include "models/files/folder.h"
#include "models/job/inputs.h"
#include "models/lora/lora.h"
#include "models/reward/reward.h"

#include <inttypes.h>
#include <string.h>

int64_t tx_job_trained_count(const tx_job *j)
{
    int64_t count = 0;
    const char *name;
    const tx_param_spec *spec;
    const tx_lora *lora = j->inputs.config->lora;
    tx_weights_piece piece[TX_MAX_SECTIONS];
    for (int32_t i = 0; i < tx_model_param_count(j->model) && !tx_model_param(j->model, i, &name, &spec); i++) {
        const int32_t pieces = spec->frozen || !lora ? 0 : tx_weights_pieces(name, spec, i, TX_MAX_SECTIONS, piece);
        count += spec->frozen ? 0 : tx_shape_count(&spec->logical);
        for (int32_t k = 0; k < pieces; k++)
            count -= tx_lora_leaves(lora, piece[k].name) ? tx_shape_count(&piece[k].shape) : 0;
    }
    return count;
}

void tx_job_note_adapter(const tx_job *j)
{
    const tx_lora *lora = j->inputs.config->lora;
    if (!lora)
        return;
    const bool packed = j->inputs.config->packed != TX_F32;
    const int64_t all = tx_arch_param_count(j->inputs.config), trained = tx_job_trained_count(j);
    tx_job_note(j,
                "lora    r %" PRId64 ", scale %g, %s%s%s%s%s: %" PRId64
                " parameters are trained, %.3g %% of the model's %" PRId64 "; frozen matrices are in %s%s%s",
                lora->rank, tx_lora_scale(lora), lora->targets, lora->parameters && *lora->targets ? ", " : "",
                lora->parameters ? lora->parameters : "", lora->saved ? ", all of " : "",
                lora->saved ? lora->saved : "", trained, 100.0 * (double)trained / (double)all, all,
                tx_dtype_name(lora->stored), packed ? ", those of the blocks in " : "",
                packed ? tx_dtype_name(j->inputs.config->packed) : "");
}

tx_status tx_job_load(const tx_job *j, const char *folder)
{
    const tx_load_options options = {sizeof options, j->set.allow_nonfinite, &j->report, NULL};
    return (j->inputs.config->lora ? tx_lora_load : tx_arch_load)(j->model, j->inputs.config, folder, &options);
}

/* Loads weights that are not trained, with their digest. */
static tx_status load_frozen(const tx_job *j, const tx_config *config, const char *folder, char digest[TX_DIGEST_TEXT])
{
    tx_load_options options = {sizeof options, j->set.allow_nonfinite, &j->report, NULL};
    TX_TRY(tx_digest_create(&options.digest));
    const tx_status status = tx_arch_load(j->model, config, folder, &options);
    const tx_status finished = tx_digest_finish(options.digest, digest);
    return status ? status : finished;
}

static tx_status load_adapter(tx_job *j)
{
    tx_job_inputs *in = &j->inputs;
    TX_TRY(load_frozen(j, in->config, in->model_folder, in->base_digest));
    if (!in->adapter_folder)
        return tx_lora_init(j->model, in->config, (uint64_t)j->set.seed);
    TX_TRY(tx_lora_take_principal(j->model, in->config));
    return tx_job_load(j, in->adapter_folder);
}

tx_status tx_job_load_weights(tx_job *j)
{
    tx_job_inputs *in = &j->inputs;
    const char *folder = in->model_folder;
    uint64_t hash;
    tx_watchdog_begin(j->watch, TX_WATCHDOG_LOADING);
    TX_TRY(tx_model_allocate(j->model));
    TX_TRY(tx_job_precompute(j));
    if (!folder || in->config->new_head)
        TX_TRY(tx_model_init(j->model, (uint64_t)j->set.seed));
    if (in->config->lora)
        TX_TRY(load_adapter(j));
    else if (folder)
        TX_TRY(tx_job_load(j, folder));
    TX_TRY(tx_job_prune(j));
    if (in->teacher)
        TX_TRY(load_frozen(j, in->teacher, in->teacher_folder, in->teacher_digest));
    int32_t count = 0;
    tx_reward_model *const *models = tx_rewards_models(in->rewards, &count);
    for (int32_t i = 0; i < count; i++)
        TX_TRY(load_frozen(j, models[i]->config, models[i]->folder, models[i]->digest));
    return j->comm->size > 1 ? tx_pace_compare_weights(j->model, j->comm, "do all ranks read the same files?", &hash)
                             : TX_OK;
}

static tx_status write_arguments(const tx_job *j, const char *folder)
{
    tx_json *json = tx_job_arguments(&j->set, 0, 0);
    const tx_status status = json ? tx_json_write(TX_PATH(folder, TX_JOB_ARGUMENTS), json, TX_JSON_PRETTY) : TX_MEMORY;
    tx_json_free(json);
    return status;
}

tx_status tx_job_write_files(void *job, const char *folder)
{
    const tx_job *j = job;
    const tx_config *config = j->inputs.config;
    const char *generation = j->inputs.generation;
    TX_TRY((config->lora ? tx_lora_save : tx_arch_save)(j->model, config, folder));
    if (config->lora)
        TX_TRY(tx_config_write(config, config->lora->stored, TX_PATH(folder, "config.json")));
    if (j->inputs.tokenizer)
        TX_TRY(tx_tokenizer_save(j->inputs.tokenizer, folder, config->positions));
    if (j->inputs.task->save && j->inputs.train.count)
        TX_TRY(j->inputs.task->save(&j->inputs.train, folder));
    if (generation)
        TX_TRY(tx_file_write(TX_PATH(folder, TX_JOB_GENERATION), generation, strlen(generation)));
    return write_arguments(j, folder);
}

/* If the weights are sharded, the other ranks answer the reads of rank 0. */
tx_status tx_job_write_model(tx_job *j, const char *folder)
{
    if (!tx_model_gathers(j->model))
        return tx_job_leads(j) ? tx_job_write_files(j, folder) : TX_OK;
    if (!tx_job_leads(j))
        return tx_model_serve_reads(j->model);
    TX_TRY(tx_model_read_alone(j->model, true));
    tx_status status = tx_job_write_files(j, folder);
    const tx_status ended = tx_model_read_alone(j->model, false);
    return status ? status : ended;
}
