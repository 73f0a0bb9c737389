/* SPDX-License-Identifier: Apache-2.0
 *
 * The class of an attention kernel for the autotuner: the properties that determine the fastest form.
 */
#include "backends/opencl/tune/trials.h"

#include <stdio.h>
#include <string.h>

/* Returns true if the candidates depend on the command's type. */
static bool typed(const tx_cl_attention_subject *s)
{
    return s->forms.count > 0 && s->forms.form[0].kind->typed;
}

static tx_status prove(const tx_cl_class *c, int id)
{
    const tx_cl_attention_subject *s = c->q->user;
    return tx_cl_attention_verify(c->b, s->a, s->kernel, &s->forms.form[id]);
}

/* Adds the type, which selects the program, if the key lacks it. */
static void form_of(const tx_cl_class *c, int id, char text[TX_CL_FORM])
{
    (void)id;
    const tx_cl_attention_subject *s = c->q->user;
    if (!s->a->cached && !typed(s))
        snprintf(text, TX_CL_FORM, " %s", tx_cl_storage(s->a->type));
}

static tx_status measure(const tx_cl_class *c, int id, double give_up_after, double *seconds)
{
    (void)give_up_after;
    const tx_cl_attention_subject *s = c->q->user;
    const tx_dtype type = typed(s) ? s->a->type : TX_F32; /* the tiles in local memory are fp32 for any stored type */
    return tx_cl_attention_measure(c->b, s->a, s->kernel, s->forms.form[id].name, type, seconds);
}

/* Writes the key of the class. Sizes are rounded up to powers of two. */
static void describe(const tx_cl_attention_subject *s, tx_cl_class *c)
{
    const tx_cl_attention_job *a = s->a;
    const tx_attrs *attrs = &a->command->attrs;
    char window[16] = "";
    if (a->window > 0)
        snprintf(window, sizeof window, " %c%d", attrs->attention.chunked ? 'c' : 'w', tx_cl_class_of(a->window));
    const char *more = attrs->attention.cap > 0.0f ? a->sinks ? " cap sinks" : " cap" : a->sinks ? " sinks" : "";
    if (a->cached) {
        c->proven =
            snprintf(c->key, sizeof c->key, TX_CL_ATTENTION_CACHED " d%d %d/%d b%d t%d s%d%s%s", a->d, a->heads,
                     a->kv_heads, tx_cl_class_of(a->B), tx_cl_class_of(a->T), tx_cl_class_of(a->S), window, more);
        return;
    }
    const bool forward = s->kernel == TX_CL_FORWARD, lengths = tx_present(&a->command->in[forward ? 1 : 4]);
    snprintf(c->key, sizeof c->key, "%s d%d %d/%d b%d t%d%s%s%s%s%s%s%s%s", tx_cl_attention_keys[s->kernel], a->d,
             a->heads, a->kv_heads, tx_cl_class_of(a->B), tx_cl_class_of(a->T),
             attrs->attention.causal ? " causal" : "", lengths ? " lengths" : "", window, a->starts ? " starts" : "",
             attrs->draw.p > 0.0f ? " dropout" : "", more, typed(s) ? " " : "", typed(s) ? tx_cl_storage(a->type) : "");
    c->proven = (int)strlen(c->key);
    int64_t B, T;
    tx_cl_attention_cut(a, &B, &T);
    snprintf(c->sample, sizeof c->sample, "%s at %lld x %lld tokens", forward ? "forward" : "backward", (long long)B,
             (long long)T);
}

/* Forms are compared only in tuning runs, because some drivers compile one for seconds. With caches a step is too
 * short to measure. */
void tx_cl_attention_class(tx_cl_class *c)
{
    const tx_cl_attention_subject *s = c->q->user;
    describe(s, c);
    c->fixed = s->a->cached;
    c->form = form_of;
    c->prove = prove;
    c->seconds = measure;
}
