/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by inference rules. A rule (tx_infer_<name>, column `infer` of ops.def) validates the operands of one op and
 * sets type and shape of each output. */
#ifndef TX_API_INFER_H
#define TX_API_INFER_H

#include "api/graph/op.h"

typedef struct tx_infer {
    tx_op op;
    const tx_attrs *attrs;
    const tx_operand *in;
    tx_operand *out;
} tx_infer;

#define TX_OP(NAME, name, CLASS, CAST, min, n_in, n_out, in_place, adds, rule, grad, in, out) \
    tx_status tx_infer_##rule(const tx_infer *c);
#include "ops.def"

/* Formats a shape, as "[4, 128]". The text is valid in the same block. */
#define TX_TEXT(shape) tx_shape_text(&(shape), (char[96]){0}, 96)

const char *tx_require_name(const tx_infer *c); /* the op's name */
/* Fails with a message that starts with the op's name. */
tx_status tx_refuse(const tx_infer *c, const char *format, ...) TX_PRINTF(2, 3);
bool tx_is_float_type(tx_dtype dtype); /* F32, BF16 or F16 */

/* Checks of one input. An absent input passes. The failure message names the op, the input and the expectation. */
tx_status tx_require_dtype(const tx_infer *c, int i, tx_dtype dtype);
tx_status tx_require_float_type(const tx_infer *c, int i);
/* Checks types and ranks of the inputs. `inputs` has a letter for each input, followed by the rank if that is fixed: F
 * is F32, I is I32, U is U8. H is any floating type, = is the type of the last H, and - is not checked. Inputs without
 * a letter are not checked. */
tx_status tx_require(const tx_infer *c, const char *inputs);
tx_status tx_require_draw(const tx_infer *c); /* attrs.draw.p is a probability */
tx_status tx_require_shape(const tx_infer *c, int i, const tx_shape *shape);
tx_status tx_require_rank(const tx_infer *c, int i, int32_t rank);
tx_status tx_require_positions(const tx_infer *c, int i, int64_t batch); /* I32 [batch] */
tx_status tx_require_places(const tx_infer *c, int i, int64_t batch,
                            int64_t time); /* I32 [batch] or I32 [batch, time] */
/* Checks that input `i` is packed qkv [B, T, (heads + 2 kv_heads) d] and returns d. */
tx_status tx_require_qkv(const tx_infer *c, int i, int64_t *head_size);
/* The rows attrs.place and attrs.placed of all parts are below attrs.rows and not in another part. */
tx_status tx_require_row_places(const tx_infer *c);
tx_status tx_require_sinks(const tx_infer *c, int i); /* F32 [heads] */
/* Fails because the shape of input `i` differs from `want`. */
tx_status tx_require_other_shape(const tx_infer *c, int i, const char *want);

/* Setters of outputs. They return TX_OK unless the output is invalid. */
tx_status tx_set_output(const tx_infer *c, int i, tx_dtype dtype, tx_shape shape); /* output `i` */
/* Sets output 0 to the requested floating type, or to `own` if none was requested. */
tx_status tx_set_output_as(const tx_infer *c, tx_dtype own, tx_shape shape);
/* The same, but only F32 and `stored` may be requested. */
tx_status tx_give_stored(const tx_infer *c, tx_dtype stored, tx_dtype own, tx_shape shape);

/* Checks the operands p, g and groups of an update. p and g are F32, or with `any` both may be BF16. There is one byte
 * for each of `groups` groups. */
tx_status tx_require_update(const tx_infer *c, bool any, int64_t groups);
int64_t tx_update_blocks(const tx_infer *c); /* blocks of TX_PARAM_BLOCK elements in p */
/* Sets output 0 like p and the others like the states. An absent state has dtype TX_DTYPE_COUNT. */
tx_status tx_set_state_outputs(const tx_infer *c, int outputs);

tx_shape tx_without_last(const tx_shape *shape); /* [1] for rank 1 */
tx_shape tx_with_last(const tx_shape *shape, int64_t last);

#endif
