/* SPDX-License-Identifier: Apache-2.0
 * The reference model of preferences: the base of the adapter, a second model, or log-probabilities that are computed
 * once before training. */
#include "models/job/inputs.h"

#include "api/base/file.h"
#include "api/base/number.h"
#include "comm/comm.h"
#include "models/arch/find.h"
#include "models/files/hub.h"
#include "models/job/results.h"
#include "models/lora/lora.h"
#include "models/task/preference.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

tx_status tx_job_open_second(tx_job *j, const char *name, tx_dtype dtype)
{
    tx_job_inputs *in = &j->inputs;
    const char *use = in->task->refers ? "reference" : "teacher";
    TX_TRY(tx_hub_model(name, &in->teacher_folder));
    TX_TRY(tx_config_of_folder(in->teacher_folder, &in->teacher));
    const tx_config *c = in->config, *t = in->teacher;
    in->teacher->teacher = TX_WEIGHTS_TEACHER;
    in->teacher->teacher_dtype = dtype;
    if (t->architecture->head != c->architecture->head || tx_arch_columns(t) != tx_arch_columns(c) ||
        t->vocab_size != c->vocab_size)
        return tx_fail(TX_INVALID,
                       "%s: a %s of %" PRId64 " outputs cannot be the %s of a %s of %" PRId64
                       ": both must have one vocabulary and the same labels",
                       in->teacher_folder, t->architecture->class_name, tx_arch_columns(t), use,
                       c->architecture->class_name, tx_arch_columns(c));
    return t->positions >= in->block
               ? TX_OK
               : tx_fail(TX_INVALID, "%s: the %s has %" PRId64 " positions, but rows have %" PRId64, in->teacher_folder,
                         use, t->positions, in->block);
}

tx_status tx_job_open_reference(tx_job *j)
{
    const tx_job_settings *set = &j->set;
    char *start = NULL;
    const tx_task *task = j->inputs.task;
    if (!task->refers || !task->refers(task, set) || set->precompute_ref || !set->model)
        return TX_OK;
    if (set->ref_model || !j->inputs.config->lora) {
        TX_TRY(tx_job_open_second(j, set->ref_model ? set->ref_model : set->model, set->dtype ? TX_BF16 : TX_F32));
        tx_job_note(j, "reference %s: %" PRId64 " parameters", j->inputs.teacher_folder,
                    tx_arch_param_count(j->inputs.teacher));
        return TX_OK;
    }
    TX_TRY(tx_hub_model(set->model, &start));
    const tx_lora *lora = j->inputs.config->lora;
    const bool adapted = tx_lora_is_folder(start), saved = lora->saved || strcmp(tx_lora_bias(lora), "none") != 0;
    free(start);
    if (adapted || saved || tx_lora_takes_principal(lora))
        return tx_fail(TX_UNSUPPORTED, "%s: the reference is not the base model of the adapter: give %s",
                       adapted ? "the model has an adapter before training"
                       : saved ? "--lora_modules_to_save"
                               : "--init_lora_weights",
                       task->generates ? "--ref_model or --beta 0" : "--precompute_ref_log_probs");
    tx_job_note(j, "reference the base model of the adapter");
    return TX_OK;
}

/* ---- Precomputed log-probabilities ----------------------------------------------------------------------- */

/* Loads the model before training, with the digest of its weights. */
static tx_status load_start(tx_job *j, char digest[TX_DIGEST_TEXT])
{
    tx_job_inputs *in = &j->inputs;
    tx_load_options options = {sizeof options, j->set.allow_nonfinite, &j->report, NULL};
    char *start = NULL;
    TX_TRY(tx_digest_create(&options.digest));
    tx_status status = tx_hub_model(j->set.model, &start);
    const bool adapted = !status && tx_lora_is_folder(start);
    TX_THEN(status, tx_arch_load(j->model, in->config, in->config->lora ? in->model_folder : start, &options));
    if (adapted) {
        TX_THEN(status, tx_lora_take_principal(j->model, in->config));
        TX_THEN(status, tx_lora_load(j->model, in->config, start, &options));
    } else if (in->config->lora)
        TX_THEN(status, tx_lora_init(j->model, in->config, (uint64_t)j->set.seed));
    free(start);
    const tx_status finished = tx_digest_finish(options.digest, digest);
    return status ? status : finished;
}

/* The file of the log-probabilities of some samples, named by the digest of everything that they depend on. */
static tx_status file_of(const tx_job *j, const tx_samples *samples, const char *weights, char name[TX_DIGEST_TEXT])
{
    char text[2 * TX_DIGEST_TEXT + 96];
    const int length =
        tx_format(text, sizeof text, "reference %s %s bf16 %d fp16 %d dtype %d ld_alpha %.17g", samples->digest,
                  weights, j->set.bf16, j->set.fp16, (int)j->set.dtype, j->set.ld_alpha);
    return tx_digest_data(text, (size_t)length, name);
}

/* Reads log-probabilities. The file ends with the digest of its numbers; a file that does not fit is ignored. */
static tx_status read_file(const char *path, void *numbers, size_t bytes, bool *found)
{
    char digest[TX_DIGEST_TEXT], *text = NULL;
    size_t size = 0;
    tx_status status = tx_file_exists(path) ? tx_file_read(path, INT64_MAX, &text, &size) : TX_OK;
    if (!status && size == bytes + sizeof digest) {
        status = tx_digest_data(text, bytes, digest);
        *found = !status && memcmp(text + bytes, digest, sizeof digest) == 0;
    }
    if (*found)
        memcpy(numbers, text, bytes);
    free(text);
    return status;
}

static tx_status write_file(const char *folder, const char *path, const void *numbers, size_t bytes)
{
    char *text = malloc(bytes + TX_DIGEST_TEXT);
    tx_status status = text ? tx_folder_create(folder) : tx_fail(TX_MEMORY, "no memory for log-probabilities");
    TX_THEN(status, tx_digest_data(numbers, bytes, text + bytes));
    if (!status)
        memcpy(text, numbers, bytes);
    TX_THEN(status, tx_file_write(path, text, bytes + TX_DIGEST_TEXT));
    free(text);
    return status;
}

/* Reads the log-probabilities of some samples, or computes and writes them. All ranks compute if the file of one of
 * them is missing. */
static tx_status precompute(const tx_job *j, const tx_samples *samples, const char *weights)
{
    const tx_preference_data *data = samples->data;
    const size_t bytes = 2 * (size_t)samples->count * sizeof *data->reference;
    char name[TX_DIGEST_TEXT];
    double sums[TX_SUMS_MAX] = {0};
    float *outputs = NULL;
    bool found = false;
    TX_TRY(file_of(j, samples, weights, name));
    char *folder = tx_path_join(j->set.output_dir, "cache"), *path = folder ? tx_path_join(folder, name) : NULL;
    tx_status status = path ? read_file(path, data->reference, bytes, &found) : TX_MEMORY;
    float missing = found ? 0.0f : 1.0f;
    if (j->comm->size > 1)
        TX_THEN(status, tx_comm_collect(j->comm, TX_ALL_REDUCE, &missing, 1, TX_F32, 0));
    const bool computes = missing > 0.0f;
    if (computes)
        TX_THEN(status, tx_run_outputs(j->trainer, samples, j->watch, sums, &outputs));
    if (outputs && !status)
        tx_preference_set_reference(samples, outputs, tx_trainer_outputs(j->trainer));
    if (computes && tx_job_leads(j))
        TX_THEN(status, write_file(folder, path, data->reference, bytes));
    if (!status)
        tx_job_note(j, "reference %s: log-probabilities of %" PRId64 " samples %s", path, samples->count,
                    computes ? "computed" : "read");
    free(outputs);
    free(path);
    free(folder);
    return status;
}

tx_status tx_job_precompute(tx_job *j)
{
    tx_job_inputs *in = &j->inputs;
    const tx_samples *const all[] = {&in->train, &in->validation};
    if (!in->task->is_preference || !j->set.precompute_ref || !tx_preference_has_reference(in->task, &j->set))
        return TX_OK;
    TX_TRY(load_start(j, in->teacher_digest));
    for (int i = 0; i < 2; i++)
        if (all[i]->count)
            TX_TRY(precompute(j, all[i], in->teacher_digest));
    return TX_OK;
}
