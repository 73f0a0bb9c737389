/* SPDX-License-Identifier: Apache-2.0
 * Selection of the form of a kernel of attention. A form takes some drivers seconds to compile, so
 * forms are compared in tuning runs alone. */
#include "backends/opencl/attention/attention.h"

#include <stdio.h>
#include <string.h>

/* The kernel and its forms. */
typedef struct subject {
    const tx_cl_attention_job *a;
    tx_cl_attention_kernel kernel;
    tx_cl_attention_forms forms;
} subject;

/* Whether the command's type decides what it can get. */
static bool typed(const subject *s)
{
    return s->forms.count > 0 && s->forms.form[0].kind->typed;
}

static tx_status prove(tx_context *context, const tx_cl_selection *q, int id)
{
    const subject *s = q->user;
    return tx_cl_attention_trial(context, s->a, s->kernel, &s->forms.form[id]);
}

static tx_status measure(tx_context *context, const tx_cl_selection *q, int id, double give_up_after, double *seconds)
{
    (void)give_up_after;
    const subject *s = q->user;
    const tx_dtype type = typed(s) ? s->a->type : TX_F32; /* the tiles in local memory are fp32 whatever is loaded */
    return tx_cl_attention_measure(context, s->a, s->kernel, s->forms.form[id].name, type, seconds);
}

/* What decides which form is fastest; sizes by their upper powers of two. */
static void describe(const subject *s, tx_cl_selection *q)
{
    const tx_cl_attention_job *a = s->a;
    const tx_attrs *attrs = &a->command->attrs;
    char window[16] = "";
    if (a->window > 0)
        snprintf(window, sizeof window, " w%d", tx_cl_class_of(a->window));
    if (a->cached) {
        q->proven = snprintf(q->key, sizeof q->key, TX_CL_ATTENTION_CACHED " d%d %d/%d b%d t%d s%d%s", a->d, a->heads,
                             a->kv_heads, tx_cl_class_of(a->B), tx_cl_class_of(a->T), tx_cl_class_of(a->S), window);
        return;
    }
    const bool forward = s->kernel == TX_CL_FORWARD, lengths = tx_present(&a->command->in[forward ? 1 : 4]);
    snprintf(q->key, sizeof q->key, "%s d%d %d/%d b%d t%d%s%s%s%s%s%s%s", tx_cl_attention_keys[s->kernel], a->d,
             a->heads, a->kv_heads, tx_cl_class_of(a->B), tx_cl_class_of(a->T),
             attrs->attention.causal ? " causal" : "", lengths ? " lengths" : "", window, a->starts ? " starts" : "",
             attrs->draw.p > 0.0f ? " dropout" : "", typed(s) ? " " : "", typed(s) ? tx_cl_storage(a->type) : "");
    q->proven = (int)strlen(q->key);
    int64_t B, T;
    tx_cl_attention_cut(a, &B, &T);
    snprintf(q->sample, sizeof q->sample, "%s at %lld x %lld tokens", forward ? "forward" : "backward", (long long)B,
             (long long)T);
}

tx_status tx_cl_attention_choose(const tx_cl_builder *b, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel,
                                 tx_cl_attention_form *form, char note[160])
{
    subject s = {.a = a, .kernel = kernel};
    TX_TRY(tx_cl_attention_list(b->context, a, kernel, &s.forms));
    tx_cl_selection q = {.what = "form of attention",
                         .forced = b->forced,
                         .fixed = a->cached, /* a step of it takes too short to tell */
                         .user = &s,
                         .prove = prove,
                         .seconds = measure};
    describe(&s, &q);
    for (int i = 0; i < s.forms.count; i++)
        tx_cl_add_candidate(&q, i, s.forms.form[i].name, s.forms.form[i].share, s.forms.rejected);
    TX_TRY(tx_cl_select(b->context, &q));
    *form = s.forms.form[q.candidate[0].id];
    int length = form->kind->typed ? snprintf(note, 160, "%s", form->name)
                                   : snprintf(note, 160, "%dx%d%s", form->rows, form->cols,
                                              a->cpu && form->kind == &tx_cl_attention_gpu ? " as on GPUs" : "");
    if (*q.rejected)
        snprintf(note + length, 160 - (size_t)length, " (%.128s)", q.rejected);
    return TX_OK;
}
