/* SPDX-License-Identifier: Apache-2.0
 *
 * Executables: commands that record their launches (builder.c), the kernels of these launches, and the memory to which
 * they are bound.
 */
#include "backends/opencl/runtime/internal.h"

#include "api/base/hash.h"
#include "api/graph/op.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef tx_status (*emit_fn)(tx_cl_builder *b, const tx_command *c);
static const emit_fn emitters[TX_OP_KERNELS] = {
#define TX_OP(NAME, name, ...) [TX_OP_##NAME] = tx_cl_##name,
#define TX_VIRTUAL(...)
#include "api/ops.def"
};

/* ---- Commands ------------------------------------------------------------------------------------------- */

void tx_cl_clear(const tx_context *context, tx_cl_command *c)
{
    for (int32_t i = 0; i < c->step_count; i++) {
        tx_cl_step *s = &c->steps[i];
        if (s->kernel && !context->hung)
            clReleaseKernel(s->kernel);
        if (s->event && !context->hung)
            clReleaseEvent(s->event);
        if (s->destroy)
            s->destroy(s->data);
    }
    free(c->steps);
    free(c->arguments);
    free(c->words);
    free(c->variant);
    *c = (tx_cl_command){.asked = c->asked, .before = c->before, .after = c->after, .joined = c->joined};
}

static tx_status emit_op(tx_cl_builder *b, const tx_command *c)
{
    return c->op >= TX_OP_KERNELS ? tx_fail(TX_INTERNAL, "no kernel") : emitters[c->op](b, c);
}

tx_status tx_cl_emit(tx_cl_builder *b, tx_cl_command *c)
{
    tx_cl_clear(b->context, c);
    b->command = c;
    b->emit = emit_op;
    b->before = c->before;
    b->after = c->after;
    const tx_status status = c->joined ? TX_OK : emit_op(b, &c->asked);
    return status == TX_OK ? b->status : status;
}

/* ---- Kernels -------------------------------------------------------------------------------------------- */

void tx_cl_step_entry(const tx_cl_step *s, char *name, size_t size)
{
    if (s->fn)
        snprintf(name, size, "a library's kernels");
    else
        snprintf(name, size, "kernel %s (%016" PRIx64 ")", s->name,
                 tx_hash(TX_HASH_START, s->program->options, strlen(s->program->options)));
}

/* Checks the driver's limit on the kernel's work-group size, which may be below the device's limit if the kernel
 * needs many registers. If the driver's answer is not reliable, sets ->doubted; the launch will show. */
static tx_status check_group(const tx_context *context, tx_cl_step *s)
{
    const size_t items = s->local[0] * s->local[1] * s->local[2];
    size_t allowed = items;
    clGetKernelWorkGroupInfo(s->kernel, context->device, CL_KERNEL_WORK_GROUP_SIZE, sizeof allowed, &allowed, NULL);
    s->doubted = items > allowed;
    if (!s->doubted || context->driver.groups != TX_CL_BELIEVED)
        return TX_OK;
    return tx_fail(TX_DEVICE, "kernel %s needs work-groups of %zu, but the driver allows at most %zu", s->name, items,
                   allowed);
}

/* Fails if the first launch of this kernel, or of this function with other options, crashed or hung before. */
static tx_status check_earlier(const tx_context *context, const tx_cl_step *s)
{
    char name[TX_CL_JOURNAL_NAME];
    tx_cl_step_entry(s, name, sizeof name);
    return tx_cl_journal_check(context, name, strcspn(name, "("));
}

/* A trial has its own entry in the journal. A trial may have replaced the OpenCL context since the command was emitted;
 * its caller then emits it again. */
tx_status tx_cl_make_kernels(const tx_executable *x, tx_cl_command *c)
{
    if (x->generation != x->context->generation)
        return TX_OK;
    for (int32_t i = 0; i < c->step_count; i++) {
        tx_cl_step *s = &c->steps[i];
        if (s->fn)
            continue;
        TX_TRY(tx_cl_make_kernel(x->context, s->program, s->name, &s->kernel));
        TX_TRY(check_group(x->context, s));
        TX_TRY(x->forced ? TX_OK : check_earlier(x->context, s));
    }
    for (int32_t i = 0; i < c->argument_count; i++) {
        const tx_cl_argument *a = &c->arguments[i];
        const void *value = a->at < 0 ? NULL : &c->words[a->at];
        const cl_int code = a->memory ? CL_SUCCESS : clSetKernelArg(c->steps[a->step].kernel, a->index, a->size, value);
        if (code != CL_SUCCESS)
            return tx_fail_in(tx_cl_check(code, "clSetKernelArg"), "argument %u", a->index);
    }
    return TX_OK;
}

/* ---- Programs ------------------------------------------------------------------------------------------- */

tx_status tx_cl_make(tx_context *context, const tx_program *program, tx_executable **out)
{
    tx_executable *x = calloc(1, sizeof *x);
    tx_cl_command *commands = calloc((size_t)program->length + 1, sizeof *commands);
    if (!x || !commands) {
        free(x);
        free(commands);
        return tx_fail(TX_MEMORY, "out of host memory");
    }
    for (int32_t i = 0; i < program->length; i++)
        commands[i].asked = program->commands[i];
    if (program->whole)
        tx_cl_join(context, program, commands);
    *x = (tx_executable){.context = context,
                         .whole = program->whole && program->forward,
                         .forced = program->trial,
                         .length = program->length,
                         .commands = commands};
    *out = x;
    return TX_OK;
}

tx_status tx_cl_bind_command(const tx_executable *x, const tx_cl_command *c)
{
    for (int32_t i = 0; i < c->argument_count; i++) {
        const tx_cl_argument *a = &c->arguments[i];
        if (!a->memory)
            continue;
        if (a->chunk >= x->chunks[a->arena])
            return tx_fail(TX_INTERNAL, "a program uses chunk %d of arena %d, which has %d chunks", a->chunk, a->arena,
                           x->chunks[a->arena]);
        TX_TRY(tx_cl_check(
            clSetKernelArg(c->steps[a->step].kernel, a->index, sizeof(cl_mem), &x->memory[a->arena][a->chunk]),
            "clSetKernelArg"));
    }
    return TX_OK;
}

static const tx_cl_whole *const wholes[] = {
#define TX_WHOLE(name) &tx_cl_##name,
#include "backends/opencl/extensions.def"
#undef TX_WHOLE
    NULL};

const tx_cl_whole *tx_cl_whole_of(const tx_executable *x)
{
    return x->whole && !x->forced ? wholes[0] : NULL;
}

static void forget_whole(tx_executable *x)
{
    if (tx_cl_whole_of(x))
        tx_cl_whole_of(x)->forget(x);
}

tx_status tx_cl_bind(tx_executable *x, const tx_bindings *bindings)
{
    const tx_extent *scratch = &bindings->arena[TX_ARENA_SCRATCH];
    x->bound = false;
    forget_whole(x);
    x->scratch = scratch->chunks > 0 ? scratch->chunk[0]->bytes : 0;
    for (int a = 0; a < TX_ARENA_COUNT; a++) {
        const tx_extent *space = &bindings->arena[a];
        free(x->memory[a]);
        x->memory[a] = calloc((size_t)space->chunks + 1, sizeof(cl_mem));
        if (!x->memory[a])
            return tx_fail(TX_MEMORY, "out of host memory");
        x->chunks[a] = space->chunks;
        for (int32_t i = 0; i < space->chunks; i++)
            x->memory[a][i] = space->chunk[i]->memory;
    }
    for (int32_t i = 0; i < x->length; i++) {
        x->commands[i].runs = 0;
        TX_TRY(tx_cl_bind_command(x, &x->commands[i]));
    }
    x->bound = true;
    return TX_OK;
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
    tx_cl_wait_queue(x->context, x->context->compute, NULL);
    forget_whole(x);
    for (int32_t i = 0; i < x->length; i++)
        tx_cl_clear(x->context, &x->commands[i]);
    for (int a = 0; a < TX_ARENA_COUNT; a++)
        free(x->memory[a]);
    free(x->persistent);
    free(x->commands);
    free(x);
}
