/* SPDX-License-Identifier: Apache-2.0
 *
 * The autotuner of a context: opened and closed with the device, and called for each selection.
 */
#include "backends/opencl/runtime/internal.h"
#include "backends/opencl/tune/tuner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The key of a split-k selection contains the text in `user`. */
static void parts_class(tx_cl_class *c)
{
    snprintf(c->key, sizeof c->key, TX_CL_PARTS " %s", (const char *)c->q->user);
    c->fixed = true;
}

tx_status tx_cl_tuner_select(tx_cl_builder *b, tx_cl_selection *q)
{
    tx_cl_class c = {.b = b, .q = q};
    const bool product = strcmp(q->kind, TX_CL_PRODUCT) == 0;
    if (product)
        tx_cl_gemm_class(&c);
    else if (strcmp(q->kind, TX_CL_PARTS) == 0)
        parts_class(&c);
    else
        tx_cl_attention_class(&c);
    TX_TRY(tx_cl_tune(&c));
    return product && q->count > 0 ? tx_cl_gemm_fuse(&c) : TX_OK;
}

tx_status tx_cl_tuner_open(tx_context *context, const tx_open_options *options)
{
    const char *tune = getenv("TX_GEMM_TUNE");
    tx_cl_tuner *tuner = context->tuner = calloc(1, sizeof *tuner);
    if (!tuner)
        return tx_fail(TX_MEMORY, "out of host memory");
    TX_TRY(tx_cl_self_test(context));
    tuner->unmeasured = tune && strcmp(tune, "0") == 0;
    tuner->options = options ? options->tune : NULL;
    context->select = tx_cl_tuner_select;
    return TX_OK;
}

void tx_cl_tuner_close(tx_context *context)
{
    tx_cl_tuner *tuner = context->tuner;
    if (!tuner)
        return;
    free(tuner->choices);
    free(tuner->proofs);
    free(tuner->table);
    tx_verify_close(tuner->reference);
    free(tuner);
}
