/* SPDX-License-Identifier: Apache-2.0
 * Programs: every op emits its launches once (builder.c), bind fills in where the arenas lie; run.c enqueues. */
#include "backends/opencl/internal.h"

#include "api/graph/op.h"

#include <stdlib.h>

typedef tx_status (*emit_fn)(tx_cl_builder *b, const tx_command *c);
static const emit_fn emitters[TX_OP_KERNELS] = {
#define TX_OP(NAME, name, ...) [TX_OP_##NAME] = tx_cl_##name,
#define TX_VIRTUAL(...)
#include "api/ops.def"
};

/* ---- Operands of 16 bits -------------------------------------------------------------------------------- */

/* Ops whose kernels read and write them. For all others they are widened to fp32 in scratch memory, and results
 * narrowed from there. */
static bool takes_half(tx_op op)
{
    switch (op) {
    case TX_OP_MATMUL:
    case TX_OP_EMBEDDING:
    case TX_OP_GATHER:
    case TX_OP_CAST:
    case TX_OP_COPY:
        return true;
    default:
        return false;
    }
}

static bool is_half(const tx_operand *o)
{
    return o->dtype == TX_BF16 || o->dtype == TX_F16;
}

/* Whether a command has an operand that has to be widened. */
static bool is_widened(const tx_command *c)
{
    bool any = false;
    for (int i = 0; i < TX_MAX_IN; i++)
        any = any || is_half(&c->in[i]);
    for (int i = 0; i < TX_MAX_OUT; i++)
        any = any || is_half(&c->out[i]);
    return any && !takes_half(c->op);
}

static tx_operand in_scratch(tx_cl_builder *b, const tx_operand *o)
{
    tx_operand wide = {.dtype = TX_F32, .shape = o->shape, .arena = TX_ARENA_SCRATCH};
    wide.offset = tx_cl_scratch(b, tx_operand_bytes(&wide));
    return wide;
}

static tx_status cast(tx_cl_builder *b, const tx_operand *from, const tx_operand *to)
{
    const tx_command c = {.op = TX_OP_CAST, .in = {*from}, .out = {*to}};
    return tx_cl_cast(b, &c);
}

static tx_status emit_widened(tx_cl_builder *b, const tx_command *c)
{
    const int32_t under = tx_op_info_of(c->op)->in_place;
    tx_command wide = *c;
    tx_status status = TX_OK;
    for (int i = 0; i < TX_MAX_IN && status == TX_OK; i++)
        if (is_half(&c->in[i])) {
            wide.in[i] = in_scratch(b, &c->in[i]);
            status = cast(b, &c->in[i], &wide.in[i]);
        }
    for (int i = 0; i < TX_MAX_OUT; i++)
        if (is_half(&c->out[i])) {
            const bool lies_on = i == 0 && under >= 0 && is_half(&c->in[under]) &&
                                 tx_operand_count(&c->in[under]) == tx_operand_count(&c->out[0]);
            wide.out[i] = lies_on ? wide.in[under] : in_scratch(b, &c->out[i]);
        }
    if (status == TX_OK)
        status = emitters[c->op](b, &wide);
    for (int i = 0; i < TX_MAX_OUT && status == TX_OK; i++)
        if (is_half(&c->out[i]))
            status = cast(b, &wide.out[i], &c->out[i]);
    if (!b->executable->commands[b->executable->length].variant)
        tx_cl_variant(b, "opencl, widened to fp32");
    return status;
}

/* ---- Programs ------------------------------------------------------------------------------------------- */

static tx_status emit(tx_executable *x, const tx_command *c, int64_t *scratch)
{
    tx_cl_builder b = {.context = x->context, .executable = x};
    tx_cl_command *own = &x->commands[x->length];
    *own = (tx_cl_command){.op = c->op, .first = x->step_count};
    tx_status status = c->op >= TX_OP_KERNELS ? tx_fail(TX_INTERNAL, "no kernel")
                       : is_widened(c)        ? emit_widened(&b, c)
                                              : emitters[c->op](&b, c);
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
        const tx_extent *space = &bindings->arena[a];
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
