/* SPDX-License-Identifier: Apache-2.0
 * The state of an attempt after the reports of its ranks and their silence: the first sign of a failure, and its rank.
 */
#include "tools/launch/txlaunch.h"

#include "tests/unit.h"

#define HEART 30.0
#define START 120.0

static tx_launch_job start(int32_t size)
{
    tx_launch_job job;
    assert_int_equal(tx_launch_job_start(&job, size, 0.0), TX_OK);
    return job;
}

/* Four ranks that started at second 1, and rank 0 did step 10 at second 10. */
static tx_launch_job running(void)
{
    tx_launch_job job = start(4);
    for (int r = 0; r < 4; r++) {
        char hello[40];
        snprintf(hello, sizeof hello, "%d hello 4 h%d %d", r, r / 2, 100 + r);
        assert_true(tx_launch_job_hear(&job, hello, 1.0));
    }
    assert_false(job.reported);
    assert_true(tx_launch_job_hear(&job, "0 step 10", 10.0));
    assert_true(job.reported);
    return job;
}

/* Returns the finding after these reports, as KIND RANK TELLER STATUS TEXT. */
static void expect(const char *const *reports, const char *expected)
{
    char text[600];
    tx_launch_job job = running();
    for (; *reports; reports++)
        assert_true(tx_launch_job_hear(&job, *reports, 11.0));
    const tx_launch_sign *s = &job.sign;
    snprintf(text, sizeof text, "%d %d %d %d %s", (int)s->kind, (int)s->rank, (int)s->teller, (int)s->status, s->text);
    tx_launch_job_free(&job);
    assert_string_equal(text, expected);
}

#define REPORTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void the_first_sign_counts(void **state)
{
    char kinds[4][40];
    snprintf(kinds[0], sizeof kinds[0], "%d 2 0 137 ", TX_LAUNCH_LEFT);
    expect(REPORTS("2 left 137", "0 left 137", "1 failed 1 it follows from the death"), kinds[0]);
    snprintf(kinds[1], sizeof kinds[1], "%d 3 3 1 no disk", TX_LAUNCH_FAILED);
    expect(REPORTS("3 failed 1 no disk", "3 left 1", "0 left 9"), kinds[1]);
    snprintf(kinds[2], sizeof kinds[2], "%d 1 0 1 ", TX_LAUNCH_LOST);
    expect(REPORTS("0 lost 1", "0 left 17"), kinds[2]);
    snprintf(kinds[3], sizeof kinds[3], "%d 2 0 0 ", TX_LAUNCH_LEFT);
    expect(REPORTS("1 done", "1 left 0", "2 left 0"), kinds[3]);
}

static void ranks_that_are_done_may_leave(void **state)
{
    tx_launch_job job = running();
    for (int r = 3; r >= 0; r--) {
        char done[20], left[20];
        snprintf(done, sizeof done, "%d done", r);
        snprintf(left, sizeof left, "%d left %d", r, r == 2);
        assert_false(job.done);
        assert_true(tx_launch_job_hear(&job, done, 11.0));
        assert_true(tx_launch_job_hear(&job, left, 11.0));
    }
    assert_true(job.done);
    assert_int_equal(job.worst, 1);
    assert_int_equal(job.sign.kind, TX_LAUNCH_NONE);
    tx_launch_job_free(&job);
}

static void silence_is_a_sign(void **state)
{
    tx_launch_job job = running();
    tx_launch_job_poll(&job, 39.0, HEART, START);
    assert_int_equal(job.sign.kind, TX_LAUNCH_NONE);
    tx_launch_job_forgive(&job, 100.0); /* txlaunch itself did not run */
    tx_launch_job_poll(&job, 139.0, HEART, START);
    assert_int_equal(job.sign.kind, TX_LAUNCH_NONE);
    tx_launch_job_poll(&job, 142.0, HEART, START);
    assert_int_equal(job.sign.kind, TX_LAUNCH_SILENT);
    assert_true(job.sign.seconds == 32.0);
    tx_launch_job_free(&job);
}

static void a_rank_that_never_started_is_absent(void **state)
{
    tx_launch_job job = start(3);
    assert_true(tx_launch_job_hear(&job, "0 hello 3 h 7", 100.0));
    assert_true(tx_launch_job_hear(&job, "2 hello 3 h 8", 100.0));
    tx_launch_job_poll(&job, 119.0, HEART, START);
    assert_int_equal(job.sign.kind, TX_LAUNCH_NONE);
    tx_launch_job_poll(&job, 121.0, HEART, START);
    assert_int_equal(job.sign.kind, TX_LAUNCH_ABSENT);
    assert_int_equal(job.sign.rank, 1);
    tx_launch_job_free(&job);
}

static void nonsense_is_refused(void **state)
{
    tx_launch_job job = start(2);
    static const char *const bad[] = {
        "",        "0",        "0 hello 3 h 7", "5 hello 2 h 7", "-1 hello 2 h 7", "0 hello 2 h",   "0 lost 7",
        "0 lost",  "0 lost x", "0 step",        "0 failed",      "0 left",         "0 sing a song", "x done",
        "0 saved", "0 keeps",  "0 donedonedone"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (tx_launch_job_hear(&job, bad[i], 1.0))
            fail_msg("\"%s\" is taken", bad[i]);
    assert_true(tx_launch_job_hear(&job, "0 hello 2 h 7", 1.0));
    assert_false(tx_launch_job_hear(&job, "0 hello 2 h 7", 1.0)); /* twice */
    assert_false(job.reported || job.done);
    assert_int_equal(job.sign.kind, TX_LAUNCH_NONE);
    tx_launch_job_free(&job);
}

static void steps_and_checkpoints(void **state)
{
    tx_launch_job job = running();
    assert_int_equal(job.stride, 0);
    assert_true(tx_launch_job_hear(&job, "0 step 17", 11.0));
    assert_true(tx_launch_job_hear(&job, "0 step 17", 11.5)); /* a heartbeat */
    assert_int_equal(job.step, 17);
    assert_int_equal(job.stride, 7);
    assert_true(tx_launch_job_hear(&job, "0 saved out dir/checkpoint-5", 12.0));
    assert_true(tx_launch_job_hear(&job, "0 saved out dir/checkpoint-10", 12.0));
    assert_string_equal(job.saved, "out dir/checkpoint-10");
    tx_launch_job_free(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_sign_counts), cmocka_unit_test(ranks_that_are_done_may_leave),
        cmocka_unit_test(silence_is_a_sign),     cmocka_unit_test(a_rank_that_never_started_is_absent),
        cmocka_unit_test(nonsense_is_refused),   cmocka_unit_test(steps_and_checkpoints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
