/* SPDX-License-Identifier: Apache-2.0
 *
 * Products by emulated matrix units with operands of 16 bits:
 *
 *     test_emulated_halves even      sums that are split evenly among work-groups, also of fp32 by planes
 *     test_emulated_halves gelu      the short forms of GELU and its derivative
 *     test_emulated_halves overlap   epilogues that run while the next tile is multiplied
 *
 * Exit status 77: there is no OpenCL device. */
#include "api/base/half.h"
#include "api/graph/op.h"
#include "backends/opencl/gemm/gemm.h"
#include "tests/opencl/emulated.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Even splits --------------------------------------------------------------------------------------------------- */

/* Multiplies small integers, whose sums are exact in any order. The scratch memory holds the parts of the sums. */
static bool try_even(tx_context *context, const char *provider, product p, bool bf16, int64_t parts)
{
    int64_t scratch = 0, faults = 0;
    p.bf16 = bf16;
    for (int64_t i = 0; i < p.m * p.k; i++)
        p.a[i] = rintf(3.0f * draw());
    for (int64_t i = 0; i < p.n * p.k; i++)
        p.b[i] = rintf(3.0f * draw());
    const tx_status s = multiply(context, provider, &p, &scratch);
    for (int64_t i = 0; i < p.m * p.n; i++) {
        float want = 0.0f;
        for (int64_t t = 0; t < p.k; t++)
            want += *element_a(&p, i / p.n, t) * *element_b(&p, t, i % p.n);
        faults += !(p.y[i] == want);
    }
    const bool good = !s && faults == 0 && scratch >= 4 * parts * p.m * p.n;
    printf("%s  %s, %d x %d x %d: %d faults, %d bytes of scratch %s\n", good ? "ok" : "FAIL", provider, (int)p.m,
           (int)p.n, (int)p.k, (int)faults, (int)scratch, s ? tx_error() : "");
    fflush(stdout);
    release(&p);
    return good;
}

/* Tiles of 25 blocks of terms, the last of which is not whole. A work-group computes 8 blocks, so that a tile has up to
 * 5 parts; on a card with three units 34, more than a tile. */
static bool prove_even(tx_context *const contexts[2])
{
    tx_context *const context = contexts[0];
    bool good = try_even(context, "nvidia-wgmma-128x128", make(200, 136, 1539, true, false, 0), true, 4);
    good = try_even(context, "nvidia-wgmma-6xbf16", make(132, 60, 1030, true, false, 0), false, 3) && good;
    context->limits.compute_units = 3;
    return try_even(context, "nvidia-wgmma-128x256", make(136, 264, 1600, false, true, 0), true, 2) && good;
}

/* ---- Epilogues ----------------------------------------------------------------------------------------------------- */

static double gelu(double x, bool exact)
{
    const double inner = 1.5957691216057308 * x * (1.0 + 0.044715 * x * x);
    return exact ? 0.5 * x * erfc(-x * sqrt(0.5)) : x / (1.0 + exp(-inner));
}

/* Products -9 to 9 in fp32, in steps of 2^-7. The relative errors of the short forms are far below those of 16 bits. */
static bool try_gelu(tx_context *context, bool exact)
{
    product p = make(144, 16, 8, false, false, 0);
    int64_t scratch;
    double most = 0.0;
    p.bf16 = true;
    p.epilogue = TX_EPILOGUE_GELU;
    p.exact = exact;
    for (int64_t i = 0; i < p.m; i++) {
        *element_a(&p, i, 0) = (float)(i - p.m / 2) / 8.0f;
        *element_a(&p, i, 1) = 1.0f;
    }
    for (int64_t j = 0; j < p.n; j++) {
        *element_b(&p, 0, j) = 1.0f;
        *element_b(&p, 1, j) = (float)j / 128.0f;
    }
    const tx_status s = multiply(context, "nvidia-wgmma-128x128", &p, &scratch);
    for (int64_t i = 0; i < p.m * p.n; i++) {
        const double want = gelu((double)(i / p.n - p.m / 2) / 8.0 + (double)(i % p.n) / 128.0, exact);
        const double error = fabs((double)p.y[i] - want) / (fabs(want) + 1e-30);
        most = error <= most ? most : error;
    }
    const bool good = !s && most < 2e-5;
    printf("%s  %s GELU: relative errors of at most %.2g %s\n", good ? "ok" : "FAIL", exact ? "exact" : "tanh", most,
           s ? tx_error() : "");
    release(&p);
    return good;
}

static bool prove_gelu(tx_context *const context[2])
{
    return try_gelu(context[0], true) && try_gelu(context[0], false);
}

/* ---- Overlap ------------------------------------------------------------------------------------------------------- */

static float rounded(double x)
{
    return tx_bf16_to_f32(tx_f32_to_bf16((float)x));
}

static double gelu_slope(double x, bool exact)
{
    const double h = 0x1p-20;
    return (gelu(x + h, exact) - gelu(x - h, exact)) / (2.0 * h);
}

/* The result of an element whose rounded product is `value`. */
static double result_of(const product *p, int64_t i, double value)
{
    return p->epilogue == TX_EPILOGUE_GELU        ? gelu(value, p->exact)
           : p->epilogue == TX_EPILOGUE_GELU_GRAD ? value * gelu_slope((double)p->z[i], p->exact)
           : p->epilogue == TX_EPILOGUE_ADD       ? value + (double)p->z[i]
                                                  : value;
}

/* Multiplies multiples of 1/64, whose sums are exact. The products that an epilogue reads are equal to the bit; results
 * have at most the error of their rounding, and of the short form of GELU. */
static bool try_overlap(tx_context *context, product p)
{
    static const char *const names[] = {"no epilogue", "GELU", "gradient of GELU", "sum"};
    int64_t scratch, faults = 0;
    p.bf16 = true;
    p.to = TX_BF16;
    p.z = p.epilogue == TX_EPILOGUE_GELU_GRAD || p.epilogue == TX_EPILOGUE_ADD ? zeros(p.m * p.n) : NULL;
    p.kept = p.epilogue == TX_EPILOGUE_GELU ? zeros(p.m * p.n) : NULL;
    for (int64_t i = 0; i < p.m * p.k; i++)
        p.a[i] = rintf(3.0f * draw()) / 8.0f;
    for (int64_t i = 0; i < p.n * p.k; i++)
        p.b[i] = rintf(3.0f * draw()) / 8.0f;
    for (int64_t j = 0; p.bias && j < p.n; j++)
        p.bias[j] = rintf(64.0f * draw()) / 64.0f;
    for (int64_t i = 0; p.z && i < p.m * p.n; i++)
        p.z[i] = rounded(4.0 * draw());
    p.sums = p.epilogue == TX_EPILOGUE_GELU_GRAD ? zeros(p.n) : NULL;
    const tx_status s = multiply(context, "nvidia-wgmma-overlap-128x256", &p, &scratch);
    for (int64_t i = 0; i < p.m * p.n; i++) {
        double sum = p.bias ? (double)p.bias[i % p.n] : 0.0;
        for (int64_t t = 0; t < p.k; t++)
            sum += (double)*element_a(&p, i / p.n, t) * (double)*element_b(&p, t, i % p.n);
        const double value = (double)rounded(sum), want = result_of(&p, i, value);
        const bool right = fabs((double)p.y[i] - want) <= 0x1.04p-8 * fabs(want) + 1e-6;
        faults += !right || (p.kept && !((double)p.kept[i] == value));
    }
    for (int64_t j = 0; p.sums && j < p.n; j++) {
        double sum = 0.0, size = 0.0;
        for (int64_t i = 0; i < p.m; i++) {
            sum += (double)p.y[i * p.n + j];
            size += fabs((double)p.y[i * p.n + j]);
        }
        faults += !(fabs((double)p.sums[j] - sum) <= 1e-6 * size);
    }
    /* Rows are summed by tiles of 128, not by the smaller blocks of REDUCE. */
    faults += p.sums && !s && scratch != tx_cl_blocks(4 * tx_cl_blocks(p.m, 128) * p.n, TX_ALIGNMENT) * TX_ALIGNMENT;
    printf("%s  %d x %d x %d, transposes %d%d, %s: %d faults %s\n", !s && faults == 0 ? "ok" : "FAIL", (int)p.m,
           (int)p.n, (int)p.k, p.trans_a, p.trans_b, names[p.epilogue], (int)faults, s ? tx_error() : "");
    fflush(stdout);
    release(&p);
    return !s && faults == 0;
}

/* Returns true if a product with results of a type is computed by this provider. */
static bool is_chosen(tx_context *context, tx_dtype to, const char *provider)
{
    const tx_operand none = {.dtype = TX_DTYPE_COUNT}, a = {.dtype = TX_BF16, .shape = TX_SHAPE(16384, 768)},
                     b = {.dtype = TX_BF16, .shape = TX_SHAPE(768, 3072)},
                     y = {.dtype = to, .shape = TX_SHAPE(16384, 3072)};
    const tx_attrs attrs = {.flat = true};
    const tx_cl_product p = {.g = tx_gemm_of(&attrs, &a.shape, &b.shape),
                             .from = TX_BF16,
                             .to = to,
                             .packed = TX_F32,
                             .a = &a,
                             .b = &b,
                             .y = &y,
                             .bias = &none,
                             .z = &none,
                             .kept = &none};
    tx_cl_gemm_choice choice = {.fused = false};
    tx_cl_builder builder = tx_cl_asker(context);
    const tx_status s = tx_cl_gemm_choose(&builder, &p, &choice);
    const bool good = !s && strcmp(choice.provider->name, provider) == 0;
    printf("%s  %s results: %s\n", good ? "ok" : "FAIL", tx_dtype_name(to), s ? tx_error() : choice.provider->name);
    return good;
}

/* A card with two units, whose work-groups compute several tiles each. A tile of 8 blocks of terms or more hides the
 * whole epilogue of the tile before. Rows and columns of the last tiles are not whole. */
static bool prove_overlap(tx_context *const contexts[2])
{
    tx_context *const context = contexts[0];
    static const int64_t terms[] = {704, 40, 200, 520}; /* 11, 1, 4, and 9 blocks */
    bool good = is_chosen(context, TX_BF16, "nvidia-wgmma-overlap-128x256");
    good = is_chosen(context, TX_F32, "nvidia-wgmma-128x256") && good;
    context->limits.compute_units = 2;
    for (int epilogue = 0; epilogue < 4; epilogue++) {
        product p = make(264, 520, terms[epilogue], epilogue == 3, epilogue % 2, 0);
        p.epilogue = (tx_epilogue)epilogue;
        p.exact = epilogue == TX_EPILOGUE_GELU_GRAD;
        p.bias = epilogue != TX_EPILOGUE_GELU_GRAD ? zeros(p.n) : NULL;
        good = try_overlap(context, p) && good;
    }
    return good;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "even") == 0) {
        setenv("TX_GEMM_PARTS", "even", 1);
        return on_card(prove_even);
    }
    if (argc > 1 && strcmp(argv[1], "gelu") == 0)
        return on_card(prove_gelu);
    if (argc > 1 && strcmp(argv[1], "overlap") == 0)
        return on_card(prove_overlap);
    return fprintf(stderr, "usage: test_emulated_halves even | gelu | overlap\n"), 2;
}
