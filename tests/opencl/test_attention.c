/* SPDX-License-Identifier: Apache-2.0
 *
 * Every form of attention's kernels that the device can run is correct, forward and backward. A class of shapes uses
 * the form that an earlier run chose, otherwise that of the device's table.
 *
 *     test_attention      TX_CACHE_DIR names a folder of its own; exit status 77: there is no OpenCL device */
#include "backends/opencl/runtime/internal.h"
#include "backends/opencl/tune/trials.h"

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
    int32_t window;
    bool starts;
} shape;

/* Few: a form takes seconds to compile. */
static const shape shapes[] = {{2, 70, 4, 2, 64, true, false, 0.1f, 0, false},
                               {1, 33, 3, 3, 40, false, true, 0.0f, 0, false},
                               {1, 70, 2, 1, 32, true, false, 0.0f, 9, true}};

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
                    .attrs = {.attention.heads = s->heads,
                              .attention.kv_heads = s->kv_heads,
                              .attention.causal = s->causal,
                              .attention.window = s->window,
                              .draw.p = s->p,
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
    if (s->starts)
        c.in[backward ? 5 : 2] = (tx_operand){.dtype = TX_I32, .shape = TX_SHAPE(s->B, s->T)};
    c.out[0] = backward ? qkv : o;
    c.out[1] = lse;
    return c;
}

/* All forms of one kernel; `cached`: as ATTENTION_CACHED runs it. */
static bool try_forms(tx_context *context, const shape *s, tx_cl_attention_kernel kernel, bool cached)
{
    tx_command command = command_of(s, kernel != TX_CL_FORWARD);
    if (cached)
        command.op = TX_OP_ATTENTION_CACHED;
    const tx_cl_attention_job job = {.command = &command,
                                     .B = s->B,
                                     .T = s->T,
                                     .S = s->T,
                                     .last = (s->heads + 2 * s->kv_heads) * s->d,
                                     .heads = s->heads,
                                     .kv_heads = s->kv_heads,
                                     .d = s->d,
                                     .limits = &context->limits,
                                     .cached = cached};
    const tx_cl_builder asks = tx_cl_asker(context);
    tx_cl_attention_forms forms;
    bool good = true;
    CHECK(tx_cl_attention_list(context, &job, kernel, &forms));
    for (int i = 0; i < forms.count; i++) {
        const bool right = tx_cl_attention_verify(&asks, &job, kernel, &forms.form[i]) == TX_OK;
        printf("%s  kernel %d, d %d, %s%s%s\n", right ? "ok" : "FAIL", (int)kernel, s->d, forms.form[i].name,
               right ? "" : ": ", right ? "" : tx_error());
        good = good && right;
    }
    return good;
}

/* A form that there is not declines. */
static bool declines(tx_context *context)
{
    const tx_cl_builder asks = tx_cl_asker(context);
    const tx_cl_forced forced = {.begins = tx_cl_attention_keys[TX_CL_FORWARD], .name = "gpu-1x1-1"};
    tx_probe probe = {.command = command_of(&shapes[0], false)};
    CHECK(tx_probe_create(&probe));
    const tx_status status = tx_cl_verify_candidate(&asks, &forced, &probe);
    tx_probe_free(&probe);
    return status == TX_UNSUPPORTED && strstr(tx_error(), "gpu-1x1-1 declines");
}

/* Finds the form of forward attention for shapes[0] in this context, from the report of its choices. */
static bool chosen(tx_context *context, char key[TX_CL_CHOICE_KEY], char name[TX_CL_CHOICE_NAME])
{
    tx_command command = command_of(&shapes[0], false);
    const tx_program program = {.length = 1, .commands = &command};
    tx_executable *executable;
    int64_t scratch;
    char *text = NULL;
    CHECK(tx_cl_prepare(context, &program, &executable, &scratch));
    tx_cl_destroy(executable);
    CHECK(tx_cl_choices(context, &text));
    const char *line = strstr(text, tx_cl_attention_keys[TX_CL_FORWARD]);
    const bool good = line && sscanf(line, "%127[^\t]\t%47[^\n]", key, name) == 2;
    free(text);
    return good;
}

/* The choice of an earlier run has priority over the table, and the table over the default. */
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
        for (int kernel = 0; kernel < 3; kernel++)
            good = try_forms(context, &shapes[i], (tx_cl_attention_kernel)kernel, false) && good;
    shape token = shapes[0];
    good = try_forms(context, &token, TX_CL_FORWARD, true) && good; /* a prompt, and the token after it */
    token.window = 9;
    token.T = 1;
    good = try_forms(context, &token, TX_CL_FORWARD, true) && good;
    good = declines(context) && good;
    tx_cl_close(context);
    return keep_choices() && good ? 0 : 1;
}
