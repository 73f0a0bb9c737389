/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of the backends of this build. Only this file names them.
 */
#include "backends/backend.h"

extern const tx_backend tx_backend_cpu;
#ifdef TX_OPENCL
extern const tx_backend tx_backend_opencl;
#endif

static const tx_backend *const backends[] = {
    &tx_backend_cpu,
#ifdef TX_OPENCL
    &tx_backend_opencl,
#endif
};

const tx_backend *const *tx_backends(int32_t *count)
{
    *count = (int32_t)(sizeof backends / sizeof backends[0]);
    return backends;
}
