/* SPDX-License-Identifier: Apache-2.0
 * The inference rules of quantization-aware training. */
#include "api/graph/infer.h"
#include "api/graph/work.h"
#include "api/packed/packed.h"

tx_status tx_infer_fake_quantize(const tx_infer *c)
{
    const char *problem = tx_rounding_problem(&c->attrs->rounding, &c->in[0].shape);
    TX_TRY(tx_require(c, "F"));
    return problem ? tx_refuse(c, "%s", problem) : tx_set_output_as(c, TX_F32, c->in[0].shape);
}

tx_status tx_infer_add_low_rank(const tx_infer *c)
{
    const tx_shape *w = &c->in[0].shape, *b = &c->in[2].shape;
    const int32_t last = w->rank - 1;
    TX_TRY(tx_require(c, "FFFFFF"));
    if (w->rank < 2 || b->rank != w->rank)
        return tx_refuse(c, "%s and %s are no matrices", TX_TEXT(*w), TX_TEXT(*b));
    const int64_t outputs = w->dim[last - !c->attrs->trans_a], rank = b->dim[last];
    if (c->attrs->rows != outputs)
        return tx_require_other_shape(c, 0, "as many outputs as the attributes");
    TX_TRY(tx_require_row_places(c));
    tx_shape a = *w, part = *w;
    a.dim[last] = w->dim[last - c->attrs->trans_a];
    a.dim[last - 1] = 0;
    part.dim[last] = rank;
    for (int i = 0; i < TX_PLACES; i++) {
        const bool present = tx_present(&c->in[2 + i]);
        if (present != (c->attrs->placed[i] > 0) || (present && a.dim[last - 1] < i * rank))
            return tx_refuse(c, "part %d does not have %d outputs", i, (int)c->attrs->placed[i]);
        part.dim[last - 1] = c->attrs->placed[i];
        TX_TRY(tx_require_shape(c, 2 + i, &part));
        a.dim[last - 1] += present ? rank : 0;
    }
    TX_TRY(tx_require_shape(c, 1, &a));
    return tx_set_output(c, 0, TX_F32, *w);
}

double tx_flops_add_low_rank(const tx_command *c)
{
    double count = 0.0;
    for (int i = 2; i < TX_MAX_IN; i++)
        count += tx_present(&c->in[i]) ? (double)tx_operand_count(&c->in[i]) : 0.0;
    return 2.0 * count * (double)tx_shape_last(&c->in[1].shape);
}
