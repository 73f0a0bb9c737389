/* SPDX-License-Identifier: Apache-2.0
 * The adapter that a run trains, and its base model. */
#include "models/job/inputs.h"

#include "api/base/number.h"
#include "models/files/folder.h"
#include "models/lora/lora.h"
#include "models/tokenizer/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tx_status tx_job_open_adapter(tx_job *j)
{
    tx_job_inputs *in = &j->inputs;
    if (!tx_lora_is_folder(in->model_folder))
        return TX_OK;
    in->adapter_folder = in->model_folder;
    in->model_folder = NULL;
    TX_TRY(tx_lora_read(in->adapter_folder, &in->lora));
    return tx_lora_find_base(in->lora, in->adapter_folder, &in->model_folder);
}

/* Whether two lists are the same except for the characters of `ignored`. NULL is an empty list. */
static bool same_lists(const char *a, const char *b, const char *ignored)
{
    a = a ? a : "";
    b = b ? b : "";
    for (;; a++, b++) {
        a += strspn(a, ignored);
        b += strspn(b, ignored);
        if (*a != *b || !*a)
            return *a == *b;
    }
}

static bool same_names(const char *a, const char *b)
{
    return same_lists(a, b, " ");
}

/* The brackets of a list of tokens may be left out. */
static bool same_tokens(const char *a, const char *b)
{
    return same_lists(a, b, " []");
}

/* Sets an option to the adapter's value. If the option was given, it must have the same value. */
static tx_status apply_setting(tx_job *j, size_t at, const char *value)
{
    const tx_option *option = tx_option_at(&tx_job_table, at);
    const bool asked = tx_option_asked(&j->options, at);
    char *given = tx_option_text(&j->options, option);
    tx_status status = given ? TX_OK : TX_MEMORY;
    if (value)
        TX_THEN(status, tx_option_set_at(&j->options, at, value));
    char *kept = status || !value ? NULL : tx_option_text(&j->options, option);
    const bool tokens = at == TX_JOB_AT(lora_tokens);
    if (!status && asked && !(kept && (tokens ? same_tokens : same_names)(given, kept)))
        status = tx_fail(TX_INVALID,
                         "--%s: the adapter in %s has another value that cannot be changed: leave the option out",
                         option->name, j->inputs.adapter_folder);
    free(given);
    free(kept);
    return status;
}

static tx_status apply_settings(tx_job *j, const tx_lora *lora)
{
    char rank[32], alpha[32], dropout[32];
    const struct {
        size_t at;
        const char *value;
    } settings[] = {{TX_JOB_AT(lora_rank), rank},
                    {TX_JOB_AT(lora_alpha), alpha},
                    {TX_JOB_AT(lora_dropout), dropout},
                    {TX_JOB_AT(lora_targets), *lora->targets ? lora->targets : NULL},
                    {TX_JOB_AT(lora_parameters), lora->parameters},
                    {TX_JOB_AT(lora_saved), lora->saved},
                    {TX_JOB_AT(lora_tokens), lora->tokens},
                    {TX_JOB_AT(lora_init), tx_lora_takes_principal(lora) ? lora->init : "true"},
                    {TX_JOB_AT(use_dora), lora->dora ? "true" : "false"},
                    {TX_JOB_AT(use_rslora), lora->rank_stabilised ? "true" : "false"}};
    snprintf(rank, sizeof rank, "%" PRId64, lora->rank);
    tx_format(alpha, sizeof alpha, "%.17g", lora->alpha);
    tx_format(dropout, sizeof dropout, "%.17g", lora->dropout);
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        TX_TRY(apply_setting(j, settings[i].at, settings[i].value));
    return TX_OK;
}

static tx_status check_resumed(const tx_job *j, const tx_lora *lora)
{
    const tx_lora *had = j->inputs.lora;
    const char *checkpoint = j->inputs.checkpoint;
    if (!had)
        return tx_fail(TX_INVALID,
                       "--lora_r: %s is from a run without an adapter: start a new run with --model_name_or_path %s",
                       checkpoint, checkpoint);
    if (tx_lora_takes_principal(had) != tx_lora_takes_principal(lora) ||
        (tx_lora_takes_principal(had) && strcmp(had->init, lora->init) != 0))
        return tx_fail(TX_INVALID, "--init_lora_weights: the adapter in %s began differently: leave it out",
                       checkpoint);
    if (!same_tokens(had->tokens, lora->tokens))
        return tx_fail(TX_INVALID, "--trainable_token_indices: the adapter in %s has others: leave it out", checkpoint);
    if (had->rank != lora->rank || had->alpha != lora->alpha || had->rank_stabilised != lora->rank_stabilised ||
        had->dora != lora->dora || !same_names(had->targets, lora->targets) || !same_names(had->saved, lora->saved) ||
        !same_names(had->parameters, lora->parameters))
        return tx_fail(TX_INVALID,
                       "%s: the adapter has r %" PRId64 ", alpha %g, target modules %s%s%s%s%s: leave out options "
                       "with other values",
                       checkpoint, had->rank, had->alpha, had->targets, had->saved ? ", modules to save " : "",
                       had->saved ? had->saved : "", had->rank_stabilised ? ", rsLoRA" : "", had->dora ? ", DoRA" : "");
    return TX_OK;
}

/* The settings of the adapter. Modules are those of the options, else those of the existing adapter `had` (or NULL),
 * else peft's default for the architecture. */
static tx_status settings_of(const tx_job_settings *set, const tx_config *config, const tx_lora *had, tx_lora *lora)
{
    static const char *const inits[] = {NULL, TX_LORA_PISSA, TX_LORA_OLORA, TX_LORA_LOFTQ};
    const tx_architecture *row = config->architecture;
    const char *targets = set->lora_targets ? set->lora_targets : set->lora_parameters ? "" : row->lora_targets;
    const char *saved = set->lora_saved ? set->lora_saved : had ? had->saved : row->lora_saved;
    if (!targets)
        return tx_fail(TX_INVALID, "--lora_target_modules is missing: name the modules of a %s to adapt", row->type);
    *lora =
        (tx_lora){.rank = set->lora_rank,
                  .alpha = set->lora_alpha,
                  .dropout = set->lora_dropout,
                  .rate_of_b = (float)set->loraplus_ratio,
                  .rate_of_embeddings =
                      set->loraplus_ratio > 0 && set->rate > 0 ? (float)(set->loraplus_embedding / set->rate) : 0.0f,
                  .dora = set->use_dora,
                  .rank_stabilised = set->use_rslora,
                  .targets = (char *)(uintptr_t)targets,
                  .parameters = (char *)(uintptr_t)set->lora_parameters,
                  .saved = (char *)(uintptr_t)saved,
                  .task = had ? had->task : NULL,
                  .init = (char *)(uintptr_t)inits[set->lora_init],
                  .tokens = (char *)(uintptr_t)set->lora_tokens,
                  .rules = had ? had->rules : NULL};
    return TX_OK;
}

tx_status tx_job_make_adapter(const tx_job_settings *set, tx_config *config)
{
    tx_lora result;
    TX_TRY(settings_of(set, config, NULL, &result));
    TX_TRY(tx_lora_untie(&result, config));
    TX_TRY(tx_lora_check(&result, config));
    result.stored = set->bf16 || set->dtype ? TX_BF16 : set->fp16 ? TX_F16 : TX_F32;
    return tx_lora_copy(&result, &config->lora);
}

tx_status tx_job_choose_adapter(tx_job *j)
{
    tx_job_inputs *in = &j->inputs;
    char path[TX_PATH_ROOM];
    tx_lora result;
    if (in->lora && !in->checkpoint) {
        TX_TRY(apply_settings(j, in->lora));
        TX_TRY(tx_job_check(&j->options, in));
    }
    if (!j->set.lora_rank)
        return TX_OK;
    TX_TRY(settings_of(&j->set, in->config, in->lora, &result));
    if (in->checkpoint)
        TX_TRY(check_resumed(j, &result));
    result.base = in->lora ? in->lora->base : (char *)(uintptr_t)j->set.model;
    if (!in->lora && result.base && tx_file_exists(result.base) && realpath(result.base, path))
        result.base = path; /* absolute: a later run may start in another folder */
    const size_t length = result.base ? strlen(result.base) : 0;
    if (tx_utf8_prefix(result.base, length) < length)
        return tx_fail(TX_INVALID,
                       "--model_name_or_path: the path of %s is not UTF-8, so adapter_config.json cannot contain it: "
                       "rename its folders",
                       j->set.model);
    TX_TRY(tx_lora_untie(&result, in->config));
    TX_TRY(tx_lora_check(&result, in->config));
    if (j->set.load_in_4bit)
        tx_config_pack(in->config, j->set.double_quant ? TX_NF4_DOUBLE : TX_NF4);
    if (j->set.load_in_8bit)
        tx_config_pack(in->config, TX_Q8);
    return tx_lora_copy(&result, &in->config->lora);
}
