/* SPDX-License-Identifier: Apache-2.0
 * The devices that an opened model is divided among, as "cpu=4,opencl:0=8" names them: each with its blocks. */
#include "models/generate/lm.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One of the list, "NAME=BLOCKS". */
static tx_status open_device(tx_lm *lm, char *text, int32_t threads)
{
    char *number = strrchr(text, '='), *end = NULL;
    const int64_t blocks = number ? strtoll(number + 1, &end, 10) : 0;
    if (!number || *end || blocks < 1 || blocks > lm->config->layers)
        return tx_fail(TX_INVALID,
                       "device_map: \"%.60s\": a device is given 1 to %" PRId64
                       " blocks of the model, as in cpu=4,opencl:0=8",
                       text, lm->config->layers);
    if (lm->devices == TX_LM_DEVICES)
        return tx_fail(TX_INVALID, "device_map: more than %d devices", (int)TX_LM_DEVICES);
    *number = '\0';
    const tx_engine_options engine = {.size = sizeof engine, .device = text, .threads = threads};
    TX_TRY(tx_engine_create(&engine, &lm->engine[lm->devices]));
    lm->blocks[lm->devices++] = (int32_t)blocks;
    return TX_OK;
}

tx_status tx_lm_open_devices(tx_lm *lm, const char *map, int32_t threads)
{
    char *text = strdup(map), *rest = NULL;
    int64_t blocks = 0;
    tx_status status = text ? TX_OK : tx_fail(TX_MEMORY, "device_map: out of memory");
    for (char *one = text ? strtok_r(text, ",", &rest) : NULL; one && !status; one = strtok_r(NULL, ",", &rest))
        status = open_device(lm, one, threads);
    free(text);
    for (int32_t d = 0; d < lm->devices; d++)
        blocks += lm->blocks[d];
    if (!status && blocks != lm->config->layers)
        status = tx_fail(TX_INVALID, "device_map: the devices have %" PRId64 " blocks, the model %" PRId64, blocks,
                         lm->config->layers);
    return status;
}
