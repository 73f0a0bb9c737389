/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection of one of a few candidates: a provider for a matrix product (gemm_choose.c), a form of an attention
 * kernel (attention_choose.c), or a split of a product's k dimension (gemm_tile.c). The candidate with the highest
 * expected share is selected unless an extension selects another (tune/tuner.h).
 */
#ifndef TX_OPENCL_SELECT_H
#define TX_OPENCL_SELECT_H

#include "backends/opencl/runtime/cl.h"

#define TX_CL_CHOICE_NAME 48
#define TX_CL_CANDIDATES 24             /* maximum candidates */
#define TX_CL_WHY 192                   /* bytes of a reason */
#define TX_CL_REJECTED (TX_CL_WHY + 96) /* bytes of the text that names a rejected candidate and the reason */

/* Kinds of selections and their `user`: a provider (tx_cl_product), a split of k (a text that names the product), a
 * form of attention (tx_cl_attention_subject). The kinds of attention begin with TX_CL_ATTENTION. */
#define TX_CL_PRODUCT "product"
#define TX_CL_PARTS "parts"
#define TX_CL_ATTENTION "attention"

typedef struct tx_cl_candidate {
    int id; /* a number that the caller chooses */
    const char *name;
    double share, seconds; /* the expected share of the best rate; the measured time */
    int64_t spills;        /* bytes of registers that its kernels spill for each work-item, as the driver reports */
} tx_cl_candidate;

/* The measured candidate of a program (tx_program). In selections whose kind begins with `begins`, the candidate
 * `name` is selected; in others, the candidate with the highest expected share. */
typedef struct tx_cl_forced {
    const char *begins, *name;
    const tx_cl_limits *limits; /* of its command; NULL means the device's */
} tx_cl_forced;

typedef struct tx_cl_selection {
    const char *what; /* "provider of matrix products" */
    const char *kind; /* TX_CL_PRODUCT, TX_CL_PARTS, or tx_cl_attention_keys */
    const void *user; /* data of the caller, by kind */
    bool unfused;     /* matrix product: the selected provider must not compute the epilogue */

    tx_cl_candidate
        candidate[TX_CL_CANDIDATES]; /* ordered by expected share; after tx_cl_select the selected candidate is first */
    int count;
    char rejected[TX_CL_REJECTED]; /* a candidate that is disabled or exceeds the device's limits, or "" */
} tx_cl_selection;

/* Adds a candidate. `share` is the expected share of the best possible rate, or 0 if the candidate declines. `why` is
 * the reason why it declines, or "". */
#define TX_CL_SURE 16.0 /* added to a share: the candidate is selected without a measurement */
void tx_cl_add_candidate(tx_cl_selection *q, int id, const char *name, double share, const char *why);

/* Returns the candidate of this name, or NULL if it is not in the list. */
const tx_cl_candidate *tx_cl_find_candidate(const tx_cl_selection *q, const char *name);

/* Selects q->candidate[0]. */
tx_status tx_cl_select(tx_cl_builder *b, tx_cl_selection *q);

#endif
