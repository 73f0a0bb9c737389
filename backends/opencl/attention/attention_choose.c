/* SPDX-License-Identifier: Apache-2.0
 *
 * Selects the form of an attention kernel.
 */
#include "backends/opencl/attention/attention.h"

#include <stdio.h>
#include <string.h>

const char *const tx_cl_attention_keys[] = {TX_CL_ATTENTION " forward", TX_CL_ATTENTION " dq", TX_CL_ATTENTION " dkv"};

bool tx_cl_attention_runs(const tx_cl_builder *b, tx_cl_attention_kernel kernel)
{
    const tx_cl_forced *forced = b->forced;
    bool meant = false;
    for (int i = 0; forced && i < 3; i++)
        meant = meant || strcmp(forced->begins, tx_cl_attention_keys[i]) == 0;
    return !meant || strcmp(forced->begins, tx_cl_attention_keys[kernel]) == 0;
}

tx_status tx_cl_attention_choose(tx_cl_builder *b, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel,
                                 tx_cl_attention_form *form, char note[160])
{
    tx_cl_attention_subject s = {.a = a, .kernel = kernel};
    TX_TRY(tx_cl_attention_list(b->context, a, kernel, &s.forms));
    tx_cl_selection q = {.what = "form of attention",
                         .kind = a->cached ? TX_CL_ATTENTION_CACHED : tx_cl_attention_keys[kernel],
                         .user = &s};
    for (int i = 0; i < s.forms.count; i++)
        tx_cl_add_candidate(&q, i, s.forms.form[i].name, s.forms.form[i].share, s.forms.rejected);
    TX_TRY(tx_cl_select(b, &q));
    *form = s.forms.form[q.candidate[0].id];
    int length = form->kind->typed
                     ? snprintf(note, 160, "%s", form->name)
                     : snprintf(note, 160, "%dx%d%s", form->rows, form->cols,
                                a->limits->cpu && form->kind == &tx_cl_attention_gpu ? " as on GPUs" : "");
    if (*q.rejected)
        snprintf(note + length, 160 - (size_t)length, " (%.128s)", q.rejected);
    return TX_OK;
}
