/* SPDX-License-Identifier: Apache-2.0
 * The heartbeats' other end: bad input is dropped and never taken for a rank, and ranks that close are known in the
 * order in which they did. */
#include "api/base/clock.h"
#include "tools/launch/txlaunch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit.h"

typedef struct setting {
    tx_launch_server *server;
    tx_launch_job job;
    char place[128], token[TX_BEAT_TOKEN + 1];
    sigset_t open;
} setting;

static setting begin(int32_t ranks)
{
    setting s = {.server = NULL};
    const tx_launch_hosts none = {0};
    sigemptyset(&s.open);
    assert_int_equal(tx_launch_server_open(NULL, &none, &s.server), TX_OK);
    assert_int_equal(tx_launch_server_begin(s.server, ranks, s.place), TX_OK);
    assert_int_equal(strncmp(s.place, "127.0.0.1:", 10), 0);
    assert_int_equal(tx_launch_job_start(&s.job, ranks, tx_now()), TX_OK);
    return s;
}

static void end(setting *s)
{
    tx_launch_server_close(s->server);
    tx_launch_job_free(&s->job);
}

static int join(setting *s)
{
    int link = -1;
    assert_int_equal(tx_beat_connect(s->place, 5.0, &link, s->token), TX_OK);
    return link;
}

static void say(int link, const char *text)
{
    assert_int_equal(send(link, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void say_hello(setting *s, int link, int rank)
{
    char line[200];
    snprintf(line, sizeof line, "hello %s %d %d 5 h\n", s->token, rank, (int)s->job.size);
    say(link, line);
}

/* Joins as that rank. */
static int join_as(setting *s, int rank)
{
    int link = join(s);
    say_hello(s, link, rank);
    return link;
}

/* Lets the server work until it has nothing more to do. */
static void settle(setting *s)
{
    for (int i = 0; i < 20; i++)
        tx_launch_server_wait(s->server, &s->job, 0.005, &s->open);
}

static void expect_dropped(setting *s, int link)
{
    settle(s);
    assert_true(tx_beat_gone(link));
    close(link);
}

static void ranks_join_and_tell(void **state)
{
    setting s = begin(2);
    int link[2] = {join_as(&s, 0), join_as(&s, 1)};
    say(link[0], "step 1\nstep 2\nst");
    settle(&s);
    assert_int_equal(s.job.open, 2);
    assert_int_equal(s.job.rank[0].step, 2);
    say(link[0], "ep 3\nsaved x\ndone\n");
    close(link[0]);
    settle(&s);
    assert_int_equal(s.job.rank[0].step, 3);
    assert_true(tx_launch_job_done(&s.job) && s.job.saved && s.job.rank[0].closed);
    assert_int_equal(s.job.sign.kind, TX_LAUNCH_NONE);
    close(link[1]);
    settle(&s);
    assert_int_equal(s.job.sign.kind, TX_LAUNCH_DIED);
    assert_int_equal(s.job.sign.rank, 1);
    end(&s);
}

static void strangers_are_dropped(void **state)
{
    setting s = begin(2);
    char line[3000];
    static const char *const bad[] = {"GET / HTTP/1.1\r\n\r\n", "\n", "step 1\n",
                                      "hello 0123456789abcdef0123456789abcdef 0 2 5 h\n", "\x16\x03\x01\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int link = join(&s);
        say(link, bad[i]);
        expect_dropped(&s, link);
    }
    expect_dropped(&s, join_as(&s, 2)); /* a rank that there is not */
    int link = join(&s);                /* a line without an end */
    memset(line, 'a', sizeof line);
    assert_true(send(link, line, sizeof line, MSG_NOSIGNAL) > 0);
    expect_dropped(&s, link);
    assert_false(s.job.reported);
    end(&s);
}

static void bad_lines_of_a_rank_are_left_out(void **state)
{
    setting s = begin(1);
    int link = join_as(&s, 0), second = join(&s);
    char line[5000];
    settle(&s);
    say_hello(&s, second, 0); /* there is one already */
    say_hello(&s, link, 0);
    memset(line, 'b', sizeof line);
    line[sizeof line - 1] = 0;
    say(link, line);
    say(link, "\nstep x\nstep 7\n\nunknown word\n");
    settle(&s);
    assert_true(tx_beat_gone(second));
    assert_false(tx_beat_gone(link));
    assert_int_equal(s.job.rank[0].step, 7);
    assert_int_equal(s.job.sign.kind, TX_LAUNCH_NONE);
    close(link);
    close(second);
    end(&s);
}

/* More strangers than there is room for do not keep the ranks out for ever, nor crash anything. */
static void a_crowd(void **state)
{
    setting s = begin(1);
    int crowd[100];
    for (int i = 0; i < 100; i++)
        crowd[i] = join(&s);
    settle(&s);
    for (int i = 0; i < 100; i++)
        close(crowd[i]);
    settle(&s);
    int link = join_as(&s, 0);
    settle(&s);
    assert_int_equal(s.job.open, 1);
    close(link);
    end(&s);
}

/* All is noticed at once, long after it happened; each has said something before. */
static void closes_are_in_order(void **state)
{
    for (int first = 0; first < 8; first++) {
        setting s = begin(8);
        int link[8];
        for (int r = 0; r < 8; r++)
            link[r] = join_as(&s, r);
        settle(&s);
        assert_int_equal(s.job.open, 8);
        for (int r = 0; r < 8; r++)
            say(link[r], "step 4\n");
        close(link[first]);
        for (int r = 0; r < 8; r++)
            if (r != first)
                close(link[r]);
        settle(&s);
        assert_int_equal(s.job.sign.kind, TX_LAUNCH_DIED);
        assert_int_equal(s.job.sign.rank, first);
        assert_int_equal(s.job.rank[first].step, 4);
        assert_int_equal(s.job.open, 0);
        end(&s);
    }
}

/* Ranks of an attempt before have another token and no connection any more. */
static void attempts_do_not_mix(void **state)
{
    setting s = begin(1);
    char old[sizeof s.place];
    snprintf(old, sizeof old, "%s", s.place);
    int link = join_as(&s, 0), late = -1;
    settle(&s);
    assert_int_equal(tx_launch_server_begin(s.server, 1, s.place), TX_OK);
    assert_string_not_equal(old, s.place);
    tx_launch_job_free(&s.job);
    assert_int_equal(tx_launch_job_start(&s.job, 1, tx_now()), TX_OK);
    settle(&s);
    assert_true(tx_beat_gone(link));
    assert_int_equal(tx_beat_connect(old, 5.0, &late, s.token), TX_OK);
    say_hello(&s, late, 0);
    expect_dropped(&s, late);
    assert_false(s.job.reported);
    close(link);
    end(&s);
}

static void addresses(void **state)
{
    tx_launch_server *server = NULL;
    const tx_launch_hosts none = {0};
    char place[128];
    assert_int_equal(tx_launch_server_open("192.0.2.1", &none, &server), TX_IO); /* nobody's address */
    assert_non_null(strstr(tx_error(), "--address takes an address of this host"));
    assert_int_equal(tx_launch_server_open("nohost.invalid", &none, &server), TX_NOT_FOUND);
    tx_launch_host here[] = {{.name = "localhost", .slots = 1}, {.name = "127.0.0.1", .slots = 1}};
    const tx_launch_hosts hosts = {.host = here, .count = 2};
    assert_int_equal(tx_launch_server_open(NULL, &hosts, &server), TX_OK);
    assert_int_equal(tx_launch_server_begin(server, 1, place), TX_OK);
    assert_int_equal(strncmp(place, "127.0.0.1:", 10), 0);
    tx_launch_server_close(server);
    tx_launch_server_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_join_and_tell),
        cmocka_unit_test(strangers_are_dropped),
        cmocka_unit_test(bad_lines_of_a_rank_are_left_out),
        cmocka_unit_test(a_crowd),
        cmocka_unit_test(closes_are_in_order),
        cmocka_unit_test(attempts_do_not_mix),
        cmocka_unit_test(addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
