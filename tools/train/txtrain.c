/* SPDX-License-Identifier: Apache-2.0
 * txtrain: trains a model and writes it as a Hugging Face model folder. */
#include "tools/cli/options.h"
#include "tools/cli/profile.h"
#include "tools/cli/waiting.h"
#include "tools/train/arguments.h"
#include "tools/train/memory.h"
#include "tools/train/progress.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
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

/* Before there are steps the others end the program at once. The early ones again: libraries that began since took
 * them, as MPICH takes SIGUSR1, and LLVM within an OpenCL driver all of these. */
static void catch_signals(void)
{
    catch_early_signals();
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

/* Ranks behind the first leave it a moment to speak, since they often fail with it: its end ends them. */
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

/* The memory of a dry run. */
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

/* For the thread that prints progress. */
static void tell_doing(void *job, char *text, size_t size)
{
    tx_job_doing(job, text, size);
}

static int run(const tx_cli *program, tx_job *j, tx_alive *alive)
{
    tx_status status = tx_job_join(j);
    if (!status)
        tx_alive_set_status(alive, tell_doing, j);
    catch_early_signals(); /* MPICH took SIGUSR1 for itself */
    TX_THEN(status, tx_job_run(j));
    if (!status || tx_option_flag(tx_job_options(j), "dry_run")) {
        const tx_status shown = show_memory(j);
        status = status ? status : shown;
    }
    const int stopped = tx_job_stopped(j);
    int64_t steps;
    const int64_t step = tx_job_step(j, &steps);
    if (status && tx_job_is_complete(j)) /* all ranks came to the end: the first one tells what is lacking */
        return leads(j) ? fail(program, j) : TX_EXIT_FAILURE;
    if (status)
        return fail(program, j);
    if (stopped && leads(j))
        tx_complain(program, 0, "stopped by signal %d after step %" PRId64 " of %" PRId64 "; %s", stopped, step, steps,
                    tx_option_flag(tx_job_options(j), "save_only_model") ? "the model alone is saved (save_only_model)"
                                                                         : "go on with --resume_from_checkpoint");
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

/* After a failure of its own a rank of many leaves at once: the others may be waiting for it, and are ended by the
 * launcher. */
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

/* The answer to a command line without arguments. */
static int show_usage(const tx_cli *program)
{
    fprintf(stderr,
            "usage: %s\n"
            "Example, which trains a small GPT-2 on the bytes of a text and writes it to the folder out:\n"
            "    txtrain --train_file text.txt --output_dir out --max_steps 200\n"
            "To train a model of your own further, add --model_name_or_path DIR.\n"
            "txtrain --help lists all options.\n",
            program->usage);
    return TX_EXIT_USAGE;
}

/* A rank of many that its options end tells the others, which wait for it within MPI. */
int main(int argc, char **argv)
{
    tx_job *job;
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
    listener.stop = asked_to_stop;
    listener.save = asked_to_save;
    tx_job_listen(job, &listener);
    int ending = argc > 1 ? tx_options_read(&program, argc, argv, options) : show_usage(&program);
    progress.line = !tx_option_flag(options, "disable_tqdm") && isatty(STDERR_FILENO);
    if (ending == TX_GO_ON && tx_option_flag(options, "list_devices"))
        ending = tx_print_devices(stdout) ? tx_complain(&program, TX_EXIT_FAILURE, "%s", tx_error()) : 0;
    const tx_status settled = ending == TX_GO_ON ? tx_job_resolve(job) : TX_OK;
    if (settled)
        ending =
            tx_complain(&program, settled == TX_INVALID || settled == TX_UNSUPPORTED ? TX_EXIT_USAGE : TX_EXIT_FAILURE,
                        "%s", tx_error());
    if (ending == TX_GO_ON)
        tx_wait_passively(argv, (int32_t)tx_option_number(options, "threads"));
    if (ending == TX_GO_ON)
        return tx_end(&program, leave(job, run_alive(&program, job, &progress)));
    tx_job_refuse(job, ending);
    return tx_end(&program, leave(job, ending));
}
