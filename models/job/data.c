/* SPDX-License-Identifier: Apache-2.0
 * Finds and reads the data, and chooses the task that the model is trained for. */
#include "models/job/inputs.h"

#include "api/base/cores.h"
#include "api/base/file.h"
#include "models/data/rows.h"
#include "models/task/causal_lm.h"
#include "models/task/choice.h"
#include "models/task/instruction.h"
#include "models/task/masked_lm.h"
#include "models/task/preference.h"
#include "models/task/question.h"
#include "models/task/sequence.h"
#include "models/task/tokens.h"
#include "models/train/writer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Default maximum of tokens: of a conversation, as TRL's max_length, of a row of masked language modelling, as in
 * run_mlm, and of token classification. */
#define USUAL_LENGTH 1024
/* That of a question with a window of its context, as in run_qa.py. */
#define QUESTION_LENGTH 384
/* Default learning rate of preferences, as TRL's. */
#define PREFERENCE_RATE 1e-6
#define REWARD_RATE 1e-4

/* ---- The task --------------------------------------------------------------------------------------------- */

/* The default task for the model and the data. NULL if the user has to name it. */
static tx_status default_task(const tx_job *j, const tx_task **task)
{
    static const tx_task *const tasks[] = {&tx_causal_lm,
                                           &tx_masked_lm,
                                           &tx_sequence_classification.task,
                                           &tx_token_classification,
                                           &tx_multiple_choice,
                                           &tx_question_answering,
                                           &tx_seq2seq,
                                           NULL};
    const tx_job_inputs *in = &j->inputs;
    const tx_head head = in->config->architecture->head;
    const char *path = in->train_path ? in->train_path : in->validation_path;
    bool instructs = false;
    *task = NULL;
    if (head == TX_HEAD_CAUSAL_LM && path)
        TX_TRY(tx_instruction_find(path, &instructs));
    if (instructs)
        *task = j->set.packing ? &tx_instruction_packed : &tx_instruction;
    const bool table = path && tx_rows_is_table(path);
    const bool labelled = head == TX_HEAD_MASKED_LM && path && (table || j->set.label_column);
    if (labelled && tx_job_trains(&j->set)) /* a base encoder gets a new head, with the labels of the data */
        *task = &tx_sequence_classification.task;
    if (head == TX_HEAD_MASKED_LM && path && tx_job_trains(&j->set) && tx_tokens_find(path)) {
        *task = &tx_token_classification;
        return TX_OK;
    }
    if (instructs || labelled)
        return TX_OK;
    for (const tx_task *const *t = tasks; *t && !*task; t++)
        *task = (*t)->head == head ? *t : NULL;
    return TX_OK;
}

/* Refuses options that belong to another kind of task. */
static tx_status refuse_others(const tx_job *j, tx_job_trait trait, const char *what)
{
    for (int32_t i = 0; i < tx_job_table.count; i++)
        if ((tx_job_traits(&tx_job_table.option[i]) & trait) && tx_job_in_use(&j->set, &tx_job_table.option[i]))
            return tx_fail(TX_INVALID, "--%s is for %s; this is %s", tx_job_table.option[i].name, what,
                           j->inputs.task->name);
    return TX_OK;
}

/* Sets the options whose defaults depend on the task. */
static tx_status set_task_defaults(tx_job *j)
{
    const tx_task *task = j->inputs.task;
    const bool instructs = task == &tx_instruction || task == &tx_instruction_packed || task->prefer,
               masks = task == &tx_masked_lm;
    const int64_t positions = j->inputs.config->positions;
    if ((instructs || masks || task == &tx_token_classification || task->contrast) &&
        !tx_option_given(&j->options, TX_JOB_AT(max_seq_length)) && !j->inherited)
        j->set.max_seq_length = positions < USUAL_LENGTH ? positions : USUAL_LENGTH;
    if (task == &tx_question_answering && !tx_option_given(&j->options, TX_JOB_AT(max_seq_length)) && !j->inherited)
        j->set.max_seq_length = positions < QUESTION_LENGTH ? positions : QUESTION_LENGTH;
    if ((instructs || task->head == TX_HEAD_SEQ2SEQ) && !tx_option_given(&j->options, TX_JOB_AT(pad_to_max_length)) &&
        !j->inherited)
        j->set.pad_to_max_length = j->set.packing;
    if (task->prefer && !tx_option_given(&j->options, TX_JOB_AT(rate)) && !j->inherited)
        j->set.rate = tx_preference_has(task, TX_PREFERENCE_REWARD) ? REWARD_RATE : PREFERENCE_RATE;
    if (task->prefer && strcmp(task->name, "simpo") == 0 && !tx_option_given(&j->options, TX_JOB_AT(cpo_alpha)) &&
        !j->inherited)
        j->set.cpo_alpha = 0.0; /* its loss has no such part (Meng et al., SimPO, 2024) */
    if (task->prefer && tx_preference_has(task, TX_PREFERENCE_KTO) &&
        !tx_option_given(&j->options, TX_JOB_AT(sampling)) && !j->inherited)
        j->set.sampling = TX_SAMPLING_SEQUENTIAL; /* a micro-batch then has both uses of a completion */
    if (!task->prefer)
        TX_TRY(refuse_others(j, TX_PREFER, "preferences (--task_name dpo, cpo, simpo, orpo, kto or reward)"));
    if (task != &tx_question_answering)
        TX_TRY(refuse_others(j, TX_ASK, "question answering (--task_name question_answering)"));
    if (task->head != TX_HEAD_STATES)
        TX_TRY(refuse_others(j, TX_EMBED, "embeddings (--task_name embedding)"));
    if (task->head != TX_HEAD_SEQ2SEQ)
        TX_TRY(refuse_others(j, TX_WRITE, "text for a text (--task_name seq2seq)"));
    if (!task->prefer && j->set.loss_type && strcmp(j->set.loss_type, "nll") != 0)
        return tx_fail(TX_INVALID, "--loss_type %s is for preferences (--task_name dpo or cpo); this is %s",
                       j->set.loss_type, task->name);
    if (!instructs)
        TX_TRY(refuse_others(j, TX_TALK, "instruction data, whose objects have messages, prompt or instruction"));
    return masks ? TX_OK : refuse_others(j, TX_MASKED, tx_masked_lm.name);
}

/* The lengths of sources and targets. */
static tx_status choose_lengths(tx_job *j)
{
    const tx_job_settings *set = &j->set;
    tx_job_inputs *in = &j->inputs;
    const struct {
        size_t at;
        bool used;
        const char *why;
    } refused[] = {{TX_JOB_AT(max_seq_length), tx_option_from(&j->options, TX_JOB_AT(max_seq_length)) == TX_OPTION_SET,
                    "the lengths are --max_source_length and --max_target_length"},
                   {TX_JOB_AT(block), set->block != 0, "the lengths are --max_source_length and --max_target_length"},
                   {TX_JOB_AT(tensor_parallel), set->tensor_parallel > 1, "ranks cannot divide its attention"},
                   {TX_JOB_AT(context_parallel), set->context_parallel > 1, "ranks cannot divide its positions"},
                   {TX_JOB_AT(pipeline_parallel), set->pipeline_parallel > 1, "stages cannot share the source"},
                   {TX_JOB_AT(parallel), set->parallel == TX_JOB_PARALLEL_AUTO, "only data-parallel ranks train it"}};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (refused[i].used)
            return tx_fail(TX_UNSUPPORTED, "--%s is not for %s: %s", tx_option_at(&tx_job_table, refused[i].at)->name,
                           in->task->name, refused[i].why);
    in->block = set->max_source_length;
    tx_seq2seq_sized(&in->seq2seq, set->max_target_length, set->predict_with_generate);
    in->task = &in->seq2seq.task;
    if (!set->predict_with_generate)
        return TX_OK;
    TX_TRY(tx_writer_settings(in->config, in->model_folder,
                              set->generation_max_length ? set->generation_max_length : set->max_target_length,
                              set->generation_num_beams, &j->report, &in->write));
    in->write.seed = (uint64_t)set->seed;
    return TX_OK;
}

static tx_status choose_block(tx_job *j)
{
    const tx_job_settings *set = &j->set;
    tx_job_inputs *in = &j->inputs;
    const int64_t positions = in->config->positions;
    const size_t blocks = TX_JOB_AT(block), texts = TX_JOB_AT(max_seq_length);
    const tx_option *other = tx_option_at(&tx_job_table, in->task->of_texts ? blocks : texts);
    if (tx_job_in_use(&j->set, other) && tx_option_from(&j->options, other->offset) == TX_OPTION_SET)
        return tx_fail(TX_INVALID, "--%s: the length of %s is --%s", other->name,
                       in->task->of_texts ? "texts and conversations" : "blocks of text",
                       tx_option_at(&tx_job_table, in->task->of_texts ? texts : blocks)->name);
    if (in->task->head == TX_HEAD_SEQ2SEQ)
        return choose_lengths(j);
    in->block = in->task->of_texts ? set->max_seq_length : set->block ? set->block : 1024;
    if (in->block > positions && set->block && !in->task->of_texts)
        return tx_fail(TX_INVALID, "block_size %" PRId64 " is more than the model's %" PRId64 " positions", in->block,
                       positions);
    if (in->block > positions && in->task->of_texts)
        tx_reporter_print(&j->report,
                          "max_seq_length %" PRId64 " is more than the model's %" PRId64
                          " positions: texts are truncated to "
                          "these",
                          in->block, positions);
    in->block = in->block < positions ? in->block : positions;
    return in->block < 2 ? tx_fail(TX_INVALID, "block_size must be 2 or more: the label of a token is the next one")
                         : TX_OK;
}

tx_status tx_job_choose_task(tx_job *j)
{
    tx_job_inputs *in = &j->inputs;
    const tx_task *named = tx_job_named_task(&j->set);
    in->task = named;
    const tx_head head = named ? named->head : in->config->architecture->head;
    if (head == TX_HEAD_SEQ2SEQ || (head == TX_HEAD_CAUSAL_LM && in->config->architecture->head == head))
        TX_TRY(tx_job_rows_of_tables(j));
    if (!named)
        TX_TRY(default_task(j, &in->task));
    if (!in->task)
        return tx_fail(TX_UNSUPPORTED,
                       "a %s has no labels, and the run does not train: give a classifier or --do_train",
                       in->config->architecture->class_name);
    TX_TRY(tx_config_set_head(in->config, in->task->head));
    TX_TRY(set_task_defaults(j));
    TX_TRY(choose_block(j));
    if (j->set.do_predict && !in->task->tell)
        return tx_fail(TX_INVALID, "--do_predict: %s predicts no labels; %s", in->task->name,
                       in->task->head == TX_HEAD_SEQ2SEQ ? "add --predict_with_generate"
                                                         : "use txgen to generate text");
    return TX_OK;
}

/* ---- Reading ------------------------------------------------------------------------------------------------ */

static tx_status open_samples(tx_job *j, const char *path, const char *name, tx_data_split split, tx_samples *samples)
{
    static const char *const names[] = {"train  ", "eval   ", "test   "};
    const tx_job_settings *set = &j->set;
    tx_job_inputs *in = &j->inputs;
    const int64_t most[] = {set->max_train_samples, set->max_eval_samples, set->max_predict_samples};
    const double cut = in->shared ? set->validation_split : 0.0;
    char *cache = set->output_dir ? tx_path_join(set->output_dir, "cache") : NULL;
    if (set->output_dir && !cache)
        return TX_MEMORY;
    const tx_data_options options = {
        .set = set,
        .split = split,
        .config = in->config,
        .keeps_labels = in->model_folder && !in->config->new_head && (in->checkpoint || !set->new_head),
        .resumes = in->checkpoint,
        .tokenizer = in->tokenizer,
        .block = in->block,
        .from = split == TX_DATA_TRAIN ? cut : 0.0,
        .to = split == TX_DATA_VALIDATION && in->shared ? cut : 100.0,
        .most = most[split],
        .cache = cache,
        .threads = set->tokenize_threads > 0 ? (int32_t)set->tokenize_threads : tx_cores(),
        .seed = tx_job_data_seed(set),
        .report = j->report,
    };
    tx_status status = in->task->open(in->task, path, &options, samples);
    free(cache);
    if (status)
        return status;
    in->task = samples->task;
    tx_job_note(j, "%s %s: %" PRId64 " token%s, %" PRId64 " %s%s of %s%" PRId64, names[split], name, samples->tokens,
                tx_s(samples->tokens), samples->count,
                in->task == &tx_instruction_packed ? "row"
                : in->task->of_texts               ? "sample"
                                                   : "block",
                tx_s(samples->count), in->task->of_texts ? "at most " : "", in->block);
    return TX_OK;
}

tx_status tx_job_open_data(tx_job *j)
{
    tx_job_inputs *in = &j->inputs;
    if (in->train_path && tx_job_trains(&j->set))
        TX_TRY(open_samples(j, in->train_path, in->train_name, TX_DATA_TRAIN, &in->train));
    if (in->validation_path)
        TX_TRY(open_samples(j, in->validation_path, in->validation_name, TX_DATA_VALIDATION, &in->validation));
    if (in->test_path)
        TX_TRY(open_samples(j, in->test_path, in->test_name, TX_DATA_TEST, &in->test));
    return tx_job_metric(&j->set, in->task, &in->metric);
}
