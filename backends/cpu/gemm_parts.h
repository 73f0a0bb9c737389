/* SPDX-License-Identifier: Apache-2.0
 *
 * The providers of matrix products among which gemm.c selects, and the loops over rows that are compiled once for each
 * instruction set.
 */
#ifndef TX_CPU_GEMM_PARTS_H
#define TX_CPU_GEMM_PARTS_H

#include "api/base/blocks.h"
#include "gemm.h"

#include <stdio.h>

/* The operands of one run, as in tx_cpu_gemm_run. */
typedef struct tx_gemm_call {
    const void *a, *b;
    int64_t matrix;    /* of a packed b */
    const float *bias; /* NULL if there is no bias */
    void *c;
    bool add; /* add to the values in c */
    void *scratch;
} tx_gemm_call;

/* A matrix in memory. Rows are contiguous and `ld` elements apart. */
typedef struct tx_gemm_matrix {
    void *data;
    tx_dtype type;
    int64_t rows, columns, ld;
} tx_gemm_matrix;

/* What a thread of a team has done. Its message belongs to that thread, so a copy is kept for the caller. */
typedef struct tx_gemm_outcome {
    tx_status status;
    char message[256];
} tx_gemm_outcome;

static inline void tx_gemm_keep(tx_gemm_outcome *o, tx_status status)
{
    o->status = status;
    if (status)
        snprintf(o->message, sizeof o->message, "%s", tx_error());
}
static inline tx_status tx_gemm_report(const tx_gemm_outcome *o)
{
    return o->status ? tx_fail(o->status, "%s", o->message) : TX_OK;
}

/* Sizes of scratch rounded up to whole cache lines: of `bytes` bytes, and of `count` fp32 numbers. */
static inline int64_t tx_gemm_lines(int64_t bytes)
{
    return tx_round_up(bytes, 64);
}
static inline int64_t tx_gemm_wide_bytes(int64_t count)
{
    return tx_gemm_lines(count * (int64_t)sizeof(float));
}

/* ---- gemm_rows.c ------------------------------------------------------------------------------ */

#define TX_GEMM_THIN 8 /* maximum of few rows without AVX-512 */
#define TX_GEMM_FEW 32 /* maximum of few rows of any instruction set, and of blocks */

struct tx_gemm_rows {
    const char *name; /* the instruction set */
    int64_t few;      /* maximum of few rows in fp32 with which it is faster than oneDNN */
    /* A product of few rows, or of any number if b has blocks and `any_rows` is true. Few rows read b once, so memory
     * bandwidth is the limit. The order of a sum depends only on k, and on whether there are few rows. */
    void (*multiply)(const tx_cpu_gemm_spec *spec, const tx_gemm_call *call);
    bool (*any_rows)(void);
    /* Converts `from` to fp32 [rows, columns]. */
    void (*widen)(const tx_gemm_matrix *from, float *to, int32_t threads);
    /* Unpacks columns j .. j + width - 1 of the call's packed op(b) into panel, as type `to`, rounded to spec->type.
     * The panel is [width, k] if b is transposed, else [k, width]. If b is not transposed, j and width are multiples of
     * a block. */
    void (*unpack)(const tx_cpu_gemm_spec *spec, const tx_gemm_call *call, int64_t j, int64_t width, tx_dtype to,
                   void *panel);
    /* Rounds sums [rows, columns] to `to`, once; with `add` the values in `to` are added first. Overwrites the
     * sums. */
    void (*narrow)(float *sums, bool add, const tx_gemm_matrix *to, int32_t threads);
};

/* Bytes of scratch that `multiply` needs for rows of a that it cannot read in place. */
static inline int64_t tx_gemm_thin_wide(const tx_cpu_gemm_spec *spec)
{
    return spec->type == TX_F32 && !spec->trans_a ? 0 : tx_gemm_wide_bytes(spec->shape.m * spec->shape.k);
}

/* Bytes of a row in 8 bits (blocks.h). */
static inline int64_t tx_gemm_row8_bytes(int64_t k)
{
    return tx_gemm_lines(k) + tx_gemm_lines(k / 8 + k / 8);
}

static inline bool tx_gemm_blocks(const tx_cpu_gemm_spec *spec)
{
    return tx_block_values(spec->packed) > 0;
}

/* True if a product has few rows. For types that oneDNN does not widen, oneDNN is faster from TX_GEMM_THIN rows on. For
 * blocks panels8.h is faster, but a row gets other bits than in a product of one row. The decode plans of a server have
 * equal bits, so with TX_GEMM_THIN a step of many slots would read the weights several times. */
static inline bool tx_gemm_few(const tx_cpu_gemm_spec *spec)
{
    const bool widened = spec->type == TX_F32 || !tx_cpu_gemm_native(spec->type);
    return spec->shape.m <= (tx_gemm_blocks(spec) ? TX_GEMM_FEW : widened ? spec->rows->few : TX_GEMM_THIN);
}

/* Bytes of scratch that `multiply` needs. */
static inline int64_t tx_gemm_thin_scratch(const tx_cpu_gemm_spec *spec)
{
    return tx_gemm_thin_wide(spec) + (tx_gemm_blocks(spec) ? spec->shape.m * tx_gemm_row8_bytes(spec->shape.k) : 0);
}

/* ---- Providers --------------------------------------------------------------------------------- */

#define TX_GEMM_VARIANT 96 /* bytes of a variant's text */

/* An implementation of products. The first of gemm.c's list that takes a product computes it. */
typedef struct tx_gemm_provider {
    bool (*takes)(const tx_cpu_gemm_spec *spec);
    /* Prepares a product like tx_cpu_gemm_create, and writes its name. `spec` outlives it. TX_UNSUPPORTED passes the
     * product to the next provider that takes it. */
    tx_status (*create)(const tx_cpu_gemm_spec *spec, void **product, int64_t *scratch_bytes,
                        char variant[TX_GEMM_VARIANT]);
    tx_status (*run)(void *product, const tx_gemm_call *call);
    void (*destroy)(void *product); /* NULL if `product` is the specification */
    /* Optional: returns the name of the units of this processor that the provider uses, or NULL if it has none. */
    const char *(*units)(void);
} tx_gemm_provider;

extern const tx_gemm_provider tx_gemm_tiles, tx_gemm_panels;
#define TX_GEMM_PROVIDER(provider) extern const tx_gemm_provider provider;
#include "backends/cpu/extensions.def"
#undef TX_GEMM_PROVIDER

/* ---- gemm_dnnl.c ------------------------------------------------------------------------------ */

#define TX_GEMM_LONG 16384 /* a sum over more terms, of type F32, is cut into pieces */

/* True if an operand is unpacked in scratch, or a long sum is rounded to 16 bits only at its end. */
static inline bool tx_gemm_converts(const tx_cpu_gemm_spec *spec)
{
    return spec->packed != TX_F32 || (spec->result != TX_F32 && spec->shape.k > TX_GEMM_LONG);
}

/* A product that oneDNN computes at once, with functions as in a provider. TX_UNSUPPORTED if oneDNN has no fast
 * implementation. */
tx_status tx_gemm_dnnl_create(const tx_cpu_gemm_spec *spec, void **product, int64_t *scratch_bytes,
                              char variant[TX_GEMM_VARIANT]);
tx_status tx_gemm_dnnl_run(void *product, const tx_gemm_call *call);
void tx_gemm_dnnl_destroy(void *product);
void tx_gemm_dnnl_library(char text[TX_CPU_GEMM_LIBRARY]); /* oneDNN's part of tx_cpu_gemm_library */
bool tx_gemm_dnnl_amx(void); /* true if oneDNN may use bf16 matrix units (see ONEDNN_MAX_CPU_ISA) */

#endif
