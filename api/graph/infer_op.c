/* SPDX-License-Identifier: Apache-2.0
 *
 * Shape inference: every operand of every op is validated here, once, above the backends. The rules are in the files
 * of their class. */
#include "api/graph/infer.h"

#include "api/base/blocks.h"

static tx_status (*const rules[TX_OP_COUNT])(const tx_infer *) = {
#define TX_OP(NAME, name, CLASS, CAST, min, n_in, n_out, in_place, adds, rule, grad, in, out) \
    [TX_OP_##NAME] = tx_infer_##rule,
#include "ops.def"
};

bool tx_shape_possible(const tx_shape *shape)
{
    bool good = shape->rank >= 1 && shape->rank <= TX_MAX_RANK;
    int64_t count = 1;
    for (int32_t i = 0; good && i < shape->rank; i++) {
        good = shape->dim[i] >= 1 && shape->dim[i] <= INT64_MAX / 16 / count;
        count *= good ? shape->dim[i] : 1;
    }
    return good;
}

static tx_status check_dims(const tx_infer *c, const tx_operand *o, const char *side, int i)
{
    if (tx_shape_possible(&o->shape))
        return TX_OK;
    return tx_refuse(c, "%s %d has an impossible shape %s", side, i, TX_TEXT(o->shape));
}

/* Whether input `i` may be of this packed type. */
static bool may_be_packed(tx_op op, int i, tx_dtype dtype)
{
    enum { ANY, BLOCKS };
    static const struct {
        tx_op op;
        int operand, types;
    } rows[] = {
#define TX_PACKED(NAME, name, operand, types) {TX_OP_##NAME, TX_IN(name, operand), types},
#include "ops.def"
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
        if (rows[r].op == op && rows[r].operand == i)
            return rows[r].types == ANY || tx_block_values(dtype) > 0;
    return false;
}

tx_status tx_op_infer(tx_op op, const tx_attrs *attrs, const tx_operand in[TX_MAX_IN], tx_operand out[TX_MAX_OUT])
{
    const tx_op_info *info = tx_op_info_of(op);
    tx_operand result[TX_MAX_OUT];
    for (int i = 0; i < TX_MAX_OUT; i++)
        result[i] = out[i];
    tx_infer c = {op, attrs, in, result};
    for (int i = 0; i < TX_MAX_IN; i++) {
        bool present = i < info->inputs && tx_present(&in[i]);
        if (i < info->inputs_min && !present)
            return tx_refuse(&c, "input %d is missing", i);
        if (present)
            TX_TRY(check_dims(&c, &in[i], "input", i));
        if (present && tx_dtype_packed(in[i].dtype) && !may_be_packed(op, i, in[i].dtype))
            return tx_refuse(&c, "input %d is %s, which only the second operand of a product%s may be", i,
                             tx_dtype_name(in[i].dtype), tx_block_values(in[i].dtype) ? " or a table" : "");
    }
    if (result[0].shape.rank != 0) /* set for ops that cannot derive it */
        TX_TRY(check_dims(&c, &result[0], "output", 0));
    TX_TRY(rules[op](&c));
    for (int i = 0; i < info->outputs; i++)
        if (tx_present(&result[i]))
            TX_TRY(check_dims(&c, &result[i], "output", i));
    for (int i = 0; i < TX_MAX_OUT; i++) {
        out[i].dtype = i < info->outputs ? result[i].dtype : TX_DTYPE_COUNT;
        out[i].shape = result[i].shape;
    }
    return TX_OK;
}
