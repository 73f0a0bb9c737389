/* SPDX-License-Identifier: Apache-2.0
 *
 * The instructions of matrix units that ATOM selects, for matrix products and for attention.
 */
#define MMA 1
#define MFMA 2
#define WMMA11 3
#define WMMA12 4
#define WGMMA 5
#define DPAS8 6
#define DPAS16 7
