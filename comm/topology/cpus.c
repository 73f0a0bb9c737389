/* SPDX-License-Identifier: Apache-2.0
 * The CPUs that the calling thread runs on, by Linux's own calls: hwloc's would need its topology again. */
#define _GNU_SOURCE /* sched_setaffinity and sets of more than 1024 CPUs */
#include "comm/topology/copy.h"
#include "comm/topology/placement.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define CPUS_MAX (1 << 16)

struct tx_topo_cpus {
    size_t size;
    cpu_set_t *set;
};

tx_status tx_topo_cpus_keep(tx_topo_cpus **kept)
{
    tx_topo_cpus *made = calloc(1, sizeof *made);
    cpu_set_t *set = CPU_ALLOC(CPUS_MAX);
    if (!made || !set) {
        free(made);
        if (set)
            CPU_FREE(set);
        return tx_fail(TX_MEMORY, "the CPUs of a thread: out of memory");
    }
    *made = (tx_topo_cpus){CPU_ALLOC_SIZE(CPUS_MAX), set};
    if (sched_getaffinity(0, made->size, set)) {
        tx_status status = tx_fail(TX_IO, "sched_getaffinity: %s", strerror(errno));
        CPU_FREE(set);
        free(made);
        return status;
    }
    *kept = made;
    return TX_OK;
}

tx_status tx_placement_cpus(char **cpus)
{
    tx_topo_cpus *own = NULL;
    tx_status status = tx_topo_cpus_keep(&own);
    if (status)
        return status;
    int32_t count = 0, *numbers = malloc(((size_t)CPU_COUNT_S(own->size, own->set) + 1) * sizeof *numbers);
    for (int32_t i = 0; numbers && i < CPUS_MAX; i++)
        if (CPU_ISSET_S((size_t)i, own->size, own->set))
            numbers[count++] = i;
    char *text = numbers ? tx_topo_set_text(numbers, count) : NULL;
    free(numbers);
    tx_topo_cpus_return(own);
    if (!text)
        return tx_fail(TX_MEMORY, "the CPUs of a thread: out of memory");
    *cpus = text;
    return TX_OK;
}

tx_status tx_topo_cpus_move(const char *set)
{
    int32_t *numbers = NULL, count = 0;
    tx_status status = tx_topo_set_parse(set, &numbers, &count);
    if (status)
        return status;
    cpu_set_t *cpus = CPU_ALLOC(CPUS_MAX);
    size_t size = CPU_ALLOC_SIZE(CPUS_MAX);
    if (!cpus)
        status = tx_fail(TX_MEMORY, "the CPUs of a thread: out of memory");
    if (cpus) {
        CPU_ZERO_S(size, cpus);
        for (int32_t i = 0; i < count; i++)
            if (numbers[i] < CPUS_MAX)
                CPU_SET_S((size_t)numbers[i], size, cpus);
        if (sched_setaffinity(0, size, cpus))
            status = tx_fail(TX_IO, "cannot run on CPUs %s: %s", set, strerror(errno));
        CPU_FREE(cpus);
    }
    free(numbers);
    return status;
}

void tx_topo_cpus_return(tx_topo_cpus *kept)
{
    if (!kept)
        return;
    /* These were the thread's own; the kernel refuses them only when an administrator took them away meanwhile. */
    sched_setaffinity(0, kept->size, kept->set);
    CPU_FREE(kept->set);
    free(kept);
}
