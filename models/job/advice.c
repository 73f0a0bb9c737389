/* SPDX-License-Identifier: Apache-2.0
 * What would make a run fit that does not: options that take less memory, each tried by planning the run with it. */
#include "api/base/message.h"
#include "models/job/parts.h"
#include "models/options/bytes.h"

#include <inttypes.h>
#include <stdio.h>

/* Room for the options of one remedy. */
#define WORDS 120

/* Changes the options so that less memory is taken, and tells them as a command line has them; false where that is
 * done already or would not help. */
typedef bool remedy(tx_job *j, char words[WORDS]);

/* The rows of a step stay. */
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
    const bool had = j->set.checkpointing != NULL;
    j->set.checkpointing = "true";
    snprintf(words, WORDS, "--gradient_checkpointing");
    return !had;
}

static bool compute_in_half(tx_job *j, char words[WORDS])
{
    const bool had = j->set.bf16 || j->set.fp16 || j->set.dtype;
    j->set.bf16 = j->set.bf16 || !had;
    snprintf(words, WORDS, "--bf16");
    return !had;
}

static bool shrink_states(tx_job *j, char words[WORDS])
{
    tx_optimizer_options now;
    if (j->set.dtype || j->set.optim_args || tx_job_optimizer(&j->set, &now) || now.kind != TX_ADAMW)
        return false;
    snprintf(words, WORDS, "--optim adamw_8bit");
    return tx_option_set(&j->options, "optim", "adamw_8bit") == TX_OK;
}

static bool spread_states(tx_job *j, char words[WORDS])
{
    if (j->comm->size == 1 || j->zero_stage >= 2)
        return false;
    j->zero_stage = 2;
    snprintf(words, WORDS, "--zero_stage 2");
    return true;
}

static bool spread_weights(tx_job *j, char words[WORDS])
{
    if (j->comm->size == 1 || j->zero_stage == 3)
        return false;
    j->zero_stage = 3;
    snprintf(words, WORDS, "--zero_stage 3");
    return true;
}

/* The first that follow each other may be taken several times. */
static remedy *const remedies[] = {halve_batch,   halve_eval_batch, checkpoint,    compute_in_half,
                                   shrink_states, spread_states,    spread_weights};
enum { REMEDIES = sizeof remedies / sizeof remedies[0], REPEATED = 2 };

/* Whether the run fits by the options as they are. */
static tx_status try_now(tx_job *j, int64_t scratch, bool *fits, int64_t *planned)
{
    tx_fit fit;
    const tx_status status = tx_job_forecast_fit(j, scratch, &fit);
    *fits = !status && fit.planned <= fit.limit;
    *planned = status ? 0 : fit.planned;
    return status == TX_MEMORY ? TX_OK : status;
}

static void add(char *text, size_t size, const char *words, int64_t planned)
{
    tx_list_add(text, size, ", or ", "%s%s (%.2f GiB)", *text ? "" : "it would with ", words, tx_gib(planned));
}

/* One remedy alone, again and again where that takes less each time. */
static tx_status try_alone(tx_job *j, int which, int64_t scratch, char *text, size_t size)
{
    char words[WORDS];
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

/* One after the other until it fits. */
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
                 "smaller batches, gradient checkpointing, bf16, 8-bit AdamW and ZeRO together are not enough: take a "
                 "smaller model, or --zero_stage 3 over ranks on other devices");
    return status;
}

tx_status tx_job_advise(tx_job *j, int64_t scratch, char *text, size_t size)
{
    const tx_job_settings set = j->set;
    const int32_t stage = j->zero_stage;
    tx_status status = TX_OK;
    *text = '\0';
    for (int i = 0; i < REMEDIES && !status; i++) {
        status = try_alone(j, i, scratch, text, size);
        j->set = set;
        j->zero_stage = stage;
    }
    return status || *text ? status : try_together(j, scratch, text, size);
}
