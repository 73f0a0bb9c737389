/* SPDX-License-Identifier: Apache-2.0
 * Compares the options and data of this run with those of the checkpoint's run, and describes the differences. */
#include "models/job/inputs.h"

#include "models/files/folder.h"

#include <stdlib.h>
#include <string.h>

tx_status tx_job_read_arguments(const char *folder, tx_json **json)
{
    const int64_t limit = 1 << 24;
    return tx_json_read(TX_PATH(folder, TX_JOB_ARGUMENTS), limit, json);
}

/* Whether a different value of a member of tx_job_describe is refused: it changes which rows a step reads, or the base
 * teacher or reward model. The digests of the data are handled by explain_data. */
static bool is_decisive(const char *name)
{
    static const char *const computed[] = {"global_batch", "base_model", "teacher_model", "reward_models"};
    const tx_option *option = tx_option_find(&tx_job_table, name);
    for (size_t i = 0; i < sizeof computed / sizeof computed[0]; i++)
        if (strcmp(computed[i], name) == 0)
            return true;
    return option && (tx_job_traits(option) & TX_ORDER);
}

/* Clauses, separated by ", ". */
typedef struct clauses {
    char text[1024];
} clauses;

#define ADD(c, ...) tx_list_add((c)->text, sizeof(c)->text, ", ", __VA_ARGS__)

/* The member as text, which the caller frees. NULL if there is none, or if out of memory. */
static char *text_of(const tx_json *object, const char *key)
{
    const tx_json *member = object ? tx_json_find(object, key) : NULL;
    return member ? tx_json_text(member, TX_JSON_LINE) : NULL;
}

/* Adds a clause if both objects have the member and its values differ. Returns whether they do. */
static bool add_change(clauses *c, const tx_json *then, const tx_json *now, const char *key)
{
    char *before = text_of(then, key), *after = text_of(now, key);
    const bool differs = before && after && strcmp(before, after) != 0;
    if (differs && strcmp(key, "global_batch") == 0)
        ADD(c, "a step had %.20s blocks and has %.20s now (--global_batch_size %.20s keeps it)", before, after, before);
    else if (differs)
        ADD(c, "%s was %.120s and is %.120s now", key, before, after);
    free(before);
    free(after);
    return differs;
}

/* Adds the options with a trait whose values differ. Returns whether there are any. */
static bool add_changes(clauses *c, const tx_json *then, const tx_json *now, tx_job_trait trait)
{
    bool any = false;
    for (int32_t i = 0; i < tx_job_table.count; i++)
        if (tx_job_traits(&tx_job_table.option[i]) & trait)
            any = add_change(c, then, now, tx_job_table.option[i].name) || any;
    return any;
}

/* Adds the reason why the training data, or the tokenizer, are not those of the checkpoint's run. `then` and `now` are
 * options. */
static void explain_data(const tx_job *j, const tx_json *then, const tx_json *now, clauses *c)
{
    const bool options = add_changes(c, then, now, TX_DATA), split = add_changes(c, then, now, TX_SPLIT);
    if (split)
        ADD(c, "and without a validation_file the first texts of the training file are held out for evaluation, which "
               "shifts its blocks");
    else if (!options)
        ADD(c, "the contents of %s, or its tokenizer, have changed", j->inputs.train_name);
}

/* Adds given options that have no effect because the checkpoint stores their result. */
static void add_kept(const tx_job *j, const tx_json *then, const tx_json *now, clauses *c)
{
    for (int32_t i = 0; i < tx_job_table.count; i++) {
        const tx_option *o = &tx_job_table.option[i];
        const bool scales = o->offset != offsetof(tx_job_settings, init_scale) || j->inputs.state.loss_scale > 0;
        if ((tx_job_traits(o) & TX_STORED) && scales && tx_option_asked(&j->options, o->offset))
            add_change(c, then, now, o->name);
    }
}

tx_status tx_job_agree_with_checkpoint(const tx_job *j, const tx_json *description)
{
    const tx_json *then = j->inputs.state.run;
    clauses refused = {""}, reported = {""}, digests = {""}, kept = {""};
    tx_json *before = NULL, *now = tx_job_arguments(&j->set, 0, 0);
    if (tx_job_read_arguments(j->inputs.checkpoint, &before))
        before = NULL;
    for (void *i = tx_json_first(description); i; i = tx_json_next(description, i)) {
        const char *key = tx_json_key(i);
        const bool digest = strcmp(key, "data") == 0 || strcmp(key, "tokenizer") == 0;
        add_change(digest ? &digests : is_decisive(key) ? &refused : &reported, then, description, key);
    }
    if (*digests.text)
        explain_data(j, before, now, &refused);
    add_kept(j, before, now, &kept);
    tx_json_free(before);
    tx_json_free(now);
    if (*refused.text)
        return tx_fail(TX_INVALID,
                       "cannot resume from %s, because the steps would read other data: %s; give the same options, or "
                       "start a new run with --model_name_or_path %s",
                       j->inputs.checkpoint, refused.text, j->inputs.checkpoint);
    if (*reported.text)
        tx_reporter_print(&j->report, "the run resumes with different options: %s", reported.text);
    if (*kept.text)
        tx_reporter_print(&j->report, "the checkpoint decides these options, so the given values have no effect: %s",
                          kept.text);
    return TX_OK;
}

tx_status tx_job_explain_states(const tx_job *j, tx_status status)
{
    clauses c = {""};
    tx_json *now = tx_job_arguments(&j->set, 0, 0);
    if (status == TX_FORMAT) {
        add_change(&c, j->inputs.state.run, now, TX_JOB_NAME(optim));
        add_change(&c, j->inputs.state.run, now, TX_JOB_NAME(optim_args));
    }
    tx_json_free(now);
    return *c.text ? tx_fail(status,
                             "cannot resume from %s with the states of another optimizer: %s; give the same, or start "
                             "a new run with --model_name_or_path %s",
                             j->inputs.checkpoint, c.text, j->inputs.checkpoint)
                   : status;
}

/* ---- A checkpoint that is not the newest --------------------------------------------------------------- */

tx_status tx_job_check_inherited(const tx_job *j, const char *from, const tx_option_marks *left_out)
{
    const char *chosen = j->inputs.checkpoint;
    tx_json *taken = NULL, *right = NULL;
    clauses c = {""};
    tx_status status = TX_OK;
    if (tx_file_exists(TX_PATH(from, TX_JOB_ARGUMENTS)) && tx_file_exists(TX_PATH(chosen, TX_JOB_ARGUMENTS))) {
        status = tx_job_read_arguments(from, &taken);
        TX_THEN(status, tx_job_read_arguments(chosen, &right));
    }
    for (void *i = right && !status ? tx_json_first(right) : NULL; i; i = tx_json_next(right, i)) {
        const tx_option *option = tx_option_find(&tx_job_table, tx_json_key(i));
        if (option && !left_out->mark[option - tx_job_table.option] && !tx_option_given(&j->options, option->offset))
            add_change(&c, taken, right, option->name);
    }
    if (!status && *c.text)
        status = tx_fail(TX_INVALID,
                         "%s is damaged, and the intact %s is from a run with other options (%s): to use it, give it "
                         "as --resume_from_checkpoint",
                         from, chosen, c.text);
    tx_json_free(taken);
    tx_json_free(right);
    return status;
}
