/* SPDX-License-Identifier: Apache-2.0
 *
 * Scratch sizes of the kernels of linear attention.
 */
#include "backends/cpu/scan/scratch.h"

#include "backends/cpu/prepared.h"

int64_t tx_cpu_scratch_linear_scan(const tx_command *command)
{
    const tx_scan s = tx_scan_of(&command->attrs, &command->in[0].shape);
    return scan_space_of(&s, false, NULL, &(scan_space){0});
}

int64_t tx_cpu_scratch_linear_scan_grad(const tx_command *command)
{
    const tx_scan s = tx_scan_of(&command->attrs, &command->in[1].shape);
    return scan_space_of(&s, true, NULL, &(scan_space){0});
}
