/* SPDX-License-Identifier: Apache-2.0
 *
 * Providers of matrix products compute op MATMUL on an OpenCL device.
 *
 * A provider says how well a product suits it and emits it. The best suited one is selected, or the tuner's choice
 * (select.h).
 * TX_GEMM=NAME puts the providers first whose names begin so; the others stay for products that those decline. The
 * command's variant names the provider, and a rejected one with the reason. */
#ifndef TX_OPENCL_GEMM_H
#define TX_OPENCL_GEMM_H

#include "backends/opencl/runtime/select.h"

/* A command that multiplies matrices, worked out. */
typedef struct tx_cl_product {
    tx_op op;
    tx_gemm g;
    bool trans_a, trans_b;
    tx_dtype from, to; /* of a and b, and of y */
    tx_dtype packed;   /* of b, where that is in 4 bits; else F32 */
    tx_accumulate accumulate;
    tx_epilogue epilogue;
    bool exact;                                    /* of its GELU */
    const tx_operand *a, *b, *bias, *z, *y, *kept; /* bias, z and kept may be absent */
    /* Where groups begin, as gemm_grouped.cl has them: of rows, or with trans_a of terms, in the place of those
     * of g, which are all groups', of whom the batch counts; NULL: there are none. */
    const tx_operand *offsets;
} tx_cl_product;

typedef enum tx_cl_kind { TX_CL_ALL, TX_CL_CPUS, TX_CL_GPUS } tx_cl_kind;

typedef struct tx_cl_provider {
    const char *name;
    tx_cl_kind device; /* the kind that it is for */
    int64_t rows;      /* made for products of at most so many, which it then takes unmeasured; 0: of any number */
    int64_t piece;     /* bytes: rows of a and b are whole pieces of so many, each at a multiple of it; 0: any */
    /* What share of the best possible rate to expect, to put providers in an order where nothing is measured. 0:
     * declines; `why` (TX_CL_WHY bytes, empty before) says by name what it lacks where a limit of the device is the
     * reason. */
    double (*suits)(const tx_context *context, const struct tx_cl_provider *self, const tx_cl_product *p, char *why);
    /* Failures are kept in b->status. */
    void (*emit)(tx_cl_builder *b, const struct tx_cl_provider *self, const tx_cl_product *p);
    bool epilogues;                /* it has them */
    bool packed;                   /* it takes a b of 4 bits */
    bool grouped;                  /* it takes groups */
    bool full;                     /* for fp32 by units made for less; proves that its sums are as true as others' */
    const struct tx_cl_tile *tile; /* gemm_tile.h: the form of its work-groups; NULL: it has none */
} tx_cl_provider;

/* The providers of one file: array `provider`. */
typedef struct tx_cl_providers {
    const tx_cl_provider *provider;
    int count;
} tx_cl_providers;
#define TX_CL_PROVIDERS(name, array) \
    const tx_cl_providers tx_cl_gemm_##name = {array, (int)(sizeof(array) / sizeof(array)[0])}

extern const tx_cl_providers tx_cl_gemm_few;     /* gemm_few.cl: few rows */
extern const tx_cl_providers tx_cl_gemm_vector;  /* gemm_vector.cl: for CPUs */
extern const tx_cl_providers tx_cl_gemm_clblast; /* CLBlast's SGEMM, with its own parameters: fp32 only */
extern const tx_cl_providers tx_cl_gemm_tile;    /* gemm_tile.cl: for GPUs */
#define TX_PROVIDERS(name) extern const tx_cl_providers tx_cl_gemm_##name;
#include "backends/opencl/extensions.def"
#undef TX_PROVIDERS

/* Call it before the context is released: CLBlast caches its programs by the address of their context. */
void tx_cl_clblast_close(const tx_context *context);

/* ---- The choice (gemm_choose.c) ---------------------------------------------------------------------------- */

typedef struct tx_cl_gemm_choice {
    const tx_cl_provider *provider;
    bool fused;                    /* the provider computes the epilogue; else the op that it stands for follows */
    char rejected[TX_CL_REJECTED]; /* as in tx_cl_selection */
} tx_cl_gemm_choice;
tx_status tx_cl_gemm_choose(const tx_cl_builder *b, const tx_cl_product *p, tx_cl_gemm_choice *choice);
/* Emits a product of command `c` (gemm.c), with the chosen provider as the command's variant. */
tx_status tx_cl_gemm(tx_cl_builder *b, const tx_cl_product *p, const tx_command *c);

/* ---- The providers (gemm_providers.c) --------------------------------------------------------------------- */

/* All providers there are; number i, NULL behind the last. */
const tx_cl_provider *tx_cl_gemm_provider(int i);
/* Whether a provider is for this kind of device. */
bool tx_cl_gemm_supports(const tx_context *context, const tx_cl_provider *provider);
/* Whether there is one of this name for this kind of device. */
bool tx_cl_gemm_has_provider(const tx_context *context, const char *name);

/* Options of storage types and transposes, behind those in `form`. */
void tx_cl_gemm_options(char *text, size_t size, const char *form, const tx_cl_product *p);
/* The arguments that the kernels begin with, and those of groups, with which they end. */
void tx_cl_gemm_arguments(tx_cl_builder *b, const tx_cl_product *p);
void tx_cl_gemm_offsets(tx_cl_builder *b, const tx_cl_product *p);

#endif
