/* SPDX-License-Identifier: Apache-2.0
 * What the watch tells txlaunch: heartbeats, checkpoints, the end, and whom it waits for. */
#include "comm/beat.h"
#include "tests/launch/fake.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TOKEN "0123456789abcdef0123456789abcdef"

static int listen_here(void)
{
    int made = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    char place[128];
    assert_int_equal(bind(made, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(made, 5), 0);
    assert_int_equal(getsockname(made, (struct sockaddr *)&at, &size), 0);
    snprintf(place, sizeof place, "127.0.0.1:%d:%s", ntohs(at.sin_port), TOKEN);
    setenv(TX_BEAT_VARIABLE, place, 1);
    return made;
}

/* All that came until the other end was closed. */
static void take_all(int link, char text[8192])
{
    ssize_t length = recv(link, text, 8191, MSG_WAITALL);
    assert_true(length > 0);
    text[length] = 0;
    close(link);
    unsetenv(TX_BEAT_VARIABLE);
}

static void heartbeats_tell_the_story(void **state)
{
    (void)state;
    fake f;
    make(&f, 0, 2);
    int listener = listen_here();
    tx_watch *watch = begin(&f, 600.0);
    int link = accept(listener, NULL, NULL);
    assert_true(link >= 0);
    tx_watch_step(watch, 5);
    tx_watch_saved(watch, "out/checkpoint-5");
    rest(1.5); /* heartbeats in which nothing new is said */
    tx_watch_step(watch, 6);
    tx_watch_done(watch);
    tx_watch_failed(watch, 1, "too late");
    tx_watch_stop(watch);
    char text[8192], *rest_of;
    take_all(link, text);
    char expected[] = "hello " TOKEN " 0 1 ", last[] = "step 6\ndone\n";
    assert_memory_equal(text, expected, sizeof expected - 1);
    assert_string_equal(text + strlen(text) - strlen(last), last);
    assert_non_null(strstr(text, "\nsaved out/checkpoint-5\n"));
    int beats = 0;
    for (char *line = strtok_r(text, "\n", &rest_of); line; line = strtok_r(NULL, "\n", &rest_of)) {
        tx_beat beat;
        assert_true(tx_beat_parse(line, strlen(line), &beat));
        beats += beat.kind == TX_BEAT_STEP;
    }
    assert_true(beats >= 3 && beats <= 100);
    close(listener);
    assert_int_equal(f.did.lines, 0);
}

static void a_hang_is_told_to_the_launcher(void **state)
{
    (void)state;
    fake f;
    make(&f, 0, 2);
    await(&f, 1, 3, WAITING);
    f.awaited[1] = 0;
    int listener = listen_here();
    tx_watch *watch = begin(&f, 0.05);
    tx_watch_step(watch, 42);
    int link = accept(listener, NULL, NULL);
    await_end(&f);
    tx_watch_stop(watch);
    char text[8192];
    take_all(link, text);
    assert_non_null(strstr(text, "\nlost 1 41 3\n"));
    close(listener);
}

static void a_launcher_that_is_gone_is_told_once(void **state)
{
    (void)state;
    fake f;
    make(&f, 0, 2);
    int listener = listen_here();
    tx_watch *watch = begin(&f, 600.0);
    close(accept(listener, NULL, NULL));
    while (f.did.lines == 0)
        rest(0.01);
    rest(1.0);
    tx_watch_step(watch, 1);
    assert_int_equal(f.did.lines, 1);
    assert_string_equal(f.did.line, "train: the launcher is gone; the run goes on without it");
    tx_watch_stop(watch);
    close(listener);
    make(&f, 0, 2);
    watch = begin(&f, 600.0); /* nobody listens any more */
    assert_int_equal(f.did.lines, 1);
    assert_non_null(strstr(f.did.line, "cannot be reached: "));
    tx_watch_stop(watch);
    assert_int_equal(f.did.ends, 0);
    unsetenv(TX_BEAT_VARIABLE);
}

int main(void)
{
    unsetenv(TX_BEAT_VARIABLE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heartbeats_tell_the_story),
        cmocka_unit_test(a_hang_is_told_to_the_launcher),
        cmocka_unit_test(a_launcher_that_is_gone_is_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
