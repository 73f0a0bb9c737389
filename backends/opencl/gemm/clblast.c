/* SPDX-License-Identifier: Apache-2.0
 *
 * CLBlast as a provider of fp32 matrix products. Only its plain SGEMM is called. Its batched functions wait for the
 * device or, up to version 1.7, ignore offsets, and its half precision adds in half precision.
 */
#include "backends/opencl/gemm/gemm.h"

#include <clblast_c.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* A sub-buffer of an arena's chunk that begins at an operand. Any offset except 0 costs CLBlast a copy of the
 * operand. The sub-buffer is created at the first run and kept until the chunk changes. */
typedef struct window {
    tx_arena_id arena;
    int32_t chunk;
    size_t offset, bytes;
    bool aligned; /* a sub-buffer may begin there; otherwise the chunk is used with an offset (except for TEMPORARY) */
    cl_mem parent, memory;
} window;

enum { A, B, C, TEMPORARY, WINDOWS };

typedef struct sgemm {
    tx_gemm g;
    int64_t rows; /* maximum rows of y in one call */
    CLBlastTranspose trans_a, trans_b;
    tx_accumulate accumulate;
    window window[WINDOWS];
} sgemm;

static void destroy_sgemm(void *data)
{
    sgemm *s = data;
    for (int i = 0; i < WINDOWS; i++)
        if (s->window[i].memory)
            clReleaseMemObject(s->window[i].memory);
    free(s);
}

/* Returns the memory to pass and its offset in floats. */
static tx_status open_window(const tx_cl_run *run, window *w, cl_mem *memory, size_t *offset)
{
    cl_mem parent = run->memory[w->arena][w->chunk];
    cl_int code = CL_SUCCESS;
    if (w->aligned && w->parent != parent) {
        if (w->memory)
            clReleaseMemObject(w->memory);
        const cl_buffer_region region = {w->offset, w->bytes};
        w->memory = clCreateSubBuffer(parent, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
        w->parent = w->memory ? parent : NULL;
    }
    *memory = w->aligned ? w->memory : parent;
    *offset = w->aligned ? 0 : w->offset / sizeof(float);
    return tx_cl_check(code, "clCreateSubBuffer");
}

static CLBlastStatusCode call(const sgemm *s, const cl_mem memory[WINDOWS], const size_t at[3], size_t m, float beta,
                              cl_command_queue queue)
{
    const tx_gemm *g = &s->g;
    const size_t n = (size_t)g->n, k = (size_t)g->k;
    const size_t lda = (size_t)g->lda, ldb = (size_t)g->ldb, ldc = (size_t)g->ldc;
    /* Without a temporary buffer CLBlast allocates one for the call. */
    return CLBlastSgemmWithTempBuffer(CLBlastLayoutRowMajor, s->trans_a, s->trans_b, m, n, k, 1.0f, memory[A], at[A],
                                      lda, memory[B], at[B], ldb, beta, memory[C], at[C], ldc, &queue, NULL,
                                      memory[TEMPORARY]);
}

static tx_status run_sgemm(const tx_cl_run *run, void *data)
{
    sgemm *s = data;
    cl_mem memory[WINDOWS] = {NULL};
    size_t at[WINDOWS] = {0};
    for (int i = 0; i < (s->window[TEMPORARY].aligned ? WINDOWS : TEMPORARY); i++)
        TX_TRY(open_window(run, &s->window[i], &memory[i], &at[i]));
    const float beta = tx_beta(s->accumulate, run->controls);
    tx_status status = TX_OK;
    const int64_t shares = tx_cl_blocks(s->g.m, s->rows), along = s->trans_a == CLBlastTransposeYes ? 1 : s->g.lda;
    for (int64_t call_of = 0; call_of < s->g.batch * shares && !status; call_of++) {
        const int64_t i = call_of / shares, row = call_of % shares * s->rows;
        const size_t first[3] = {at[A] + (size_t)(i * s->g.stride_a + row * along), at[B] + (size_t)(i * s->g.stride_b),
                                 at[C] + (size_t)(i * s->g.stride_c + row * s->g.ldc)};
        const CLBlastStatusCode code =
            call(s, memory, first, (size_t)tx_cl_least(s->rows, s->g.m - row), beta, run->queue);
        if (code != CLBlastSuccess)
            status = tx_fail(code == CLBlastTempBufferAllocFailure ? TX_MEMORY : TX_DEVICE, "CLBlastSgemm: %s (%d)",
                             tx_cl_error_name((cl_int)code), (int)code);
    }
    return status;
}

static window window_of(const tx_context *context, const tx_operand *o)
{
    return (window){.arena = o->arena,
                    .chunk = o->chunk,
                    .offset = (size_t)o->offset,
                    .bytes = (size_t)tx_operand_bytes(o),
                    .aligned = o->offset % context->limits.alignment == 0};
}

/* Computes the scratch size of CLBlast's slowest path. A product with offsets may take that path. */
static tx_status temporary_bytes(const tx_context *context, const sgemm *s, size_t *max_bytes)
{
    const tx_gemm *g = &s->g;
    *max_bytes = 0;
    for (size_t offset = 0; offset < 2; offset++) {
        cl_command_queue queue = context->compute;
        size_t bytes = 0;
        CLBlastStatusCode code = CLBlastSGemmTempBufferSize(CLBlastLayoutRowMajor, s->trans_a, s->trans_b, (size_t)g->m,
                                                            (size_t)g->n, (size_t)g->k, offset, (size_t)g->lda, offset,
                                                            (size_t)g->ldb, offset, (size_t)g->ldc, &queue, &bytes);
        if (code != CLBlastSuccess)
            return tx_fail(TX_DEVICE, "CLBlastSGemmTempBufferSize: %d", (int)code);
        *max_bytes = bytes > *max_bytes ? bytes : *max_bytes;
        if (s->window[A].aligned && s->window[B].aligned && s->window[C].aligned && g->batch == 1 && s->rows == g->m)
            break;
    }
    return TX_OK;
}

/* CLBlast 1.5.3 builds its database of parameters at its first call, without a lock. Every product calls this
 * function before it runs, so the first call is made here, under a lock. */
static void reserve_temporary(tx_cl_builder *b, sgemm *s)
{
    static pthread_mutex_t first_call = PTHREAD_MUTEX_INITIALIZER;
    size_t bytes = 0;
    pthread_mutex_lock(&first_call);
    tx_status status = temporary_bytes(b->context, s, &bytes);
    pthread_mutex_unlock(&first_call);
    if (status)
        b->status = status;
    if (status || bytes == 0)
        return;
    const tx_operand place = tx_cl_scratch(b, TX_U8, TX_SHAPE((int64_t)bytes));
    s->window[TEMPORARY] = window_of(b->context, &place);
}

/* CLBlast is always available and comes last unless it measures better. It adapts its work-groups to the device's
 * own limits, and the limits that it uses cannot be set. */
static double clblast_suits(const tx_cl_builder *b, const tx_cl_provider *self, const tx_cl_product *p, char *why)
{
    if (p->from != TX_F32 || p->to != TX_F32)
        return 0.0;
    if (b->limits->libraries)
        return 1e-3;
    snprintf(why, TX_CL_WHY, "%s does not support simulated limits", self->name);
    return 0.0;
}

static void clblast_emit(tx_cl_builder *b, const tx_cl_provider *self, const tx_cl_product *p)
{
    (void)self;
    const double work = 2.0 * (double)(p->g.m * p->g.n) * (double)p->g.k;
    b->context->clblast = true;
    sgemm *s = calloc(1, sizeof *s);
    if (!s) {
        b->status = tx_fail(TX_MEMORY, "out of host memory");
        return;
    }
    *s = (sgemm){
        .g = p->g,
        .rows = tx_cl_parts_per_launch(b, p->g.m, work),
        .trans_a = p->trans_a ? CLBlastTransposeYes : CLBlastTransposeNo,
        .trans_b = p->trans_b ? CLBlastTransposeYes : CLBlastTransposeNo,
        .accumulate = p->accumulate,
        .window = {
            [A] = window_of(b->context, p->a), [B] = window_of(b->context, p->b), [C] = window_of(b->context, p->y)}};
    reserve_temporary(b, s);
    tx_cl_call(b, run_sgemm, s, destroy_sgemm, (int32_t)(p->g.batch * tx_cl_blocks(p->g.m, s->rows)));
    if (!tx_present(p->bias))
        return;
    const size_t global[2] = {(size_t)p->g.n, (size_t)(p->g.m * p->g.batch)};
    tx_cl_launch(b, "gemm_bias", "", "gemm_bias", 2, global, NULL);
    TX_CL_OPERANDS(b, p->bias, p->y);
}

static const tx_cl_provider clblast[] = {{.name = "clblast", .suits = clblast_suits, .emit = clblast_emit}};
TX_CL_PROVIDERS(clblast, clblast);

void tx_cl_clblast_close(const tx_context *context)
{
    if (context->clblast)
        CLBlastClearCache();
}
