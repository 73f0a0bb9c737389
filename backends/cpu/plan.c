/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs of the cpu backend. A prepared program is an array of calls; bind() sets their pointers.
 */
#include "backends/cpu/prepared.h"

#include <inttypes.h>
#include <stdlib.h>

#include "api/base/clock.h"
#include "api/base/thread.h"
#include "api/graph/op.h"

struct tx_executable {
    tx_context *context;
    tx_program program;
    bool bound;
    tx_cpu_call call[];
};

/* ---- The matrix product of MATMUL ------------------------------------------------------------------------ */

static tx_status create_product(const tx_context *context, const tx_command *command, void **product,
                                int64_t *scratch_bytes)
{
    const tx_attrs *attrs = &command->attrs;
    const tx_cpu_gemm_spec spec = {
        .shape = tx_gemm_of(attrs, &command->in[0].shape, &command->in[1].shape),
        .type = command->in[0].dtype,
        .packed = tx_dtype_packed(command->in[1].dtype) ? command->in[1].dtype : TX_F32,
        .result = command->out[0].dtype,
        .trans_a = attrs->trans_a,
        .trans_b = attrs->trans_b,
        .bias = tx_present(&command->in[2]),
        .adds = attrs->accumulate != TX_STORE,
        .threads = context->threads,
        .rows = context->kernels->gemm_rows,
    };
    tx_cpu_gemm *gemm = NULL;
    const tx_status status = tx_cpu_gemm_create(&spec, &gemm, scratch_bytes);
    *product = gemm;
    return status;
}

/* The library can fail, so this runs before the kernel of MATMUL, which applies the epilogue. */
static tx_status run_product(const tx_cpu_call *call)
{
    const tx_attrs *attrs = &call->command->attrs;
    void *product = call->out[1] ? call->out[1] : call->out[0];
    tx_status status = tx_cpu_gemm_run(call->prepared, call->in[0], call->in[1], 0, call->in[2], product,
                                       tx_beta(attrs->accumulate, call->controls), call->scratch);
    if (!status)
        return TX_OK;
    const tx_gemm s = tx_gemm_of(attrs, &call->command->in[0].shape, &call->command->in[1].shape);
    return tx_fail_in(status, "matmul of %" PRId64 " x [%" PRId64 ", %" PRId64 "] by [%" PRId64 ", %" PRId64 "]",
                      s.batch, s.m, s.k, s.k, s.n);
}

static const char *product_variant(const void *product)
{
    return tx_cpu_gemm_variant(product);
}

static void destroy_product(void *product)
{
    tx_cpu_gemm_destroy(product);
}

const tx_cpu_product tx_cpu_product_matmul = {create_product, run_product, product_variant, destroy_product};

/* ---- Prepare ------------------------------------------------------------------------------------------- */

int64_t tx_cpu_scratch_attention(const tx_command *command)
{
    const tx_attrs *attrs = &command->attrs;
    const bool grad = command->op == TX_OP_ATTENTION_GRAD;
    const tx_operand *qkv = &command->in[grad ? TX_IN(attention_grad, qkv) : TX_IN(attention, qkv)];
    const int64_t size = tx_shape_last(&qkv->shape) / (attrs->attention.heads + 2 * attrs->attention.kv_heads),
                  length = qkv->shape.dim[1];
    if (grad)
        return tx_cpu_attention_grad_scratch(size) +
               tx_cpu_attention_grad_copies(length, size, attrs->attention.heads / attrs->attention.kv_heads);
    return tx_cpu_attention_scratch(size);
}

int64_t tx_cpu_scratch_norm(const tx_command *command) /* rows of x, and of dy in the gradient, as fp32 */
{
    const int64_t rows = (command->in[0].dtype != TX_F32) + (command->in[1].dtype != TX_F32);
    return rows * tx_shape_last(&command->in[0].shape) * (int64_t)sizeof(float);
}

int64_t tx_cpu_scratch_rotary(const tx_command *command)
{
    return command->attrs.attention.head_size * (int64_t)sizeof(float);
}

static int64_t (*const scratch_of[TX_OP_COUNT])(const tx_command *) = {
#define TX_SCRATCH(NAME, function) [TX_OP_##NAME] = tx_cpu_scratch_##function,
#include "backends/cpu/prepared.def"
};

static const tx_cpu_product *const products[TX_OP_COUNT] = {
#define TX_PRODUCT(NAME, product) [TX_OP_##NAME] = &tx_cpu_product_##product,
#include "backends/cpu/prepared.def"
};

tx_status tx_cpu_prepare(tx_context *context, const tx_program *program, tx_executable **executable,
                         int64_t *scratch_bytes)
{
    const size_t length = (size_t)program->length;
    tx_executable *made = calloc(1, sizeof *made + length * sizeof made->call[0]);
    if (!made)
        return tx_fail(TX_MEMORY, "cpu: no memory for a program of %d commands", program->length);
    made->context = context;
    made->program = *program;
    int64_t largest = 0;
    for (int32_t i = 0; i < program->length; i++) {
        const tx_command *command = &program->commands[i];
        tx_cpu_call *call = &made->call[i];
        if (command->op >= TX_OP_KERNELS) {
            tx_cpu_destroy(made);
            return tx_fail(TX_INVALID, "cpu: command %d (%s) has no kernel", i, tx_op_info_of(command->op)->name);
        }
        call->command = command;
        call->threads = context->threads;
        call->scratch_bytes = scratch_of[command->op] ? scratch_of[command->op](command) : 0;
        call->product = products[command->op];
        int64_t bytes = context->threads * call->scratch_bytes;
        const tx_status status =
            call->product ? call->product->create(context, command, &call->prepared, &bytes) : TX_OK;
        if (status) {
            tx_cpu_destroy(made);
            return tx_fail_in(status, "cpu: command %d (%s)", i, tx_op_info_of(command->op)->name);
        }
        largest = bytes > largest ? bytes : largest;
    }
    *executable = made;
    *scratch_bytes = largest;
    return TX_OK;
}

void tx_cpu_destroy(tx_executable *executable)
{
    if (!executable)
        return;
    for (int32_t i = 0; i < executable->program.length; i++)
        if (executable->call[i].prepared)
            executable->call[i].product->destroy(executable->call[i].prepared);
    free(executable);
}

/* ---- Bind ------------------------------------------------------------------------------------------------ */

/* Returns the address of an operand, or NULL if it is absent. */
static tx_status resolve(const tx_bindings *bindings, const tx_operand *operand, void **address)
{
    *address = NULL;
    if (!tx_present(operand))
        return TX_OK;
    const tx_extent *space = &bindings->arena[operand->arena];
    if (operand->chunk < 0 || operand->chunk >= space->chunks)
        return tx_fail(TX_INVALID, "arena %d has %d chunks, but an operand is in chunk %d", (int)operand->arena,
                       space->chunks, operand->chunk);
    tx_buffer *buffer = space->chunk[operand->chunk];
    const int64_t bytes = tx_operand_bytes(operand);
    if (operand->offset < 0 || operand->offset > buffer->bytes - bytes)
        return tx_fail(TX_INVALID,
                       "%" PRId64 " bytes at offset %" PRId64 " are outside a chunk of %" PRId64 " (arena %d)", bytes,
                       operand->offset, buffer->bytes, (int)operand->arena);
    *address = buffer->data + operand->offset;
    return TX_OK;
}

static tx_status bind_call(tx_cpu_call *call, const tx_bindings *bindings)
{
    void *address;
    for (int i = 0; i < TX_MAX_IN; i++) {
        TX_TRY(resolve(bindings, &call->command->in[i], &address));
        call->in[i] = address;
    }
    for (int i = 0; i < TX_MAX_OUT; i++)
        TX_TRY(resolve(bindings, &call->command->out[i], &call->out[i]));
    const tx_extent *results = &bindings->arena[TX_ARENA_RESULT], *scratch = &bindings->arena[TX_ARENA_SCRATCH];
    call->results = results->chunks > 0 ? (float *)(void *)results->chunk[0]->data : NULL;
    call->scratch = scratch->chunks > 0 ? scratch->chunk[0]->data : NULL;
    return TX_OK;
}

static bool needs_results(tx_op op)
{
    switch (op) {
    case TX_OP_CLIP_NORM:
#define TX_OPTIMIZER(NAME, ...) case TX_OP_##NAME:
#include "optimizers.def"
        return true;
    default:
        return false;
    }
}

tx_status tx_cpu_bind(tx_executable *executable, const tx_bindings *bindings)
{
    executable->bound = false;
    for (int32_t i = 0; i < executable->program.length; i++) {
        tx_cpu_call *call = &executable->call[i];
        const tx_op op = call->command->op;
        tx_status status = bind_call(call, bindings);
        if (status)
            return tx_fail_in(status, "cpu: command %d (%s)", i, tx_op_info_of(op)->name);
        if (needs_results(op) && !call->results)
            return tx_fail(TX_INVALID, "cpu: command %d (%s) needs arena RESULT", i, tx_op_info_of(op)->name);
        if (call->scratch_bytes > 0 && !call->scratch)
            return tx_fail(TX_INVALID, "cpu: command %d (%s) needs arena SCRATCH", i, tx_op_info_of(op)->name);
    }
    executable->bound = true;
    return TX_OK;
}

/* ---- Run --------------------------------------------------------------------------------------------------- */

/* Runs a command with signals blocked. Some oneDNN kernels point the stack pointer into heap memory while they run,
 * and the frame of a signal handler would overwrite the data below. Blocking each command separately delays a
 * signal by one command at most. All commands are blocked, because any of them may start the threads that products
 * use later. */
static tx_status run_command(const tx_context *context, tx_cpu_call *call)
{
    sigset_t before;
    tx_signals_hold(&before);
    const tx_status status = call->product ? call->product->run(call) : TX_OK;
    if (!status)
        context->kernels->run[call->command->op](call);
    tx_signals_take(&before);
    return status;
}

tx_status tx_cpu_run(tx_executable *executable, int32_t first, int32_t count, const tx_controls *controls,
                     double *seconds)
{
    if (!executable->bound || !controls)
        return tx_fail(TX_INVALID, "cpu: bind the program and pass controls before a run");
    if (first < 0 || count < 0 || first > executable->program.length - count)
        return tx_fail(TX_INVALID, "cpu: commands %d..%d are outside a program of %d", first, first + count - 1,
                       executable->program.length);
    const tx_context *context = executable->context;
    for (int32_t i = first; i < first + count; i++) {
        tx_cpu_call *call = &executable->call[i];
        const double start = seconds ? tx_now() : 0.0;
        call->controls = controls;
        tx_status status = run_command(context, call);
        if (status)
            return tx_fail_in(status, "cpu: command %d", i);
        if (seconds)
            seconds[i] += tx_now() - start;
    }
    executable->context->traffic.launches += count;
    return TX_OK;
}

tx_command_info tx_cpu_command_info(const tx_executable *executable, int32_t index)
{
    const tx_cpu_call *call = &executable->call[index];
    return (tx_command_info){
        .variant = call->product ? call->product->variant(call->prepared) : executable->context->kernels->name,
        .launches = 1,
    };
}
