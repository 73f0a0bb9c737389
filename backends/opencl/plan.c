/* SPDX-License-Identifier: Apache-2.0
 * Programs: every op emits launches once (the builder), bind fills in where the arenas lie; run.c enqueues. */
#include "backends/opencl/internal.h"

#include "api/op.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

static bool add_step(tx_cl_builder *b, const tx_cl_step *s)
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
    tx_cl_step s = {.kernel = kernel, .dims = dims, .has_local = local != NULL};
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
    x->patches[x->patch_count++] = (tx_cl_patch){x->step_count - 1, x->argument++, arena, chunk};
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
    tx_cl_step s = {.fn = fn, .data = data, .destroy = destroy};
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
    tx_cl_command *c = &b->executable->commands[b->executable->length];
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
    tx_cl_command *own = &x->commands[x->length];
    *own = (tx_cl_command){.op = c->op, .first = x->step_count};
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
        const tx_cl_patch *p = &x->patches[i];
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

tx_context *tx_cl_context_of(const tx_executable *x)
{
    return x->context;
}

tx_command_info tx_cl_command_info(const tx_executable *x, int32_t index)
{
    const tx_cl_command *c = &x->commands[index];
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
