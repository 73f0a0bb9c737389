/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with known answers and exact sums, by the device's providers, in all transposes: whole and with their terms
 * divided, added to y with a bias, and with an epilogue. On emulated cards it also counts the bank conflicts of local
 * memory, of which swizzled forms have few.
 *
 *     test_amd_products PROVIDER TYPE... [, PROVIDER TYPE...]...
 *
 * TYPE is f32 (which matrix units read as tf32), bf16 or f16. amd_emulated.sh runs it on emulated cards. Exit status
 * 77: there is no OpenCL device. */
#define _GNU_SOURCE
#include "backends/opencl/runtime/internal.h"
#include "backends/opencl/tune/trials.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* `longer`: how many times longer bank conflicts make accesses to local memory. */
static bool count_conflicts(const tx_context *context, const char *provider, int turned, double longer)
{
    const double swizzled = strncmp(context->can.architecture, "gfx11", 5) == 0 ? 1.65 : 1.01;
    const bool good = longer <= (strstr(provider, "swizzle") ? swizzled : 16.0);
    printf("%s  %s, transposes %d%d: accesses to local memory take %.2f times as long because of bank conflicts\n",
           good ? "ok" : "FAIL", provider, turned / 2, turned % 2, longer);
    return good;
}

static bool prove(tx_context *context, const char *provider, const char *type)
{
    const tx_dtype from = strcmp(type, "bf16") == 0 ? TX_BF16 : strcmp(type, "f16") == 0 ? TX_F16 : TX_F32;
    const tx_cl_builder asks = tx_cl_asker(context);
    const uint64_t *clocks = dlsym(RTLD_DEFAULT, "amd_local_clocks");
    bool good = true;
    for (int turned = 0; turned < 4; turned++) {
        const uint64_t before[] = {clocks ? clocks[0] : 0, clocks ? clocks[1] : 0};
        tx_cl_gemm_case trials[] = {
            {.batch = 2, .m = 136, .n = 72, .k = 1240, .bias = true, .to = TX_F32, .accumulate = TX_ADD},
            {.batch = 1, .m = 72, .n = 136, .k = 40, .to = from},
            {.batch = 1, .m = 72, .n = 136, .k = 40, .to = TX_F32, .epilogue = TX_EPILOGUE_GELU}};
        for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++) {
            trials[i].from = from;
            trials[i].packed = TX_F32;
            trials[i].trans_a = turned / 2;
            trials[i].trans_b = turned % 2;
            if (tx_cl_gemm_verify(&asks, provider, &trials[i], NULL) != TX_OK) {
                printf("FAIL %s, %s, transposes %d%d, k %d: %s\n", provider, type, turned / 2, turned % 2,
                       (int)trials[i].k, tx_error());
                good = false;
            }
        }
        if (clocks)
            good = count_conflicts(context, provider, turned,
                                   (double)(clocks[0] - before[0]) / (double)(clocks[1] - before[1])) &&
                   good;
    }
    printf("%s  %s, %s\n", good ? "ok" : "FAIL", provider, type);
    return good;
}

int main(int argc, char **argv)
{
    const tx_open_options options = {.tf32 = true};
    const char *provider = NULL;
    int32_t devices = 0;
    tx_context *context;
    bool good = argc > 2;
    if (tx_cl_device_count(&devices) != TX_OK || devices == 0)
        return printf("skipped: no OpenCL device\n"), 77;
    if (tx_cl_open(0, &options, &context) != TX_OK)
        return printf("FAIL %s\n", tx_error()), 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], ",") == 0)
            provider = NULL;
        else if (!provider)
            provider = argv[i];
        else
            good = prove(context, provider, argv[i]) && good;
    }
    tx_cl_close(context);
    return good ? 0 : 1;
}
