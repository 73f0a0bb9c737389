/* SPDX-License-Identifier: Apache-2.0
 *
 * What gemm.c chooses from. A provider prepares a product or declines it with TX_UNSUPPORTED; its messages say why. */
#ifndef TX_CPU_GEMM_PROVIDER_H
#define TX_CPU_GEMM_PROVIDER_H

#include "gemm.h"

#define TX_GEMM_VARIANT 96 /* bytes of a variant's text */

/* The operands of one run; the rules of tx_cpu_gemm_run hold. */
typedef struct tx_gemm_call {
    const void *a, *b;
    const float *bias; /* NULL: none */
    void *c;
    bool add; /* to what c holds */
    void *scratch;
} tx_gemm_call;

typedef struct tx_gemm_provider {
    const char *name;
    tx_status (*create)(const tx_cpu_gemm_spec *spec, void **state, int64_t *scratch_bytes,
                        char variant[TX_GEMM_VARIANT]);
    tx_status (*run)(void *state, const tx_gemm_call *call);
    void (*destroy)(void *state);
    void (*library)(const struct tx_gemm_tile *tile, char text[TX_CPU_GEMM_LIBRARY]); /* as tx_cpu_gemm_library */
} tx_gemm_provider;

extern const tx_gemm_provider tx_gemm_onednn; /* gemm_dnnl.c; only in builds with TX_ONEDNN */
extern const tx_gemm_provider tx_gemm_own;    /* gemm_own.c; takes every product */

#endif
