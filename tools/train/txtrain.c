/* SPDX-License-Identifier: Apache-2.0
 * txtrain: trains a model and writes it as a Hugging Face model folder. */
#include "tools/cli/options.h"
#include "tools/cli/profile.h"
#include "tools/cli/waiting.h"
#include "tools/train/arguments.h"
#include "tools/train/progress.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* ---- Signals --------------------------------------------------------------------------------------------------- */

/* Written by the signal handler. */
static volatile sig_atomic_t caught, checkpoint_requested;

/* The first signal stops the run after the current step, the second ends the program at once. SIGPIPE and SIGXFSZ are
 * exceptions: the program's own writes may raise them repeatedly. */
static void on_signal(int number)
{
    if (number == SIGUSR1) {
        checkpoint_requested = 1;
        return;
    }
    if (caught && number != SIGPIPE && number != SIGXFSZ)
        _exit(128 + number);
    caught = caught ? caught : number;
}

/* Signals that were ignored when the process started stay ignored: nohup ignores SIGHUP. They are read before any
 * library is initialized, because some libraries that MPI loads install handlers then. */
static bool ignored[NSIG];

static void read_ignored_signals(void)
{
    struct sigaction action;
    for (int number = 1; number < NSIG; number++)
        ignored[number] = sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

__attribute__((section(".preinit_array"), used)) static void (*const before_libraries)(void) = read_ignored_signals;

/* Installs on_signal. SIGINT is handled even if it was ignored: a shell ignores it for programs started with "&". */
static void catch_all(const int *signals, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const bool keeps = ignored[signals[i]] && signals[i] != SIGINT;
        struct sigaction action = {.sa_handler = keeps ? SIG_IGN : on_signal};
        sigemptyset(&action.sa_mask);
        sigaction(signals[i], &action, NULL);
    }
}

/* Handles these signals from the start, so that none of them ends the program before a checkpoint is saved. */
static void catch_early_signals(void)
{
    catch_all((const int[]){SIGUSR1, SIGPIPE, SIGXFSZ}, 3);
}

/* Handles all signals once training steps run; until then the other signals end the program at once. The early ones
 * are installed again, because libraries replaced their handlers: MPICH that of SIGUSR1, LLVM in an OpenCL driver all.
 */
static void catch_signals(void)
{
    catch_early_signals();
    catch_all((const int[]){SIGINT, SIGTERM, SIGUSR2, SIGHUP}, 4);
}

static int stop_requested(void *context)
{
    (void)context;
    return caught;
}

static bool save_requested(void *context)
{
    (void)context;
    const bool requested = checkpoint_requested;
    checkpoint_requested = 0;
    return requested;
}

/* ---- The program ------------------------------------------------------------------------------------------------- */

static void begin(void *context)
{
    (void)context;
    catch_signals();
}

static bool leads(const tx_job *j)
{
    int32_t ranks;
    return tx_job_rank(j, &ranks) == 0;
}

/* Ranks other than 0 wait before they print their error. Rank 0 often fails with the same error, and the launcher then
 * ends them. */
static int fail(const tx_cli *program, const tx_job *j)
{
    if (leads(j))
        return tx_complain(program, TX_EXIT_FAILURE, "%s", tx_error());
    struct timespec moment = {.tv_sec = 3}; /* Open MPI takes one second to end them */
    nanosleep(&moment, NULL);
    struct utsname names;
    int32_t ranks;
    return tx_complain(program, TX_EXIT_FAILURE, "rank %" PRId32 " on %s: %s", tx_job_rank(j, &ranks),
                       uname(&names) == 0 ? names.nodename : "its host", tx_error());
}

/* Prints the planned memory of a dry run. */
static tx_status show_memory(tx_job *j)
{
    tx_memory planned;
    int64_t runs;
    const tx_plan *plan = tx_job_plan(j, 1, &runs);
    if (!plan || !tx_option_flag(tx_job_options(j), "dry_run") || !leads(j))
        return TX_OK;
    TX_TRY(tx_job_memory(j, &planned, NULL));
    tx_print_memory(stdout, &planned, NULL, tx_job_params(j));
    return tx_print_peak(stdout, plan);
}

/* The status callback of the thread that prints progress. */
static void write_status(void *job, char *text, size_t size)
{
    tx_job_doing(job, text, size);
}

static int run(const tx_cli *program, tx_job *j, tx_alive *alive)
{
    tx_status status = tx_job_join(j);
    if (!status)
        tx_alive_set_status(alive, write_status, j);
    catch_early_signals(); /* MPICH replaced the handler of SIGUSR1 */
    TX_THEN(status, tx_job_run(j));
    if (!status || tx_option_flag(tx_job_options(j), "dry_run")) {
        const tx_status shown = show_memory(j);
        status = status ? status : shown;
    }
    const int stopped = tx_job_stopped(j);
    int64_t steps;
    const int64_t step = tx_job_step(j, &steps);
    if (status && tx_job_is_complete(j)) /* all ranks reached the end: only rank 0 prints the error */
        return leads(j) ? fail(program, j) : TX_EXIT_FAILURE;
    if (status)
        return fail(program, j);
    if (stopped && leads(j))
        tx_complain(program, 0, "stopped by signal %d after step %" PRId64 " of %" PRId64 "; %s", stopped, step, steps,
                    tx_option_flag(tx_job_options(j), "save_only_model") ? "only the model is saved (save_only_model)"
                                                                         : "continue with --resume_from_checkpoint");
    return stopped ? 128 + stopped : 0;
}

static int run_alive(const tx_cli *program, tx_job *j, tx_train_progress *progress)
{
    progress->alive = tx_alive_start(program, stdout, "starting");
    const int result = run(program, j, progress->alive);
    tx_alive_stop(progress->alive);
    progress->alive = NULL;
    return result;
}

/* Ends this rank. After an error that is not common to all ranks it exits without MPI_Finalize, because the others may
 * wait for it; the launcher then ends them. */
static int leave(tx_job *j, int result)
{
    const bool orderly = result == 0 || result > 128 || tx_job_is_complete(j);
    int32_t ranks;
    tx_job_rank(j, &ranks);
    if (result)
        tx_job_leave(j);
    if (ranks > 1 && !orderly) {
        fflush(NULL);
        _exit(result);
    }
    tx_job_free(j);
    return result;
}

/* Prints the usage if there are no arguments. */
static int show_usage(const tx_cli *program)
{
    fprintf(stderr,
            "usage: %s\n"
            "Example: train a small GPT-2 on the bytes of a text and write it to the folder out:\n"
            "    txtrain --train_file text.txt --output_dir out --max_steps 200\n"
            "To fine-tune a model of your own, add --model_name_or_path DIR.\n"
            "txtrain --help shows the options that most runs need.\n",
            program->usage);
    return TX_EXIT_USAGE;
}

/* If a rank of several ends because of its options, tx_job_refuse tells the other ranks, which wait for it in MPI. */
int main(int argc, char **argv)
{
    tx_job *job;
    tx_engine_workers(argc, argv);
    catch_early_signals();
    if (tx_job_create(&job)) {
        tx_print_line(stderr, "txtrain: %s", tx_error());
        return TX_EXIT_FAILURE;
    }
    tx_option_values *options = tx_job_options(job);
    const tx_cli program = tx_train_arguments(&options->table);
    tx_train_progress progress = {.job = job};
    tx_job_listener listener = tx_train_listener(&progress);
    listener.begin = begin;
    listener.stop = stop_requested;
    listener.save = save_requested;
    tx_job_listen(job, &listener);
    int result = argc > 1 ? tx_options_read(&program, argc, argv, options) : show_usage(&program);
    progress.line = !tx_option_flag(options, "disable_tqdm") && isatty(STDERR_FILENO);
    if (result == TX_GO_ON && tx_option_flag(options, "list_devices"))
        result = tx_print_devices(stdout) ? tx_complain(&program, TX_EXIT_FAILURE, "%s", tx_error()) : 0;
    const tx_status resolved = result == TX_GO_ON ? tx_job_resolve(job) : TX_OK;
    if (resolved)
        result = tx_complain(&program,
                             resolved == TX_INVALID || resolved == TX_UNSUPPORTED ? TX_EXIT_USAGE : TX_EXIT_FAILURE,
                             "%s", tx_error());
    if (result == TX_GO_ON)
        tx_wait_passively(argv, (int32_t)tx_option_number(options, "threads"));
    if (result == TX_GO_ON)
        return tx_end(&program, leave(job, run_alive(&program, job, &progress)));
    tx_job_refuse(job, result);
    return tx_end(&program, leave(job, result));
}
