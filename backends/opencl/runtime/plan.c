/* SPDX-License-Identifier: Apache-2.0
 *
 * Executables: commands that emit their launches once (builder.c), and the memory to which they are bound.
 */
#include "backends/opencl/runtime/internal.h"

#include "api/graph/op.h"

#include <stdlib.h>
#include <string.h>

typedef tx_status (*emit_fn)(tx_cl_builder *b, const tx_command *c);
static const emit_fn emitters[TX_OP_KERNELS] = {
#define TX_OP(NAME, name, ...) [TX_OP_##NAME] = tx_cl_##name,
#define TX_VIRTUAL(...)
#include "api/ops.def"
};

/* ---- Programs ------------------------------------------------------------------------------------------- */

void tx_cl_drop_steps(tx_executable *x, int32_t first)
{
    while (x->patch_count > 0 && x->patches[x->patch_count - 1].step >= first)
        x->patch_count--;
    for (int32_t i = first; i < x->step_count; i++) {
        if (x->steps[i].kernel && !x->context->hung)
            clReleaseKernel(x->steps[i].kernel);
        if (x->steps[i].destroy)
            x->steps[i].destroy(x->steps[i].data);
    }
    x->step_count = first;
}

tx_status tx_cl_emit(tx_executable *x, const tx_command *c, const tx_cl_limits *limits, tx_cl_builder *b)
{
    tx_cl_command *own = &x->commands[x->length];
    free(own->variant);
    *own = (tx_cl_command){.first = x->step_count, .asked = *c};
    *b = (tx_cl_builder){.context = x->context, .limits = limits, .executable = x, .forced = x->forced};
    tx_status status = c->op >= TX_OP_KERNELS ? tx_fail(TX_INTERNAL, "no kernel") : emitters[c->op](b, c);
    return status == TX_OK ? b->status : status;
}

tx_status tx_cl_make(tx_context *context, int32_t length, tx_executable **out)
{
    tx_executable *x = calloc(1, sizeof *x);
    if (!x)
        return tx_fail(TX_MEMORY, "out of host memory");
    x->context = context;
    x->generation = context->generation;
    x->commands = calloc((size_t)length + 1, sizeof *x->commands);
    if (!x->commands) {
        free(x);
        return tx_fail(TX_MEMORY, "out of host memory");
    }
    *out = x;
    return TX_OK;
}

/* Sets the arguments that name memory, from x->memory. */
static tx_status bind_patches(tx_executable *x)
{
    for (int32_t i = 0; i < x->patch_count; i++) {
        const tx_cl_patch *p = &x->patches[i];
        TX_TRY(tx_cl_check(
            clSetKernelArg(x->steps[p->step].kernel, p->argument, sizeof(cl_mem), &x->memory[p->arena][p->chunk]),
            "clSetKernelArg"));
    }
    x->bound = true;
    return TX_OK;
}

/* Destroys the replacement forms of commands. They were chosen for memory at other addresses. */
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
            return tx_fail(TX_INTERNAL, "a program uses chunk %d of arena %d, which has %d chunks", p->chunk, p->arena,
                           bindings->arena[p->arena].chunks);
    }
    return bind_patches(x);
}

tx_status tx_cl_bind_alike(const tx_executable *x, tx_executable *other)
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
    tx_cl_wait_queue(x->context, x->context->compute, NULL);
    drop_instead(x);
    tx_cl_drop_steps(x, 0);
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
