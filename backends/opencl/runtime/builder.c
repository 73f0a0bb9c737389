/* SPDX-License-Identifier: Apache-2.0
 *
 * The builder, with which an op records its launches in a command.
 */
#include "backends/opencl/runtime/internal.h"

#include <stdlib.h>
#include <string.h>

static void fail(tx_cl_builder *b, tx_status status)
{
    if (b->status == TX_OK)
        b->status = status;
}

/* Returns `array` with room for one more element; its capacity is a power of two. Most commands have few launches. */
static void *grow(tx_cl_builder *b, void *array, int32_t count, size_t size)
{
    if (b->status != TX_OK || (count & (count - 1)) != 0)
        return array;
    void *larger = realloc(array, (count > 0 ? 2 * (size_t)count : 1) * size);
    if (!larger)
        fail(b, tx_fail(TX_MEMORY, "out of host memory"));
    return larger ? larger : array;
}

/* Returns false if the step was not added, because this or an earlier call failed. */
static bool add_step(tx_cl_builder *b, const tx_cl_step *s)
{
    tx_cl_command *c = b->command;
    c->steps = grow(b, c->steps, c->step_count, sizeof *c->steps);
    if (b->status != TX_OK)
        return false;
    c->steps[c->step_count++] = *s;
    b->argument = 0;
    return true;
}

void tx_cl_launch(tx_cl_builder *b, const char *source, const char *options, const char *name, cl_uint dims,
                  const size_t *global, const size_t *local)
{
    tx_cl_step s = {.name = name, .dims = dims, .has_local = local != NULL};
    for (cl_uint i = 0; i < 3; i++) {
        s.local[i] = local && i < dims ? local[i] : 1;
        s.global[i] = i < dims ? (global[i] + s.local[i] - 1) / s.local[i] * s.local[i] : 1;
    }
    if (b->status == TX_OK)
        fail(b, tx_cl_want_program(b->context, source, options, name, b->forced != NULL, &s.program));
    b->command->launches += add_step(b, &s);
}

/* Adds an argument of the last step. */
static void add_argument(tx_cl_builder *b, tx_cl_argument argument)
{
    tx_cl_command *c = b->command;
    c->arguments = grow(b, c->arguments, c->argument_count, sizeof *c->arguments);
    if (b->status != TX_OK)
        return;
    argument.step = c->step_count - 1;
    argument.index = b->argument++;
    c->arguments[c->argument_count++] = argument;
}

static void add_value(tx_cl_builder *b, const char *type, size_t size, const void *value)
{
    tx_cl_command *c = b->command;
    add_argument(b, (tx_cl_argument){.type = type, .size = size, .at = c->word_count});
    for (size_t done = 0; done < size; done += sizeof *c->words) {
        c->words = grow(b, c->words, c->word_count, sizeof *c->words);
        if (b->status != TX_OK)
            return;
        c->words[c->word_count] = 0;
        memcpy(&c->words[c->word_count++], (const char *)value + done,
               (size_t)tx_cl_least((int64_t)(size - done), (int64_t)sizeof *c->words));
    }
}

static void add_memory(tx_cl_builder *b, tx_arena_id arena, int32_t chunk)
{
    add_argument(b, (tx_cl_argument){.memory = true, .arena = arena, .chunk = chunk});
}

tx_status tx_cl_arg_operands(tx_cl_builder *b, size_t count, const tx_operand *const *operands)
{
    for (size_t i = 0; i < count; i++) {
        const tx_operand *o = operands[i];
        const bool present = o && tx_present(o);
        const cl_mem none = NULL;
        if (present)
            add_memory(b, o->arena, o->chunk);
        else
            add_value(b, NULL, sizeof none, &none);
        TX_CL_I64(b, present ? o->offset / (int64_t)tx_dtype_size(o->dtype) : 0);
    }
    return b->status;
}

tx_status tx_cl_arg_values(tx_cl_builder *b, const char *type, size_t size, size_t count, const void *values)
{
    for (size_t i = 0; i < count; i++)
        add_value(b, type, size, (const char *)values + i * size);
    return b->status;
}

tx_status tx_cl_arg_control(tx_cl_builder *b)
{
    add_memory(b, TX_ARENA_CONTROL, 0);
    return b->status;
}

tx_status tx_cl_arg_result(tx_cl_builder *b)
{
    add_memory(b, TX_ARENA_RESULT, 0);
    return b->status;
}

void tx_cl_arg_local(tx_cl_builder *b, size_t bytes)
{
    add_argument(b, (tx_cl_argument){.size = bytes, .at = -1});
}

tx_operand tx_cl_scratch(tx_cl_builder *b, tx_dtype dtype, tx_shape shape)
{
    const tx_operand made = {.dtype = dtype, .shape = shape, .arena = TX_ARENA_SCRATCH, .offset = b->command->scratch};
    b->command->scratch += tx_cl_blocks(tx_operand_bytes(&made), TX_ALIGNMENT) * TX_ALIGNMENT;
    return made;
}

void tx_cl_call(tx_cl_builder *b, tx_cl_call_fn fn, void *data, void (*destroy)(void *data), int32_t launches)
{
    const tx_cl_step s = {.fn = fn, .data = data, .destroy = destroy};
    if (add_step(b, &s))
        b->command->launches += launches;
    else if (destroy)
        destroy(data);
}

void tx_cl_variant(tx_cl_builder *b, const char *name)
{
    free(b->command->variant);
    b->command->variant = strdup(name);
    if (!b->command->variant)
        fail(b, tx_fail(TX_MEMORY, "out of host memory"));
}
