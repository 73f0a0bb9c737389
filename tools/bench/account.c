/* SPDX-License-Identifier: Apache-2.0
 * Memory, traffic, kernel choices and profile of a measured training. */
#include "tools/bench/account.h"
#include "api/model/engine.h"
#include "tools/cli/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set_memory(tx_json *object, const char *key, const tx_memory *memory)
{
    tx_json *kinds = tx_json_object();
    for (int k = 0; k < TX_MEMORY_COUNT; k++)
        if (memory->bytes[k] > 0)
            tx_json_set_int(kinds, tx_memory_name((tx_memory_kind)k), memory->bytes[k]);
    tx_json_set_int(kinds, "total", tx_memory_total(memory));
    tx_json_set(object, key, kinds);
}

tx_status tx_account_memory(const tx_bench_training *training, tx_json *figures)
{
    tx_memory planned, counted;
    TX_TRY(tx_model_memory(training->model, &planned));
    TX_TRY(tx_engine_memory(training->engine, &counted));
    tx_json *memory = tx_json_object();
    set_memory(memory, "planned", &planned);
    set_memory(memory, "counted", &counted);
    return tx_json_set(figures, "memory", memory);
}

tx_status tx_account_traffic(const tx_traffic *before, const tx_traffic *after, int64_t steps, tx_json *figures)
{
    tx_json *traffic = tx_json_object();
    tx_json_set_int(traffic, "to_device_bytes", (after->to_device - before->to_device) / steps);
    tx_json_set_int(traffic, "from_device_bytes", (after->from_device - before->from_device) / steps);
    tx_json_set_int(traffic, "launches", (after->launches - before->launches) / steps);
    tx_json_set_int(traffic, "allocations", after->allocations - before->allocations);
    return tx_json_set(figures, "traffic", traffic);
}

tx_status tx_account_lines(tx_json *figures, const char *key, char *text, const char *begins)
{
    tx_json *lines = tx_json_array();
    char *rest = NULL, line[1024];
    for (char *at = strtok_r(text, "\n", &rest); at; at = strtok_r(NULL, "\n", &rest)) {
        const size_t length = strlen(begins), name = strcspn(at, "\t");
        if (strncmp(at, begins, length) != 0 || !at[name])
            continue;
        snprintf(line, sizeof line, "%.*s: %s", (int)(name - length), at + length, at + name + 1);
        tx_json_append_string(lines, line);
    }
    free(text);
    return tx_json_set(figures, key, lines);
}

tx_status tx_account_choices(const tx_bench_training *training, tx_json *figures)
{
    char *text;
    TX_TRY(tx_engine_choices(training->engine, &text));
    return tx_account_lines(figures, "choices", text, "");
}

static const tx_plan *plan_of(const void *trainer, int32_t index, int64_t *runs)
{
    return tx_trainer_plan(trainer, index, runs);
}

tx_status tx_account_profile(const tx_bench_training *training, tx_json *figures)
{
    tx_json *profile;
    char *text;
    TX_TRY(tx_profile_json(plan_of, training->trainer, &profile));
    TX_TRY(tx_json_set(figures, "profile", profile));
    const tx_engine *engine = training->engine;
    if (!engine->backend->facts)
        return TX_OK;
    TX_TRY(engine->backend->facts(engine->context, &text));
    return tx_account_lines(figures, "kernels", text, TX_FACT_KERNEL);
}
