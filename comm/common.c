/* SPDX-License-Identifier: Apache-2.0
 * What every communicator needs: argument checks, order of requests, the launcher's environment. */
#include "comm/common.h"

#include <inttypes.h>
#include <stdlib.h>

tx_status tx_comm_check(const char *call, const void *data, int64_t count, int32_t size, tx_dtype dtype)
{
    if (dtype != TX_F32 && dtype != TX_BF16 && dtype != TX_I32)
        return tx_fail(TX_INVALID, "%s: type %s is not among F32, BF16 and I32", call, tx_dtype_name(dtype));
    if (count < 0 || count > INT64_MAX / size / (int64_t)tx_dtype_size(dtype))
        return tx_fail(TX_INVALID, "%s: %" PRId64 " elements from each of %" PRId32 " ranks is out of range", call,
                       count, size);
    if (!data && count > 0)
        return tx_fail(TX_INVALID, "%s: no data given for %" PRId64 " elements", call, count);
    return TX_OK;
}

int32_t tx_requests_begin(tx_requests *requests)
{
    if (requests->done == requests->begun)
        *requests = (tx_requests){0};
    return requests->begun++;
}

tx_status tx_requests_end(tx_requests *requests, int32_t request)
{
    if (requests->done == requests->begun)
        return tx_fail(TX_INVALID, "wait: request %" PRId32 " was not begun or is done already", request);
    if (request != requests->done)
        return tx_fail(TX_INVALID, "wait: request %" PRId32 " is not the oldest one, %" PRId32, request,
                       requests->done);
    requests->done++;
    return TX_OK;
}

int32_t tx_launcher_ranks(const char **variable)
{
    /* Open MPI's comes first: under Slurm its daemons are themselves started by srun. */
    static const char *const known[] = {"OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE",
                                        "SLURM_STEP_NUM_TASKS"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const char *text = getenv(known[i]);
        long ranks = text ? strtol(text, NULL, 10) : 0;
        if (ranks <= 0 || ranks > INT32_MAX)
            continue;
        if (variable)
            *variable = known[i];
        return (int32_t)ranks;
    }
    return 0;
}

tx_status tx_launcher_check(int32_t size, const char *advice)
{
    const char *variable = "";
    int32_t ranks = tx_launcher_ranks(&variable);
    if (ranks > 1 && size == 1)
        return tx_fail(TX_UNSUPPORTED, "the launcher started %" PRId32 " ranks (%s) but this process sees one: %s",
                       ranks, variable, advice);
    return TX_OK;
}
