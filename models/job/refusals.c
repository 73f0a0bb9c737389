/* SPDX-License-Identifier: Apache-2.0
 * Checks of a run's options that depend on certain values. relations.def has the relations between two options. */
#include "models/job/settings.h"

#include "api/base/number.h"
#include "models/text/utf8.h"
#include "models/train/schedule.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* All errors, separated by "; ". */
typedef struct refusals {
    char text[3072];
} refusals;

static void refuse(refusals *r, bool wrong, const char *format, ...) TX_PRINTF(3, 4);

static void refuse(refusals *r, bool wrong, const char *format, ...)
{
    char text[sizeof r->text];
    va_list args;
    va_start(args, format);
    tx_format_list(text, sizeof text, format, args);
    va_end(args);
    if (wrong)
        tx_list_add(r->text, sizeof r->text, "; ", "%s", text);
}

static void check_steps(refusals *r, const char *name, double value)
{
    refuse(r, value >= 1 && value != floor(value),
           "--%s %g: give a whole number of steps, or a share of the run below 1", name, value);
}

/* As with the Trainer, loading the best model needs a checkpoint of each evaluation. */
static void check_best(refusals *r, const tx_job_settings *set)
{
    const double every = set->eval_steps > 0 ? set->eval_steps : set->logging_steps;
    const bool same = set->evaluation && (set->saving == set->evaluation || set->saving == TX_STRATEGY_BEST);
    const bool fits = every > 0 && fmod(set->save_steps, every) == 0;
    refuse(r, set->load_best && !same,
           "--load_best_model_at_end needs --eval_strategy and --save_strategy to be the same (steps or epoch), or "
           "--save_strategy best");
    refuse(
        r, set->load_best && same && set->saving == TX_STRATEGY_STEPS && !fits,
        "--load_best_model_at_end: --save_steps %g must be a multiple of the evaluation interval %g (--eval_steps, or "
        "--logging_steps if it is not given)",
        set->save_steps, every);
    refuse(r, set->saving == TX_STRATEGY_BEST && !set->evaluation,
           "--save_strategy best needs --eval_strategy steps or epoch");
}

static void check_stored(refusals *r, const tx_job_settings *set)
{
    tx_optimizer_options o;
    if (!set->dtype || set->lora_rank || tx_job_optimizer(set, &o) != TX_OK)
        return;
    refuse(r, o.kind != TX_ADAMW && o.kind != TX_ADAMW_ANYPRECISION,
           "--dtype bfloat16: only AdamW updates 16-bit weights: use --optim adamw_torch (rounds stochastically) or "
           "adamw_anyprecision");
}

static void check_4bit(refusals *r, const tx_job_settings *set)
{
    const int32_t computes = set->bf16 || set->dtype ? 2 : set->fp16 ? 3 : 1; /* index in the option's values */
    static const char *const remedy[] = {"", "train without --bf16 and --fp16", "add --bf16", "add --fp16"};
    refuse(r, set->bnb_type != 0,
           "--bnb_4bit_quant_type fp4: TX supports only nf4, which fits weights better: leave the option out");
    refuse(r, set->adapter == TX_JOB_ADAPTER_QLORA && !set->load_in_4bit,
           "--adapter qlora needs --load_in_4bit: its frozen weights are in 4 bits; give --adapter lora for weights in "
           "16 or 32 bits");
    refuse(r, set->load_in_4bit && set->bnb_compute && set->bnb_compute != computes,
           "--bnb_4bit_compute_dtype is not the type in which the run computes: %s, or leave the option out",
           remedy[set->bnb_compute]);
}

/* Values of the options of ranks. */
static void check_ranks(refusals *r, const tx_job_settings *set)
{
    const bool automatic = set->parallel == TX_JOB_PARALLEL_AUTO;
    refuse(r,
           (set->tensor_parallel > 1 || set->context_parallel > 1) && set->batch_weights &&
               strcmp(set->batch_weights, "auto") == 0,
           "--batch_weights auto is not possible with --tensor_parallel or --context_parallel: give a number for each "
           "group of ranks");
    refuse(r, set->sequence_parallel && set->tensor_parallel == 1 && !automatic,
           "--sequence_parallel needs --tensor_parallel 2 or more");
    refuse(r, set->pipeline_schedule != TX_PIPELINE_INTERLEAVED && set->pipeline_chunks != TX_JOB_CHUNKS,
           "--pipeline_chunks needs --pipeline_schedule interleaved");
    refuse(r, set->pipeline_partition && set->pipeline_parallel == 1 && !automatic,
           "--pipeline_partition needs --pipeline_parallel 2 or more");
    refuse(r, set->pipeline_parallel > 1 && set->zero_stage > 1, "--pipeline_parallel needs --zero_stage 0 or 1");
}

static void check_checkpointing(refusals *r, const tx_job_settings *set)
{
    tx_checkpointing ignored;
    int64_t limit;
    if (tx_job_read_checkpointing(set->checkpointing, &ignored, &limit))
        refuse(r, true, "%s", tx_error());
    else
        refuse(r, limit && set->find_batch,
               "--auto_find_batch_size and --gradient_checkpointing auto:BYTES exclude each other: one adapts the "
               "batch to the memory, the other the memory to the batch");
}

/* Schedule, evaluation and logging. */
static void check_course(refusals *r, const tx_job_settings *set)
{
    const tx_schedule schedule = {.kind = (tx_schedule_kind)set->schedule};
    refuse(r, tx_schedule_adapts(&schedule) && !set->evaluation,
           "--lr_scheduler_type %s follows the evaluations: it needs --eval_strategy steps or epoch",
           tx_schedule_name(schedule.kind));
    refuse(r, !set->dry_run && set->do_predict && !set->test_file && !set->dataset && !tx_job_takes_glue(set),
           "--test_file or --dataset_name is missing: give the text to predict labels of");
    refuse(r, set->list_devices, "--list_devices: only the program txtrain lists devices: leave it out");
    check_steps(r, TX_JOB_NAME(logging_steps), set->logging_steps);
    check_steps(r, TX_JOB_NAME(eval_steps), set->eval_steps);
    check_steps(r, TX_JOB_NAME(save_steps), set->save_steps);
    check_steps(r, TX_JOB_NAME(warmup_steps), set->warmup_steps);
}

/* Inputs, output_dir and offloading. */
static void check_inputs(refusals *r, const tx_job_settings *set)
{
    const bool data = set->train_file || set->dataset || tx_job_takes_glue(set);
    refuse(r, set->offload_optimizer == TX_OFFLOAD_FILE && !set->nvme_path,
           "--offload_optimizer nvme needs --nvme_path: a folder on a fast disk of this host");
    refuse(r, set->offload_param == TX_OFFLOAD_FILE && !set->nvme_path,
           "--offload_param nvme needs --nvme_path: a folder on a fast disk of this host");
    refuse(r, set->max_steps == 0, "--max_steps must be at least 1: leave it out to train for epochs");
    refuse(r, !set->dry_run && tx_job_trains(set) && !data,
           "--train_file or --dataset_name is missing: give the text to train on");
    refuse(r, !set->dry_run && tx_job_evaluates(set) && !data && !set->validation_file,
           "--validation_file or --dataset_name is missing: give the text to evaluate on");
    refuse(r, !set->dry_run && !set->output_dir, "--output_dir is missing: give the folder for the model");
}

/* A run writes its options to JSON files, so a text that is not UTF-8 would make the first checkpoint fail. */
static void check_texts(refusals *r, const tx_job_settings *set)
{
    for (int32_t i = 0; i < tx_job_table.count; i++) {
        const tx_option *o = &tx_job_table.option[i];
        const bool has = o->kind == TX_OPTION_TEXT || o->kind == TX_OPTION_OPTIONAL;
        const char *text = has ? *(const char *const *)((const char *)set + o->offset) : NULL;
        const size_t size = text ? strlen(text) : 0, good = tx_utf8_prefix(text, size);
        refuse(
            r, good < size,
            "--%s: byte %zu of its value is not UTF-8, which the JSON files of a run need: rename the file or folder",
            o->name, good + 1);
    }
}

tx_status tx_job_check(const tx_job_settings *given)
{
    refusals r = {""};
    tx_job_settings known = *given;
    const tx_job_settings *set = &known;
    known.dtype = given->dtype == TX_JOB_DTYPE_AUTO ? TX_JOB_DTYPE_F32 : given->dtype; /* checked when it is known */
    tx_optimizer_options optimizer;
    tx_job_check_relations(set, r.text, sizeof r.text);
    check_checkpointing(&r, set);
    check_course(&r, set);
    check_inputs(&r, set);
    check_texts(&r, set);
    check_best(&r, set);
    check_ranks(&r, set);
    check_stored(&r, set);
    check_4bit(&r, set);
    refuse(&r, set->lora_rank && set->bf16_full_eval && !set->bf16 && !set->dtype,
           "--bf16_full_eval with --lora_r needs --bf16 or --dtype bfloat16");
    refuse(&r, set->lora_rank && set->fp16_full_eval && !set->fp16, "--fp16_full_eval with --lora_r needs --fp16");
    refuse(&r, tx_job_check_pruning(set) != TX_OK, "--mask_structure: %s", tx_error());
    refuse(&r, tx_job_optimizer(set, &optimizer) != TX_OK, "--optim_args: %s", tx_error());
    return *r.text ? tx_fail(TX_INVALID, "%s", r.text) : TX_OK;
}
