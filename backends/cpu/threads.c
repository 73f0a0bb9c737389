/* SPDX-License-Identifier: Apache-2.0
 *
 * The distribution of kernels over threads. Among the kernels only this file uses OpenMP's thread functions. Work
 * for one thread is called directly, because a parallel region of another size makes the OpenMP runtime allocate.
 */
#include "backends/cpu/cpu.h"

#include <omp.h>

/* Returns the call with the scratch slice of the current thread. */
static tx_cpu_call own_call(const tx_cpu_call *call)
{
    tx_cpu_call own = *call;
    if (own.scratch)
        own.scratch = (char *)own.scratch + omp_get_thread_num() * own.scratch_bytes;
    return own;
}

void tx_cpu_slices(const tx_cpu_call *call, int64_t count, int64_t grain, tx_cpu_body *body)
{
    if (call->threads == 1 || count <= grain) {
        body(call, 0, count);
        return;
    }
    const int64_t grains = tx_ceil_div(count, grain);
#pragma omp parallel num_threads(call->threads)
    {
        const int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
        const int64_t first = grains * thread / threads * grain, end = grains * (thread + 1) / threads * grain;
        const tx_cpu_call own = own_call(call);
        if (first < end)
            body(&own, first, end < count ? end : count);
    }
}

void tx_cpu_tasks(const tx_cpu_call *call, int64_t count, tx_cpu_body *body)
{
    if (call->threads == 1 || count == 1) {
        for (int64_t i = 0; i < count; i++)
            body(call, i, i + 1);
        return;
    }
#pragma omp parallel num_threads(call->threads)
    {
        const tx_cpu_call own = own_call(call);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < count; i++)
            body(&own, i, i + 1);
    }
}
