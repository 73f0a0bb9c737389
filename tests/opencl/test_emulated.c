/* SPDX-License-Identifier: Apache-2.0
 *
 * Products by emulated matrix units of a simulated H200:
 *
 *     test_emulated errors [TERMS]   fp32 by planes of bf16 (gemm_matrix_planes.c), next to other providers and to an
 * fp32 sum; exit status 1 if planes have larger errors than fp32 additions test_emulated limits           fp32 by
 * planes: infinity, NaN, overflow, subnormal numbers, odd sizes, offsets, parts test_emulated even             sums
 * that are split evenly among work-groups, also of operands in bf16 test_emulated gelu             the short forms of
 * GELU and its derivative
 *
 * The emulated units truncate sums. Exit status 77: there is no OpenCL device. */
#include "api/base/half.h"
#include "backends/opencl/runtime/internal.h"
#include "backends/opencl/tune/trials.h"
#include "tests/opencl/stand_in.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct product {
    int64_t m, n, k;
    bool trans_a, trans_b;
    int64_t shift; /* elements by which a and b begin after an aligned address */
    float *a, *b, *y;
    bool bf16; /* the device has a and b in bf16 */
    tx_epilogue epilogue;
    bool exact; /* form of GELU */
} product;

/* ---- A product on the card ----------------------------------------------------------------------------------------- */

static float *element_a(const product *p, int64_t row, int64_t term)
{
    return p->a + (p->trans_a ? term * p->m + row : row * p->k + term);
}

static float *element_b(const product *p, int64_t term, int64_t column)
{
    return p->b + (p->trans_b ? column * p->k + term : term * p->n + column);
}

static float *zeros(int64_t count)
{
    float *made = calloc((size_t)count, sizeof *made);
    if (!made)
        abort();
    return made;
}

static product make(int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b, int64_t shift)
{
    return (product){
        m, n, k, trans_a, trans_b, shift, zeros(m * k), zeros(k * n), zeros(m * n), false, TX_EPILOGUE_NONE, false};
}

static void release(const product *p)
{
    free(p->a);
    free(p->b);
    free(p->y);
}

static void place(tx_operand *o, tx_dtype dtype, tx_shape shape, int64_t shift, int64_t *bytes)
{
    *o = (tx_operand){.dtype = dtype, .shape = shape, .arena = TX_ARENA_PLANNED, .offset = *bytes + 4 * shift};
    *bytes = tx_cl_blocks(o->offset + tx_operand_bytes(o), TX_ALIGNMENT) * TX_ALIGNMENT;
}

/* Returns numbers as operand `o` stores them. They must live until the queue has copied them. */
static void *stored(const tx_operand *o, const float *values)
{
    const int64_t count = tx_shape_count(&o->shape);
    float *copy = zeros(count);
    uint16_t *halves = (uint16_t *)copy;
    for (int64_t i = 0; i < count && o->dtype == TX_BF16; i++)
        halves[i] = tx_f32_to_bf16(values[i]);
    for (int64_t i = 0; i < count && o->dtype == TX_F32; i++)
        copy[i] = values[i];
    return copy;
}

/* Computes p->y by a provider, and the bytes of scratch memory. */
static tx_status multiply(tx_context *context, const char *provider, const product *p, int64_t *scratch)
{
    const tx_cl_forced forced = {TX_CL_PRODUCT, provider, NULL};
    tx_command c = {.op = TX_OP_MATMUL, .attrs = {.trans_a = p->trans_a, .trans_b = p->trans_b, .flat = true}};
    c.attrs.epilogue = p->epilogue;
    c.attrs.exact = p->exact;
    tx_buffer *memory = NULL, *control = NULL, *extra = NULL;
    tx_executable *x = NULL;
    tx_controls controls = {{{0}}};
    int64_t bytes = 0;
    for (int i = 0; i < TX_MAX_IN; i++)
        c.in[i].dtype = TX_DTYPE_COUNT;
    for (int i = 0; i < TX_MAX_OUT; i++)
        c.out[i].dtype = TX_DTYPE_COUNT;
    const tx_dtype type = p->bf16 ? TX_BF16 : TX_F32;
    place(&c.in[0], type, p->trans_a ? TX_SHAPE(p->k, p->m) : TX_SHAPE(p->m, p->k), p->shift, &bytes);
    place(&c.in[1], type, p->trans_b ? TX_SHAPE(p->n, p->k) : TX_SHAPE(p->k, p->n), p->shift, &bytes);
    place(&c.out[0], TX_F32, TX_SHAPE(p->m, p->n), 0, &bytes);
    const tx_program program = {.length = 1, .commands = &c, .trial = &forced};
    tx_status s = tx_cl_prepare(context, &program, &x, scratch);
    TX_THEN(s, tx_cl_allocate(context, TX_MEMORY_ACTIVATIONS, TX_SPACE_DEVICE, bytes, &memory));
    TX_THEN(s, tx_cl_allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, sizeof controls, &control));
    if (!s && *scratch > 0)
        s = tx_cl_allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, *scratch, &extra);
    const tx_bindings bindings = {.arena = {[TX_ARENA_PLANNED] = {1, &memory},
                                            [TX_ARENA_CONTROL] = {1, &control},
                                            [TX_ARENA_SCRATCH] = {extra != NULL, &extra}}};
    TX_THEN(s, tx_cl_bind(x, &bindings));
    TX_THEN(s, tx_cl_write(context, TX_QUEUE_COMPUTE, control, 0, &controls, sizeof controls));
    void *const from[] = {stored(&c.in[0], p->a), stored(&c.in[1], p->b)};
    for (int i = 0; i < 2; i++)
        TX_THEN(s, tx_cl_write(context, TX_QUEUE_COMPUTE, memory, c.in[i].offset, from[i], tx_operand_bytes(&c.in[i])));
    TX_THEN(s, tx_cl_run_program(x, 0, 1, &controls, NULL));
    TX_THEN(s, tx_cl_read(context, memory, c.out[0].offset, p->y, 4 * p->m * p->n));
    tx_cl_destroy(x);
    free(from[0]);
    free(from[1]);
    tx_buffer *const all[] = {memory, control, extra};
    for (int i = 0; i < 3; i++)
        if (all[i])
            tx_cl_release(context, all[i]);
    return s;
}

/* ---- Errors -------------------------------------------------------------------------------------------------------- */

static float draw(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(state >> 40) / (1 << 24) * 2.0 - 1.0);
}

/* Random numbers; positive ones; rows, columns and terms of very different sizes; pairs of terms that cancel out except
 * for the last four bits. */
enum { RANDOM, POSITIVE, SCALED, CANCELLING, KINDS };
static const char *const kinds[] = {"random", "positive", "badly scaled", "cancelling"};

static void fill(const product *p, int kind)
{
    for (int64_t t = 0; t < p->k; t++) {
        for (int64_t i = 0; i < p->m; i++) {
            const float v = draw();
            *element_a(p, i, t) = kind == POSITIVE ? fabsf(v)
                                  : kind == SCALED ? ldexpf(v, (int)(i % 61 - 30 + t % 17))
                                                   : v;
            if (kind == CANCELLING && t % 2)
                *element_a(p, i, t) = *element_a(p, i, t - 1);
        }
        for (int64_t j = 0; j < p->n; j++) {
            const float v = draw();
            *element_b(p, t, j) = kind == POSITIVE ? fabsf(v)
                                  : kind == SCALED ? ldexpf(v, (int)(j % 47 - 23 - t % 13))
                                                   : v;
            if (kind == CANCELLING && t % 2)
                *element_b(p, t, j) = -*element_b(p, t - 1, j) * (1.0f + 0x1p-20f * v);
        }
    }
}

/* The errors of all elements in units of 2^-24 of the sum of the terms' sizes. */
typedef struct errors {
    double rms, most;
} errors;

static errors errors_of(const product *p, const float *y)
{
    errors e = {0.0, 0.0};
    for (int64_t i = 0; i < p->m * p->n; i++) {
        double sum = 0.0, size = 0.0;
        for (int64_t t = 0; t < p->k; t++) {
            const double v = (double)*element_a(p, i / p->n, t) * (double)*element_b(p, t, i % p->n);
            sum += v;
            size += fabs(v);
        }
        const double error = 0x1p24 * fabs((double)y[i] - sum) / size;
        e.rms += error * error;
        e.most = !(error <= e.most) ? error : e.most;
    }
    e.rms = sqrt(e.rms / (double)(p->m * p->n));
    return e;
}

/* Sums of products in fp32, in the order of the terms: each operation rounds. */
static void add_in_order(const product *p, float *y)
{
    for (int64_t i = 0; i < p->m * p->n; i++) {
        y[i] = 0.0f;
        for (int64_t t = 0; t < p->k; t++)
            y[i] += *element_a(p, i / p->n, t) * *element_b(p, t, i % p->n);
    }
}

static bool compare(tx_context *const context[2], int kind, int64_t terms)
{
    static const struct {
        const char *name;
        bool tf32;
    } by[] = {{"portable-tile-64x64x8", false},
              {"nvidia-mma-3xtf32", false},
              {"nvidia-wgmma-6xbf16", false},
              {"nvidia-mma-128x128", true},
              {"nvidia-wgmma-3xbf16", true}};
    enum { TILE, THREE_TF32, SIX, TF32, THREE, ALL };
    const product p = make(64, 64, terms, false, true, 0);
    errors e[ALL], plain;
    int64_t scratch;
    tx_status s = TX_OK;
    fill(&p, kind);
    add_in_order(&p, p.y);
    plain = errors_of(&p, p.y);
    printf("%s, %d terms: fp32 sum %.3g (at most %.3g)", kinds[kind], (int)terms, plain.rms, plain.most);
    for (int i = 0; i < ALL && !s; i++) {
        s = multiply(context[by[i].tf32], by[i].name, &p, &scratch);
        e[i] = errors_of(&p, p.y);
        printf(", %s %.3g (%.3g)", by[i].name, e[i].rms, e[i].most);
        fflush(stdout);
    }
    const bool good = !s && e[SIX].rms <= plain.rms && e[SIX].most <= plain.most && e[SIX].rms <= e[TILE].rms &&
                      e[SIX].most <= e[TILE].most && e[THREE].rms <= e[TF32].rms && e[THREE].most <= e[TF32].most;
    printf("%s%s\n", good ? "" : " FAIL ", s ? tx_error() : "");
    release(&p);
    return good;
}

/* ---- Limits -------------------------------------------------------------------------------------------------------- */

/* Sets numbers whose planes give NaN or infinity, with which fp32 does not, and the other way round. */
static void set_limits(const product *p)
{
    static const float rows[] = {INFINITY, -INFINITY, NAN, FLT_MAX, -FLT_MAX, 0x1.FEp127f, 0x1p-130f, 0x1p-149f, 0.0f};
    static const float columns[] = {0.0f, -0.0f, 1.0f, 0x1.FFFFFEp-2f, 0x1.010102p0f, INFINITY, NAN, 0x1p-140f, 2.0f};
    enum { ROWS = sizeof rows / sizeof rows[0], COLUMNS = sizeof columns / sizeof columns[0] };
    for (int64_t i = 0; i < p->m; i++) /* rows 1, 3... begin with these, the others are finite */
        for (int64_t t = 0; t < p->k; t++)
            *element_a(p, i, t) = i % 2 && t == i % p->k ? rows[i / 2 % ROWS] : 0x1p-20f * draw();
    for (int64_t j = 0; j < p->n; j++)
        for (int64_t t = 0; t < p->k; t++)
            *element_b(p, t, j) = j % 3 == 0 && t % 5 != 4 ? columns[j / 3 % COLUMNS] : draw();
}

/* Compares with fp32 sums in the order of the terms: the same NaN and infinities, and finite sums within a relative
 * error plus the last bit of bf16's subnormal numbers. */
static int64_t faults_of(const product *p, double relative)
{
    int64_t faults = 0;
    for (int64_t i = 0; i < p->m * p->n; i++) {
        const float got = p->y[i];
        float want = 0.0f;
        double size = 0.0, sizes = 0.0;
        for (int64_t t = 0; t < p->k; t++) {
            const float a = *element_a(p, i / p->n, t), b = *element_b(p, t, i % p->n);
            want = fmaf(a, b, want);
            size += fabs((double)a * (double)b);
            sizes += fabs((double)a) + fabs((double)b);
        }
        const double most = relative * size + 0x1p-133 * sizes;
        const bool right = isfinite(want) ? fabs((double)got - (double)want) <= most
                           : isnan(want)  ? isnan(got)
                                          : got == want;
        if (!right && faults++ < 3)
            printf("    element %d, %d is %.9g and should be %.9g\n", (int)(i / p->n), (int)(i % p->n), (double)got,
                   (double)want);
    }
    return faults;
}

static bool try_limits(tx_context *context, const char *provider, double relative, const product *p)
{
    int64_t scratch = 0;
    set_limits(p);
    const tx_status s = multiply(context, provider, p, &scratch);
    const int64_t faults = s ? -1 : faults_of(p, relative);
    printf("%s  %s, %d x %d x %d, transposes %d%d, shift %d, %d bytes of scratch: %d faults %s\n",
           faults ? "FAIL" : "ok", provider, (int)p->m, (int)p->n, (int)p->k, p->trans_a, p->trans_b, (int)p->shift,
           (int)scratch, (int)faults, s ? tx_error() : "");
    fflush(stdout);
    release(p);
    return faults == 0 && scratch > 0;
}

/* The last product is split into parts. */
static bool prove_limits(tx_context *const context[2])
{
    bool good = true;
    for (int transposes = 0; transposes < 4; transposes++) {
        const product p = make(61, 57, 43, transposes & 1, transposes & 2, transposes);
        good = try_limits(context[0], "nvidia-wgmma-6xbf16", 0x1p-22, &p) && good;
    }
    const product even = make(48, 56, 200, false, true, 0), parts = make(20, 60, 1240, false, true, 0);
    good = try_limits(context[1], "nvidia-wgmma-3xbf16", 0x1p-15, &even) && good;
    return try_limits(context[0], "nvidia-wgmma-6xbf16", 0x1p-22, &parts) && good;
}

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
static bool prove_even(tx_context *context)
{
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
static bool prove_gelu(tx_context *context, bool exact)
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

int main(int argc, char **argv)
{
    enum { ERRORS, LIMITS, EVEN, GELU, MODES };
    static const char *const modes[MODES] = {"errors", "limits", "even", "gelu"};
    tx_context *context[2];
    int32_t devices = 0;
    int mode = 0;
    bool good = true;
    while (mode < MODES && (argc < 2 || strcmp(argv[1], modes[mode]) != 0))
        mode++;
    if (mode == MODES)
        return fprintf(stderr, "usage: test_emulated errors [TERMS] | limits | even | gelu\n"), 2;
    if (tx_cl_device_count(&devices) != TX_OK || devices == 0)
        return printf("skipped: no OpenCL device\n"), 77;
    stand_in.card = "h200";
    setenv("TX_GEMM_TUNE", "0", 1);
    if (mode == EVEN)
        setenv("TX_GEMM_PARTS", "even", 1);
    for (int i = 0; i < 2; i++) {
        const tx_open_options options = {.tf32 = i == 1};
        if (tx_cl_open(0, &options, &context[i]) != TX_OK)
            return printf("FAIL %s\n", tx_error()), 1;
    }
    if (mode == LIMITS)
        good = prove_limits(context);
    else if (mode == EVEN)
        good = prove_even(context[0]);
    else if (mode == GELU)
        good = prove_gelu(context[0], true) && prove_gelu(context[0], false);
    for (int kind = 0; mode == ERRORS && kind < KINDS; kind++)
        for (int64_t terms = argc > 2 ? atoll(argv[2]) : 64; terms <= (argc > 2 ? atoll(argv[2]) : 1024); terms *= 16)
            good = compare(context, kind, terms) && good;
    for (int i = 0; i < 2; i++)
        tx_cl_close(context[i]);
    return good ? 0 : 1;
}
