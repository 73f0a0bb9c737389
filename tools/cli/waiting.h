/* SPDX-License-Identifier: Apache-2.0
 *
 * How the threads of a program wait. OpenMP's spin between two kernels, which is the fastest where each has a processor
 * for itself, and many times slower than sleeping where it has not. */
#ifndef TX_TOOLS_WAITING_H
#define TX_TOOLS_WAITING_H

#include <stdint.h>

/* Begins the program anew with OMP_WAIT_POLICY=passive where so many threads (0: as many as there are) would share
 * processors (tx_cores_shared), unless the environment says how to wait: the OpenMP runtime reads it once, when it is
 * loaded. To be called before anything is done. Results are the same. */
void tx_wait_passively(char **argv, int32_t threads);

#endif
