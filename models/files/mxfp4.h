/* SPDX-License-Identifier: Apache-2.0
 *
 * MXFP4 weights (OCP Microscaling Formats, 2023) as gpt-oss publishes them: a matrix [E, in, out] is stored as
 * "NAME_blocks", U8 [E, out, in / 32, 16], and "NAME_scales", U8 [E, out, in / 32]. A byte holds two elements, the
 * lower bits first; a scale s multiplies the 32 elements of its block by 2^(s - 127). */
#ifndef TX_FILES_MXFP4_H
#define TX_FILES_MXFP4_H

#include "api/packed/nf4.h"
#include "models/files/weights.h"

#include <math.h>

#define TX_MXFP4_BLOCK TX_E2M1_BLOCK

/* The value of an element's 4 bits in a block with a scale. */
static inline float tx_mxfp4_value(unsigned bits, int scale)
{
    return ldexpf(tx_e2m1_value[bits], scale - 127);
}

/* If a folder has MXFP4 tensors, replaces *weights by weights that show them as BF16 matrices NAME, which are exact.
 * They own the earlier ones. On failure *weights is closed and NULL. */
tx_status tx_mxfp4_open(tx_weights **weights);

#endif
