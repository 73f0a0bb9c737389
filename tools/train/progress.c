/* SPDX-License-Identifier: Apache-2.0
 * Prints the lines of a run and its progress line. */
#include "tools/train/progress.h"

#include "tools/cli/profile.h"
#include "tools/cli/terminal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Erases the progress line before another line is printed. */
static void erase_line(const tx_train_progress *progress)
{
    if (progress->line)
        fputs("\r\033[K", stderr);
    tx_alive_printed(progress->alive);
}

static void on_warning(void *context, const char *message)
{
    erase_line(context);
    tx_print_line(stderr, "txtrain: warning: %s", message);
}

/* Prints a line on standard output, wrapped in a terminal. */
static void print_wrapped(const char *line)
{
    enum { INDENT = 8 };
    if (isatty(STDOUT_FILENO))
        tx_print_filled(line, strlen(line), tx_terminal_width(STDOUT_FILENO), 0, INDENT);
    else
        fputs(line, stdout);
    putchar('\n');
    fflush(stdout);
}

#define FIGURE 32

/* Writes a figure with fixed digits, or with an exponent if that needs less room. */
static const char *figure(double value, int digits, char text[FIGURE])
{
    snprintf(text, FIGURE, isfinite(value) && fabs(value) >= 1e15 ? "%.*g" : "%.*f", digits, value);
    return text;
}

static void on_progress(void *context, const char *what, int64_t done, int64_t total)
{
    const tx_train_progress *progress = context;
    tx_alive_progress(progress->alive, what, done, total);
}

static void on_note(void *context, const char *line)
{
    erase_line(context);
    print_wrapped(line);
}

/* Prints the first step and then one every few seconds, or every minute in a file, if there is no progress line. Log
 * lines count as such. */
static void print_step(tx_train_progress *p, const tx_run_step *s)
{
    const double now = tx_now(), pause = isatty(STDOUT_FILENO) ? 9 : 60;
    if (p->steps++ > 0 && now - p->last_line < pause)
        return;
    printf("step %" PRId64 "/%" PRId64 "  loss %s  %.0f tokens/s\n", s->step, s->steps,
           figure(s->loss, 4, (char[FIGURE]){0}), s->tokens_per_second);
    fflush(stdout);
    tx_alive_printed(p->alive);
    p->last_line = now;
}

/* Draws "  42 % [====>     ] 300/705  loss 0.4302  3290 tokens/s  0:01:23 left" in the width of the terminal. */
static void draw_bar(const tx_run_step *s)
{
    enum { LEAST_BAR = 8, MOST_BAR = 40 };
    const int64_t left = (int64_t)s->seconds_left;
    const double share = s->steps > 0 ? (double)s->step / (double)s->steps : 0.0;
    const size_t width = tx_terminal_width(STDERR_FILENO) - 1; /* the last column would begin a new line */
    const bool colored = tx_terminal_has_colors(STDERR_FILENO);
    char text[160], speed[32];
    size_t length = 0;
    snprintf(speed, sizeof speed, "  %.0f tokens/s", s->tokens_per_second);
    for (int with = 1; with >= 0 && (with || length + LEAST_BAR > width); with--)
        length =
            10 + (size_t)snprintf(text, sizeof text, "%" PRId64 "/%" PRId64 "  loss %s%s  %" PRId64 ":%02d:%02d left",
                                  s->step, s->steps, figure(s->loss, 4, (char[FIGURE]){0}), with ? speed : "",
                                  left / 3600, (int)(left / 60 % 60), (int)(left % 60));
    const size_t room = length + LEAST_BAR > width ? 0 : width - length, bar = room < MOST_BAR ? room : MOST_BAR;
    const size_t full = (size_t)(share * (double)bar);
    fprintf(stderr, "\r\033[K %3.0f %% ", 100.0 * share);
    if (bar > 0)
        fprintf(stderr, "[%s%.*s%s%*s] ", colored ? "\033[32m" : "", (int)full,
                "========================================", colored ? "\033[0m" : "", (int)(bar - full), "");
    fprintf(stderr, "%.*s", (int)(width > 7 ? width - 7 : 0), text);
}

static void on_step(void *context, const tx_run_step *s)
{
    tx_train_progress *p = context;
    if (!p->line && p->logged != s->step)
        print_step(p, s);
    if (p->line)
        tx_alive_printed(p->alive);
    if (p->line)
        draw_bar(s);
}

/* Warns once if the loss is far above that of the first log line. */
static void check_loss(tx_train_progress *p, double loss)
{
    enum { RISES = 100, LEAST = 1000 };
    char text[160];
    p->first_loss = p->logged ? p->first_loss : loss;
    if (p->diverged || !(loss > LEAST && loss > RISES * p->first_loss))
        return;
    p->diverged = true;
    snprintf(text, sizeof text, "the loss rose from %.4g to %.4g: the training diverges; lower --learning_rate",
             p->first_loss, loss);
    on_warning(p, text);
}

static void on_log(void *context, const tx_run_step *s, double loss)
{
    tx_train_progress *p = context;
    check_loss(p, loss);
    p->logged = s->step;
    p->steps++;
    p->last_line = tx_now();
    erase_line(p);
    char text[256], speed[32];
    snprintf(speed, sizeof speed, "%.0f tokens/s", s->tokens_per_second);
    snprintf(text, sizeof text, "step %" PRId64 "/%" PRId64 "  epoch %.3f  loss %s  grad norm %s  rate %.3g  ", s->step,
             s->steps, s->epoch, figure(loss, 4, (char[FIGURE]){0}), figure(fabs(s->grad_norm), 3, (char[FIGURE]){0}),
             s->learning_rate);
    if (s->loss_scale > 0)
        tx_list_add(text, sizeof text, "", "loss scale %g, %" PRId64 " skipped  ", s->loss_scale, s->skipped);
    /* The progress bar has the speed too. */
    if (!isatty(STDOUT_FILENO) || strlen(text) + strlen(speed) <= tx_terminal_width(STDOUT_FILENO))
        tx_list_add(text, sizeof text, "", "%s", speed);
    print_wrapped(text);
}

/* Prints the metrics. Speed figures start with eval_runtime and are left out. */
static void on_evaluation(void *context, int64_t step, const tx_figure *metrics, int32_t count)
{
    erase_line(context);
    printf("step %" PRId64 "  eval ", step);
    for (int32_t i = 0; i < count && strcmp(metrics[i].name, "eval_runtime") != 0; i++)
        printf("%s%s %s", i ? "  " : "", metrics[i].name + (strncmp(metrics[i].name, "eval_", 5) == 0 ? 5 : 0),
               figure(metrics[i].value, fabs(metrics[i].value) < 10.0 ? 4 : 2, (char[FIGURE]){0}));
    printf("\n");
    fflush(stdout);
}

static void on_saved(void *context, const char *folder)
{
    erase_line(context);
    tx_print_line(stdout, "saved   %s", folder);
    fflush(stdout);
}

/* ---- The end -------------------------------------------------------------------------------------------- */

static const tx_plan *plan_of(const void *job, int32_t index, int64_t *runs)
{
    return tx_job_plan(job, index, runs);
}

/* Prints the profile of time and the memory of the run (--profile). */
static void print_resources(const tx_job *j)
{
    tx_memory planned, counted;
    tx_traffic traffic;
    struct rusage use;
    const int64_t steps = tx_job_traffic(j, &traffic);
    if (tx_print_profile(stdout, plan_of, j, steps, &traffic) || tx_job_memory(j, &planned, &counted)) {
        tx_print_line(stderr, "txtrain: warning: --profile: %s", tx_error());
        return;
    }
    tx_print_memory(stdout, &planned, &counted, tx_job_params(j));
    if (getrusage(RUSAGE_SELF, &use) == 0)
        printf("peak resident memory of the process: %ld KiB\n", use.ru_maxrss);
}

/* Prints a value in the format of transformers' run_clm. */
static void print_metric(const tx_figure *m, int width)
{
    char text[FIGURE + 32] = "nan";
    if (!isfinite(m->value))
        ;
    else if (m->digits == 0)
        snprintf(text, sizeof text, "%.0f", m->value);
    else if (strstr(m->name, "_runtime"))
        snprintf(text, sizeof text, "%.0f:%02d:%05.2f", floor(m->value / 3600), (int)fmod(m->value / 60, 60),
                 fmod(m->value, 60));
    else if (strcmp(m->name, "total_flos") == 0)
        snprintf(text, sizeof text, "%.0fGF", m->value / 1e9);
    else
        figure(m->value, 4, text);
    printf("  %-*s = %10s\n", width, m->name, text);
}

static void on_results(void *context, const char *split, const tx_figure *metrics, int32_t count)
{
    const tx_train_progress *p = context;
    int width = 0;
    erase_line(p);
    if (tx_option_flag(tx_job_options(p->job), "profile") && strcmp(split, "train") == 0)
        print_resources(p->job);
    for (int32_t i = 0; i < count; i++)
        width = (int)strlen(metrics[i].name) > width ? (int)strlen(metrics[i].name) : width;
    printf("***** %s metrics *****\n", split);
    for (int32_t i = 0; i < count; i++)
        print_metric(&metrics[i], width);
    fflush(stdout);
}

tx_job_listener tx_train_listener(tx_train_progress *progress)
{
    return (tx_job_listener){.size = sizeof(tx_job_listener),
                             .context = progress,
                             .step = on_step,
                             .log = on_log,
                             .evaluation = on_evaluation,
                             .saved = on_saved,
                             .results = on_results,
                             .note = on_note,
                             .warn = on_warning,
                             .progress = on_progress};
}
