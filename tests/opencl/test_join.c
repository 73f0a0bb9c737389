/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands that share a launch (runtime/join.c) store what they store one by one, in fewer launches: norm, product and
 * rotation or gate, and new rows of caches with attention. Commands that disturb each other are not joined. The same
 * holds for sums of rows in training.
 * TX_OCL_VARIANT selects the kernels. Exit status 77: there is no OpenCL device. */
#include "api/base/half.h"
#include "backends/backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const tx_backend tx_backend_opencl;
static const tx_backend *const be = &tx_backend_opencl;

#define BYTES (1 << 20)

/* Commands over one arena, and its memory before and after a run. */
typedef struct job {
    tx_command command[3];
    int32_t length, used;
    bool backward;
    float before[BYTES / 4], after[2][BYTES / 4];
} job;
static job j;
static int failures;

static float draw(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(state >> 40) / (1 << 24) * 2.0 - 1.0);
}

static float get(const void *memory, const tx_operand *o, int64_t i)
{
    const unsigned char *at = (const unsigned char *)memory + o->offset;
    uint16_t h;
    memcpy(&h, at + 2 * i, 2);
    return o->dtype == TX_F32 ? ((const float *)at)[i] : o->dtype == TX_BF16 ? tx_bf16_to_f32(h) : tx_f16_to_f32(h);
}

/* A new operand with random values; blocks are 0. */
static tx_operand operand(tx_dtype type, tx_shape shape)
{
    tx_operand o = {.dtype = type, .shape = shape, .arena = TX_ARENA_PLANNED, .offset = j.used};
    unsigned char *at = (unsigned char *)j.before + o.offset;
    memset(at, 0, (size_t)tx_operand_bytes(&o));
    for (int64_t i = 0; i < tx_operand_count(&o) && type != TX_U8; i++) {
        const float v = draw();
        const uint16_t h = type == TX_BF16 ? tx_f32_to_bf16(v) : tx_f32_to_f16(v);
        if (type == TX_F32)
            memcpy(at + 4 * i, &v, 4);
        else
            memcpy(at + 2 * i, &h, 2);
    }
    j.used += (int32_t)tx_round_up(tx_operand_bytes(&o), TX_ALIGNMENT);
    if (j.used > BYTES)
        abort();
    return o;
}

static tx_operand numbers(int64_t count, int32_t first, int32_t step)
{
    tx_operand o = operand(TX_F32, TX_SHAPE(count));
    o.dtype = TX_I32;
    for (int32_t i = 0; i < count; i++)
        memcpy((unsigned char *)j.before + o.offset + 4 * i, &(int32_t){first + step * i}, 4);
    return o;
}

static tx_command *add(tx_op op, tx_attrs attrs)
{
    tx_command *c = &j.command[j.length++];
    *c = (tx_command){.op = op, .attrs = attrs};
    for (int i = 0; i < TX_MAX_IN; i++)
        c->in[i].dtype = TX_DTYPE_COUNT;
    for (int i = 0; i < TX_MAX_OUT; i++)
        c->out[i].dtype = TX_DTYPE_COUNT;
    return c;
}

static void begin(void)
{
    j.length = j.used = 0;
}

/* Runs the commands and returns their launches, or a negative number after a failure. */
static int run(tx_context *context, bool whole, void *after)
{
    tx_executable *x = NULL;
    tx_buffer *memory = NULL, *control = NULL, *scratch = NULL;
    tx_controls controls = {{{0}}};
    int64_t bytes = 0;
    int launches = 0;
    const tx_program program = {.length = j.length, .commands = j.command, .whole = whole, .forward = !j.backward};
    tx_status s = be->prepare(context, &program, &x, &bytes);
    TX_THEN(s, be->allocate(context, TX_MEMORY_ACTIVATIONS, TX_SPACE_DEVICE, BYTES, &memory));
    TX_THEN(s, be->allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, sizeof controls, &control));
    TX_THEN(s, be->allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, bytes + 64, &scratch));
    const tx_bindings bindings = {
        .arena = {
            [TX_ARENA_PLANNED] = {1, &memory}, [TX_ARENA_CONTROL] = {1, &control}, [TX_ARENA_SCRATCH] = {1, &scratch}}};
    TX_THEN(s, be->bind(x, &bindings));
    TX_THEN(s, be->write(context, TX_QUEUE_COMPUTE, control, 0, &controls, sizeof controls));
    TX_THEN(s, be->write(context, TX_QUEUE_COMPUTE, memory, 0, j.before, BYTES));
    TX_THEN(s, be->run(x, 0, j.length, &controls, NULL));
    TX_THEN(s, be->read(context, memory, 0, after, BYTES));
    for (int32_t i = 0; x && i < j.length; i++)
        launches += be->command_info(x, i).launches;
    be->destroy(x);
    tx_buffer *const all[] = {memory, control, scratch};
    for (int i = 0; i < 3; i++)
        if (all[i])
            be->release(context, all[i]);
    if (s != TX_OK)
        printf("  %s\n", tx_error());
    return s == TX_OK ? launches : -1;
}

/* Compares all outputs. Those of norms on GPUs may differ by the rounding of sums in another order. */
static double difference(void)
{
    double worst = 0.0;
    for (int32_t c = 0; c < j.length; c++)
        for (int k = 0; k < TX_MAX_OUT; k++) {
            const tx_operand *o = &j.command[c].out[k];
            const double epsilon = o->dtype == TX_BF16 ? 0x1p-7 : o->dtype == TX_F16 ? 0x1p-10 : 0x1p-18;
            for (int64_t i = 0; tx_present(o) && o->dtype != TX_U8 && i < tx_operand_count(o); i++) {
                const double a = (double)get(j.after[0], o, i), b = (double)get(j.after[1], o, i);
                const double apart = fabs(a - b) / (epsilon * (1.0 + fabs(a)));
                worst = apart <= worst ? worst : apart;
            }
        }
    return worst;
}

static void expect(tx_context *context, int launches, const char *what)
{
    memset(j.after, 0, sizeof j.after);
    const int apart = run(context, false, j.after[0]), joined = run(context, true, j.after[1]);
    const double worst = difference(), bound = j.command[0].op == TX_OP_KV_APPEND ? 0.0 : 1.0;
    const bool good = apart == j.length && joined == launches && worst <= bound;
    printf("%s  %s: %d launches, joined %d, %.2g of the tolerance apart\n", good ? "ok" : "FAIL", what, apart, joined,
           worst);
    failures += !good;
}

typedef struct product {
    int64_t rows, k, n;
    bool rms, trans_b, bias;
    tx_dtype type;
    tx_op next; /* TX_OP_MATMUL: none */
    tx_gate gate;
    int32_t rotated;
    bool in_place;
} product;

static void add_norm(const product *p)
{
    tx_command *c = add(p->rms ? TX_OP_RMS_NORM : TX_OP_LAYER_NORM, (tx_attrs){.eps = 1e-5f});
    c->in[0] = operand(TX_F32, TX_SHAPE(p->rows, p->k));
    c->in[1] = operand(TX_F32, TX_SHAPE(p->k));
    if (!p->rms)
        c->in[2] = operand(TX_F32, TX_SHAPE(p->k));
    c->out[0] = operand(p->type, TX_SHAPE(p->rows, p->k));
    for (int i = 1; i < (p->rms ? 2 : 3); i++)
        c->out[i] = operand(TX_F32, TX_SHAPE(p->rows));
}

static tx_command *add_product(const product *p)
{
    const tx_operand a = j.command[j.length - 1].out[0];
    tx_command *c = add(TX_OP_MATMUL, (tx_attrs){.trans_b = p->trans_b, .flat = true});
    c->in[0] = a;
    c->in[1] = operand(p->type, p->trans_b ? TX_SHAPE(p->n, p->k) : TX_SHAPE(p->k, p->n));
    if (p->bias)
        c->in[2] = operand(TX_F32, TX_SHAPE(p->n));
    c->out[0] = operand(p->type, TX_SHAPE(p->rows, p->n));
    return c;
}

/* Heads of 12: two of queries and one of keys are rotated, one of values is not. Rows are tokens of two sequences. */
static void add_next(const product *p)
{
    static tx_rope rope;
    rope = (tx_rope){.theta = 1e4f, .factor = 1.0f, .magnitude = 1.0f, .rotated = p->rotated};
    const tx_operand y = j.command[j.length - 1].out[0];
    tx_command *c = add(p->next, (tx_attrs){.gate = p->gate, .rope = &rope, .alpha = 1.0f, .scale = 1.0f});
    c->in[0] = y;
    if (p->next == TX_OP_SWIGLU) {
        c->out[0] = operand(p->type, TX_SHAPE(p->rows, p->n / 2));
        return;
    }
    c->attrs.attention.head_size = 12;
    c->attrs.attention.heads = 3;
    c->in[0].shape = TX_SHAPE(p->rows > 1 ? 2 : 1, p->rows > 1 ? p->rows / 2 : 1, p->n);
    c->in[1] = numbers(c->in[0].shape.dim[0], 70, 1000);
    c->out[0] = p->in_place ? c->in[0] : operand(p->type, c->in[0].shape);
}

/* On CPUs a product of several rows does not compute the op after it. */
static void test_product(tx_context *context, const product *p, int launches, const char *what)
{
    const char *variant = getenv("TX_OCL_VARIANT");
    const bool cpu = !variant || strcmp(variant, "cpu") == 0;
    begin();
    add_norm(p);
    add_product(p);
    if (p->next != TX_OP_MATMUL)
        add_next(p);
    expect(context, launches + (cpu && launches == 1 && j.length == 3 && p->rows > 1), what);
}

static void test_products(tx_context *context)
{
    static const struct {
        product p;
        int launches;
        const char *what;
    } cases[] = {
        {{1, 37, 50, false, false, true, TX_F32, TX_OP_MATMUL, 0, 0, 0}, 1, "layer norm, [k, n]"},
        {{4, 96, 640, true, false, false, TX_BF16, TX_OP_MATMUL, 0, 0, 0}, 1, "RMS norm, [k, n], bf16"},
        {{8, 96, 300, false, true, true, TX_F16, TX_OP_MATMUL, 0, 0, 0}, 1, "layer norm, [n, k], f16"},
        {{9, 96, 30, false, true, true, TX_F32, TX_OP_MATMUL, 0, 0, 0}, 2, "nine rows"},
        {{2, 40, 48, true, true, false, TX_F32, TX_OP_ROTARY, 0, 0, true}, 1, "rotary in place"},
        {{4, 40, 48, false, true, true, TX_BF16, TX_OP_ROTARY, 0, 8, false}, 1, "rotary of 8 of 12, bf16"},
        {{4, 40, 48, false, false, true, TX_F32, TX_OP_ROTARY, 0, 0, false}, 2, "rotary after [k, n]"},
        {{1, 40, 48, true, true, false, TX_F32, TX_OP_ROTARY, 0, 0, true}, 1, "rotary of one row"},
        {{1, 64, 262, true, true, false, TX_F32, TX_OP_SWIGLU, TX_GATE_SILU, 0, 0}, 1, "gate"},
        {{3, 64, 130, true, true, true, TX_F16, TX_OP_SWIGLU, TX_GATE_GELU, 0, 0}, 1, "GELU gate, f16"},
        {{3, 64, 130, true, true, true, TX_F32, TX_OP_SWIGLU, TX_GATE_CLAMPED, 0, 0}, 2, "clamped gate"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        test_product(context, &cases[i].p, cases[i].launches, cases[i].what);
}

/* Memory that the layout gave to two tensors, one after the other. */
static void test_shared_memory(tx_context *context)
{
    const product p = {1, 64, 64, true, true, false, TX_F32, TX_OP_SWIGLU, TX_GATE_SILU, 0, false};
    begin();
    add_norm(&p);
    add_product(&p)->out[0].offset = j.command[0].in[0].offset;
    expect(context, 2, "a product over the input of its norm");
    begin();
    add_norm(&p);
    add_product(&p);
    add_next(&p);
    j.command[2].out[0].offset = j.command[0].out[0].offset;
    j.command[0].out[0].dtype = TX_F32;
    tx_operand normed = j.command[0].out[0];
    memset(j.after, 0, sizeof j.after);
    const int apart = run(context, false, j.after[0]), joined = run(context, true, j.after[1]);
    j.command[0].out[0].dtype = TX_DTYPE_COUNT; /* it is gone */
    const bool good = apart == 3 && joined == 1 && difference() <= 1.0;
    printf("%s  a gate over the output of the norm\n", good ? "ok" : "FAIL");
    failures += !good;
    j.command[0].out[0] = normed;
    j.command[2].out[0].offset = j.command[1].in[1].offset;
    expect(context, 2, "a gate over the weights");
}

typedef struct caches {
    int64_t B, T, slots;
    int32_t heads, kv_heads, d, window;
    bool shared, blocks;
    tx_dtype type;
} caches;

static void test_caches(tx_context *context, const caches *p, int launches, const char *what)
{
    const int64_t S = 40, rows = p->slots ? p->slots : p->B, n = (int64_t)p->kv_heads * p->d;
    const tx_shape shape = TX_SHAPE(rows, S, p->blocks ? n / 32 * 34 : n);
    begin();
    tx_command *c = add(TX_OP_KV_APPEND, (tx_attrs){.scale = 0.3f,
                                                    .attention.heads = p->heads,
                                                    .attention.kv_heads = p->kv_heads,
                                                    .attention.causal = true,
                                                    .attention.window = p->window});
    c->in[0] = operand(p->type, TX_SHAPE(p->B, p->T, (p->heads + 2 * p->kv_heads) * p->d));
    c->in[1] = operand(p->blocks ? TX_U8 : p->type, shape);
    c->in[2] = p->shared ? c->in[1] : operand(p->blocks ? TX_U8 : p->type, shape);
    c->in[3] = numbers(p->B, 0, 17);
    if (p->slots)
        c->in[4] = numbers(p->B, (int32_t)p->slots - 1, -1);
    c->out[0] = c->in[1];
    c->out[1] = c->in[2];
    tx_command *attention = add(TX_OP_ATTENTION_CACHED, c->attrs);
    memcpy(attention->in, c->in, sizeof c->in);
    attention->out[0] = operand(p->type, TX_SHAPE(p->B, p->T, p->heads * p->d));
    expect(context, launches, what);
}

static void test_attention(tx_context *context)
{
    static const struct {
        caches p;
        int launches;
        const char *what;
    } cases[] = {
        {{3, 1, 0, 4, 4, 16, 0, false, false, TX_F32}, 1, "caches"},
        {{2, 1, 5, 6, 2, 20, 0, false, false, TX_BF16}, 1, "caches by slots, shared by heads, bf16"},
        {{3, 3, 0, 4, 2, 16, 0, true, false, TX_F16}, 1, "keys that are values, three tokens, f16"},
        {{3, 8, 0, 2, 1, 32, 5, false, false, TX_F32}, 1, "a window, eight tokens"},
        {{2, 9, 0, 2, 1, 32, 0, false, false, TX_F32}, 2, "nine tokens"},
        {{2, 1, 0, 2, 1, 32, 0, false, true, TX_F32}, 2, "caches of blocks"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        test_caches(context, &cases[i].p, cases[i].launches, cases[i].what);
}

/* The gradient of attention is summed over rows. With `rotates` it is rotated in place before. */
static void test_sum(tx_context *context, bool rotates, const char *what)
{
    static tx_rope rope = {.theta = 1e4f, .factor = 1.0f, .magnitude = 1.0f};
    const int64_t B = 2, T = 9, heads = 2, d = 16, n = 3 * heads * d;
    begin();
    j.backward = true;
    tx_attrs attrs = {.scale = 0.25f, .attention.heads = (int32_t)heads, .attention.kv_heads = (int32_t)heads};
    tx_command *c = add(TX_OP_ATTENTION_GRAD, attrs);
    for (int i = 0; i < 3; i++)
        c->in[i] = operand(TX_F32, TX_SHAPE(B, T, i == 1 ? n : heads * d));
    c->in[3] = operand(TX_F32, TX_SHAPE(B, heads, T));
    c->out[0] = operand(TX_F32, TX_SHAPE(B, T, n));
    c->out[1] = operand(TX_F32, TX_SHAPE(B, heads, T));
    const tx_operand gradient = c->out[0];
    if (rotates) {
        attrs = (tx_attrs){.rope = &rope, .alpha = 1.0f, .scale = 1.0f};
        attrs.attention.head_size = (int32_t)d;
        attrs.attention.heads = 2 * (int32_t)heads;
        c = add(TX_OP_ROTARY, attrs);
        c->in[0] = c->out[0] = gradient;
        c->in[1] = numbers(B, 3, 5);
    }
    c = add(TX_OP_REDUCE, (tx_attrs){.axis = TX_AXIS_ROWS, .alpha = 1.0f, .control = -1});
    c->in[0] = gradient;
    c->out[0] = operand(TX_F32, TX_SHAPE(n));
    c->out[1] = operand(TX_F32, TX_SHAPE(tx_reduce_work(TX_AXIS_ROWS, &gradient.shape)));
    tx_command *const sum = c;
    memset(j.after, 0, sizeof j.after);
    const int apart = run(context, false, j.after[0]), joined = run(context, true, j.after[1]);
    sum->out[1].dtype = TX_DTYPE_COUNT; /* may not be used */
    const bool good = apart > 0 && joined == apart && difference() <= 1.0;
    printf("%s  %s: %.2g of the tolerance apart\n", good ? "ok" : "FAIL", what, difference());
    failures += !good;
    j.backward = false;
}

int main(void)
{
    int32_t devices = 0;
    tx_context *context;
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    if (be->device_count(&devices) != TX_OK || devices == 0) {
        printf("skipped: no OpenCL device\n");
        return 77;
    }
    if (be->open(0, &(tx_open_options){0}, &context) != TX_OK) {
        printf("FAIL %s\n", tx_error());
        return 1;
    }
    test_products(context);
    test_shared_memory(context);
    test_attention(context);
    test_sum(context, false, "a sum of the gradient of attention");
    test_sum(context, true, "a sum after a rotation in place");
    be->close(context);
    return failures > 0;
}
