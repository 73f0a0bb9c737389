/* SPDX-License-Identifier: Apache-2.0
 * txbench device: prints the properties of a device that its driver reports and that TX derives, and its open time. */
#include "api/base/cores.h"
#include "tools/bench/account.h"
#include "tools/bench/bench.h"
#include "tools/bench/roofline.h"

#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *device;
    int64_t threads;
    bool json;
} settings;

static const tx_option options[] = {TX_BENCH_DEVICE(AT), TX_BENCH_JSON(AT)};

static const settings defaults = {.device = "auto"};

extern char **environ;

/* Adds the environment variables that change the behaviour of TX or of a driver. */
static void add_environment(tx_json *figures)
{
    static const char *const begins[] = {"TX_",  "OMP_", "GOMP_", "OCL_", "POCL_", "CUDA_", "NVIDIA_",
                                         "GPU_", "HSA_", "ROCR_", "HIP_", "ZE_",   "NEO",   "ONEDNN_"};
    tx_json *found = tx_json_array();
    for (char **variable = environ; *variable; variable++)
        for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++)
            if (strncmp(*variable, begins[i], strlen(begins[i])) == 0)
                tx_json_append_string(found, *variable);
    tx_json_set(figures, "environment", found);
}

static void add_info(const tx_device_info *info, tx_json *figures)
{
    static const char *const types[] = {[TX_DEVICE_CPU] = "cpu", [TX_DEVICE_GPU] = "gpu", [TX_DEVICE_OTHER] = "other"};
    tx_json_set_string(figures, "type", types[info->type]);
    tx_json_set_int(figures, "memory_bytes", info->memory);
    tx_json_set_int(figures, "allocation_bytes", info->max_allocation);
    tx_json_set_int(figures, "compute_units", info->compute_units);
    tx_json_set_bool(figures, "tf32", info->tf32);
    tx_json_set_bool(figures, "bf16", info->bf16);
    tx_json_set_bool(figures, "fp16", info->fp16);
    tx_json_set_int(figures, "host_cores", tx_cores_allowed());
}

static tx_status run(const void *settings_, char *const *argv)
{
    const settings *set = settings_;
    tx_target target = {0};
    const double begin = tx_now();
    char *text = NULL;
    TX_TRY(tx_target_open(
        set->device, &(tx_open_options){.threads = (int32_t)set->threads, .report = tx_alive_reporter()}, &target));
    const double opened = tx_now() - begin;
    tx_json *figures = tx_json_object();
    tx_bench_json_head(figures, "device", argv, &target.info);
    add_info(&target.info, figures);
    tx_json_set_number(figures, "open_seconds", opened);
    tx_status status = target.backend->facts ? target.backend->facts(target.context, &text) : TX_OK;
    if (text)
        status = tx_account_lines(figures, "facts", text, "");
    add_environment(figures);
    tx_target_close(&target);
    if (status)
        tx_json_free(figures);
    return status ? status : tx_bench_print(figures, set->json, NULL);
}

TX_BENCH_COMMAND(device, "",
                 "Prints the properties of a device that its driver reports and that TX derives, and the time to open "
                 "it,\nincluding its known-answer tests.");
