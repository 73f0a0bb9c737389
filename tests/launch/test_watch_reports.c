/* SPDX-License-Identifier: Apache-2.0
 * The watch's reports to txlaunch: steps as heartbeats, checkpoints, the end, and the rank by which the run ends. */
#include "comm/report.h"
#include "tests/launch/fake.h"

#include <fcntl.h>
#include <unistd.h>

/* A pipe that reports go to. */
static void open_pipe(int ends[2])
{
    char text[16];
    assert_int_equal(pipe(ends), 0);
    assert_true(fcntl(ends[0], F_SETFL, O_NONBLOCK) >= 0);
    snprintf(text, sizeof text, "%d", ends[1]);
    setenv(TX_REPORT_VARIABLE, text, 1);
}

/* All that was reported; the marks become |. */
static void read_pipe(int ends[2], char text[8192])
{
    const ssize_t length = read(ends[0], text, 8191);
    text[length > 0 ? length : 0] = 0;
    for (char *c = text; (c = strchr(c, TX_REPORT_MARK)); *c = '|')
        ;
}

static void close_pipe(int ends[2])
{
    close(ends[0]);
    close(ends[1]);
    unsetenv(TX_REPORT_VARIABLE);
}

static int count(const char *text, const char *what)
{
    int found = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        found++;
    return found;
}

static void rank_0_reports_the_run(void **state)
{
    int ends[2];
    char text[8192];
    fake f;
    make(&f, 0, 2);
    open_pipe(ends);
    tx_watchdog *watch = begin(&f, 600.0);
    rest(0.3);
    tx_watchdog_step(watch, 5);
    tx_watchdog_saved(watch, "out/checkpoint-5");
    rest(1.5); /* heartbeats */
    tx_watchdog_step(watch, 6);
    tx_watchdog_done(watch);
    tx_watchdog_failed(watch, 1, "too late");
    tx_watchdog_stop(watch);
    read_pipe(ends, text);
    static const char first[] = "|0 step -1\n", last[] = "|0 step 6\n|0 done\n";
    assert_memory_equal(text, first, sizeof first - 1);
    assert_string_equal(text + strlen(text) - strlen(last), last);
    assert_non_null(strstr(text, "|0 saved out/checkpoint-5\n"));
    assert_in_range(count(text, "|0 step 5\n"), 2, 20);
    close_pipe(ends);
}

static void other_ranks_report_their_end(void **state)
{
    int ends[2];
    char text[8192];
    fake f;
    make(&f, 1, 2);
    open_pipe(ends);
    setenv("PMI_SIZE", "2", 1);
    setenv("PMI_RANK", "1", 1);
    tx_watchdog *watch = begin(&f, 600.0);
    unsetenv("PMI_SIZE");
    unsetenv("PMI_RANK");
    tx_watchdog_step(watch, 5);
    tx_watchdog_failed(watch, 1, "no\nsuch file");
    tx_watchdog_stop(watch);
    read_pipe(ends, text);
    assert_string_equal(text, "|1 failed 1 no such file\n");

    make(&f, 0, 2);
    await(&f, 1, 3, WAITING);
    f.awaited[1] = 0;
    watch = begin(&f, 0.05);
    tx_watchdog_step(watch, 42);
    await_end(&f);
    tx_watchdog_stop(watch);
    read_pipe(ends, text);
    assert_non_null(strstr(text, "|0 lost 1\n"));
    close_pipe(ends);
}

/* A report does not wait for a reader that reads nothing, and does not end the program if the reader is gone. */
static void nobody_reads(void **state)
{
    int ends[2];
    char text[8192];
    static const char block[TX_REPORT_LINE];
    open_pipe(ends);
    assert_true(fcntl(ends[1], F_SETFL, O_NONBLOCK) >= 0);
    while (write(ends[1], block, sizeof block) > 0)
        ;
    tx_report(ends[1], 0.0, "0 done");
    while (read(ends[0], text, sizeof text) > 0)
        ;
    tx_report(ends[1], 0.0, "0 %5000d", 1); /* too long */
    read_pipe(ends, text);
    assert_string_equal(text, "");
    close(ends[0]);
    tx_report(ends[1], 1.0, "0 done");
    tx_report(-1, 1.0, "0 done");
    close(ends[1]);
    assert_int_equal(tx_report_descriptor(), STDERR_FILENO); /* a program closed the one that is named */
    unsetenv(TX_REPORT_VARIABLE);
    assert_int_equal(tx_report_descriptor(), -1);
}

int main(void)
{
    unsetenv(TX_REPORT_VARIABLE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_0_reports_the_run),
        cmocka_unit_test(other_ranks_report_their_end),
        cmocka_unit_test(nobody_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
