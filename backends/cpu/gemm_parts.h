/* SPDX-License-Identifier: Apache-2.0
 *
 * What gemm.c makes products of: oneDNN's, those of fp32 on matrix units, and loops over rows that are compiled once
 * for each instruction set. */
#ifndef TX_CPU_GEMM_PARTS_H
#define TX_CPU_GEMM_PARTS_H

#include "gemm.h"

/* The operands of one run; the rules of tx_cpu_gemm_run hold. */
typedef struct tx_gemm_call {
    const void *a, *b;
    const float *bias; /* NULL: none */
    void *c;
    bool add; /* to what c holds */
    void *scratch;
} tx_gemm_call;

/* A stored operand: rows of neighbours, `ld` numbers apart. */
typedef struct tx_gemm_matrix {
    void *data;
    tx_dtype type;
    int64_t rows, columns, ld;
} tx_gemm_matrix;

/* Bytes of scratch in whole cache lines: any, and those of `count` numbers as fp32. */
static inline int64_t tx_gemm_lines(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}
static inline int64_t tx_gemm_wide_bytes(int64_t count)
{
    return tx_gemm_lines(count * (int64_t)sizeof(float));
}

/* ---- gemm_rows.c ------------------------------------------------------------------------------ */

#define TX_GEMM_THIN 8 /* rows that are few */

struct tx_gemm_rows {
    const char *name; /* of the instruction set */
    /* A product of at most TX_GEMM_THIN rows: b is read once and memory is the bound. A sum depends on k alone. */
    void (*multiply)(const tx_cpu_gemm_spec *spec, const tx_gemm_call *call);
    /* to [rows, columns] = `from` as fp32. */
    void (*widen)(const tx_gemm_matrix *from, float *to, int32_t threads);
    /* panel = columns j .. j + width - 1 of op(b), which is packed: [width, k] where b is transposed, else [k, width],
     * of type `to`, rounded to spec->type. Of what is not transposed j and width are multiples of a block. */
    void (*unpack)(const tx_cpu_gemm_spec *spec, const void *b, int64_t j, int64_t width, tx_dtype to, void *panel);
    /* to = sums [rows, columns], with `add` plus what it holds, rounded once. Overwrites the sums. */
    void (*narrow)(float *sums, bool add, const tx_gemm_matrix *to, int32_t threads);
};

/* Bytes of scratch that `multiply` needs: rows of a that cannot be read where they lie. */
static inline int64_t tx_gemm_thin_scratch(const tx_cpu_gemm_spec *spec)
{
    return spec->type == TX_F32 && !spec->trans_a ? 0 : tx_gemm_wide_bytes(spec->shape.m * spec->shape.k);
}

/* ---- gemm_dnnl.c ------------------------------------------------------------------------------ */

typedef struct tx_gemm_dnnl tx_gemm_dnnl;
#define TX_GEMM_VARIANT 96 /* bytes of a variant's text */
#define TX_GEMM_LONG 16384 /* a sum over more, of type F32, goes in pieces */

/* Prepares a product as tx_cpu_gemm_create does, or declines it with TX_UNSUPPORTED. */
tx_status tx_gemm_dnnl_create(const tx_cpu_gemm_spec *spec, tx_gemm_dnnl **product, int64_t *scratch_bytes,
                              char variant[TX_GEMM_VARIANT]);
tx_status tx_gemm_dnnl_run(const tx_gemm_dnnl *product, const tx_gemm_call *call);
void tx_gemm_dnnl_destroy(tx_gemm_dnnl *product);
void tx_gemm_dnnl_library(char text[TX_CPU_GEMM_LIBRARY]); /* as tx_cpu_gemm_library, of oneDNN */
bool tx_gemm_dnnl_amx(void); /* whether it may use matrix units of bf16 (ONEDNN_MAX_CPU_ISA can forbid it) */

/* ---- Units for products of fp32, of an extension ----------------------------------------------- */

typedef struct tx_gemm_units {
    const char *name, *variant;
    bool (*takes)(const tx_cpu_gemm_spec *spec);      /* whether the units pay for this product */
    int64_t (*scratch)(const tx_cpu_gemm_spec *spec); /* bytes that a run needs */
    void (*run)(const tx_cpu_gemm_spec *spec, const tx_gemm_call *call);
} tx_gemm_units;

/* A row is a function: it returns NULL unless the processor has the units and the system lets this process use them. */
#define TX_GEMM_UNITS(here) const tx_gemm_units *here(void);
#include "backends/cpu/extensions.def"
#undef TX_GEMM_UNITS

/* ---- gemm_panels.c ---------------------------------------------------------------------------- */

typedef struct tx_gemm_panels tx_gemm_panels;

/* The same of a product that oneDNN takes in `type`, the operands' or F32. */
tx_status tx_gemm_panels_create(const tx_cpu_gemm_spec *spec, tx_dtype type, tx_gemm_panels **panels,
                                int64_t *scratch_bytes, char variant[TX_GEMM_VARIANT]);
tx_status tx_gemm_panels_run(tx_gemm_panels *panels, const tx_gemm_call *call);
void tx_gemm_panels_destroy(tx_gemm_panels *panels);

#endif
