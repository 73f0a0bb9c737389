/* SPDX-License-Identifier: Apache-2.0
 * Warns of given options that have no effect in this run (the rows UNUSED of relations.def). */
#include "models/job/inputs.h"

#include "models/task/policy.h"
#include "models/task/preference.h"

#include <string.h>

enum { TOGETHER = 7 };

/* Adds those of the options, with 0 after the last, that were given. */
static void add(const tx_job *j, const size_t at[TOGETHER], const char *why, char *text, size_t size)
{
    char list[160] = "";
    for (int i = 0; i < TOGETHER && (i == 0 || at[i] != 0); i++) {
        const tx_option *option = tx_option_at(&tx_job_table, at[i]);
        if (tx_option_asked(&j->options, at[i]) && tx_job_in_use(&j->set, option))
            tx_list_add(list, sizeof list, ", ", "--%s", option->name);
    }
    if (*list)
        tx_list_add(text, size, "; ", "%s (%s)", list, why);
}

static void add_all(const tx_job *j, char *text, size_t size)
{
    const tx_job_settings *set = &j->set;
    const tx_job_inputs *in = &j->inputs;
    const tx_task *task = in->task;
    tx_optimizer_options o = {.kind = TX_ADAMW};
    const tx_status known = tx_job_optimizer(set, &o);
    const bool blocks = !task->length, table = tx_arch_classifies(in->config), evaluates = tx_job_evaluates(set),
               talks = (in->row->traits & TX_TALK) && !task->is_preference, plain = in->row->traits & TX_PLAIN_TEXT,
               padded = j->pipeline || j->expert, dense = !tx_job_has_experts(in->config),
               betas = known || (o.kind != TX_SGD && o.kind != TX_ADAFACTOR && o.kind != TX_SCHEDULE_FREE_SGD),
               to_file = set->offload_optimizer == TX_OFFLOAD_FILE || set->offload_param == TX_OFFLOAD_FILE,
               by_steps = set->evaluation == TX_STRATEGY_STEPS,
               events = set->report_to && set->report_to != 1u << TX_REPORT_NONE;
#define AT(a) TX_JOB_AT(a)
#define UNUSED(condition, why, ...) \
    if (condition)                  \
        add(j, (const size_t[TOGETHER]){__VA_ARGS__}, why, text, size);
#include "models/job/relations.def"
}

/* Options of other programs with a value that TX accepts and does not follow. */
static void add_foreign(const tx_job *j, char *text, size_t size)
{
    for (int32_t i = 0; i < tx_job_table.count; i++)
        if (tx_job_table.option[i].kind == TX_OPTION_FOREIGN && j->options.source[i] == TX_OPTION_SET)
            tx_list_add(text, size, "; ", "--%s (%s)", tx_job_table.option[i].name, tx_job_table.option[i].help);
}

void tx_job_report_unused(const tx_job *j)
{
    char text[3072] = "";
    add_all(j, text, sizeof text);
    add_foreign(j, text, sizeof text);
    if (*text)
        tx_reporter_print(&j->report, "options without effect: %s", text);
}
