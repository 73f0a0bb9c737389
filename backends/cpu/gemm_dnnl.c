/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products by oneDNN (versions 2 and 3) through its C API. Primitives, memory objects and arguments are
 * created once. A run points the memory objects at the operands and executes. The caller provides scratch.
 *
 * A sum over a very long k is cut into pieces that are added in fp32. The reason: oneDNN reads a in place, and rows
 * that are too far apart cost it 15 % on the gradient of GPT-2's logits.
 */
#include "gemm_parts.h"

#include <dnnl.h>
#include <dnnl_debug.h>
#include <omp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DNNL_TRY(call)                       \
    do {                                     \
        const dnnl_status_t tried_ = (call); \
        if (tried_)                          \
            return tried_;                   \
    } while (0)

/* ---- Differences between the versions of the API ---------------------------------------------- */

typedef struct layout {
    dnnl_memory_desc_t desc;
} layout;

#if DNNL_VERSION_MAJOR >= 3
#define FP16_ISA ((unsigned)dnnl_cpu_isa_avx512_core_fp16)
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
                              const layout *bias, const layout *c, dnnl_primitive_attr_t attr, bool prefer_gemm)
{
    (void)prefer_gemm;
    return dnnl_matmul_primitive_desc_create(desc, engine, a->desc, b->desc, bias ? bias->desc : NULL, c->desc, attr);
}
#else
#define FP16_ISA 0u
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
    (void)l; /* the descriptor is plain data */
}

static dnnl_status_t add_to_result(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f);
}

static bool is_called(const_dnnl_primitive_desc_t desc, const char *name)
{
    const char *own = "";
    return dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, (void *)&own) == dnnl_success &&
           strcmp(own, name) == 0;
}

/* With `prefer_gemm` (transposed a and fp32 result, as for gradients of weights) selects oneDNN's own GEMM instead
 * of the default, which copies a slowly. This is 8 to 13 % faster on AVX-512. */
static dnnl_status_t describe(dnnl_primitive_desc_t *desc, dnnl_engine_t engine, const layout *a, const layout *b,
                              const layout *bias, const layout *c, dnnl_primitive_attr_t attr, bool prefer_gemm)
{
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_desc_iterator_t at = NULL;
    DNNL_TRY(dnnl_matmul_desc_init(&matmul, &a->desc, &b->desc, bias ? &bias->desc : NULL, &c->desc));
    DNNL_TRY(dnnl_primitive_desc_iterator_create(&at, &matmul, attr, engine, NULL));
    *desc = dnnl_primitive_desc_iterator_fetch(at);
    if (is_called(*desc, "brg:avx512_core") || is_called(*desc, "brg:avx512_core_bf16"))
        while (prefer_gemm && dnnl_primitive_desc_iterator_next(at) == dnnl_success) {
            dnnl_primitive_desc_t other = dnnl_primitive_desc_iterator_fetch(at);
            prefer_gemm = !is_called(other, "gemm:jit");
            dnnl_primitive_desc_destroy(prefer_gemm ? other : *desc);
            *desc = prefer_gemm ? *desc : other;
        }
    dnnl_primitive_desc_iterator_destroy(at);
    return *desc ? dnnl_success : dnnl_out_of_memory;
}
#endif

/* ---- Prepared products -------------------------------------------------------------------------- */

#define PIECE_DEPTH 8192 /* maximum terms of a piece of a long sum */
#define PIECE_UNIT 64

enum { ARG_A, ARG_B, ARG_C, ARG_SCRATCH, ARG_BIAS, ARGS }; /* bias is last because not every product has one */
static const int arg_names[ARGS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD, DNNL_ARG_BIAS};

/* A primitive with its memory objects. */
typedef struct form {
    dnnl_primitive_t primitive;
    int count;
    dnnl_exec_arg_t args[ARGS];
    int64_t scratch_bytes;
} form;

enum { STORE, ADD, ADD_REST, FORMS };

typedef struct dnnl_product {
    tx_cpu_gemm_spec spec;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    int64_t depth;    /* terms in a piece; k if there is one piece */
    float *no_bias;   /* zeros, for runs without the bias that was prepared */
    form form[FORMS]; /* ADD adds to the result; ADD_REST adds a shorter last piece */
} dnnl_product;

static tx_status failed(dnnl_status_t status)
{
    if (status == dnnl_unimplemented)
        return tx_fail(TX_UNSUPPORTED, "oneDNN does not support this product on this CPU");
    return tx_fail(status == dnnl_out_of_memory ? TX_MEMORY : TX_INTERNAL, "oneDNN: %s", dnnl_status2str(status));
}

static dnnl_data_type_t type_of(tx_dtype type)
{
    return type == TX_F32 ? dnnl_f32 : type == TX_BF16 ? dnnl_bf16 : dnnl_f16;
}

/* Layouts of the operands: batch x rows x columns, without the batch dimension if the batch is 1. */
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

/* Creates the layouts of a piece of the product with `depth` terms. */
static dnnl_status_t layouts_create(layouts *l, const tx_cpu_gemm_spec *spec, int64_t depth)
{
    const tx_gemm *s = &spec->shape;
    bool ta = spec->trans_a, tb = spec->trans_b;
    DNNL_TRY(matrix(&l->a, s, s->m, depth, ta ? 1 : s->lda, ta ? s->lda : 1, s->stride_a, spec->type));
    DNNL_TRY(matrix(&l->b, s, depth, s->n, tb ? 1 : s->ldb, tb ? s->ldb : 1, s->stride_b, spec->type));
    DNNL_TRY(matrix(&l->c, s, s->m, s->n, s->ldc, 1, s->stride_c, spec->result));
    return spec->bias ? matrix(&l->bias, s, 1, s->n, s->n, 1, 0, TX_F32) : dnnl_success;
}

static void layouts_free(layouts *l)
{
    layout_free(&l->a);
    layout_free(&l->b);
    layout_free(&l->c);
    layout_free(&l->bias);
}

/* The caller destroys *attr and *ops, also after a failure. */
static dnnl_status_t attributes(dnnl_primitive_attr_t *attr, dnnl_post_ops_t *ops, bool add)
{
    DNNL_TRY(dnnl_primitive_attr_create(attr));
    DNNL_TRY(dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user));
    if (!add)
        return dnnl_success;
    DNNL_TRY(dnnl_post_ops_create(ops));
    DNNL_TRY(add_to_result(*ops));
    return dnnl_primitive_attr_set_post_ops(*attr, *ops);
}

static dnnl_status_t form_arg(form *f, const dnnl_product *g, int arg, layout_ref l)
{
    dnnl_exec_arg_t *at = &f->args[f->count++];
    at->arg = arg;
    return dnnl_memory_create(&at->memory, l, g->engine, DNNL_MEMORY_NONE);
}

/* Creates the memory objects of a primitive. *name is oneDNN's name of it, which lives as long as the primitive. */
static dnnl_status_t form_fill(const dnnl_product *g, form *f, const layouts *l, const char **name)
{
    const_dnnl_primitive_desc_t desc = NULL;
    DNNL_TRY(dnnl_primitive_get_primitive_desc(f->primitive, &desc));
    DNNL_TRY(dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, (void *)name));
    if (strncmp(*name, "ref", 3) == 0)
        return dnnl_unimplemented; /* the reference implementation is too slow */
    layout_ref scratch = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    f->scratch_bytes = (int64_t)dnnl_memory_desc_get_size(scratch);
    layout_ref of[ARGS] = {layout_at(&l->a), layout_at(&l->b), layout_at(&l->c), scratch, layout_at(&l->bias)};
    for (int i = 0; i < (g->spec.bias ? ARGS : ARGS - 1); i++)
        DNNL_TRY(form_arg(f, g, arg_names[i], of[i]));
    return dnnl_success;
}

static dnnl_status_t form_create(const dnnl_product *g, form *f, const layouts *l, bool add, const char **name)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t status = attributes(&attr, &ops, add);
    if (!status)
        status = describe(&desc, g->engine, &l->a, &l->b, g->spec.bias ? &l->bias : NULL, &l->c, attr,
                          g->spec.trans_a && g->spec.result == TX_F32 && g->spec.shape.batch == 1);
    if (!status)
        status = dnnl_primitive_create(&f->primitive, desc);
    if (desc)
        dnnl_primitive_desc_destroy(desc);
    if (ops)
        dnnl_post_ops_destroy(ops);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return status ? status : form_fill(g, f, l, name);
}

static void form_free(form *f)
{
    for (int i = 0; i < f->count; i++)
        if (f->args[i].memory)
            dnnl_memory_destroy(f->args[i].memory);
    if (f->primitive)
        dnnl_primitive_destroy(f->primitive);
}

static dnnl_status_t form_run(const dnnl_product *g, const form *f, const void *const data[ARGS])
{
    for (int i = 0; i < f->count; i++)
        DNNL_TRY(dnnl_memory_set_data_handle(f->args[i].memory, (void *)data[i]));
    return dnnl_primitive_execute(f->primitive, g->stream, f->count, f->args);
}

void tx_gemm_dnnl_destroy(void *product)
{
    dnnl_product *g = product;
    if (!g)
        return;
    for (int i = 0; i < FORMS; i++)
        form_free(&g->form[i]);
    if (g->stream)
        dnnl_stream_destroy(g->stream);
    if (g->engine)
        dnnl_engine_destroy(g->engine);
    free(g->no_bias);
    free(g);
}

/* Chooses the pieces and creates the primitives that runs need. */
static dnnl_status_t prepare(dnnl_product *g, layouts *piece, layouts *rest, char variant[TX_GEMM_VARIANT])
{
    const tx_cpu_gemm_spec *spec = &g->spec;
    const tx_gemm *s = &spec->shape;
    int64_t pieces = 1;
    if (s->k > TX_GEMM_LONG && s->batch == 1 && !spec->bias && spec->result == TX_F32)
        pieces = tx_ceil_div(s->k, PIECE_DEPTH);
    g->depth = tx_ceil_div(s->k, pieces);
    if (pieces > 1)
        g->depth = tx_round_up(g->depth, PIECE_UNIT);
    const int64_t shorter = s->k % g->depth;
    const char *name[FORMS] = {"", NULL, NULL};
    DNNL_TRY(layouts_create(piece, spec, g->depth));
    DNNL_TRY(form_create(g, &g->form[STORE], piece, false, &name[STORE]));
    if (spec->adds || pieces > 1)
        DNNL_TRY(form_create(g, &g->form[ADD], piece, true, &name[ADD]));
    if (shorter) {
        DNNL_TRY(layouts_create(rest, spec, shorter));
        DNNL_TRY(form_create(g, &g->form[ADD_REST], rest, true, &name[ADD_REST]));
    }
    if (pieces > 1)
        snprintf(variant, TX_GEMM_VARIANT, "onednn %s, k in %d pieces", name[STORE], (int)pieces);
    else if (name[ADD] && strcmp(name[STORE], name[ADD]) != 0)
        snprintf(variant, TX_GEMM_VARIANT, "onednn %s, adding %s", name[STORE], name[ADD]);
    else
        snprintf(variant, TX_GEMM_VARIANT, "onednn %s", name[STORE]);
    return dnnl_success;
}

/* Sets the number of threads for oneDNN and returns the previous number. */
static int use_threads(int threads)
{
    int before = omp_get_max_threads();
    if (before != threads)
        omp_set_num_threads(threads);
    return before;
}

tx_status tx_gemm_dnnl_create(const tx_cpu_gemm_spec *spec, void **product, int64_t *scratch_bytes,
                              char variant[TX_GEMM_VARIANT])
{
    dnnl_product *g = calloc(1, sizeof *g);
    if (g && spec->bias)
        g->no_bias = calloc((size_t)spec->shape.n, sizeof *g->no_bias);
    if (!g || (spec->bias && !g->no_bias)) {
        free(g);
        return tx_fail(TX_MEMORY, "matrix product: out of memory");
    }
    g->spec = *spec;
    int before = use_threads(spec->threads);
    layouts piece = {0}, rest = {0};
    dnnl_status_t status = dnnl_engine_create(&g->engine, dnnl_cpu, 0);
    if (!status)
        status = dnnl_stream_create(&g->stream, g->engine, dnnl_stream_default_flags);
    if (!status)
        status = prepare(g, &piece, &rest, variant);
    layouts_free(&piece);
    layouts_free(&rest);
    use_threads(before);
    if (status) {
        tx_gemm_dnnl_destroy(g);
        return failed(status);
    }
    int64_t largest = 0;
    for (int i = 0; i < FORMS; i++)
        largest = g->form[i].scratch_bytes > largest ? g->form[i].scratch_bytes : largest;
    *scratch_bytes = largest;
    *product = g;
    return TX_OK;
}

tx_status tx_gemm_dnnl_run(void *product, const tx_gemm_call *call)
{
    const dnnl_product *g = product;
    const tx_gemm *s = &g->spec.shape;
    const int64_t size = (int64_t)tx_dtype_size(g->spec.type);
    const int64_t a_step = (g->spec.trans_a ? s->lda : 1) * size, b_step = (g->spec.trans_b ? 1 : s->ldb) * size;
    const void *bias = call->bias ? call->bias : g->no_bias;
    int before = use_threads(g->spec.threads);
    dnnl_status_t status = dnnl_success;
    for (int64_t p = 0; !status && p < s->k; p += g->depth) {
        int which = p + g->depth > s->k ? ADD_REST : p > 0 || call->add ? ADD : STORE;
        const void *const data[ARGS] = {(const char *)call->a + p * a_step, (const char *)call->b + p * b_step, call->c,
                                        call->scratch, bias};
        status = form_run(g, &g->form[which], data);
    }
    if (!status)
        status = dnnl_stream_wait(g->stream);
    use_threads(before);
    return status ? failed(status) : TX_OK;
}

/* Returns true if this CPU has the instruction sets `wanted`, which have a bit each. */
static bool has_isa(unsigned wanted)
{
    return wanted && ((unsigned)dnnl_get_effective_cpu_isa() & wanted) == wanted;
}

bool tx_gemm_dnnl_amx(void)
{
    return has_isa((unsigned)dnnl_cpu_isa_avx512_core_amx);
}

#ifdef __x86_64__
#include <cpuid.h>

/* Returns true if fp32 instructions multiply faster than those of AVX512_BF16. On Intel's CPUs with AVX512_FP16 the
 * latter take four times as long, since AMX replaces them. A virtual machine may hide AMX. */
static bool is_bf16_slow(void)
{
    static atomic_uint features; /* CPUID takes long in a virtual machine */
    unsigned a, b, c, d = features;
    if (!d && __get_cpuid_count(7, 0, &a, &b, &c, &d))
        features = d;
    return (d >> 23 & 1) && __builtin_cpu_is("intel") && !tx_gemm_dnnl_amx();
}
#else
#define is_bf16_slow() false
#endif

bool tx_cpu_gemm_native(tx_dtype type)
{
    return type == TX_F32 || (type == TX_F16 && has_isa(FP16_ISA)) ||
           (type == TX_BF16 && has_isa((unsigned)dnnl_cpu_isa_avx512_core_bf16) && !is_bf16_slow());
}

void tx_gemm_dnnl_library(char text[TX_CPU_GEMM_LIBRARY])
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, TX_CPU_GEMM_LIBRARY, "onednn %d.%d.%d isa %x%s", v->major, v->minor, v->patch,
             (unsigned)dnnl_get_effective_cpu_isa(), is_bf16_slow() ? ", bf16 in fp32" : "");
}
