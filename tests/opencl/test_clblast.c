/* SPDX-License-Identifier: Apache-2.0
 *
 * Engines of one process use CLBlast in threads. Each product is right, also while another engine closes, which clears
 * CLBlast's cache of programs.
 *
 *     test_clblast      exit status 77: there is no OpenCL device */
#include "backends/opencl/tune/trials.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

extern const tx_backend tx_backend_opencl;
static const tx_backend *const be = &tx_backend_opencl;

enum { ENGINES = 3, PRODUCTS = 10 };

/* Opens an engine, multiplies and closes it, twice. The result counts failures. */
static void *use_engines(void *failures)
{
    const tx_open_options options = {.profile = false};
    const tx_cl_gemm_case trial = {.batch = 1, .m = 96, .n = 80, .k = 48, .from = TX_F32, .to = TX_F32};
    int *failed = failures;
    for (int i = 0; i < 2; i++) {
        tx_context *context;
        if (be->open(0, &options, &context) != TX_OK)
            return (*failed)++, printf("FAIL %s\n", tx_error()), NULL;
        const tx_cl_builder asks = tx_cl_asker(context);
        for (int p = 0; p < PRODUCTS; p++)
            if (tx_cl_gemm_verify(&asks, "clblast", &trial, NULL) != TX_OK)
                (*failed)++, printf("FAIL %s\n", tx_error());
        be->close(context);
    }
    return NULL;
}

int main(void)
{
    int32_t devices = 0;
    int failed[ENGINES] = {0}, all = 0;
    pthread_t thread[ENGINES];
    if (be->device_count(&devices) != TX_OK || devices == 0)
        return printf("skipped: no OpenCL device\n"), 77;
    for (int i = 0; i < ENGINES; i++)
        if (pthread_create(&thread[i], NULL, use_engines, &failed[i]) != 0)
            abort();
    for (int i = 0; i < ENGINES; i++) {
        pthread_join(thread[i], NULL);
        all += failed[i];
    }
    return all ? 1 : 0;
}
