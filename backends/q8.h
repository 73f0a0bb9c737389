/* SPDX-License-Identifier: Apache-2.0
 *
 * Type Q8: frozen weights in 8 bits. They have the scales and codes of GGUF's Q8_0 blocks (api/base/blocks.h) in an
 * order that lets vectors be loaded at aligned addresses. `count` elements, a multiple of 32, have:
 *
 *   codes    One signed byte each.
 *   scales   One half for each block of 32 consecutive elements.
 *
 * An element is code * scale in fp32, rounded to the type of the other operand of the product. This file is valid C and
 * OpenCL C.
 */
#ifndef TX_Q8_H
#define TX_Q8_H

#define TX_Q8_BLOCK 32

#ifndef __OPENCL_VERSION__
#include <stdint.h>

static inline int64_t tx_q8_bytes(int64_t count)
{
    return count + count / TX_Q8_BLOCK * (int64_t)sizeof(uint16_t);
}
#endif

#endif
