/* SPDX-License-Identifier: Apache-2.0
 * txgen: continues texts with a model folder, writes the logits of a sequence of ids, or measures perplexity. */
#include "tools/generate/txgen.h"

#include "models/arch/find.h"
#include "models/files/hub.h"
#include "models/files/safetensors.h"
#include "models/generate/perplexity.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_STRIDE 512

/* ---- Logits -------------------------------------------------------------------------------------- */

static tx_status write_logits(const txgen_job *job, const float *logits)
{
    tx_st_tensor tensor = {"logits", TX_ST_F32, 3, {1, job->prompts.prompt[0].count, job->config->vocab_size}};
    tx_st_writer *writer = NULL;
    tx_status status = tx_st_create(job->set->logits, &tensor, 1, NULL, &writer);
    if (status)
        return status;
    status = tx_st_append(writer, logits, (size_t)tx_st_bytes(&tensor));
    if (status) {
        tx_st_discard(writer);
        return status;
    }
    return tx_st_commit(writer);
}

static tx_status run_logits(txgen_job *job)
{
    const tx_prompt *prompt = &job->prompts.prompt[0];
    tx_forward *pass = NULL;
    tx_status status = tx_forward_create(job->model, job->config, prompt->count, &pass);
    if (!status)
        status = tx_arch_load(job->model, job->config, job->folder, NULL);
    float *logits = status ? NULL : malloc((size_t)(prompt->count * job->config->vocab_size) * sizeof *logits);
    if (!status && !logits)
        status = tx_fail(TX_MEMORY, "--logits: out of memory");
    if (!status)
        status = tx_forward_run(pass, prompt->ids, logits);
    if (!status)
        status = write_logits(job, logits);
    free(logits);
    tx_forward_free(pass);
    return status;
}

/* ---- Perplexity ------------------------------------------------------------------------------------ */

static tx_status measure(txgen_job *job, const tx_ids *ids)
{
    const txgen_settings *set = job->set;
    const int64_t count = (int64_t)ids->count;
    tx_perplexity_options options = {.size = sizeof options, .batch = set->batch_size > 0 ? set->batch_size : 1};
    options.max_length = set->max_length > 0 ? set->max_length : job->config->positions;
    options.stride = set->stride > 0 ? set->stride : DEFAULT_STRIDE;
    if (set->stride == 0 && options.stride > options.max_length)
        options.stride = options.max_length;
    const int64_t windows = count > options.max_length ? (count - options.max_length - 1) / options.stride + 2 : 1;
    options.batch = windows < options.batch ? windows : options.batch;
    tx_perplexity *perplexity = NULL;
    tx_perplexity_result result;
    tx_status status = tx_perplexity_create(job->model, job->config, &options, &perplexity);
    if (!status)
        status = tx_arch_load(job->model, job->config, job->folder, NULL);
    if (!status)
        status = tx_perplexity_run(perplexity, ids->id, count, &result);
    if (!status)
        printf("perplexity %.6f (loss %.6f, %" PRId64 " tokens, %" PRId64 " windows of %" PRId64 ", stride %" PRId64
               ")\n",
               result.perplexity, result.loss, result.tokens, result.windows, options.max_length, options.stride);
    tx_perplexity_free(perplexity);
    return status;
}

static tx_status run_perplexity(txgen_job *job)
{
    char *text = NULL;
    size_t size = 0;
    tx_ids ids = {0};
    tx_status status = txgen_read_text(job->set->perplexity, &text, &size);
    if (!status)
        status = tx_encoder_run(job->encoder, text, size, true, &ids);
    free(text);
    if (!status)
        status = measure(job, &ids);
    free(ids.id);
    return status;
}

/* ---- The job ------------------------------------------------------------------------------------------ */

static bool is_talk(const txgen_settings *set)
{
    return set->prompt.count == 0 && !set->prompts && set->ids.count == 0 && !set->perplexity && isatty(STDIN_FILENO);
}

static tx_status open_tokenizer(txgen_job *job)
{
    tx_status status = tx_tokenizer_open(job->folder, &job->tokenizer);
    if (!status && tx_tokenizer_size(job->tokenizer) > job->config->vocab_size)
        status = tx_fail(TX_INVALID, "%s: the tokenizer has %" PRId64 " ids, the model %" PRId64, job->folder,
                         tx_tokenizer_size(job->tokenizer), job->config->vocab_size);
    return status ? status : tx_encoder_create(job->tokenizer, &job->encoder);
}

static tx_status open_job(txgen_job *job, const tx_option_values *given)
{
    const txgen_settings *set = job->set;
    tx_status status = tx_hub_model(set->model, &job->folder);
    if (!status)
        status = tx_config_of_folder(job->folder, &job->config);
    if (!status)
        status = txgen_generation(given, job->folder, job->config, &job->how);
    if (!status)
        status = set->ids.count > 0 ? txgen_read_ids(set, &job->prompts) : open_tokenizer(job);
    if (!status && set->ids.count == 0 && !set->perplexity && !is_talk(set))
        status = txgen_read_prompts(set, job->encoder, job->config->bos_token_id, &job->prompts);
    tx_engine_options engine = {.size = sizeof engine, .device = set->device, .threads = (int32_t)set->threads};
    if (!status)
        status = tx_engine_create(&engine, &job->engine);
    return status ? status : tx_model_create(job->engine, &job->model);
}

static void close_job(txgen_job *job)
{
    tx_model_free(job->model);
    tx_engine_free(job->engine);
    txgen_prompts_free(&job->prompts);
    tx_encoder_free(job->encoder);
    tx_tokenizer_free(job->tokenizer);
    tx_config_free(job->config);
    free(job->folder);
}

static int run(const txgen_settings *set, const tx_option_values *given)
{
    txgen_job job = {.set = set};
    tx_status status = open_job(&job, given);
    if (!status)
        status = set->logits       ? run_logits(&job)
                 : set->perplexity ? run_perplexity(&job)
                 : is_talk(set)    ? txgen_talk(&job)
                                   : txgen_run(&job);
    close_job(&job);
    return status ? tx_complain(&txgen_program, TX_EXIT_FAILURE, "%s", tx_error()) : 0;
}

int main(int argc, char **argv)
{
    txgen_settings set;
    tx_option_values given;
    int result = txgen_parse(argc, argv, &set, &given);
    if (result == TX_GO_ON)
        result = run(&set, &given);
    tx_option_values_free(&given);
    return result;
}
