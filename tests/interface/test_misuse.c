/* SPDX-License-Identifier: Apache-2.0
 * Every public function given NULL or nonsense says so and returns; each call has a process of its own.
 *
 *   test_misuse [NM LIBTX.so]    also: the library exports nothing that misuse.def does not name */
#include "comm/topology/tx_topology.h"
#include "models/tx_batch.h"
#include "models/tx_chat.h"
#include "models/tx_classify.h"
#include "models/tx_convert.h"
#include "models/tx_folder.h"
#include "models/tx_generate.h"
#include "models/tx_grammar.h"
#include "models/tx_text.h"
#include "models/tx_train.h"
#include "tx_file.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Valid objects, for calls with one invalid argument. */
typedef struct things {
    tx_engine *engine;
    tx_model *model;
    tx_graph *graph;
    tx_tensor *x; /* F32 [2, 3] */
    tx_job *job;
    tx_json *json; /* {"one": 1, "text": "a"} */
    tx_tokenizer *tokenizer;
    tx_encoder *encoder;
    tx_tokenizer_trainer *trainer;
    tx_ids ids;
} things;

static bool make(things *t)
{
    const tx_engine_options options = {.size = sizeof options, .device = "cpu", .threads = 1};
    const char json[] = "{\"one\": 1, \"text\": \"a\"}";
    if (tx_engine_create(&options, &t->engine) || tx_model_create(t->engine, &t->model) ||
        tx_graph_create(t->model, &t->graph) || tx_job_create(&t->job) || tx_tokenizer_bytes(&t->tokenizer) ||
        tx_encoder_create(t->tokenizer, &t->encoder) || tx_tokenizer_trainer_create(&t->trainer) ||
        tx_json_parse(json, sizeof json - 1, "json", &t->json))
        return false;
    t->x = tx_input(t->graph, "x", TX_F32, TX_SHAPE(2, 3));
    return t->x;
}

static bool failed_with_message(tx_status status)
{
    return status != TX_OK && *tx_error();
}

/* Whether the call went as it must. */
#define STATUS(name, ...)                              \
    static bool call_##name(things *t)                 \
    {                                                  \
        (void)t;                                       \
        return failed_with_message(name(__VA_ARGS__)); \
    }
#define POINTER(name, ...)                                                  \
    static bool call_##name(things *t)                                      \
    {                                                                       \
        const void *made = name(__VA_ARGS__);                               \
        (void)t;                                                            \
        return !made || *(const volatile unsigned char *)made <= UCHAR_MAX; \
    }
#define VALUE(name, ...)                         \
    static bool call_##name(things *t)           \
    {                                            \
        (void)t;                                 \
        return (double)name(__VA_ARGS__) <= 0.0; \
    }
#define VOID(name, ...)                \
    static bool call_##name(things *t) \
    {                                  \
        (void)t;                       \
        name(__VA_ARGS__);             \
        return true;                   \
    }
#define LIVE(name, number, ...)                                   \
    static bool live_##name##_##number(things *t)                 \
    {                                                             \
        return make(t) && failed_with_message(name(__VA_ARGS__)); \
    }
#include "tests/interface/misuse.def"
#include "tests/interface/misuse_live.def"
#undef STATUS
#undef POINTER
#undef VALUE
#undef VOID
#undef LIVE

static const struct row {
    const char *name;
    bool (*call)(things *);
} rows[] = {
#define STATUS(name, ...) {#name, call_##name},
#define POINTER(name, ...) {#name, call_##name},
#define VALUE(name, ...) {#name, call_##name},
#define VOID(name, ...) {#name, call_##name},
#define LIVE(name, number, ...) {#name "(" #__VA_ARGS__ ")", live_##name##_##number},
#include "tests/interface/misuse.def"
#include "tests/interface/misuse_live.def"
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static bool survives(const struct row *row)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        things t = {0};
        signal(SIGSEGV, SIG_DFL); /* libraries of MPI may show a backtrace */
        _exit(row->call(&t) ? 0 : 1);
    }
    int state = 0;
    if (child < 0 || waitpid(child, &state, 0) != child)
        return false;
    if (WIFSIGNALED(state))
        printf("FAIL: %s: signal %d\n", row->name, WTERMSIG(state));
    else if (WEXITSTATUS(state))
        printf("FAIL: %s: no failure, or none that is told\n", row->name);
    return state == 0;
}

static bool is_known(const char *name)
{
    for (size_t i = 0; i < ROWS; i++)
        if (strcmp(rows[i].name, name) == 0)
            return true;
    return false;
}

/* Symbols that the library exports and the table lacks. */
static int count_unknown(const char *nm, const char *library)
{
    char command[1024], line[512];
    int unknown = 0, symbols = 0;
    snprintf(command, sizeof command, "'%s' -D --defined-only '%s'", nm, library);
    FILE *list = popen(command, "r");
    while (list && fgets(line, sizeof line, list)) {
        char kind = 0, name[256] = "";
        if (sscanf(line, "%*s %c %255[^@\n]", &kind, name) != 2 || kind != 'T')
            continue;
        symbols++;
        if (!is_known(name)) {
            printf("FAIL: %s is exported, and misuse.def has no row of it\n", name);
            unknown++;
        }
    }
    if (!list || pclose(list) || !symbols) {
        printf("FAIL: %s lists no symbols of %s\n", nm, library);
        unknown++;
    }
    return unknown;
}

int main(int argc, char **argv)
{
    int failed = argc > 2 ? count_unknown(argv[1], argv[2]) : 0;
    for (size_t i = 0; i < ROWS; i++)
        failed += !survives(&rows[i]);
    printf("%d calls, %d failures\n", (int)ROWS, failed);
    return failed != 0;
}
