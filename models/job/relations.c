/* SPDX-License-Identifier: Apache-2.0
 * The rules between options (relations.def), and the check of a run's options against them. */
#include "models/job/inputs.h"

#include "api/base/number.h"
#include "models/files/hub.h"
#include "models/lora/lora.h"
#include "models/task/policy.h"
#include "models/task/preference.h"
#include "models/tokenizer/utf8.h"
#include "models/train/schedule.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const tx_job_relation *tx_job_relations(int32_t *count)
{
    static const tx_job_relation relations[] = {
#define EXCLUDES(a, b, why) {TX_JOB_EXCLUDES, TX_JOB_AT(a), TX_JOB_AT(b), why},
#define NEEDS(a, b, why) {TX_JOB_NEEDS, TX_JOB_AT(a), TX_JOB_AT(b), why},
#define RIVAL(a, b) {TX_JOB_RIVAL, TX_JOB_AT(a), TX_JOB_AT(b), NULL},
#define ONLY(a, condition, why) {TX_JOB_ONLY, TX_JOB_AT(a), TX_JOB_AT(a), why},
#include "models/job/relations.def"
    };
    *count = (int32_t)(sizeof relations / sizeof relations[0]);
    return relations;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

bool tx_job_in_use(const tx_job_settings *set, const tx_option *option)
{
    const char *now = (const char *)set + option->offset, *before = (const char *)&tx_job_defaults + option->offset;
    switch (option->kind) {
    case TX_OPTION_FLAG:
        return *(const bool *)now != *(const bool *)before;
    case TX_OPTION_INTEGER:
        return *(const int64_t *)(const void *)now != *(const int64_t *)(const void *)before;
    case TX_OPTION_REAL:
        return !(*(const double *)(const void *)now == *(const double *)(const void *)before);
    case TX_OPTION_CHOICE:
    case TX_OPTION_LIST:
        return memcmp(now, before, sizeof(int32_t)) != 0;
    default:
        return tx_option_has_value(option) &&
               !same_text(*(const char *const *)(const void *)now, *(const char *const *)(const void *)before);
    }
}

/* ---- Functions of conditions ------------------------------------------------------------------------------- */

static bool has_data(const tx_job_settings *set)
{
    return set->train_file || set->dataset || tx_job_takes_glue(set);
}

/* The number of tokens of a written text. */
static int64_t written_length(const tx_job_settings *set)
{
    return set->generation_max_length ? set->generation_max_length : set->max_target_length;
}

static bool evaluation_decides(const tx_job_settings *set)
{
    const tx_schedule schedule = {.kind = (tx_schedule_kind)set->schedule};
    return tx_schedule_adapts(&schedule);
}

/* lr_scheduler_kwargs are compared with the peak only if it is given, because its default depends on the task. */
static tx_status check_schedule(const tx_job_settings *set, const tx_option_values *options)
{
    const double peak = tx_option_asked(options, TX_JOB_AT(rate)) ? set->rate : HUGE_VAL;
    tx_schedule ignored;
    return tx_job_make_schedule(set, peak, 0, 1, &ignored);
}

static bool is_fraction(double steps)
{
    return steps >= 1 && steps != floor(steps);
}

/* The interval of evaluations in steps. */
static double every(const tx_job_settings *set)
{
    return set->eval_steps > 0 ? set->eval_steps : set->logging_steps;
}

/* As with the Trainer, loading the best model needs a checkpoint of each evaluation. */
static bool saves_evaluations(const tx_job_settings *set)
{
    return set->evaluation && (set->saving == set->evaluation || set->saving == TX_STRATEGY_BEST);
}

/* Whether the optimizer updates 16-bit weights. True for an optimizer that another row refuses. */
static bool stores_bf16(const tx_job_settings *set)
{
    tx_optimizer_options o;
    return tx_job_optimizer(set, &o) != TX_OK || o.kind == TX_ADAMW || o.kind == TX_ADAMW_ANYPRECISION;
}

static tx_status memory_limit(const tx_job_settings *set, int64_t *limit)
{
    tx_checkpointing ignored;
    return tx_job_read_checkpointing(set->checkpointing, &ignored, limit);
}

static bool limits_memory(const tx_job_settings *set)
{
    int64_t limit;
    return memory_limit(set, &limit) == TX_OK && limit > 0;
}

/* Whether the run trains an adapter: a new one, or that in the model's folder, whose settings are read later. */
static bool adapts(const tx_job_settings *set)
{
    char *folder = NULL;
    const bool found = !set->lora_rank && set->model && !tx_job_resumes(set) && !tx_hub_model(set->model, &folder) &&
                       tx_lora_is_folder(folder);
    free(folder);
    return set->lora_rank || found;
}

static tx_status check_tokens(const tx_job_settings *set)
{
    tx_json *json = NULL;
    const tx_status status = set->lora_tokens ? tx_lora_parse_tokens(set->lora_tokens, &json) : TX_OK;
    tx_json_free(json);
    return status;
}

/* The index of the type of products among the values of --bnb_4bit_compute_dtype. */
static int32_t computes(const tx_job_settings *set)
{
    return set->bf16 || set->dtype ? 2 : set->fp16 ? 3 : 1;
}

static const char *const compute_remedies[] = {"", "train without --bf16 and --fp16", "add --bf16", "add --fp16"};
static const char *const lora_inits[] = {"true", TX_LORA_PISSA, TX_LORA_OLORA, TX_LORA_LOFTQ};

/* ---- The check ----------------------------------------------------------------------------------------------- */

/* A run that is judged. */
typedef struct judged {
    tx_job_settings set;
    const tx_option_values *options;
    const tx_task_row *row; /* NULL if the task is not known */
    const tx_task *task;
    char text[3840]; /* all refusals, separated by "; " */
} judged;

static void refuse(judged *run, const char *format, ...) TX_PRINTF(2, 3);

static void refuse(judged *run, const char *format, ...)
{
    char text[sizeof run->text];
    va_list args;
    va_start(args, format);
    tx_format_list(text, sizeof text, format, args);
    va_end(args);
    tx_list_add(run->text, sizeof run->text, "; ", "%s", text);
}

static bool uses(const judged *run, size_t at)
{
    return tx_job_in_use(&run->set, tx_option_at(&tx_job_table, at));
}

static const char *name_at(size_t at)
{
    return tx_option_at(&tx_job_table, at)->name;
}

/* Refuses the options of a trait: "--name why". */
static void refuse_all(judged *run, uint32_t trait, const char *why)
{
    for (const tx_option *o = tx_job_table.option; o < tx_job_table.option + tx_job_table.count; o++)
        if ((tx_job_traits(o) & trait) && tx_job_in_use(&run->set, o))
            refuse(run, "--%s %s", o->name, why);
}

/* Refuses the options that only other tasks have. */
static void refuse_others(judged *run)
{
    char owners[256];
    for (const tx_option *o = tx_job_table.option; o < tx_job_table.option + tx_job_table.count; o++) {
        const uint32_t trait = tx_job_traits(o) & TX_TASK_OPTIONS;
        if (!trait || (trait & run->row->traits) || !tx_job_in_use(&run->set, o))
            continue;
        tx_task_owners(trait, owners, sizeof owners);
        refuse(run, "--%s is for %s; this is %s", o->name, owners, run->task->name);
    }
}

static void refuse_for(judged *run, size_t at, const char *why)
{
    const bool named = run->set.task;
    refuse(run, "--%s is not supported with %s%s: %s", name_at(at), named ? "--task_name " : "",
           named ? run->row->word : run->task->name, why);
}

/* A run writes its options to JSON files, so a text that is not UTF-8 would make the first checkpoint fail. */
static void check_texts(judged *run)
{
    for (const tx_option *o = tx_job_table.option; o < tx_job_table.option + tx_job_table.count; o++) {
        const bool has = o->kind == TX_OPTION_TEXT || o->kind == TX_OPTION_OPTIONAL;
        const char *text = has ? *(const char *const *)(const void *)((const char *)&run->set + o->offset) : NULL;
        const size_t size = text ? strlen(text) : 0, good = tx_utf8_prefix(text, size);
        if (good < size)
            refuse(run,
                   "--%s: byte %zu of its value is not UTF-8, which the JSON files of a run need: rename the file or "
                   "folder",
                   o->name, good + 1);
    }
}

/* A row of relations.def is a statement. */
static void judge(judged *run)
{
    const tx_job_settings *set = &run->set;
    const tx_option_values *options = run->options;
    const tx_task *task = run->task;
#define WHEN(condition, ...) \
    if (condition)           \
        refuse(run, __VA_ARGS__);
#define was_asked(a) tx_option_asked(options, TX_JOB_AT(a))
#define was_typed(a) (uses(run, TX_JOB_AT(a)) && tx_option_from(options, TX_JOB_AT(a)) == TX_OPTION_SET)
#define EXCLUDES(a, b, why)                                                                          \
    WHEN(uses(run, TX_JOB_AT(a)) && uses(run, TX_JOB_AT(b)), "--%s and --%s exclude each other: %s", \
         name_at(TX_JOB_AT(a)), name_at(TX_JOB_AT(b)), why)
#define NEEDS(a, b, why)                                                                                    \
    WHEN(uses(run, TX_JOB_AT(a)) && !uses(run, TX_JOB_AT(b)), "--%s needs --%s: %s", name_at(TX_JOB_AT(a)), \
         name_at(TX_JOB_AT(b)), why)
#define ONLY(a, condition, why) WHEN(uses(run, TX_JOB_AT(a)) && !(condition), "--%s %s", name_at(TX_JOB_AT(a)), why)
#define ALL(trait, condition, why) \
    if (!(condition))              \
        refuse_all(run, trait, why);
#define REFUSED(condition, ...) WHEN(condition, __VA_ARGS__)
#define FAILS(prefix, status) WHEN((status) != TX_OK, "%s%s", prefix, tx_error())
#define IF_KNOWN(task) \
    if (!(task))       \
        return;
#define NOT_FOR(a, condition, why)              \
    if (uses(run, TX_JOB_AT(a)) && (condition)) \
        refuse_for(run, TX_JOB_AT(a), why);
#include "models/job/relations.def"
}

tx_status tx_job_check(const tx_option_values *options, const struct tx_job_inputs *inputs)
{
    judged run = {.set = *(const tx_job_settings *)options->values, .options = options};
    run.row = inputs ? inputs->row : tx_task_named(run.set.task);
    if (inputs)
        run.task = inputs->task;
    else if (run.row)
        run.task = run.set.packing && run.row->task->packed ? run.row->task->packed : run.row->task;
    if (run.set.dtype == TX_JOB_DTYPE_AUTO) /* checked when it is known */
        run.set.dtype = TX_JOB_DTYPE_F32;
    check_texts(&run);
    if (run.row)
        refuse_others(&run);
    judge(&run);
    return *run.text ? tx_fail(TX_INVALID, "%s", run.text) : TX_OK;
}
