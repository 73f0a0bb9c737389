/* SPDX-License-Identifier: Apache-2.0
 *
 * Known-answer tests and measurements of candidates: a candidate runs a command on its own data.
 */
#ifndef TX_OPENCL_TRIALS_H
#define TX_OPENCL_TRIALS_H

#include "backends/opencl/attention/attention.h"
#include "backends/opencl/gemm/gemm_tile.h"
#include "backends/opencl/tune/tuner.h"

/* `b` is the builder of the command that needs the trial, which runs within the same limits. If b->ahead is set,
 * trials only collect their programs (tx_cl_want_candidate).
 *
 * A command of a trial is emitted with `forced`, or as in a plan if that is NULL. The functions return TX_UNSUPPORTED
 * if the candidate declines the command. */

/* Collects the programs of a command for tx_cl_compile. */
tx_status tx_cl_want_candidate(const tx_cl_builder *b, const tx_cl_forced *forced, const tx_command *command);

/* Runs the probe once and compares it with the cpu backend (tx_verify). */
tx_status tx_cl_verify_candidate(const tx_cl_builder *b, const tx_cl_forced *forced, const tx_probe *probe);

/* Measures the minimum time of at most five runs, which end after a quarter of a second. The time counts towards
 * the tuner's budget. */
tx_status tx_cl_measure_candidate(const tx_cl_builder *b, const tx_cl_forced *forced, const tx_probe *probe,
                                  double *seconds);

/* The functions of the backend without explanations of failures, because failures become reasons in variants. */
extern const tx_backend tx_cl_plain;

/* The source of a kernel that needs hardly any registers, built without options to see whether the driver reports
 * spilled registers. */
#define TX_CL_PLAIN "optimizer"
#define TX_CL_PLAIN_KERNEL "clip_norm"

/* builtins.c: finds the functions that the driver lacks (context->driver.missing). */
tx_status tx_cl_try_builtins(tx_context *context);
tx_status tx_cl_want_builtins(tx_context *context);

/* ---- Matrix products (gemm_trial.c) ---------------------------------------------------------- */

typedef struct tx_cl_gemm_case {
    int64_t batch, m, n, k;
    bool trans_a, trans_b, bias;
    tx_op op;       /* of a grouped product */
    int64_t groups; /* with batch 1: number of groups, of different sizes, one without rows; 0 = not grouped */
    tx_dtype from, to, packed; /* as in tx_cl_product */
    tx_accumulate accumulate;  /* TX_STORE (over NaN) or TX_ADD */
    tx_epilogue epilogue;
    bool exact; /* form of the epilogue's GELU */
    bool rough; /* data that need all bits of fp32; the error of fp32 additions is allowed */
} tx_cl_gemm_case;

/* Tests the product with the provider of this name (tx_cl_verify_candidate), with data for which fp32 sums are exact.
 * If seconds is not NULL, measures it (tx_cl_measure_candidate), and tests it only if it is small. */
tx_status tx_cl_gemm_verify(const tx_cl_builder *b, const char *provider, const tx_cl_gemm_case *trial,
                            double *seconds);

/* ---- Attention (attention_trial.c) ----------------------------------------------------------- */

/* Tests the form (tx_cl_verify_candidate) on a small problem of several tiles, with the command's causality, lengths,
 * window, starts, dropout and head size. The type is fp32, or the command's type for matrix units. */
tx_status tx_cl_attention_verify(const tx_cl_builder *b, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel,
                                 const tx_cl_attention_form *form);
/* Measures the form of this name on the command with fewer and shorter rows: B rows of T tokens. */
void tx_cl_attention_cut(const tx_cl_attention_job *a, int64_t *B, int64_t *T);
tx_status tx_cl_attention_measure(const tx_cl_builder *b, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel,
                                  const char *form, tx_dtype type, double *seconds);

#endif
