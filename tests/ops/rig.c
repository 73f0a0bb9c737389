/* SPDX-License-Identifier: Apache-2.0
 * A call in a device's memory: placement, upload, run, and the check that nothing else was written. */
#include "tests/ops/rig.h"
#include "api/graph/op.h"

#include <stdlib.h>
#include <string.h>

/* Guard bands repeat this pair of bytes, which is NaN as fp32, bf16 and fp16 and negative as an index. A read outside
 * an operand therefore shows in the result. */
static const uint8_t guard[2] = {0xA5, 0xFF};

#define GUARD_BYTES TX_ALIGNMENT

static tx_memory_kind kind_of(tx_arena_id arena)
{
    static const tx_memory_kind kinds[] = {
#define X(name, kind, ...) TX_MEMORY_##kind,
        TX_ARENA_MAP(X)
#undef X
    };
    return kinds[arena];
}

/* Gives an operand the next place in its arena's chunk, a guard band before and after it. */
static void place(tx_rig *rig, tx_operand *operand, tx_arena_id arena, int32_t chunk)
{
    tx_image *image = &rig->image[arena][chunk];
    int64_t unit = TX_PARAM_BLOCK * (int64_t)sizeof(float), offset = (image->bytes + GUARD_BYTES + unit - 1) / unit;
    operand->arena = arena;
    operand->chunk = chunk;
    operand->offset = offset * unit;
    if (operand->dtype == TX_F32 && arena == TX_ARENA_PLANNED)
        operand->offset += TX_ALIGNMENT; /* a multiple of TX_ALIGNMENT and of nothing larger */
    if (operand->dtype == TX_U8 && arena == TX_ARENA_STATE)
        operand->offset += 5; /* the group bytes of a range begin anywhere */
    image->bytes =
        (operand->offset + tx_operand_bytes(operand) + GUARD_BYTES + TX_ALIGNMENT - 1) / TX_ALIGNMENT * TX_ALIGNMENT;
}

/* Returns the number (+ 1) of the input that output o overwrites, or 0. */
static int32_t base_of(const tx_call *call, int32_t o, bool in_place)
{
    int32_t must = tx_descriptor_of(call->op)->lies_on[o], may = tx_op_info_of(call->op)->in_place;
    return must ? must : o == 0 && in_place ? may + 1 : 0;
}

bool tx_rig_may_be_in_place(const tx_call *call)
{
    int32_t may = tx_op_info_of(call->op)->in_place;
    if (may < 0 || tx_descriptor_of(call->op)->lies_on[0] || !tx_array_present(&call->in[may]))
        return false;
    return call->in[may].dtype == call->out[0].dtype && call->in[may].count == call->out[0].count;
}

/* Infers the outputs by the engine and compares them with the descriptor's. */
static tx_status infer(tx_rig *rig, const tx_call *call)
{
    tx_command *c = &rig->program[TX_RIG_COMMAND];
    const tx_op_info *info = tx_op_info_of(call->op);
    for (int32_t o = 0; o < TX_MAX_OUT; o++)
        c->out[o].dtype = TX_DTYPE_COUNT;
    c->out[0].dtype = tx_array_present(&call->out[0]) ? call->out[0].dtype : TX_DTYPE_COUNT;
    c->out[0].shape = call->out[0].shape;
    if (info->outputs == 0) /* no operands: nothing to infer */
        return TX_OK;
    tx_status status = tx_op_infer(call->op, &c->attrs, c->in, c->out);
    for (int32_t o = 0; o < TX_MAX_OUT && !status; o++) {
        const tx_array *want = &call->out[o];
        char got[96], wanted[96];
        if (c->out[o].dtype != want->dtype || (tx_array_present(want) && tx_operand_count(&c->out[o]) != want->count))
            status = tx_fail(TX_INTERNAL, "inference gives output %d as %s %s, the descriptor as %s %s", o,
                             tx_dtype_name(c->out[o].dtype), tx_shape_text(&c->out[o].shape, got, sizeof got),
                             tx_dtype_name(want->dtype), tx_shape_text(&want->shape, wanted, sizeof wanted));
    }
    return status;
}

static void place_all(tx_rig *rig, const tx_call *call, const tx_arena_id arena[TX_MAX_IN], uint32_t flags,
                      bool in_place)
{
    tx_command *c = &rig->program[TX_RIG_COMMAND];
    int32_t chunk = 0, step = flags & TX_CASE_CHUNKS ? 1 : 0;
    rig->image[TX_ARENA_CONTROL][0].bytes = (int64_t)sizeof(tx_controls) + GUARD_BYTES;
    rig->image[TX_ARENA_RESULT][0].bytes = TX_RESULT_COUNT * (int64_t)sizeof(float) + GUARD_BYTES;
    for (int32_t i = 0; i < TX_MAX_IN; i++, chunk ^= step)
        if (tx_present(&c->in[i]))
            place(rig, &c->in[i], arena[i], chunk);
    for (int32_t o = 0; o < TX_MAX_OUT; o++, chunk ^= step) {
        int32_t base = base_of(call, o, in_place);
        if (!tx_present(&c->out[o]))
            continue;
        if (base) {
            c->out[o].arena = c->in[base - 1].arena;
            c->out[o].chunk = c->in[base - 1].chunk;
            c->out[o].offset = c->in[base - 1].offset;
        } else if (o == 0 && flags & TX_CASE_RESULT) {
            c->out[o].arena = TX_ARENA_RESULT;
            c->out[o].offset = TX_RESULT_LOSS * (int64_t)sizeof(float);
        } else {
            place(rig, &c->out[o], TX_ARENA_PLANNED, chunk);
        }
    }
    /* A second chunk needs a first one. */
    for (int32_t a = 0; a < TX_ARENA_COUNT; a++)
        if (rig->image[a][1].bytes && !rig->image[a][0].bytes)
            rig->image[a][0].bytes = GUARD_BYTES;
}

static void set_trap(tx_rig *rig)
{
    tx_command *trap = &rig->program[0];
    trap->op = TX_OP_FILL;
    trap->attrs.control = -1;
    for (int32_t i = 0; i < TX_MAX_IN; i++)
        trap->in[i].dtype = TX_DTYPE_COUNT;
    for (int32_t o = 0; o < TX_MAX_OUT; o++)
        trap->out[o].dtype = TX_DTYPE_COUNT;
    trap->out[0].dtype = TX_F32;
    trap->out[0].shape = TX_SHAPE(3);
    place(rig, &trap->out[0], TX_ARENA_PLANNED, 0);
}

static tx_status allocate(tx_rig *rig)
{
    const tx_backend *b = rig->target->backend;
    tx_status status = TX_OK;
    for (int32_t a = 0; a < TX_ARENA_COUNT; a++)
        for (int32_t k = 0; k < TX_RIG_CHUNKS && !status; k++) {
            tx_image *image = &rig->image[a][k];
            if (!image->bytes)
                continue;
            image->before = malloc((size_t)image->bytes);
            image->after = malloc((size_t)image->bytes);
            if (!image->before || !image->after)
                return tx_fail(TX_MEMORY, "conformance: no host memory for %lld bytes", (long long)image->bytes);
            status = b->allocate(rig->target->context, kind_of((tx_arena_id)a), TX_SPACE_DEVICE, image->bytes,
                                 &image->buffer);
        }
    return status;
}

static tx_status bind(tx_rig *rig)
{
    tx_bindings bindings;
    tx_buffer *chunks[TX_ARENA_COUNT][TX_RIG_CHUNKS];
    for (int32_t a = 0; a < TX_ARENA_COUNT; a++) {
        bindings.arena[a] = (tx_extent){0, chunks[a]};
        for (int32_t k = 0; k < TX_RIG_CHUNKS && rig->image[a][k].buffer; k++)
            chunks[a][bindings.arena[a].chunks++] = rig->image[a][k].buffer;
    }
    return rig->target->backend->bind(rig->executable, &bindings);
}

tx_status tx_rig_create(const tx_target *target, const tx_call *call, const tx_case *c, bool in_place, tx_rig *rig)
{
    *rig = (tx_rig){.target = target, .work = tx_descriptor_of(call->op)->work};
    tx_command *command = &rig->program[TX_RIG_COMMAND];
    command->op = call->op;
    command->attrs = call->attrs;
    tx_arena_id arena[TX_MAX_IN];
    for (int32_t i = 0; i < TX_MAX_IN; i++) {
        command->in[i].dtype = call->in[i].dtype;
        command->in[i].shape = call->in[i].shape;
        arena[i] = c->in[i].arena;
    }
    tx_status status = infer(rig, call);
    if (status)
        return status;
    place_all(rig, call, arena, c->flags, in_place);
    set_trap(rig);
    tx_program program = {.length = TX_RIG_COMMANDS, .commands = rig->program};
    status = target->backend->prepare(target->context, &program, &rig->executable, &rig->scratch_bytes);
    if (!status && rig->scratch_bytes > 0)
        rig->image[TX_ARENA_SCRATCH][0].bytes = rig->scratch_bytes + GUARD_BYTES;
    TX_THEN(status, allocate(rig));
    TX_THEN(status, bind(rig));
    if (status)
        tx_rig_free(rig);
    return status;
}

void tx_rig_free(tx_rig *rig)
{
    const tx_backend *b = rig->target->backend;
    if (rig->executable)
        b->destroy(rig->executable);
    for (int32_t a = 0; a < TX_ARENA_COUNT; a++)
        for (int32_t k = 0; k < TX_RIG_CHUNKS; k++) {
            tx_image *image = &rig->image[a][k];
            if (image->buffer)
                b->release(rig->target->context, image->buffer);
            free(image->before);
            free(image->after);
            *image = (tx_image){0};
        }
    rig->executable = NULL;
}

static void poison_bytes(uint8_t *bytes, int64_t count, uint32_t pattern)
{
    for (int64_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)(pattern >> 8 * (i & 3));
}

static uint8_t *bytes_before(tx_rig *rig, const tx_operand *o)
{
    return rig->image[o->arena][o->chunk].before + o->offset;
}

tx_status tx_rig_upload(tx_rig *rig, const tx_call *call, uint32_t poison)
{
    tx_command *c = &rig->program[TX_RIG_COMMAND];
    for (int32_t a = 0; a < TX_ARENA_COUNT; a++)
        for (int32_t k = 0; k < TX_RIG_CHUNKS; k++)
            for (int64_t i = 0; i < rig->image[a][k].bytes; i++)
                rig->image[a][k].before[i] = guard[i & 1];
    memcpy(rig->image[TX_ARENA_CONTROL][0].before, &call->controls, sizeof call->controls);
    tx_number_encode(TX_F32, call->result, TX_RESULT_COUNT, rig->image[TX_ARENA_RESULT][0].before);
    if (rig->scratch_bytes > 0)
        poison_bytes(rig->image[TX_ARENA_SCRATCH][0].before, rig->scratch_bytes, poison);
    for (int32_t o = 0; o < TX_MAX_OUT; o++) {
        if (!tx_present(&c->out[o]))
            continue;
        if (tx_call_beta(call, o) != 0.0)
            tx_number_encode(c->out[o].dtype, call->out[o].value, call->out[o].count, bytes_before(rig, &c->out[o]));
        else
            poison_bytes(bytes_before(rig, &c->out[o]), tx_operand_bytes(&c->out[o]), poison);
    }
    for (int32_t i = 0; i < TX_MAX_IN; i++) /* after the outputs: some of them lie on inputs */
        if (tx_present(&c->in[i]))
            tx_number_encode(c->in[i].dtype, call->in[i].value, call->in[i].count, bytes_before(rig, &c->in[i]));
    tx_status status = TX_OK;
    for (int32_t a = 0; a < TX_ARENA_COUNT; a++)
        for (int32_t k = 0; k < TX_RIG_CHUNKS && !status; k++) {
            tx_image *image = &rig->image[a][k];
            if (image->bytes)
                status = rig->target->backend->write(rig->target->context, TX_QUEUE_COMPUTE, image->buffer, 0,
                                                     image->before, image->bytes);
        }
    return status ? status : rig->target->backend->finish(rig->target->context);
}

tx_status tx_rig_run(tx_rig *rig, const tx_call *call)
{
    const tx_backend *b = rig->target->backend;
    tx_status status = b->run(rig->executable, TX_RIG_COMMAND, 1, &call->controls, NULL);
    for (int32_t a = 0; a < TX_ARENA_COUNT; a++)
        for (int32_t k = 0; k < TX_RIG_CHUNKS && !status; k++) {
            tx_image *image = &rig->image[a][k];
            if (image->bytes)
                status = b->read(rig->target->context, image->buffer, 0, image->after, image->bytes);
        }
    return status;
}

const uint8_t *tx_rig_output(const tx_rig *rig, int32_t o)
{
    const tx_operand *out = &rig->program[TX_RIG_COMMAND].out[o];
    return rig->image[out->arena][out->chunk].after + out->offset;
}

/* Does this byte belong to memory that the command may write? */
static bool writable(const tx_rig *rig, tx_arena_id arena, int32_t chunk, int64_t byte)
{
    if (arena == TX_ARENA_SCRATCH)
        return byte < rig->scratch_bytes;
    if (arena == TX_ARENA_RESULT && rig->program[TX_RIG_COMMAND].op == TX_OP_CLIP_NORM)
        return byte < TX_RESULT_COUNT * (int64_t)sizeof(float);
    for (int32_t o = 0; o < TX_MAX_OUT; o++) {
        const tx_operand *out = &rig->program[TX_RIG_COMMAND].out[o];
        if (tx_present(out) && out->arena == arena && out->chunk == chunk && byte >= out->offset &&
            byte < out->offset + tx_operand_bytes(out))
            return true;
    }
    return false;
}

/* Names the place of a byte that should not have changed. */
static tx_status touched(const tx_rig *rig, tx_arena_id arena, int32_t chunk, int64_t byte)
{
    const tx_command *c = &rig->program[TX_RIG_COMMAND];
    for (int32_t i = 0; i < TX_MAX_IN + TX_MAX_OUT; i++) {
        bool input = i < TX_MAX_IN;
        int32_t n = input ? i : i - TX_MAX_IN;
        const tx_operand *operand = input ? &c->in[n] : &c->out[n];
        if (!tx_present(operand) || operand->arena != arena || operand->chunk != chunk)
            continue;
        int64_t from = byte - operand->offset, end = from - tx_operand_bytes(operand);
        if (from >= 0 && end < 0)
            return tx_fail(TX_INTERNAL, "%s %d was modified at byte %lld", input ? "input" : "output", n,
                           (long long)from);
        if (end >= 0 && end < GUARD_BYTES)
            return tx_fail(TX_INTERNAL, "memory was written %lld bytes after the end of %s %d", (long long)end,
                           input ? "input" : "output", n);
        if (from < 0 && from >= -GUARD_BYTES)
            return tx_fail(TX_INTERNAL, "memory was written %lld bytes before %s %d", (long long)-from,
                           input ? "input" : "output", n);
    }
    return tx_fail(TX_INTERNAL, "memory outside all operands was written: arena %d, chunk %d, byte %lld", (int)arena,
                   chunk, (long long)byte);
}

tx_status tx_rig_check_untouched(const tx_rig *rig)
{
    for (int32_t a = 0; a < TX_ARENA_COUNT; a++)
        for (int32_t k = 0; k < TX_RIG_CHUNKS; k++) {
            const tx_image *image = &rig->image[a][k];
            for (int64_t i = 0; i < image->bytes; i++)
                if (image->before[i] != image->after[i] && !writable(rig, (tx_arena_id)a, k, i))
                    return touched(rig, (tx_arena_id)a, k, i);
        }
    return TX_OK;
}
