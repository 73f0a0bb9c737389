/* SPDX-License-Identifier: Apache-2.0
 * CLBlast's tuner of SGEMM, in C. */
#ifndef TX_OPENCL_CLBLAST_TUNE_H
#define TX_OPENCL_CLBLAST_TUNE_H

#include <CL/cl.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Measures a `fraction` of the kernel's variants on size x size x size and writes the parameters of the fastest as
 * "NAME=VALUE NAME=VALUE ..". Takes from seconds to minutes and prints its progress to standard output. Returns 0, or
 * CLBlast's code, or -1 where it gave up or `room` is too small. */
int tx_clblast_tune(cl_device_id device, cl_command_queue queue, size_t size, double fraction, char *text, size_t room);
/* The parameters that are in use, likewise. */
int tx_clblast_present(cl_device_id device, char *text, size_t room);

#ifdef __cplusplus
}
#endif

#endif
