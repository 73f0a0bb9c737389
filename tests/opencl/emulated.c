/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/opencl/emulated.h"

#include "api/base/half.h"
#include "backends/opencl/tune/trials.h"

#include <stdio.h>
#include <stdlib.h>

float *element_a(const product *p, int64_t row, int64_t term)
{
    return p->a + (p->trans_a ? term * p->m + row : row * p->k + term);
}

float *element_b(const product *p, int64_t term, int64_t column)
{
    return p->b + (p->trans_b ? column * p->k + term : term * p->n + column);
}

float *zeros(int64_t count)
{
    float *made = calloc((size_t)count, sizeof *made);
    if (!made)
        abort();
    return made;
}

product make(int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b, int64_t shift)
{
    return (product){.m = m,
                     .n = n,
                     .k = k,
                     .trans_a = trans_a,
                     .trans_b = trans_b,
                     .shift = shift,
                     .a = zeros(m * k),
                     .b = zeros(k * n),
                     .y = zeros(m * n),
                     .epilogue = TX_EPILOGUE_NONE,
                     .to = TX_F32};
}

void release(const product *p)
{
    free(p->a);
    free(p->b);
    free(p->y);
    free(p->bias);
    free(p->z);
    free(p->kept);
    free(p->sums);
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

/* The operands of a product that are written to the device, and those that are read: the command's operands, and their
 * numbers, NULL without them. */
enum { WRITTEN = 4, READ = 2 };

static void place_all(const product *p, tx_command *c, int64_t *bytes)
{
    const tx_dtype type = p->bf16 ? TX_BF16 : TX_F32;
    for (int i = 0; i < TX_MAX_IN; i++)
        c->in[i].dtype = TX_DTYPE_COUNT;
    for (int i = 0; i < TX_MAX_OUT; i++)
        c->out[i].dtype = TX_DTYPE_COUNT;
    place(&c->in[0], type, p->trans_a ? TX_SHAPE(p->k, p->m) : TX_SHAPE(p->m, p->k), p->shift, bytes);
    place(&c->in[1], type, p->trans_b ? TX_SHAPE(p->n, p->k) : TX_SHAPE(p->k, p->n), p->shift, bytes);
    if (p->bias)
        place(&c->in[2], TX_F32, TX_SHAPE(p->n), 0, bytes);
    if (p->z)
        place(&c->in[3], p->to, TX_SHAPE(p->m, p->n), 0, bytes);
    place(&c->out[0], p->to, TX_SHAPE(p->m, p->n), 0, bytes);
    if (p->kept)
        place(&c->out[1], p->to, TX_SHAPE(p->m, p->n), 0, bytes);
}

/* A command that sums y over rows. */
static tx_command sum_of(const tx_operand *y, int64_t *bytes)
{
    tx_command sum = {.op = TX_OP_REDUCE,
                      .attrs = {.axis = TX_AXIS_ROWS, .reduction = TX_REDUCE_SUM, .alpha = 1.0f, .control = -1}};
    for (int i = 0; i < TX_MAX_IN; i++)
        sum.in[i].dtype = TX_DTYPE_COUNT;
    for (int i = 0; i < TX_MAX_OUT; i++)
        sum.out[i].dtype = TX_DTYPE_COUNT;
    sum.in[0] = *y;
    place(&sum.out[0], TX_F32, TX_SHAPE(y->shape.dim[1]), 0, bytes);
    place(&sum.out[1], TX_F32, TX_SHAPE(tx_reduce_work(TX_AXIS_ROWS, &y->shape)), 0, bytes);
    return sum;
}

/* Reads an operand. Its numbers have the room of floats. */
static tx_status read_back(tx_context *context, tx_buffer *memory, const tx_operand *o, float *values)
{
    const int64_t count = tx_shape_count(&o->shape);
    const tx_status s = tx_cl_read(context, memory, o->offset, values, tx_operand_bytes(o));
    for (int64_t i = count - 1; i >= 0 && o->dtype == TX_BF16; i--)
        values[i] = tx_bf16_to_f32(((const uint16_t *)values)[i]);
    return s;
}

tx_status multiply(tx_context *context, const char *provider, const product *p, int64_t *scratch)
{
    const tx_cl_forced forced = {TX_CL_PRODUCT, provider, NULL};
    tx_command c = {.op = TX_OP_MATMUL, .attrs = {.trans_a = p->trans_a, .trans_b = p->trans_b, .flat = true}};
    c.attrs.epilogue = p->epilogue;
    c.attrs.exact = p->exact;
    tx_buffer *memory = NULL, *control = NULL, *extra = NULL;
    tx_executable *x = NULL;
    tx_controls controls = {{{0}}};
    int64_t bytes = 0;
    place_all(p, &c, &bytes);
    const tx_command commands[2] = {c, sum_of(&c.out[0], &bytes)};
    const tx_program program = {.length = p->sums ? 2 : 1, .commands = commands, .trial = &forced, .whole = true};
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
    const float *const values[WRITTEN] = {p->a, p->b, p->bias, p->z};
    void *from[WRITTEN];
    for (int i = 0; i < WRITTEN; i++) {
        from[i] = values[i] ? stored(&c.in[i], values[i]) : NULL;
        if (from[i])
            TX_THEN(
                s, tx_cl_write(context, TX_QUEUE_COMPUTE, memory, c.in[i].offset, from[i], tx_operand_bytes(&c.in[i])));
    }
    TX_THEN(s, tx_cl_run_program(x, 0, program.length, &controls, NULL));
    float *const to[READ] = {p->y, p->kept};
    for (int i = 0; i < READ; i++)
        if (to[i])
            TX_THEN(s, read_back(context, memory, &c.out[i], to[i]));
    if (p->sums)
        TX_THEN(s, read_back(context, memory, &commands[1].out[0], p->sums));
    tx_cl_destroy(x);
    for (int i = 0; i < WRITTEN; i++)
        free(from[i]);
    tx_buffer *const all[] = {memory, control, extra};
    for (int i = 0; i < 3; i++)
        if (all[i])
            tx_cl_release(context, all[i]);
    return s;
}

float draw(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(state >> 40) / (1 << 24) * 2.0 - 1.0);
}

int on_card(bool (*prove)(tx_context *const context[2]))
{
    tx_context *context[2];
    int32_t devices = 0;
    if (tx_cl_device_count(&devices) != TX_OK || devices == 0)
        return printf("skipped: no OpenCL device\n"), 77;
    stand_in.card = "h200";
    setenv("TX_GEMM_TUNE", "0", 1);
    for (int i = 0; i < 2; i++) {
        const tx_open_options options = {.tf32 = i == 1};
        if (tx_cl_open(0, &options, &context[i]) != TX_OK)
            return printf("FAIL %s\n", tx_error()), 1;
    }
    const bool good = prove(context);
    for (int i = 0; i < 2; i++)
        tx_cl_close(context[i]);
    return good ? 0 : 1;
}
