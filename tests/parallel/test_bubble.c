/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the bubble of a pipeline from a step that the engine runs. Every part of a micro-batch takes a given time on
 * the rank's simulated clock. A message carries the sender's clock, and the receiver's clock advances at least to it. A
 * step then takes exactly (m + (p - 1) / v) (f + b) (Narayanan et al., Megatron-LM, SC 2021). Here m is the number of
 * micro-batches, and p ranks have v stages each. The parts take f forward and b backward on a rank. With `sleep` the
 * ranks also sleep for these times, and the test prints the measured time, too.
 *   test_bubble DEVICE RANKS:SCHEDULE[:sleep]... */
#include "api/graph/graph.h"
#include "comm/comm.h"
#include "tests/parallel/beside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    LAYERS = 8,
    TIMES = 8,
    BLOCK = 8,
    VOCAB = 97,
    STEPS = 3,
    FORWARD = 40,
    BACKWARD = 80
}; /* the last two in milliseconds */

static const char config_text[] = "{\"model_type\": \"gpt2\", \"vocab_size\": 97, \"n_layer\": 8, \"n_head\": 2, "
                                  "\"n_embd\": 16, \"n_positions\": 8}";

/* ---- Messages that carry the clock ------------------------------------------------------------------------ */

static struct {
    const tx_comm_table *real;
    tx_comm_table table; /* the same, except for messages */
    int32_t chunks;      /* stages of a rank */
    bool sleeps;
    float clock; /* milliseconds */
    struct on_way {
        tx_message message;
        float *data; /* the message that is sent instead: its elements and the clock, or NULL for a free entry */
        int32_t request;
    } on_way[TX_MESSAGES];
} delays;

/* Advances this rank's clock by a part of a micro-batch. */
static void compute(bool backward)
{
    const int32_t part = (backward ? BACKWARD : FORWARD) / delays.chunks;
    const struct timespec time = {.tv_nsec = part * 1000000L};
    if (delays.sleeps)
        nanosleep(&time, NULL);
    delays.clock += (float)part;
}

/* A message's number encodes its index among several tensors, its direction, and the chunk that sends it
 * (api/parallel/exchange.c). */
static bool is_first(int32_t number)
{
    return number % TX_CROSSINGS == 0;
}

static bool goes_back(int32_t number)
{
    return number / TX_CROSSINGS % 2 != 0;
}

static tx_status begin_message(tx_comm *comm, const tx_message *message, int32_t *request)
{
    const int32_t number = message->number, chunk = number / TX_CROSSINGS / 2 % delays.chunks;
    int32_t i = 0;
    while (i < TX_MESSAGES && delays.on_way[i].data)
        i++;
    /* Parts that no message precedes: the first part of a micro-batch, and the first of its backward pass. */
    if (message->out && is_first(number) &&
        (goes_back(number) ? comm->rank == comm->size - 1 && chunk == delays.chunks - 1
                           : comm->rank == 0 && chunk == 0))
        compute(goes_back(number));
    struct on_way *w = &delays.on_way[i];
    *w = (struct on_way){.message = *message, .data = malloc(((size_t)message->count + 1) * sizeof(float))};
    if (!w->data)
        return tx_fail(TX_MEMORY, "no memory for a message");
    if (message->dtype != TX_F32)
        return tx_fail(TX_INTERNAL, "messages are to be of fp32");
    if (message->out) {
        memcpy(w->data, message->data, (size_t)message->count * sizeof(float));
        w->data[message->count] = delays.clock;
    }
    tx_message longer = *message;
    longer.data = w->data;
    longer.count++;
    TX_TRY(delays.real->begin_message(comm, &longer, &w->request));
    *request = i;
    return TX_OK;
}

static tx_status wait_message(tx_comm *comm, int32_t request)
{
    struct on_way *w = &delays.on_way[request];
    const tx_message *m = &w->message;
    tx_status status = delays.real->wait_message(comm, w->request);
    if (!status && !m->out) {
        memcpy(m->data, w->data, (size_t)m->count * sizeof(float));
        delays.clock = fmaxf(delays.clock, w->data[m->count]);
        if (is_first(m->number))
            compute(goes_back(m->number));
    }
    free(w->data);
    w->data = NULL;
    return status;
}

static void delay(tx_comm *pipeline, int32_t chunks, bool sleeps)
{
    delays.real = pipeline->table;
    delays.table = *pipeline->table;
    delays.table.begin_message = begin_message;
    delays.table.wait_message = wait_message;
    delays.chunks = chunks;
    delays.sleeps = sleeps;
    pipeline->table = &delays.table;
}

/* ---- Steps ----------------------------------------------------------------------------------------------- */

static tx_status make(const char *device, const tx_config *config, tx_comm *data, const tx_parallel_options *parallel,
                      side *s)
{
    const tx_engine_options engine = {.size = sizeof engine, .device = device, .threads = 1};
    TX_TRY(tx_engine_create(&engine, &s->engine));
    TX_TRY(tx_model_create(s->engine, &s->model));
    TX_TRY(tx_model_parallel(s->model, data, parallel));
    TX_TRY(tx_graph_create(s->model, &s->graph));
    TX_TRY(beside_train(s, config, BLOCK, false, 0.0f));
    return beside_begin(s);
}

static tx_status step(side *s)
{
    int32_t ids[BLOCK];
    for (int32_t m = 0; m < TIMES; m++) {
        for (int32_t i = 0; i < BLOCK; i++)
            ids[i] = (i * 7 + m) % VOCAB;
        TX_TRY(tx_model_set(s->model, TX_CONTROL_ACCUMULATE, m > 0));
        TX_TRY(tx_model_keep_controls(s->model, m));
        TX_TRY(tx_plan_write(s->plan, tx_plan_input(s->plan, s->tokens, m), ids, sizeof ids));
        TX_TRY(tx_plan_write(s->plan, tx_plan_input(s->plan, s->labels, m), ids, sizeof ids));
    }
    TX_TRY(tx_plan_run(s->plan));
    return beside_update(s);
}

/* Milliseconds of a step: the clock that is furthest on. Ranks begin with a step together. */
static tx_status measure(side *s, tx_comm *comm, float *milliseconds)
{
    struct timespec begin, end;
    TX_TRY(step(s));
    for (int32_t i = 0; i < STEPS; i++) {
        float none = 0.0f;
        TX_TRY(tx_comm_collect(comm, TX_ALL_REDUCE, &none, 1, TX_F32, 0));
        delays.clock = 0.0f;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        TX_TRY(step(s));
        clock_gettime(CLOCK_MONOTONIC, &end);
        if (delays.sleeps)
            delays.clock = (float)(end.tv_sec - begin.tv_sec) * 1e3f + (float)(end.tv_nsec - begin.tv_nsec) * 1e-6f;
        float clocks[16] = {0};
        clocks[comm->rank] = delays.clock;
        TX_TRY(tx_comm_collect(comm, TX_ALL_REDUCE, clocks, comm->size, TX_F32, 0));
        milliseconds[i] = 0.0f;
        for (int32_t r = 0; r < comm->size; r++)
            milliseconds[i] = fmaxf(milliseconds[i], clocks[r]);
    }
    return TX_OK;
}

static tx_status compare(const char *schedule, const tx_comm *comm, const float *milliseconds)
{
    const float all = FORWARD + BACKWARD, bubble = (float)(comm->size - 1) / (float)delays.chunks * all;
    for (int32_t i = 0; i < STEPS; i++) {
        const float found = milliseconds[i] - TIMES * all;
        if (comm->rank == 0)
            printf("%s, %d ranks, %d micro-batches: a step of %.1f ms, of which %.1f are the bubble, %.3f of the "
                   "formula's %.1f\n",
                   schedule, (int)comm->size, TIMES, (double)milliseconds[i], (double)found, (double)(found / bubble),
                   (double)bubble);
        if (!delays.sleeps && !(fabsf(found - bubble) <= 1e-3f))
            return tx_fail(TX_INTERNAL, "another bubble than the formula's");
    }
    return TX_OK;
}

static tx_status run(const char *device, tx_comm *comm, int32_t ranks, int rests, char **rest)
{
    static const char *const words[] = {
#define X(name, text) text,
        TX_PIPELINE_MAP(X)
#undef X
    };
    const size_t schedules = sizeof words / sizeof words[0];
    size_t schedule = 0;
    while (rests > 0 && schedule < schedules && strcmp(rest[0], words[schedule]) != 0)
        schedule++;
    if (rests < 1 || schedule == schedules || comm->size != ranks || ranks > LAYERS / 2)
        return tx_fail(TX_INVALID, "test_bubble DEVICE RANKS:SCHEDULE[:sleep]...");
    const int32_t chunks = schedule == TX_PIPELINE_INTERLEAVED ? 2 : 1;
    int32_t of_stage[LAYERS];
    tx_parallel_options parallel = {.size = sizeof parallel,
                                    .bucket_bytes = 20000,
                                    .blocks = LAYERS,
                                    .stage_blocks = of_stage,
                                    .micro_batches = TIMES,
                                    .chunks = chunks,
                                    .schedule = (tx_pipeline_schedule)schedule};
    for (int32_t stage = 0; stage < ranks * chunks; stage++)
        of_stage[stage] = LAYERS / (ranks * chunks);
    side s = {.rows = 1};
    tx_comm *data = NULL;
    tx_config *config = NULL;
    float milliseconds[STEPS];
    TX_TRY(tx_comm_sub(comm, 0, comm->rank, &parallel.pipeline));
    TX_TRY(tx_comm_sub(comm, comm->rank > 0 && comm->rank < ranks - 1, comm->rank, &parallel.ends));
    TX_TRY(tx_comm_sub(comm, comm->rank, 0, &data));
    delay(parallel.pipeline, chunks, rests > 1 && strcmp(rest[1], "sleep") == 0);
    tx_status status = beside_config(config_text, &config);
    TX_THEN(status, make(device, config, data, &parallel, &s));
    TX_THEN(status, measure(&s, comm, milliseconds));
    TX_THEN(status, compare(words[schedule], comm, milliseconds));
    beside_free(&s);
    tx_config_free(config);
    return status;
}

int main(int argc, char **argv)
{
    return beside_main(argc, argv, run);
}
