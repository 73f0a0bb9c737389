/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products of the OpenCL backend. Every provider is compared with sums in double precision, over odd shapes,
 * transposes, types, batches, offsets, bias and accumulation. The result has guards around it, and each product runs
 * twice. Then portable and CLBlast are compared on larger shapes, with their rates. Rates are printed, never judged.
 *
 * Arguments: [small] and names of providers, or prefixes of names, to test completely (portable, portable-vector,
 * portable-tile, portable-few, x86-dot, clblast), or "rates" with m n k trans_a trans_b for one shape. Without
 * arguments it tests a part of each provider and prints rates. Exit 77: no OpenCL device. */
#include "api/base/clock.h"
#include "api/base/half.h"
#include "backends/backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const tx_backend tx_backend_opencl;
static const tx_backend *const be = &tx_backend_opencl;

#define GUARD 0xA5

typedef struct product {
    int64_t batch, m, n, k;
    bool trans_a, trans_b, bias;
    tx_dtype from, to;
    tx_accumulate accumulate;
    float control; /* value of ACCUMULATE */
    int64_t shift; /* elements that a and y begin after an aligned address */
    bool shared_b; /* b has rank 2 and serves the whole batch */
} product;

typedef struct job {
    product p;
    tx_command command;
    int64_t bytes;
    unsigned char *before, *after;
} job;

static uint64_t state = 1;
static float draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(state >> 40) / (1 << 24) * 2.0 - 1.0);
}

static void put(unsigned char *data, tx_dtype type, int64_t i, float v)
{
    uint16_t h = type == TX_BF16 ? tx_f32_to_bf16(v) : tx_f32_to_f16(v);
    if (type == TX_F32)
        memcpy(data + 4 * i, &v, 4);
    else
        memcpy(data + 2 * i, &h, 2);
}

static float get(const unsigned char *data, tx_dtype type, int64_t i)
{
    float v;
    uint16_t h;
    if (type == TX_F32) {
        memcpy(&v, data + 4 * i, 4);
        return v;
    }
    memcpy(&h, data + 2 * i, 2);
    return type == TX_BF16 ? tx_bf16_to_f32(h) : tx_f16_to_f32(h);
}

static void place(job *j, tx_operand *o, tx_dtype type, tx_shape shape, int64_t shift)
{
    *o = (tx_operand){.dtype = type, .shape = shape, .arena = TX_ARENA_PLANNED};
    o->offset = j->bytes + shift * (int64_t)tx_dtype_size(type);
    j->bytes = (o->offset + tx_operand_bytes(o) + 2 * TX_ALIGNMENT - 1) / TX_ALIGNMENT * TX_ALIGNMENT;
}

static void make_job(job *j, const product *p)
{
    const bool batched = p->batch > 1;
    const int64_t ar = p->trans_a ? p->k : p->m, ac = p->trans_a ? p->m : p->k;
    const int64_t br = p->trans_b ? p->n : p->k, bc = p->trans_b ? p->k : p->n;
    *j = (job){.p = *p, .bytes = TX_ALIGNMENT};
    tx_command *c = &j->command;
    c->op = TX_OP_MATMUL;
    c->attrs = (tx_attrs){.trans_a = p->trans_a, .trans_b = p->trans_b, .flat = !batched, .accumulate = p->accumulate};
    for (int i = 0; i < TX_MAX_IN; i++)
        c->in[i].dtype = TX_DTYPE_COUNT;
    for (int i = 0; i < TX_MAX_OUT; i++)
        c->out[i].dtype = TX_DTYPE_COUNT;
    place(j, &c->in[0], p->from, batched ? TX_SHAPE(p->batch, ar, ac) : TX_SHAPE(ar, ac), p->shift);
    place(j, &c->in[1], p->from, batched && !p->shared_b ? TX_SHAPE(p->batch, br, bc) : TX_SHAPE(br, bc), 0);
    if (p->bias)
        place(j, &c->in[2], TX_F32, TX_SHAPE(p->n), 0);
    place(j, &c->out[0], p->to, batched ? TX_SHAPE(p->batch, p->m, p->n) : TX_SHAPE(p->m, p->n), p->shift);
    j->before = malloc((size_t)j->bytes);
    j->after = malloc((size_t)j->bytes);
    if (!j->before || !j->after)
        abort();
    memset(j->before, GUARD, (size_t)j->bytes);
    for (int i = 0; i < 3; i++)
        for (int64_t e = 0; tx_present(&c->in[i]) && e < tx_operand_count(&c->in[i]); e++)
            put(j->before + c->in[i].offset, c->in[i].dtype, e, draw());
    const bool adds = p->accumulate == TX_ADD || (p->accumulate == TX_ADD_CONTROL && p->control != 0.0f);
    for (int64_t e = 0; e < tx_operand_count(&c->out[0]); e++)
        put(j->before + c->out[0].offset, p->to, e, adds ? draw() : NAN);
}

static void free_job(job *j)
{
    free(j->before);
    free(j->after);
}

/* Runs the job on fresh data; `after` gets the memory. rate, when not NULL: GFLOP/s of the best of some more runs. */
static tx_status run_job(tx_context *context, job *j, char variant[256], double *rate)
{
    tx_executable *x = NULL;
    tx_buffer *memory = NULL, *control = NULL, *scratch = NULL;
    tx_controls controls = {{{0}}};
    int64_t scratch_bytes = 0;
    const tx_program program = {.length = 1, .commands = &j->command};
    controls.word[TX_CONTROL_ACCUMULATE].f32 = j->p.control;
    tx_status s = be->prepare(context, &program, &x, &scratch_bytes);
    TX_THEN(s, be->allocate(context, TX_MEMORY_ACTIVATIONS, TX_SPACE_DEVICE, j->bytes, &memory));
    TX_THEN(s, be->allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, sizeof controls, &control));
    if (s == TX_OK && scratch_bytes > 0)
        s = be->allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, scratch_bytes, &scratch);
    const tx_bindings bindings = {.arena = {[TX_ARENA_PLANNED] = {1, &memory},
                                            [TX_ARENA_CONTROL] = {1, &control},
                                            [TX_ARENA_SCRATCH] = {scratch_bytes > 0, &scratch}}};
    TX_THEN(s, be->bind(x, &bindings));
    TX_THEN(s, be->write(context, TX_QUEUE_COMPUTE, control, 0, &controls, sizeof controls));
    TX_THEN(s, be->write(context, TX_QUEUE_COMPUTE, memory, 0, j->before, j->bytes));
    TX_THEN(s, be->run(x, 0, 1, &controls, NULL));
    TX_THEN(s, be->read(context, memory, 0, j->after, j->bytes));
    if (x)
        snprintf(variant, 256, "%s", be->command_info(x, 0).variant);
    double best = INFINITY;
    const double begin = tx_now();
    for (int i = 0; s == TX_OK && rate && i < 10 && (i < 2 || tx_now() - begin < 1.0); i++) {
        const double start = tx_now();
        s = be->run(x, 0, 1, &controls, NULL);
        TX_THEN(s, be->finish(context));
        best = fmin(best, tx_now() - start);
    }
    if (rate)
        *rate = 2e-9 * (double)(j->p.batch * j->p.m * j->p.n * j->p.k) / best;
    be->destroy(x);
    tx_buffer *const all[] = {memory, control, scratch};
    for (int i = 0; i < 3; i++)
        if (all[i])
            be->release(context, all[i]);
    return s;
}

/* Returns the expected sum of element `at`, and the bound of its rounding error. */
static double expected(const job *j, int64_t at, double *tolerance)
{
    const product *p = &j->p;
    const tx_operand *a = &j->command.in[0], *b = &j->command.in[1], *bias = &j->command.in[2], *y = &j->command.out[0];
    const int64_t batch = at / (p->m * p->n), i = at / p->n % p->m, c = at % p->n;
    const unsigned char *from = j->before;
    double sum = 0.0, size = 0.0;
    for (int64_t t = 0; t < p->k; t++) {
        const int64_t ia = batch * p->m * p->k + (p->trans_a ? t * p->m + i : i * p->k + t);
        const int64_t ib = (p->shared_b ? 0 : batch * p->n * p->k) + (p->trans_b ? c * p->k + t : t * p->n + c);
        const double v = (double)get(from + a->offset, a->dtype, ia) * (double)get(from + b->offset, b->dtype, ib);
        sum += v;
        size += fabs(v);
    }
    const double extra[2] = {p->bias ? (double)get(from + bias->offset, TX_F32, c) : 0.0,
                             p->accumulate == TX_ADD || (p->accumulate == TX_ADD_CONTROL && p->control != 0.0f)
                                 ? (double)get(from + y->offset, p->to, at)
                                 : 0.0};
    sum += extra[0] + extra[1];
    size += fabs(extra[0]) + fabs(extra[1]);
    const double epsilon = p->to == TX_F32 ? 0.0 : p->to == TX_BF16 ? 0x1p-8 : 0x1p-11;
    *tolerance = epsilon * fabs(sum) + 0x1p-21 * size + (p->to == TX_F16 ? 0x1p-24 : 0.0);
    return sum;
}

static void describe(const job *j, char *text, size_t size)
{
    const product *p = &j->p;
    snprintf(text, size, "batch %lld, %lld x %lld x %lld, %c%c, %s > %s, bias %d, accumulate %d (%g), shift %lld",
             (long long)p->batch, (long long)p->m, (long long)p->n, (long long)p->k, p->trans_a ? 'T' : 'N',
             p->trans_b ? 'T' : 'N', tx_dtype_name(p->from), tx_dtype_name(p->to), p->bias, (int)p->accumulate,
             (double)p->control, (long long)p->shift);
}

/* Counts the faults of a job: elements (`samples` of them, or 0 for all) and changed bytes around the result. */
static int64_t check_job(const job *j, int64_t samples)
{
    const tx_operand *y = &j->command.out[0];
    const int64_t count = tx_operand_count(y), end = y->offset + tx_operand_bytes(y);
    const int64_t step = samples == 0 || count <= samples ? 1 : (count / samples) | 1;
    int64_t faults = 0;
    for (int64_t at = 0; at < count; at += step) {
        double tolerance;
        const double want = expected(j, at, &tolerance);
        const double got = (double)get(j->after + y->offset, y->dtype, at);
        if (!(fabs(got - want) <= tolerance) && faults++ == 0)
            printf("    element %lld is %.9g and should be %.9g +- %.2g\n", (long long)at, got, want, tolerance);
    }
    if (memcmp(j->before, j->after, (size_t)y->offset) != 0 ||
        memcmp(j->before + end, j->after + end, (size_t)(j->bytes - end)) != 0) {
        printf("    something around the result was written\n");
        faults++;
    }
    return faults;
}

static int test_product(tx_context *context, const product *p)
{
    job j;
    char variant[256] = "", text[200];
    make_job(&j, p);
    describe(&j, text, sizeof text);
    int64_t faults = 0;
    unsigned char *first = malloc((size_t)j.bytes);
    tx_status s = first ? run_job(context, &j, variant, NULL) : TX_MEMORY;
    if (s == TX_OK) {
        faults = check_job(&j, 0);
        memcpy(first, j.after, (size_t)j.bytes);
        s = run_job(context, &j, variant, NULL);
    }
    if (s == TX_OK && memcmp(first, j.after, (size_t)j.bytes) != 0) {
        printf("    two runs differ\n");
        faults++;
    }
    if (s != TX_OK || faults)
        printf("  FAILED %s by %s: %lld faults %s\n", text, variant, (long long)faults, s != TX_OK ? tx_error() : "");
    free(first);
    free_job(&j);
    return s != TX_OK || faults;
}

static const struct {
    int64_t batch, m, n, k;
} shapes[] = {{1, 1, 1, 1},    {1, 1, 97, 5},    {1, 63, 1, 33},    {1, 7, 13, 1},     {1, 8, 48, 16},  {1, 9, 49, 17},
              {1, 65, 66, 67}, {1, 131, 35, 75}, {1, 30, 24, 1100}, {1, 130, 150, 40}, {3, 17, 70, 31}, {5, 1, 9, 64},
              {1, 1, 600, 70}, {1, 2, 300, 515}, {1, 6, 36, 200},   {2, 8, 1030, 24}};
static const struct {
    tx_dtype from, to;
} types[] = {{TX_F32, TX_F32}, {TX_BF16, TX_F32}, {TX_BF16, TX_BF16}, {TX_F16, TX_F32}, {TX_F16, TX_F16}};

typedef enum extent {
    ALL,   /* all shapes, transposes and types */
    FEW,   /* fp32 in all transposes, the other types in one each: every combination is a program to build */
    TILES, /* as FEW, and a few of the shapes: programs of GPUs take PoCL long to build */
    SMALL, /* all, but small shapes and half of them: for slow devices */
} extent;

/* Bias, accumulation and offsets go round as cases of their own cycle. */
static int test_provider(const char *provider, extent how)
{
    tx_context *context;
    const tx_open_options options = {0};
    int failed = 0, count = 0;
    setenv("TX_GEMM", provider, 1);
    if (strncmp(provider, "portable-tile", 13) == 0) /* not of CPU devices */
        setenv("TX_OCL_VARIANT", "gpu", 1);
    const bool opened = be->open(0, &options, &context) == TX_OK;
    unsetenv("TX_OCL_VARIANT");
    if (!opened) {
        printf("%s: %s\n", provider, tx_error());
        return 1;
    }
    const double start = tx_now();
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        for (int trans = 0; trans < 4; trans++)
            for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
                if (how == SMALL && (shapes[i].m * shapes[i].n * shapes[i].k > 40000 || (i + (size_t)trans) % 2))
                    continue;
                if ((how == FEW || how == TILES) && t > 0 && t % 4 != (size_t)trans)
                    continue;
                if (how == TILES && i % 4 != 0 && i != 10) /* whole quads, a long sum, a batch */
                    continue;
                const size_t cycle = (size_t)count++;
                const product p = {.batch = shapes[i].batch,
                                   .m = shapes[i].m,
                                   .n = shapes[i].n,
                                   .k = shapes[i].k,
                                   .trans_a = trans & 1,
                                   .trans_b = trans & 2,
                                   .bias = cycle % 3 != 0,
                                   .from = types[t].from,
                                   .to = types[t].to,
                                   .accumulate = (tx_accumulate)(cycle % 3),
                                   .control = cycle % 2 ? 1.0f : 0.0f,
                                   .shift = cycle % 5 == 0 ? 3 : 0,
                                   .shared_b = cycle % 2 == 0};
                failed += test_product(context, &p);
            }
    be->close(context);
    printf("%s: %d products, %d failed (%.1f s)\n", provider, count, failed, tx_now() - start);
    return failed;
}

/* One bigger product by portable and by CLBlast: samples against the reference, agreement, rates. */
static int compare(int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b)
{
    static const char *const providers[2] = {"portable", "clblast"};
    const product p = {
        .batch = 1, .m = m, .n = n, .k = k, .trans_a = trans_a, .trans_b = trans_b, .from = TX_F32, .to = TX_F32};
    double rate[2] = {0, 0}, apart = 0;
    char variant[256];
    int failed = 0;
    job j[2];
    for (int i = 0; i < 2; i++) {
        tx_context *context;
        const tx_open_options options = {0};
        state = 1;
        make_job(&j[i], &p);
        setenv("TX_GEMM", providers[i], 1);
        tx_status s = be->open(0, &options, &context);
        if (s == TX_OK) {
            s = run_job(context, &j[i], variant, &rate[i]);
            be->close(context);
        }
        if (s != TX_OK || strncmp(variant, providers[i], strlen(providers[i])) != 0 || check_job(&j[i], 500) != 0) {
            printf("  FAILED %s by %s: %s\n", providers[i], variant, s != TX_OK ? tx_error() : "");
            failed = 1;
        }
    }
    const tx_operand *y = &j[0].command.out[0];
    for (int64_t e = 0; !failed && e < m * n; e++) {
        const double d =
            (double)get(j[0].after + y->offset, TX_F32, e) - (double)get(j[1].after + y->offset, TX_F32, e);
        apart = !(fabs(d) <= apart) ? fabs(d) : apart;
    }
    failed |= !(apart <= 0x1p-19 * (double)k);
    printf("%5lld x %5lld x %5lld %c%c: portable %8.1f GFLOP/s, clblast %8.1f GFLOP/s, at most %.2g apart%s\n",
           (long long)m, (long long)n, (long long)k, trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', rate[0], rate[1], apart,
           failed ? " FAILED" : "");
    free_job(&j[0]);
    free_job(&j[1]);
    return failed;
}

/* The default order and the measured choice both give a right result and name their provider. */
static int test_choice(void)
{
    const product p = {.batch = 1, .m = 200, .n = 300, .k = 100, .bias = true, .from = TX_F32, .to = TX_F32};
    int failed = 0;
    unsetenv("TX_GEMM");
    for (int i = 0; i < 2; i++) {
        tx_context *context;
        const tx_open_options options = {0};
        char variant[256] = "";
        job j;
        setenv("TX_GEMM_TUNE", i ? "1" : "0", 1);
        make_job(&j, &p);
        tx_status s = be->open(0, &options, &context);
        if (s == TX_OK) {
            s = run_job(context, &j, variant, NULL);
            be->close(context);
        }
        const bool bad = s != TX_OK || check_job(&j, 0) != 0;
        printf("%s: %s %s\n", i ? "measured" : "default", variant, bad ? "FAILED" : "");
        failed += bad;
        free_job(&j);
    }
    return failed;
}

int main(int argc, char **argv)
{
    int32_t devices = 0;
    int failed = 0;
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    if (be->device_count(&devices) != TX_OK || devices == 0) {
        printf("skipped: no OpenCL device\n");
        return 77;
    }
    if (argc == 7 && strcmp(argv[1], "rates") == 0)
        return compare(atoll(argv[2]), atoll(argv[3]), atoll(argv[4]), atoi(argv[5]) != 0, atoi(argv[6]) != 0);
    const bool small = argc > 1 && strcmp(argv[1], "small") == 0;
    for (int i = small ? 2 : 1; i < argc; i++)
        failed += test_provider(argv[i], small ? SMALL : ALL);
    if (argc == 1) {
        failed += test_provider("portable-vector", FEW);
        failed += test_provider("portable-tile-128x128x8", TILES);
        failed += test_provider("portable-tile-64x64x16", TILES);
        failed += test_provider("portable-few", FEW);
        failed += test_provider("x86-dot", FEW); /* another provider is used if the CPU lacks the instruction */
        failed += test_provider("clblast", FEW);
        failed += test_choice();
        failed += compare(256, 768, 768, false, false);
        failed += compare(256, 768, 768, false, true);
        failed += compare(768, 256, 256, true, false);
    }
    return failed ? 1 : 0;
}
