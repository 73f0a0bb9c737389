/* SPDX-License-Identifier: Apache-2.0
 *
 * Scratch sizes of the kernels of key-value caches.
 */
#include "backends/cpu/prepared.h"

int64_t tx_cpu_scratch_kv_reorder(const tx_command *command)
{
    return command->in[0].shape.dim[0] * command->in[0].shape.dim[2] * (int64_t)sizeof(float);
}
