/* SPDX-License-Identifier: Apache-2.0
 * Products by groups of rows, as sums of prepared products. */
#include "gemm_parts.h"

#include <stdlib.h>
#include <string.h>

/* Numbers of rows that are prepared: all up to FEW, which TX's own loops take, then doubling. */
#define FEW TX_GEMM_THIN
#define DOUBLINGS 7
#define PIECES (FEW + DOUBLINGS)

struct tx_cpu_grouped {
    const tx_command *command;
    int32_t pieces;
    int64_t rows[PIECES]; /* ascending */
    tx_cpu_gemm *piece[PIECES];
};

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

tx_status tx_cpu_grouped_create(const tx_command *command, int32_t threads, const tx_gemm_rows *rows,
                                tx_cpu_grouped **grouped, int64_t *scratch_bytes)
{
    const int64_t all = command->in[0].shape.dim[0];
    tx_cpu_grouped *g = calloc(1, sizeof *g);
    if (!g)
        return tx_fail(TX_MEMORY, "grouped product: out of memory");
    g->command = command;
    *scratch_bytes = 0;
    for (int64_t n = 1; n <= all && g->pieces < PIECES; n = n < FEW ? n + 1 : 2 * n) {
        tx_cpu_gemm_spec spec = spec_of(command, n);
        int64_t bytes = 0;
        spec.threads = threads;
        spec.rows = rows;
        const tx_status status = tx_cpu_gemm_create(&spec, &g->piece[g->pieces], &bytes);
        if (status) {
            tx_cpu_grouped_destroy(g);
            return status;
        }
        g->rows[g->pieces++] = n;
        *scratch_bytes = bytes > *scratch_bytes ? bytes : *scratch_bytes;
    }
    *grouped = g;
    return TX_OK;
}

static int64_t row_bytes(const tx_operand *o)
{
    return tx_shape_last(&o->shape) * (int64_t)tx_dtype_size(o->dtype);
}

/* Rows first..end-1, which are of one group; `beta` is that of the first piece. */
static tx_status run_group(tx_cpu_grouped *g, const void *const in[TX_MAX_IN], int64_t group, int64_t first,
                           int64_t end, char *out, float beta, void *scratch)
{
    const tx_command *c = g->command;
    const bool grad = c->op == TX_OP_GROUPED_MATMUL_GRAD;
    const tx_operand *whole = grad ? &c->out[0] : &c->in[1]; /* a matrix each */
    const int64_t matrix = tx_operand_bytes(whole) / whole->shape.dim[0] * group;
    for (int32_t p = g->pieces - 1; first < end; first += g->rows[p]) {
        while (g->rows[p] > end - first)
            p--;
        const char *a = (const char *)in[0] + first * row_bytes(&c->in[0]);
        const char *b = (const char *)in[1] + (grad ? first * row_bytes(&c->in[1]) : matrix);
        char *y = out + (grad ? matrix : first * row_bytes(&c->out[0]));
        TX_TRY(tx_cpu_gemm_run(g->piece[p], a, b, NULL, y, beta, scratch));
        beta = grad ? 1.0f : beta;
    }
    return TX_OK;
}

tx_status tx_cpu_grouped_run(tx_cpu_grouped *grouped, const void *const in[TX_MAX_IN], void *out, float beta,
                             void *scratch)
{
    const tx_command *c = grouped->command;
    const bool grad = c->op == TX_OP_GROUPED_MATMUL_GRAD;
    const int64_t rows = c->in[0].shape.dim[0], groups = c->in[2].shape.dim[0] - 1,
                  matrix = tx_operand_bytes(&c->out[0]) / groups;
    const int32_t *offsets = in[2];
    int64_t end = 0;
    for (int64_t e = 0; e < groups; e++) {
        const int64_t first = offsets[e] < end ? end : offsets[e] < rows ? offsets[e] : rows;
        end = offsets[e + 1] < first ? first : offsets[e + 1] < rows ? offsets[e + 1] : rows;
        if (grad && first == end && beta == 0.0f)
            memset((char *)out + e * matrix, 0, (size_t)matrix);
        TX_TRY(run_group(grouped, in, e, first, end, out, beta, scratch));
    }
    if (!grad) /* what no group has */
        memset((char *)out + end * row_bytes(&c->out[0]), 0, (size_t)((rows - end) * row_bytes(&c->out[0])));
    return TX_OK;
}

const char *tx_cpu_grouped_variant(const tx_cpu_grouped *grouped)
{
    return tx_cpu_gemm_variant(grouped->piece[grouped->pieces - 1]);
}

void tx_cpu_grouped_destroy(tx_cpu_grouped *grouped)
{
    if (!grouped)
        return;
    for (int32_t i = 0; i < grouped->pieces; i++)
        tx_cpu_gemm_destroy(grouped->piece[i]);
    free(grouped);
}
