/* SPDX-License-Identifier: Apache-2.0
 * What txlaunch makes of what ranks tell, and of their silence: the first sign of a failure, and who gave it. */
#include "tools/launch/txlaunch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define HEART 30.0
#define START 120.0

static bool hear(tx_launch_job *job, int32_t rank, tx_beat beat, double now)
{
    return tx_launch_job_hear(job, rank, &beat, now);
}

static bool hello(tx_launch_job *job, int32_t rank, double now)
{
    tx_beat beat = {.kind = TX_BEAT_HELLO, .rank = rank, .size = job->size, .pid = 100 + rank};
    snprintf(beat.host, sizeof beat.host, "h%d", (int)rank / 2);
    return hear(job, rank, beat, now);
}

static bool step(tx_launch_job *job, int32_t rank, int64_t number, double now)
{
    return hear(job, rank, (tx_beat){.kind = TX_BEAT_STEP, .step = number}, now);
}

/* Four ranks that said hello at second 1 and step 10 at second 10. */
static tx_launch_job running(void)
{
    tx_launch_job job;
    assert_int_equal(tx_launch_job_start(&job, 4, 0.0), TX_OK);
    for (int32_t r = 0; r < 4; r++)
        assert_true(hello(&job, r, 1.0));
    for (int32_t r = 0; r < 4; r++)
        assert_true(step(&job, r, 10, 10.0));
    assert_int_equal(job.open, 4);
    return job;
}

static void the_first_that_closed_died(void **state)
{
    tx_launch_job job = running();
    tx_launch_job_close(&job, 2);
    tx_launch_job_close(&job, 0);
    tx_launch_job_close(&job, 2);
    assert_true(hear(&job, 1, (tx_beat){.kind = TX_BEAT_FAILED, .status = 1}, 10.1)); /* it follows from the death */
    assert_int_equal(job.sign.kind, TX_LAUNCH_DIED);
    assert_int_equal(job.sign.rank, 2);
    assert_int_equal(job.open, 2);
    tx_launch_job_free(&job);
}

static void who_spoke_did_not_die(void **state)
{
    tx_launch_job job = running();
    assert_true(hear(&job, 3, (tx_beat){.kind = TX_BEAT_FAILED, .status = 1, .text = "no disk"}, 11.0));
    tx_launch_job_close(&job, 3);
    tx_launch_job_close(&job, 0);
    assert_int_equal(job.sign.kind, TX_LAUNCH_FAILED);
    assert_int_equal(job.sign.rank, 3);
    assert_int_equal(job.sign.status, 1);
    assert_string_equal(job.sign.text, "no disk");
    tx_launch_job_free(&job);

    job = running();
    assert_true(hear(&job, 0, (tx_beat){.kind = TX_BEAT_LOST, .rank = 1, .step = 10, .bucket = 3}, 11.0));
    tx_launch_job_close(&job, 0);
    assert_int_equal(job.sign.kind, TX_LAUNCH_LOST);
    assert_int_equal(job.sign.rank, 1);
    assert_int_equal(job.sign.teller, 0);
    assert_true(job.rank[1].awaited);
    assert_int_equal(job.rank[1].bucket, 3);
    tx_launch_job_free(&job);
}

static void who_is_done_may_leave(void **state)
{
    tx_launch_job job = running();
    for (int32_t r = 3; r >= 0; r--) {
        assert_false(tx_launch_job_done(&job));
        assert_true(hear(&job, r, (tx_beat){.kind = TX_BEAT_DONE}, 11.0));
        tx_launch_job_close(&job, r);
    }
    assert_true(tx_launch_job_done(&job));
    tx_launch_job_look(&job, 1000.0, HEART, START);
    assert_int_equal(job.sign.kind, TX_LAUNCH_NONE);
    tx_launch_job_free(&job);
}

static void the_longest_silence_is_late(void **state)
{
    tx_launch_job job = running();
    for (int32_t r = 0; r < 4; r++)
        step(&job, r, 11, r == 2 ? 11.0 : r == 1 ? 12.0 : 40.0);
    tx_launch_job_look(&job, 41.0, HEART, START);
    assert_int_equal(job.sign.kind, TX_LAUNCH_NONE);
    assert_int_equal(tx_launch_job_late(&job, 41.5, HEART, START), 2);
    tx_launch_job_look(&job, 43.0, HEART, START);
    assert_int_equal(job.sign.kind, TX_LAUNCH_LATE);
    assert_int_equal(job.sign.rank, 2);
    assert_true(job.sign.seconds == 32.0);
    tx_launch_job_free(&job);
}

static void what_txlaunch_slept_through_is_forgiven(void **state)
{
    tx_launch_job job = running();
    tx_launch_job_forgive(&job, 100.0);
    tx_launch_job_look(&job, 130.0, HEART, START);
    assert_int_equal(job.sign.kind, TX_LAUNCH_NONE);
    tx_launch_job_free(&job);
}

static void who_never_came_is_absent(void **state)
{
    tx_launch_job job;
    assert_int_equal(tx_launch_job_start(&job, 4, 0.0), TX_OK);
    for (int32_t r = 0; r < 3; r++)
        hello(&job, r, 100.0);
    tx_launch_job_look(&job, 119.0, HEART, START);
    assert_int_equal(job.sign.kind, TX_LAUNCH_NONE);
    tx_launch_job_look(&job, 121.0, HEART, START);
    assert_int_equal(job.sign.kind, TX_LAUNCH_ABSENT);
    assert_int_equal(job.sign.rank, 3);
    assert_true(tx_launch_job_silent(&job, 3, 1, 121.0, 2.0));
    assert_true(tx_launch_job_silent(&job, 2, 2, 121.0, 2.0));
    assert_false(tx_launch_job_silent(&job, 0, 2, 101.0, 2.0));
    assert_false(tx_launch_job_silent(&job, 0, 0, 121.0, 2.0));
    tx_launch_job_free(&job);
}

static void nonsense_is_refused(void **state)
{
    tx_launch_job job;
    assert_int_equal(tx_launch_job_start(&job, 2, 0.0), TX_OK);
    assert_false(step(&job, 0, 5, 1.0)); /* before the hello */
    assert_false(hear(&job, 0, (tx_beat){.kind = TX_BEAT_HELLO, .rank = 0, .size = 3}, 1.0));
    assert_false(hear(&job, 5, (tx_beat){.kind = TX_BEAT_HELLO, .rank = 5, .size = 2}, 1.0));
    assert_false(hear(&job, -1, (tx_beat){.kind = TX_BEAT_HELLO, .rank = -1, .size = 2}, 1.0));
    assert_true(hello(&job, 0, 1.0));
    assert_false(hello(&job, 0, 1.0)); /* twice */
    assert_false(hear(&job, 0, (tx_beat){.kind = TX_BEAT_LOST, .rank = 7}, 1.0));
    assert_true(hear(&job, 0, (tx_beat){.kind = TX_BEAT_WAIT, .rank = 7}, 1.0));
    tx_launch_job_close(&job, 1); /* never open */
    assert_int_equal(job.sign.kind, TX_LAUNCH_NONE);
    assert_int_equal(job.open, 1);
    tx_launch_job_free(&job);
}

static void steps_and_how_well_they_are_known(void **state)
{
    tx_launch_job job = running();
    assert_int_equal(tx_launch_job_first(&job)->step, 10);
    assert_int_equal(tx_launch_job_first(&job)->stride, 0);
    step(&job, 2, 17, 11.0);
    assert_int_equal(tx_launch_job_first(&job)->step, 17);
    assert_int_equal(tx_launch_job_first(&job)->stride, 7);
    assert_true(hear(&job, 0, (tx_beat){.kind = TX_BEAT_WAIT, .rank = 1, .step = 10, .bucket = 2}, 11.0));
    step(&job, 1, 10, 11.0);
    assert_true(job.rank[1].awaited);
    step(&job, 1, 11, 12.0);
    assert_false(job.rank[1].awaited);
    assert_false(job.saved);
    assert_true(hear(&job, 0, (tx_beat){.kind = TX_BEAT_SAVED, .text = "x"}, 11.0));
    assert_true(job.saved);
    tx_launch_job_free(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_that_closed_died),
        cmocka_unit_test(who_spoke_did_not_die),
        cmocka_unit_test(who_is_done_may_leave),
        cmocka_unit_test(the_longest_silence_is_late),
        cmocka_unit_test(what_txlaunch_slept_through_is_forgiven),
        cmocka_unit_test(who_never_came_is_absent),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(steps_and_how_well_they_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
