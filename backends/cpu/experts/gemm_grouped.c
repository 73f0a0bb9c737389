/* SPDX-License-Identifier: Apache-2.0
 *
 * Grouped matrix products, ops GROUPED_MATMUL and GROUPED_MATMUL_GRAD. The rows of a group are known only at run
 * time. Products are prepared for a few row counts such that every count is a sum of them, so nothing is padded.
 */
#include "backends/cpu/gemm_parts.h"
#include "backends/cpu/prepared.h"

#include <stdlib.h>
#include <string.h>

/* The prepared row counts: all up to FEW, which TX's own loops compute, then powers of two. */
#define FEW TX_GEMM_THIN
#define DOUBLINGS 7
#define PIECES (FEW + DOUBLINGS)

typedef struct grouped {
    const tx_command *command;
    int32_t pieces;
    int64_t rows[PIECES]; /* ascending */
    tx_cpu_gemm *piece[PIECES];
} grouped;

int64_t tx_cpu_scratch_route(const tx_command *command)
{
    return command->attrs.rows * (int64_t)sizeof(int32_t);
}

/* The product of `rows` rows of one group. */
static tx_cpu_gemm_spec spec_of(const tx_command *c, int64_t rows)
{
    const int64_t left = tx_shape_last(&c->in[0].shape), out = tx_shape_last(&c->out[0].shape);
    const bool grad = c->op == TX_OP_GROUPED_MATMUL_GRAD;
    tx_cpu_gemm_spec spec = {.type = c->in[0].dtype, .packed = TX_F32, .result = c->out[0].dtype};
    spec.shape = (tx_gemm){.batch = 1, .m = grad ? left : rows, .n = out, .k = grad ? rows : left};
    spec.shape.lda = left;
    spec.shape.ldb = !grad && c->attrs.trans_b ? left : out;
    spec.shape.ldc = out;
    spec.trans_a = grad;
    spec.trans_b = !grad && c->attrs.trans_b;
    spec.adds = grad;
    return spec;
}

static void destroy(void *product)
{
    grouped *g = product;
    for (int32_t i = 0; i < g->pieces; i++)
        tx_cpu_gemm_destroy(g->piece[i]);
    free(g);
}

static tx_status create(const tx_context *context, const tx_command *command, void **product, int64_t *scratch_bytes)
{
    const int64_t all = command->in[0].shape.dim[0];
    grouped *g = calloc(1, sizeof *g);
    if (!g)
        return tx_fail(TX_MEMORY, "grouped product: out of memory");
    g->command = command;
    *scratch_bytes = 0;
    for (int64_t n = 1; n <= all && g->pieces < PIECES; n = n < FEW ? n + 1 : 2 * n) {
        tx_cpu_gemm_spec spec = spec_of(command, n);
        int64_t bytes = 0;
        spec.threads = context->threads;
        spec.rows = context->kernels->gemm_rows;
        const tx_status status = tx_cpu_gemm_create(&spec, &g->piece[g->pieces], &bytes);
        if (status) {
            destroy(g);
            return status;
        }
        g->rows[g->pieces++] = n;
        *scratch_bytes = bytes > *scratch_bytes ? bytes : *scratch_bytes;
    }
    *product = g;
    return TX_OK;
}

static int64_t row_bytes(const tx_operand *o)
{
    return tx_shape_last(&o->shape) * (int64_t)tx_dtype_size(o->dtype);
}

/* Runs rows first..end-1 of one group. `beta` applies to the first piece. */
static tx_status run_group(const tx_cpu_call *call, int64_t group, int64_t first, int64_t end, float beta)
{
    const grouped *g = call->prepared;
    const tx_command *c = g->command;
    const bool grad = c->op == TX_OP_GROUPED_MATMUL_GRAD;
    const tx_operand *whole = grad ? &c->out[0] : &c->in[1]; /* the operand with one matrix for each group */
    const int64_t matrix = tx_operand_bytes(whole) / whole->shape.dim[0] * group;
    for (int32_t p = g->pieces - 1; first < end; first += g->rows[p]) {
        while (g->rows[p] > end - first)
            p--;
        const char *a = (const char *)call->in[0] + first * row_bytes(&c->in[0]);
        const char *b = (const char *)call->in[1] + (grad ? first * row_bytes(&c->in[1]) : matrix);
        char *y = (char *)call->out[0] + (grad ? matrix : first * row_bytes(&c->out[0]));
        TX_TRY(tx_cpu_gemm_run(g->piece[p], a, b, NULL, y, beta, call->scratch));
        beta = grad ? 1.0f : beta;
    }
    return TX_OK;
}

/* Offsets are clamped to the allowed range. */
static tx_status run(const tx_cpu_call *call)
{
    const tx_command *c = call->command;
    const float beta = tx_beta(c->attrs.accumulate, call->controls);
    char *out = call->out[0];
    const bool grad = c->op == TX_OP_GROUPED_MATMUL_GRAD;
    const int64_t rows = c->in[0].shape.dim[0], groups = c->in[2].shape.dim[0] - 1,
                  matrix = tx_operand_bytes(&c->out[0]) / groups;
    const int32_t *offsets = call->in[2];
    int64_t end = 0;
    for (int64_t e = 0; e < groups; e++) {
        const int64_t first = offsets[e] < end ? end : offsets[e] < rows ? offsets[e] : rows;
        end = offsets[e + 1] < first ? first : offsets[e + 1] < rows ? offsets[e + 1] : rows;
        if (grad && first == end && beta == 0.0f)
            memset(out + e * matrix, 0, (size_t)matrix);
        TX_TRY(run_group(call, e, first, end, beta));
    }
    if (!grad) /* rows of no group */
        memset(out + end * row_bytes(&c->out[0]), 0, (size_t)((rows - end) * row_bytes(&c->out[0])));
    return TX_OK;
}

/* Returns the variant of the largest piece. */
static const char *variant(const void *product)
{
    const grouped *g = product;
    return tx_cpu_gemm_variant(g->piece[g->pieces - 1]);
}

const tx_cpu_product tx_cpu_product_grouped = {create, run, variant, destroy};
