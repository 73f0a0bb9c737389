/* SPDX-License-Identifier: Apache-2.0
 *
 * Every form of attention's kernels that the device can run computes what the first does, forward and backward; a class
 * of shapes gets the form that an earlier run chose, else that of the device's table.
 *
 *     test_attention      TX_CACHE_DIR names a folder of its own; exit status 77: there is no OpenCL device */
#include "backends/opencl/attention.h"
#include "backends/opencl/solo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                     \
    do {                                                \
        if ((call) != TX_OK) {                          \
            printf("FAIL %s: %s\n", #call, tx_error()); \
            return false;                               \
        }                                               \
    } while (0)

typedef struct shape {
    int64_t B, T;
    int32_t heads, kv_heads, d;
    bool causal, lengths;
    float p;
} shape;

/* Few: a form takes seconds to compile. */
static const shape shapes[] = {{2, 70, 4, 2, 64, true, false, 0.1f}, {1, 33, 3, 3, 40, false, true, 0.0f}};

static const char *const keys[] = {TX_CL_ATTENTION " forward", TX_CL_ATTENTION " dq", TX_CL_ATTENTION " dkv"};

static tx_operand f32(tx_shape s)
{
    return (tx_operand){.dtype = TX_F32, .shape = s};
}

static tx_command command_of(const shape *s, bool backward)
{
    const int64_t width = (s->heads + 2 * s->kv_heads) * s->d;
    const tx_operand qkv = f32(TX_SHAPE(s->B, s->T, width)), o = f32(TX_SHAPE(s->B, s->T, s->heads * s->d)),
                     lse = f32(TX_SHAPE(s->B, s->heads, s->T)), gradient[] = {o, qkv, o, lse};
    tx_command c = {.op = backward ? TX_OP_ATTENTION_GRAD : TX_OP_ATTENTION,
                    .attrs = {.heads = s->heads,
                              .kv_heads = s->kv_heads,
                              .causal = s->causal,
                              .p = s->p,
                              .scale = (float)(1.0 / sqrt((double)s->d))}};
    for (int i = 0; i < TX_MAX_IN; i++)
        c.in[i].dtype = TX_DTYPE_COUNT;
    for (int i = 0; i < TX_MAX_OUT; i++)
        c.out[i].dtype = TX_DTYPE_COUNT;
    c.in[0] = qkv;
    for (int i = 0; i < 4 && backward; i++)
        c.in[i] = gradient[i];
    if (s->lengths)
        c.in[backward ? 4 : 1] = (tx_operand){.dtype = TX_I32, .shape = TX_SHAPE(s->B)};
    c.out[0] = backward ? qkv : o;
    c.out[1] = lse;
    return c;
}

static float *at(unsigned char *host, const tx_operand *o)
{
    return (float *)(host + o->offset);
}

/* Runs a command whose operands lie in `host`, and reads them all back into it. `tiles`, where not NULL, is what its
 * variant has to name. */
static bool run(tx_context *context, tx_cl_solo *solo, unsigned char *host, const char *tiles)
{
    tx_status status = tx_cl_solo_open(context, solo, host);
    bool named = true;
    if (status == TX_OK) {
        const tx_command_info info = tx_cl_command_info(solo->executable, 0);
        named = !tiles || strstr(info.variant, tiles);
        if (!named)
            printf("FAIL %s runs, not %s\n", info.variant, tiles);
        status = tx_cl_solo_run(context, solo);
    }
    if (status == TX_OK)
        status = tx_cl_read(context, solo->memory, 0, host, solo->bytes);
    tx_cl_solo_close(context, solo);
    CHECK(status);
    return named;
}

static double distance(const float *x, const float *y, int64_t count)
{
    double off = 0.0, norm = 0.0;
    for (int64_t i = 0; i < count; i++) {
        off += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        norm += (double)y[i] * (double)y[i];
    }
    return sqrt(off / norm);
}

/* All forms of one kernel; `first` holds the operands and gets the first form's results. */
static bool compare_forms(tx_context *context, tx_cl_solo *solo, const shape *s, tx_cl_attention_kernel kernel,
                          unsigned char *first, unsigned char *now)
{
    const tx_operand *y = &solo->command.out[0];
    const tx_cl_attention_job job = {.command = &solo->command,
                                     .B = s->B,
                                     .T = s->T,
                                     .S = s->T,
                                     .last = (s->heads + 2 * s->kv_heads) * s->d,
                                     .heads = s->heads,
                                     .kv_heads = s->kv_heads,
                                     .d = s->d,
                                     .cpu = context->limits.cpu};
    tx_cl_attention_forms forms;
    CHECK(tx_cl_attention_list(context, &job, kernel, &forms));
    for (int i = 0; i < forms.count; i++) {
        const tx_cl_attention_form *form = &forms.form[i];
        const struct tx_cl_forced forced = {keys[kernel], form->name};
        char tiles[32];
        snprintf(tiles, sizeof tiles, "%dx%d", form->rows, form->cols);
        memcpy(now, first, (size_t)solo->bytes);
        memset(now + y->offset, 0xFF, (size_t)tx_operand_bytes(y)); /* NaN */
        context->forced = &forced;
        const bool ran = run(context, solo, now, tiles);
        context->forced = NULL;
        if (!ran)
            return false;
        if (i == 0)
            memcpy(first, now, (size_t)solo->bytes);
        const double off = distance(at(now, y), at(first, y), tx_operand_count(y));
        printf("%s  kernel %d, d %d, T %d, %s: %.1e from %s\n", off <= 1e-6 ? "ok" : "FAIL", (int)kernel, s->d,
               (int)s->T, form->name, off, forms.form[0].name);
        if (!(off <= 1e-6))
            return false;
    }
    return true;
}

/* A form that there is not declines, and what is opened in vain after it ran can be closed. */
static bool declines(tx_context *context, tx_cl_solo *solo, unsigned char *host)
{
    const struct tx_cl_forced forced = {TX_CL_ATTENTION, "gpu-1x1-1"};
    context->forced = &forced;
    const tx_status status = tx_cl_solo_open(context, solo, host);
    context->forced = NULL;
    tx_cl_solo_close(context, solo);
    return status == TX_UNSUPPORTED && strstr(tx_error(), "gpu-1x1-1 declines");
}

/* Forward, then the gradient at what came of it. */
static bool compare(tx_context *context, const shape *s)
{
    tx_cl_solo forward = {.command = command_of(s, false)}, backward = {.command = command_of(s, true)};
    tx_cl_solo_place(&forward);
    tx_cl_solo_place(&backward);
    const size_t size = (size_t)(forward.bytes > backward.bytes ? forward.bytes : backward.bytes);
    unsigned char *first = malloc(size), *now = malloc(size), *gradient = malloc(size);
    bool good = first && now && gradient;
    if (good) {
        const tx_operand *from[] = {&forward.command.in[0], &forward.command.out[0], &forward.command.out[1]};
        const tx_operand *to[] = {&backward.command.in[1], &backward.command.in[2], &backward.command.in[3]};
        tx_cl_solo_fill(&forward, (int32_t)(s->T - 5), first); /* rows end within their blocks */
        tx_cl_solo_fill(&backward, (int32_t)(s->T - 5), gradient);
        good = compare_forms(context, &forward, s, TX_CL_FORWARD, first, now) && declines(context, &forward, first);
        for (int i = 0; i < 3; i++)
            memcpy(at(gradient, to[i]), at(first, from[i]), (size_t)tx_operand_bytes(to[i]));
        good = good && compare_forms(context, &backward, s, TX_CL_GRAD_Q, gradient, now) &&
               compare_forms(context, &backward, s, TX_CL_GRAD_KV, gradient, now);
    }
    free(first);
    free(now);
    free(gradient);
    return good;
}

/* The form that forward attention of shapes[0] gets in this context, by what it says of its choices. */
static bool chosen(tx_context *context, char key[TX_CL_CHOICE_KEY], char name[TX_CL_CHOICE_NAME])
{
    tx_cl_solo solo = {.command = command_of(&shapes[0], false)};
    tx_cl_solo_place(&solo);
    unsigned char *host = malloc((size_t)solo.bytes);
    char *text = NULL;
    if (!host)
        return false;
    tx_cl_solo_fill(&solo, 0, host);
    bool good = run(context, &solo, host, NULL) && tx_cl_choices(context, &text) == TX_OK;
    const char *line = good ? strstr(text, TX_CL_ATTENTION " forward") : NULL;
    good = line && sscanf(line, "%127[^\t]\t%47[^\n]", key, name) == 2;
    free(text);
    free(host);
    return good;
}

/* What a run before chose goes before the table, and that before the default. */
static bool keep_choices(void)
{
    char key[TX_CL_CHOICE_KEY], usual[TX_CL_CHOICE_NAME], name[TX_CL_CHOICE_NAME], line[TX_CL_CHOICE_KEY + 64];
    tx_context *context;
    CHECK(tx_cl_open(0, NULL, &context));
    const bool cpu = context->limits.cpu;
    const char *const tabled = cpu ? "cpu-16x16" : "gpu-32x32-64", *const earlier = cpu ? "cpu-8x16" : "gpu-16x32-32";
    bool good = chosen(context, key, usual) && strcmp(usual, tabled) != 0 && strcmp(usual, earlier) != 0;
    snprintf(line, sizeof line, "%s 1.0 ms", tabled);
    tx_cl_table_put(context, key, line);
    good = good && chosen(context, key, name) && strcmp(name, usual) == 0; /* as long as the device is open */
    tx_cl_close(context);

    CHECK(tx_cl_open(0, NULL, &context));
    good = good && chosen(context, key, name) && strcmp(name, tabled) == 0;
    tx_cl_close(context);

    CHECK(tx_cl_open(0, NULL, &context));
    snprintf(line, sizeof line, "%s\t%s\n", key, earlier);
    CHECK(tx_cl_choose(context, line));
    good = good && chosen(context, key, name) && strcmp(name, earlier) == 0;
    snprintf(line, sizeof line, "%s\tgpu-1x1-1\n", key);
    good = good && tx_cl_choose(context, line) == TX_UNSUPPORTED && strstr(tx_error(), "form of attention");
    tx_cl_close(context);
    printf("%s  choices: %s, %s, %s\n", good ? "ok" : "FAIL", usual, tabled, earlier);
    return good;
}

int main(void)
{
    int32_t count = 0;
    tx_context *context;
    if (tx_cl_device_count(&count) != TX_OK || count == 0) {
        printf("no OpenCL device\n");
        return 77;
    }
    if (tx_cl_open(0, NULL, &context) != TX_OK) {
        printf("FAIL %s\n", tx_error());
        return 1;
    }
    bool good = true;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        good = compare(context, &shapes[i]) && good;
    tx_cl_close(context);
    return keep_choices() && good ? 0 : 1;
}
