/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands that share a launch. Those of a token do, because a launch costs as much as a product of few rows reads. A
 * product computes the norm before it, and the op after it that rotates or gates its result. Attention stores new rows
 * in its caches. All results are stored as by separate launches. Work-groups of a launch run in any order, so none may
 * write memory that another one reads.
 *
 * In training, a product or the gradient of attention sums its result over rows for the gradient of a bias, which would
 * read the result again.
 */
#include "backends/opencl/runtime/internal.h"

#include "api/graph/op.h"

#include <stdlib.h>
#include <string.h>

#define LOCAL_SHARE 2 / 3 /* of local memory for the rows of a norm */

bool tx_cl_overlap(const tx_operand *a, const tx_operand *b)
{
    return tx_present(a) && tx_present(b) && a->arena == b->arena && a->chunk == b->chunk &&
           a->offset < b->offset + tx_operand_bytes(b) && b->offset < a->offset + tx_operand_bytes(a);
}

static bool is_same(const tx_operand *a, const tx_operand *b)
{
    return tx_present(a) == tx_present(b) &&
           (!tx_present(a) || (a->dtype == b->dtype && a->arena == b->arena && a->chunk == b->chunk &&
                               a->offset == b->offset && tx_operand_count(a) == tx_operand_count(b)));
}

/* Returns true if an output of `writer` is in the memory of inputs `from`.. of `reader`. */
static bool disturbs(const tx_command *writer, const tx_command *reader, int from)
{
    bool found = false;
    for (int o = 0; o < TX_MAX_OUT; o++)
        for (int i = from; i < TX_MAX_IN; i++)
            found = found || tx_cl_overlap(&writer->out[o], &reader->in[i]);
    return found;
}

/* Whether gemm_few computes the product and stores only the result. */
static bool is_plain_few(const tx_command *c)
{
    const tx_gemm g = tx_gemm_of(&c->attrs, &c->in[0].shape, &c->in[1].shape);
    return g.m <= TX_CL_FEW_ROWS && g.batch == 1 && !c->attrs.trans_a && c->attrs.accumulate == TX_STORE;
}

/* Whether a product can compute the norm of its rows. All groups read the operands of the norm. */
static bool takes_norm(const tx_context *context, const tx_command *norm, const tx_command *product)
{
    const bool rms = norm->op == TX_OP_RMS_NORM;
    if ((!rms && norm->op != TX_OP_LAYER_NORM) || product->op != TX_OP_MATMUL || !is_plain_few(product))
        return false;
    const tx_operand *z = &norm->in[rms ? TX_IN(rms_norm, z) : TX_IN(layer_norm, z)];
    const int64_t bytes = 4 * (tx_operand_count(&norm->in[0]) + 16 * TX_CL_FEW_ROWS);
    return norm->in[0].dtype == TX_F32 && is_same(&norm->out[0], &product->in[0]) && !tx_present(z) &&
           !norm->attrs.attention.heads && tx_shape_last(&norm->in[0].shape) == tx_shape_last(&product->in[0].shape) &&
           bytes <= context->limits.local_bytes * LOCAL_SHARE && !disturbs(product, norm, 0) &&
           !disturbs(norm, norm, 0);
}

/* Whether a product can compute the op that reads its result. With `norm`, operand a is not read. A launch on
 * a CPU costs a microsecond, and angles and gates of several rows take longer in a product than in vectors. */
static bool takes_next(const tx_context *context, const tx_command *norm, const tx_command *product,
                       const tx_command *next)
{
    if (product->op != TX_OP_MATMUL || !is_plain_few(product) || !product->attrs.trans_b ||
        product->attrs.epilogue != TX_EPILOGUE_NONE || !is_same(&product->out[0], &next->in[0]) ||
        (context->limits.cpu && tx_shape_rows(&product->out[0].shape) > 1))
        return false;
    const bool rotary = next->op == TX_OP_ROTARY && !tx_present(&next->in[TX_IN(rotary, rates)]);
    const bool gates = next->op == TX_OP_SWIGLU && next->attrs.gate != TX_GATE_CLAMPED;
    /* A work-item that rotates a pair may store the result over the pair. */
    return (gates || rotary) && tx_shape_last(&product->out[0].shape) % 2 == 0 &&
           !disturbs(next, product, norm ? 1 : 0) &&
           (!tx_cl_overlap(&next->out[0], &product->out[0]) || (rotary && is_same(&next->out[0], &product->out[0]))) &&
           !(norm && disturbs(next, norm, 0));
}

#ifndef TX_CORE
/* Whether attention can write the new rows of its caches. It takes their keys and values from qkv. */
static bool takes_append(const tx_command *append, const tx_command *attention)
{
    bool takes = append->op == TX_OP_KV_APPEND && attention->op == TX_OP_ATTENTION_CACHED;
    for (int i = 0; i <= (int)TX_IN(kv_append, slots) && takes; i++)
        takes = is_same(&append->in[i], &attention->in[i]);
    return takes && append->in[1].dtype == append->in[0].dtype && append->in[0].shape.dim[1] <= TX_CL_FEW_ROWS;
}
#else
#define takes_append(append, attention) false
#endif

#define SUM_AHEAD 4 /* later commands among which the sum of a result is searched */

/* Whether an output of the command is in this memory, or, if `reads`, an input. */
static bool uses(const tx_command *c, const tx_operand *memory, bool reads)
{
    bool found = false;
    for (int o = 0; o < TX_MAX_OUT; o++)
        found = found || tx_cl_overlap(memory, &c->out[o]);
    for (int i = 0; i < TX_MAX_IN && reads; i++)
        found = found || tx_cl_overlap(memory, &c->in[i]);
    return found;
}

/* Whether some form of the command can sum the columns of its result. */
static bool may_sum(const tx_context *context, const tx_command *c)
{
    return !context->limits.cpu &&
           (c->op == TX_OP_ATTENTION_GRAD || (c->op == TX_OP_MATMUL && c->attrs.epilogue == TX_EPILOGUE_GELU_GRAD));
}

/* Returns the number of the command that sums the result of command `at` over rows, or 0. Both are executed together,
 * so the commands between them must neither use the sums nor write over the result. */
static int32_t sum_of(const tx_context *context, const tx_program *program, int32_t at)
{
    const tx_command *c = program->commands;
    if (!may_sum(context, &c[at]))
        return 0;
    for (int32_t i = at + 1; i < program->length && i <= at + SUM_AHEAD; i++) {
        const tx_command *sum = &c[i];
        if (sum->op != TX_OP_REDUCE || sum->attrs.axis != TX_AXIS_ROWS || sum->attrs.reduction != TX_REDUCE_SUM ||
            !is_same(&c[at].out[0], &sum->in[0]))
            continue;
        bool free = true;
        for (int32_t k = at; k < i && free; k++)
            free = !uses(&c[k], &sum->out[0], true) && (k == at || !uses(&c[k], &sum->in[0], false));
        return free ? i : 0;
    }
    return 0;
}

/* Joins command `at` of a token with those after it. Returns the number of the next command. */
static int32_t join_token(const tx_context *context, const tx_program *program, tx_cl_command *commands, int32_t at)
{
    const tx_command *c = program->commands;
    const bool norm = takes_norm(context, &c[at], &c[at + 1]);
    const int32_t main = at + (norm || takes_append(&c[at], &c[at + 1]));
    int32_t next = main + 1;
    if (main > at) {
        commands[at].joined = true;
        commands[main].before = &c[at];
    }
    if (next < program->length && takes_next(context, norm ? &c[at] : NULL, &c[main], &c[next])) {
        commands[next].joined = true;
        commands[main].after = &c[next++];
    }
    return next;
}

void tx_cl_join(const tx_context *context, const tx_program *program, tx_cl_command *commands)
{
    const char *setting = getenv("TX_FUSE");
    if (setting && strcmp(setting, "0") == 0)
        return;
    for (int32_t i = 0; i + 1 < program->length && program->forward;)
        i = join_token(context, program, commands, i);
    for (int32_t i = 0; i + 1 < program->length && !program->forward; i++) {
        const int32_t sum = sum_of(context, program, i);
        if (sum > 0) {
            commands[sum].joined = true;
            commands[i].after = &program->commands[sum];
        }
    }
}
