/* SPDX-License-Identifier: Apache-2.0
 * How kernels spread over threads: the only place of the kernels that knows OpenMP's threads. Work for one thread
 * is called directly, since a parallel region of another size makes the run-time library allocate. */
#include "backends/cpu/cpu.h"

#include <omp.h>

void tx_cpu_slices(const tx_cpu_call *call, int64_t count, int64_t grain, tx_cpu_body *body)
{
    if (call->threads == 1 || count <= grain) {
        body(call, 0, count, 0);
        return;
    }
    const int64_t grains = (count + grain - 1) / grain;
#pragma omp parallel num_threads(call->threads)
    {
        const int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
        const int64_t first = grains * thread / threads * grain, end = grains * (thread + 1) / threads * grain;
        if (first < end)
            body(call, first, end < count ? end : count, (int32_t)thread);
    }
}

void tx_cpu_tasks(const tx_cpu_call *call, int64_t count, tx_cpu_body *body)
{
    if (call->threads == 1 || count == 1) {
        for (int64_t i = 0; i < count; i++)
            body(call, i, i + 1, 0);
        return;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(call->threads)
    for (int64_t i = 0; i < count; i++)
        body(call, i, i + 1, (int32_t)omp_get_thread_num());
}
