/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulated cards (stand_in.h): the properties that TX finds, and its choice of provider, tile and form of attention.
 *
 *     test_stand_in table [FILE]      prints the choices for GPT-2 124M; exit status 1 if they differ from FILE
 *
 *     test_stand_in products [NAME]   emulated matrix units prove correct and are chosen (providers NAME...)
 *     test_stand_in spills            a form that spills is replaced by the next form
 *
 * Exit status 77: there is no OpenCL device. */
#include "api/graph/op.h"
#include "backends/opencl/runtime/internal.h"
#include "backends/opencl/tune/trials.h"
#include "tests/opencl/stand_in.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Nothing is built for the table: the linker redirects the functions that run kernels here. */
static bool believed;

tx_status __real_tx_cl_self_test(tx_context *context);
tx_status __wrap_tx_cl_self_test(tx_context *context);
tx_status __wrap_tx_cl_self_test(tx_context *context)
{
    return believed ? TX_OK : __real_tx_cl_self_test(context);
}

tx_status __real_tx_cl_gemm_verify(const tx_cl_builder *b, const char *provider, const tx_cl_gemm_case *trial,
                                   double *seconds);
tx_status __wrap_tx_cl_gemm_verify(const tx_cl_builder *b, const char *provider, const tx_cl_gemm_case *trial,
                                   double *seconds);
tx_status __wrap_tx_cl_gemm_verify(const tx_cl_builder *b, const char *provider, const tx_cl_gemm_case *trial,
                                   double *seconds)
{
    return believed ? TX_OK : __real_tx_cl_gemm_verify(b, provider, trial, seconds);
}

tx_status __real_tx_cl_attention_verify(const tx_cl_builder *b, const tx_cl_attention_job *a,
                                        tx_cl_attention_kernel kernel, const tx_cl_attention_form *form);
tx_status __wrap_tx_cl_attention_verify(const tx_cl_builder *b, const tx_cl_attention_job *a,
                                        tx_cl_attention_kernel kernel, const tx_cl_attention_form *form);
tx_status __wrap_tx_cl_attention_verify(const tx_cl_builder *b, const tx_cl_attention_job *a,
                                        tx_cl_attention_kernel kernel, const tx_cl_attention_form *form)
{
    return believed ? TX_OK : __real_tx_cl_attention_verify(b, a, kernel, form);
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

typedef struct product {
    const char *name;
    int64_t m, n, k;
    bool trans_a, trans_b;
    int64_t groups; /* number of experts, or 0 for a single product */
} product;

/* The products of GPT-2 124M: 16 rows of 1024 tokens, the classifier by 2048 rows, one token. And the products of the
 * experts of Qwen2-MoE: 8192 tokens, each with 4 of 60 experts. */
static const product products[] = {
    {"qkv", 16384, 2304, 768, false, false, 0},           {"fc", 16384, 3072, 768, false, false, 0},
    {"proj", 16384, 768, 3072, false, false, 0},          {"classifier", 2048, 50304, 768, false, true, 0},
    {"fc dX", 16384, 768, 3072, false, true, 0},          {"proj dW", 3072, 768, 16384, true, false, 0},
    {"classifier dW", 50304, 768, 2048, true, false, 0},  {"fc, a token", 1, 3072, 768, false, false, 0},
    {"qkv dW", 768, 2304, 16384, true, false, 0},         {"attention proj dW", 768, 768, 16384, true, false, 0},
    {"classifier dX", 2048, 768, 50304, false, false, 0}, {"experts", 32768, 1408, 2048, false, true, 60},
    {"experts dX", 32768, 2048, 1408, false, false, 60},  {"experts dW", 1408, 2048, 32768, true, false, 60},
};
#define PRODUCTS (sizeof products / sizeof products[0])

static tx_operand matrix(tx_dtype dtype, bool turned, int64_t rows, int64_t columns)
{
    return (tx_operand){.dtype = dtype, .shape = turned ? TX_SHAPE(columns, rows) : TX_SHAPE(rows, columns)};
}

static tx_status choose(tx_context *context, const product *p, tx_dtype from, tx_epilogue epilogue,
                        tx_cl_gemm_choice *choice)
{
    const tx_operand none = {.dtype = TX_DTYPE_COUNT}, a = matrix(from, p->trans_a, p->m, p->k),
                     b = matrix(from, p->trans_b, p->k, p->n), y = matrix(TX_F32, false, p->m, p->n);
    const tx_attrs attrs = {.trans_a = p->trans_a, .trans_b = p->trans_b, .flat = true};
    const tx_operand offsets = {.dtype = TX_I32, .shape = TX_SHAPE(p->groups + 1)};
    tx_cl_product wanted = {.g = tx_gemm_of(&attrs, &a.shape, &b.shape),
                            .trans_a = p->trans_a,
                            .trans_b = p->trans_b,
                            .from = from,
                            .epilogue = epilogue,
                            .a = &a,
                            .b = &b,
                            .y = &y,
                            .bias = &none,
                            .z = &none,
                            .kept = &none};
    if (p->groups > 0) {
        wanted.offsets = &offsets;
        wanted.g.batch = p->groups;
        wanted.g.stride_a = 0;
        wanted.g.stride_b = p->trans_a ? 0 : p->k * p->n;
    }
    tx_cl_builder builder = tx_cl_asker(context);
    return tx_cl_gemm_choose(&builder, &wanted, choice);
}

/* The parts of the terms, and how full the waves are: full with many terms, unless adding the parts would cost more. */
static bool print_waves(FILE *out, tx_context *context, const product *p, const tx_cl_provider *provider)
{
    const tx_gemm g = {.batch = 1, .m = p->m, .n = p->n, .k = p->k};
    tx_cl_builder builder = tx_cl_asker(context);
    const tx_cl_tile *t = provider->tile;
    const int64_t units = context->limits.compute_units;
    int64_t parts;
    if (!t || p->groups > 0)
        return true;
    const bool asked = tx_cl_tile_parts(&builder, provider, &g, &parts) == TX_OK;
    if (!asked || parts == TX_CL_EVEN)
        return asked && fprintf(out, " even") > 0;
    const int64_t groups = tx_cl_blocks(g.m, t->rows) * tx_cl_blocks(g.n, t->columns) * parts;
    const double fill = (double)groups / (double)(tx_cl_blocks(groups, units) * units);
    const bool good = fill >= (strncmp(provider->name, "portable", 8) == 0 && p->k >= 16384 ? 0.9 : 0.5);
    fprintf(out, " x%d %.2f", (int)parts, fill);
    if (!good)
        printf("FAIL %s, %s: %.2f of the units work\n", stand_in.card, p->name, fill);
    return good;
}

/* fp32, tf32, bf16. */
static bool print_product(FILE *out, tx_context *context, const product *p)
{
    char aside[TX_CL_REJECTED] = "";
    bool good = true;
    fprintf(out, "%s\t%s", stand_in.card, p->name);
    for (int type = 0; type < 3; type++) {
        tx_cl_gemm_choice choice;
        context->tf32 = type == 1;
        if (choose(context, p, type == 2 ? TX_BF16 : TX_F32, TX_EPILOGUE_NONE, &choice) != TX_OK) {
            printf("FAIL %s, %s: %s\n", stand_in.card, p->name, tx_error());
            return false;
        }
        fprintf(out, "\t%s", choice.provider->name);
        good = print_waves(out, context, p, choice.provider) && good;
        snprintf(aside, sizeof aside, "%s", choice.rejected);
    }
    fprintf(out, "\t%s\n", aside);
    return good;
}

/* ---- Attention --------------------------------------------------------------------------------------------------- */

/* Prints the forms for attention of GPT-2's widths: forward, dQ, dK and dV. */
static bool print_attention(FILE *out, tx_context *context, int32_t d, tx_dtype type)
{
    const int32_t heads = 768 / d;
    const tx_operand qkv = {.dtype = type, .shape = TX_SHAPE(16, 1024, 3 * 768)}, o = matrix(type, false, 16384, 768);
    tx_command c = {
        .op = TX_OP_ATTENTION_GRAD,
        .attrs = {.attention.heads = heads, .attention.kv_heads = heads, .attention.causal = true, .scale = 0.125f}};
    for (int i = 0; i < TX_MAX_IN; i++)
        c.in[i].dtype = TX_DTYPE_COUNT;
    for (int i = 0; i < TX_MAX_OUT; i++)
        c.out[i].dtype = TX_DTYPE_COUNT;
    c.in[0] = o;
    c.in[1] = c.out[0] = qkv;
    fprintf(out, "%s\tattention, heads of %d%s", stand_in.card, d, type == TX_F32 ? "" : ", bf16");
    tx_cl_builder builder = tx_cl_asker(context);
    char note[160] = "", *aside = NULL;
    for (int kernel = 0; kernel < 3; kernel++) {
        tx_cl_attention_job job = {
            .command = &c, .B = 16, .T = 1024, .S = 1024, .last = 3 * 768, .heads = heads, .kv_heads = heads, .d = d};
        job.type = type;
        job.limits = &context->limits;
        tx_cl_attention_form form;
        if (tx_cl_attention_choose(&builder, &job, (tx_cl_attention_kernel)kernel, &form, note) != TX_OK) {
            printf("FAIL %s, attention: %s\n", stand_in.card, tx_error());
            return false;
        }
        fprintf(out, "\t%s", form.name);
        aside = strchr(note, '(');
    }
    if (aside)
        aside[strlen(aside) - 1] = '\0';
    fprintf(out, "\t%s\n", aside ? aside + 1 : "");
    return true;
}

/* A run keeps the number of parts that it chose at the start. */
static bool keeps_parts(tx_context *context)
{
    const tx_gemm g = {.batch = 1, .m = 3072, .n = 768, .k = 16384};
    const tx_cl_provider *tile = tx_cl_gemm_provider(0);
    tx_cl_builder builder = tx_cl_asker(context);
    int64_t parts = 0;
    for (int i = 1; strcmp(tile->name, "portable-tile-64x128x8") != 0; i++)
        tile = tx_cl_gemm_provider(i);
    bool good = tx_cl_choose(context, "parts portable-tile-64x128x8 1 3072 768 16384\t99\n") == TX_FORMAT &&
                tx_cl_choose(context, "parts portable-tile-64x128x8 1 3072 768 16384\t3\n") == TX_OK;
    good = good && tx_cl_tile_parts(&builder, tile, &g, &parts) == TX_OK && parts == 3;
    if (!good)
        printf("FAIL %s: %d parts instead of 3\n", stand_in.card, (int)parts);
    return good;
}

/* Rows of which 32 bits do not count a block's elements are not for matrix units. */
static bool leaves_long_rows(tx_context *context)
{
    const product p = {"", 256, 256, 1 << 24, false, false, 0};
    tx_cl_gemm_choice choice;
    const bool good = choose(context, &p, TX_BF16, TX_EPILOGUE_NONE, &choice) == TX_OK &&
                      strncmp(choice.provider->name, "portable", 8) == 0;
    if (!good)
        printf("FAIL %s: rows of 2^24 elements\n", stand_in.card);
    return good;
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

static bool print_card(FILE *out, const char *card)
{
    tx_context *context;
    stand_in.card = card;
    if (tx_cl_open(0, NULL, &context) != TX_OK) {
        printf("FAIL %s: %s\n", card, tx_error());
        return false;
    }
    const tx_cl_capabilities *can = &context->can;
    fprintf(out, "%s\tis\t%s\t%d units\tsub-groups of %d\t%s%s%s\n", card,
            can->architecture[0] ? can->architecture : "not known", can->units, can->sub_group, can->f16 ? "f16 " : "",
            can->bf16 ? "bf16 " : "", can->tf32 ? "tf32" : "");
    bool good = true;
    for (size_t i = 0; i < PRODUCTS; i++)
        good = print_product(out, context, &products[i]) && good;
    for (int i = 0; i < 4; i++)
        good = print_attention(out, context, i % 2 ? 128 : 64, i < 2 ? TX_F32 : TX_BF16) && good;
    good = keeps_parts(context) && leaves_long_rows(context) && good;
    tx_cl_close(context);
    stand_in.card = NULL;
    return good;
}

static char *read_whole(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 1 << 16);
    if (!file || !text || fread(text, 1, (1 << 16) - 1, file) == 0)
        return printf("FAIL %s cannot be read\n", path), NULL;
    fclose(file);
    return text;
}

static int make_table(const char *path)
{
    char *text = NULL, *recorded = NULL;
    size_t size = 0;
    bool good = true;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return 1;
    believed = true;
    setenv("TX_GEMM_TUNE", "0", 1);
    fputs("# SPDX-License-Identifier: Apache-2.0\n# What test_stand_in table prints.\n"
          "card\twhat\tfp32, or forward\ttf32, or dQ\tbf16, or dK and dV\taside\n",
          out);
    for (int i = 0; stand_in_card(i); i++)
        good = print_card(out, stand_in_card(i)) && good;
    fclose(out);
    fputs(text, stdout);
    if (path && (!(recorded = read_whole(path)) || strcmp(text, recorded) != 0)) {
        printf("FAIL this is not the table in %s\n", path);
        good = false;
    }
    free(text);
    free(recorded);
    return good ? 0 : 1;
}

/* ---- Matrix units ------------------------------------------------------------------------------------------------ */

/* A product on a card: the types and transposes, the epilogue, and the expected provider. */
typedef struct proof {
    const char *card;
    bool tf32, trans_a, trans_b;
    tx_dtype from;
    tx_epilogue epilogue;
    const char *expected;
} proof;

/* Many tiles, none of them whole. */
static tx_status run_tiles(tx_context *context, const proof *t, const char *provider, int64_t terms)
{
    const tx_cl_gemm_case trial = {.batch = 1,
                                   .m = 200,
                                   .n = 328,
                                   .k = terms,
                                   .trans_a = t->trans_a,
                                   .trans_b = t->trans_b,
                                   .bias = true,
                                   .from = t->from,
                                   .to = t->from,
                                   .accumulate = TX_ADD};
    const tx_cl_builder asks = tx_cl_asker(context);
    return tx_cl_gemm_verify(&asks, provider, &trial, NULL);
}

static bool prove_product(const proof *t)
{
    const tx_open_options options = {.tf32 = t->tf32};
    const product p = {"", 2048, 3072, 1024, t->trans_a, t->trans_b, 0}; /* large enough for tiles of matrix units */
    tx_context *context;
    tx_cl_gemm_choice choice = {.fused = false};
    stand_in.card = t->card;
    if (strncmp(t->expected, "portable", 8) == 0)
        unsetenv("TX_GEMM");
    else
        setenv("TX_GEMM", t->expected, 1);
    tx_status status = tx_cl_open(0, &options, &context);
    if (!status) {
        context->limits.compute_units = 3; /* so that groups go on from tile to tile */
        status = choose(context, &p, t->from, t->epilogue, &choice);
        TX_THEN(status, run_tiles(context, t, choice.provider->name, 104));
        TX_THEN(status, run_tiles(context, t, choice.provider->name, 40));
        tx_cl_close(context);
    }
    const char *name = status ? tx_error() : choice.provider->name;
    const bool right = !status && choice.fused && strncmp(name, t->expected, strlen(t->expected)) == 0;
    printf("%s  %s: %s%s, transposes %d%d, epilogue %d: %s %s\n", right ? "ok" : "FAIL", t->card,
           tx_dtype_name(t->from), t->tf32 ? " as tf32" : "", t->trans_a, t->trans_b, (int)t->epilogue, name,
           choice.rejected);
    fflush(stdout);
    return right;
}

/* A product whose data need all bits of fp32. */
static tx_status multiply_rough(const char *provider, bool tf32)
{
    const tx_open_options options = {.tf32 = tf32};
    const tx_cl_gemm_case trial = {.batch = 1, .m = 64, .n = 64, .k = 4096, .trans_b = true, .rough = true};
    tx_context *context;
    TX_TRY(tx_cl_open(0, &options, &context));
    const tx_cl_builder asks = tx_cl_asker(context);
    tx_status status = tx_cl_gemm_verify(&asks, provider, &trial, NULL);
    tx_cl_close(context);
    return status;
}

/* Products of fp32 by units made for less have no larger errors than additions in fp32. Those by tf32 have. */
static bool prove_error(const char *card, const char *provider, const char *by_tf32)
{
    stand_in.card = card;
    const tx_status status = multiply_rough(provider, false);
    bool right = status == TX_OK;
    if (right && by_tf32)
        right = multiply_rough(by_tf32, true) == TX_DEVICE && strstr(tx_error(), "should be") != NULL;
    printf("%s  %s: error of %s%s%s\n", right ? "ok" : "FAIL", card, provider, status || by_tf32 ? "; " : "",
           status || by_tf32 ? tx_error() : "");
    return right;
}

static int prove_products(const char *some)
{
    static const proof proofs[] = {
        {"a100", false, false, false, TX_F32, TX_EPILOGUE_NONE, "portable-tile"},
        {"h200", true, false, false, TX_F32, TX_EPILOGUE_ADD, "nvidia-mma-128x256"},
        {"a100", true, true, false, TX_F32, TX_EPILOGUE_NONE, "nvidia-mma-128x128"},
        {"h200", true, true, true, TX_F32, TX_EPILOGUE_NONE, "nvidia-mma-128x256"},
        {"rtx4090", true, false, true, TX_F32, TX_EPILOGUE_NONE, "nvidia-mma-128x128"},
        {"h200", false, false, true, TX_BF16, TX_EPILOGUE_GELU_GRAD, "nvidia-mma-128x256"},
        {"h200", false, true, false, TX_BF16, TX_EPILOGUE_GELU, "nvidia-mma-128x128"},
        {"rtx5090", false, true, true, TX_F16, TX_EPILOGUE_NONE, "nvidia-mma-128x256"},
        {"h200", false, false, false, TX_BF16, TX_EPILOGUE_GELU, "nvidia-wgmma-128x256"},
        {"h200", false, false, true, TX_F16, TX_EPILOGUE_ADD, "nvidia-wgmma-128x256"},
        {"h200", false, true, false, TX_BF16, TX_EPILOGUE_NONE, "nvidia-wgmma-128x256"},
        {"h200", false, true, true, TX_F16, TX_EPILOGUE_GELU_GRAD, "nvidia-wgmma-128x256"},
        {"h200", false, true, true, TX_F16, TX_EPILOGUE_GELU_GRAD, "nvidia-wgmma-128x128"},
        {"h200", false, true, false, TX_F16, TX_EPILOGUE_NONE, "nvidia-wgmma-128x128"},
        {"h200", false, false, true, TX_BF16, TX_EPILOGUE_ADD, "nvidia-wgmma-128x128"},
        {"h200", false, false, false, TX_F16, TX_EPILOGUE_ADD, "nvidia-mma-128x128"},
        {"h200", false, false, false, TX_F32, TX_EPILOGUE_ADD, "nvidia-mma-3xtf32"},
        {"h200", false, false, false, TX_F32, TX_EPILOGUE_ADD, "nvidia-wgmma-6xbf16"},
        {"h200", false, false, true, TX_F32, TX_EPILOGUE_GELU_GRAD, "nvidia-wgmma-6xbf16"},
        {"h200", false, true, false, TX_F32, TX_EPILOGUE_NONE, "nvidia-wgmma-6xbf16"},
        {"h200", false, true, true, TX_F32, TX_EPILOGUE_GELU, "nvidia-wgmma-6xbf16"},
        {"h200", true, true, false, TX_F32, TX_EPILOGUE_ADD, "nvidia-wgmma-3xbf16"},
        {"a100", false, true, false, TX_F32, TX_EPILOGUE_NONE, "nvidia-mma-3xtf32"},
        {"a100", false, false, true, TX_F32, TX_EPILOGUE_NONE, "nvidia-mma-3xtf32"},
        {"v100", false, false, false, TX_F16, TX_EPILOGUE_NONE, "portable-tile"},
        {"mi250", false, false, true, TX_BF16, TX_EPILOGUE_GELU, "amd-mfma"},
        {"mi250", true, false, false, TX_F32, TX_EPILOGUE_NONE, "portable-tile"},
        {"mi250", true, false, true, TX_F32, TX_EPILOGUE_NONE, "amd-mfma-fp32"},
        {"mi300x", false, true, false, TX_F32, TX_EPILOGUE_ADD, "amd-mfma-fp32-swizzle"},
        {"mi300x", false, false, false, TX_BF16, TX_EPILOGUE_NONE, "amd-mfma"},
        {"mi300x", false, true, false, TX_F16, TX_EPILOGUE_ADD, "amd-mfma-swizzle"},
        {"mi300x", false, true, true, TX_BF16, TX_EPILOGUE_GELU_GRAD, "amd-mfma"},
        {"mi300x", true, false, false, TX_F32, TX_EPILOGUE_NONE, "amd-mfma"},
        {"mi300x", true, true, true, TX_F32, TX_EPILOGUE_ADD, "amd-mfma-swizzle"},
        {"rx7900xtx", false, false, true, TX_BF16, TX_EPILOGUE_NONE, "amd-wmma"},
        {"rx7900xtx", false, true, false, TX_F16, TX_EPILOGUE_GELU, "amd-wmma-swizzle"},
        {"rx9070", false, false, false, TX_F16, TX_EPILOGUE_NONE, "amd-wmma"},
        {"rx9070", false, true, true, TX_BF16, TX_EPILOGUE_ADD, "amd-wmma-swizzle"},
        {"a770", false, false, false, TX_BF16, TX_EPILOGUE_GELU, "intel-dpas"},
        {"a770", false, false, true, TX_F16, TX_EPILOGUE_ADD, "intel-dpas"},
        {"a770", false, true, false, TX_BF16, TX_EPILOGUE_NONE, "intel-dpas"},
        {"a770", false, true, true, TX_F16, TX_EPILOGUE_GELU_GRAD, "intel-dpas"},
        {"a770", true, false, false, TX_F32, TX_EPILOGUE_NONE, "portable-tile"},
        {"b580", false, false, false, TX_F16, TX_EPILOGUE_NONE, "intel-dpas"},
        {"b580", false, false, true, TX_BF16, TX_EPILOGUE_GELU_GRAD, "intel-dpas"},
        {"b580", false, true, false, TX_F16, TX_EPILOGUE_ADD, "intel-dpas"},
        {"b580", false, true, true, TX_BF16, TX_EPILOGUE_GELU, "intel-dpas"},
        {"b580", true, false, false, TX_F32, TX_EPILOGUE_NONE, "intel-dpas"},
        {"b580", true, false, true, TX_F32, TX_EPILOGUE_ADD, "intel-dpas"},
        {"b580", true, true, false, TX_F32, TX_EPILOGUE_NONE, "intel-dpas"},
    };
    bool good = true;
    setenv("TX_GEMM_TUNE", "0", 1);
    for (size_t i = 0; i < sizeof proofs / sizeof proofs[0]; i++)
        if (strncmp(proofs[i].expected, some, strlen(some)) == 0)
            good = prove_product(&proofs[i]) && good;
    unsetenv("TX_GEMM");
    if (strncmp("nvidia-mma-3xtf32", some, strlen(some)) == 0)
        good = prove_error("a100", "nvidia-mma-3xtf32", "nvidia-mma-128x128") && good;
    if (strncmp("amd-mfma-fp32", some, strlen(some)) == 0)
        good = prove_error("mi250", "amd-mfma-fp32", NULL) && good;
    if (stand_in.broken[0])
        printf("FAIL %s\n", stand_in.broken);
    return good && !stand_in.broken[0] ? 0 : 1;
}

/* ---- Spills ------------------------------------------------------------------------------------------------------ */

/* A driver that reports private memory for some options of a program, and the expected provider. */
static const struct spilling {
    const char *spills, *tile, *form;
} spilling[] = {
    {NULL, "portable-tile-64x128x8", "gpu-64x64-256"},
    {"", "portable-tile-64x128x8", "gpu-64x64-256"}, /* of all kernels: it does not mean spills */
    {"-DROW_QUADS=2 -DCOLUMN_QUADS=2", "portable-tile-128x64x16", "gpu-64x64-256"},
    {"-DWG=256", "portable-tile-64x128x8", "gpu-64x64-128"},
};

/* Chooses the tile of a product, and the form of attention of GPT-2 124M. */
static tx_status choose_both(tx_context *context, const char **tile, tx_cl_attention_form *form)
{
    const product p = {"", 4096, 3072, 1024, false, false, 0};
    const float scale = 0.125f;
    tx_command c = {.op = TX_OP_ATTENTION, .attrs = {.attention.heads = 12, .attention.kv_heads = 12, .scale = scale}};
    tx_cl_attention_job job = {
        .command = &c, .B = 16, .T = 1024, .S = 1024, .last = 3 * 768, .heads = 12, .kv_heads = 12, .d = 64};
    job.limits = &context->limits;
    tx_cl_builder builder = tx_cl_asker(context);
    char note[160] = "";
    tx_cl_gemm_choice choice = {.provider = NULL};
    for (int i = 0; i < TX_MAX_IN; i++)
        c.in[i].dtype = TX_DTYPE_COUNT;
    for (int i = 0; i < TX_MAX_OUT; i++)
        c.out[i].dtype = TX_DTYPE_COUNT;
    c.in[0] = (tx_operand){.dtype = TX_F32, .shape = TX_SHAPE(16, 1024, 3 * 768)};
    c.out[0] = (tx_operand){.dtype = TX_F32, .shape = TX_SHAPE(16, 1024, 768)};
    c.out[1] = (tx_operand){.dtype = TX_F32, .shape = TX_SHAPE(16, 12, 1024)};
    tx_status status = choose(context, &p, TX_F32, TX_EPILOGUE_NONE, &choice);
    TX_THEN(status, tx_cl_attention_choose(&builder, &job, TX_CL_FORWARD, form, note));
    *tile = choice.provider ? choice.provider->name : "";
    printf("    %s; attention %s\n", choice.rejected, note);
    return status;
}

static int prefer_whole(void)
{
    bool good = true;
    setenv("TX_GEMM_TUNE", "0", 1);
    stand_in.card = "mi250";
    for (size_t i = 0; i < sizeof spilling / sizeof spilling[0]; i++) {
        const struct spilling *s = &spilling[i];
        tx_context *context;
        tx_cl_attention_form form = {.name = ""};
        const char *tile = "";
        stand_in.spills = s->spills;
        tx_status status = tx_cl_open(0, NULL, &context);
        if (!status) {
            status = choose_both(context, &tile, &form);
            tx_cl_close(context);
        }
        const bool right = !status && strcmp(tile, s->tile) == 0 && strcmp(form.name, s->form) == 0;
        printf("%s  spills %s: %s and %s%s%s\n", right ? "ok" : "FAIL", s->spills ? s->spills : "not told", tile,
               form.name, status ? ": " : "", status ? tx_error() : "");
        good = right && good;
    }
    return good ? 0 : 1;
}

int main(int argc, char **argv)
{
    int32_t devices = 0;
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "table") != 0 && strcmp(what, "products") != 0 && strcmp(what, "spills") != 0)
        return fprintf(stderr, "usage: test_stand_in table [FILE] | products [NAME] | spills\n"), 2;
    if (tx_cl_device_count(&devices) != TX_OK || devices == 0)
        return printf("skipped: no OpenCL device\n"), 77;
    return strcmp(what, "table") == 0    ? make_table(argv[2])
           : strcmp(what, "spills") == 0 ? prefer_whole()
                                         : prove_products(argc > 2 ? argv[2] : "");
}
