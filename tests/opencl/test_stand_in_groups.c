/* SPDX-License-Identifier: Apache-2.0
 *
 * Products by groups (experts) on simulated cards (stand_in.h): matrix units, with emulated instructions, and tiles
 * pass their known-answer tests and are chosen.
 *
 *     test_stand_in_groups [NAME]   only providers whose names begin with NAME
 *
 * Exit status 77: there is no OpenCL device. */
#include "backends/opencl/runtime/internal.h"
#include "backends/opencl/tune/trials.h"
#include "tests/opencl/stand_in.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A product on a card: the types, whether it is the gradient of weights, or its b is stored transposed, and the
 * expected provider. */
typedef struct proof {
    const char *card;
    bool tf32, trans_a, trans_b;
    tx_dtype from;
    int64_t groups;
    const char *expected;
} proof;

static tx_op op_of(const proof *t)
{
    return t->trans_a ? TX_OP_GROUPED_MATMUL_GRAD : TX_OP_GROUPED_MATMUL;
}

static tx_dtype result_of(const proof *t)
{
    return t->trans_a ? TX_F32 : t->from;
}

static tx_status choose(tx_context *context, const proof *t, tx_cl_gemm_choice *choice)
{
    const int64_t m = 2048, n = 3072, k = 1024; /* large enough for tiles of matrix units */
    const tx_operand none = {.dtype = TX_DTYPE_COUNT}, offsets = {.dtype = TX_I32, .shape = TX_SHAPE(t->groups + 1)},
                     a = {.dtype = t->from}, y = {.dtype = result_of(t)};
    const tx_cl_product wanted = {.g = {.batch = t->groups,
                                        .m = m,
                                        .n = n,
                                        .k = k,
                                        .lda = t->trans_a ? m : k,
                                        .ldb = t->trans_b ? k : n,
                                        .ldc = n,
                                        .stride_b = t->trans_a ? 0 : k * n},
                                  .trans_a = t->trans_a,
                                  .trans_b = t->trans_b,
                                  .op = op_of(t),
                                  .from = t->from,
                                  .to = result_of(t),
                                  .a = &a,
                                  .b = &a,
                                  .y = &y,
                                  .bias = &none,
                                  .z = &none,
                                  .kept = &none,
                                  .offsets = &offsets};
    tx_cl_builder builder = tx_cl_asker(context);
    return tx_cl_gemm_choose(&builder, &wanted, choice);
}

/* Groups of several tiles, none of them whole. */
static tx_status run_tiles(tx_context *context, const proof *t, const char *provider)
{
    const tx_cl_gemm_case trial = {.batch = 1,
                                   .m = t->trans_a ? 200 : 1003,
                                   .n = 328,
                                   .k = t->trans_a ? 403 : 104,
                                   .trans_a = t->trans_a,
                                   .trans_b = t->trans_b,
                                   .op = op_of(t),
                                   .groups = t->groups,
                                   .from = t->from,
                                   .to = result_of(t),
                                   .accumulate = t->trans_a ? TX_ADD : TX_STORE};
    const tx_cl_builder asks = tx_cl_asker(context);
    return tx_cl_gemm_verify(&asks, provider, &trial, NULL);
}

static bool prove(const proof *t)
{
    const tx_open_options options = {.tf32 = t->tf32};
    tx_context *context;
    tx_cl_gemm_choice choice = {.fused = false};
    stand_in.card = t->card;
    setenv("TX_GEMM", t->expected, 1);
    tx_status status = tx_cl_open(0, &options, &context);
    if (!status) {
        context->limits.compute_units = 3; /* so that work-groups go on from tile to tile */
        status = choose(context, t, &choice);
        TX_THEN(status, run_tiles(context, t, choice.provider->name));
        tx_cl_close(context);
    }
    const char *name = status ? tx_error() : choice.provider->name;
    const bool right = !status && strncmp(name, t->expected, strlen(t->expected)) == 0;
    printf("%s  %s: %s%s, transposes %d%d, %d groups: %s %s\n", right ? "ok" : "FAIL", t->card, tx_dtype_name(t->from),
           t->tf32 ? " as tf32" : "", t->trans_a, t->trans_b, (int)t->groups, name, choice.rejected);
    fflush(stdout);
    return right;
}

int main(int argc, char **argv)
{
    static const proof proofs[] = {
        {"v100", false, false, true, TX_F16, 5, "portable-tile-128x128x8"},
        {"v100", false, true, false, TX_F32, 5, "portable-tile-64x64x8"},
        {"a100", false, false, true, TX_F16, 5, "nvidia-mma-128x256"},
        {"a100", false, true, false, TX_BF16, 5, "nvidia-mma-128x128"},
        {"a100", true, false, false, TX_F32, 7, "nvidia-mma-128x128"},
        {"a100", false, true, false, TX_F32, 5, "nvidia-mma-3xtf32"},
        {"h200", false, false, true, TX_BF16, 9, "nvidia-wgmma-128x256"},
        {"h200", false, false, false, TX_F16, 5, "nvidia-wgmma-128x128"},
        {"h200", false, true, false, TX_BF16, 5, "nvidia-wgmma-128x256"},
        {"h200", false, false, true, TX_BF16, 9, "nvidia-wgmma-overlap-128x256"},
        {"h200", false, false, false, TX_F16, 5, "nvidia-wgmma-overlap-128x256"},
        {"h200", false, false, true, TX_F32, 5, "nvidia-wgmma-6xbf16"},
        {"h200", false, true, false, TX_F32, 5, "nvidia-wgmma-6xbf16"},
        {"h200", true, false, false, TX_F32, 7, "nvidia-wgmma-3xbf16"},
        {"mi250", false, false, false, TX_F32, 5, "amd-mfma-fp32"},
        {"mi300x", false, false, true, TX_BF16, 5, "amd-mfma"},
        {"mi300x", false, true, false, TX_F16, 5, "amd-mfma"},
        {"rx7900xtx", false, false, false, TX_BF16, 5, "amd-wmma"},
        {"rx7900xtx", false, true, false, TX_F16, 5, "amd-wmma"},
        {"rx9070", false, false, true, TX_F16, 5, "amd-wmma"},
        {"rx9070", false, true, false, TX_BF16, 5, "amd-wmma"},
        {"a770", false, false, true, TX_BF16, 5, "intel-dpas"},
        {"a770", false, true, false, TX_F16, 5, "intel-dpas"},
        {"b580", false, false, false, TX_BF16, 5, "intel-dpas"},
        {"b580", false, true, false, TX_F16, 5, "intel-dpas"},
    };
    const char *some = argc > 1 ? argv[1] : "";
    int32_t devices = 0;
    bool good = true;
    if (tx_cl_device_count(&devices) != TX_OK || devices == 0)
        return printf("skipped: no OpenCL device\n"), 77;
    setenv("TX_GEMM_TUNE", "0", 1);
    for (size_t i = 0; i < sizeof proofs / sizeof proofs[0]; i++)
        if (strncmp(proofs[i].expected, some, strlen(some)) == 0)
            good = prove(&proofs[i]) && good;
    if (stand_in.broken[0])
        printf("FAIL %s\n", stand_in.broken);
    return good && !stand_in.broken[0] ? 0 : 1;
}
