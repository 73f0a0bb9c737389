/* SPDX-License-Identifier: Apache-2.0
 * The ranks' output on its way through txlaunch: reports are taken out of it, and logs get the lines of their ranks. */
#include "tools/launch/txlaunch.h"

#include <fcntl.h>

#include "tests/scratch.h"

#define MARK "\x1e"

/* Lines as MPICH's and Open MPI's launchers mark them; others are the launcher's own. */
static void marks(void **state)
{
    static const struct {
        const char *line, *text;
        int32_t rank;
    } lines[] = {{"[0] step 1", "step 1", 0},
                 {"[12]  two", " two", 12},
                 {"[1,3]<stdout>:step 1", "step 1", 3},
                 {"[1,0]<stderr>:", "", 0},
                 {"mpiexec: [3] no", "mpiexec: [3] no", -1},
                 {"[a] no", "[a] no", -1},
                 {"[3", "[3", -1},
                 {"", "", -1}};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        const char *text = NULL;
        assert_int_equal(tx_launch_logs_rank(lines[i].line, &text), lines[i].rank);
        assert_string_equal(text, lines[i].text);
    }
}

/* Forwards the parts of an output one after the other; the caller frees the result. */
static char *forwarded(const char *const *parts, tx_launch_logs *logs, tx_launch_job *job)
{
    static volatile sig_atomic_t none;
    static tx_launch_stream stream;
    const tx_launch_attempt attempt = {.signals = &none};
    int in[2], out[2];
    assert_int_equal(pipe(in) + pipe(out), 0);
    stream = (tx_launch_stream){.from = in[0], .to = out[1], .rank = -1};
    for (; *parts; parts++) {
        assert_int_equal(write(in[1], *parts, strlen(*parts)), strlen(*parts));
        assert_true(tx_launch_forward(&stream, logs, job, &attempt));
    }
    close(in[1]);
    assert_false(tx_launch_forward(&stream, logs, job, &attempt));
    close(out[1]);
    char *text = calloc(1, 8192);
    assert_true(read(out[0], text, 8191) >= 0);
    close(in[0]);
    close(out[0]);
    return text;
}

#define PARTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void expect(const char *const *parts, const char *expected, int64_t step)
{
    tx_launch_logs none = {0};
    tx_launch_job job;
    assert_ok(tx_launch_job_start(&job, 2, 0.0));
    char *text = forwarded(parts, &none, &job);
    assert_string_equal(text, expected);
    assert_int_equal(job.step, step);
    free(text);
    tx_launch_job_free(&job);
}

static void reports_are_taken_out(void **state)
{
    expect(PARTS("one\n", "two", " three\n", "four"), "one\ntwo three\nfour", -1);
    expect(PARTS("one\n" MARK "0 step 5\ntwo\n"), "one\ntwo\n", 5);
    expect(PARTS("one\n" MARK "0 st", "ep 5\n" MARK, "0 step 7\n"), "one\n", 7);
    expect(PARTS("no end", MARK "0 step 5\n", " yet\n"), "no end yet\n", 5);
    expect(PARTS("no end" MARK "0 step 5\n", " yet\n"), "no end yet\n", 5);
    expect(PARTS("[0] " MARK "0 step 5\n[1] text\n"), "[1] text\n", 5);
    expect(PARTS(MARK "garbage\n" MARK "7 step 5\n" MARK "\n" MARK "0 step"), "", -1);
}

/* MPICH's launcher writes its report in pieces, which may be read one by one. */
static void the_launchers_report_is_left_out(void **state)
{
    static const char rule[] = "===================================================================================\n";
    char text[1024];
    snprintf(text, sizeof text,
             "one\n\n%s=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   EXIT CODE: 1\n%s"
             "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Hangup (signal 1)\n"
             "This typically refers to a problem with your application.\n"
             "Please see the FAQ page for debugging suggestions\n",
             rule, rule);
    for (size_t piece = 1; piece < strlen(text); piece++) {
        char first[1024];
        snprintf(first, sizeof first, "%.*s", (int)piece, text);
        expect(PARTS(first, text + piece), "one\n", -1);
    }
    expect(PARTS("\n\ntwo\n"), "\n\ntwo\n", -1);
    expect(PARTS("=====>  ", "half\n", "==", "= Title =\n"), "=====>  half\n=== Title =\n", -1);
    expect(PARTS("=="), "==", -1);
}

static void logs_get_the_lines_of_their_rank(void **state)
{
    char *folder = tx_path_join(*state, "logs"), *zero = tx_path_join(folder, "rank-0.log"), *text, *read;
    size_t size;
    tx_launch_job job;
    assert_ok(tx_launch_job_start(&job, 2, 0.0));
    for (int attempt = 0; attempt < 2; attempt++) { /* a restart appends */
        tx_launch_logs logs = {0};
        assert_ok(tx_launch_logs_open(folder, 2, &logs));
        text = forwarded(PARTS("[0] one\n[1] t", "wo\n", "[1,0]<stdout>:three\n[0] " MARK "0 step 5\nmpiexec\n[0] end"),
                         &logs, &job);
        assert_string_equal(text, "[0] one\n[1] two\n[0] three\nmpiexec\n[0] end");
        free(text);
        tx_launch_logs_close(&logs);
    }
    assert_ok(tx_file_read_text(zero, 1000, &read, &size));
    assert_string_equal(read, "one\nthree\nendone\nthree\nend");
    free(read);
    tx_launch_job_free(&job);
    free(zero);
    free(folder);
}

/* A line that is longer than the room for one is forwarded in parts. */
static void long_lines(void **state)
{
    enum { LENGTH = 100000 };
    char *folder = tx_path_join(*state, "long"), *log = tx_path_join(folder, "rank-1.log"), *read,
         *line = malloc(LENGTH);
    static volatile sig_atomic_t none;
    static tx_launch_stream stream;
    const tx_launch_attempt attempt = {.signals = &none};
    size_t size;
    int in[2];
    tx_launch_job job;
    tx_launch_logs logs = {0};
    const int null = open("/dev/null", O_WRONLY);
    assert_ok(tx_launch_job_start(&job, 2, 0.0));
    assert_ok(tx_launch_logs_open(folder, 2, &logs));
    assert_int_equal(pipe(in), 0);
    stream = (tx_launch_stream){.from = in[0], .to = null, .rank = -1};
    memset(line, 'x', LENGTH);
    memcpy(line, "[1] ", 4);
    line[LENGTH - 1] = '\n';
    for (int i = 0; i < LENGTH; i += LENGTH / 20) {
        assert_int_equal(write(in[1], line + i, LENGTH / 20), LENGTH / 20);
        assert_true(tx_launch_forward(&stream, &logs, &job, &attempt));
    }
    tx_launch_logs_close(&logs);
    assert_ok(tx_file_read_text(log, LENGTH, &read, &size));
    assert_int_equal(size, LENGTH - 4);
    assert_string_equal(read + LENGTH - 4 - 2, "x\n");
    for (const int *open = (const int[]){in[0], in[1], null, -1}; *open >= 0; open++)
        close(*open);
    tx_launch_job_free(&job);
    free(read);
    free(line);
    free(log);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks),
        cmocka_unit_test(reports_are_taken_out),
        cmocka_unit_test(the_launchers_report_is_left_out),
        cmocka_unit_test(logs_get_the_lines_of_their_rank),
        cmocka_unit_test(long_lines),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
