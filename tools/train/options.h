/* SPDX-License-Identifier: Apache-2.0
 *
 * txtrain's options, in the names and with the defaults of transformers' Trainer and run_clm. */
#ifndef TX_TOOLS_TRAIN_OPTIONS_H
#define TX_TOOLS_TRAIN_OPTIONS_H

#include "api/base/json.h"
#include "tools/cli/options.h"

enum { TX_REPORT_TENSORBOARD, TX_REPORT_ALL, TX_REPORT_NONE };
enum { TX_SAVE_CONTINUE, TX_SAVE_STOP };

typedef struct tx_train_settings {
    /* model */
    const char *model, *config, *config_overrides, *tokenizer;
    bool allow_nonfinite;
    /* data */
    const char *train_file, *validation_file, *dataset, *dataset_config;
    double validation_split;
    int64_t block, group_texts, max_train_samples, max_eval_samples, tokenize_threads, skip_bad, workers;
    bool pin;
    const char *dump_order;
    /* training */
    bool do_train, do_eval;
    int64_t batch, eval_batch, accumulation, max_steps, seed, data_seed, max_bad_steps;
    double rate, warmup_steps, warmup_ratio, decay, beta1, beta2, epsilon, max_grad_norm, epochs;
    int32_t schedule, optim;
    const char *schedule_settings;
    /* run */
    const char *output_dir, *resume, *logging_dir;
    bool overwrite, load_best, no_progress;
    int32_t logging, evaluation, saving, metric, on_save_error;
    uint32_t report_to;
    double logging_steps, eval_steps, save_steps;
    int64_t save_total_limit;
    /* many ranks */
    int64_t bucket_cap, zero_stage, global_batch, ddp_check;
    int32_t ddp_comm, overlap;
    const char *batch_weights;
    double comm_timeout, start_timeout;
    /* device */
    const char *device;
    int64_t threads;
    bool tf32, no_tf32, list_devices, dry_run, profile;
} tx_train_settings;

extern const tx_cli tx_train_program;
tx_train_settings tx_train_defaults(void);
tx_optimizer_kind tx_train_optimizer(const tx_train_settings *set);
/* What contradicts itself or is missing is complained of: the exit status, or TX_GO_ON. */
int tx_train_check(const tx_train_settings *set);

/* Whether this run trains, and whether it evaluates when training is over (transformers' do_train and do_eval, which
 * follow from the others where they are not given). */
bool tx_train_trains(const tx_train_settings *set);
bool tx_train_evaluates(const tx_train_settings *set);

/* Options with their values, as training_args.json and the model card hold them: all of them, or those of `names`
 * (ended by NULL) alone. NULL when out of memory. */
tx_json *tx_train_arguments(const tx_train_settings *set, const char *const *names);

#endif
