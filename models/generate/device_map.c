/* SPDX-License-Identifier: Apache-2.0
 * Divides the blocks of an opened model among devices. A device map such as "cpu=4,opencl:0=8" gives the number of
 * blocks for each device. Devices without a number, as in "opencl:0,cpu" and "auto", get as many blocks as fit, in
 * order. */
#include "models/generate/lm.h"

#include "api/base/gpus.h"
#include "api/base/memory_left.h"
#include "api/base/needs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The fraction of a device's memory that plans may use. Drivers, displays and kernels' scratch memory need the rest. */
#define USABLE 0.9

/* ---- Parsing -------------------------------------------------------------------------------------------- */

/* Opens a device of the list, "NAME=BLOCKS" or "NAME". */
static tx_status open_device(tx_lm *lm, char *text, int32_t threads)
{
    char *number = strrchr(text, '='), *end = "";
    const int64_t blocks = number ? strtoll(number + 1, &end, 10) : 0;
    if (number && (*end || blocks < 1 || blocks > lm->config->layers))
        return tx_fail(TX_INVALID,
                       "device_map: \"%.60s\": give a device 1 to %" PRId64
                       " blocks of the model, as in cpu=4,opencl:0=8, or no number to use all its memory, as in "
                       "opencl:0,cpu",
                       text, lm->config->layers);
    if (lm->devices == TX_LM_DEVICES)
        return tx_fail(TX_INVALID, "device_map: more than %d devices", (int)TX_LM_DEVICES);
    if (number)
        *number = '\0';
    const tx_engine_options engine = {
        .size = sizeof engine, .device = text, .threads = threads, .report = &lm->progress};
    TX_TRY(tx_engine_create(&engine, &lm->engine[lm->devices]));
    lm->asked[lm->devices++] = (int32_t)blocks;
    return TX_OK;
}

/* Opens all GPUs, then the cpu. */
static tx_status open_all(tx_lm *lm, int32_t threads)
{
    int32_t count = 0;
    tx_device_info info;
    TX_TRY(tx_device_count(&count));
    for (int32_t i = 0; i < count && lm->devices < TX_LM_DEVICES - 1; i++) {
        TX_TRY(tx_device_get(i, &info));
        if (info.type == TX_DEVICE_GPU)
            TX_TRY(open_device(lm, info.id, threads));
    }
    return open_device(lm, (char[]){"cpu"}, threads);
}

tx_status tx_lm_open_devices(tx_lm *lm, const char *map, int32_t threads)
{
    if (strcmp(map, "auto") == 0)
        return open_all(lm, threads);
    char *text = strdup(map), *rest = NULL;
    int64_t blocks = 0;
    bool all_given = true;
    tx_status status = text ? TX_OK : tx_fail(TX_MEMORY, "device_map: out of memory");
    for (char *one = text ? strtok_r(text, ",", &rest) : NULL; one && !status; one = strtok_r(NULL, ",", &rest))
        status = open_device(lm, one, threads);
    free(text);
    for (int32_t d = 0; d < lm->devices; d++) {
        blocks += lm->asked[d];
        all_given = all_given && lm->asked[d] > 0;
    }
    if (!status && (all_given ? blocks != lm->config->layers : blocks > lm->config->layers))
        status = tx_fail(TX_INVALID, "device_map: the devices have %" PRId64 " blocks, the model %" PRId64, blocks,
                         lm->config->layers);
    return status;
}

/* ---- Fitting -------------------------------------------------------------------------------------------- */

tx_status tx_lm_divide(const tx_lm *lm, const int32_t blocks[TX_LM_DEVICES], bool only_plan, tx_model **model)
{
    tx_engine *engine[TX_LM_DEVICES];
    int32_t of[TX_LM_DEVICES], count = 0;
    for (int32_t d = 0; d < lm->devices; d++)
        if (blocks[d] > 0 || lm->devices == 1) {
            engine[count] = lm->engine[d];
            of[count++] = blocks[d];
        }
    tx_model *created = NULL;
    TX_TRY(tx_model_create(engine[0], &created));
    if (only_plan)
        tx_model_only_plan(created);
    tx_status status = count > 1 ? tx_model_divide(created, engine, of, count) : TX_OK;
    TX_THEN(status, tx_model_store(created, lm->dtype));
    if (lm->ranks)
        TX_THEN(status, tx_model_parallel(created, lm->alone,
                                          &(tx_parallel_options){sizeof(tx_parallel_options), .tensor = lm->ranks}));
    if (lm->offload_params)
        TX_THEN(status, tx_model_offload_params(created, lm->offload_params, lm->offload_folder, false));
    return TX_RETURN(status, created, model, tx_model_free);
}

/* Checks whether the plans of a model with this division fit into the memory of device d. */
static tx_status fits(const tx_lm *lm, const tx_lm_sizes *sizes, const int32_t blocks[TX_LM_DEVICES], int32_t d,
                      bool *enough)
{
    char owner[120];
    const tx_device_info *device = tx_engine_device(lm->engine[d]);
    int64_t room = device->memory ? device->memory : INT64_MAX;
    if (device->type == TX_DEVICE_CPU) {
        const int64_t left = tx_memory_left("", owner, sizeof owner);
        room = left < room ? left : room;
    }
    int32_t place = 0;
    for (int32_t before = 0; before < d; before++)
        place += blocks[before] > 0;
    tx_model *model = NULL;
    tx_forward *forward = NULL;
    tx_generator *generator = NULL;
    tx_perplexity *perplexity = NULL;
    tx_memory planned = {0};
    tx_status status = tx_lm_divide(lm, blocks, true, &model);
    TX_THEN(status, sizes->texts     ? tx_generator_create(model, lm->config, sizes->texts, &generator)
                    : sizes->windows ? tx_perplexity_create(model, lm->config, sizes->windows, &perplexity)
                                     : tx_forward_create(model, lm->config, sizes->tokens, &forward));
    TX_THEN(status, tx_model_memory_on(model, place, &planned));
    tx_generator_free(generator);
    tx_perplexity_free(perplexity);
    tx_forward_free(forward);
    tx_model_free(model);
    *enough = status == TX_OK && (double)tx_memory_total(&planned) <= USABLE * (double)room;
    return status == TX_MEMORY ? TX_OK : status; /* a single tensor is larger than the device allows */
}

/* Finds the largest number of blocks for device d, by bisection. The next device gets the rest of `left`. */
static tx_status fill(tx_lm *lm, const tx_lm_sizes *sizes, int32_t d, int32_t left)
{
    int32_t blocks[TX_LM_DEVICES] = {0}, least = 0, most = left;
    memcpy(blocks, lm->blocks, (size_t)d * sizeof *blocks);
    while (least < most) {
        const int32_t tried = (least + most + 1) / 2;
        bool enough = false;
        blocks[d] = tried;
        blocks[d + 1] = left - tried;
        TX_TRY(fits(lm, sizes, blocks, d, &enough));
        if (enough)
            least = tried;
        else
            most = tried - 1;
    }
    lm->blocks[d] = least;
    return TX_OK;
}

/* Chooses the blocks of all devices. The last device without a number gets the rest; if that does not fit, allocating
 * its memory fails later. */
tx_status tx_lm_choose_devices(tx_lm *lm, const tx_lm_sizes *sizes)
{
    int32_t left = (int32_t)lm->config->layers, last = -1;
    for (int32_t d = 0; d < lm->devices; d++) {
        left -= lm->asked[d];
        last = lm->asked[d] ? last : d;
    }
    for (int32_t d = 0; d < lm->devices; d++) {
        lm->blocks[d] = lm->asked[d] ? lm->asked[d] : left;
        if (!lm->asked[d] && d < last)
            TX_TRY(fill(lm, sizes, d, left));
        left -= lm->asked[d] ? 0 : lm->blocks[d];
    }
    size_t at = 0;
    for (int32_t d = 0; d < lm->devices && lm->devices > 1; d++)
        if (lm->blocks[d] > 0)
            at += (size_t)snprintf(lm->placed + at, sizeof lm->placed - at, "%s%s=%" PRId32, at ? "," : "",
                                   tx_engine_device(lm->engine[d])->id, lm->blocks[d]);
    return TX_OK;
}

/* ---- Words for users ---------------------------------------------------------------------------------------- */

void tx_lm_name_device(tx_lm *lm)
{
    const tx_device_info *device = tx_engine_device(lm->engine[0]);
    const char *reason = tx_engine_reason(lm->engine[0]);
    if (device->type != TX_DEVICE_CPU || tx_gpus_seen(""))
        snprintf(lm->device, sizeof lm->device, "%s: %s%s%s%s", device->id, device->name, *reason ? " (" : "", reason,
                 *reason ? ")" : "");
}

const char *tx_lm_device(const tx_lm *lm)
{
    TX_NEEDS(lm, "");
    return lm->device;
}

const char *tx_lm_device_map(const tx_lm *lm)
{
    TX_NEEDS(lm, "");
    return lm->placed;
}
