/* SPDX-License-Identifier: Apache-2.0
 * Finds and reads the inputs of a run: model, tokenizer, data and teacher. */
#include "models/job/inputs.h"

#include "models/arch/find.h"
#include "models/arch/wrapper.h"
#include "models/files/hub.h"
#include "models/gguf/gguf.h"
#include "models/lora/lora.h"
#include "models/names.h"
#include "models/reward/reward.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Model and tokenizer ---------------------------------------------------------------------------------- */

/* Reads the configuration of a file, a folder, a preset, or a model that is found by name. */
static tx_status find_config(const char *name, tx_config **config)
{
    char *folder = NULL;
    if (tx_file_exists(name) || tx_config_preset(name, config) == TX_OK)
        return tx_file_exists(name) ? tx_config_find(name, config) : TX_OK;
    tx_status status = tx_hub_model(name, &folder);
    TX_THEN(status, tx_config_of_folder(folder, config));
    free(folder);
    return status;
}

/* Reads generation_config.json at the start, since the folder may be deleted before the model is saved. */
static tx_status read_generation(tx_job_inputs *in)
{
    const int64_t limit = 1 << 24;
    size_t size;
    const bool adapts = in->adapter_folder && tx_file_exists(TX_PATH(in->adapter_folder, TX_JOB_GENERATION));
    const char *path = TX_PATH(adapts ? in->adapter_folder : in->model_folder, TX_JOB_GENERATION);
    return tx_file_exists(path) ? tx_file_read_text(path, limit, &in->generation, &size) : TX_OK;
}

/* Decides whether a model that is a part of its folder is saved as such. */
static tx_status choose_form(tx_job *j)
{
    tx_config *config = j->inputs.config;
    if (config->wrapped)
        config->wrapped->text_only = j->set.text_only && !j->set.lora_rank && !j->inputs.lora;
    return tx_wrapper_check(config);
}

static tx_status choose_config(tx_job *j)
{
    const tx_job_settings *set = &j->set;
    tx_job_inputs *in = &j->inputs;
    if (in->checkpoint)
        TX_TRY(tx_copy_text(in->checkpoint, &in->model_folder));
    else if (set->model)
        TX_TRY(tx_hub_model(set->model, &in->model_folder));
    if (in->model_folder) {
        TX_TRY(tx_job_open_adapter(j));
        TX_TRY(read_generation(in));
        TX_TRY(tx_config_of_folder(in->model_folder, &in->config));
        if (in->adapter_folder)
            TX_TRY(tx_lora_adapted_config(in->adapter_folder, &in->config));
        return choose_form(j);
    }
    TX_TRY(set->config ? find_config(set->config, &in->config) : tx_config_small(&in->config));
    return set->config_overrides ? tx_config_override(in->config, set->config_overrides) : TX_OK;
}

bool tx_job_has_experts(const tx_config *config)
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec = {.experts = false};
    for (int32_t i = 0; i < tx_arch_params(config) && !spec.experts; i++)
        if (tx_arch_param(config, i, name, &spec))
            return false;
    return spec.experts;
}

static tx_status check_experts(const tx_job *j)
{
    return j->set.expert_parallel == 1 || tx_job_has_experts(j->inputs.config)
               ? TX_OK
               : tx_fail(TX_UNSUPPORTED, "--expert_parallel shards experts, but this model has none: leave it out");
}

/* Whether a file needs no tokenizer. The path is NULL if the run has no such file. */
static bool holds_tokens(const char *path)
{
    return !path || tx_ends_with(path, ".bin");
}

/* Opens the named tokenizer, else the model's, else uses the bytes as tokens. */
static tx_status choose_tokenizer(tx_job *j)
{
    const tx_job_settings *set = &j->set;
    tx_job_inputs *in = &j->inputs;
    char *folder = NULL;
    const char *from = in->model_folder;
    tx_status status = TX_OK;
    if (set->tokenizer && !in->checkpoint) {
        status = tx_hub_model(set->tokenizer, &folder);
        from = folder;
    } else if (!from && set->config && tx_is_folder(set->config)) {
        from = set->config;
    }
    if (!status && !folder && in->adapter_folder)
        status = tx_tokenizer_open(in->adapter_folder, &in->tokenizer);
    if (status == TX_NOT_FOUND && !folder)
        status = TX_OK;
    if (!status && !in->tokenizer)
        status = from ? tx_tokenizer_open(from, &in->tokenizer) : TX_NOT_FOUND;
    if (status == TX_NOT_FOUND && !folder && in->config->vocab_size == TX_BYTES_VOCAB) {
        if (from)
            tx_job_note(j, "%s: has no tokenizer; with its vocabulary of %d the tokens are bytes", from,
                        TX_BYTES_VOCAB);
        status = tx_tokenizer_bytes(&in->tokenizer);
    } else if (status == TX_NOT_FOUND && !folder && holds_tokens(in->train_path) && holds_tokens(in->validation_path)) {
        if (in->train_path || in->validation_path) /* a dry run needs none */
            tx_job_note(j, "no tokenizer: the data are tokens, and the model is saved without one");
        status = TX_OK;
    } else if (status == TX_NOT_FOUND && !from) {
        status = tx_fail(TX_NOT_FOUND,
                         "no tokenizer for vocab_size %" PRId64 ": give --tokenizer_name, or set vocab_size to %d "
                         "to train on bytes",
                         in->config->vocab_size, TX_BYTES_VOCAB);
    }
    free(folder);
    if (!status && set->add_tokens)
        status = in->tokenizer ? tx_tokenizer_extend(&in->tokenizer, set->add_tokens)
                               : tx_fail(TX_INVALID, "--add_tokens: the model has no tokenizer");
    return status;
}

/* --dtype auto is the type of the model's weights. */
static tx_status resolve_dtype(tx_job *j)
{
    const char *type = "float32";
    if (j->set.dtype != TX_JOB_DTYPE_AUTO)
        return TX_OK;
    if (j->inputs.model_folder)
        TX_TRY(tx_config_dtype(j->inputs.config, &type));
    if (strcmp(type, "float16") == 0)
        return tx_fail(TX_UNSUPPORTED, "--dtype auto: the weights are in float16, in which TX does not train: give "
                                       "--dtype float32, and --fp16 to compute in 16 bits");
    TX_TRY(tx_option_set_at(&j->options, TX_JOB_AT(dtype), type));
    return tx_job_check(&j->options, NULL);
}

/* Enlarges the vocabulary to that of the tokenizer, or fails if it is too small. */
static tx_status match_vocabulary(tx_job *j)
{
    tx_job_inputs *in = &j->inputs;
    const int64_t before = in->config->vocab_size;
    if (!in->tokenizer || tx_tokenizer_size(in->tokenizer) <= before)
        return TX_OK;
    if (!j->set.resize_tokens)
        return tx_fail(TX_INVALID,
                       "the tokenizer has %" PRId64 " ids, the model's vocab_size is %" PRId64
                       ": give the tokenizer of this model (--tokenizer_name), or enlarge the model with "
                       "--resize_token_embeddings",
                       tx_tokenizer_size(in->tokenizer), before);
    in->config->vocab_size = tx_tokenizer_size(in->tokenizer);
    if (in->model_folder && !in->config->grown_from)
        in->config->grown_from = before;
    tx_job_note(j, "vocabulary: %" PRId64 " -> %" PRId64 " tokens; the new rows begin as the mean of the others",
                before, in->config->vocab_size);
    return TX_OK;
}

static tx_status open_teacher(tx_job *j)
{
    const tx_job_inputs *in = &j->inputs;
    TX_TRY(tx_job_check(&j->options, in)); /* the data may have another task */
    if (!j->set.teacher)
        return tx_job_open_reference(j);
    TX_TRY(tx_job_open_second(j, j->set.teacher,
                              j->set.bf16 || j->set.dtype ? TX_BF16
                              : j->set.fp16               ? TX_F16
                                                          : TX_F32));
    tx_job_note(j, "teacher %s: %" PRId64 " parameters, temperature %g, %g of the loss from the labels",
                in->teacher_folder, tx_arch_param_count(in->teacher), j->set.temperature, j->set.alpha);
    return TX_OK;
}

/* Decides whether the classifier gets a new head. The model's files have `labels` labels. */
static tx_status choose_head(tx_job *j, int64_t labels)
{
    tx_job_inputs *in = &j->inputs;
    tx_config *c = in->config;
    if (!in->model_folder)
        return TX_OK;
    c->other_head_shape = j->set.new_head && !in->checkpoint;
    c->new_head = c->new_head || (c->labels != labels && c->other_head_shape);
    if (c->new_head || c->labels == labels)
        return TX_OK;
    return tx_fail(TX_INVALID, "%s: the model has %" PRId64 " labels, the data have %" PRId64 ": %s", in->model_folder,
                   labels, c->labels,
                   in->checkpoint ? "a resumed run must have the same labels"
                                  : "use --ignore_mismatched_sizes to start with a new head");
}

static void note_model(const tx_job *j)
{
    const tx_job_settings *set = &j->set;
    const tx_job_inputs *in = &j->inputs;
    const tx_config *c = in->config;
    tx_job_note(j,
                "model   %s: %" PRId64 " layer%s, %" PRId64 " head%s, width %" PRId64 ", vocabulary %" PRId64
                ", %" PRId64 " parameters, %s",
                in->model_folder ? in->model_folder
                : set->config    ? set->config
                                 : "small byte GPT-2 (choose another with --model_name_or_path or --config_name)",
                c->layers, tx_s(c->layers), c->heads, tx_s(c->heads), c->width, c->vocab_size, tx_arch_param_count(c),
                in->model_folder ? "weights from its files" : "new weights");
}

/* ---- All --------------------------------------------------------------------------------------------------- */

tx_status tx_job_open(tx_job *j)
{
    TX_TRY(tx_job_choose_checkpoint(j));
    TX_TRY(tx_job_find_data(j));
    TX_TRY(choose_config(j));
    TX_TRY(resolve_dtype(j));
    TX_TRY(check_experts(j));
    TX_TRY(choose_tokenizer(j));
    TX_TRY(match_vocabulary(j));
    TX_TRY(tx_job_choose_task(j));
    TX_TRY(tx_job_choose_adapter(j));
    TX_TRY(tx_job_choose_pruning(j));
    if (j->set.qat)
        TX_TRY(tx_fail_in(tx_gguf_round(j->inputs.config, (tx_convert_type)j->set.qat), "--qat"));
    note_model(j);
    const int64_t labels = j->inputs.config->labels;
    TX_TRY(tx_job_open_data(j));
    TX_TRY(choose_head(j, labels)); /* tx_job_open_data may have changed the labels */
    TX_TRY(tx_job_choose_end(j));
    return open_teacher(j);
}

void tx_job_release(tx_job_inputs *inputs)
{
    tx_samples_close(&inputs->train);
    tx_samples_close(&inputs->validation);
    tx_samples_close(&inputs->test);
    tx_tokenizer_free(inputs->tokenizer);
    tx_config_free(inputs->config);
    tx_config_free(inputs->teacher);
    tx_rewards_free(inputs->rewards);
    free(inputs->teacher_folder);
    tx_run_state_free(&inputs->state);
    free(inputs->generation);
    free(inputs->train_path);
    free(inputs->test_path);
    free(inputs->validation_path);
    free(inputs->train_name);
    free(inputs->test_name);
    free(inputs->validation_name);
    free(inputs->model_folder);
    free(inputs->adapter_folder);
    tx_lora_free(inputs->lora);
    free(inputs->checkpoint);
}
