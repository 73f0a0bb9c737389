/* SPDX-License-Identifier: Apache-2.0
 * The products by NVIDIA's matrix units, without one: kernels/gemm_mma.cl as C, 128 threads as a work-group, against
 * sums in double. What is not tested here is that the driver takes the instructions; the backend's known-answer test
 * does that. */
#include "api/base/half.h"
#include "backends/backend.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/opencl/mma_host_state.h"

#define ITEMS (WARPS * LANES)

/* The kernel's arguments, in its order. */
#define ARGUMENTS                                                                                            \
    const void *a, long a_at, const void *b, long b_at, const float *bias, long bias_at, void *y, long y_at, \
        const unsigned *control, long m, long n, long k, long lda, long ldb, long stride_a, long stride_b,   \
        int accumulate, long batches, long part, long first, const float *z, long z_at, float *kept, long kept_at
typedef void (*kernel)(ARGUMENTS);

/* mma_TYPE_TRANSA_TRANSB_PARTS_EPILOGUE */
/* clang-format off */
#define EACH_FORM(X, type)                                                                                             \
    X(type, 0, 0, 0, NONE) X(type, 0, 1, 0, ADD) X(type, 1, 0, 0, GELU) X(type, 1, 1, 0, NONE) X(type, 0, 0, 1, NONE)  \
    X(type, 1, 0, 1, NONE)
/* clang-format on */
#define EACH_KERNEL(X) EACH_FORM(X, f32) EACH_FORM(X, bf16)
#define X(type, ta, tb, parts, epilogue) void mma_##type##_##ta##_##tb##_##parts##_##epilogue(ARGUMENTS);
EACH_KERNEL(X)
#undef X

typedef struct form {
    const char *name;
    kernel run;
    bool half, trans_a, trans_b, parts;
    tx_epilogue epilogue;
} form;

static const form forms[] = {
/* clang-format off */
#define X(type, ta, tb, parts, epilogue)                                                                               \
    {#type " " #ta #tb " parts " #parts " " #epilogue, mma_##type##_##ta##_##tb##_##parts##_##epilogue,                \
     sizeof(#type) == sizeof "bf16", ta, tb, parts, TX_EPILOGUE_##epilogue},
    /* clang-format on */
    EACH_KERNEL(X)
#undef X
};

typedef struct job {
    const form *f;
    long m, n, k, batches, part;
    int accumulate;
    void *a, *b;
    float *bias, *y, *z, *kept;
    long group[2];
} job;

static job now;

_Thread_local int host_item;
_Thread_local long host_group[2];
host_warp host_warps[WARPS];
pthread_barrier_t host_meet;

static void *work_item(void *number)
{
    host_item = (int)(size_t)number;
    host_group[0] = now.group[0];
    host_group[1] = now.group[1];
    now.f->run(now.a, 0, now.b, 0, now.bias, 0, now.y, 0, NULL, now.m, now.n, now.k, now.f->trans_a ? now.m : now.k,
               now.f->trans_b ? now.k : now.n, now.m * now.k, now.n * now.k, now.accumulate, now.batches, now.part, 0,
               now.z, 0, now.kept, 0);
    return NULL;
}

static void run_group(void)
{
    pthread_t thread[ITEMS];
    for (size_t i = 0; i < ITEMS; i++)
        if (pthread_create(&thread[i], NULL, work_item, (void *)i) != 0)
            abort();
    for (size_t i = 0; i < ITEMS; i++)
        pthread_join(thread[i], NULL);
}

static unsigned long long state = 1;
/* Eighths in [-1, 1]: exact in all types, and so are the sums. */
static float draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)((int)(state >> 40) % 9) / 8.0f;
}

static void *matrix(long count, bool half)
{
    void *data = malloc((size_t)count * (half ? 2 : 4));
    for (long i = 0; data && i < count; i++) {
        if (half)
            ((unsigned short *)data)[i] = tx_f32_to_bf16(draw());
        else
            ((float *)data)[i] = draw();
    }
    if (!data)
        abort();
    return data;
}

static double value(const void *data, bool half, long i)
{
    return half ? (double)tx_bf16_to_f32(((const unsigned short *)data)[i]) : (double)((const float *)data)[i];
}

/* Whether element `at` is what the epilogue makes of a sum. */
static bool is_right(const job *j, long at, double sum)
{
    const double got = (double)j->y[at];
    if (j->f->epilogue == TX_EPILOGUE_ADD)
        return got == sum + (double)j->z[at];
    if (j->f->epilogue == TX_EPILOGUE_NONE)
        return got == sum;
    const double gelu = 0.5 * sum * (1.0 + tanh(0.7978845608 * (sum + 0.044715 * sum * sum * sum)));
    return (double)j->kept[at] == sum && fabs(got - gelu) <= 1e-5 * (1.0 + fabs(sum));
}

static int compare(const job *j, long parts)
{
    for (long p = 0; p < parts; p++)
        for (long t = 0; t < j->batches; t++)
            for (long at = 0; at < j->m * j->n; at++) {
                const long row = at / j->n, column = at % j->n, first = p * j->part;
                const long end = j->f->parts && first + j->part < j->k ? first + j->part : j->k;
                double sum = (j->bias ? (double)j->bias[column] : 0.0) + (j->accumulate ? 2.0 : 0.0);
                for (long k = first; k < end; k++)
                    sum +=
                        value(j->a, j->f->half, t * j->m * j->k + (j->f->trans_a ? k * j->m + row : row * j->k + k)) *
                        value(j->b, j->f->half,
                              t * j->n * j->k + (j->f->trans_b ? column * j->k + k : k * j->n + column));
                const long element = (p * j->batches + t) * j->m * j->n + at;
                if (!is_right(j, element, sum)) {
                    printf("%s, %ld x %ld x %ld: part %ld, batch %ld, row %ld, column %ld is %g, of the sum %g\n",
                           j->f->name, j->m, j->n, j->k, p, t, row, column, (double)j->y[element], sum);
                    return 1;
                }
            }
    return 0;
}

static int test(const form *f, long m, long n, long k, long batches, bool bias, int accumulate)
{
    now =
        (job){.f = f, .m = m, .n = n, .k = k, .batches = batches, .accumulate = accumulate, .part = f->parts ? 64 : k};
    const long parts = (k + now.part - 1) / now.part, tiles = (m + 127) / 128 * ((n + 127) / 128);
    now.a = matrix(batches * m * k, f->half);
    now.b = matrix(batches * n * k, f->half);
    now.bias = bias ? matrix(n, false) : NULL;
    now.y = malloc((size_t)(parts * batches * m * n) * sizeof *now.y);
    now.z = matrix(parts * batches * m * n, false);
    now.kept = calloc((size_t)(parts * batches * m * n), sizeof *now.kept);
    if (!now.y || !now.kept)
        abort();
    for (long i = 0; i < parts * batches * m * n; i++)
        now.y[i] = accumulate ? 2.0f : NAN;
    for (now.group[1] = 0; now.group[1] < batches * parts; now.group[1]++)
        for (now.group[0] = 0; now.group[0] < tiles; now.group[0]++)
            run_group();
    const int bad = compare(&now, parts);
    free(now.a);
    free(now.b);
    free(now.bias);
    free(now.y);
    free(now.z);
    free(now.kept);
    return bad;
}

int main(void)
{
    int bad = 0;
    pthread_barrier_init(&host_meet, NULL, ITEMS);
    for (int w = 0; w < WARPS; w++)
        pthread_barrier_init(&host_warps[w].meet, NULL, LANES);
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        bad += test(&forms[i], 136, 72, 88, 1, !forms[i].parts, 0);
        bad += test(&forms[i], 64, 24, 104, 2, false, !forms[i].parts);
    }
    if (bad == 0)
        printf("%zu forms are right\n", sizeof forms / sizeof forms[0]);
    return bad != 0;
}
