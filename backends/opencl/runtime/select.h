/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection of one of a few candidates: a provider for a matrix product (gemm_choose.c), a form for a kernel of
 * attention (attention_choose.c), a number of parts for the terms of a product (gemm_tile.c). The best suited candidate
 * is selected, unless an extension selects another one (tune/tuner.h). */
#ifndef TX_OPENCL_SELECT_H
#define TX_OPENCL_SELECT_H

#include "backends/opencl/runtime/cl.h"

#define TX_CL_CHOICE_NAME 48
#define TX_CL_CANDIDATES 24             /* at most */
#define TX_CL_WHY 128                   /* bytes of a reason */
#define TX_CL_REJECTED (TX_CL_WHY + 96) /* bytes of the text that names a rejected candidate and the reason */

/* Kinds of selections, and their `user`: a provider (tx_cl_product); the parts of a product's terms (a text that names
 * it); a form of attention (tx_cl_attention_subject), whose kinds begin so. */
#define TX_CL_PRODUCT "product"
#define TX_CL_PARTS "parts"
#define TX_CL_ATTENTION "attention"

typedef struct tx_cl_candidate {
    int id; /* a number of the caller's */
    const char *name;
    double share, seconds; /* the expected share of the best rate; the measured time */
    int64_t spills;        /* bytes of registers that its kernels spill in a work-item, as the driver reports */
} tx_cl_candidate;

/* The trial of a program (tx_program): the candidate of this name is selected if the kind begins so, and the best
 * suited one for other kinds. */
typedef struct tx_cl_forced {
    const char *begins, *name;
} tx_cl_forced;

typedef struct tx_cl_selection {
    const char *what;           /* "provider of matrix products" */
    const char *kind;           /* TX_CL_PRODUCT, TX_CL_PARTS, or tx_cl_attention_keys */
    const void *user;           /* the caller's, by kind */
    const tx_cl_forced *forced; /* in a trial, else NULL */
    bool unfused;               /* a product: the selected provider must not compute the epilogue */

    tx_cl_candidate candidate[TX_CL_CANDIDATES]; /* the best suited first; after tx_cl_select the selected one */
    int count;
    char rejected[TX_CL_REJECTED]; /* a candidate that is switched off or exceeds the device's limits, or "" */
} tx_cl_selection;

/* Adds a candidate. `share` is the expected share of the best possible rate, or 0 if the candidate declines. `why` is
 * the reason why it declines, or "". */
#define TX_CL_SURE 16.0 /* added to a share: the candidate is selected without a measurement */
void tx_cl_add_candidate(tx_cl_selection *q, int id, const char *name, double share, const char *why);

/* The candidate of this name, or NULL if it does not suit. */
const tx_cl_candidate *tx_cl_find_candidate(const tx_cl_selection *q, const char *name);

/* Selects q->candidate[0]. */
tx_status tx_cl_select(tx_context *context, tx_cl_selection *q);

#endif
