/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention by matrix units on a simulated card: the forms pass their known-answer tests, forward and backward, and
 * come first if they support a class of shapes. Forms by another unit, which come later in the list, are not tried.
 * A sum of the gradient over rows that is joined with it (runtime/join.c) is the sum of the stored rows. Units whose
 * lanes exchange sums compute it without reading them again, except with windows and packed documents.
 *
 *     LD_PRELOAD=libstand_in_card.so TX_TEST_CARD=CARD test_matrix_attention
 *
 * computes the units' instructions in OpenCL C. With libamd_card.so before the other library it runs AMD's machine
 * code. Exit status 77: there is no OpenCL device. */
#include "backends/opencl/runtime/internal.h"
#include "backends/opencl/tune/trials.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Attention by a card: of which class; the first form of each kernel has a name that begins with `expected`. */
typedef struct attention_proof {
    const char *card;
    tx_dtype type;
    int32_t d, heads, kv_heads;
    bool causal, lengths;
    float p;
    int32_t window;
    bool starts;
    const char *expected;
} attention_proof;

static bool is_expected(const attention_proof *t, const tx_cl_attention_form *form)
{
    return strncmp(form->name, t->expected, strlen(t->expected)) == 0;
}

static tx_command attention_of(const attention_proof *t, bool backward)
{
    const tx_operand absent = {.dtype = TX_DTYPE_COUNT}, lengths = {.dtype = TX_I32, .shape = TX_SHAPE(1)},
                     starts = {.dtype = TX_I32, .shape = TX_SHAPE(1, 1024)};
    tx_command c = {.op = backward ? TX_OP_ATTENTION_GRAD : TX_OP_ATTENTION,
                    .attrs = {.attention.heads = t->heads,
                              .attention.kv_heads = t->kv_heads,
                              .attention.causal = t->causal,
                              .attention.window = t->window,
                              .draw.p = t->p,
                              .scale = 1.0f / sqrtf((float)t->d)}};
    const int32_t behind = backward ? 4 : 1;
    for (int i = 0; i < TX_MAX_IN; i++)
        c.in[i] = absent;
    c.in[behind] = t->lengths ? lengths : absent;
    c.in[behind + 1] = t->starts ? starts : absent;
    return c;
}

static bool prove_forms(tx_context *context, const attention_proof *t, tx_cl_attention_kernel kernel)
{
    tx_command command = attention_of(t, kernel != TX_CL_FORWARD);
    const tx_cl_attention_job job = {.command = &command,
                                     .B = 16,
                                     .T = 1024,
                                     .S = 1024,
                                     .last = (t->heads + 2 * t->kv_heads) * t->d,
                                     .heads = t->heads,
                                     .kv_heads = t->kv_heads,
                                     .d = t->d,
                                     .type = t->type,
                                     .limits = &context->limits};
    const tx_cl_builder asks = tx_cl_asker(context);
    tx_cl_attention_forms forms;
    tx_status status = tx_cl_attention_list(context, &job, kernel, &forms);
    bool good = !status && is_expected(t, &forms.form[0]);
    const char *failed = "";
    for (int i = 0; !status && i < forms.count && is_expected(t, &forms.form[i]) && forms.form[i].kind->typed; i++) {
        status = tx_cl_attention_verify(&asks, &job, kernel, &forms.form[i]);
        failed = status ? forms.form[i].name : failed;
        good = good && !status;
    }
    printf("%s  %s, attention's kernel %d: %s, heads of %d, %d of %d%s%s%s%s%s: %s%s%s\n", good ? "ok" : "FAIL",
           t->card, (int)kernel, tx_dtype_name(t->type), t->d, t->heads, t->kv_heads, t->causal ? ", causal" : "",
           t->lengths ? ", lengths" : "", t->p > 0.0f ? ", dropout" : "", t->window ? ", window" : "",
           t->starts ? ", starts" : "", failed, status ? ": " : "", status ? tx_error() : forms.form[0].name);
    fflush(stdout);
    return good;
}

/* ---- A joined sum ------------------------------------------------------------------------------------------- */

enum { BATCH = 2, TOKENS = 250 };

static tx_command sum; /* of the probe's result */
static int64_t used;   /* scratch memory of both */

static tx_status prepare_both(tx_context *context, const tx_program *program, tx_executable **x, int64_t *scratch)
{
    static tx_command both[2];
    both[0] = program->commands[0];
    both[1] = sum;
    const tx_status s = tx_cl_prepare(context, &(tx_program){.length = 2, .commands = both, .whole = true}, x, scratch);
    used = *scratch;
    return s;
}

static tx_status run_both(tx_executable *x, int32_t first, int32_t count, const tx_controls *controls, double *seconds)
{
    return tx_cl_run_program(x, first, count + 1, controls, seconds);
}

/* The gradient of attention, and the sum of it in memory after it. */
static tx_status create(const attention_proof *t, tx_probe *probe)
{
    const int32_t width = (t->heads + 2 * t->kv_heads) * t->d;
    tx_command *c = &probe->command;
    *probe = (tx_probe){.command = attention_of(t, true)};
    c->in[0] = c->in[2] = (tx_operand){.dtype = t->type, .shape = TX_SHAPE(BATCH, TOKENS, t->heads * t->d)};
    c->in[1] = c->out[0] = (tx_operand){.dtype = t->type, .shape = TX_SHAPE(BATCH, TOKENS, width)};
    c->in[3] = c->out[1] = (tx_operand){.dtype = TX_F32, .shape = TX_SHAPE(BATCH, t->heads, TOKENS)};
    c->in[4].shape = TX_SHAPE(BATCH);
    c->in[5].shape = TX_SHAPE(BATCH, TOKENS);
    for (int i = 2; i < TX_MAX_OUT; i++)
        c->out[i].dtype = TX_DTYPE_COUNT;
    TX_TRY(tx_probe_create(probe));
    tx_probe_fill(probe, TX_PROBE_ROUGH, TOKENS - 7);
    for (int64_t i = 0; t->starts && i < BATCH * TOKENS; i++)
        ((int32_t *)(void *)(probe->data + c->in[5].offset))[i] = (int32_t)(i % TOKENS / 71 * 71);
    sum = tx_probe_command(TX_OP_REDUCE, &(tx_attrs){.axis = TX_AXIS_ROWS, .alpha = 0.5f, .control = -1});
    sum.in[0] = c->out[0];
    sum.out[0] = (tx_operand){.dtype = TX_F32, .shape = TX_SHAPE(width)};
    sum.out[1] = (tx_operand){.dtype = TX_F32, .shape = TX_SHAPE(tx_reduce_work(TX_AXIS_ROWS, &c->out[0].shape))};
    for (int i = 0; i < 2; i++) {
        sum.out[i].arena = TX_ARENA_PLANNED;
        sum.out[i].offset = tx_round_up(probe->bytes, TX_ALIGNMENT);
        probe->bytes = sum.out[i].offset + tx_operand_bytes(&sum.out[i]);
    }
    unsigned char *more = realloc(probe->data, (size_t)probe->bytes);
    if (!more)
        return tx_fail(TX_MEMORY, "out of memory");
    probe->data = more;
    return TX_OK;
}

static int64_t scratch_bytes(int64_t floats)
{
    return tx_round_up((int64_t)sizeof(float) * floats, TX_ALIGNMENT);
}

/* Returns the scratch memory of sums of tiles, or of the sum of the stored rows. */
static int64_t expected_scratch(tx_context *context, const attention_proof *t, const tx_command *c)
{
    int64_t bytes = 0;
    for (int kernel = TX_CL_GRAD_Q; kernel <= TX_CL_GRAD_KV; kernel++) {
        const tx_cl_attention_job job = {.command = c,
                                         .B = BATCH,
                                         .T = TOKENS,
                                         .S = TOKENS,
                                         .last = tx_shape_last(&c->in[1].shape),
                                         .heads = t->heads,
                                         .kv_heads = t->kv_heads,
                                         .d = t->d,
                                         .type = t->type,
                                         .limits = &context->limits};
        tx_cl_attention_forms forms;
        if (tx_cl_attention_list(context, &job, (tx_cl_attention_kernel)kernel, &forms) != TX_OK)
            return -1;
        if (context->can.vendor == TX_CL_INTEL || t->window > 0 || t->starts)
            return scratch_bytes(tx_operand_count(&sum.out[1]));
        const int64_t tiles = BATCH * tx_cl_blocks(TOKENS, forms.form[0].lines);
        bytes += scratch_bytes(tiles * t->d * (kernel == TX_CL_GRAD_Q ? t->heads : 2 * t->kv_heads));
    }
    return bytes;
}

/* Compares the sums with those of the stored rows, which were rounded by relative errors of at most 2^-8 (bf16) or
 * 2^-11 (fp16), independent of each other. Returns the number of wrong columns. */
static int wrong_sums(const attention_proof *t, const tx_probe *probe, const unsigned char *data)
{
    const int64_t width = tx_operand_count(&sum.out[0]);
    int wrong = 0;
    for (int64_t column = 0; column < width; column++) {
        double want = 0.0, squares = 0.0;
        for (int64_t row = 0; row < BATCH * TOKENS; row++) {
            const double v = (double)tx_probe_get(data, &probe->command.out[0], row * width + column);
            want += v;
            squares += v * v;
        }
        const double error = fabs(2.0 * (double)tx_probe_get(data, &sum.out[0], column) - want);
        wrong += !(error <= (t->type == TX_BF16 ? 0x1p-6 : 0x1p-9) * sqrt(squares)) || !(squares > 0.0);
    }
    return wrong;
}

static bool prove_sums(tx_context *context, const attention_proof *t)
{
    tx_backend both = tx_cl_plain;
    both.prepare = prepare_both;
    both.run = run_both;
    tx_probe probe;
    tx_probe_run run = {0};
    tx_status s = create(t, &probe);
    unsigned char *const data[2] = {malloc((size_t)probe.bytes), malloc((size_t)probe.bytes)};
    TX_THEN(s, tx_probe_open(&run, &both, context, &probe, NULL));
    for (int i = 0; i < 2; i++) {
        TX_THEN(s, tx_probe_launch(&run));
        TX_THEN(s, tx_probe_read(&run, data[i]));
    }
    const int wrong = s ? 0 : wrong_sums(t, &probe, data[0]);
    const bool same = !s && memcmp(data[0] + sum.out[0].offset, data[1] + sum.out[0].offset,
                                   (size_t)tx_operand_bytes(&sum.out[0])) == 0;
    const bool good = !s && wrong == 0 && same && used == expected_scratch(context, t, &probe.command);
    printf("%s  %s, sums of the gradient: %d wrong, %s bits, %lld bytes of scratch memory %s\n", good ? "ok" : "FAIL",
           t->card, wrong, same ? "same" : "other", (long long)used, s ? tx_error() : "");
    fflush(stdout);
    tx_probe_close(&run);
    tx_probe_free(&probe);
    free(data[0]);
    free(data[1]);
    return good;
}

int main(void)
{
    static const attention_proof proofs[] = {
        {"h200", TX_BF16, 64, 2, 1, true, false, 0.0f, 0, false, "nvidia-wgmma"},
        {"h200", TX_BF16, 64, 2, 2, true, true, 0.1f, 0, false, "nvidia-wgmma"},
        {"h200", TX_F16, 64, 1, 1, false, true, 0.0f, 50, true, "nvidia-wgmma"},
        {"h200", TX_F16, 128, 2, 1, false, true, 0.0f, 0, false, "nvidia-wgmma"},
        {"h200", TX_BF16, 128, 1, 1, true, false, 0.1f, 70, true, "nvidia-wgmma"},
        {"a100", TX_BF16, 64, 2, 2, true, true, 0.1f, 0, false, "nvidia-mma"},
        {"a100", TX_F16, 128, 1, 1, false, true, 0.0f, 0, false, "nvidia-mma"},
        {"rtx4090", TX_BF16, 80, 2, 1, true, false, 0.1f, 70, true, "nvidia-mma"},
        {"h200", TX_F16, 96, 1, 1, true, false, 0.0f, 50, false, "nvidia-mma"},
        {"h200", TX_BF16, 72, 1, 1, true, false, 0.0f, 0, false, "gpu"},
        {"h200", TX_F32, 64, 1, 1, true, false, 0.0f, 0, false, "gpu"},
        {"v100", TX_F16, 64, 1, 1, true, false, 0.0f, 0, false, "gpu"},
        {"mi300x", TX_BF16, 64, 2, 1, true, false, 0.1f, 0, false, "amd-mfma"},
        {"mi250", TX_F16, 128, 1, 1, false, true, 0.0f, 0, false, "amd-mfma"},
        {"mi300x", TX_BF16, 96, 2, 2, true, false, 0.0f, 70, true, "amd-mfma"},
        {"mi300x", TX_BF16, 80, 1, 1, true, false, 0.0f, 0, false, "gpu"},
        {"rx7900xtx", TX_BF16, 64, 2, 1, true, false, 0.1f, 0, false, "amd-wmma"},
        {"rx7900xtx", TX_F16, 128, 1, 1, false, true, 0.0f, 0, false, "amd-wmma"},
        {"rx9070", TX_BF16, 128, 2, 1, true, false, 0.1f, 0, false, "amd-wmma"},
        {"rx9070", TX_F16, 64, 1, 1, true, false, 0.0f, 40, true, "amd-wmma"},
        {"b580", TX_BF16, 64, 2, 1, true, false, 0.1f, 0, false, "intel-dpas"},
        {"b580", TX_F16, 48, 1, 1, false, true, 0.0f, 40, true, "intel-dpas"},
        {"b580", TX_BF16, 128, 2, 1, true, false, 0.1f, 0, false, "intel-dpas"},
        {"b580", TX_F16, 96, 1, 1, false, true, 0.0f, 40, true, "intel-dpas"},
        {"a770", TX_BF16, 64, 2, 1, true, false, 0.1f, 0, false, "intel-dpas"},
        {"a770", TX_F16, 48, 1, 1, false, true, 0.0f, 40, true, "intel-dpas"},
        {"a770", TX_BF16, 128, 2, 1, true, false, 0.1f, 0, false, "intel-dpas"},
        {"a770", TX_F16, 96, 1, 1, false, true, 0.0f, 40, true, "intel-dpas"},
    };
    const char *card = getenv("TX_TEST_CARD");
    tx_context *context;
    int32_t devices = 0;
    bool good = true;
    int tried = 0;
    if (tx_cl_device_count(&devices) != TX_OK || devices == 0)
        return printf("skipped: no OpenCL device\n"), 77;
    setenv("TX_GEMM_TUNE", "0", 1);
    if (tx_cl_open(0, NULL, &context) != TX_OK)
        return printf("FAIL %s\n", tx_error()), 1;
    for (size_t i = 0; i < sizeof proofs / sizeof proofs[0]; i++) {
        const attention_proof *t = &proofs[i];
        if (!card || strcmp(t->card, card) != 0)
            continue;
        tried++;
        for (int kernel = TX_CL_FORWARD; kernel <= TX_CL_GRAD_KV; kernel++)
            good = prove_forms(context, t, (tx_cl_attention_kernel)kernel) && good;
        if (strncmp(t->expected, "gpu", 3) != 0)
            good = prove_sums(context, t) && good;
    }
    tx_cl_close(context);
    if (tried == 0)
        printf("FAIL nothing is known of TX_TEST_CARD\n");
    return good && tried > 0 ? 0 : 1;
}
