/* SPDX-License-Identifier: Apache-2.0
 * The log of a run if it cannot be written: one warning, and no other file changes. A log that another rank completes.
 */
#include "models/train/log.h"
#include "tests/data/texts.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char *folder, *path;

static int begin(void **state)
{
    folder = make_scratch();
    path = tx_path_join(folder, "log.jsonl");
    return 0;
}

static int end(void **state)
{
    remove_scratch(folder);
    free(path);
    return 0;
}

static void expect_file(const char *file, const char *want)
{
    char *data;
    size_t size;
    assert_ok(tx_file_read(file, 1000, &data, &size));
    assert_string_equal(data, want);
    free(data);
}

static void written(void **state)
{
    reported r = {0};
    for (int go_on = 0; go_on < 3; go_on++) {
        tx_log log;
        tx_log_open(&log, path, go_on == 1, &(tx_reporter){.warn = report_line, .context = &r});
        tx_log_line(&log, "%d", go_on);
        tx_log_close(&log);
        expect_file(path, go_on == 0 ? "0\n" : go_on == 1 ? "0\n1\n" : "2\n");
    }
    assert_int_equal(r.count, 0);
    unlink(path);
}

/* Rank 0 has ended within step 3, with a line about speed before the results, and within its next line. Another rank
 * has the results of steps 2 to 4. */
static void completed(void **state)
{
    static const char begun[] = "{\"step\": 1, \"epoch\": 0}\n{\"step\": 2, \"epoch\": 0}\n{\"step\": 3, \"slow";
    tx_log log;
    tx_log_open(&log, NULL, false, &(tx_reporter){.warn = NULL});
    tx_log_line(&log, "forgotten");
    tx_log_remember(&log);
    for (int step = 2; step <= 4; step++) {
        tx_log_line(&log, "{\"step\": %d, \"slowest_rank\": 0}", step);
        tx_log_line(&log, "{\"step\": %d, \"epoch\": 1}", step);
    }
    char *copy = tx_path_join(folder, "copy.jsonl");
    assert_ok(tx_log_complete(&log, path, copy)); /* rank 0 has written none */
    assert_false(tx_file_exists(copy));
    assert_ok(tx_file_write(path, begun, strlen(begun)));
    assert_ok(tx_log_complete(&log, path, copy));
    expect_file(copy, "{\"step\": 1, \"epoch\": 0}\n{\"step\": 2, \"epoch\": 0}\n{\"step\": 3, \"epoch\": 1}\n"
                      "{\"step\": 4, \"epoch\": 1}\n");
    tx_log_close(&log);
    unlink(copy);
    unlink(path);
    free(copy);
}

static void refused(const char *what)
{
    for (int go_on = 0; go_on < 2; go_on++) {
        reported r = {0};
        tx_log log;
        tx_log_open(&log, path, go_on, &(tx_reporter){.warn = report_line, .context = &r});
        for (int i = 0; i < 3; i++)
            tx_log_line(&log, "line");
        tx_log_close(&log);
        assert_int_equal(r.count, 1);
        assert_non_null(strstr(r.last, path));
        assert_non_null(strstr(r.last, what));
        assert_non_null(strstr(r.last, "; training continues without a log"));
    }
}

static void what_is_no_file(void **state)
{
    char *target = put_text(folder, "target", "kept");
    assert_int_equal(symlink(target, path), 0);
    refused("a link, not a regular file");
    expect_file(target, "kept");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    refused("a pipe, not a regular file");
    unlink(path);
    assert_ok(tx_folder_create(path));
    refused("a folder, not a regular file");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("/dev/null", path), 0);
    refused("a link, not a regular file");
    unlink(path);
    free(target);
}

/* A limit on file sizes simulates a full disk. */
static void no_room(void **state)
{
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 10;
    signal(SIGXFSZ, SIG_IGN);
    free(put_text(folder, "log.jsonl", "0123456789"));
    tx_log log;
    reported r = {0};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    tx_log_open(&log, path, true, &(tx_reporter){.warn = report_line, .context = &r});
    assert_int_equal(r.count, 0);
    for (int i = 0; i < 3; i++)
        tx_log_line(&log, "line");
    tx_log_close(&log);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(r.count, 1);
    assert_non_null(strstr(r.last, "cannot write the log: File too large; training continues"));
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written),
        cmocka_unit_test(completed),
        cmocka_unit_test(what_is_no_file),
        cmocka_unit_test(no_room),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
