/* SPDX-License-Identifier: Apache-2.0
 * CPU affinity of the calling thread, by Linux system calls. hwloc's functions would need its topology again. */
#define _GNU_SOURCE /* sched_setaffinity and sets of more than 1024 CPUs */
#include "comm/topology/placement.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CPUS_MAX (1 << 16)

typedef struct mask {
    cpu_set_t words[CPUS_MAX / CPU_SETSIZE];
} mask;

tx_status tx_placement_cpus(char **cpus)
{
    mask own;
    int32_t count = 0, *numbers = malloc(CPUS_MAX * sizeof *numbers);
    if (!numbers)
        return tx_fail(TX_MEMORY, "the CPUs of a thread: out of memory");
    if (sched_getaffinity(0, sizeof own, own.words)) {
        free(numbers);
        return tx_fail(TX_IO, "sched_getaffinity: %s", strerror(errno));
    }
    for (int32_t i = 0; i < CPUS_MAX; i++)
        if (CPU_ISSET_S((size_t)i, sizeof own, own.words))
            numbers[count++] = i;
    char *text = tx_topo_set_text(numbers, count);
    free(numbers);
    if (!text)
        return TX_MEMORY;
    *cpus = text;
    return TX_OK;
}

tx_status tx_placement_take(const tx_topo_place *place)
{
    mask cpus = {0};
    int32_t *numbers = NULL, count = 0;
    TX_TRY(tx_topo_set_parse(place->cpus, &numbers, &count));
    for (int32_t i = 0; i < count; i++)
        if (numbers[i] < CPUS_MAX)
            CPU_SET_S((size_t)numbers[i], sizeof cpus, cpus.words);
    free(numbers);
    return sched_setaffinity(0, sizeof cpus, cpus.words)
               ? tx_fail(TX_IO, "cannot run on CPUs %s: %s", place->cpus, strerror(errno))
               : TX_OK;
}

tx_status tx_placement_device(const char *list, int32_t rank, int32_t ranks, size_t size, char *device)
{
    int32_t names = 1;
    for (const char *at = list; (at = strchr(at, ',')) != NULL; at++)
        names++;
    if (names > 1 && names != ranks)
        return tx_fail(TX_INVALID,
                       "--device %s: %" PRId32 " devices for %" PRId32 " rank%s of this host: name one for "
                       "each rank, or one for all",
                       list, names, ranks, ranks == 1 ? "" : "s");
    for (int32_t r = 0; names > 1 && r < rank; r++)
        list = strchr(list, ',') + 1;
    snprintf(device, size, "%.*s", (int)strcspn(list, ","), list);
    return TX_OK;
}
