/* SPDX-License-Identifier: Apache-2.0
 * The watch over a run, on a made-up communicator: who speaks when, and that nobody does while there is progress. The
 * end of the process is a function of the test. What must happen is waited for without a limit but the test's own; what
 * must not happen is looked for over many times the watch's limit. */
#include "comm/beat.h"
#include "comm/watch.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define TOKEN "0123456789abcdef0123456789abcdef"

typedef struct fake {
    tx_comm base;
    tx_comm_rank ranks[4];
    tx_comm_laggard laggard;
    bool waits;
    atomic_bool lives; /* the rank that it waits for makes marks */
    int looks;
    _Atomic int64_t marked;
    atomic_bool closed; /* the communicator is not to be touched */
    atomic_int touched;
} fake;

static void mark(tx_comm *comm, int64_t step)
{
    ((fake *)comm)->marked = step;
}

static bool laggard(tx_comm *comm, tx_comm_laggard *found)
{
    fake *f = (fake *)comm;
    f->touched += f->closed;
    if (f->waits)
        *found = f->laggard;
    if (f->lives)
        found->marked += ++f->looks;
    return f->waits;
}

static const tx_comm_table table = {.version = TX_COMM_VERSION, .name = "fake", .mark = mark, .laggard = laggard};

/* Ranks 0 and 1 are on host one, 2 and 3 on host two. */
static void make(fake *f, int32_t rank, int32_t size)
{
    *f = (fake){.base = {.table = &table, .rank = rank, .size = size, .ranks = f->ranks}, .marked = -1};
    for (int32_t r = 0; r < 4; r++) {
        f->ranks[r].host = r / 2;
        snprintf(f->ranks[r].name, sizeof f->ranks[r].name, r < 2 ? "one" : "two");
    }
}

/* What the watch did. */
typedef struct record {
    char line[1200];
    atomic_int lines, ends, status;
} record;

static void on_tell(void *context, const char *line)
{
    record *r = context;
    snprintf(r->line, sizeof r->line, "%s", line);
    r->lines++;
}

static void on_end(void *context, int status)
{
    record *r = context;
    r->status = status;
    r->ends++;
}

static tx_watch *begin(fake *f, record *r, double timeout, double start)
{
    tx_watch *watch = NULL;
    const tx_watch_options options = {.size = sizeof options,
                                      .program = "train",
                                      .advice = "start again",
                                      .timeout = timeout,
                                      .start = start,
                                      .tell = on_tell,
                                      .end = on_end,
                                      .context = r};
    assert_int_equal(tx_watch_start(&f->base, &options, &watch), TX_OK);
    return watch;
}

static void rest(double seconds)
{
    struct timespec time = {.tv_sec = (time_t)seconds};
    time.tv_nsec = (long)(1e9 * (seconds - (double)time.tv_sec));
    nanosleep(&time, NULL);
}

static void await_end(record *r)
{
    while (r->ends == 0)
        rest(0.005);
}

static void the_one_that_waits_names_the_other(void **state)
{
    (void)state;
    fake f;
    record r = {.lines = 0};
    make(&f, 0, 2);
    f.waits = true;
    f.laggard = (tx_comm_laggard){.rank = 1, .step = 41, .bucket = 3, .marked = -1};
    tx_watch *watch = begin(&f, &r, 0.1, 0.1);
    tx_watch_step(watch, 42);
    assert_int_equal(f.marked, 42);
    await_end(&r);
    tx_watch_stop(watch);
    assert_int_equal(r.status, TX_WATCH_STATUS);
    assert_int_equal(r.lines, 1);
    assert_non_null(strstr(r.line,
                           "train: rank 1 on one does not answer: its last step is 41, it did not reach bucket 3 "
                           "for 0."));
    assert_non_null(strstr(r.line, " s; the run ends; start again"));
    assert_null(strchr(r.line, '\n'));
}

static void unknown_step_and_bucket(void **state)
{
    (void)state;
    fake f;
    record r = {.lines = 0};
    make(&f, 0, 3);
    f.waits = true;
    f.laggard = (tx_comm_laggard){.rank = 2, .step = -1, .bucket = -1, .marked = -1};
    tx_watch *watch = begin(&f, &r, 0.05, 0.05);
    await_end(&r);
    tx_watch_stop(watch);
    assert_non_null(strstr(r.line, "rank 2 on two does not answer: no step of it is known, it did not reach what the "
                                   "others wait in for 0."));
}

static void the_one_that_hangs_says_so(void **state)
{
    (void)state;
    fake f;
    record r = {.lines = 0};
    make(&f, 3, 4);
    tx_watch *watch = begin(&f, &r, 0.05, 0.05);
    tx_watch_step(watch, 7);
    await_end(&r);
    tx_watch_stop(watch);
    assert_int_equal(r.status, TX_WATCH_STATUS);
    assert_non_null(
        strstr(r.line, "train: rank 3 on two does not get on: its last step is 7, and nothing was done for "));
}

/* Ranks in the order in which they speak, when rank 2 does not answer: 0, then 3, then 1. */
static void others_hold_back(void **state)
{
    (void)state;
    static const int32_t order[] = {0, 3, 1};
    fake f[3];
    record r[3] = {{.lines = 0}, {.lines = 0}, {.lines = 0}};
    tx_watch *watch[3];
    for (int i = 0; i < 3; i++) {
        make(&f[i], order[i], 4);
        f[i].waits = true;
        f[i].laggard = (tx_comm_laggard){.rank = 2, .step = 1, .bucket = 0, .marked = -1};
    }
    for (int i = 2; i >= 0; i--)
        watch[i] = begin(&f[i], &r[i], 0.8, 0.8);
    await_end(&r[0]);
    assert_int_equal(r[1].ends + r[2].ends, 0);
    await_end(&r[1]);
    assert_int_equal(r[2].ends, 0);
    for (int i = 0; i < 3; i++)
        tx_watch_stop(watch[i]);
}

static void progress_keeps_it_silent(void **state)
{
    (void)state;
    fake f;
    record r = {.lines = 0};
    make(&f, 0, 2);
    /* A step every hundredth of the limit: a machine that holds this thread up for the whole limit is not one. */
    tx_watch *watch = begin(&f, &r, 1.0, 1.0);
    for (int64_t step = 1; step <= 300; step++) {
        rest(0.01);
        if (step % 2)
            tx_watch_step(watch, step);
        else
            tx_watch_alive(watch);
    }
    assert_int_equal(r.ends, 0);
    assert_int_equal(r.lines, 0);
    await_end(&r); /* and now there is none */
    tx_watch_stop(watch);
}

static void a_pause_has_its_own_limit(void **state)
{
    (void)state;
    fake f;
    record r = {.lines = 0};
    make(&f, 0, 2);
    tx_watch *watch = begin(&f, &r, 0.05, 0.05);
    tx_watch_pause(watch, 3600.0);
    rest(1.0);
    tx_watch_pause(watch, 0.0);
    rest(0.5);
    assert_int_equal(r.ends, 0);
    tx_watch_resume(watch);
    await_end(&r);
    tx_watch_stop(watch);
    record second = {.lines = 0};
    watch = begin(&f, &second, 0.05, 0.05);
    tx_watch_pause(watch, 0.2);
    await_end(&second);
    tx_watch_stop(watch);
}

/* Within a pause and before the first step the other may take its time as long as its process lives. */
static void a_stopped_process_has_no_pause(void **state)
{
    (void)state;
    for (int32_t paused = 0; paused <= 1; paused++) {
        fake f;
        record r = {.lines = 0};
        make(&f, 0, 2);
        f.waits = true;
        f.lives = true;
        f.laggard = (tx_comm_laggard){.rank = 1, .step = -1, .bucket = -1, .marked = 1};
        tx_watch *watch = begin(&f, &r, 0.1, 0.0);
        if (paused)
            tx_watch_pause(watch, 3600.0);
        rest(2.0);
        assert_int_equal(r.ends, 0);
        assert_true(f.marked == -1);
        f.lives = false;
        await_end(&r);
        tx_watch_stop(watch);
        assert_int_equal(r.status, TX_WATCH_STATUS);
        assert_non_null(strstr(r.line, "train: rank 1 on one does not answer: no step of it is known, it did not reach "
                                       "what the others wait in for 0."));
    }
}

static void the_start_has_its_own_limit(void **state)
{
    (void)state;
    fake f;
    record r = {.lines = 0};
    make(&f, 0, 2);
    tx_watch *watch = begin(&f, &r, 0.05, 0.0);
    rest(1.0);
    assert_int_equal(r.ends, 0);
    tx_watch_step(watch, 1);
    await_end(&r);
    tx_watch_stop(watch);
}

static void the_limit_follows_the_steps(void **state)
{
    (void)state;
    fake f;
    record r = {.lines = 0};
    make(&f, 0, 2);
    tx_watch *watch = begin(&f, &r, 0.0, 0.0);
    assert_true(tx_watch_limit(watch) == 600.0);
    tx_watch_pause(watch, 1000.0);
    assert_true(tx_watch_limit(watch) == 1000.0);
    tx_watch_resume(watch);
    for (int64_t step = 1; step <= 3; step++) {
        assert_true(tx_watch_limit(watch) == 600.0);
        tx_watch_step(watch, step);
    }
    assert_true(tx_watch_limit(watch) == 30.0);
    for (int64_t step = 4; step <= 7; step++) { /* most are now long; a pause counts for none */
        rest(3.1);
        tx_watch_step(watch, step);
        tx_watch_pause(watch, 1.0);
        rest(0.1);
        tx_watch_resume(watch);
    }
    double limit = tx_watch_limit(watch);
    assert_true(limit >= 31.0 && limit < 300.0);
    assert_int_equal(r.ends, 0);
    tx_watch_stop(watch);
    watch = begin(&f, &r, 900.0, 0.0);
    assert_true(tx_watch_limit(watch) == 900.0);
    tx_watch_stop(watch);
}

static void one_rank_alone_has_no_limit(void **state)
{
    (void)state;
    fake f;
    record r = {.lines = 0};
    make(&f, 0, 1);
    tx_watch *watch = begin(&f, &r, 0.0, 0.05);
    rest(0.5);
    assert_int_equal(r.ends, 0);
    assert_true(tx_watch_limit(watch) == 0.0);
    tx_watch_stop(watch);
}

/* After the end the communicator is not touched; who does not come to an end is ended, with status 0 or the failure's.
 */
static void the_end(void **state)
{
    (void)state;
    fake f;
    record r = {.lines = 0};
    make(&f, 0, 2);
    tx_watch *watch = begin(&f, &r, 0.1, 0.1);
    tx_watch_step(watch, 1);
    tx_watch_done(watch);
    f.closed = true;
    await_end(&r);
    tx_watch_stop(watch);
    assert_int_equal(r.status, 0);
    assert_int_equal(r.lines, 0);
    assert_int_equal(f.touched, 0);

    record failed = {.lines = 0};
    watch = begin(&f, &failed, 0.01, 0.01);
    f.closed = false;
    tx_watch_failed(watch, 1, "no such file");
    rest(0.5); /* the limit of such an end is longer */
    assert_int_equal(failed.ends, 0);
    tx_watch_stop(watch);
}

static void no_watch_is_fine(void **state)
{
    (void)state;
    tx_watch_step(NULL, 1);
    tx_watch_alive(NULL);
    tx_watch_pause(NULL, 1.0);
    tx_watch_resume(NULL);
    tx_watch_saved(NULL, "x");
    tx_watch_done(NULL);
    tx_watch_failed(NULL, 1, "x");
    tx_watch_stop(NULL);
    tx_watch *watch = NULL;
    fake f;
    make(&f, 0, 2);
    assert_int_equal(tx_watch_start(&f.base, &(tx_watch_options){.size = 1}, &watch), TX_INVALID);
    assert_null(watch);
}

/* ---- Under a launcher ------------------------------------------------------------------------------------ */

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

static void heartbeats_tell_the_story(void **state)
{
    (void)state;
    fake f;
    record r = {.lines = 0};
    make(&f, 0, 2);
    int listener = listen_here();
    tx_watch *watch = begin(&f, &r, 600.0, 600.0);
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
    ssize_t length = recv(link, text, sizeof text - 1, MSG_WAITALL);
    assert_true(length > 0);
    text[length] = 0;
    char expected[] = "hello " TOKEN " 0 2 ", last[] = "step 6\ndone\n";
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
    close(link);
    close(listener);
    unsetenv(TX_BEAT_VARIABLE);
    assert_int_equal(r.lines, 0);
}

static void a_hang_is_told_to_the_launcher(void **state)
{
    (void)state;
    fake f;
    record r = {.lines = 0};
    make(&f, 0, 2);
    f.waits = true;
    f.laggard = (tx_comm_laggard){.rank = 1, .step = 41, .bucket = 3, .marked = -1};
    int listener = listen_here();
    tx_watch *watch = begin(&f, &r, 0.05, 0.05);
    int link = accept(listener, NULL, NULL);
    await_end(&r);
    tx_watch_stop(watch);
    char text[8192];
    ssize_t length = recv(link, text, sizeof text - 1, MSG_WAITALL);
    assert_true(length > 0);
    text[length] = 0;
    assert_non_null(strstr(text, "\nlost 1 41 3\n"));
    close(link);
    close(listener);
    unsetenv(TX_BEAT_VARIABLE);
}

static void a_launcher_that_is_gone_is_told_once(void **state)
{
    (void)state;
    fake f;
    record r = {.lines = 0};
    make(&f, 0, 2);
    int listener = listen_here();
    tx_watch *watch = begin(&f, &r, 600.0, 600.0);
    close(accept(listener, NULL, NULL));
    while (r.lines == 0)
        rest(0.01);
    rest(1.0);
    tx_watch_step(watch, 1);
    assert_int_equal(r.lines, 1);
    assert_string_equal(r.line, "train: the launcher is gone; the run goes on without it");
    tx_watch_stop(watch);
    close(listener);
    record none = {.lines = 0};
    watch = begin(&f, &none, 600.0, 600.0); /* nobody listens any more */
    assert_int_equal(none.lines, 1);
    assert_non_null(strstr(none.line, "cannot be reached: "));
    tx_watch_stop(watch);
    assert_int_equal(none.ends, 0);
    unsetenv(TX_BEAT_VARIABLE);
}

int main(void)
{
    unsetenv(TX_BEAT_VARIABLE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_one_that_waits_names_the_other),
        cmocka_unit_test(unknown_step_and_bucket),
        cmocka_unit_test(the_one_that_hangs_says_so),
        cmocka_unit_test(others_hold_back),
        cmocka_unit_test(progress_keeps_it_silent),
        cmocka_unit_test(a_pause_has_its_own_limit),
        cmocka_unit_test(a_stopped_process_has_no_pause),
        cmocka_unit_test(the_start_has_its_own_limit),
        cmocka_unit_test(the_limit_follows_the_steps),
        cmocka_unit_test(one_rank_alone_has_no_limit),
        cmocka_unit_test(the_end),
        cmocka_unit_test(no_watch_is_fine),
        cmocka_unit_test(heartbeats_tell_the_story),
        cmocka_unit_test(a_hang_is_told_to_the_launcher),
        cmocka_unit_test(a_launcher_that_is_gone_is_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
