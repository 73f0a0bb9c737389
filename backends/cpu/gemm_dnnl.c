/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products by oneDNN (versions 2 and 3), through its C API: primitives, memory objects and arguments are made
 * once; a run points the memory objects at the operands and executes. Scratch is the caller's. */
#include "gemm_provider.h"

#include <dnnl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What differs between the versions of the API --------------------------------------------- */

#if DNNL_VERSION_MAJOR >= 3
typedef struct layout {
    dnnl_memory_desc_t desc;
} layout;
typedef const_dnnl_memory_desc_t layout_ref;

static layout_ref layout_at(const layout *l)
{
    return l->desc;
}

static dnnl_status_t layout_create(layout *l, int rank, const dnnl_dims_t size, dnnl_data_type_t type,
                                   const dnnl_dims_t stride)
{
    return dnnl_memory_desc_create_with_strides(&l->desc, rank, size, type, stride);
}

static void layout_free(layout *l)
{
    if (l->desc)
        dnnl_memory_desc_destroy(l->desc);
}

static dnnl_status_t add_to_result(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
}

static dnnl_status_t describe(dnnl_primitive_desc_t *desc, dnnl_engine_t engine, const layout *a, const layout *b,
                              const layout *bias, const layout *c, dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(desc, engine, a->desc, b->desc, bias ? bias->desc : NULL, c->desc, attr);
}
#else
typedef struct layout {
    dnnl_memory_desc_t desc;
} layout;
typedef const dnnl_memory_desc_t *layout_ref;

static layout_ref layout_at(const layout *l)
{
    return &l->desc;
}

static dnnl_status_t layout_create(layout *l, int rank, const dnnl_dims_t size, dnnl_data_type_t type,
                                   const dnnl_dims_t stride)
{
    return dnnl_memory_desc_init_by_strides(&l->desc, rank, size, type, stride);
}

static void layout_free(layout *l)
{
    (void)l; /* plain data */
}

static dnnl_status_t add_to_result(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f);
}

static dnnl_status_t describe(dnnl_primitive_desc_t *desc, dnnl_engine_t engine, const layout *a, const layout *b,
                              const layout *bias, const layout *c, dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t matmul;
    dnnl_status_t status = dnnl_matmul_desc_init(&matmul, &a->desc, &b->desc, bias ? &bias->desc : NULL, &c->desc);
    return status ? status : dnnl_primitive_desc_create(desc, &matmul, attr, engine, NULL);
}
#endif

/* ---- Prepared products -------------------------------------------------------------------------- */

enum { ARG_A, ARG_B, ARG_C, ARG_SCRATCH, ARG_BIAS, ARGS }; /* bias last: not every product has one */

/* The product, with the result replaced or added to. */
typedef struct form {
    dnnl_primitive_t primitive;
    dnnl_memory_t scratch;
    int64_t scratch_bytes;
    dnnl_exec_arg_t args[ARGS];
} form;

typedef struct library_gemm {
    tx_cpu_gemm_spec spec;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_memory_t a, b, c, bias; /* bias: NULL where the product has none */
    float *no_bias;              /* zeros, for runs without the bias that was prepared */
    form form[2];                /* [1] adds; only where spec.adds */
} library_gemm;

static tx_status failed(const char *what, dnnl_status_t status)
{
    if (status == dnnl_unimplemented)
        return tx_fail(TX_UNSUPPORTED, "oneDNN has no %s of this type here", what);
    return tx_fail(status == dnnl_out_of_memory ? TX_MEMORY : TX_INTERNAL, "oneDNN %s: status %d", what, (int)status);
}

static dnnl_data_type_t type_of(tx_dtype type)
{
    return type == TX_F32 ? dnnl_f32 : type == TX_BF16 ? dnnl_bf16 : dnnl_f16;
}

/* Layouts of the operands: batch x rows x columns, without the batch where it is 1. */
typedef struct layouts {
    layout a, b, c, bias;
} layouts;

static dnnl_status_t matrix(layout *l, const tx_gemm *s, int64_t rows, int64_t columns, int64_t row_stride,
                            int64_t column_stride, int64_t batch_stride, tx_dtype type)
{
    int64_t batch = batch_stride ? s->batch : 1;
    dnnl_dims_t size = {batch, rows, columns};
    dnnl_dims_t stride = {batch > 1 ? batch_stride : rows * columns, row_stride, column_stride};
    int leave = s->batch == 1 ? 1 : 0;
    return layout_create(l, 3 - leave, size + leave, type_of(type), stride + leave);
}

static dnnl_status_t layouts_create(layouts *l, const tx_cpu_gemm_spec *spec)
{
    const tx_gemm *s = &spec->shape;
    bool ta = spec->trans_a, tb = spec->trans_b;
    dnnl_status_t status = matrix(&l->a, s, s->m, s->k, ta ? 1 : s->lda, ta ? s->lda : 1, s->stride_a, spec->type);
    if (!status)
        status = matrix(&l->b, s, s->k, s->n, tb ? 1 : s->ldb, tb ? s->ldb : 1, s->stride_b, spec->type);
    if (!status)
        status = matrix(&l->c, s, s->m, s->n, s->ldc, 1, s->stride_c, spec->result);
    if (!status && spec->bias)
        status = matrix(&l->bias, s, 1, s->n, s->n, 1, 0, TX_F32);
    return status;
}

static void layouts_free(layouts *l)
{
    layout_free(&l->a);
    layout_free(&l->b);
    layout_free(&l->c);
    layout_free(&l->bias);
}

static dnnl_status_t attributes(dnnl_primitive_attr_t *attr, bool add)
{
    dnnl_primitive_attr_t made = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&made);
    if (!status)
        status = dnnl_primitive_attr_set_scratchpad_mode(made, dnnl_scratchpad_mode_user);
    if (!status && add) {
        status = dnnl_post_ops_create(&ops);
        if (!status)
            status = add_to_result(ops);
        if (!status)
            status = dnnl_primitive_attr_set_post_ops(made, ops);
        if (ops)
            dnnl_post_ops_destroy(ops);
    }
    if (!status)
        *attr = made;
    else if (made)
        dnnl_primitive_attr_destroy(made);
    return status;
}

/* Makes one form of the product; `implementation` gets oneDNN's name of it. */
static dnnl_status_t form_create(library_gemm *g, form *f, const layouts *l, bool add, char *implementation,
                                 size_t size)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t desc = NULL;
    const char *name = "";
    dnnl_status_t status = attributes(&attr, add);
    if (!status)
        status = describe(&desc, g->engine, &l->a, &l->b, g->spec.bias ? &l->bias : NULL, &l->c, attr);
    if (!status)
        status = dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name);
    snprintf(implementation, size, "%s", name);
    if (!status && strncmp(name, "ref", 3) == 0)
        status = dnnl_unimplemented; /* the reference code is there to be compared with, not to be run */
    if (!status)
        status = dnnl_primitive_create(&f->primitive, desc);
    if (!status) {
        layout_ref scratch = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
        f->scratch_bytes = (int64_t)dnnl_memory_desc_get_size(scratch);
        status = dnnl_memory_create(&f->scratch, scratch, g->engine, DNNL_MEMORY_NONE);
    }
    f->args[ARG_A] = (dnnl_exec_arg_t){DNNL_ARG_SRC, g->a};
    f->args[ARG_B] = (dnnl_exec_arg_t){DNNL_ARG_WEIGHTS, g->b};
    f->args[ARG_C] = (dnnl_exec_arg_t){DNNL_ARG_DST, g->c};
    f->args[ARG_SCRATCH] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, f->scratch};
    f->args[ARG_BIAS] = (dnnl_exec_arg_t){DNNL_ARG_BIAS, g->bias};
    if (desc)
        dnnl_primitive_desc_destroy(desc);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return status;
}

static void form_free(form *f)
{
    if (f->primitive)
        dnnl_primitive_destroy(f->primitive);
    if (f->scratch)
        dnnl_memory_destroy(f->scratch);
}

static void onednn_destroy(void *state)
{
    library_gemm *g = state;
    form_free(&g->form[0]);
    form_free(&g->form[1]);
    dnnl_memory_t memory[] = {g->a, g->b, g->c, g->bias};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i])
            dnnl_memory_destroy(memory[i]);
    if (g->stream)
        dnnl_stream_destroy(g->stream);
    if (g->engine)
        dnnl_engine_destroy(g->engine);
    free(g->no_bias);
    free(g);
}

static dnnl_status_t prepare(library_gemm *g, const layouts *l, char variant[TX_GEMM_VARIANT])
{
    char name[2][TX_GEMM_VARIANT / 3];
    dnnl_status_t status = dnnl_engine_create(&g->engine, dnnl_cpu, 0);
    if (!status)
        status = dnnl_stream_create(&g->stream, g->engine, dnnl_stream_default_flags);
    if (!status)
        status = dnnl_memory_create(&g->a, layout_at(&l->a), g->engine, DNNL_MEMORY_NONE);
    if (!status)
        status = dnnl_memory_create(&g->b, layout_at(&l->b), g->engine, DNNL_MEMORY_NONE);
    if (!status)
        status = dnnl_memory_create(&g->c, layout_at(&l->c), g->engine, DNNL_MEMORY_NONE);
    if (!status && g->spec.bias)
        status = dnnl_memory_create(&g->bias, layout_at(&l->bias), g->engine, DNNL_MEMORY_NONE);
    for (int add = 0; !status && add <= (g->spec.adds ? 1 : 0); add++)
        status = form_create(g, &g->form[add], l, add != 0, name[add], sizeof name[add]);
    if (!status && g->spec.adds && strcmp(name[0], name[1]) != 0)
        snprintf(variant, TX_GEMM_VARIANT, "onednn %s, adding %s", name[0], name[1]);
    else if (!status)
        snprintf(variant, TX_GEMM_VARIANT, "onednn %s", name[0]);
    return status;
}

/* Lets oneDNN see `threads` threads; returns what this thread had before. */
static int use_threads(int threads)
{
    int before = omp_get_max_threads();
    if (before != threads)
        omp_set_num_threads(threads);
    return before;
}

static tx_status onednn_create(const tx_cpu_gemm_spec *spec, void **state, int64_t *scratch_bytes,
                               char variant[TX_GEMM_VARIANT])
{
    library_gemm *g = calloc(1, sizeof *g);
    if (g && spec->bias)
        g->no_bias = calloc((size_t)spec->shape.n, sizeof *g->no_bias);
    if (!g || (spec->bias && !g->no_bias)) {
        free(g);
        return tx_fail(TX_MEMORY, "matrix product: out of memory");
    }
    g->spec = *spec;
    int before = use_threads(spec->threads);
    layouts l = {0};
    dnnl_status_t status = layouts_create(&l, spec);
    if (!status)
        status = prepare(g, &l, variant);
    layouts_free(&l);
    use_threads(before);
    if (status) {
        onednn_destroy(g);
        return failed("matmul", status);
    }
    int64_t plain = g->form[0].scratch_bytes, adding = g->form[1].scratch_bytes;
    *scratch_bytes = plain > adding ? plain : adding;
    *state = g;
    return TX_OK;
}

static tx_status onednn_run(void *state, const tx_gemm_call *call)
{
    library_gemm *g = state;
    form *f = &g->form[call->add];
    const void *bias = call->bias ? call->bias : g->no_bias;
    struct {
        dnnl_memory_t memory;
        const void *data;
    } at[] = {{g->a, call->a}, {g->b, call->b}, {g->c, call->c}, {f->scratch, call->scratch}, {g->bias, bias}};
    int args = g->bias ? ARGS : ARGS - 1;
    dnnl_status_t status = dnnl_success;
    for (int i = 0; !status && i < args; i++)
        status = dnnl_memory_set_data_handle(at[i].memory, (void *)at[i].data);
    if (status)
        return failed("memory", status);
    int before = use_threads(g->spec.threads);
    status = dnnl_primitive_execute(f->primitive, g->stream, args, f->args);
    if (!status)
        status = dnnl_stream_wait(g->stream);
    use_threads(before);
    return status ? failed("matmul", status) : TX_OK;
}

const tx_gemm_provider tx_gemm_onednn = {
    .name = "onednn", .create = onednn_create, .run = onednn_run, .destroy = onednn_destroy};
