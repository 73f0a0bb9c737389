/* SPDX-License-Identifier: Apache-2.0
 * The lines of heartbeats: what is printed reads back the same, and bad lines are refused. */
#include "comm/beat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit.h"

#define TOKEN "0123456789abcdef0123456789abcdef"

static bool parse(const char *line, tx_beat *beat)
{
    return tx_beat_parse(line, strlen(line), beat);
}

static void every_kind_reads_back(void **state)
{
    const tx_beat all[] = {
        {.kind = TX_BEAT_HELLO, .rank = 3, .size = 4, .pid = 77, .token = TOKEN, .host = "node-1"},
        {.kind = TX_BEAT_STEP, .step = -1},
        {.kind = TX_BEAT_STEP, .step = INT64_MAX},
        {.kind = TX_BEAT_WAIT, .rank = 2, .step = 41, .bucket = -1},
        {.kind = TX_BEAT_SAVED, .text = "/a folder/checkpoint-5"},
        {.kind = TX_BEAT_LOST, .rank = 2, .step = 41, .bucket = 3},
        {.kind = TX_BEAT_FAILED, .status = 143, .text = "stopped by a signal"},
        {.kind = TX_BEAT_FAILED, .status = 1},
        {.kind = TX_BEAT_DONE},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char line[TX_BEAT_LINE];
        tx_beat read;
        memset(&read, 0, sizeof read);
        size_t length = tx_beat_print(&all[i], line);
        assert_int_equal(length, strlen(line));
        assert_true(length < TX_BEAT_LINE && line[length - 1] == '\n');
        assert_true(tx_beat_parse(line, length - 1, &read));
        assert_int_equal(read.kind, all[i].kind);
        assert_int_equal(read.rank, all[i].rank);
        assert_int_equal(read.size, all[i].size);
        assert_int_equal(read.bucket, all[i].bucket);
        assert_int_equal(read.status, all[i].status);
        assert_int_equal(read.pid, all[i].pid);
        assert_int_equal(read.step, all[i].step);
        assert_string_equal(read.token, all[i].token);
        assert_string_equal(read.host, all[i].host);
        assert_string_equal(read.text, all[i].text);
    }
}

static void text_stays_one_line(void **state)
{
    tx_beat beat = {.kind = TX_BEAT_FAILED, .status = 1}, read;
    memset(beat.text, 'x', sizeof beat.text - 1);
    beat.text[3] = '\n';
    beat.text[4] = '\r';
    char line[TX_BEAT_LINE];
    size_t length = tx_beat_print(&beat, line);
    assert_ptr_equal(strchr(line, '\n'), line + length - 1);
    assert_true(tx_beat_parse(line, length - 1, &read));
    assert_int_equal(strlen(read.text), sizeof read.text - 1);
    assert_memory_equal(read.text, "xxx  x", 6);
}

static void bad_lines_are_refused(void **state)
{
    static const char *const bad[] = {
        "",
        " ",
        "hello",
        "hello ",
        "hello " TOKEN,
        "hello " TOKEN " 0 1 5",
        "hello " TOKEN " 0 1 5 ",
        "hello " TOKEN "0 0 1 5 h",
        "hello " TOKEN " 1 1 5 h",
        "hello " TOKEN " -1 1 5 h",
        "hello " TOKEN " 0 0 5 h",
        "hello " TOKEN " 0 1 0 h",
        "hello " TOKEN " 0 1 5 h more",
        "hello " TOKEN " 0 99999999999 5 h",
        "step",
        "step ",
        "step x",
        "step 1x",
        "step  1",
        "step +1",
        "step -2",
        "step 1 2",
        "step 99999999999999999999",
        "steps 1",
        "STEP 1",
        "wait 1 2",
        "wait 1 2 -2",
        "wait -1 2 3",
        "wait 1 2 3 4",
        "saved",
        "saved ",
        "lost 1 2",
        "failed",
        "failed x",
        "failed -1 text",
        "done 1",
        "done ",
        "GET / HTTP/1.1",
        "\x80\xff",
    };
    tx_beat beat = {.kind = TX_BEAT_DONE, .pid = 5};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (parse(bad[i], &beat))
            fail_msg("\"%s\" is taken", bad[i]);
        assert_int_equal(beat.pid, 5);
    }
    assert_false(tx_beat_parse("step\0 1", 7, &beat));
    char longest[TX_BEAT_LINE + 10];
    memset(longest, 'a', sizeof longest);
    assert_false(tx_beat_parse(longest, sizeof longest, &beat));
}

/* Any bytes: no crash, and what is taken prints to a line that is taken again. */
static void random_lines(void **state)
{
    static const char *const words[] = {"hello ", "step ", "wait ", "saved ", "lost ", "failed ", "done", TOKEN,
                                        " ",      "1",     "-1",    "9",      "x",     "\n",      "\x01"};
    uint32_t seed = 1;
    int taken = 0;
    for (int i = 0; i < 200000; i++) {
        char line[200] = "", printed[TX_BEAT_LINE];
        for (int k = 0; k < 8; k++) {
            seed = seed * 1664525u + 1013904223u;
            strcat(line, words[(seed >> 16) % (sizeof words / sizeof words[0])]);
            if (!(seed >> 28))
                break;
        }
        tx_beat beat, again;
        if (!parse(line, &beat))
            continue;
        taken++;
        size_t length = tx_beat_print(&beat, printed);
        assert_true(tx_beat_parse(printed, length - 1, &again));
        assert_int_equal(again.kind, beat.kind);
    }
    assert_true(taken > 100);
}

static void bad_places_are_refused(void **state)
{
    static const char *const bad[] = {
        "",        ":", "::", "127.0.0.1", "127.0.0.1:5", "127.0.0.1:5:short", "a.b:5:" TOKEN, "127.0.0.1:port:" TOKEN,
        "5:" TOKEN};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int link = -7;
        char token[TX_BEAT_TOKEN + 1];
        if (tx_beat_connect(bad[i], 0.1, &link, token) != TX_FORMAT)
            fail_msg("\"%s\" is taken", bad[i]);
        assert_int_equal(link, -7);
    }
}

/* A launcher that does not read must not hold up a rank, and no line is cut in two. */
static void a_slow_launcher(void **state)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    tx_beat saved = {.kind = TX_BEAT_SAVED};
    memset(saved.text, 'a', 500);
    int lines = 0;
    for (; lines < 100000; lines++)
        assert_true(tx_beat_send(ends[0], &saved, 0.0));
    assert_false(tx_beat_gone(ends[0]));
    assert_int_equal(shutdown(ends[0], SHUT_WR), 0);
    char line[TX_BEAT_LINE], expected[TX_BEAT_LINE];
    size_t length = tx_beat_print(&saved, expected);
    for (;;) {
        ssize_t got = recv(ends[1], line, length, MSG_WAITALL);
        if (got == 0)
            break;
        assert_int_equal(got, length);
        assert_memory_equal(line, expected, length);
    }
    close(ends[1]);
    assert_true(tx_beat_gone(ends[0]));
    assert_false(tx_beat_send(ends[0], &saved, 0.1));
    close(ends[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_reads_back),  cmocka_unit_test(text_stays_one_line),
        cmocka_unit_test(bad_lines_are_refused),  cmocka_unit_test(random_lines),
        cmocka_unit_test(bad_places_are_refused), cmocka_unit_test(a_slow_launcher),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
