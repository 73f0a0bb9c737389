/* SPDX-License-Identifier: Apache-2.0
 * The inference rule of fake quantization. */
#include "api/graph/infer.h"
#include "api/packed/packed.h"

tx_status tx_infer_fake_quantize(const tx_infer *c)
{
    const char *problem = tx_rounding_problem(&c->attrs->rounding, &c->in[0].shape);
    TX_TRY(tx_require(c, "F"));
    return problem ? tx_refuse(c, "%s", problem) : tx_set_output_as(c, TX_F32, c->in[0].shape);
}
