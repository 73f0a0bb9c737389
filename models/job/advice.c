/* SPDX-License-Identifier: Apache-2.0
 * Finds options with which a run that does not fit would fit: plans the run with each option that saves memory. */
#include "models/job/plans.h"

#include "models/job/fit.h"
#include "models/job/ranks.h"
#include "models/lora/lora.h"
#include "models/options/bytes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Size of the text with the options of one remedy. */
#define WORDS 120
/* Rank of a proposed adapter, peft's default. */
#define ADAPTER_RANK 8

/* Changes the options so that the run uses less memory, and writes them as on a command line. False if they are already
 * set or would not help. */
typedef bool remedy(tx_job *j, char words[WORDS]);

/* Keeps the rows of a step. */
static bool halve_batch(tx_job *j, char words[WORDS])
{
    tx_job_settings *set = &j->set;
    int64_t part = 2;
    while (part <= set->batch && set->batch % part)
        part++;
    if (!tx_job_trains(set) || set->batch == 1)
        return false;
    set->batch /= part;
    set->accumulation *= part;
    snprintf(words, WORDS, "--per_device_train_batch_size %" PRId64 " --gradient_accumulation_steps %" PRId64,
             set->batch, set->accumulation);
    return true;
}

static bool halve_eval_batch(tx_job *j, char words[WORDS])
{
    tx_job_settings *set = &j->set;
    if (!tx_job_evaluates(set) || set->eval_batch == 1)
        return false;
    set->eval_batch /= 2;
    snprintf(words, WORDS, "--per_device_eval_batch_size %" PRId64, set->eval_batch);
    return true;
}

static bool checkpoint(tx_job *j, char words[WORDS])
{
    tx_checkpointing now;
    int64_t limit;
    if (tx_job_read_checkpointing(j->set.checkpointing, &now, &limit) || now.whole || limit)
        return false;
    j->set.checkpointing = "true";
    snprintf(words, WORDS, "--gradient_checkpointing");
    return true;
}

static bool compute_in_half(tx_job *j, char words[WORDS])
{
    if (j->set.bf16 || j->set.fp16 || j->set.dtype)
        return false;
    j->set.bf16 = true;
    snprintf(words, WORDS, "--bf16");
    return true;
}

static bool shrink_states(tx_job *j, char words[WORDS])
{
    tx_optimizer_options now;
    if (j->set.dtype || j->set.optim_args || j->tensor || j->expert || tx_job_optimizer(&j->set, &now) ||
        now.kind != TX_ADAMW)
        return false;
    snprintf(words, WORDS, "--optim adamw_8bit");
    return tx_option_set_at(&j->options, TX_JOB_AT(optim), "adamw_8bit") == TX_OK;
}

/* The place to offload to: a file if the user gave nvme_path, else host memory. None if the run is a single rank on the
 * cpu, whose memory is host memory. All ranks get the same answer, since they plan together. */
static tx_offload_place offload_target(const tx_job *j)
{
    const bool in_host = j->comm->size == 1 && tx_job_in_host(j);
    return j->set.nvme_path ? TX_OFFLOAD_FILE : in_host ? TX_OFFLOAD_NONE : TX_OFFLOAD_HOST;
}

static bool offload(int32_t *place, tx_offload_place to, const char *option, char words[WORDS])
{
    if (*place >= (int32_t)to)
        return false;
    *place = (int32_t)to;
    snprintf(words, WORDS, "--%s %s", option, to == TX_OFFLOAD_FILE ? "nvme" : "cpu");
    return true;
}

static bool offload_states(tx_job *j, char words[WORDS])
{
    return !j->tensor && !j->expert &&
           offload(&j->set.offload_optimizer, offload_target(j), TX_JOB_NAME(offload_optimizer), words);
}

static bool offload_activations(tx_job *j, char words[WORDS])
{
    if (j->set.activation_offloading || (j->comm->size == 1 && tx_job_in_host(j)))
        return false;
    j->set.activation_offloading = true;
    snprintf(words, WORDS, "--activation_offloading");
    return true;
}

/* In ZeRO stages 1 and 2 ranks exchange whole weights, which are not offloaded. */
static bool offload_params(tx_job *j, char words[WORDS])
{
    const bool exchanged = j->sums->size > 1 && j->zero_stage > 0 && j->zero_stage < 3 && !j->inputs.config->lora;
    return !exchanged && offload(&j->set.offload_param, offload_target(j), TX_JOB_NAME(offload_param), words);
}

static bool shard(tx_job *j, int32_t stage, char words[WORDS])
{
    if (j->sums->size == 1 || j->zero_stage >= stage || (j->tensor && stage > 1))
        return false;
    j->zero_stage = stage;
    snprintf(words, WORDS, "--zero_stage %" PRId32, stage);
    return true;
}

static bool shard_gradients(tx_job *j, char words[WORDS])
{
    return shard(j, 2, words);
}

static bool shard_weights(tx_job *j, char words[WORDS])
{
    return shard(j, 3, words);
}

/* Only for an existing model: an adapter of new random weights is useless. */
static bool adapt(tx_job *j, char words[WORDS])
{
    const tx_job_inputs *in = &j->inputs;
    const tx_job_settings set = j->set;
    if (!tx_job_trains(&set) || set.lora_rank || !in->model_folder || in->checkpoint)
        return false;
    j->set.lora_rank = ADAPTER_RANK;
    if (tx_job_check(&j->options, &j->inputs) || tx_job_make_adapter(&j->set, in->config)) {
        j->set = set;
        return false;
    }
    snprintf(words, WORDS, "--lora_r %d", ADAPTER_RANK);
    return true;
}

/* Stores the base in 4 bits, and adds an adapter if the run has none. */
static bool pack(tx_job *j, char words[WORDS])
{
    tx_config *config = j->inputs.config;
    if (config->packed != TX_F32 || j->inputs.checkpoint || (!config->lora && !adapt(j, words)) || config->lora->dora)
        return false;
    const size_t used = strlen(words);
    j->set.load_in_4bit = true;
    if (tx_job_check(&j->options, &j->inputs)) {
        j->set.load_in_4bit = false;
        return false;
    }
    tx_config_pack(config, TX_NF4);
    snprintf(words + used, WORDS - used, "%s--load_in_4bit", used ? " " : "");
    return true;
}

/* The first REPEATED remedies may be applied several times. */
static remedy *const remedies[] = {
    halve_batch,         halve_eval_batch, checkpoint,    compute_in_half, shrink_states, offload_states,
    offload_activations, shard_gradients,  shard_weights, offload_params,  adapt,         pack};
enum { REMEDIES = sizeof remedies / sizeof remedies[0], REPEATED = 2 };

/* Whether the run fits with the current options. */
static tx_status try_now(tx_job *j, int64_t scratch, bool *fits, int64_t *planned)
{
    tx_fit fit;
    const tx_status status = tx_job_forecast_fit(j, scratch, &fit);
    *fits = !status && fit.planned <= fit.limit;
    *planned = status ? 0 : fit.planned;
    /* Some matrices have rows that cannot be stored in 4 bits. */
    const bool unfit = j->set.load_in_4bit && (status == TX_INVALID || status == TX_UNSUPPORTED);
    return status == TX_MEMORY || unfit ? TX_OK : status;
}

static void add(char *text, size_t size, const char *words, int64_t planned)
{
    tx_list_add(text, size, ", or ", "%s%s (%.2f GiB)", *text ? "" : "it would with ", words, tx_gib(planned));
}

/* Tries a single remedy, several times if it may be repeated. */
static tx_status try_single(tx_job *j, int which, int64_t scratch, char *text, size_t size)
{
    char words[WORDS] = "";
    bool fits = false;
    int64_t planned;
    tx_status status = TX_OK;
    while (!status && !fits && remedies[which](j, words)) {
        status = try_now(j, scratch, &fits, &planned);
        if (fits)
            add(text, size, words, planned);
        if (which >= REPEATED)
            break;
    }
    return status;
}

/* Applies one remedy after the other until the run fits. */
static tx_status try_together(tx_job *j, int64_t scratch, char *text, size_t size)
{
    char all[REMEDIES][WORDS] = {""}, words[REMEDIES * (WORDS + 1)] = "";
    bool fits = false;
    int64_t planned = 0;
    tx_status status = TX_OK;
    for (int i = 0; i < REMEDIES && !status && !fits; i++)
        while (!status && !fits && remedies[i](j, all[i])) {
            status = try_now(j, scratch, &fits, &planned);
            if (i >= REPEATED)
                break;
        }
    for (int i = 0; i < REMEDIES; i++)
        if (*all[i])
            tx_list_add(words, sizeof words, " ", "%s", all[i]);
    if (fits)
        add(text, size, words, planned);
    else if (!status)
        snprintf(text, size,
                 "smaller batches, gradient checkpointing, bf16, 8-bit AdamW, offload%s and ZeRO together are not "
                 "enough: use a smaller model, or --zero_stage 3 with more ranks on other devices",
                 j->inputs.config->packed != TX_F32 ? ", an adapter of a 4-bit base" : "");
    return status;
}

tx_status tx_job_advise(tx_job *j, int64_t scratch, char *text, size_t size)
{
    const tx_job_settings set = j->set;
    const int32_t stage = j->zero_stage;
    tx_config *config = j->inputs.config;
    tx_lora *const lora = config->lora;
    const tx_dtype packed = config->packed;
    tx_status status = TX_OK;
    *text = '\0';
    for (int i = 0; i < REMEDIES && !status; i++) {
        status = try_single(j, i, scratch, text, size);
        j->set = set;
        j->zero_stage = stage;
        if (config->lora != lora)
            tx_lora_free(config->lora);
        config->lora = lora;
        tx_config_pack(config, packed);
    }
    if (!*text)
        TX_THEN(status, try_together(j, scratch, text, size));
    return status;
}
