/* SPDX-License-Identifier: Apache-2.0
 * A reward program of the user: a child process that gets a JSON object on a line and answers with one. Completions are
 * hostile text, so they reach it only as JSON on its input, never as arguments or environment. */
#define _GNU_SOURCE /* pipe2 */
#include "models/reward/reward.h"

#include "api/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Bytes of an answer: at most LEAST and EACH for each completion. */
#define LEAST ((size_t)1 << 16)
#define EACH ((size_t)1 << 12)
#define ARGUMENTS 64
/* Seconds between signs of life while a program answers. */
#define SLICE 0.2
/* Seconds that a program has to end after its input ends. */
#define GRACE 1.0

struct tx_reward_command {
    char *line; /* owns the arguments */
    char *argv[ARGUMENTS + 1];
    double timeout;
    int64_t seed, asked; /* asked: number of the next question */
    tx_reward_caller caller;
    pid_t process; /* 0 if it does not run */
    int to, from;
    char *answer;
    size_t size, room;
};

tx_status tx_reward_command_open(const char *line, double timeout, int64_t seed, const tx_reward_caller *caller,
                                 tx_reward_command **command)
{
    tx_reward_command *c = calloc(1, sizeof *c);
    char *rest = NULL;
    int32_t count = 0;
    if (!c || !(c->line = strdup(line))) {
        free(c);
        return tx_fail(TX_MEMORY, "no memory for a reward program");
    }
    c->timeout = timeout;
    c->seed = seed;
    c->caller = *caller;
    c->to = c->from = -1;
    for (char *word = strtok_r(c->line, " ", &rest); word && count < ARGUMENTS; word = strtok_r(NULL, " ", &rest))
        c->argv[count++] = word;
    const tx_status status =
        count ? TX_OK : tx_fail(TX_INVALID, "--reward_funcs command: names no program: give command:PROGRAM");
    return TX_RETURN(status, c, command, tx_reward_command_free);
}

/* ---- The process ------------------------------------------------------------------------------------------ */

static void close_both(tx_reward_command *c)
{
    if (c->to >= 0)
        close(c->to);
    if (c->from >= 0)
        close(c->from);
    c->to = c->from = -1;
}

/* Kills the process group and returns the state of the process. */
static int stop(tx_reward_command *c)
{
    int state = 0;
    close_both(c);
    if (!c->process)
        return state;
    kill(-c->process, SIGKILL);
    while (waitpid(c->process, &state, 0) < 0 && errno == EINTR)
        ;
    c->process = 0;
    return state;
}

void tx_reward_command_free(tx_reward_command *c)
{
    if (!c)
        return;
    if (c->process) { /* after the end of its input, a program ends by itself */
        struct pollfd out = {.fd = c->from, .events = POLLIN};
        char rest[256];
        const double until = tx_now() + GRACE;
        shutdown(c->to, SHUT_WR);
        while (tx_now() < until && poll(&out, 1, (int)(1e3 * (until - tx_now())) + 1) > 0 &&
               read(c->from, rest, sizeof rest) > 0)
            ;
    }
    stop(c);
    free(c->answer);
    free(c->line);
    free(c);
}

static tx_status spawn(tx_reward_command *c, int input, int output)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t how;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&how);
    posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&how, 0);
    const int error = posix_spawnp(&c->process, c->argv[0], &actions, &how, c->argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&how);
    c->process = error ? 0 : c->process;
    return error ? tx_fail(TX_IO, "%s: cannot be started: %s", c->argv[0], strerror(error)) : TX_OK;
}

/* The input is a socket, so that writing to a program that has ended raises no signal. */
static tx_status start_process(tx_reward_command *c)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    tx_status status = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) || pipe2(out, O_CLOEXEC)
                           ? tx_fail(TX_MEMORY, "%s: cannot be started: %s", c->argv[0], strerror(errno))
                           : TX_OK;
    TX_THEN(status, spawn(c, in[1], out[1]));
    c->to = in[0];
    c->from = out[0];
    if (in[1] >= 0)
        close(in[1]);
    if (out[1] >= 0)
        close(out[1]);
    if (!status && (fcntl(c->to, F_SETFL, O_NONBLOCK) || fcntl(c->from, F_SETFL, O_NONBLOCK)))
        status = tx_fail(TX_IO, "%s: %s", c->argv[0], strerror(errno));
    return status;
}

/* ---- A question and its answer ---------------------------------------------------------------------------- */

/* Fails because the output has ended; the message says how the process ended. */
static tx_status fail_ended(tx_reward_command *c)
{
    const int state = stop(c);
    if (WIFEXITED(state))
        return tx_fail(TX_IO, "%s: ended with status %d before it answered", c->argv[0], WEXITSTATUS(state));
    return tx_fail(TX_IO, "%s: closed its output before it answered", c->argv[0]);
}

/* Appends the bytes that have arrived to the answer. */
static tx_status take(tx_reward_command *c, size_t most)
{
    if (c->size + 1 >= c->room) {
        const size_t room = c->room ? 2 * c->room : LEAST;
        char *grown = realloc(c->answer, room);
        if (!grown)
            return tx_fail(TX_MEMORY, "%s: no memory for its answer", c->argv[0]);
        c->answer = grown;
        c->room = room;
    }
    const ssize_t got = read(c->from, c->answer + c->size, c->room - c->size - 1);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
        return fail_ended(c);
    c->size += got > 0 ? (size_t)got : 0;
    if (c->size > most)
        return tx_fail(TX_FORMAT, "%s: its answer is longer than %zu bytes", c->argv[0], most);
    return TX_OK;
}

/* Writes a line and reads one, which ends with NUL then. Both at once, because pipes have little room. */
static tx_status exchange(tx_reward_command *c, const char *question, size_t size, size_t most)
{
    const double until = tx_now() + c->timeout;
    size_t sent = 0;
    c->size = 0;
    for (char *end = NULL; !end; end = c->size ? memchr(c->answer, '\n', c->size) : NULL) {
        struct pollfd both[] = {{.fd = c->from, .events = POLLIN}, {.fd = sent < size ? c->to : -1, .events = POLLOUT}};
        const double left = until - tx_now();
        if (left <= 0.0)
            return tx_fail(TX_IO, "%s: no answer in %g s (--reward_timeout)", c->argv[0], c->timeout);
        if (poll(both, 2, (int)(1e3 * (left < SLICE ? left : SLICE)) + 1) < 0 && errno != EINTR)
            return tx_fail(TX_IO, "%s: %s", c->argv[0], strerror(errno));
        c->caller.alive(c->caller.context);
        if (both[1].revents) {
            const ssize_t written = send(c->to, question + sent, size - sent, MSG_NOSIGNAL);
            if (written < 0 && errno != EAGAIN && errno != EINTR)
                return fail_ended(c);
            sent += written > 0 ? (size_t)written : 0;
        }
        if (both[0].revents)
            TX_TRY(take(c, most));
    }
    *(char *)memchr(c->answer, '\n', c->size) = '\0';
    return sent == size ? TX_OK : tx_fail(TX_FORMAT, "%s: answered before it had read the question", c->argv[0]);
}

/* Sends a JSON object, which is freed, and parses the answer, which the caller frees. */
static tx_status ask(tx_reward_command *c, tx_json *question, size_t most, tx_json **answer)
{
    char *text = question ? tx_json_text(question, TX_JSON_LINE) : NULL;
    const size_t size = text ? strlen(text) : 0;
    tx_json_free(question);
    if (!text)
        return TX_MEMORY;
    text[size] = '\n';
    tx_status status = exchange(c, text, size + 1, most);
    free(text);
    TX_THEN(status, tx_json_parse_line(c->answer, strlen(c->answer), c->argv[0], answer));
    return status;
}

static tx_status start(tx_reward_command *c)
{
    tx_json *answer = NULL;
    bool ok = false;
    TX_TRY(start_process(c));
    TX_TRY(ask(c, tx_json_pack("{s:i, s:I, s:i}", "tx_reward", 1, "seed", c->seed, "rank", (int)c->caller.rank), LEAST,
               &answer));
    const tx_status status = tx_json_get_bool(answer, "ok", &ok);
    tx_json_free(answer);
    return status || !ok ? tx_fail(TX_FORMAT, "%s: its first answer is not {\"ok\": true}", c->argv[0]) : TX_OK;
}

/* ---- Rewards ---------------------------------------------------------------------------------------------- */

/* {"prompt", "completion", "completion_ids", "columns"} of a completion. */
static tx_status add_sample(tx_json *samples, const tx_reward_sample *s)
{
    tx_json *json = tx_json_object(), *columns = tx_json_object(), *ids = tx_json_array();
    tx_status status = tx_json_set_text(json, "completion", s->text, s->size);
    for (void *i = tx_json_first(s->object); i; i = tx_json_next(s->object, i)) {
        const bool prompt = strcmp(tx_json_key(i), "prompt") == 0;
        TX_THEN(status, tx_json_set(prompt ? json : columns, tx_json_key(i), tx_json_copy(tx_json_value(i))));
    }
    for (int64_t t = 0; t < s->count; t++)
        TX_THEN(status, tx_json_append_int(ids, s->ids[t]));
    const tx_status first = tx_json_set(json, "columns", columns), second = tx_json_set(json, "completion_ids", ids);
    status = status ? status : first ? first : second;
    if (!status)
        return tx_json_append(samples, json);
    tx_json_free(json);
    return status;
}

static tx_status make_question(const tx_reward_command *c, int64_t step, const tx_reward_sample *samples, int64_t count,
                               tx_json **question)
{
    tx_json *json = tx_json_pack("{s:I, s:I, s:s}", "id", c->asked, "step", step, "mode", "train");
    tx_json *list = tx_json_array();
    tx_status status = json && list ? TX_OK : TX_MEMORY;
    for (int64_t i = 0; i < count; i++)
        TX_THEN(status, add_sample(list, &samples[i]));
    const tx_status last = tx_json_set(json, "samples", list);
    status = status ? status : last;
    return TX_RETURN(status, json, question, tx_json_free);
}

static tx_status read_rewards(const tx_reward_command *c, const tx_json *answer, int64_t count, double *to,
                              int64_t stride)
{
    tx_json *rewards;
    int64_t id;
    TX_TRY(tx_json_get_int(answer, "id", c->asked, c->asked, &id));
    TX_TRY(tx_json_get(answer, "rewards", TX_JSON_ARRAY, &rewards));
    if (tx_json_size(rewards) != (size_t)count)
        return tx_fail(TX_FORMAT, "rewards: %zu numbers for %" PRId64 " completions", tx_json_size(rewards), count);
    for (int64_t i = 0; i < count; i++) {
        const tx_json *value = tx_json_at(rewards, (size_t)i);
        to[i * stride] = (double)NAN;
        if (tx_json_type_of(value) != TX_JSON_NULL)
            TX_TRY(tx_json_as_number(value, "rewards", -1e30, 1e30, &to[i * stride]));
    }
    return TX_OK;
}

static tx_status try_to_ask(tx_reward_command *c, int64_t step, const tx_reward_sample *samples, int64_t count,
                            double *to, int64_t stride)
{
    tx_json *question = NULL, *answer = NULL;
    if (!c->process)
        TX_TRY(start(c));
    TX_TRY(make_question(c, step, samples, count, &question));
    tx_status status = ask(c, question, LEAST + EACH * (size_t)count, &answer);
    if (!status)
        status = tx_fail_in(read_rewards(c, answer, count, to, stride), "%s", c->argv[0]);
    tx_json_free(answer);
    return status;
}

tx_status tx_reward_command_ask(tx_reward_command *c, int64_t step, const tx_reward_sample *samples, int64_t count,
                                double *to, int64_t stride)
{
    tx_status status = try_to_ask(c, step, samples, count, to, stride);
    if (status) {
        stop(c);
        tx_reporter_print(c->caller.report, "step %" PRId64 ": %.400s; it is started again", step, tx_error());
        status = try_to_ask(c, step, samples, count, to, stride);
    }
    if (status)
        stop(c);
    c->asked++;
    return status;
}
