/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention by matrix units on a simulated card: the forms pass their known-answer tests, forward and backward, and
 * come first if they support a class of shapes. Forms by another unit, which come later in the list, are not tried.
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
    }
    tx_cl_close(context);
    if (tried == 0)
        printf("FAIL nothing is known of TX_TEST_CARD\n");
    return good && tried > 0 ? 0 : 1;
}
