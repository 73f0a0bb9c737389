/* SPDX-License-Identifier: Apache-2.0
 * Programs: every op emits its launches once (builder.c), bind fills in where the arenas lie; run.c enqueues. */
#include "backends/opencl/internal.h"

#include "api/graph/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef tx_status (*emit_fn)(tx_cl_builder *b, const tx_command *c);
static const emit_fn emitters[TX_OP_KERNELS] = {
#define TX_OP(NAME, name, ...) [TX_OP_##NAME] = tx_cl_##name,
#define TX_VIRTUAL(...)
#include "api/ops.def"
};

/* ---- Programs ------------------------------------------------------------------------------------------- */

/* Takes back the steps from `first` on. */
static void drop_steps(tx_executable *x, int32_t first)
{
    while (x->patch_count > 0 && x->patches[x->patch_count - 1].step >= first)
        x->patch_count--;
    for (int32_t i = first; i < x->step_count; i++) {
        if (x->steps[i].kernel)
            clReleaseKernel(x->steps[i].kernel);
        if (x->steps[i].destroy)
            x->steps[i].destroy(x->steps[i].data);
    }
    x->step_count = first;
}

static tx_status emit_once(tx_executable *x, const struct tx_cl_forced *forced, const tx_command *c, tx_cl_builder *b)
{
    tx_cl_command *own = &x->commands[x->length];
    free(own->variant);
    *own = (tx_cl_command){.op = c->op, .first = x->step_count, .asked = *c};
    *b = (tx_cl_builder){.context = x->context, .executable = x, .forced = forced};
    x->context->shared = 0.0;
    tx_status status = c->op >= TX_OP_KERNELS ? tx_fail(TX_INTERNAL, "no kernel") : emitters[c->op](b, c);
    return status == TX_OK ? b->status : status;
}

/* Says in the command's variant that it runs in smaller work-groups than suit it. */
static void note_narrowed(tx_cl_builder *b)
{
    char text[480];
    const tx_cl_command *own = &b->executable->commands[b->executable->length];
    snprintf(text, sizeof text, "%s, the driver refused work-groups of more than %zu",
             own->variant ? own->variant : "opencl", b->context->limits.max_group);
    tx_cl_variant(b, text);
}

/* Adds the command. Where the driver refuses a kernel of it (its build, its creation, its work-groups), other forms
 * with smaller work-groups are tried, one after the other. */
static tx_status emit(tx_executable *x, const struct tx_cl_forced *forced, const tx_command *c, int64_t *scratch)
{
    tx_context *context = x->context;
    const tx_cl_limits own = context->limits;
    const bool narrowed = context->narrowed;
    const int32_t first = x->step_count;
    char refusal[640];
    tx_cl_builder b;
    tx_status status = emit_once(x, forced, c, &b);
    snprintf(refusal, sizeof refusal, "%s", status == TX_OK ? "" : tx_error());
    while (status == TX_DEVICE && b.widest > 1) {
        context->narrowed = true;
        tx_cl_narrow(&context->limits, b.widest / 2);
        drop_steps(x, first);
        status = emit_once(x, forced, c, &b);
    }
    if (status == TX_UNSUPPORTED && context->narrowed) /* there is no smaller form */
        status = tx_fail(TX_DEVICE, "%s", refusal);
    else if (status == TX_OK && context->narrowed)
        note_narrowed(&b);
    context->limits = own;
    context->narrowed = narrowed;
    tx_cl_command *made = &x->commands[x->length++];
    made->count = x->step_count - first;
    made->widest = b.widest;
    made->work = context->shared;
    made->launches += made->count;
    *scratch = b.scratch > *scratch ? b.scratch : *scratch;
    return status == TX_OK ? b.status : tx_fail_in(status, "%s", tx_op_info_of(c->op)->name);
}

tx_status tx_cl_prepare(tx_context *context, const tx_program *program, tx_executable **out, int64_t *scratch_bytes)
{
    return tx_cl_prepare_trial(context, NULL, program, out, scratch_bytes);
}

tx_status tx_cl_prepare_trial(tx_context *context, const struct tx_cl_forced *forced, const tx_program *program,
                              tx_executable **out, int64_t *scratch_bytes)
{
    int64_t scratch = 0;
    if (!context->survey && !forced)
        tx_cl_compile_ahead(context, program);
    tx_executable *x = calloc(1, sizeof *x);
    if (!x)
        return tx_fail(TX_MEMORY, "out of host memory");
    x->context = context;
    x->commands = calloc((size_t)program->length + 1, sizeof *x->commands);
    tx_status status = x->commands ? TX_OK : tx_fail(TX_MEMORY, "out of host memory");
    for (int32_t i = 0; status == TX_OK && i < program->length; i++)
        status = emit(x, forced, &program->commands[i], &scratch);
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

/* Sets the arguments that name memory, as it lies in x->memory. */
static tx_status bind_patches(tx_executable *x)
{
    for (int32_t i = 0; i < x->patch_count; i++) {
        const tx_cl_patch *p = &x->patches[i];
        tx_status status = tx_cl_check(
            clSetKernelArg(x->steps[p->step].kernel, p->argument, sizeof(cl_mem), &x->memory[p->arena][p->chunk]),
            "clSetKernelArg");
        if (status != TX_OK)
            return status;
    }
    x->bound = true;
    return TX_OK;
}

/* Other forms of commands are forgotten: they were found for memory that lay elsewhere. */
static void drop_instead(tx_executable *x)
{
    for (int32_t i = 0; x->commands && i < x->length; i++) {
        tx_cl_destroy(x->commands[i].instead);
        x->commands[i].instead = NULL;
        x->commands[i].runs = 0;
    }
}

tx_status tx_cl_bind(tx_executable *x, const tx_bindings *bindings)
{
    const tx_extent *scratch = &bindings->arena[TX_ARENA_SCRATCH];
    x->bound = false;
    x->scratch = scratch->chunks > 0 ? scratch->chunk[0]->bytes : 0;
    drop_instead(x);
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
    }
    return bind_patches(x);
}

/* The same memory, of which `other` has at most one chunk of scratch as well. */
static tx_status bind_alike(const tx_executable *x, tx_executable *other)
{
    for (int a = 0; a < TX_ARENA_COUNT; a++) {
        size_t chunks = 0;
        while (x->memory[a][chunks])
            chunks++;
        other->memory[a] = calloc(chunks + 1, sizeof(cl_mem));
        if (!other->memory[a])
            return tx_fail(TX_MEMORY, "out of host memory");
        memcpy(other->memory[a], x->memory[a], chunks * sizeof(cl_mem));
    }
    other->scratch = x->scratch;
    return bind_patches(other);
}

/* The command alone, as it is under the context's limits of now. At least so many launches. */
static tx_status prepare_instead(tx_executable *x, tx_cl_command *c, int32_t launches)
{
    const tx_program alone = {1, &c->asked};
    tx_executable *other = NULL;
    int64_t scratch = 0;
    tx_status status = tx_cl_prepare(x->context, &alone, &other, &scratch);
    if (status == TX_OK && other->commands[0].launches < launches)
        status = tx_fail(TX_UNSUPPORTED, "it cannot be cut");
    if (status == TX_OK && scratch > x->scratch)
        status = tx_fail(TX_UNSUPPORTED, "a smaller form needs more scratch memory than there is");
    if (status == TX_OK)
        status = bind_alike(x, other);
    if (status == TX_OK)
        c->instead = other;
    else
        tx_cl_destroy(other);
    return status;
}

tx_status tx_cl_find_instead(tx_executable *x, int32_t index)
{
    tx_context *context = x->context;
    tx_cl_command *c = &x->commands[index];
    const tx_cl_limits own = context->limits;
    if (c->widest < 2)
        return tx_fail(TX_UNSUPPORTED, "there is no smaller form");
    tx_cl_narrow(&context->limits, c->widest / 2);
    context->narrowed = true;
    tx_status status = prepare_instead(x, c, 0);
    context->limits = own;
    context->narrowed = false;
    return status;
}

tx_status tx_cl_cut(tx_executable *x, int32_t index, double seconds)
{
    tx_context *context = x->context;
    tx_cl_command *c = &x->commands[index];
    const double own = context->limits.launch_work;
    context->limits.launch_work = c->work / c->launches * TX_CL_LAUNCH_SECONDS / seconds;
    tx_status status = prepare_instead(x, c, c->launches + 1);
    context->limits.launch_work = own;
    return status;
}

tx_context *tx_cl_context_of(const tx_executable *x)
{
    return x->context;
}

tx_command_info tx_cl_command_info(const tx_executable *x, int32_t index)
{
    const tx_cl_command *c = &x->commands[index];
    if (c->instead)
        return tx_cl_command_info(c->instead, 0);
    return (tx_command_info){c->variant ? c->variant : "opencl", c->launches};
}

void tx_cl_destroy(tx_executable *x)
{
    if (!x)
        return;
    clFinish(x->context->compute);
    drop_instead(x);
    drop_steps(x, 0);
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
