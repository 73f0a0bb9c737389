/* SPDX-License-Identifier: Apache-2.0
 *
 * A driver refuses builds, kernels, launches or work-groups while a tiny GPT-2 trains on a simulated card (stand_in.h).
 * The run uses other forms, with the losses of a driver that refuses nothing, or ends with one line that names the
 * device.
 *
 *     test_refusals build|kernel|enqueue RUNS TIMES
 *
 * refuses one of the calls and those after it, TIMES in all (all with 0), in each of RUNS runs. If RUNS is 0 every call
 * has its own run, with programs from the cache.
 *
 *     test_refusals threads
 *
 * refuses nothing: threads other than the first build the programs, once each, with the same bits.
 *
 *     test_refusals group N
 *
 * runs no kernel in work-groups of more than N. Exit status 77: there is no OpenCL device. */
#include "api/model/model.h"
#include "tests/opencl/stand_in.h"
#include "tests/opencl/tiny_training.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 2 };

typedef struct course {
    double loss[STEPS], norm[STEPS];
    bool narrowed; /* a command says that the driver refused its work-groups, or a way is switched off */
} course;

static bool says_so(const tx_plan *plan)
{
    for (int32_t i = 0; i < tx_plan_length(plan); i++) {
        tx_profile_entry entry;
        if (tx_plan_profile_entry(plan, i, &entry) == TX_OK &&
            (strstr(entry.variant, "refused") || strstr(entry.variant, "switched off")))
            return true;
    }
    return false;
}

/* Counts the progress reports of a plan's builds. Sets the count to -1 if a report is inconsistent. */
static void count_told(void *context, const char *what, int64_t done, int64_t total)
{
    long *told = context;
    const bool builds = strcmp(what, "kernels") == 0, known = builds || strcmp(what, "measuring kernels") == 0;
    *told = *told < 0 || !known || done < 0 || done > total ? -1 : *told + builds;
}

static long told;
static const tx_reporter report = {.context = &told, .progress = count_told};

static tx_status train(course *out)
{
    const tx_engine_options open = {.size = sizeof open, .device = "opencl", .report = &report};
    tiny_training t = tiny_without_dropout(STEPS);
    tx_engine *engine = NULL;
    int64_t runs;
    *out = (course){.narrowed = false};
    tx_status status = tx_engine_create(&open, &engine);
    TX_THEN(status, tiny_train(engine, &t));
    if (!status)
        out->narrowed = says_so(tx_trainer_plan(t.trainer, 0, &runs));
    memcpy(out->loss, t.loss, sizeof out->loss);
    memcpy(out->norm, t.norm, sizeof out->norm);
    tiny_free(&t);
    tx_engine_free(engine);
    return status;
}

static bool alike(const course *a, const course *b)
{
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(a->loss[i] - b->loss[i]) <= 1e-4 * b->loss[i]) ||
            !(fabs(a->norm[i] - b->norm[i]) <= 1e-3 * b->norm[i]))
            return false;
    return true;
}

/* Checks the end of a run. Returns a description of the error, or NULL if it is correct. */
static const char *judge(tx_status status, const course *now, const course *usual)
{
    if (stand_in.broken[0])
        return stand_in.broken;
    if (status == TX_OK)
        return alike(now, usual) ? NULL : "the losses are others";
    if (status != TX_DEVICE && status != TX_UNSUPPORTED)
        return "the status is no failure of a device";
    return strstr(tx_error(), "opencl:0 (") ? NULL : "the message does not name the device";
}

/* A launch that is refused once is repeated. After a second refusal another form is used, or the run ends. */
static int refuse_calls(stand_in_call call, long runs, long times, const course *usual, long calls)
{
    long bad = 0, went_on = 0, narrowed = 0;
    stand_in.fails = call;
    stand_in.times = times ? times : LONG_MAX;
    for (long i = 0; i < runs; i++) {
        course now;
        for (int c = 0; c < STAND_IN_CALLS; c++)
            stand_in.calls[c] = 0;
        stand_in.at = runs > 1 ? 1 + i * (calls - 1) / (runs - 1) : 1;
        stand_in.failed = false;
        const tx_status status = train(&now);
        const char *wrong = stand_in.failed ? judge(status, &now, usual) : "the call was not made again";
        if (wrong || status)
            printf("%s  call %ld: %s\n", wrong ? "FAIL" : "ok", stand_in.at, status ? tx_error() : "the run went on");
        if (wrong)
            printf("      %s\n", wrong);
        bad += wrong != NULL;
        went_on += status == TX_OK;
        narrowed += status == TX_OK && now.narrowed;
    }
    printf("%ld of %ld calls refused; %ld runs went on, %ld by other forms, %ld ended badly\n", runs, calls, went_on,
           narrowed, bad);
    return bad || (times > 0 && went_on == 0) || (call == STAND_IN_ENQUEUE && times == 1 && went_on < runs) ||
           (times > 1 && narrowed == 0);
}

static int narrow(size_t group, const course *usual)
{
    course now;
    stand_in.most_group = group;
    const tx_status status = train(&now);
    const char *wrong = status ? tx_error() : judge(status, &now, usual);
    if (!wrong && !now.narrowed)
        wrong = "no command says so";
    printf("%s  work-groups of %zu: %s\n", wrong ? "FAIL" : "ok", group, wrong ? wrong : "the run went on");
    return wrong != NULL;
}

static int build_beside(const course *usual)
{
    course now;
    setenv("TX_CACHE_DIR", "", 1);
    stand_in.calls[STAND_IN_BUILD] = stand_in.beside = 0;
    stand_in.delay = 1; /* so that it takes long enough to be told */
    if (train(&now))
        return printf("FAIL %s\n", tx_error()), 1;
    const long all = stand_in.calls[STAND_IN_BUILD], beside = stand_in.beside;
    const bool same =
        memcmp(now.loss, usual->loss, sizeof now.loss) == 0 && memcmp(now.norm, usual->norm, sizeof now.norm) == 0;
    const bool good = same && beside == all && all > 10 && told > 0;
    printf("%s  %ld of %ld programs built by other threads, told %ld times, %s bits\n", good ? "ok" : "FAIL", beside,
           all, told, same ? "the same" : "other");
    return good ? 0 : 1;
}

int main(int argc, char **argv)
{
    static const char *const names[STAND_IN_CALLS + 1] = {"build", "kernel", "enqueue", "group"};
    course usual;
    int what = 0;
    while (argc > 2 && what <= STAND_IN_CALLS && strcmp(names[what], argv[1]) != 0)
        what++;
    const bool threads = argc == 2 && strcmp(argv[1], "threads") == 0;
    if (!threads && (argc != (what < STAND_IN_CALLS ? 4 : 3) || what > STAND_IN_CALLS))
        return fprintf(stderr, "usage: test_refusals build|kernel|enqueue RUNS TIMES | group N | threads\n"), 2;
    const long number = threads ? 0 : atol(argv[2]);
    setenv("TX_GEMM_TUNE", "0", 1);
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    stand_in.card = "rx7900xtx";
    const tx_status status = train(&usual);
    if (status)
        return printf("%s\n", tx_error()), status == TX_NOT_FOUND ? 77 : 1;
    if (threads)
        return build_beside(&usual);
    if (what == STAND_IN_CALLS)
        return narrow((size_t)number, &usual);
    if (number > 0)
        setenv("TX_CACHE_DIR", "", 1); /* every program is built */
    stand_in.calls[what] = 0;
    if (train(&usual))
        return printf("%s\n", tx_error()), 1;
    const long calls = stand_in.calls[what];
    return refuse_calls((stand_in_call)what, number > 0 ? number : calls, atol(argv[3]), &usual, calls);
}
