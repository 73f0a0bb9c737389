/* SPDX-License-Identifier: Apache-2.0
 * Programs: every op emits launches once (the builder), bind fills in where the arenas lie, run enqueues. */
#include "backends/opencl/internal.h"

#include "api/op.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FLUSH_EVERY 64

/* One launch or, where `fn` is set, one call on the host. */
typedef struct step {
    cl_kernel kernel;
    cl_uint dims;
    bool has_local;
    size_t global[3], local[3];
    tx_cl_call_fn fn;
    void *data;
    void (*destroy)(void *data);
} step;

/* An argument that names memory: set when the arenas are bound. */
typedef struct patch {
    int32_t step;
    cl_uint argument;
    tx_arena_id arena;
    int32_t chunk;
} patch;

typedef struct command {
    tx_op op;
    int32_t first, count; /* steps */
    int32_t launches;
    char *variant; /* NULL: "opencl" */
} command;

struct tx_executable {
    tx_context *context;
    int32_t length, step_count, step_room, patch_count, patch_room;
    command *commands;
    step *steps;
    patch *patches;
    cl_uint argument; /* index of the next argument of the last step */
    bool bound;
    cl_mem *memory[TX_ARENA_COUNT];
    cl_event *events; /* one a step, when the context profiles */
};

/* ---- Builder ------------------------------------------------------------------------------------------- */

static void fail(tx_cl_builder *b, tx_status status)
{
    if (b->status == TX_OK)
        b->status = status;
}

/* Room for one more element; false records the failure. */
static bool grow(tx_cl_builder *b, void **array, int32_t count, int32_t *room, size_t size)
{
    if (count < *room)
        return true;
    int32_t wanted = *room ? *room * 2 : 64;
    void *larger = realloc(*array, (size_t)wanted * size);
    if (!larger) {
        fail(b, tx_fail(TX_MEMORY, "out of host memory"));
        return false;
    }
    *array = larger;
    *room = wanted;
    return true;
}

static bool add_step(tx_cl_builder *b, const step *s)
{
    tx_executable *x = b->executable;
    void *array = x->steps;
    if (!grow(b, &array, x->step_count, &x->step_room, sizeof *x->steps))
        return false;
    x->steps = array;
    x->steps[x->step_count++] = *s;
    x->argument = 0;
    return true;
}

void tx_cl_launch_kernel(tx_cl_builder *b, cl_kernel kernel, cl_uint dims, const size_t *global, const size_t *local)
{
    step s = {.kernel = kernel, .dims = dims, .has_local = local != NULL};
    for (cl_uint i = 0; i < dims; i++) {
        s.global[i] = global[i];
        if (local) {
            s.local[i] = local[i];
            s.global[i] = (global[i] + local[i] - 1) / local[i] * local[i];
        }
    }
    if (b->status != TX_OK || !add_step(b, &s))
        clReleaseKernel(kernel);
}

void tx_cl_launch(tx_cl_builder *b, const char *source, const char *options, const char *name, cl_uint dims,
                  const size_t *global, const size_t *local)
{
    if (b->status != TX_OK)
        return;
    cl_kernel kernel;
    tx_status status = tx_cl_kernel(b->context, source, options, name, &kernel);
    if (status != TX_OK)
        fail(b, status);
    else
        tx_cl_launch_kernel(b, kernel, dims, global, local);
}

static void set_argument(tx_cl_builder *b, size_t size, const void *value)
{
    if (b->status != TX_OK)
        return;
    tx_executable *x = b->executable;
    cl_int code = clSetKernelArg(x->steps[x->step_count - 1].kernel, x->argument, size, value);
    if (code != CL_SUCCESS)
        fail(b, tx_fail_in(tx_cl_check(code, "clSetKernelArg"), "argument %u", x->argument));
    x->argument++;
}

static void add_patch(tx_cl_builder *b, tx_arena_id arena, int32_t chunk)
{
    if (b->status != TX_OK)
        return;
    tx_executable *x = b->executable;
    void *array = x->patches;
    if (!grow(b, &array, x->patch_count, &x->patch_room, sizeof *x->patches))
        return;
    x->patches = array;
    x->patches[x->patch_count++] = (patch){x->step_count - 1, x->argument++, arena, chunk};
}

void tx_cl_arg_operand(tx_cl_builder *b, const tx_operand *operand)
{
    if (!tx_present(operand)) {
        const cl_mem none = NULL;
        set_argument(b, sizeof none, &none);
        tx_cl_arg_i64(b, 0);
        return;
    }
    add_patch(b, operand->arena, operand->chunk);
    tx_cl_arg_i64(b, operand->offset / (int64_t)tx_dtype_size(operand->dtype));
}

void tx_cl_arg_control(tx_cl_builder *b)
{
    add_patch(b, TX_ARENA_CONTROL, 0);
}

void tx_cl_arg_result(tx_cl_builder *b)
{
    add_patch(b, TX_ARENA_RESULT, 0);
}

void tx_cl_arg_i32(tx_cl_builder *b, int32_t value)
{
    cl_int v = value;
    set_argument(b, sizeof v, &v);
}

void tx_cl_arg_i64(tx_cl_builder *b, int64_t value)
{
    cl_long v = value;
    set_argument(b, sizeof v, &v);
}

void tx_cl_arg_f32(tx_cl_builder *b, float value)
{
    cl_float v = value;
    set_argument(b, sizeof v, &v);
}

void tx_cl_arg_local(tx_cl_builder *b, size_t bytes)
{
    set_argument(b, bytes, NULL);
}

int64_t tx_cl_scratch(tx_cl_builder *b, int64_t bytes)
{
    int64_t offset = b->scratch;
    b->scratch += (bytes + TX_ALIGNMENT - 1) / TX_ALIGNMENT * TX_ALIGNMENT;
    return offset;
}

void tx_cl_call(tx_cl_builder *b, tx_cl_call_fn fn, void *data, void (*destroy)(void *data), int32_t launches)
{
    step s = {.fn = fn, .data = data, .destroy = destroy};
    if (b->status != TX_OK || !add_step(b, &s)) {
        if (destroy)
            destroy(data);
        return;
    }
    tx_executable *x = b->executable;
    x->commands[x->length].launches += launches - 1; /* a step counts as one */
}

void tx_cl_variant(tx_cl_builder *b, const char *name)
{
    command *c = &b->executable->commands[b->executable->length];
    free(c->variant);
    c->variant = malloc(strlen(name) + 1);
    if (c->variant)
        strcpy(c->variant, name);
    else
        fail(b, tx_fail(TX_MEMORY, "out of host memory"));
}

/* ---- Prepare and bind ------------------------------------------------------------------------------------ */

typedef tx_status (*emit_fn)(tx_cl_builder *b, const tx_command *c);
static const emit_fn emitters[TX_OP_KERNELS] = {
#define TX_OP(NAME, name, ...) [TX_OP_##NAME] = tx_cl_##name,
#define TX_VIRTUAL(...)
#include "api/ops.def"
};

static tx_status emit(tx_executable *x, const tx_command *c, int64_t *scratch)
{
    tx_cl_builder b = {.context = x->context, .executable = x};
    command *own = &x->commands[x->length];
    *own = (command){.op = c->op, .first = x->step_count};
    tx_status status = c->op < TX_OP_KERNELS ? emitters[c->op](&b, c) : tx_fail(TX_INTERNAL, "no kernel");
    if (status == TX_OK)
        status = b.status;
    own->count = x->step_count - own->first;
    own->launches += own->count;
    x->length++;
    if (b.scratch > *scratch)
        *scratch = b.scratch;
    return status == TX_OK ? TX_OK : tx_fail_in(status, "%s", tx_op_info_of(c->op)->name);
}

tx_status tx_cl_prepare(tx_context *context, const tx_program *program, tx_executable **out, int64_t *scratch_bytes)
{
    int64_t scratch = 0;
    tx_executable *x = calloc(1, sizeof *x);
    if (!x)
        return tx_fail(TX_MEMORY, "out of host memory");
    x->context = context;
    x->commands = calloc((size_t)program->length + 1, sizeof *x->commands);
    tx_status status = x->commands ? TX_OK : tx_fail(TX_MEMORY, "out of host memory");
    for (int32_t i = 0; status == TX_OK && i < program->length; i++)
        status = emit(x, &program->commands[i], &scratch);
    if (status == TX_OK && context->profile) {
        x->events = calloc((size_t)x->step_count + 1, sizeof *x->events);
        status = x->events ? TX_OK : tx_fail(TX_MEMORY, "out of host memory");
    }
    if (status != TX_OK) {
        tx_cl_destroy(x);
        return status;
    }
    *out = x;
    *scratch_bytes = scratch;
    return TX_OK;
}

tx_status tx_cl_bind(tx_executable *x, const tx_bindings *bindings)
{
    x->bound = false;
    for (int a = 0; a < TX_ARENA_COUNT; a++) {
        const tx_space *space = &bindings->arena[a];
        free(x->memory[a]);
        x->memory[a] = calloc((size_t)space->chunks + 1, sizeof(cl_mem));
        if (!x->memory[a])
            return tx_fail(TX_MEMORY, "out of host memory");
        for (int32_t i = 0; i < space->chunks; i++)
            x->memory[a][i] = space->chunk[i]->memory;
    }
    for (int32_t i = 0; i < x->patch_count; i++) {
        const patch *p = &x->patches[i];
        if (p->chunk >= bindings->arena[p->arena].chunks)
            return tx_fail(TX_INTERNAL, "a program uses chunk %d of arena %d, which has %d", p->chunk, p->arena,
                           bindings->arena[p->arena].chunks);
        tx_status status = tx_cl_check(
            clSetKernelArg(x->steps[p->step].kernel, p->argument, sizeof(cl_mem), &x->memory[p->arena][p->chunk]),
            "clSetKernelArg");
        if (status != TX_OK)
            return status;
    }
    x->bound = true;
    return TX_OK;
}

/* ---- Run ----------------------------------------------------------------------------------------------------- */

static tx_status enqueue(const tx_executable *x, int32_t index, cl_event *event)
{
    const step *s = &x->steps[index];
    cl_int code = clEnqueueNDRangeKernel(x->context->compute, s->kernel, s->dims, NULL, s->global,
                                         s->has_local ? s->local : NULL, 0, NULL, event);
    return tx_cl_check(code, "clEnqueueNDRangeKernel");
}

static tx_status run_command(const tx_executable *x, const command *c, const tx_cl_run *run)
{
    for (int32_t i = c->first; i < c->first + c->count; i++) {
        const step *s = &x->steps[i];
        tx_status status = s->fn ? s->fn(run, s->data) : enqueue(x, i, NULL);
        if (status != TX_OK)
            return status;
    }
    return TX_OK;
}

/* Launches are timed by their events; a call on the host by the clock, between two waits. */
static tx_status run_timed(const tx_executable *x, const command *c, const tx_cl_run *run, double *seconds)
{
    tx_status status = TX_OK;
    for (int32_t i = c->first; status == TX_OK && i < c->first + c->count; i++) {
        const step *s = &x->steps[i];
        if (!s->fn) {
            status = enqueue(x, i, &x->events[i]);
            continue;
        }
        status = tx_cl_finish(x->context);
        double start = tx_cl_now();
        if (status == TX_OK)
            status = s->fn(run, s->data);
        if (status == TX_OK)
            status = tx_cl_finish(x->context);
        *seconds += tx_cl_now() - start;
    }
    return status;
}

static double event_seconds(cl_event event)
{
    cl_ulong start = 0, end = 0;
    if (clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof start, &start, NULL) != CL_SUCCESS ||
        clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL) != CL_SUCCESS || end < start)
        return 0;
    return 1e-9 * (double)(end - start);
}

static tx_status collect_times(tx_executable *x, int32_t first, int32_t count, double *seconds)
{
    tx_status status = tx_cl_finish(x->context);
    for (int32_t i = first; i < first + count; i++) {
        const command *c = &x->commands[i];
        for (int32_t s = c->first; s < c->first + c->count; s++) {
            if (!x->events[s])
                continue;
            seconds[i] += event_seconds(x->events[s]);
            clReleaseEvent(x->events[s]);
            x->events[s] = NULL;
        }
    }
    return status;
}

tx_status tx_cl_run_program(tx_executable *x, int32_t first, int32_t count, const tx_controls *controls,
                            double *seconds)
{
    if (!x->bound)
        return tx_fail(TX_INTERNAL, "a program was run before it was bound");
    if (first < 0 || count < 0 || first > x->length - count)
        return tx_fail(TX_INTERNAL, "commands %d to %d of a program of %d", first, first + count, x->length);
    if (seconds && !x->events)
        return tx_fail(TX_INVALID, "times need a device that was opened with profile");
    const tx_cl_run run = {
        .context = x->context, .queue = x->context->compute, .controls = controls, .memory = x->memory};
    tx_status status = TX_OK;
    int32_t pending = 0;
    for (int32_t i = first; status == TX_OK && i < first + count; i++) {
        const command *c = &x->commands[i];
        status = seconds ? run_timed(x, c, &run, &seconds[i]) : run_command(x, c, &run);
        if (status != TX_OK) {
            tx_fail_in(status, "%s", tx_op_info_of(c->op)->name);
            break;
        }
        x->context->traffic.launches += c->launches;
        pending += c->count;
        if (pending >= FLUSH_EVERY) {
            pending = 0;
            status = tx_cl_check(clFlush(x->context->compute), "clFlush");
        }
    }
    if (seconds) {
        tx_status waited = collect_times(x, first, count, seconds);
        return status == TX_OK ? waited : status;
    }
    return status == TX_OK ? tx_cl_check(clFlush(x->context->compute), "clFlush") : status;
}

tx_context *tx_cl_context_of(const tx_executable *x)
{
    return x->context;
}

tx_command_info tx_cl_command_info(const tx_executable *x, int32_t index)
{
    const command *c = &x->commands[index];
    return (tx_command_info){c->variant ? c->variant : "opencl", c->launches};
}

void tx_cl_destroy(tx_executable *x)
{
    if (!x)
        return;
    clFinish(x->context->compute);
    for (int32_t i = 0; i < x->step_count; i++) {
        if (x->steps[i].kernel)
            clReleaseKernel(x->steps[i].kernel);
        if (x->steps[i].destroy)
            x->steps[i].destroy(x->steps[i].data);
    }
    for (int32_t i = 0; x->commands && i < x->length; i++)
        free(x->commands[i].variant);
    for (int a = 0; a < TX_ARENA_COUNT; a++)
        free(x->memory[a]);
    free(x->events);
    free(x->commands);
    free(x->steps);
    free(x->patches);
    free(x);
}
