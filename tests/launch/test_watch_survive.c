/* SPDX-License-Identifier: Apache-2.0
 * A rank that survives the loss of another one: its waits end, its files in a folder show that it lives and what it
 * saved, and it ends by itself. Also txlaunch's view of the folder. */
#include "comm/report.h"
#include "tests/launch/fake.h"
#include "tools/launch/txlaunch.h"
#include "tx_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static int ends[2];
static char folder[] = "survivors-XXXXXX";

static int set_up(void **state)
{
    (void)state;
    char text[16];
    if (pipe(ends) != 0 || !mkdtemp(folder))
        return -1;
    snprintf(text, sizeof text, "%d", ends[1]);
    return setenv(TX_REPORT_VARIABLE, text, 1);
}

static bool has(const char *name)
{
    return access(TX_PATH(folder, name), F_OK) == 0;
}

/* A rank that waits for rank 1, which is silent, with a limit of 0.1 s. */
static tx_watchdog *lose(fake *f, bool keeps)
{
    make(f, 0, 4);
    await(f, 1, 3, SILENT);
    tx_watchdog *watch = begin(f, 0.1);
    if (keeps)
        tx_watchdog_keep(watch, folder);
    tx_watchdog_step(watch, 7);
    return watch;
}

static void without_a_folder_it_ends(void **state)
{
    fake f;
    tx_watchdog *watch = lose(&f, false);
    await_end(&f);
    assert_false(tx_watchdog_survives(watch));
    tx_watchdog_stop(watch);
    assert_int_equal(tx_comm_abandoned(), TX_OK);
}

static void a_stuck_rank_ends(void **state)
{
    fake f;
    make(&f, 0, 4);
    tx_watchdog *watch = begin(&f, 0.1);
    tx_watchdog_keep(watch, folder);
    tx_watchdog_step(watch, 7);
    await_end(&f);
    tx_watchdog_stop(watch);
    assert_non_null(strstr(f.did.line, "is stuck"));
    assert_int_equal(tx_comm_abandoned(), TX_OK);
    assert_false(has(TX_SURVIVOR_MARK "0"));
}

static void it_saves_and_leaves(void **state)
{
    fake f;
    tx_watchdog *watch = lose(&f, true);
    while (!tx_watchdog_survives(watch))
        rest(0.005);
    tx_watchdog_begin(watch, TX_WATCHDOG_WRITING);
    assert_int_equal(tx_comm_abandoned(), TX_IO);
    assert_non_null(strstr(tx_error(), "rank 1 on one does not answer"));
    assert_non_null(strstr(f.did.line, "; rank 0 saves its last complete step"));
    rest(0.5); /* writing has no limit */
    assert_int_equal(f.did.ends, 0);
    assert_true(has(TX_SURVIVOR_MARK "0"));
    tx_watchdog_saved(watch, "out/checkpoint-7");
    assert_true(has(TX_SURVIVOR_SAVED "checkpoint-7"));
    tx_watchdog_leave(watch);
    assert_int_equal(f.did.ends, 1);
    assert_int_equal(f.did.status, TX_WATCHDOG_STATUS);
    assert_false(has(TX_SURVIVOR_MARK "0"));
    tx_watchdog_stop(watch);
}

static void a_step_without_end_ends_it(void **state)
{
    fake f;
    tx_watchdog *watch = lose(&f, true);
    await_end(&f);
    assert_non_null(strstr(f.did.line, "rank 0 on one does not save its last step; the run ends"));
    assert_false(has(TX_SURVIVOR_MARK "0"));
    tx_watchdog_stop(watch);
}

static void txlaunch_waits_for_it(void **state)
{
    tx_launch_survivors s = {0};
    tx_launch_job job = {.saved = "x/checkpoint-6", .sign = {.rank = -1}};
    const char *mark = TX_PATH(folder, TX_SURVIVOR_MARK "3");
    assert_non_null(realpath(folder, job.kept));
    assert_true(tx_launch_survivors_live(&s, job.kept, 100.0)); /* it may still notice the failure */
    assert_true(tx_launch_survivors_live(&s, job.kept, 102.9));
    close(open(mark, O_WRONLY | O_CREAT, 0666));
    assert_true(tx_launch_survivors_live(&s, job.kept, 103.5));
    assert_true(tx_launch_survivors_live(&s, job.kept, 118.0));
    assert_false(tx_launch_survivors_live(&s, job.kept, 119.0)); /* the file did not change: the rank is dead */
    assert_int_equal(utimensat(AT_FDCWD, mark, (const struct timespec[2]){{.tv_sec = 5}, {.tv_sec = 5}}, 0), 0);
    assert_true(tx_launch_survivors_live(&s, job.kept, 120.0));
    unlink(mark);
    assert_true(tx_launch_survivors_live(&s, job.kept, 121.0));
    assert_false(tx_launch_survivors_live(&s, job.kept, 123.1));

    close(open(TX_PATH(folder, TX_SURVIVOR_SAVED "checkpoint-8"), O_WRONLY | O_CREAT, 0666));
    close(open(TX_PATH(folder, TX_SURVIVOR_SAVED "checkpoint-11"), O_WRONLY | O_CREAT, 0666));
    tx_launch_survivors_end(&job);
    assert_true(job.rescued);
    assert_non_null(strstr(job.saved, "/checkpoint-11"));
    assert_false(has(""));
    assert_false(tx_launch_survivors_live(&s, job.kept, 124.0));
}

/* The run has continued without it. */
static void without_the_folder_it_ends(void **state)
{
    fake f;
    assert_int_equal(mkdir(folder, 0777), 0);
    tx_watchdog *watch = lose(&f, true);
    while (!tx_watchdog_survives(watch))
        rest(0.005);
    tx_watchdog_begin(watch, TX_WATCHDOG_WRITING);
    assert_int_equal(tx_folder_remove(".", folder), TX_OK);
    const int lines = f.did.lines;
    await_end(&f);
    assert_int_equal(f.did.lines, lines);
    tx_watchdog_stop(watch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_folder_it_ends), cmocka_unit_test(a_stuck_rank_ends),
        cmocka_unit_test(it_saves_and_leaves),      cmocka_unit_test(a_step_without_end_ends_it),
        cmocka_unit_test(txlaunch_waits_for_it),    cmocka_unit_test(without_the_folder_it_ends),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
