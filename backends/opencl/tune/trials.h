/* SPDX-License-Identifier: Apache-2.0
 *
 * Trials: a candidate runs a command on data of its own, to prove or to measure it. */
#ifndef TX_OPENCL_TRIALS_H
#define TX_OPENCL_TRIALS_H

#include "backends/opencl/attention/attention.h"
#include "backends/opencl/gemm/gemm_tile.h"
#include "backends/opencl/tune/tuner.h"

/* Runs the probe once, prepared with `forced` or, if that is NULL, as plans prepare it, and compares it with the cpu
 * backend (tx_verify). A command that the candidate declines is TX_UNSUPPORTED. */
tx_status tx_cl_verify_candidate(tx_context *context, const tx_cl_forced *forced, const tx_probe *probe);

/* The least seconds of at most five runs, which end after a quarter of a second. They count as the tuner's. */
tx_status tx_cl_measure_candidate(tx_context *context, const tx_cl_forced *forced, const tx_probe *probe,
                                  double *seconds);

/* The functions of the backend without explanations of failures, which become reasons of trials. */
extern const tx_backend tx_cl_plain;

/* ---- Products (gemm_trial.c) --------------------------------------------------------------------------------- */

typedef struct tx_cl_gemm_case {
    int64_t batch, m, n, k;
    bool trans_a, trans_b, bias;
    tx_op op; /* of a product by groups */
    int64_t
        groups; /* with the batch 1: so many, of different sizes, one without rows; rows of none come last. 0: none */
    tx_dtype from, to, packed; /* as in tx_cl_product */
    tx_accumulate accumulate;  /* TX_STORE (over NaN) or TX_ADD */
    tx_epilogue epilogue;
    bool exact; /* of its GELU */
    bool rough; /* data that need all bits of fp32; the sums may have the error of additions in fp32 */
} tx_cl_gemm_case;

/* Proves the product by the provider of this name (tx_cl_verify_candidate), with data whose fp32 sums are exact. If
 * seconds is not NULL, measures it (tx_cl_measure_candidate), and proves it as well only if it is small. */
tx_status tx_cl_gemm_verify(tx_context *context, const char *provider, const tx_cl_gemm_case *trial, double *seconds);

/* ---- Attention (attention_trial.c) ------------------------------------------------------------------------- */

/* Proves the form (tx_cl_verify_candidate) on a small problem of several tiles, with the command's causality, lengths,
 * window, starts, dropout and head size, in fp32 or, by matrix units, in its type. */
tx_status tx_cl_attention_verify(tx_context *context, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel,
                                 const tx_cl_attention_form *form);
/* Measures the form of this name on the command with fewer and shorter rows: B rows of T tokens. */
void tx_cl_attention_cut(const tx_cl_attention_job *a, int64_t *B, int64_t *T);
tx_status tx_cl_attention_measure(tx_context *context, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel,
                                  const char *form, tx_dtype type, double *seconds);

#endif
