/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the selection of a candidate (select.h).
 */
#include "backends/opencl/runtime/select.h"

#include <stdio.h>
#include <string.h>

void tx_cl_add_candidate(tx_cl_selection *q, int id, const char *name, double share, const char *why)
{
    if (*why && !*q->rejected)
        snprintf(q->rejected, sizeof q->rejected, "%s", why);
    if (!(share > 0.0) || q->count == TX_CL_CANDIDATES)
        return;
    int at = q->count++;
    for (; at > 0 && q->candidate[at - 1].share < share; at--)
        q->candidate[at] = q->candidate[at - 1];
    q->candidate[at] = (tx_cl_candidate){.id = id, .name = name, .share = share};
}

const tx_cl_candidate *tx_cl_find_candidate(const tx_cl_selection *q, const char *name)
{
    for (int i = 0; i < q->count; i++)
        if (strcmp(q->candidate[i].name, name) == 0)
            return &q->candidate[i];
    return NULL;
}

tx_status tx_cl_select(tx_cl_builder *b, tx_cl_selection *q)
{
    const tx_cl_forced *forced = b->forced;
    if (forced && strncmp(q->kind, forced->begins, strlen(forced->begins)) == 0) {
        const tx_cl_candidate *candidate = tx_cl_find_candidate(q, forced->name);
        if (!candidate)
            return tx_fail(TX_UNSUPPORTED, "%s declines", forced->name);
        q->candidate[0] = *candidate;
        return TX_OK;
    }
    if (b->context->select && !forced)
        TX_TRY(b->context->select(b, q));
    return q->count > 0 ? TX_OK
                        : tx_fail(TX_UNSUPPORTED, "no %s supports this operation%s%s", q->what,
                                  *q->rejected ? ": " : "", q->rejected);
}
