/* SPDX-License-Identifier: Apache-2.0
 *
 * Grouped matrix products, ops GROUPED_MATMUL and GROUPED_MATMUL_GRAD. The rows of a group are known only at run
 * time. Products are prepared for a few row counts such that every count is a sum of them, so nothing is padded.
 * Packed weights of an expert are unpacked once for all of its rows. Few rows read them in place.
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
    tx_cpu_gemm *few[FEW];   /* 1 to FEW rows of packed weights, which no piece reads; or NULL */
    tx_cpu_gemm_spec packed; /* of these; type F32 of `packed` if weights are not packed */
    int64_t matrix_bytes;    /* scratch for an unpacked matrix */
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
    for (int32_t i = 0; i < FEW; i++)
        tx_cpu_gemm_destroy(g->few[i]);
    free(g);
}

static tx_status create_piece(const tx_context *context, tx_cpu_gemm_spec spec, tx_cpu_gemm **piece, int64_t *most)
{
    int64_t bytes = 0;
    spec.threads = context->threads;
    spec.rows = context->kernels->gemm_rows;
    TX_TRY(tx_cpu_gemm_create(&spec, piece, &bytes));
    *most = tx_max(*most, bytes);
    return TX_OK;
}

/* Prepares products of all numbers of rows that a group may have. `all` is the number of rows of all groups. */
static tx_status create_pieces(const tx_context *context, grouped *g, int64_t all, int64_t *scratch_bytes)
{
    const tx_operand *w = &g->command->in[1];
    for (int64_t n = 1; n <= all && g->pieces < PIECES; n = n < FEW ? n + 1 : 2 * n) {
        TX_TRY(create_piece(context, spec_of(g->command, n), &g->piece[g->pieces], scratch_bytes));
        g->rows[g->pieces++] = n;
    }
    if (!tx_dtype_packed(w->dtype))
        return TX_OK;
    const bool in_place = g->command->attrs.trans_b || tx_block_values(w->dtype) == 0;
    g->packed = spec_of(g->command, 1);
    g->packed.packed = w->dtype;
    g->packed.matrices = w->shape.dim[0];
    g->packed.threads = context->threads;
    g->packed.rows = context->kernels->gemm_rows;
    for (int64_t n = 1; n <= tx_min(all, FEW) && in_place; n++) {
        tx_cpu_gemm_spec spec = g->packed;
        spec.shape = spec_of(g->command, n).shape;
        TX_TRY(create_piece(context, spec, &g->few[n - 1], scratch_bytes));
    }
    if (all > FEW || !in_place) {
        const int64_t elements = tx_operand_count(w) / w->shape.dim[0];
        g->matrix_bytes = tx_gemm_lines(elements * (int64_t)tx_dtype_size(g->packed.type));
        *scratch_bytes += g->matrix_bytes;
    }
    return TX_OK;
}

static tx_status create(const tx_context *context, const tx_command *command, void **product, int64_t *scratch_bytes)
{
    grouped *g = calloc(1, sizeof *g);
    if (!g)
        return tx_fail(TX_MEMORY, "grouped product: out of memory");
    g->command = command;
    g->packed.packed = TX_F32;
    *scratch_bytes = 0;
    const tx_status status = create_pieces(context, g, command->in[0].shape.dim[0], scratch_bytes);
    return TX_RETURN(status, g, product, destroy);
}

static int64_t row_bytes(const tx_operand *o)
{
    return tx_shape_last(&o->shape) * (int64_t)tx_dtype_size(o->dtype);
}

/* Runs rows first..end-1 of one group, whose matrix is at `w`. `beta` applies to the first piece. */
static tx_status run_pieces(const tx_cpu_call *call, int64_t group, const char *w, int64_t first, int64_t end,
                            float beta, void *scratch)
{
    const grouped *g = call->prepared;
    const tx_command *c = g->command;
    const bool grad = c->op == TX_OP_GROUPED_MATMUL_GRAD;
    char *const sums =
        (char *)call->out[0] + (grad ? tx_operand_bytes(&c->out[0]) / c->out[0].shape.dim[0] * group : 0);
    for (int32_t p = g->pieces - 1; first < end; first += g->rows[p]) {
        while (g->rows[p] > end - first)
            p--;
        const char *a = (const char *)call->in[0] + first * row_bytes(&c->in[0]);
        const char *b = grad ? (const char *)call->in[1] + first * row_bytes(&c->in[1]) : w;
        char *y = grad ? sums : sums + first * row_bytes(&c->out[0]);
        TX_TRY(tx_cpu_gemm_run(g->piece[p], a, b, 0, NULL, y, beta, scratch));
        beta = grad ? 1.0f : beta;
    }
    return TX_OK;
}

/* Packed weights of the group are read in place by few rows, or unpacked in scratch. */
static tx_status run_group(const tx_cpu_call *call, int64_t group, int64_t first, int64_t end, float beta)
{
    const grouped *g = call->prepared;
    const tx_command *c = g->command;
    const char *w = call->in[1];
    const int64_t rows = end - first;
    char *scratch = call->scratch;
    if (g->packed.packed == TX_F32 || rows == 0) {
        w += c->op == TX_OP_GROUPED_MATMUL ? tx_operand_bytes(&c->in[1]) / c->in[1].shape.dim[0] * group : 0;
        return run_pieces(call, group, w, first, end, beta, scratch);
    }
    const tx_gemm_call of_group = {.b = w, .matrix = group};
    if (rows <= FEW && g->few[rows - 1])
        return tx_cpu_gemm_run(g->few[rows - 1], (const char *)call->in[0] + first * row_bytes(&c->in[0]), w, group,
                               NULL, (char *)call->out[0] + first * row_bytes(&c->out[0]), beta, scratch);
    g->packed.rows->unpack(&g->packed, &of_group, 0, g->packed.shape.n, g->packed.type, scratch);
    return run_pieces(call, group, scratch, first, end, beta, scratch + g->matrix_bytes);
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
