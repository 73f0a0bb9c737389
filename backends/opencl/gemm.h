/* SPDX-License-Identifier: Apache-2.0
 *
 * Providers of matrix products: ways to compute op MATMUL on an OpenCL device, and how one is chosen.
 *
 * A provider accepts a product or not, and emits it. The choice (gemm.c) takes the first provider of the device's order
 * that accepts the product and whose known-answer test (gemm_trial.c) came out right; where several do and TX_GEMM_TUNE
 * is not 0, each class of shapes is measured once and the choice is kept in the cache folder. TX_GEMM=portable or
 * clblast puts that provider first; the others stay for what it does not accept. What a class of shapes has been given
 * once, or by tx_engine_choose, it keeps as long as the device is open, before all of these. The command's variant
 * names what was taken, and why a provider before it was switched off. */
#ifndef TX_OPENCL_GEMM_H
#define TX_OPENCL_GEMM_H

#include "backends/opencl/cl.h"

/* A MATMUL command, worked out. */
typedef struct tx_cl_product {
    tx_gemm g;
    bool trans_a, trans_b;
    tx_dtype from, to; /* of a and b, and of y */
    tx_accumulate accumulate;
    const tx_operand *a, *b, *bias, *y; /* bias may be absent */
} tx_cl_product;

typedef struct tx_cl_provider {
    const char *name;
    int64_t rows; /* made for products of at most so many, which it then takes unmeasured; 0: of any number */
    bool (*accepts)(const tx_context *context, const tx_cl_product *p);
    void (*emit)(tx_cl_builder *b, const tx_cl_product *p); /* failures are kept in b->status */
    void (*close)(void); /* forgets what it keeps of contexts, before one goes; NULL: keeps nothing */
} tx_cl_provider;

extern const tx_cl_provider tx_cl_gemm_vector;  /* kernels/gemm_vector.cl: for CPUs */
extern const tx_cl_provider tx_cl_gemm_tile;    /* kernels/gemm_tile.cl: for GPUs */
extern const tx_cl_provider tx_cl_gemm_few;     /* kernels/gemm_few.cl: few rows */
extern const tx_cl_provider tx_cl_gemm_clblast; /* CLBlast's SGEMM: fp32 only */

/* What gemm.c remembers of a context: verdicts, choices, the time spent measuring. */
typedef struct tx_cl_gemm tx_cl_gemm;
void tx_cl_gemm_close(tx_context *context); /* accepts a context that never saw a product */
/* Whether a provider is one of this device's. */
tx_status tx_cl_gemm_offers(tx_context *context, const tx_cl_provider *provider, bool *offered);

/* ---- Choices (gemm_choice.c) ---------------------------------------------------------------------------- */

#define TX_CL_CHOICE_KEY 64

/* The provider that a class of products has been given, by the first of them or by tx_cl_choose. */
typedef struct tx_cl_choice {
    struct tx_cl_choice *next;
    const tx_cl_provider *provider;
    char key[TX_CL_CHOICE_KEY];
} tx_cl_choice;

const tx_cl_provider *tx_cl_gemm_named(const char *name, size_t length); /* NULL: there is none */
const tx_cl_provider *tx_cl_choice_find(const tx_context *context, const char *key);
tx_status tx_cl_choice_keep(tx_context *context, const char *key, const tx_cl_provider *provider);
void tx_cl_choices_free(tx_context *context);

/* ---- Trials: a product of a provider on data of its own ---------------------------------------------- */

typedef struct tx_cl_trial {
    int64_t batch, m, n, k;
    bool trans_a, trans_b, bias;
    tx_dtype from, to;
    tx_accumulate accumulate; /* TX_STORE (over NaN) or TX_ADD */
} tx_cl_trial;

/* Prepares and runs the product by whatever provider the context is told to try, with data whose fp32 sums are exact,
 * and checks it against sums in double: all elements of a small product, samples of a big one, and the memory around
 * it. A wrong result is TX_DEVICE with a message. seconds, when not NULL: the best of a few runs. */
tx_status tx_cl_gemm_trial(tx_context *context, const tx_cl_trial *trial, double *seconds);

#endif
