/* SPDX-License-Identifier: Apache-2.0
 * Opens and closes devices, and returns their properties. */
#include "api/model/engine.h"

#include "api/base/cores.h"
#include "api/base/needs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tx_engine_workers(int argc, char *const *argv)
{
    int32_t count;
    const tx_backend *const *all = tx_backends(&count);
    for (int32_t i = 0; i < count; i++)
        if (all[i]->workers)
            all[i]->workers(argc, argv);
}

static tx_status open_device(tx_engine *e, int32_t index, const tx_engine_options *options)
{
    int32_t local = 0;
    TX_TRY(tx_device_locate(index, &e->backend, &local));
    if (e->backend->version != TX_BACKEND_VERSION)
        return tx_fail(TX_INTERNAL, "backend %s has version %u, wanted %u", e->backend->name, e->backend->version,
                       TX_BACKEND_VERSION);
    TX_TRY(e->backend->device_info(local, &e->device));
    const tx_open_options open = {.threads = options->threads,
                                  .profile = options->profile,
                                  .tf32 = options->tf32,
                                  .tune = options->tune,
                                  .report = options->report};
    return e->backend->open(local, &open, &e->context);
}

/* Opens the device that the user named, or chooses one. A chosen GPU that cannot be opened, for example because its
 * start-up test fails, is replaced by the cpu. */
static tx_status find_and_open(tx_engine *e, const tx_engine_options *options)
{
    int32_t index = 0;
    if (options->device && strcmp(options->device, "auto") != 0) {
        TX_TRY(tx_device_find(options->device, &index));
        return open_device(e, index, options);
    }
    TX_TRY(tx_device_choose(&index, e->reason, sizeof e->reason));
    const tx_status status = open_device(e, index, options);
    if (!status || index == 0)
        return status;
    snprintf(e->reason, sizeof e->reason, "%s (%s) is not used: %.300s", e->device.id, e->device.name, tx_error());
    return open_device(e, 0, options);
}

tx_status tx_engine_create(const tx_engine_options *options, tx_engine **engine)
{
    TX_NEEDS(options && engine, TX_INVALID);
    if (options->size != sizeof *options)
        return tx_fail(TX_INVALID, "engine options: size is %zu, wanted %zu", options->size, sizeof *options);
    if (options->tune && options->tune->size != sizeof *options->tune)
        return tx_fail(TX_INVALID, "tune options: size is %zu, wanted %zu", options->tune->size, sizeof *options->tune);
    tx_engine *e = calloc(1, sizeof *e);
    if (!e)
        return tx_fail(TX_MEMORY, "no memory for an engine");
    e->profile = options->profile;
    e->threads = options->threads > 0 ? options->threads : tx_cores();
    const tx_status status = find_and_open(e, options);
    if (status != TX_OK) {
        free(e);
        return status;
    }
    if (tx_devices_missing() && options->report && options->report->warn)
        options->report->warn(options->report->context, tx_devices_missing());
    *engine = e;
    return TX_OK;
}

void tx_engine_free(tx_engine *engine)
{
    if (!engine)
        return;
    engine->backend->close(engine->context);
    free(engine);
}

const tx_device_info *tx_engine_device(const tx_engine *engine)
{
    TX_NEEDS(engine, NULL);
    return &engine->device;
}

const char *tx_engine_reason(const tx_engine *engine)
{
    TX_NEEDS(engine, "");
    return engine->reason;
}

tx_status tx_engine_memory(const tx_engine *engine, tx_memory *counted)
{
    TX_NEEDS(engine && counted, TX_INVALID);
    tx_traffic traffic;
    engine->backend->account(engine->context, counted, &traffic);
    return TX_OK;
}

tx_status tx_engine_traffic(const tx_engine *engine, tx_traffic *traffic)
{
    TX_NEEDS(engine && traffic, TX_INVALID);
    tx_memory held;
    engine->backend->account(engine->context, &held, traffic);
    return TX_OK;
}

static tx_status empty(char **text)
{
    char *none = calloc(1, 1);
    if (!none)
        return tx_fail(TX_MEMORY, "out of memory");
    *text = none;
    return TX_OK;
}

tx_status tx_engine_choices(const tx_engine *engine, char **text)
{
    TX_NEEDS(engine && text, TX_INVALID);
    return engine->backend->choices ? engine->backend->choices(engine->context, text) : empty(text);
}

tx_status tx_engine_tuned(const tx_engine *engine, char **text)
{
    TX_NEEDS(engine && text, TX_INVALID);
    return engine->backend->tuned ? engine->backend->tuned(engine->context, text) : empty(text);
}

tx_status tx_engine_choose(tx_engine *engine, const char *text)
{
    TX_NEEDS(engine && text, TX_INVALID);
    if (engine->backend->choose)
        return engine->backend->choose(engine->context, text);
    return *text ? tx_fail(TX_UNSUPPORTED, "%s makes no choices that could be set: \"%.60s\"", engine->device.id, text)
                 : TX_OK;
}

tx_status tx_engine_finish(tx_engine *engine)
{
    TX_NEEDS(engine, TX_INVALID);
    return engine->backend->finish(engine->context);
}
