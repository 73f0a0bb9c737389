/* SPDX-License-Identifier: Apache-2.0
 * txsearch: hyperparameter search by trials of txtrain. */
#include "tools/search/txsearch.h"

#include "tools/train/arguments.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Options --------------------------------------------------------------------------------------------------- */

#define AT(member) offsetof(tx_search_settings, member)
#define WORD(name, word) "|" word
static const char method_words[] = TX_METHOD_MAP(WORD);

static const tx_option options[] = {
    {TX_OPTION_WORDS, "search", AT(search), .most = TX_SPACE_MOST, .choices = "NAME=RANGE|default|FILE.json",
     .help = "options to search, with ranges uniform:LOW:HIGH[:STEP], loguniform:LOW:HIGH, int:LOW:HIGH[:STEP], "
             "logint:LOW:HIGH or choice:A,B,C; default is the space of Trainer.hyperparameter_search"},
    {TX_OPTION_TEXT, "output_dir", AT(output_dir), .choices = "DIR",
     .help = "folder of trials and results; a search in this folder is resumed"},
    {TX_OPTION_INTEGER, "trials", AT(trials), 1, 100000, "N", "number of trials; a grid may have fewer"},
    {TX_OPTION_CHOICE, "method", AT(method), .choices = method_words + 1,
     .help = "tree-structured Parzen estimator, random search or grid search"},
    {TX_OPTION_INTEGER, "seed", AT(seed), 0, 0x1p53, "N", "seed of the method"},
    {TX_OPTION_TEXT, "metric", AT(metric), .choices = "NAME",
     .help = "metric to optimize: loss, accuracy or another metric of evaluation, perplexity, or train_loss"},
    {TX_OPTION_CHOICE, "direction", AT(direction), .choices = "auto|minimize|maximize",
     .help = "auto minimizes losses, errors (mse), perplexity and runtime, and maximizes other metrics"},
    {TX_OPTION_INTEGER, "halving", AT(rung), 0, INT32_MAX, "N",
     "successive halving (ASHA): after N, N*F, N*F*F, ... steps only the best trials continue; 0 turns it off"},
    {TX_OPTION_INTEGER, "reduction_factor", AT(factor), 2, 1000, "F", "with --halving: one in F trials continues"},
    {TX_OPTION_INTEGER, "n_startup_trials", AT(start_trials), 0, 100000, "N",
     "tpe: number of random trials at the start"},
    {TX_OPTION_INTEGER, "n_ei_candidates", AT(candidates), 1, 100000, "N", "tpe: number of candidates per suggestion"},
    {TX_OPTION_INTEGER, "grid_points", AT(grid_points), 2, 100000, "N",
     "grid: largest number of values of a range; a choice has all its values"},
    {TX_OPTION_INTEGER, "parallel", AT(parallel), 1, 256, "N",
     "number of trials that run at the same time and divide the cores"},
    {TX_OPTION_TEXT, "devices", AT(devices), .choices = "DEVICE,...",
     .help = "devices for parallel trials, one each: opencl:0,opencl:1"},
    {TX_OPTION_INTEGER, "ranks", AT(ranks), 1, 1 << 20, "N", "ranks of each trial, started by txlaunch"},
    {TX_OPTION_CHOICE, "keep", AT(keep), .choices = "best|all", .help = "models to keep"},
};

static const tx_search_settings defaults = {.trials = 20,
                                            .metric = "eval_loss",
                                            .factor = 4,
                                            .start_trials = 10,
                                            .candidates = 24,
                                            .grid_points = 5,
                                            .parallel = 1,
                                            .ranks = 1};

static const tx_cli program = {
    .name = "txsearch",
    .one_process = "start it without the launcher",
    .usage = "txsearch --search NAME=RANGE... --output_dir DIR [options] -- OPTIONS",
    .about =
        "Searches for the best hyperparameters. Each trial runs txtrain with other values of the searched options.\n"
        "The options after -- are txtrain's, the same in every trial. If you run the same command again, the search\n"
        "resumes. OUT/best is the best model, OUT/best.json its options, OUT/search.html a report.\n"
        "\n"
        "Exit status: 0 if a trial is complete, 1 if none is, 128 + N after signal N.",
    .example = "  txsearch --search default --output_dir out -- --model gpt2 --train_file book.txt\n"
               "  txsearch --search learning_rate=loguniform:1e-5:1e-3 warmup_ratio=uniform:0:0.2 \\\n"
               "      --output_dir out --trials 50 --halving 100 -- train.json --max_steps 2000",
    .table = {TX_CLI_OPTIONS(options)},
    .values = &defaults,
    .operand = "OPTION",
    .operands = AT(command),
    .operands_most = INT32_MAX,
};

/* ---- Settings -------------------------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* Finds the metric's key in the results, and its direction. For transformers' Trainer, larger is better unless the name
 * ends in "loss". */
static tx_status resolve_metric(tx_search *s)
{
    static const char *const least[] = {"loss", "perplexity", "mse", "runtime"};
    const char *name = s->set->metric;
    const bool whole =
        strncmp(name, "eval_", 5) == 0 || strncmp(name, "train_", 6) == 0 || strcmp(name, "perplexity") == 0;
    if (strlen(name) + 6 > sizeof s->metric)
        return tx_fail(TX_INVALID, "--metric %s: the name is too long", name);
    snprintf(s->metric, sizeof s->metric, "%s%s", whole ? "" : "eval_", name);
    bool greater = true;
    for (size_t i = 0; i < sizeof least / sizeof least[0]; i++)
        greater = greater && !ends_with(name, least[i]);
    s->study.greater = s->set->direction ? s->set->direction == 2 : greater;
    return s->set->rung && strncmp(name, "train_", 6) == 0
               ? tx_fail(TX_INVALID, "--halving needs a metric of evaluation: --metric %s is not one", name)
               : TX_OK;
}

/* Reads txtrain's options after the two dashes. Returns TX_GO_ON or the exit status. */
static int read_command(tx_search *s)
{
    const tx_words *words = &s->set->command;
    if (tx_job_create(&s->job))
        return tx_complain(&program, TX_EXIT_FAILURE, "%s", tx_error());
    tx_option_values *given = tx_job_options(s->job);
    const tx_cli train = tx_train_arguments(&given->table);
    char **argv = calloc((size_t)words->count + 2, sizeof *argv);
    if (!argv)
        return tx_complain(&program, TX_EXIT_FAILURE, "no memory for the options");
    argv[0] = (char *)(uintptr_t)train.name; /* argv is not written to */
    for (int32_t i = 0; i < words->count; i++)
        argv[i + 1] = (char *)(uintptr_t)words->word[i];
    const int status = tx_options_read(&train, words->count + 1, argv, given);
    free(argv);
    return status;
}

/* Splits --devices at commas. */
static tx_status read_devices(tx_search *s)
{
    static const tx_option row[] = {{TX_OPTION_WORDS, "devices", 0, .choices = "DEVICE"}};
    char word[256];
    s->words = (tx_option_values){.table = {.option = row, .count = 1}, .values = &s->devices};
    for (const char *at = s->set->devices; at; at = strchr(at, ','), at += at ? 1 : 0) {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ","), at);
        TX_TRY(tx_option_set(&s->words, "devices", word));
    }
    return s->devices.count > 0 && tx_trial_given(s->job, "device")
               ? tx_fail(TX_INVALID, "--devices and txtrain's --device exclude each other")
               : TX_OK;
}

static tx_status resolve_settings(tx_search *s)
{
    const tx_search_settings *set = s->set;
    if (!set->output_dir)
        return tx_fail(TX_INVALID, "--output_dir is missing: give a folder for the trials");
    s->folder = set->output_dir;
    s->study.method = (tx_method)set->method;
    s->study.seed = (uint64_t)set->seed;
    s->study.start_trials = (int32_t)set->start_trials;
    s->study.candidates = (int32_t)set->candidates;
    s->study.grid_points = (int32_t)set->grid_points;
    s->study.rung = set->rung;
    s->study.factor = set->factor;
    TX_TRY(resolve_metric(s));
    TX_TRY(tx_space_read(&set->search, tx_job_options(s->job), &s->study.space));
    TX_TRY(read_devices(s));
    TX_TRY(tx_trial_check(s));
    const int64_t grid = tx_study_grid_size(&s->study);
    s->trials = (int32_t)(set->method == TX_METHOD_GRID && grid < set->trials ? grid : set->trials);
    if (set->method == TX_METHOD_GRID && grid > set->trials)
        tx_print_line(stderr, "%s: the grid has %" PRId64 " points; only the first %" PRId64 " are tried (--trials)",
                      program.name, grid, set->trials);
    return TX_OK;
}

/* ---- The search ------------------------------------------------------------------------------------------------ */

static void print_best(const tx_search *s)
{
    char command[4200];
    const int32_t best = tx_study_best(&s->study);
    if (best < 0)
        return;
    tx_print_line(stdout, "best: trial %" PRId32 ", %s %.6g: %s/" TX_SEARCH_BEST ", %s/" TX_SEARCH_BEST ".json", best,
                  s->metric, s->study.trial[best].value, s->folder, s->folder);
    tx_search_command(s, command, sizeof command);
    tx_print_line(stdout, "%s", command);
}

static int search(tx_search *s)
{
    int caught = 0;
    tx_status status = tx_output_lock_take(s->folder, &s->lock);
    TX_THEN(status, tx_state_open(s));
    if (!status && s->study.count > 0)
        tx_print_line(stdout, "%s: resuming with %" PRId32 " trial%s", s->folder, s->study.count, tx_s(s->study.count));
    TX_THEN(status, tx_search_run(s, &caught));
    if (status)
        return tx_complain(&program, status == TX_INVALID ? TX_EXIT_USAGE : TX_EXIT_FAILURE, "%s", tx_error());
    print_best(s);
    if (caught) {
        tx_complain(&program, 0, "ended by signal %d; run the same command to resume", caught);
        return 128 + caught;
    }
    if (tx_study_best(&s->study) >= 0)
        return 0;
    const char *why = s->study.count > 0 ? s->study.trial[s->study.count - 1].message : NULL;
    return tx_complain(&program, TX_EXIT_FAILURE, "none of %" PRId32 " trial%s is complete%s%s", s->study.count,
                       tx_s(s->study.count), why ? "; the last one: " : "", why ? why : "");
}

int main(int argc, char **argv)
{
    tx_search_settings set = defaults;
    tx_search s = {.set = &set};
    int status = tx_options_parse(&program, argc, argv, &set);
    if (status == TX_GO_ON)
        status = read_command(&s);
    if (status == TX_GO_ON && resolve_settings(&s))
        status = tx_complain(&program, TX_EXIT_USAGE, "%s", tx_error());
    if (status == TX_GO_ON) {
        s.alive = tx_alive_start(&program, stdout, "preparing");
        status = search(&s);
        tx_alive_stop(s.alive);
    }
    tx_output_lock_release(s.lock);
    tx_study_free(&s.study);
    tx_job_free(s.job);
    tx_option_values_free(&s.words);
    free(s.worker);
    return tx_end(&program, status);
}
