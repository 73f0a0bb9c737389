/* SPDX-License-Identifier: Apache-2.0
 * The mock backend: host memory, references as kernels, planted faults. */
#include "tests/ops/mock.h"
#include "tests/ops/case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SCRATCH_BYTES 64

/* Many functions of a backend need not all that they are given. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

struct tx_context {
    tx_fault fault;
    tx_memory held;
    tx_traffic traffic;
    double last; /* first element of the last command's output 0, unrounded */
};

/* fp32 elements have a shadow in double precision, which counts as long as the bytes are those that it rounds to. */
struct tx_buffer {
    tx_memory_kind kind;
    int64_t bytes;
    uint8_t *data;
    double *shadow; /* one for every four bytes */
};

struct tx_executable {
    tx_context *context;
    const tx_command *commands;
    tx_buffer *arena[TX_ARENA_COUNT][2];
    int32_t runs;
    uint8_t *first; /* output 0 of the first run */
};

const char *tx_fault_text(tx_fault fault)
{
    static const char *const text[] = {
#define X(name, words) words,
        TX_FAULT_MAP(X)
#undef X
    };
    return text[fault];
}

tx_status tx_mock_open(tx_fault fault, tx_context **context)
{
    tx_context *c = calloc(1, sizeof *c);
    if (!c)
        return tx_fail(TX_MEMORY, "mock: no memory for a context");
    c->fault = fault;
    *context = c;
    return TX_OK;
}

double tx_mock_last(const tx_context *context)
{
    return context->last;
}

static tx_status mock_device_count(int32_t *count)
{
    *count = 1;
    return TX_OK;
}

static tx_status mock_device_info(int32_t index, tx_device_info *info)
{
    *info = (tx_device_info){.id = "mock", .name = "references in double precision"};
    return TX_OK;
}

static tx_status mock_open(int32_t index, const tx_open_options *options, tx_context **context)
{
    return tx_mock_open(TX_FAULT_NONE, context);
}

static void mock_close(tx_context *context)
{
    free(context);
}

static tx_status mock_allocate(tx_context *context, tx_memory_kind kind, tx_memory_space space, int64_t bytes,
                               tx_buffer **buffer)
{
    tx_buffer *b = malloc(sizeof *b);
    uint8_t *data = malloc((size_t)bytes);
    double *shadow = calloc((size_t)bytes / 4 + 1, sizeof *shadow);
    if (!b || !data || !shadow) {
        free(b);
        free(data);
        free(shadow);
        return tx_fail(TX_MEMORY, "mock: no memory for a buffer");
    }
    *b = (tx_buffer){kind, bytes, data, shadow};
    context->held.bytes[kind] += bytes;
    context->traffic.allocations++;
    *buffer = b;
    return TX_OK;
}

static tx_status mock_adopt(tx_context *context, tx_memory_kind kind, void *memory, int64_t bytes, tx_buffer **buffer)
{
    return tx_fail(TX_UNSUPPORTED, "mock: %lld bytes of %s that are not its own", (long long)bytes,
                   tx_memory_name(kind));
}

static void mock_release(tx_context *context, tx_buffer *buffer)
{
    context->held.bytes[buffer->kind] -= buffer->bytes;
    free(buffer->data);
    free(buffer->shadow);
    free(buffer);
}

static void *mock_map(tx_buffer *buffer)
{
    return buffer->data;
}

static void mock_account(const tx_context *context, tx_memory *held, tx_traffic *traffic)
{
    *held = context->held;
    *traffic = context->traffic;
}

/* Bytes from the host have no shadow. */
static void forget_shadow(tx_buffer *buffer, int64_t offset, int64_t bytes)
{
    for (int64_t i = offset / 4; i < (offset + bytes + 3) / 4; i++)
        buffer->shadow[i] = (double)NAN;
}

/* Both queues complete each operation before the call returns. */
static tx_status mock_write(tx_context *context, tx_queue_id queue, tx_buffer *to, int64_t offset, const void *data,
                            int64_t bytes)
{
    context->traffic.to_device += bytes;
    forget_shadow(to, offset, bytes);
    memcpy(to->data + offset, data, (size_t)bytes);
    return TX_OK;
}

static tx_status mock_read(tx_context *context, tx_buffer *from, int64_t offset, void *data, int64_t bytes)
{
    context->traffic.from_device += bytes;
    memcpy(data, from->data + offset, (size_t)bytes);
    return TX_OK;
}

static tx_status mock_mark(tx_context *context, tx_queue_id queue, tx_event **event)
{
    *event = NULL;
    return TX_OK;
}

static tx_status mock_await(tx_context *context, tx_queue_id queue, tx_event *event)
{
    return TX_OK;
}

static tx_status mock_wait(tx_context *context, tx_event *event)
{
    return TX_OK;
}

static void mock_forget(tx_context *context, tx_event *event)
{
}

static tx_status mock_read_begin(tx_context *context, tx_queue_id queue, tx_buffer *from, int64_t offset, void *data,
                                 int64_t bytes, tx_event **event)
{
    tx_status status = mock_read(context, from, offset, data, bytes);
    return status ? status : mock_mark(context, queue, event);
}

static tx_status mock_copy(tx_context *context, tx_queue_id queue, tx_buffer *from, int64_t from_offset, tx_buffer *to,
                           int64_t to_offset, int64_t bytes)
{
    forget_shadow(to, to_offset, bytes);
    memcpy(to->data + to_offset, from->data + from_offset, (size_t)bytes);
    return TX_OK;
}

static tx_status mock_fill(tx_context *context, tx_buffer *to, int64_t offset, uint8_t value, int64_t bytes)
{
    forget_shadow(to, offset, bytes);
    memset(to->data + offset, value, (size_t)bytes);
    return TX_OK;
}

static tx_status mock_finish(tx_context *context)
{
    return TX_OK;
}

static tx_status mock_prepare(tx_context *context, const tx_program *program, tx_executable **executable,
                              int64_t *scratch_bytes)
{
    tx_executable *e = calloc(1, sizeof *e);
    if (!e)
        return tx_fail(TX_MEMORY, "mock: no memory for a program");
    e->context = context;
    e->commands = program->commands;
    *executable = e;
    *scratch_bytes = SCRATCH_BYTES;
    return TX_OK;
}

static tx_status mock_bind(tx_executable *executable, const tx_bindings *bindings)
{
    for (int32_t a = 0; a < TX_ARENA_COUNT; a++)
        for (int32_t k = 0; k < 2 && k < bindings->arena[a].chunks; k++)
            executable->arena[a][k] = bindings->arena[a].chunk[k];
    return TX_OK;
}

static uint8_t *address(const tx_executable *e, const tx_operand *o)
{
    return e->arena[o->arena][o->chunk]->data + o->offset;
}

static double *shadow_of(const tx_executable *e, const tx_operand *o)
{
    return o->dtype == TX_F32 ? e->arena[o->arena][o->chunk]->shadow + o->offset / 4 : NULL;
}

static tx_status load(const tx_executable *e, const tx_operand *o, bool output, tx_array *array)
{
    *array = (tx_array){.dtype = o->dtype, .shape = o->shape};
    if (!tx_present(o))
        return TX_OK;
    TX_TRY(tx_array_allocate(array, output));
    tx_number_decode(o->dtype, address(e, o), array->count, array->value);
    const double *exact = shadow_of(e, o);
    for (int64_t i = 0; exact && i < array->count; i++)
        if ((double)(float)exact[i] == array->value[i])
            array->value[i] = exact[i];
    return TX_OK;
}

static void store(tx_executable *e, const tx_operand *o, const tx_array *array)
{
    tx_number_encode(o->dtype, array->value, array->count, address(e, o));
    double *exact = shadow_of(e, o);
    if (exact)
        memcpy(exact, array->value, (size_t)array->count * sizeof *exact);
}

/* Corrupts output 0, which the kernel has just written. */
static tx_status plant(tx_executable *e, const tx_command *c, const uint8_t *old_last)
{
    const tx_operand *out = &c->out[0];
    uint8_t *data = address(e, out);
    int64_t bytes = tx_operand_bytes(out), half = tx_operand_count(out) / 2;
    int64_t size = (int64_t)tx_dtype_size(out->dtype);
    double x;
    tx_number_decode(out->dtype, data + half * size, 1, &x);
    switch (e->context->fault) {
    case TX_FAULT_OFF:
        x += 1e-3;
        break;
    case TX_FAULT_NAN:
        x = (double)NAN;
        break;
    case TX_FAULT_UNSTABLE:
        x = e->runs & 1 ? x + 1.1 * tx_number_epsilon(out->dtype) * fabs(x) : x;
        break;
    case TX_FAULT_UNWRITTEN:
        memcpy(data + bytes - size, old_last, (size_t)size);
        return TX_OK;
    case TX_FAULT_AFTER:
        memset(data + bytes, 0, (size_t)size);
        return TX_OK;
    case TX_FAULT_BEFORE:
        memset(data - size, 0, (size_t)size);
        return TX_OK;
    case TX_FAULT_INPUT:
        address(e, &c->in[1])[1] ^= 1;
        return TX_OK;
    case TX_FAULT_CONTROL:
        e->arena[TX_ARENA_CONTROL][0]->data[0] ^= 1;
        return TX_OK;
    case TX_FAULT_SCRATCH:
        e->arena[TX_ARENA_SCRATCH][0]->data[SCRATCH_BYTES] ^= 1;
        return TX_OK;
    case TX_FAULT_STALE:
        if (e->first) {
            memcpy(data, e->first, (size_t)bytes);
            return TX_OK;
        }
        e->first = malloc((size_t)bytes);
        if (!e->first)
            return tx_fail(TX_MEMORY, "mock: no memory for a result");
        memcpy(e->first, data, (size_t)bytes);
        return TX_OK;
    case TX_FAULT_NONE:
    case TX_FAULT_COUNT:
        return TX_OK;
    }
    tx_number_encode(out->dtype, &x, 1, data + half * size);
    return TX_OK;
}

static tx_status run_command(tx_executable *e, const tx_command *c, const tx_controls *controls)
{
    tx_call call = {.op = c->op, .attrs = c->attrs, .controls = *controls};
    uint8_t old_last[8] = {0};
    tx_status status = TX_OK;
    for (int32_t i = 0; i < TX_MAX_IN && !status; i++)
        status = load(e, &c->in[i], false, &call.in[i]);
    for (int32_t o = 0; o < TX_MAX_OUT && !status; o++)
        status = load(e, &c->out[o], true, &call.out[o]);
    tx_number_decode(TX_F32, e->arena[TX_ARENA_RESULT][0]->data, TX_RESULT_COUNT, call.result);
    if (!status && tx_present(&c->out[0])) {
        size_t size = tx_dtype_size(c->out[0].dtype);
        memcpy(old_last, address(e, &c->out[0]) + tx_operand_bytes(&c->out[0]) - size, size);
    }
    TX_THEN(status, tx_call_reference(&call));
    for (int32_t o = 0; o < TX_MAX_OUT && !status; o++)
        if (tx_present(&c->out[o]) && !(tx_descriptor_of(c->op)->work >> o & 1u))
            store(e, &c->out[o], &call.out[o]);
    if (!status && c->op == TX_OP_CLIP_NORM)
        tx_number_encode(TX_F32, call.result, TX_RESULT_COUNT, e->arena[TX_ARENA_RESULT][0]->data);
    if (!status && tx_present(&c->out[0]))
        e->context->last = call.out[0].value[0];
    if (!status && tx_present(&c->out[0]))
        status = plant(e, c, old_last);
    tx_call_free(&call);
    return status;
}

static tx_status mock_run(tx_executable *executable, int32_t first, int32_t count, const tx_controls *controls,
                          double *seconds)
{
    tx_status status = TX_OK;
    for (int32_t i = first; i < first + count && !status; i++)
        status = run_command(executable, &executable->commands[i], controls);
    executable->runs++;
    return status;
}

static tx_command_info mock_command_info(const tx_executable *executable, int32_t index)
{
    return (tx_command_info){"reference", 1};
}

static void mock_destroy(tx_executable *executable)
{
    free(executable->first);
    free(executable);
}

const tx_backend tx_backend_mock = {
    .version = TX_BACKEND_VERSION,
    .name = "mock",
    .device_count = mock_device_count,
    .device_info = mock_device_info,
    .open = mock_open,
    .close = mock_close,
    .allocate = mock_allocate,
    .adopt = mock_adopt,
    .release = mock_release,
    .map = mock_map,
    .account = mock_account,
    .write = mock_write,
    .read_begin = mock_read_begin,
    .read = mock_read,
    .fill = mock_fill,
    .copy = mock_copy,
    .mark = mock_mark,
    .await = mock_await,
    .wait = mock_wait,
    .forget = mock_forget,
    .finish = mock_finish,
    .prepare = mock_prepare,
    .bind = mock_bind,
    .run = mock_run,
    .command_info = mock_command_info,
    .destroy = mock_destroy,
};
