/* SPDX-License-Identifier: Apache-2.0
 * The table of a run's options, and settings that are derived from several options. */
#include "models/job/settings.h"

#include "models/train/schedule.h"
#include "models/tx_convert.h"
#include "models/tx_train.h"

#include <float.h>
#include <stddef.h>
#include <string.h>

/* The words of an enumeration, each after a "|". */
#define WORD(name, word) "|" word
static const char schedule_words[] = TX_SCHEDULE_MAP(WORD) "|warmup_stable_decay";
static const char strategy_words[] = TX_STRATEGY_MAP(WORD);
static const char report_words[] = TX_REPORT_MAP(WORD);
static const char save_error_words[] = TX_SAVE_ERROR_MAP(WORD);
static const char ddp_comm_words[] = TX_DDP_COMM_MAP(WORD);
static const char pipeline_words[] = TX_PIPELINE_MAP(WORD);
static const char greater_words[] = TX_GREATER_MAP(WORD);
#define LOSS(name, word) "|" #word
static const char embedding_loss_words[] = "auto" TX_EMBEDDING_LOSS_MAP(LOSS);
static const char pooling_words[] = "auto|cls|max|mean|mean_sqrt_len_tokens|weightedmean|lasttoken";
static const char scale_words[] = TX_SCALE_REWARDS_MAP(WORD);
static const char divergence_words[] = TX_DIVERGENCE_MAP(WORD);
static const char qat_words[] = TX_CONVERT_MAP(WORD);
static const char sampling_words[] = TX_SAMPLING_MAP(WORD);

static const char task_words[] = "auto"
#define TX_TASK(word, ...) "|" #word
#include "models/task/tasks.def"
    ;
static const char task_help[] =
    "A GLUE task, whose .csv, .tsv or .jsonl files have the columns of that task, or sentence1, sentence2 (or "
    "sentence) and label; "
#define TX_TASK(word, task, noun, TRAITS, usual, unit, detect, help) help
#include "models/task/tasks.def"
    "auto infers the task from the model's head and the data.";

static const tx_option options[] = {
#define HEADING(text) {TX_OPTION_HEADING, .help = text},
#define OPTION(kind, type, name, member, initial, group, traits, least, most, choices, help) \
    {TX_OPTION_##kind, #name, offsetof(tx_job_settings, member), least, most, choices, help},
#include "models/options/options.def"
#define X(word, same, advice) {TX_OPTION_FOREIGN, word, .choices = same, .help = advice},
#include "models/options/foreign.def"
#define TX_OPTIMIZER_REFUSED(word, advice) {TX_OPTION_FOREIGN, "optim " #word, .help = advice},
#include "api/optimizers.def"
};

static const tx_option_spelling spellings[] = {{"--dataset_text_field", "text_column_name"},
                                               {"--text_column_names", "text_column_name"},
                                               {"--text_column", "text_column_name"},
                                               {"--lr", "learning_rate"},
                                               {"--epochs", "num_train_epochs"},
                                               {"--steps", "max_steps"},
                                               {"--batch_size", "per_device_train_batch_size"},
                                               {"--bs", "per_device_train_batch_size"},
                                               {"--grad_accum", "gradient_accumulation_steps"},
                                               {"--grad_clip", "max_grad_norm"},
                                               {"--warmup", "warmup_steps"},
                                               {"--wd", "weight_decay"},
                                               {"--model", "model_name_or_path"},
                                               {"--resume", "resume_from_checkpoint"},
                                               {"--max_length", "max_seq_length"},
                                               {"--chat_template_path", "chat_template"},
                                               {"--dataset_config", "dataset_config_name"},
                                               {"--dataset_num_proc", "preprocessing_num_workers"},
                                               {"--use_bnb_nested_quant", "bnb_4bit_use_double_quant"},
                                               {"--activation_checkpointing", "gradient_checkpointing"},
                                               {"--base_model", "model_name_or_path"},
                                               {"--tokenizer_config", "tokenizer_name"},
                                               {"--sequence_len", "max_seq_length"},
                                               {"--pad_to_sequence_len", "pad_to_max_length"},
                                               {"--sample_packing", "packing"},
                                               {"--micro_batch_size", "per_device_train_batch_size"},
                                               {"--num_epochs", "num_train_epochs"},
                                               {"--optimizer", "optim"},
                                               {"--lr_scheduler", "lr_scheduler_type"},
                                               {"--dataset_processes", "preprocessing_num_workers"},
                                               {"--peft_use_dora", "use_dora"},
                                               {"--target_parameters", "lora_target_parameters"},
                                               {"--peft_use_rslora", "use_rslora"},
                                               {"--wandb_name", "run_name"},
                                               {"--num_beams", "generation_num_beams"},
                                               {"-o", "output_dir"}};

/* In the order of `options`. */
static const uint32_t traits_of[sizeof options / sizeof options[0]] = {
#define HEADING(text) TX_NO_TRAIT,
#define OPTION(kind, type, name, member, initial, group, traits, ...) traits,
#include "models/options/options.def"
};

const tx_option_table tx_job_table = {options, sizeof options / sizeof options[0], spellings,
                                      sizeof spellings / sizeof spellings[0], traits_of};
_Static_assert(sizeof options / sizeof options[0] <= TX_OPTIONS_MOST, "as many options as can be marked as given");

bool tx_job_resumes(const tx_job_settings *set)
{
    const char *resume = set->resume;
    return resume && strcmp(resume, "False") != 0 && strcmp(resume, "false") != 0;
}

const char *tx_job_glue(const tx_job_settings *set)
{
    const tx_task_row *row = tx_task_named(set->task);
    return row && (row->traits & TX_GLUE_COLUMNS) ? row->word : NULL;
}

bool tx_job_takes_glue(const tx_job_settings *set)
{
    const bool files = set->train_file || set->validation_file || set->test_file || set->dataset;
    return tx_job_glue(set) && !files;
}

tx_status tx_job_metric(const tx_job_settings *set, const tx_task *task, const tx_metric **metric)
{
    const int32_t place = set->metric ? tx_task_metric(task, set->metric) : 0;
    char list[256] = "";
    if (place >= 0) {
        *metric = &task->metrics[place];
        return TX_OK;
    }
    for (const tx_metric *m = task->metrics; m->name; m++)
        tx_list_add(list, sizeof list, m[1].name ? ", " : " and ", "%s",
                    strncmp(m->name, "eval_", 5) == 0 ? m->name + 5 : m->name);
    return tx_fail(TX_INVALID, "--metric_for_best_model %s: the task has only %s", set->metric, list);
}

tx_json *tx_job_arguments(const tx_job_settings *set, uint32_t with, uint32_t without)
{
    return tx_option_json(&(tx_option_values){.table = tx_job_table, .values = (void *)(uintptr_t)set}, with, without);
}
