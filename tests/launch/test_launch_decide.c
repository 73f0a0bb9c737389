/* SPDX-License-Identifier: Apache-2.0
 * The decision of txlaunch to restart, case by case, and its message. */
#include "tools/launch/txlaunch.h"

#include "tests/unit.h"

static tx_launch_rank ranks[] = {{.started = true, .host = "node", .pid = 76},
                                 {.started = true, .host = "node", .pid = 77}};

/* Rank 1 was killed after step 41; mpiexec ended with status 9. */
static const tx_launch_job death = {
    .rank = ranks,
    .size = 2,
    .sign = {.kind = TX_LAUNCH_LEFT, .rank = 1, .teller = 1, .status = 137},
    .reported = true,
    .step = 41,
    .worst = 137,
    .exited = true,
    .status = 9,
};

static tx_launch_decision decide(tx_launch_job job, tx_launch_history *history)
{
    tx_launch_decision decision;
    tx_launch_history none = {0};
    tx_launch_decide(&job, 3, history ? history : &none, &decision);
    return decision;
}

static void success_needs_the_word_and_the_status(void **state)
{
    tx_launch_job o = {
        .sign = {.kind = TX_LAUNCH_ENDED, .rank = -1}, .done = true, .reported = true, .step = 9, .exited = true};
    assert_int_equal(decide(o, NULL).verdict, TX_LAUNCH_SUCCESS);
    assert_int_equal(decide(o, NULL).status, 0);
    o.caught = SIGTERM; /* it came too late */
    assert_int_equal(decide(o, NULL).verdict, TX_LAUNCH_SUCCESS);
    o.exited = false; /* had to be ended */
    assert_int_equal(decide(o, NULL).verdict, TX_LAUNCH_SUCCESS);
    o.caught = 0;
    o.exited = true;
    o.worst = 1; /* MPICH's launcher may hide a rank's status */
    assert_int_equal(decide(o, NULL).verdict, TX_LAUNCH_GIVE_UP);
    o.worst = 0;
    o.status = 1;
    assert_int_equal(decide(o, NULL).verdict, TX_LAUNCH_GIVE_UP);
    assert_int_equal(decide(o, NULL).status, 1);
    /* The run has ended but something is missing: a restart would not help. */
    char line[800];
    tx_launch_describe(&o, "mpiexec", line, sizeof line);
    assert_non_null(strstr(line, "the run is complete (mpiexec: status 1)"));
    assert_non_null(strstr(decide(o, NULL).reason, "the run is complete: a restart would not help"));
    o.status = 0;
    o.done = false; /* exit(0) of a rank looks like success */
    assert_int_equal(decide(o, NULL).verdict, TX_LAUNCH_RESTART);
}

/* Then nothing is missing, whatever the launcher says. A rank that ends with a status of its own has failed. */
static void what_kills_finished_ranks_is_no_failure(void **state)
{
    static const struct {
        int32_t worst, status;
        bool last; /* rank 1 has finished */
        tx_launch_verdict verdict;
    } cases[] = {{0, 255, true, TX_LAUNCH_SUCCESS},  {137, 9, true, TX_LAUNCH_SUCCESS},
                 {0, 255, false, TX_LAUNCH_GIVE_UP}, {137, 9, false, TX_LAUNCH_GIVE_UP},
                 {1, 1, true, TX_LAUNCH_GIVE_UP},    {139, 139, true, TX_LAUNCH_GIVE_UP},
                 {23, 0, true, TX_LAUNCH_GIVE_UP}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tx_launch_rank each[2] = {{.started = true, .done = true}, {.started = true, .done = cases[i].last}};
        const tx_launch_job o = {.rank = each,
                                 .size = 2,
                                 .sign = {.kind = TX_LAUNCH_ENDED, .rank = -1},
                                 .done = true,
                                 .reported = true,
                                 .step = 9,
                                 .worst = cases[i].worst,
                                 .exited = true,
                                 .status = cases[i].status};
        assert_int_equal(decide(o, NULL).verdict, cases[i].verdict);
        assert_int_equal(decide(o, NULL).status, cases[i].verdict != TX_LAUNCH_SUCCESS);
    }
}

static void failures_start_again(void **state)
{
    tx_launch_history history = {0};
    tx_launch_job o = death;
    for (int i = 0; i < 3; i++) {
        o.step = 41 + 10 * i;
        tx_launch_decision d = decide(o, &history);
        assert_int_equal(d.verdict, TX_LAUNCH_RESTART);
        assert_true(d.wait == (double)(1 << i));
        assert_int_equal(history.restarts, i + 1);
    }
    o.step = 100;
    tx_launch_decision last = decide(o, &history);
    assert_int_equal(last.verdict, TX_LAUNCH_GIVE_UP);
    assert_int_equal(last.status, 1);
    assert_int_equal(history.restarts, 3);
    assert_string_equal(last.reason, "3 restarts were allowed (--max_restarts)");
    history = (tx_launch_history){.restarts = 50};
    tx_launch_decision much;
    tx_launch_decide(&death, 100, &history, &much);
    assert_true(much.wait == 30.0);
    o.rescued = true; /* no step is lost, so there is nothing to wait for */
    tx_launch_decide(&o, 100, &history, &much);
    assert_true(much.wait == 1.0);
}

static void a_signal_stops(void **state)
{
    tx_launch_job o = death;
    o.caught = SIGTERM;
    assert_int_equal(decide(o, NULL).verdict, TX_LAUNCH_STOPPED);
    assert_int_equal(decide(o, NULL).status, 143);
    o.caught = SIGINT;
    assert_int_equal(decide(o, NULL).status, 130);
    o.caught = 0;
    o.sign = (tx_launch_sign){.kind = TX_LAUNCH_FAILED, .rank = 0, .status = 143};
    assert_int_equal(decide(o, NULL).verdict, TX_LAUNCH_STOPPED);
    assert_int_equal(decide(o, NULL).status, 143);
    o.sign = (tx_launch_sign){.kind = TX_LAUNCH_ENDED, .rank = -1};
    o.status = 130;
    assert_int_equal(decide(o, NULL).status, 130);
    o.status = 137; /* the launcher was killed: nothing was saved */
    assert_int_equal(decide(o, NULL).verdict, TX_LAUNCH_RESTART);
}

static void what_a_restart_does_not_help(void **state)
{
    tx_launch_job o = death;
    o.sign = (tx_launch_sign){.kind = TX_LAUNCH_FAILED, .rank = 0, .status = 1, .text = "no such file"};
    assert_int_equal(decide(o, NULL).verdict, TX_LAUNCH_RESTART); /* in the midst of the run */
    o.step = -1;
    assert_int_equal(decide(o, NULL).verdict, TX_LAUNCH_GIVE_UP);
    assert_non_null(strstr(decide(o, NULL).reason, "failed before the first step"));
    o = (tx_launch_job){.sign = {.kind = TX_LAUNCH_LEFT, .rank = 0, .status = 2}, .step = -1, .exited = true};
    assert_non_null(strstr(decide(o, NULL).reason, "command line is wrong"));
    o.sign.status = TX_LAUNCH_NO_PROGRAM;
    assert_non_null(strstr(decide(o, NULL).reason, "command line is wrong"));
    o.sign.status = 0;
    assert_non_null(strstr(decide(o, NULL).reason, "does not report"));
}

/* A death is one at any time. */
static void deaths_before_the_first_step(void **state)
{
    tx_launch_history history = {0};
    tx_launch_job o = {.sign = {.kind = TX_LAUNCH_ENDED, .rank = -1}, .step = -1, .exited = true, .status = 9};
    assert_int_equal(decide(o, &history).verdict, TX_LAUNCH_RESTART); /* before any report */
    o = death;
    o.step = -1;
    for (int i = 0; i < 2; i++)
        assert_int_equal(decide(o, &history).verdict, TX_LAUNCH_RESTART);
    tx_launch_decision d = decide(o, &history);
    assert_int_equal(d.verdict, TX_LAUNCH_GIVE_UP);
    assert_non_null(strstr(d.reason, "the same failure 3 times before the first step"));
}

static void three_times_the_same(void **state)
{
    tx_launch_history history = {0};
    assert_int_equal(decide(death, &history).verdict, TX_LAUNCH_RESTART);
    assert_int_equal(decide(death, &history).verdict, TX_LAUNCH_RESTART);
    tx_launch_decision d = decide(death, &history);
    assert_int_equal(d.verdict, TX_LAUNCH_GIVE_UP);
    assert_string_equal(d.reason, "the same failure 3 times after the same step: a restart does not help");

    /* Steps that are known only so well may be the same. */
    tx_launch_job o = death;
    history = (tx_launch_history){0};
    o.stride = 5;
    decide(o, &history);
    o.step = 44;
    decide(o, &history);
    o.step = 39;
    assert_int_equal(decide(o, &history).verdict, TX_LAUNCH_GIVE_UP);

    /* Another step or kind of failure resets the count. */
    history = (tx_launch_history){0};
    decide(death, &history);
    decide(death, &history);
    o = death;
    o.step = 42;
    assert_int_equal(decide(o, &history).verdict, TX_LAUNCH_RESTART);
    history = (tx_launch_history){0};
    decide(death, &history);
    decide(death, &history);
    o = death;
    o.sign.kind = TX_LAUNCH_SILENT;
    assert_int_equal(decide(o, &history).verdict, TX_LAUNCH_RESTART);
}

static void it_is_said_in_one_line(void **state)
{
    const struct {
        tx_launch_sign sign;
        bool away; /* the rank did not start */
        int64_t step;
        int32_t status; /* -1: it did not exit */
        const char *line;
    } cases[] = {
        {death.sign, false, 41, 9,
         "rank 1 on node (pid 77) was killed by signal 9; the last known step is 41 (mpiexec: status 9)"},
        {{.kind = TX_LAUNCH_LEFT, .rank = 1, .status = 3},
         false,
         -1,
         137,
         "rank 1 on node (pid 77) ended with status 3 and reported no error to txlaunch; no step was reported "
         "(mpiexec: status "
         "137)"},
        {{.kind = TX_LAUNCH_SILENT, .rank = 0, .seconds = 30.4},
         false,
         41,
         -1,
         "rank 0 on node (pid 76) sent no heartbeat for 30 s: it is stopped, or mpiexec is; the last known step is "
         "41"},
        {{.kind = TX_LAUNCH_LOST, .rank = 1, .teller = 0},
         false,
         41,
         -1,
         "rank 1 on node (pid 77) does not answer; the last known step is 41 (reported by rank 0)"},
        {{.kind = TX_LAUNCH_LOST, .rank = 1, .teller = 1},
         false,
         41,
         -1,
         "rank 1 on node (pid 77) is stuck; the last known step is 41"},
        {{.kind = TX_LAUNCH_ABSENT, .rank = 1, .seconds = 120},
         true,
         -1,
         -1,
         "rank 1 on far did not start within 120 s; no step was reported"},
        {{.kind = TX_LAUNCH_FAILED, .rank = 1, .status = 1, .text = "no disk"},
         false,
         41,
         1,
         "rank 1 on node (pid 77) failed with status 1; the last known step is 41: no disk (mpiexec: status 1)"},
        {{.kind = TX_LAUNCH_ENDED, .rank = -1},
         false,
         41,
         255,
         "mpiexec ended although no rank did: it was killed, a host is lost, or an unknown program connected to its "
         "port "
         "(docs/guides/debugging.md) (mpiexec: status 255)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[800], small[40];
        tx_launch_rank who[] = {ranks[0], ranks[1]};
        if (cases[i].away)
            who[1] = (tx_launch_rank){.host = "far"};
        tx_launch_job o = death;
        o.rank = who;
        o.sign = cases[i].sign;
        o.step = cases[i].step;
        o.exited = cases[i].status >= 0;
        o.status = cases[i].status;
        tx_launch_describe(&o, "mpiexec", line, sizeof line);
        assert_string_equal(line, cases[i].line);
        tx_launch_describe(&o, "mpiexec", small, sizeof small);
        assert_int_equal(strlen(small), sizeof small - 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(success_needs_the_word_and_the_status),
        cmocka_unit_test(what_kills_finished_ranks_is_no_failure),
        cmocka_unit_test(failures_start_again),
        cmocka_unit_test(a_signal_stops),
        cmocka_unit_test(what_a_restart_does_not_help),
        cmocka_unit_test(deaths_before_the_first_step),
        cmocka_unit_test(three_times_the_same),
        cmocka_unit_test(it_is_said_in_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
