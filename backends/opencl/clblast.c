/* SPDX-License-Identifier: Apache-2.0
 * CLBlast as a provider of fp32 matrix products. Only its plain SGEMM is called: its batched forms wait for the device
 * or, in the versions up to 1.7, ignore offsets, and its half precision sums in half precision. */
#include "backends/opencl/gemm.h"

#include "backends/opencl/clblast_tune.h"

#include <clblast_c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "Object already in cache": two threads compiled the same kernel at once (CLBlast before 1.6.1). It is there then. */
#define IN_CACHE (-2039)

/* ---- Parameters: "NAME=VALUE NAME=VALUE .." of kernel Xgemm and of the routine that chooses a kernel ---------- */

#define PARAMETERS 32
#define PARAMETER_TEXT 1024
/* A product below this size cubed goes by CLBlast's other kernel, which needs no padding and is slower. */
#define ROUTINE_PARAMETER "XGEMM_MIN_INDIRECT_SIZE"
/* What the tuner is first run over: a fraction of its variants, and the size cubed of the product that it times. */
#define FIRST_LOOK 1.2e-4
#define TUNED_SIZE 512

static tx_status override(tx_context *context, const char *kernel, size_t count, const char **names,
                          const size_t *values)
{
    CLBlastStatusCode code =
        CLBlastOverrideParameters(context->device, kernel, CLBlastPrecisionSingle, count, names, values);
    return code == CLBlastSuccess ? TX_OK : tx_fail(TX_DEVICE, "CLBlastOverrideParameters: %d", (int)code);
}

static size_t value_of(size_t count, const char *const *names, const size_t *values, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return values[i];
    return 0;
}

tx_status tx_cl_clblast_use(tx_context *context, const char *text)
{
    const char *names[PARAMETERS], *routine = ROUTINE_PARAMETER;
    size_t values[PARAMETERS], count = 0, least = 0;
    char *copy = strdup(text), *kept = strdup(text), *rest;
    tx_status status = copy && kept ? TX_OK : tx_fail(TX_MEMORY, "out of host memory");
    for (char *word = copy ? strtok_r(copy, " ", &rest) : NULL; word && !status; word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '='), *end = NULL;
        const unsigned long value = equals ? strtoul(equals + 1, &end, 10) : 0;
        if (!equals || *end || count == PARAMETERS) {
            status = tx_fail(TX_FORMAT, "parameters of CLBlast should be NAME=NUMBER, not \"%s\"", word);
            break;
        }
        *equals = '\0';
        if (strcmp(word, ROUTINE_PARAMETER) == 0) { /* the last one counts */
            least = value;
            continue;
        }
        names[count] = word;
        values[count++] = value;
    }
    /* CLBlast before 1.6.3 writes outside its result there. */
    if (!status && value_of(count, names, values, "GEMMK") == 1 &&
        value_of(count, names, values, "MWG") != value_of(count, names, values, "NWG"))
        status = tx_fail(TX_UNSUPPORTED, "CLBlast with GEMMK=1 needs MWG and NWG alike");
    if (!status && count > 0)
        status = override(context, "Xgemm", count, names, values);
    if (!status && least > 0)
        status = override(context, "GemmRoutine", 1, &routine, &least);
    free(copy);
    if (status) {
        free(kept);
        return status;
    }
    free(context->clblast);
    context->clblast = kept;
    return TX_OK;
}

/* What the device's table says, at first use; what it says wrong is passed over. */
static void use_table(tx_context *context)
{
    if (context->clblast)
        return;
    const char *text = tx_cl_table_get(context, TX_CL_CLBLAST);
    if (!text || tx_cl_clblast_use(context, text) != TX_OK)
        context->clblast = strdup("");
}

/* The faster of two sets of parameters by a product of size cubed; `best` is of the first and becomes that of the
 * winner. */
static bool faster(tx_context *context, const char *now, const char *then, int64_t size, double *best)
{
    const tx_cl_trial trial = {.batch = 1, .m = size, .n = size, .k = size, .from = TX_F32, .to = TX_F32};
    double seconds;
    if (tx_cl_clblast_use(context, then) == TX_OK &&
        tx_cl_gemm_try(context, &tx_cl_gemm_clblast, &trial, &seconds) == TX_OK && seconds < *best) {
        *best = seconds;
        return true;
    }
    tx_cl_clblast_use(context, now);
    return false;
}

/* CLBlast's tuner over a fraction of its variants; *winner becomes what it found where that is faster than *winner, of
 * which `best` are the seconds. */
static int tune_fraction(tx_context *context, double fraction, char found[PARAMETER_TEXT], const char **winner,
                         double *best)
{
    CLBlastClearCache(); /* else the tuner stumbles over a kernel that is there already */
    const int code = tx_clblast_tune(context->device, context->compute, TUNED_SIZE, fraction, found, PARAMETER_TEXT);
    if (code == 0 && faster(context, *winner, found, TUNED_SIZE, best))
        *winner = found;
    return code;
}

/* The tuner cannot be told a time: a first look over a small fraction says how many variants there is time for. */
tx_status tx_cl_clblast_tune(tx_context *context, double seconds)
{
    const int64_t small = 256;
    char present[PARAMETER_TEXT], found[2][PARAMETER_TEXT], indirect[PARAMETER_TEXT + 64];
    const char *winner = present;
    double best = 1e30;
    int code = tx_clblast_present(context->device, present, sizeof present);
    if (code == 0) {
        faster(context, present, present, TUNED_SIZE, &best);
        const double start = tx_cl_now();
        code = tune_fraction(context, FIRST_LOOK, found[0], &winner, &best);
        const double looked = tx_cl_now() - start, fraction = FIRST_LOOK * (seconds - looked) / looked;
        if (fraction > FIRST_LOOK) /* a small fraction may have none that the device takes, which is a failure */
            code = tune_fraction(context, fraction < 1.0 ? fraction : 1.0, found[1], &winner, &best);
    }
    if (code != 0)
        return tx_fail(TX_DEVICE, "CLBlast's tuner gives up (%d)", code);
    best = 1e30;
    faster(context, winner, winner, small, &best);
    snprintf(indirect, sizeof indirect, "%s " ROUTINE_PARAMETER "=1", winner);
    if (faster(context, winner, indirect, small, &best))
        winner = indirect;
    tx_cl_table_put(context, TX_CL_CLBLAST, winner);
    return TX_OK;
}

/* A window of an arena's chunk that begins where an operand does: any offset other than 0 costs CLBlast a copy of the
 * operand. Made at the first run and kept as long as the chunk stays the same. */
typedef struct window {
    tx_arena_id arena;
    int32_t chunk;
    size_t offset, bytes;
    bool aligned; /* a sub-buffer may begin there; else the chunk itself is used, with the offset */
    cl_mem parent, memory;
} window;

enum { A, B, C, TEMPORARY, WINDOWS };

typedef struct sgemm {
    tx_gemm g;
    CLBlastTranspose trans_a, trans_b;
    tx_accumulate accumulate;
    bool has_temporary;
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

/* Gives the memory to pass and the offset in floats that goes with it. */
static tx_status open_window(const tx_cl_run *run, window *w, cl_mem *memory, size_t *offset)
{
    cl_mem parent = run->memory[w->arena][w->chunk];
    *memory = parent;
    *offset = w->offset / sizeof(float);
    if (!w->aligned)
        return TX_OK;
    if (w->parent != parent) {
        if (w->memory)
            clReleaseMemObject(w->memory);
        const cl_buffer_region region = {w->offset, w->bytes};
        cl_int code;
        w->parent = NULL;
        w->memory = clCreateSubBuffer(parent, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
        if (code != CL_SUCCESS) {
            w->memory = NULL;
            return tx_cl_check(code, "clCreateSubBuffer");
        }
        w->parent = parent;
    }
    *memory = w->memory;
    *offset = 0;
    return TX_OK;
}

static CLBlastStatusCode call(const sgemm *s, const cl_mem memory[WINDOWS], const size_t at[3], float beta,
                              cl_command_queue queue)
{
    const tx_gemm *g = &s->g;
    const size_t m = (size_t)g->m, n = (size_t)g->n, k = (size_t)g->k;
    const size_t lda = (size_t)g->lda, ldb = (size_t)g->ldb, ldc = (size_t)g->ldc;
    if (s->has_temporary)
        return CLBlastSgemmWithTempBuffer(CLBlastLayoutRowMajor, s->trans_a, s->trans_b, m, n, k, 1.0f, memory[A],
                                          at[A], lda, memory[B], at[B], ldb, beta, memory[C], at[C], ldc, &queue, NULL,
                                          memory[TEMPORARY]);
    return CLBlastSgemm(CLBlastLayoutRowMajor, s->trans_a, s->trans_b, m, n, k, 1.0f, memory[A], at[A], lda, memory[B],
                        at[B], ldb, beta, memory[C], at[C], ldc, &queue, NULL);
}

static tx_status run_sgemm(const tx_cl_run *run, void *data)
{
    sgemm *s = data;
    cl_mem memory[WINDOWS] = {NULL};
    size_t at[WINDOWS] = {0};
    for (int i = 0; i < (s->has_temporary ? WINDOWS : TEMPORARY); i++) {
        tx_status status = open_window(run, &s->window[i], &memory[i], &at[i]);
        if (status != TX_OK)
            return status;
    }
    const float beta = tx_beta(s->accumulate, run->controls);
    for (int64_t i = 0; i < s->g.batch; i++) {
        const size_t first[3] = {at[A] + (size_t)(i * s->g.stride_a), at[B] + (size_t)(i * s->g.stride_b),
                                 at[C] + (size_t)(i * s->g.stride_c)};
        CLBlastStatusCode code = call(s, memory, first, beta, run->queue);
        if ((int)code == IN_CACHE)
            code = call(s, memory, first, beta, run->queue);
        if (code != CLBlastSuccess)
            return tx_fail(code == CLBlastTempBufferAllocFailure ? TX_MEMORY : TX_DEVICE, "CLBlastSgemm: %s (%d)",
                           tx_cl_error_name((cl_int)code), (int)code);
    }
    return TX_OK;
}

static window window_of(const tx_context *context, const tx_operand *o)
{
    return (window){.arena = o->arena,
                    .chunk = o->chunk,
                    .offset = (size_t)o->offset,
                    .bytes = (size_t)tx_operand_bytes(o),
                    .aligned = o->offset % context->limits.alignment == 0};
}

/* Asks CLBlast for the scratch memory of its slowest path, which a product of any offset may take, and reserves it. */
static void reserve_temporary(tx_cl_builder *b, sgemm *s)
{
    const tx_gemm *g = &s->g;
    size_t bytes = 0, most = 0;
    for (size_t offset = 0; offset < 2; offset++) {
        CLBlastStatusCode code = CLBlastSGemmTempBufferSize(
            CLBlastLayoutRowMajor, s->trans_a, s->trans_b, (size_t)g->m, (size_t)g->n, (size_t)g->k, offset,
            (size_t)g->lda, offset, (size_t)g->ldb, offset, (size_t)g->ldc, &b->context->compute, &bytes);
        if (code != CLBlastSuccess) {
            b->status = tx_fail(TX_DEVICE, "CLBlastSGemmTempBufferSize: %d", (int)code);
            return;
        }
        most = bytes > most ? bytes : most;
        if (s->window[A].aligned && s->window[B].aligned && s->window[C].aligned && g->batch == 1)
            break;
    }
    if (most == 0)
        return;
    const tx_operand place = {.dtype = TX_U8,
                              .shape = TX_SHAPE((int64_t)most),
                              .arena = TX_ARENA_SCRATCH,
                              .offset = tx_cl_scratch(b, (int64_t)most)};
    s->window[TEMPORARY] = window_of(b->context, &place);
    s->has_temporary = s->window[TEMPORARY].aligned;
}

/* The base that is always there: last, unless it measures better. It fits its work-groups to the device's own limits
 * and cannot be told of others. */
static double clblast_suits(const tx_context *context, const tx_cl_provider *self, const tx_cl_product *p, char *why)
{
    if (p->from != TX_F32 || p->to != TX_F32)
        return 0.0;
    if (context->limits.libraries)
        return 1e-3;
    snprintf(why, TX_CL_WHY, "%s cannot be told of simulated limits", self->name);
    return 0.0;
}

static void clblast_emit(tx_cl_builder *b, const tx_cl_provider *self, const tx_cl_product *p)
{
    (void)self;
    use_table(b->context);
    sgemm *s = calloc(1, sizeof *s);
    if (!s) {
        b->status = tx_fail(TX_MEMORY, "out of host memory");
        return;
    }
    *s = (sgemm){
        .g = p->g,
        .trans_a = p->trans_a ? CLBlastTransposeYes : CLBlastTransposeNo,
        .trans_b = p->trans_b ? CLBlastTransposeYes : CLBlastTransposeNo,
        .accumulate = p->accumulate,
        .window = {
            [A] = window_of(b->context, p->a), [B] = window_of(b->context, p->b), [C] = window_of(b->context, p->y)}};
    reserve_temporary(b, s);
    tx_cl_call(b, run_sgemm, s, destroy_sgemm, (int32_t)p->g.batch);
    if (!tx_present(p->bias))
        return;
    const size_t global[2] = {(size_t)p->g.n, (size_t)(p->g.m * p->g.batch)};
    tx_cl_launch(b, "gemm_bias", "", "gemm_bias", 2, global, NULL);
    tx_cl_arg_operand(b, p->bias);
    tx_cl_arg_operand(b, p->y);
}

/* CLBlast keeps programs by the bare address of their context, which a later context may have again. */
static void clblast_close(void)
{
    CLBlastClearCache();
}

const tx_cl_provider tx_cl_gemm_clblast = {
    .name = "clblast", .suits = clblast_suits, .emit = clblast_emit, .close = clblast_close};
