/* SPDX-License-Identifier: Apache-2.0
 *
 * Engines of one process that want different parameters of CLBlast each get their own, in turns and in threads. The
 * function below stands before libOpenCL's and sees which kernel CLBlast launches, in which work-groups.
 *
 *     test_clblast      exit status 77: there is no OpenCL device */
#include "backends/opencl/gemm.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const tx_backend tx_backend_opencl;
static const tx_backend *const be = &tx_backend_opencl;

/* ---- What CLBlast launches ---------------------------------------------------------------------------------- */

static _Thread_local char launched[96]; /* the last product of this thread */

__attribute__((visibility("default"))) cl_int CL_API_CALL
clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t *offset,
                       const size_t *global, const size_t *local, cl_uint waits, const cl_event *list, cl_event *event)
{
    static __typeof__(&clEnqueueNDRangeKernel) real;
    char name[64] = "";
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "clEnqueueNDRangeKernel");
    clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL);
    if (strncmp(name, "Xgemm", 5) == 0 && local)
        snprintf(launched, sizeof launched, "%s %zu x %zu", name, local[0], local[1]);
    return real(queue, kernel, dims, offset, global, local, waits, list, event);
}

/* ---- Engines ------------------------------------------------------------------------------------------------- */

enum { OWN, SMALL, LARGE, ENGINES };

static struct {
    const char *text;
    char launches[96]; /* those of OWN are found out before others have been set */
    tx_context *context;
    int wrong;
} engine[ENGINES] = {
    [OWN] = {.text = ""},
    [SMALL] = {.text = "GEMMK=0 KREG=1 KWG=16 KWI=2 MDIMA=8 MDIMC=8 MWG=32 NDIMB=8 NDIMC=8 NWG=32 SA=0 SB=0 STRM=0 "
                       "STRN=0 VWM=2 VWN=2 XGEMM_MIN_INDIRECT_SIZE=1",
               .launches = "Xgemm 8 x 8"},
    [LARGE] = {.text = "GEMMK=0 KREG=1 KWG=16 KWI=2 MDIMA=16 MDIMC=16 MWG=64 NDIMB=16 NDIMC=16 NWG=64 SA=0 SB=0 STRM=0 "
                       "STRN=0 VWM=2 VWN=2 XGEMM_MIN_INDIRECT_SIZE=1",
               .launches = "Xgemm 16 x 16"},
};

/* One product, which is checked; false where it was not by this engine's parameters. */
static bool multiply(int which)
{
    const tx_cl_trial trial = {.batch = 1, .m = 96, .n = 80, .k = 48, .from = TX_F32, .to = TX_F32};
    launched[0] = '\0';
    if (tx_cl_gemm_trial(engine[which].context, TX_CL_CLBLAST, &trial, NULL) != TX_OK)
        return printf("FAIL engine %d: %s\n", which, tx_error()), false;
    if (!engine[which].launches[0])
        memcpy(engine[which].launches, launched, sizeof launched);
    if (strcmp(launched, engine[which].launches) != 0)
        return printf("FAIL engine %d launches %s, not %s\n", which, launched, engine[which].launches), false;
    return true;
}

static bool open_engine(int which)
{
    const tx_open_options options = {.profile = false};
    if (be->open(0, &options, &engine[which].context) != TX_OK ||
        tx_cl_clblast_use(engine[which].context, engine[which].text) != TX_OK)
        return printf("FAIL %s\n", tx_error()), false;
    return multiply(which);
}

static void *many(void *number)
{
    const int which = (int)(intptr_t)number;
    for (int i = 0; i < 10; i++)
        engine[which].wrong += !multiply(which);
    return NULL;
}

int main(void)
{
    int32_t devices = 0;
    bool good = true;
    pthread_t thread[ENGINES];
    if (be->device_count(&devices) != TX_OK || devices == 0)
        return printf("skipped: no OpenCL device\n"), 77;
    for (int i = 0; i < ENGINES; i++)
        good = open_engine(i) && good;
    for (int i = 0; i < 2 * ENGINES && good; i++)
        good = multiply(i % ENGINES);
    for (int i = 0; i < ENGINES && good; i++)
        if (pthread_create(&thread[i], NULL, many, (void *)(intptr_t)i) != 0)
            abort();
    for (int i = 0; i < ENGINES && good; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < ENGINES; i++) {
        good = good && engine[i].wrong == 0;
        if (engine[i].context)
            be->close(engine[i].context);
    }
    printf("%s, %s, %s\n", engine[OWN].launches, engine[SMALL].launches, engine[LARGE].launches);
    return good ? 0 : 1;
}
