/* SPDX-License-Identifier: Apache-2.0
 * The watch over a run, on a simulated communicator: which rank reports when, and that none reports while there is
 * progress. The end of the process is a function of the test. The test waits without a limit for expected events. It
 * looks for unexpected ones over many times the watch's limit. */
#include "comm/watch_state.h"
#include "tests/launch/fake.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The limit that holds now; 0 if nothing watches. */
static double limit_of(tx_watchdog *w)
{
    pthread_mutex_lock(&w->lock);
    const double limit = w->running ? tx_watchdog_limit_now(w) : 0.0;
    pthread_mutex_unlock(&w->lock);
    return limit;
}

static void the_one_that_waits_names_the_other(void **state)
{
    fake f;
    make(&f, 0, 2);
    await(&f, 1, 3, UNHEARD);
    tx_watchdog *watch = begin(&f, 0.1);
    tx_watchdog_step(watch, 42);
    await_end(&f);
    tx_watchdog_stop(watch);
    assert_int_equal(f.told, 42);
    assert_string_equal(f.doing, "training");
    assert_int_equal(f.did.status, TX_WATCHDOG_STATUS);
    assert_int_equal(f.did.lines, 2); /* the first is that rank 1 is not heard */
    assert_non_null(
        strstr(f.did.line, "train: rank 1 on one does not answer: last step unknown, bucket 3 not reached for 0."));
    assert_non_null(strstr(f.did.line, " s; the run ends; start again"));
    assert_null(strchr(f.did.line, '\n'));
}

static void ranks_that_are_not_heard_are_told_of(void **state)
{
    fake f;
    make(&f, 0, 4);
    f.others[2] = f.others[3] = UNHEARD;
    tx_watchdog *watch = begin(&f, 600.0);
    tx_watchdog_stop(watch);
    assert_int_equal(f.did.lines, 1);
    assert_non_null(strstr(f.did.line,
                           "train: warning: no datagram (UDP) of 2 ranks arrives at rank 0 on one; the first is "
                           "rank 2 on two."));
}

static void ranks_that_wait_for_each_other_end(void **state)
{
    fake f;
    make(&f, 0, 3);
    await(&f, 2, -1, WAITING);
    f.others[1] = WAITING;
    f.awaited[2] = 1;
    f.awaited[1] = 0;
    tx_watchdog *watch = begin(&f, 0.05);
    tx_watchdog_step(watch, 42);
    await_end(&f);
    tx_watchdog_stop(watch);
    assert_non_null(strstr(f.did.line,
                           "rank 2 on two does not answer: last step 41, phase compiling, current transfer not "
                           "reached for 0."));
}

/* Statuses of ranks that begin transfers all the time can be stale, and look like a circle. */
static void ranks_with_transfers_go_on(void **state)
{
    char why[1000];
    int status;
    fake f;
    make(&f, 0, 2);
    await(&f, 1, -1, WAITING);
    f.awaited[1] = 0;
    tx_watchdog *watch = begin(&f, 600.0);
    tx_watchdog_begin(watch, TX_WATCHDOG_GENERATING);
    for (int64_t begun = 1; begun <= 4; begun++) {
        pthread_mutex_lock(&watch->lock);
        f.laggard.begun = begun < 4 ? begun : 3;
        watch->quiet = 700.0;
        assert_int_equal(tx_watchdog_judge(watch, &status, why, sizeof why), begun == 4);
        watch->quiet = 0.0;
        pthread_mutex_unlock(&watch->lock);
    }
    tx_watchdog_stop(watch);
}

/* A rank that is alive and waits for no other is not reported, for any time: its own watch does that. */
static void a_busy_rank_is_waited_for(void **state)
{
    fake f[2];
    tx_watchdog *watch[2];
    for (int32_t rank = 0; rank <= 1; rank++) {
        make(&f[rank], rank, 4);
        if (rank == 0) { /* by way of another one */
            await(&f[rank], 1, 7, WAITING);
            f[rank].awaited[1] = 3;
            f[rank].others[3] = BUSY;
        } else { /* of those that it does not hear, rank 0 knows */
            await(&f[rank], 3, 7, UNHEARD);
            f[rank].others[0] = BUSY;
        }
        watch[rank] = begin(&f[rank], 0.05);
        tx_watchdog_step(watch[rank], 42);
    }
    rest(1.0);
    for (int32_t rank = 0; rank <= 1; rank++) {
        assert_int_equal(f[rank].did.ends, 0);
        f[rank].others[rank == 0 ? 3 : 0] = SILENT;
    }
    for (int32_t rank = 0; rank <= 1; rank++) {
        await_end(&f[rank]);
        tx_watchdog_stop(watch[rank]);
        assert_non_null(strstr(f[rank].did.line, rank == 0
                                                     ? "train: rank 3 on two does not answer: last step 41, phase "
                                                       "compiling, no sign of life for "
                                                     : "train: rank 0 on one does not answer: last step 41, "));
    }
}

static void the_one_that_hangs_says_so(void **state)
{
    fake f;
    make(&f, 3, 4);
    tx_watchdog *watch = begin(&f, 0.05);
    tx_watchdog_step(watch, 7);
    tx_watchdog_alive(watch, "book.txt, 43 %");
    await_end(&f);
    tx_watchdog_stop(watch);
    assert_int_equal(f.did.status, TX_WATCHDOG_STATUS);
    assert_non_null(strstr(f.did.line, "train: rank 3 on two is stuck: last step 7, phase training: book.txt, 43 %, no "
                                       "progress for "));
}

/* Whether a watch ends its process after so many seconds without progress. */
static bool ends_after(tx_watchdog *watch, double seconds)
{
    char why[1000];
    int status;
    pthread_mutex_lock(&watch->lock);
    watch->quiet = seconds;
    const bool ends = tx_watchdog_judge(watch, &status, why, sizeof why);
    pthread_mutex_unlock(&watch->lock);
    return ends;
}

/* Ranks in the order in which they speak, when rank 2 does not answer: 0, then 3, then 1. */
static void others_hold_back(void **state)
{
    static const int32_t order[] = {0, 3, 1};
    for (int i = 0; i < 3; i++) {
        fake f;
        make(&f, order[i], 4);
        f.others[0] = UNHEARD; /* else the others leave it to rank 0 */
        await(&f, 2, 0, UNHEARD);
        tx_watchdog *watch = begin(&f, 600.0);
        tx_watchdog_step(watch, 1);
        assert_true(ends_after(watch, 600.3) == (i == 0));
        assert_true(ends_after(watch, 603.1) == (i <= 1));
        assert_true(ends_after(watch, 609.0));
        assert_false(ends_after(watch, 0.0));
        tx_watchdog_stop(watch);
    }
}

static void progress_keeps_it_silent(void **state)
{
    fake f;
    make(&f, 0, 2);
    /* A step every hundredth of the limit: a machine that holds this thread up for the whole limit is not one. */
    tx_watchdog *watch = begin(&f, 1.0);
    for (int64_t step = 1; step <= 150; step++) {
        rest(0.01);
        if (step % 2)
            tx_watchdog_step(watch, step);
        else
            tx_watchdog_alive(watch, NULL);
    }
    assert_int_equal(f.did.ends, 0);
    assert_int_equal(f.did.lines, 0);
    await_end(&f); /* and now there is none */
    tx_watchdog_stop(watch);
}

/* Long phases have a limit of their own; a process that no longer lives has none of them. */
static void a_stopped_process_has_no_phase(void **state)
{
    fake f[TX_WATCHDOG_PHASE_COUNT];
    tx_watchdog *watch[TX_WATCHDOG_PHASE_COUNT];
    for (int32_t phase = TX_WATCHDOG_READING; phase < TX_WATCHDOG_PHASE_COUNT; phase++) {
        make(&f[phase], 0, 2);
        f[phase].others[1] = BUSY;
        watch[phase] = begin(&f[phase], 0.1);
        tx_watchdog_begin(watch[phase], (tx_watchdog_phase)phase);
    }
    rest(0.5);
    for (int32_t phase = TX_WATCHDOG_READING; phase < TX_WATCHDOG_PHASE_COUNT; phase++) {
        assert_int_equal(f[phase].did.ends, 0);
        f[phase].others[1] = SILENT;
        await_end(&f[phase]);
        tx_watchdog_stop(watch[phase]);
        assert_int_equal(f[phase].did.status, TX_WATCHDOG_STATUS);
        assert_non_null(strstr(f[phase].did.line,
                               "train: rank 1 on one does not answer: last step 41, phase compiling, no sign of "
                               "life for 0."));
    }
}

/* Writing may take any time, and is reported. */
static void a_slow_disk_is_told_of(void **state)
{
    fake f;
    make(&f, 0, 2);
    f.others[1] = BUSY;
    tx_watchdog *watch = begin(&f, 0.05);
    tx_watchdog_begin(watch, TX_WATCHDOG_WRITING);
    assert_true(isinf(limit_of(watch)));
    while (f.did.lines < 3)
        rest(0.01);
    assert_non_null(strstr(f.did.line, "train: rank 0 on one has been writing files for "));
    tx_watchdog_begin(watch, TX_WATCHDOG_TRAINING);
    rest(0.5); /* the first step may compile */
    assert_int_equal(f.did.ends, 0);
    tx_watchdog_stop(watch);
    /* A rank that waits for one that writes neither reports nor ends. */
    f.did.lines = 0;
    await(&f, 1, -1, BUSY);
    watch = begin(&f, 0.05);
    tx_watchdog_step(watch, 1);
    tx_watchdog_begin(watch, TX_WATCHDOG_WRITING);
    rest(0.5);
    assert_int_equal(f.did.ends + f.did.lines, 0);
    tx_watchdog_stop(watch);
}

/* Before the communicator is open: one of the ranks does not start. */
static void the_start_has_its_own_limit(void **state)
{
    fake f = {.beats = 0};
    tx_watchdog *watch = NULL;
    const tx_watchdog_options options = {.size = sizeof options,
                                         .program = "train",
                                         .timeout = 0.01,
                                         .join = 0.3,
                                         .print = on_print,
                                         .end = on_end,
                                         .context = &f.did};
    setenv("PMI_SIZE", "3", 1);
    setenv("PMI_RANK", "2", 1);
    assert_int_equal(tx_watchdog_start(&options, &watch), TX_OK);
    unsetenv("PMI_SIZE");
    unsetenv("PMI_RANK");
    assert_true(limit_of(watch) == 0.3);
    await_end(&f);
    tx_watchdog_stop(watch);
    assert_int_equal(f.did.status, TX_WATCHDOG_STATUS);
    assert_non_null(strstr(f.did.line, "train: rank 2 on "));
    assert_non_null(strstr(f.did.line, " waited for all ranks to start for 0.3"));
}

static void the_limit_follows_the_steps(void **state)
{
    fake f;
    make(&f, 0, 2);
    tx_watchdog *watch = begin(&f, 0.0);
    tx_watchdog_begin(watch, TX_WATCHDOG_JOINING);
    assert_true(limit_of(watch) == TX_WATCHDOG_JOIN);
    tx_watchdog_begin(watch, TX_WATCHDOG_TRAINING);
    for (int64_t step = 1; step <= 3; step++) {
        assert_true(limit_of(watch) == TX_WATCHDOG_LONG);
        tx_watchdog_step(watch, step);
    }
    assert_true(limit_of(watch) == 30.0);
    tx_watchdog_begin(watch, TX_WATCHDOG_EVALUATING);
    for (int batch = 0; batch < 3; batch++) {
        assert_true(limit_of(watch) == TX_WATCHDOG_LONG);
        tx_watchdog_alive(watch, NULL);
    }
    assert_true(limit_of(watch) == 30.0);
    for (int64_t step = 4; step <= 7; step++) { /* most are now long; the time between steps does not count */
        tx_watchdog_begin(watch, TX_WATCHDOG_TRAINING);
        pthread_mutex_lock(&watch->lock);
        watch->began -= 3.1;
        pthread_mutex_unlock(&watch->lock);
        tx_watchdog_step(watch, step);
        tx_watchdog_begin(watch, TX_WATCHDOG_WRITING);
        rest(0.1);
    }
    tx_watchdog_begin(watch, TX_WATCHDOG_TRAINING);
    double limit = limit_of(watch);
    assert_true(limit >= 31.0 && limit < 300.0);
    assert_int_equal(f.did.ends, 0);
    tx_watchdog_stop(watch);
    watch = begin(&f, 900.0);
    assert_true(limit_of(watch) == 900.0);
    tx_watchdog_stop(watch);
}

static void one_rank_alone_has_no_limit(void **state)
{
    fake f;
    make(&f, 0, 1);
    tx_watchdog *watch = begin(&f, 0.0);
    rest(0.5);
    assert_int_equal(f.did.ends, 0);
    assert_true(limit_of(watch) == 0.0);
    tx_watchdog_stop(watch);
}

/* After the end the communicator is not used. A rank that does not finish is ended, with status 0 or the failure's. */
static void the_end(void **state)
{
    fake f;
    make(&f, 0, 2);
    tx_watchdog *watch = begin(&f, 0.1);
    tx_watchdog_step(watch, 1);
    tx_watchdog_done(watch);
    f.closed = true;
    await_end(&f);
    tx_watchdog_stop(watch);
    assert_int_equal(f.did.status, 0);
    assert_int_equal(f.did.lines, 0);
    assert_int_equal(f.touched, 0);

    make(&f, 0, 2);
    watch = begin(&f, 0.01);
    tx_watchdog_failed(watch, 1, "no such file");
    rest(0.5); /* the limit of such an end is longer */
    assert_int_equal(f.did.ends, 0);
    tx_watchdog_stop(watch);
}

static void no_watch_is_fine(void **state)
{
    tx_watchdog_step(NULL, 1);
    tx_watchdog_alive(NULL, NULL);
    tx_watchdog_begin(NULL, TX_WATCHDOG_READING);
    tx_watchdog_saved(NULL, "x");
    tx_watchdog_done(NULL);
    tx_watchdog_failed(NULL, 1, "x");
    tx_watchdog_stop(NULL);
    tx_watchdog *watch = NULL;
    fake f;
    make(&f, 0, 2);
    assert_int_equal(tx_watchdog_join(NULL, &f.base), TX_OK);
    assert_int_equal(tx_watchdog_start(&(tx_watchdog_options){.size = 1}, &watch), TX_INVALID);
    assert_null(watch);
}

int main(void)
{
    unsetenv(TX_REPORT_VARIABLE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_one_that_waits_names_the_other),
        cmocka_unit_test(ranks_that_are_not_heard_are_told_of),
        cmocka_unit_test(ranks_that_wait_for_each_other_end),
        cmocka_unit_test(ranks_with_transfers_go_on),
        cmocka_unit_test(a_busy_rank_is_waited_for),
        cmocka_unit_test(the_one_that_hangs_says_so),
        cmocka_unit_test(others_hold_back),
        cmocka_unit_test(progress_keeps_it_silent),
        cmocka_unit_test(a_stopped_process_has_no_phase),
        cmocka_unit_test(a_slow_disk_is_told_of),
        cmocka_unit_test(the_start_has_its_own_limit),
        cmocka_unit_test(the_limit_follows_the_steps),
        cmocka_unit_test(one_rank_alone_has_no_limit),
        cmocka_unit_test(the_end),
        cmocka_unit_test(no_watch_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
