/* SPDX-License-Identifier: Apache-2.0
 *
 * The builder, with which an op adds its launches to a program in `prepare`.
 */
#include "backends/opencl/runtime/internal.h"

#include "api/base/grow.h"

#include <stdlib.h>
#include <string.h>

static void fail(tx_cl_builder *b, tx_status status)
{
    if (b->status == TX_OK)
        b->status = status;
}

/* Returns `array` with capacity for one more element, reallocated if necessary. Records a failure. */
static void *grow(tx_cl_builder *b, void *array, int32_t count, size_t size)
{
    void *larger = tx_grown(array, count, size);
    if (!larger)
        fail(b, tx_fail(TX_MEMORY, "out of host memory"));
    return larger ? larger : array;
}

/* Returns false if the step was not added, because this or an earlier call failed. */
static bool add_step(tx_cl_builder *b, const tx_cl_step *s)
{
    tx_executable *x = b->executable;
    if (b->status == TX_OK)
        x->steps = grow(b, x->steps, x->step_count, sizeof *x->steps);
    if (b->status != TX_OK)
        return false;
    x->steps[x->step_count++] = *s;
    x->argument = 0;
    return true;
}

/* Checks the driver's limit on the kernel's work-group size, which may be below the device's limit if the kernel
 * needs many registers. If the driver's answer is not reliable, sets *doubted; the launch will show. */
static tx_status check_group(const tx_cl_builder *b, cl_kernel kernel, size_t items, bool *doubted)
{
    char name[64] = "";
    size_t allowed = items;
    clGetKernelWorkGroupInfo(kernel, b->context->device, CL_KERNEL_WORK_GROUP_SIZE, sizeof allowed, &allowed, NULL);
    *doubted = items > allowed;
    if (!*doubted || b->context->driver.groups != TX_CL_BELIEVED)
        return TX_OK;
    clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL);
    return tx_fail(TX_DEVICE, "kernel %s needs work-groups of %zu, but the driver allows at most %zu", name, items,
                   allowed);
}

/* Fails if the first launch of this kernel, or of this function with other options, crashed or hung before. A trial
 * has its own entry. */
static tx_status check_earlier(const tx_cl_builder *b, cl_kernel kernel)
{
    char name[TX_CL_JOURNAL_NAME];
    if (b->forced || !b->context->journal)
        return TX_OK;
    tx_cl_kernel_entry(b->context, kernel, name, sizeof name);
    return tx_cl_journal_check(b->context, name, strcspn(name, "("));
}

static size_t items_of(cl_uint dims, const size_t *local)
{
    size_t items = 1;
    for (cl_uint i = 0; local && i < dims; i++)
        items *= local[i];
    return items;
}

void tx_cl_launch(tx_cl_builder *b, const char *source, const char *options, const char *name, cl_uint dims,
                  const size_t *global, const size_t *local)
{
    const size_t items = items_of(dims, local);
    tx_cl_step s = {.dims = dims, .has_local = local != NULL};
    if (b->status != TX_OK)
        return;
    fail(b, tx_cl_want_program(b->context, source, options, b->forced != NULL));
    if (b->context->survey)
        return;
    b->widest = items > b->widest ? items : b->widest;
    fail(b, tx_cl_kernel(b->context, source, options, name, &s.kernel));
    if (b->status != TX_OK)
        return;
    fail(b, check_group(b, s.kernel, items, &s.doubted));
    fail(b, check_earlier(b, s.kernel));
    for (cl_uint i = 0; i < dims; i++) {
        s.local[i] = local ? local[i] : 1;
        s.global[i] = (global[i] + s.local[i] - 1) / s.local[i] * s.local[i];
    }
    if (!add_step(b, &s))
        clReleaseKernel(s.kernel);
}

static void set_argument(tx_cl_builder *b, size_t size, const void *value)
{
    if (b->status != TX_OK || b->context->survey)
        return;
    tx_executable *x = b->executable;
    cl_int code = clSetKernelArg(x->steps[x->step_count - 1].kernel, x->argument, size, value);
    if (code != CL_SUCCESS)
        fail(b, tx_fail_in(tx_cl_check(code, "clSetKernelArg"), "argument %u", x->argument));
    x->argument++;
}

static void add_patch(tx_cl_builder *b, tx_arena_id arena, int32_t chunk)
{
    tx_executable *x = b->executable;
    if (b->context->survey)
        return;
    if (b->status == TX_OK)
        x->patches = grow(b, x->patches, x->patch_count, sizeof *x->patches);
    if (b->status != TX_OK)
        return;
    x->patches[x->patch_count++] = (tx_cl_patch){x->step_count - 1, x->argument++, arena, chunk};
}

tx_status tx_cl_arg_operands(tx_cl_builder *b, size_t count, const tx_operand *const *operands)
{
    for (size_t i = 0; i < count; i++) {
        const tx_operand *o = operands[i];
        const bool present = o && tx_present(o);
        const cl_mem none = NULL;
        if (present)
            add_patch(b, o->arena, o->chunk);
        else
            set_argument(b, sizeof none, &none);
        TX_CL_I64(b, present ? o->offset / (int64_t)tx_dtype_size(o->dtype) : 0);
    }
    return b->status;
}

tx_status tx_cl_arg_values(tx_cl_builder *b, size_t size, size_t count, const void *values)
{
    for (size_t i = 0; i < count; i++)
        set_argument(b, size, (const char *)values + i * size);
    return b->status;
}

tx_status tx_cl_arg_control(tx_cl_builder *b)
{
    add_patch(b, TX_ARENA_CONTROL, 0);
    return b->status;
}

tx_status tx_cl_arg_result(tx_cl_builder *b)
{
    add_patch(b, TX_ARENA_RESULT, 0);
    return b->status;
}

void tx_cl_arg_local(tx_cl_builder *b, size_t bytes)
{
    set_argument(b, bytes, NULL);
}

tx_operand tx_cl_scratch(tx_cl_builder *b, tx_dtype dtype, tx_shape shape)
{
    const tx_operand made = {.dtype = dtype, .shape = shape, .arena = TX_ARENA_SCRATCH, .offset = b->scratch};
    b->scratch += tx_cl_blocks(tx_operand_bytes(&made), TX_ALIGNMENT) * TX_ALIGNMENT;
    return made;
}

void tx_cl_call(tx_cl_builder *b, tx_cl_call_fn fn, void *data, void (*destroy)(void *data), int32_t launches)
{
    tx_cl_step s = {.fn = fn, .data = data, .destroy = destroy};
    if (b->context->survey || !add_step(b, &s)) {
        if (destroy)
            destroy(data);
        return;
    }
    tx_executable *x = b->executable;
    x->commands[x->length].launches += launches - 1; /* the step itself counts as one */
}

void tx_cl_variant(tx_cl_builder *b, const char *name)
{
    tx_cl_command *c = &b->executable->commands[b->executable->length];
    free(c->variant);
    c->variant = strdup(name);
    if (!c->variant)
        fail(b, tx_fail(TX_MEMORY, "out of host memory"));
}
