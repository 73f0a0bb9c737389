/* SPDX-License-Identifier: Apache-2.0
 *
 * Properties of the matrix units of a device.
 */
#include "backends/opencl/matrix/matrix.h"

#include <string.h>

bool tx_cl_matrix_units(const tx_cl_capabilities *can, tx_cl_vendor vendor, int lanes)
{
    return can->bf16 && can->vendor == vendor && (vendor == TX_CL_NVIDIA || can->sub_group == lanes);
}

const char *tx_cl_matrix_atom(const tx_context *context, const char *atom)
{
    if (strcmp(atom, "WMMA") != 0)
        return atom;
    return strncmp(context->can.architecture, "gfx12", 5) == 0 ? "WMMA12" : "WMMA11";
}

const char *tx_cl_matrix_build(tx_cl_vendor vendor)
{
    return vendor == TX_CL_INTEL ? " -cl-intel-256-GRF-per-thread" : "";
}

/* NVIDIA's driver reports 48 KiB, but builds kernels that use the local memory of the architecture. */
int64_t tx_cl_matrix_local(const tx_context *context)
{
    static const struct {
        const char *architecture;
        int64_t kib;
    } real[] = {{"sm_80", 163}, {"sm_86", 99},   {"sm_87", 163}, {"sm_89", 99},
                {"sm_90", 227}, {"sm_100", 227}, {"sm_120", 99}};
    const int64_t reported = context->limits.local_bytes;
    for (size_t i = 0; i < sizeof real / sizeof real[0] && reported == 48 << 10; i++)
        if (strcmp(context->can.architecture, real[i].architecture) == 0)
            return real[i].kib << 10;
    return reported;
}
