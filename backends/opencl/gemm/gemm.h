/* SPDX-License-Identifier: Apache-2.0
 *
 * Providers of matrix products compute op MATMUL and the grouped products on an OpenCL device.
 *
 * A provider estimates how well a product suits it and emits the product. The provider with the highest estimate is
 * selected, or the autotuner's choice (select.h). TX_GEMM=NAME prefers the providers whose names begin with NAME;
 * products that they decline use the others. The command's variant names the selected provider, and a rejected one
 * with the reason.
 */
#ifndef TX_OPENCL_GEMM_H
#define TX_OPENCL_GEMM_H

#include "backends/opencl/runtime/select.h"

/* A matrix product and its operands. */
typedef struct tx_cl_product {
    tx_op op;
    tx_gemm g;
    bool trans_a, trans_b;
    tx_dtype from, to; /* types of a and b, and of y */
    tx_dtype packed;   /* type of a packed b; F32 if b is not packed */
    tx_accumulate accumulate;
    tx_epilogue epilogue;
    bool exact;                                    /* form of the epilogue's GELU */
    const tx_operand *a, *b, *bias, *z, *y, *kept; /* bias, z and kept may be absent */
    /* The first rows of groups (gemm_grouped.cl), or the first terms with trans_a; NULL if the product is not
     * grouped. The rows (or terms) in g are those of all groups, and g.batch is the number of groups. */
    const tx_operand *offsets;
    const struct tx_cl_product *whole; /* the fp32 product if a and b are its planes (gemm_matrix_planes.c); or NULL */
    /* Absent at first. A form that can sum y's columns over the rows of each tile reserves and fills this operand,
     * fp32 [row of tiles, n]. NULL if nothing needs the sums. */
    tx_operand *column_sums;
} tx_cl_product;

typedef enum tx_cl_kind { TX_CL_ALL, TX_CL_CPUS, TX_CL_GPUS } tx_cl_kind;

typedef struct tx_cl_provider {
    const char *name;
    tx_cl_kind device; /* the kind of device that it supports */
    int64_t rows;      /* maximum rows of a; such a provider is selected without a measurement; 0 = no limit */
    int64_t piece; /* rows of a and b must be whole pieces of so many bytes, aligned to that size; 0 = no requirement */
    /* Returns the expected share of the best possible rate, by which providers are ordered if nothing is measured.
     * Returns 0 if the provider declines. If a limit of the device is the reason, writes it to `why` (TX_CL_WHY
     * bytes, empty before). */
    double (*suits)(const tx_cl_builder *b, const struct tx_cl_provider *self, const tx_cl_product *p, char *why);
    /* Emits the product. Failures are kept in b->status. */
    void (*emit)(tx_cl_builder *b, const struct tx_cl_provider *self, const tx_cl_product *p);
    bool epilogues;                /* computes epilogues */
    bool joins;                    /* computes the ops before and after the product (tx_cl_builder) */
    bool packed;                   /* supports a packed b */
    bool grouped;                  /* supports grouped products */
    bool full;                     /* computes fp32 on units of lower precision; its test verifies fp32 accuracy */
    const struct tx_cl_tile *tile; /* the shape of its work-groups (gemm_tile.h); NULL if it has none */
} tx_cl_provider;

/* The providers of one file. */
typedef struct tx_cl_providers {
    const tx_cl_provider *provider;
    int count;
} tx_cl_providers;
#define TX_CL_PROVIDERS(name, array) \
    const tx_cl_providers tx_cl_gemm_##name = {array, (int)(sizeof(array) / sizeof(array)[0])}

extern const tx_cl_providers tx_cl_gemm_few;     /* gemm_few.cl: few rows */
extern const tx_cl_providers tx_cl_gemm_vector;  /* gemm_vector.cl: for CPUs */
extern const tx_cl_providers tx_cl_gemm_clblast; /* CLBlast's SGEMM with its own parameters, fp32 only */
extern const tx_cl_providers tx_cl_gemm_tile;    /* gemm_tile.cl: for GPUs */
#define TX_PROVIDERS(name) extern const tx_cl_providers tx_cl_gemm_##name;
#include "backends/opencl/extensions.def"
#undef TX_PROVIDERS

/* Call it before the context is released, because CLBlast caches its programs by the address of their context. */
void tx_cl_clblast_close(const tx_context *context);

/* ---- Selection (gemm_choose.c) --------------------------------------------------------------- */

typedef struct tx_cl_gemm_choice {
    const tx_cl_provider *provider;
    bool fused;                    /* the provider computes the epilogue; otherwise the op of the same name follows */
    char rejected[TX_CL_REJECTED]; /* as in tx_cl_selection */
} tx_cl_gemm_choice;
tx_status tx_cl_gemm_choose(tx_cl_builder *b, const tx_cl_product *p, tx_cl_gemm_choice *choice);
/* Emits a product of command `c` (gemm.c), with the selected provider as the command's variant. */
tx_status tx_cl_gemm(tx_cl_builder *b, const tx_cl_product *p, const tx_command *c);

/* ---- Providers (gemm_providers.c) ------------------------------------------------------------ */

/* Returns provider i of all providers, or NULL after the last. */
const tx_cl_provider *tx_cl_gemm_provider(int i);
/* Returns true if a provider supports this kind of device. */
bool tx_cl_gemm_supports(const tx_context *context, const tx_cl_provider *provider);
/* Returns true if a provider of this name supports this kind of device. */
bool tx_cl_gemm_has_provider(const tx_context *context, const char *name);

/* Writes the options in `form`, followed by those for storage types, transposes and the epilogue. */
void tx_cl_gemm_options(char *text, size_t size, const char *form, const tx_cl_product *p);
/* Appends the options of epilogue.cl, if there is an epilogue. */
void tx_cl_epilogue_options(char *text, size_t size, const tx_cl_product *p);
/* Pass the first arguments of the kernels, and the last ones, which describe groups. */
void tx_cl_gemm_arguments(tx_cl_builder *b, const tx_cl_product *p);
void tx_cl_gemm_offsets(tx_cl_builder *b, const tx_cl_product *p);

#endif
