/* SPDX-License-Identifier: Apache-2.0
 *
 * How the OpenMP threads of a program wait. They spin between two kernels by default. That is fastest if every thread
 * has a core of its own, and many times slower than sleeping if threads share cores. */
#ifndef TX_TOOLS_WAITING_H
#define TX_TOOLS_WAITING_H

#include <stdint.h>

/* Executes the program again with threads that soon sleep if `threads` of them would share cores (tx_cores_shared).
 * Pass 0 for OpenMP's default number. Does nothing if the environment already sets a wait policy. A new execution is
 * necessary because the OpenMP runtime reads the policy once, when it is loaded. Call it before any other work. */
void tx_wait_passively(char **argv, int32_t threads);

#endif
