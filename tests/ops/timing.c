/* SPDX-License-Identifier: Apache-2.0
 * Medians of runs, and commands of any shapes timed: contents do not matter here, so operands are filled in bulk. */
#include "tests/ops/timing.h"
#include "api/base/clock.h"
#include "api/graph/op.h"
#include "tests/ops/case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Medians ---------------------------------------------------------------------------------------- */

#define MAX_REPEATS 200

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static tx_status time_once(const tx_timed_run *r, double *seconds)
{
    const tx_backend *b = r->target->backend;
    double start = tx_now(), times[TX_TIMED_COMMANDS] = {0.0};
    tx_status status = b->run(r->executable, r->first, r->count, r->controls, r->profiled ? times : NULL);
    TX_THEN(status, b->finish(r->target->context));
    *seconds = r->profiled ? times[r->first] : tx_now() - start;
    return status;
}

tx_status tx_time_runs(const tx_timed_run *run, int32_t repeats, double *median, double *spread)
{
    double times[MAX_REPEATS], first = 0.0;
    tx_status status = TX_OK;
    for (int warm = 0; warm < 2 && !status; warm++)
        status = time_once(run, &first);
    int32_t count = repeats > 0 ? repeats : (int32_t)fmin(MAX_REPEATS, fmax(5.0, 0.5 / fmax(first, 1e-6)));
    count = count > MAX_REPEATS ? MAX_REPEATS : count;
    for (int32_t i = 0; i < count && !status; i++)
        TX_TRY(time_once(run, &times[i]));
    qsort(times, (size_t)count, sizeof times[0], by_size);
    /* A clock that is too coarse for the run gives 0, which would make an endless rate. */
    *median = fmax(times[count / 2], 1e-9);
    *spread = (times[count * 9 / 10 < count ? count * 9 / 10 : count - 1] - times[count / 10]) / *median;
    return TX_OK;
}

void tx_timing_finish(const tx_target *target, const tx_executable *executable, const tx_command *program,
                      int32_t index, tx_timing *timing)
{
    const tx_command *c = &program[index];
    timing->op = tx_op_info_of(c->op)->name;
    timing->op_class = tx_op_info_of(c->op)->op_class;
    timing->dtype = tx_present(&c->in[0]) ? c->in[0].dtype : c->out[0].dtype;
    tx_op_work(c, &timing->flops, &timing->bytes);
    timing->gflops = timing->flops / timing->seconds * 1e-9;
    timing->gbytes = timing->bytes / timing->seconds * 1e-9;
    snprintf(timing->variant, sizeof timing->variant, "%s", target->backend->command_info(executable, index).variant);
}

/* ---- A command in memory ---------------------------------------------------------------------------- */

/* The same command `length` times, each operand in an allocation of its own. */
typedef struct stage {
    const tx_target *target;
    tx_command *program;
    int32_t length;
    tx_buffer *chunk[TX_ARENA_COUNT][TX_MAX_IN + TX_MAX_OUT + 1];
    int32_t chunks[TX_ARENA_COUNT];
    tx_executable *executable;
} stage;

/* Offset of an operand in its allocation: a possible distance of two parameters. */
#define OPERAND_OFFSET (TX_PARAM_BLOCK * (int64_t)sizeof(float))

static tx_status add_chunk(stage *s, tx_arena_id arena, tx_memory_kind kind, int64_t bytes)
{
    tx_buffer **chunk = &s->chunk[arena][s->chunks[arena]];
    TX_TRY(s->target->backend->allocate(s->target->context, kind, TX_SPACE_DEVICE, bytes, chunk));
    s->chunks[arena]++;
    return s->target->backend->fill(s->target->context, *chunk, 0, 0, bytes);
}

/* Writes one block of random numbers again and again until the operand is full. */
static tx_status fill_random(const stage *s, const tx_operand *operand)
{
    const tx_backend *b = s->target->backend;
    const int64_t total = tx_operand_count(operand), block = total < (1 << 18) ? total : (1 << 18);
    const int64_t size = (int64_t)tx_dtype_size(operand->dtype);
    double *value = malloc((size_t)block * sizeof *value);
    uint8_t *bytes = malloc((size_t)(block * size));
    tx_status status = TX_OK;
    if (value && bytes) {
        uint64_t random = 1;
        /* By Knuth's linear congruence, in [-0.2, 0.2): products are then of a model's size, where GELU of them, an
         * epilogue, gives no subnormal numbers, over which CPUs take many times longer. */
        for (int64_t i = 0; i < block; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            value[i] = 0.2 * ((double)(random >> 11) * 0x1p-52 - 1.0);
        }
        tx_number_encode(operand->dtype, value, block, bytes);
    } else {
        status = tx_fail(TX_MEMORY, "no host memory to fill an operand");
    }
    for (int64_t at = 0; at < total && !status; at += block)
        status = b->write(s->target->context, TX_QUEUE_COMPUTE, s->chunk[operand->arena][operand->chunk],
                          operand->offset + at * size, bytes, (total - at < block ? total - at : block) * size);
    tx_status finished = b->finish(s->target->context);
    free(value);
    free(bytes);
    return status ? status : finished;
}

static tx_status place(stage *s, tx_operand *operand)
{
    static const tx_memory_kind kinds[] = {
#define X(name, kind, ...) TX_MEMORY_##kind,
        TX_ARENA_MAP(X)
#undef X
    };
    operand->chunk = s->chunks[operand->arena];
    operand->offset = OPERAND_OFFSET;
    return add_chunk(s, operand->arena, kinds[operand->arena], OPERAND_OFFSET + tx_operand_bytes(operand));
}

static bool is_real(tx_dtype dtype)
{
    return dtype == TX_F32 || dtype == TX_BF16 || dtype == TX_F16;
}

/* Outputs that must overwrite an input do so; the others hold zeros. */
static tx_status place_all(stage *s, tx_command *c)
{
    tx_status status = add_chunk(s, TX_ARENA_CONTROL, TX_MEMORY_FUNCTIONALITY, (int64_t)sizeof(tx_controls));
    TX_THEN(status, add_chunk(s, TX_ARENA_RESULT, TX_MEMORY_FUNCTIONALITY, TX_RESULT_COUNT * (int64_t)sizeof(float)));
    for (int32_t i = 0; i < TX_MAX_IN && !status; i++) {
        if (!tx_present(&c->in[i]))
            continue;
        status = place(s, &c->in[i]);
        if (!status && is_real(c->in[i].dtype))
            status = fill_random(s, &c->in[i]);
    }
    for (int32_t o = 0; o < TX_MAX_OUT && !status; o++) {
        const int32_t base = tx_descriptor_of(c->op)->lies_on[o];
        if (!tx_present(&c->out[o]))
            continue;
        if (base) {
            c->out[o].arena = c->in[base - 1].arena;
            c->out[o].chunk = c->in[base - 1].chunk;
            c->out[o].offset = c->in[base - 1].offset;
        } else {
            status = place(s, &c->out[o]);
        }
    }
    return status;
}

static tx_status infer(tx_command *c)
{
    for (int32_t o = 1; o < TX_MAX_OUT; o++)
        c->out[o].dtype = TX_DTYPE_COUNT;
    return tx_op_infer(c->op, &c->attrs, c->in, c->out);
}

static tx_status bind(stage *s)
{
    const tx_backend *b = s->target->backend;
    const tx_program program = {.length = s->length, .commands = s->program};
    int64_t scratch = 0;
    tx_status status = b->prepare(s->target->context, &program, &s->executable, &scratch);
    if (!status && scratch > 0)
        TX_TRY(add_chunk(s, TX_ARENA_SCRATCH, TX_MEMORY_FUNCTIONALITY, scratch));
    tx_bindings bindings;
    for (int32_t a = 0; a < TX_ARENA_COUNT; a++)
        bindings.arena[a] = (tx_extent){s->chunks[a], s->chunk[a]};
    status = b->bind(s->executable, &bindings);
    return status ? status : b->finish(s->target->context);
}

static void stage_free(stage *s)
{
    const tx_backend *b = s->target->backend;
    if (s->executable)
        b->destroy(s->executable);
    for (int32_t a = 0; a < TX_ARENA_COUNT; a++)
        for (int32_t k = 0; k < s->chunks[a]; k++)
            b->release(s->target->context, s->chunk[a][k]);
    free(s->program);
}

static tx_status stage_create(const tx_target *target, const tx_command *command, int32_t length, stage *s)
{
    *s = (stage){.target = target, .length = length, .program = malloc((size_t)length * sizeof *command)};
    if (!s->program)
        return tx_fail(TX_MEMORY, "no memory for a program");
    tx_command whole = *command;
    tx_status status = infer(&whole);
    TX_THEN(status, place_all(s, &whole));
    for (int32_t i = 0; i < length; i++)
        s->program[i] = whole;
    TX_THEN(status, bind(s));
    if (status)
        stage_free(s);
    return status;
}

/* ---- Timings ---------------------------------------------------------------------------------------- */

static const tx_controls no_controls;

tx_status tx_conformance_time(const tx_target *target, const tx_command *command, int32_t repeats, tx_timing *timing)
{
    stage s;
    tx_status status = stage_create(target, command, 1, &s);
    if (status)
        return tx_fail_in(status, "%s", tx_op_info_of(command->op)->name);
    const tx_timed_run run = {target, s.executable, 0, 1, &no_controls, true};
    status = tx_time_runs(&run, repeats, &timing->seconds, &timing->spread);
    if (!status)
        tx_timing_finish(target, s.executable, s.program, 0, timing);
    stage_free(&s);
    return status;
}

tx_status tx_conformance_launches(const tx_target *target, int32_t repeats, double *in_a_row, double *alone)
{
    enum { ROW = 256 };
    tx_command copy = {.op = TX_OP_COPY, .attrs.control = -1};
    for (int32_t i = 1; i < TX_MAX_IN; i++)
        copy.in[i].dtype = TX_DTYPE_COUNT;
    copy.in[0] = (tx_operand){.dtype = TX_F32, .shape = TX_SHAPE(1), .arena = TX_ARENA_PLANNED};
    copy.out[0] = (tx_operand){.dtype = TX_DTYPE_COUNT, .arena = TX_ARENA_PLANNED};
    stage s;
    tx_status status = stage_create(target, &copy, ROW, &s);
    if (status)
        return status;
    double spread;
    tx_timed_run run = {target, s.executable, 0, ROW, &no_controls, false};
    status = tx_time_runs(&run, repeats, in_a_row, &spread);
    run.count = 1;
    TX_THEN(status, tx_time_runs(&run, repeats, alone, &spread));
    *in_a_row /= (double)ROW;
    stage_free(&s);
    return status;
}

/* ---- Two queues ------------------------------------------------------------------------------------- */

#define BESIDE_REPEATS 9
#define BESIDE_LONGER 4.0 /* runs take so many times as long as the copy: it takes cores from them on a CPU */
#define BESIDE_RUNS 10000

typedef struct two_queues {
    stage stage;
    tx_buffer *device, *pinned;
    int64_t bytes;
} two_queues;

static tx_status time_queues(const two_queues *q, bool copies, int32_t runs, double *seconds)
{
    const tx_backend *b = q->stage.target->backend;
    tx_context *context = q->stage.target->context;
    tx_event *copied = NULL, *ran = NULL;
    const double begin = tx_now();
    tx_status status = TX_OK;
    if (copies)
        status = b->read_begin(context, TX_QUEUE_TRANSFER, q->device, 0, b->map(q->pinned), q->bytes, &copied);
    for (int32_t i = 0; i < runs && !status; i++)
        status = b->run(q->stage.executable, 0, 1, &no_controls, NULL);
    TX_THEN(status, b->mark(context, TX_QUEUE_COMPUTE, &ran));
    const tx_status waited[] = {b->wait(context, ran), b->wait(context, copied)};
    *seconds = tx_now() - begin;
    return status ? status : waited[0] ? waited[0] : waited[1];
}

/* Returns the minimum of some measurements: other programs only add time. */
static tx_status least_of_queues(const two_queues *q, bool copies, int32_t runs, double *least)
{
    tx_status status = time_queues(q, copies, runs, least);
    for (int i = 1; i < BESIDE_REPEATS && !status; i++) {
        double seconds = 0.0;
        status = time_queues(q, copies, runs, &seconds);
        *least = fmin(*least, seconds);
    }
    return status;
}

static tx_status time_beside(const two_queues *q, tx_beside *r)
{
    tx_memory held;
    tx_traffic before, after;
    double once = 0.0;
    tx_status status = least_of_queues(q, true, 0, &r->copy);
    TX_THEN(status, least_of_queues(q, false, 1, &once));
    r->runs = (int32_t)fmin(BESIDE_RUNS, ceil(BESIDE_LONGER * r->copy / fmax(once, 1e-9)));
    TX_THEN(status, least_of_queues(q, false, r->runs, &r->run));
    q->stage.target->backend->account(q->stage.target->context, &held, &before);
    TX_THEN(status, least_of_queues(q, true, r->runs, &r->both));
    q->stage.target->backend->account(q->stage.target->context, &held, &after);
    r->transfers = after.transfers - before.transfers;
    return status;
}

tx_status tx_conformance_beside(const tx_target *target, const tx_command *command, int64_t bytes, tx_beside *beside)
{
    const tx_backend *b = target->backend;
    two_queues q = {.bytes = bytes};
    tx_beside result = {0};
    tx_status status = stage_create(target, command, 1, &q.stage);
    if (status)
        return status;
    status = b->allocate(target->context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, bytes, &q.device);
    TX_THEN(status, b->allocate(target->context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_PINNED, bytes, &q.pinned));
    TX_THEN(status, b->fill(target->context, q.device, 0, 1, bytes));
    TX_THEN(status, b->finish(target->context));
    TX_THEN(status, time_beside(&q, &result));
    if (q.pinned)
        b->release(target->context, q.pinned);
    if (q.device)
        b->release(target->context, q.device);
    stage_free(&q.stage);
    if (!status)
        *beside = result;
    return status;
}
