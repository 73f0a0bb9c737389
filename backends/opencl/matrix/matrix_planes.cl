/* SPDX-License-Identifier: Apache-2.0
 *
 * The order in which gemm_matrix.cl multiplies planes of bf16 (gemm_matrix_planes.cl). Small products are added before
 * large ones, because the unit truncates sums. Of nine products of three planes, the three smallest are left out: they
 * are about as small as the last bit of fp32. Of four products of two planes, the smallest is left out.
 */
#ifndef PLANES
#define PLANES 1
#endif
#define PROMOTES (PLANES == 3) /* ordinary adders, which round, add the sums of each block */

/* The planes of each step, four bits each, the first step in the lowest bits. Step s needs no planes except the last
 * s + 1 of a and the first s + 1 of b, which the same steps copied before. */
#if PLANES == 3
#define STEPS 6
#define PLANE_A(step) (0x000112 >> 4 * (step)&3)
#define PLANE_B(step) (0x021100 >> 4 * (step)&3)
#elif PLANES == 2
#define STEPS 3
#define PLANE_A(step) (0x001 >> 4 * (step)&3)
#define PLANE_B(step) (0x010 >> 4 * (step)&3)
#else
#define STEPS 1
#define PLANE_A(step) 0
#define PLANE_B(step) 0
#endif
