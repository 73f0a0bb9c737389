/* SPDX-License-Identifier: Apache-2.0
 * txtrain: trains a GPT-2 and writes it as a Hugging Face model folder. */
#include "api/base/file.h"
#include "tools/cli/output.h"
#include "tools/train/job.h"
#include "tools/train/profile.h"
#include "tools/train/ranks.h"
#include "tools/train/results.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* ---- Signals --------------------------------------------------------------------------------------------------- */

/* Signal handlers have nothing else to write to. */
static volatile sig_atomic_t caught, asked_for_checkpoint;

/* The first signal lets the step in progress end, the second ends the program at once; but what the program does itself
 * may raise SIGPIPE and SIGXFSZ again and again. */
static void on_signal(int number)
{
    if (number == SIGUSR1) {
        asked_for_checkpoint = 1;
        return;
    }
    if (caught && number != SIGPIPE && number != SIGXFSZ)
        _exit(128 + number);
    caught = caught ? caught : number;
}

/* What the process was started with: what is ignored then stays so, as nohup ignores SIGHUP. Looked at before any
 * library begins, since some that MPI brings along handle signals from there on. */
static bool ignored[NSIG];

static void look_at_signals(void)
{
    struct sigaction action;
    for (int number = 1; number < NSIG; number++)
        ignored[number] = sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

__attribute__((section(".preinit_array"), used)) static void (*const first_of_all)(void) = look_at_signals;

/* A shell has SIGINT ignored in what it starts by &; that one counts. */
static void catch_all(const int *signals, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const bool stays = ignored[signals[i]] && signals[i] != SIGINT;
        struct sigaction action = {.sa_handler = stays ? SIG_IGN : on_signal};
        sigemptyset(&action.sa_mask);
        sigaction(signals[i], &action, NULL);
    }
}

/* From the start: none of these may end the program while there is something to save. */
static void catch_early_signals(void)
{
    catch_all((const int[]){SIGUSR1, SIGPIPE, SIGXFSZ}, 3);
}

/* Before there are steps these end the program at once. */
static void catch_signals(void)
{
    catch_all((const int[]){SIGINT, SIGTERM, SIGUSR2, SIGHUP}, 4);
}

static int asked_to_stop(void *context)
{
    (void)context;
    return caught;
}

static bool asked_to_save(void *context)
{
    (void)context;
    const bool asked = asked_for_checkpoint;
    asked_for_checkpoint = 0;
    return asked;
}

/* ---- Preparation ------------------------------------------------------------------------------------------------- */

static tx_status count_steps(tx_train_job *j)
{
    const tx_train_settings *set = j->set;
    if (!j->inputs.train)
        return TX_OK;
    int64_t blocks = tx_dataset_blocks(j->inputs.train);
    j->epoch_steps = tx_loader_epoch_steps(blocks, j->step_rows);
    double steps = set->max_steps > 0 ? (double)set->max_steps : ceil(set->epochs * (double)j->epoch_steps);
    if (!(steps <= (double)UINT32_MAX))
        return tx_fail(TX_INVALID, "%.0f steps are more than can be counted; set max_steps", steps);
    j->steps = (int64_t)steps;
    printf("plan    %" PRId64 " steps an epoch, %" PRId64 " steps in all\n", j->epoch_steps, j->steps);
    return TX_OK;
}

static tx_status load_weights(tx_train_job *j)
{
    const char *folder = j->inputs.model_folder;
    tx_watch_begin(j->watch, TX_WATCH_LOADING);
    tx_status status = tx_model_allocate(j->model);
    if (!status)
        status = folder ? tx_train_load(j, folder) : tx_model_init(j->model, (uint64_t)j->set->seed);
    uint64_t hash;
    if (!status && j->comm->size > 1)
        status = tx_pace_compare_weights(j->model, j->comm, "do all ranks read the same files?", &hash);
    return status;
}

/* Folder and lock; an earlier run's checkpoints go where they are to be overwritten. */
static tx_status open_output(tx_train_job *j)
{
    const char *folder = j->set->output_dir;
    if (j->comm->rank > 0)
        return TX_OK;
    tx_status status = tx_output_prepare(folder);
    if (!status)
        status = tx_output_lock_take(folder, &j->lock);
    if (!status && j->set->overwrite)
        status = tx_checkpoint_clear(folder, &j->report);
    return status;
}

/* ---- Files of the run ---------------------------------------------------------------------------------------------- */

/* Brings back what the checkpoint holds besides the weights, when it fits this run. */
static tx_status resume(tx_train_job *j)
{
    tx_train_inputs *in = &j->inputs;
    tx_json *made = NULL;
    tx_status status = tx_train_describe(j, &made);
    if (!status)
        status = tx_train_agree_on_run(j, made);
    if (!status && in->checkpoint)
        status = tx_run_state_agree(&in->state, made, &j->report);
    if (!status && in->checkpoint)
        status = tx_run_resume(j->model, j->trainer, &in->state, in->checkpoint,
                               j->comm->rank == 0 ? j->set->output_dir : NULL);
    if (!status && in->checkpoint)
        tx_train_look_for_best(j);
    if (status) {
        tx_json_free(made);
        return status;
    }
    tx_json_free(in->state.run);
    in->state.run = made;
    return TX_OK;
}

static tx_status print_account(const tx_train_job *j, const tx_run_summary *summary)
{
    tx_memory planned, counted;
    tx_status status = tx_print_profile(stdout, j->trainer, summary);
    if (!status)
        status = tx_model_memory(j->model, &planned);
    if (!status)
        status = tx_engine_memory(j->engine, &counted);
    struct rusage use;
    if (!status) {
        tx_print_memory(stdout, &planned, &counted);
        if (getrusage(RUSAGE_SELF, &use) == 0)
            printf("peak resident memory of the process: %ld KiB\n", use.ru_maxrss);
    }
    return status;
}

/* The last entry of the history, as the Trainer writes it. */
static tx_status log_end(tx_train_job *j, const tx_run_summary *s)
{
    double samples = (double)s->tokens / (double)j->inputs.block;
    return tx_run_state_log(&j->inputs.state, "train_runtime", s->wall, "train_samples_per_second", samples / s->wall,
                            "train_steps_per_second", (double)s->steps / s->wall, "total_flos", j->inputs.state.flops,
                            "train_loss", s->mean_loss, (const char *)NULL);
}

static tx_status train(tx_train_job *j, tx_run_summary *summary)
{
    tx_run_options run;
    tx_status status = tx_train_make_run(j, asked_to_stop, asked_to_save, &run);
    if (!status)
        status = resume(j);
    if (!status && j->comm->rank == 0)
        status = tx_train_check_room(j, &run);
    if (!status && j->comm->rank == 0 && j->set->dump_order)
        status = tx_train_dump_order(j);
    if (status)
        return status;
    if (j->inputs.state.step >= j->steps)
        printf("the checkpoint is at step %" PRId64 " of %" PRId64 ": nothing is left to train\n", j->inputs.state.step,
               j->steps);
    catch_signals();
    status = tx_train_share_warnings(&j->progress, j->comm);
    tx_train_tell_warnings(&j->progress);
    if (status)
        return status;
    status = tx_run(j->engine, j->model, j->trainer, &run, &j->inputs.state, summary);
    tx_train_clear(&j->progress);
    if (!status)
        printf("trained %" PRId64 " steps, %" PRId64
               " tokens, %.1f s, %.0f tokens/s, waited %.1f s for data, last loss "
               "%.4f\n",
               summary->steps, summary->tokens, summary->seconds,
               summary->seconds > 0 ? (double)summary->tokens / summary->seconds : 0.0, summary->waited, summary->loss);
    if (!status && j->set->profile && !summary->stopped)
        status = print_account(j, summary);
    if (status || summary->stopped)
        return status;
    if (summary->unsaved)
        tx_train_lack(j, "%" PRId64 " %s not written, the last of %s", summary->unsaved,
                      summary->unsaved == 1 ? "checkpoint was" : "checkpoints were", summary->unsaved_why);
    tx_watch_begin(j->watch, TX_WATCH_WRITING);
    status = tx_train_load_best(j);
    if (!status)
        status = log_end(j, summary);
    if (j->comm->rank > 0)
        return status;
    if (!status)
        status = tx_train_write_model(j, j->set->output_dir);
    if (!status)
        printf("saved   %s: config.json, model.safetensors%s\n", j->set->output_dir,
               j->inputs.tokenizer ? ", tokenizer" : "");
    const char *folder = j->set->output_dir;
    return status ? status : tx_run_state_write_trainer(&j->inputs.state, &run.facts, folder, folder);
}

static tx_status evaluate(tx_train_job *j, tx_json **metrics)
{
    tx_run_evaluation e = {.step = j->inputs.state.step, .epoch = j->inputs.state.epoch};
    tx_status status = tx_run_evaluate(j->trainer, j->inputs.validation, j->watch, &e);
    if (status)
        return status;
    if (j->comm->rank > 0)
        return TX_OK;
    *metrics = tx_eval_metrics(&e);
    return *metrics ? tx_train_report(j->set->output_dir, "eval", *metrics) : TX_MEMORY;
}

/* Trains, evaluates and writes what is asked for; a run that a signal ended stops after its checkpoint. */
static tx_status work(tx_train_job *j, tx_run_summary *summary)
{
    tx_json *trained = NULL, *evaluated = NULL;
    tx_status status = j->lock ? TX_OK : open_output(j);
    if (!status)
        status = load_weights(j);
    if (!status)
        status = j->comm->rank == 0 ? tx_train_progress_open(&j->progress) : TX_OK;
    if (!status && j->inputs.train) {
        status = train(j, summary);
        if (!status && !summary->stopped && j->comm->rank == 0) {
            trained = tx_train_metrics(summary, &j->inputs.state, j->inputs.train);
            status = trained ? tx_train_report(j->set->output_dir, "train", trained) : TX_MEMORY;
            tx_train_on_metrics(&j->progress, trained, j->inputs.state.step);
        }
    }
    if (!status && !summary->stopped && j->inputs.validation)
        status = evaluate(j, &evaluated);
    if (!status && !summary->stopped && j->comm->rank == 0)
        status = tx_train_card(j->set, &j->inputs, tx_engine_device(j->engine), trained, evaluated);
    tx_json_free(trained);
    tx_json_free(evaluated);
    tx_train_progress_close(&j->progress);
    return status;
}

/* ---- The program ------------------------------------------------------------------------------------------------- */

/* Ranks behind the first leave it a moment to speak, since they often fail with it: its end ends them. */
static int fail(tx_train_job *j)
{
    char why[600];
    snprintf(why, sizeof why, "%s", tx_error());
    tx_train_tell_warnings(&j->progress);
    if (!j->comm || j->comm->rank == 0)
        return tx_complain(&tx_train_program, TX_EXIT_FAILURE, "%s", why);
    struct timespec moment = {.tv_sec = 3}; /* Open MPI takes one second to end them */
    nanosleep(&moment, NULL);
    return tx_complain(&tx_train_program, TX_EXIT_FAILURE, "rank %" PRId32 " on %s: %s", j->comm->rank,
                       j->comm->ranks[j->comm->rank].name, why);
}

static int dry_run(tx_train_job *j)
{
    tx_memory planned;
    if (tx_model_memory(j->model, &planned))
        return fail(j);
    tx_print_memory(stdout, &planned, NULL);
    return 0;
}

/* Rank 0 goes first: it takes the lock and makes the cache, which the others find. */
static tx_status prepare(tx_train_job *j)
{
    const tx_train_settings *set = j->set;
    bool first = j->comm->rank == 0;
    tx_watch_begin(j->watch, TX_WATCH_READING);
    tx_status status = tx_train_take_place(j);
    if (!status && !first)
        status = tx_train_meet(j);
    if (!status && first && !set->dry_run && !set->overwrite && !set->resume && tx_train_trains(set))
        status = tx_output_check(set->output_dir);
    /* Before the checkpoints are looked at: an interrupted save may have put one aside, another process may remove
     * some. */
    if (!status && !set->dry_run && set->resume && tx_is_folder(set->output_dir))
        status = open_output(j);
    if (!status)
        status = tx_train_open(set, &j->report, &j->inputs);
    if (!status && first)
        status = tx_train_meet(j);
    if (!status)
        status = tx_train_share_warnings(&j->progress, j->comm);
    if (!status && j->comm->size > 1)
        status = tx_train_agree_on_inputs(j);
    if (!status)
        status = tx_train_split(j);
    if (!status)
        status = count_steps(j);
    tx_watch_begin(j->watch, TX_WATCH_COMPILING);
    if (!status)
        status = tx_train_compile(j);
    if (!status)
        tx_train_print_shares(j);
    return status;
}

/* What could not be done is the run's failure, though all ranks have come to its end: the first one tells it. */
static int finish(tx_train_job *j)
{
    j->complete = true;
    if (!j->lacks[0])
        return 0;
    return j->comm->rank > 0 ? TX_EXIT_FAILURE
                             : tx_complain(&tx_train_program, TX_EXIT_FAILURE, "%s; the final model is in %s", j->lacks,
                                           j->set->output_dir);
}

/* `ending`: with which status this rank ends for what its options say, TX_GO_ON where it does not. */
static int start(tx_train_job *j, int ending)
{
    tx_run_summary summary = {0};
    catch_early_signals(); /* MPICH took SIGUSR1 for itself */
    tx_status status = j->comm->size > 1 ? tx_train_agree_on_options(j, ending) : TX_OK;
    if (ending != TX_GO_ON)
        return ending;
    if (status || prepare(j))
        return fail(j);
    if (j->set->dry_run)
        return dry_run(j);
    if (work(j, &summary))
        return fail(j);
    if (!summary.stopped) /* no rank leaves before rank 0 has written everything */
        return tx_train_meet(j) ? fail(j) : finish(j);
    ending = 128 + summary.stopped;
    if (j->comm->rank > 0)
        return ending;
    return tx_complain(&tx_train_program, ending,
                       "stopped by signal %d after step %" PRId64 " of %" PRId64
                       "; go on with --resume_from_checkpoint",
                       summary.stopped, j->inputs.state.step, j->steps);
}

/* The launcher is to learn of a failure. */
static void leave(const tx_comm_table *table)
{
    if (table && table->leave)
        table->leave();
}

/* As one rank of those that the launcher started. After a failure of its own a rank of many leaves at once: the others
 * may be waiting for it, and are ended by the launcher. */
static int run(const tx_train_settings *set, int ending, int *argc, char ***argv)
{
    tx_train_job j = {.set = set, .progress = {.set = set}};
    j.report = tx_train_reporter(&j.progress);
    int result = tx_train_join(&j, argc, argv) == TX_OK ? start(&j, ending) : ending != TX_GO_ON ? ending : fail(&j);
    const bool orderly = result == 0 || result > 128 || j.complete;
    const tx_comm_table *table = j.comm ? j.comm->table : NULL;
    if (result == 0 || j.complete)
        tx_watch_done(j.watch);
    else
        tx_watch_failed(j.watch, result, tx_error());
    if (j.comm && j.comm->size > 1 && !orderly) {
        leave(table);
        fflush(NULL);
        _exit(result);
    }
    tx_output_lock_release(j.lock);
    tx_trainer_free(j.trainer);
    tx_model_free(j.model);
    tx_engine_free(j.engine);
    tx_train_release(&j.inputs);
    free(j.rows_text);
    tx_comm_close(j.comm);
    tx_watch_stop(j.watch);
    if (result)
        leave(table);
    return result;
}

/* A rank of many that its options end tells the others, which wait for it within MPI. */
int main(int argc, char **argv)
{
    tx_train_settings set = tx_train_defaults();
    catch_early_signals();
    int ending = tx_options_parse(&tx_train_program, argc, argv, &set);
    if (ending == TX_GO_ON && set.list_devices)
        ending = tx_print_devices(stdout) ? tx_complain(&tx_train_program, TX_EXIT_FAILURE, "%s", tx_error()) : 0;
    if (ending == TX_GO_ON)
        ending = tx_train_check(&set);
    return ending == TX_GO_ON || tx_launcher_ranks(NULL) > 1 ? run(&set, ending, &argc, &argv) : ending;
}
