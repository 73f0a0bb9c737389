/* SPDX-License-Identifier: Apache-2.0
 * Lines, the progress line, event files. */
#include "tools/train/progress.h"

#include "api/base/clock.h"
#include "api/base/file.h"
#include "models/text/hash.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- Event files ---------------------------------------------------------------------------------------------- */

/* A point under the tag that the Trainer's callback gives the name. */
static void add_point(const tx_train_progress *p, const char *name, int64_t step, double value)
{
    char tag[96];
    bool eval = strncmp(name, "eval_", 5) == 0;
    snprintf(tag, sizeof tag, "%s/%s", eval ? "eval" : "train", eval ? name + 5 : name);
    if (p->board)
        tx_tensorboard_scalar(p->board, tag, step, value, tx_seconds(CLOCK_REALTIME));
}

static char *default_folder(const char *output_dir)
{
    char host[64] = "", name[128], when[32];
    time_t now = time(NULL);
    struct tm local;
    gethostname(host, sizeof host - 1);
    localtime_r(&now, &local);
    strftime(when, sizeof when, "%b%d_%H-%M-%S", &local);
    snprintf(name, sizeof name, "runs/%s_%s", when, host);
    return tx_path_join(output_dir, name);
}

tx_status tx_train_progress_open(tx_train_progress *progress)
{
    const tx_train_settings *set = progress->set;
    progress->terminal = !set->no_progress && isatty(STDERR_FILENO);
    if (!(set->report_to & (1u << TX_REPORT_TENSORBOARD | 1u << TX_REPORT_ALL)))
        return TX_OK;
    char *folder = set->logging_dir ? strdup(set->logging_dir) : default_folder(set->output_dir);
    if (!folder)
        return tx_fail(TX_MEMORY, "no memory for the name of the event file");
    tx_reporter report = tx_train_reporter(progress);
    tx_status status = tx_tensorboard_open(folder, &report, &progress->board);
    free(folder);
    return status;
}

void tx_train_progress_close(tx_train_progress *progress)
{
    tx_tensorboard_close(progress->board);
    progress->board = NULL;
}

/* ---- Lines ------------------------------------------------------------------------------------------------------ */

void tx_train_clear(const tx_train_progress *progress)
{
    if (progress->terminal)
        fputs("\r\033[K", stderr);
}

static void print_warning(const tx_train_progress *p, const char *message)
{
    tx_train_clear(p);
    if (p->comm && p->comm->rank > 0)
        tx_print_line(stderr, "txtrain: warning: rank %" PRId32 " on %s: %s", p->comm->rank,
                      p->comm->ranks[p->comm->rank].name, message);
    else
        tx_print_line(stderr, "txtrain: warning: %s", message);
}

/* Adds a line to the warnings kept; false where there is no memory. */
static bool keep_warning(tx_train_progress *p, const char *message)
{
    const size_t used = p->kept ? strlen(p->kept) : 0, size = strlen(message);
    char *grown = realloc(p->kept, used + size + 2);
    if (!grown)
        return false;
    memcpy(grown + used, message, size);
    memcpy(grown + used + size, "\n", 2);
    p->kept = grown;
    return true;
}

static void warn(void *context, const char *message)
{
    tx_train_progress *p = context;
    if (!p->tells && p->comm && p->comm->size > 1 && keep_warning(p, message) && p->comm->rank > 0)
        return;
    print_warning(p, message);
}

/* Something long goes on: the watch tells the other ranks, and whom it ends, of what and how far. */
static void go_on(void *context, const char *what, int64_t done, int64_t total)
{
    const tx_train_progress *p = context;
    char detail[64];
    const char *slash = strrchr(what, '/');
    snprintf(detail, sizeof detail, "%.40s, %.0f %%", slash ? slash + 1 : what,
             total > 0 ? 100.0 * (double)done / (double)total : 0.0);
    tx_watch_alive(p->watch, detail);
}

static void print_kept(tx_train_progress *p)
{
    char *rest = NULL;
    for (char *line = p->kept ? strtok_r(p->kept, "\n", &rest) : NULL; line; line = strtok_r(NULL, "\n", &rest))
        print_warning(p, line);
}

static void forget_kept(tx_train_progress *p)
{
    free(p->kept);
    p->kept = NULL;
}

tx_status tx_train_share_warnings(tx_train_progress *p, tx_comm *comm)
{
    const char *kept = p->kept ? p->kept : "";
    const uint64_t hash = tx_hash_bytes(kept, strlen(kept));
    uint64_t *all = calloc((size_t)comm->size, sizeof *all);
    if (!all)
        return tx_fail(TX_MEMORY, "no memory to compare the ranks");
    all[comm->rank] = hash;
    tx_status status = tx_comm_share(comm, all, sizeof *all);
    if (comm->rank > 0 && all[0] != hash)
        print_kept(p);
    free(all);
    forget_kept(p);
    return status;
}

void tx_train_tell_warnings(tx_train_progress *p)
{
    if (p->comm && p->comm->rank > 0)
        print_kept(p);
    forget_kept(p);
    p->tells = true;
}

tx_reporter tx_train_reporter(tx_train_progress *progress)
{
    return (tx_reporter){warn, progress, go_on};
}

void tx_train_on_step(void *context, const tx_run_step *s)
{
    const tx_train_progress *p = context;
    int64_t left = (int64_t)s->seconds_left;
    if (p->terminal)
        fprintf(stderr, "\r\033[Kstep %" PRId64 "/%" PRId64 "  loss %.4f  %.0f tokens/s  %" PRId64 ":%02d:%02d left",
                s->step, s->steps, s->loss, s->tokens_per_second, left / 3600, (int)(left / 60 % 60), (int)(left % 60));
}

void tx_train_on_log(void *context, const tx_run_step *s, double loss)
{
    const tx_train_progress *p = context;
    tx_train_clear(p);
    printf("step %" PRId64 "/%" PRId64 "  epoch %.3f  loss %.4f  grad norm %.3f  rate %.3g  %.0f tokens/s\n", s->step,
           s->steps, s->epoch, loss, s->grad_norm, s->learning_rate, s->tokens_per_second);
    fflush(stdout);
    add_point(p, "loss", s->step, loss);
    add_point(p, "grad_norm", s->step, s->grad_norm);
    add_point(p, "learning_rate", s->step, s->learning_rate);
    add_point(p, "epoch", s->step, s->epoch);
}

void tx_train_on_evaluation(void *context, const tx_run_evaluation *e)
{
    const tx_train_progress *p = context;
    tx_train_clear(p);
    printf("step %" PRId64 "  eval loss %.4f  perplexity %.2f\n", e->step, e->loss, e->perplexity);
    fflush(stdout);
    add_point(p, "eval_loss", e->step, e->loss);
    add_point(p, "eval_runtime", e->step, e->seconds);
    add_point(p, "eval_samples_per_second", e->step, (double)e->samples / e->seconds);
    add_point(p, "eval_steps_per_second", e->step, (double)e->batches / e->seconds);
}

void tx_train_on_note(void *context, const char *line)
{
    tx_train_clear(context);
    tx_print_line(stdout, "%s", line);
    fflush(stdout);
}

void tx_train_on_saved(void *context, const char *folder)
{
    const tx_train_progress *p = context;
    tx_train_clear(p);
    tx_print_line(stdout, "saved   %s", folder);
    fflush(stdout);
}

void tx_train_on_metrics(tx_train_progress *progress, const tx_json *metrics, int64_t step)
{
    for (void *i = tx_json_first(metrics); i; i = tx_json_next(metrics, i)) {
        double value;
        if (!tx_json_as_number(tx_json_value(i), tx_json_key(i), -INFINITY, INFINITY, &value))
            add_point(progress, tx_json_key(i), step, value);
    }
}
