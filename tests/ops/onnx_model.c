/* SPDX-License-Identifier: Apache-2.0
 * ONNX ops that need more than one step: attention, the loss, optimizers. */
#include "tests/ops/onnx.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Loss ----------------------------------------------------------------------------------------- */

/* Losses of [N, classes, ...]: the classes are moved last; the sum or mean is a second op. */
tx_status tx_onnx_softmax_loss(tx_onnx_case *c)
{
    const tx_onnx_tensor *x = tx_onnx_real(c, "in0"), *labels = x ? tx_onnx_operand(c, "in1") : NULL;
    const char *kind = "mean";
    if (!labels)
        return TX_UNSUPPORTED;
    if (tx_onnx_find(c, "in2"))
        return tx_onnx_cannot("weights of classes");
    if (tx_json_has(c->attributes, "reduction") && tx_json_get_string(c->attributes, "reduction", &kind))
        return TX_FORMAT;
    bool axes[TX_ST_MAX_RANK] = {false, true};
    int64_t classes = 1, counted = 0;
    double *logits = tx_onnx_move_last(x, axes, &classes), ignore = tx_onnx_number(c, "ignore_index", (double)NAN);
    if (!logits)
        return tx_fail(TX_MEMORY, "onnx: no memory");
    tx_call call = tx_onnx_begin(TX_OP_CROSS_ENTROPY);
    call.attrs.vocab = classes;
    call.in[0] = tx_onnx_array(TX_F32, TX_SHAPE(labels->count, classes), logits);
    call.in[1] = tx_onnx_array(TX_I32, TX_SHAPE(labels->count), labels->value);
    for (int64_t i = 0; i < labels->count; i++) {
        bool ignored = labels->value[i] == ignore;
        call.in[1].value[i] = ignored ? TX_IGNORE_LABEL : labels->value[i];
        counted += !ignored;
    }
    free(logits);
    if (strcmp(kind, "none") == 0)
        return tx_onnx_finish(c, &call);
    TX_TRY(tx_onnx_call(c, &call));
    tx_call total = tx_onnx_begin(TX_OP_REDUCE);
    total.attrs.reduction = TX_REDUCE_SUM;
    total.attrs.axis = TX_AXIS_ALL;
    total.attrs.control = strcmp(kind, "mean") == 0 ? TX_CONTROL_INVERSE_LABELS : -1;
    total.controls.word[TX_CONTROL_INVERSE_LABELS].f32 = 1.0f / (float)counted;
    total.in[0] = tx_onnx_array(TX_F32, TX_SHAPE(labels->count), call.out[0].value);
    tx_call_free(&call);
    return tx_onnx_finish(c, &total);
}

/* ---- Attention -------------------------------------------------------------------------------------- */

/* [B, T, heads * size] or [B, heads, T, size] */
typedef struct heads_view {
    const tx_onnx_tensor *t;
    int64_t heads, time, size;
    bool outer; /* heads before time */
} heads_view;

static heads_view view_of(const tx_onnx_tensor *t, double heads)
{
    if (t->rank == 4)
        return (heads_view){t, t->dim[1], t->dim[2], t->dim[3], true};
    int64_t n = (int64_t)heads;
    return (heads_view){t, n, t->dim[1], t->dim[2] / n, false};
}

static double at(const heads_view *v, int64_t b, int64_t h, int64_t t, int64_t i)
{
    if (t >= v->time || i >= v->size)
        return 0.0;
    return v->t->value[v->outer ? ((b * v->heads + h) * v->time + t) * v->size + i
                                : (b * v->time + t) * v->heads * v->size + h * v->size + i];
}

static const char *attention_obstacle(const tx_onnx_case *c)
{
    if (tx_onnx_find(c, "in3"))
        return "masks, past keys and lengths of keys alone";
    if (tx_onnx_number(c, "softcap", 0.0) != 0.0)
        return "softcap";
    return tx_onnx_find(c, "out1") ? "the scores as an output" : NULL;
}

/* Packs q | k | v into one operand as long as the keys and as wide as the widest head. The results of missing query
 * rows are ignored, and columns of zeros change no score. */
tx_status tx_onnx_attention(tx_onnx_case *c)
{
    const tx_onnx_tensor *tensors[3] = {tx_onnx_real(c, "in0"), NULL, NULL};
    tensors[1] = tensors[0] ? tx_onnx_real(c, "in1") : NULL;
    tensors[2] = tensors[1] ? tx_onnx_real(c, "in2") : NULL;
    const tx_onnx_tensor *y = tensors[2] ? tx_onnx_real(c, "out0") : NULL;
    if (!y)
        return TX_UNSUPPORTED;
    if (attention_obstacle(c))
        return tx_onnx_cannot(attention_obstacle(c));
    double heads = tx_onnx_number(c, "q_num_heads", 1.0), kv_heads = tx_onnx_number(c, "kv_num_heads", 1.0);
    heads_view view[3] = {view_of(tensors[0], heads), view_of(tensors[1], kv_heads), view_of(tensors[2], kv_heads)};
    heads_view want = view_of(y, heads);
    int64_t batch = tensors[0]->dim[0], time = view[1].time, parts = view[0].heads + 2 * view[1].heads;
    int64_t size = view[0].size > view[2].size ? view[0].size : view[2].size;
    if (view[0].time > time)
        return tx_onnx_cannot("more queries than keys");
    tx_call call = tx_onnx_begin(TX_OP_ATTENTION);
    call.attrs.attention.heads = (int32_t)view[0].heads;
    call.attrs.attention.kv_heads = (int32_t)view[1].heads;
    call.attrs.attention.causal = tx_onnx_number(c, "is_causal", 0.0) != 0.0;
    call.attrs.scale = (float)tx_onnx_number(c, "scale", 1.0 / sqrt((double)view[0].size));
    call.in[0] = (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(batch, time, parts * size)};
    if (tx_array_allocate(&call.in[0], false))
        return TX_MEMORY;
    for (int64_t i = 0; i < call.in[0].count; i++) {
        int64_t b = i / (time * parts * size), t = i / (parts * size) % time, h = i / size % parts, k = 0;
        for (; h >= view[k].heads; k++)
            h -= view[k].heads;
        call.in[0].value[i] = at(&view[k], b, h, t, i % size);
    }
    tx_status status = tx_onnx_call(c, &call);
    if (status)
        return status;
    double *got = malloc((size_t)y->count * sizeof *got);
    for (int64_t i = 0; got && i < y->count; i++) { /* i in the order of y */
        int64_t h = want.outer ? i / (want.size * want.time) % want.heads : i / want.size % want.heads;
        int64_t t = want.outer ? i / want.size % want.time : i / (want.size * want.heads) % want.time;
        int64_t b = i / (want.size * want.heads * want.time);
        got[i] = call.out[0].value[((b * time + t) * want.heads + h) * size + i % want.size];
    }
    status = got ? tx_onnx_expect(c, "out0", got, y->count) : tx_fail(TX_MEMORY, "onnx: no memory");
    free(got);
    tx_call_free(&call);
    return status;
}

/* ---- Optimizers --------------------------------------------------------------------------------------- */

/* A call of an update: the rate is in the controls, and the gradient is not changed. */
static tx_call update_of(tx_op op, const tx_onnx_case *c, const tx_onnx_tensor *p, const tx_onnx_tensor *g)
{
    tx_call call = tx_onnx_begin(op);
    call.controls.word[TX_CONTROL_LEARNING_RATE].f32 = (float)tx_onnx_find(c, "in0")->value[0];
    call.result[TX_RESULT_GRAD_FACTOR] = call.result[TX_RESULT_FINITE] = 1.0;
    call.in[0] = tx_onnx_whole(p);
    call.in[1] = tx_onnx_whole(g);
    call.in[2] = tx_onnx_array(TX_U8, TX_SHAPE(1), (const double[]){1.0});
    return call;
}

/* X, G and moments come as lists: all X, then all G, ...; this is number i of list k. */
static const tx_onnx_tensor *listed(const tx_onnx_case *c, int32_t lists, int32_t k, int32_t i, bool output)
{
    int32_t inputs = 0, outputs = 0;
    for (int32_t t = 0; t < c->tensors; t++) {
        inputs += strncmp(c->tensor[t].name, "in", 2) == 0;
        outputs += strncmp(c->tensor[t].name, "out", 3) == 0;
    }
    int32_t each = output ? outputs / lists : (inputs - 2) / lists, number = k * each + i + (output ? 0 : 2);
    char role[8] = {output ? 'o' : 'i', output ? 'u' : 'n', output ? 't' : '0', '\0'};
    if (number > 9 || i >= each)
        return NULL;
    role[output ? 3 : 2] = (char)('0' + number);
    role[output ? 4 : 3] = '\0';
    return tx_onnx_find(c, role);
}

static tx_status expect_at(tx_onnx_case *c, const tx_onnx_tensor *want, const tx_array *got)
{
    char role[8] = {0};
    for (int i = 0; i < 7 && want->name[i] != ':'; i++)
        role[i] = want->name[i];
    return tx_onnx_expect(c, role, got->value, got->count);
}

tx_status tx_onnx_momentum(tx_onnx_case *c)
{
    const char *mode = "standard";
    if (tx_json_get_string(c->attributes, "mode", &mode) || strcmp(mode, "standard") != 0)
        return tx_onnx_cannot("Nesterov's momentum");
    const tx_onnx_tensor *t = tx_onnx_find(c, "in1");
    if ((t && t->value && t->value[0] > 0.0) && tx_onnx_number(c, "beta", 1.0) != 1.0)
        return tx_onnx_cannot("a factor of the gradient");
    tx_status status = TX_OK;
    for (int32_t i = 0; !status && listed(c, 3, 0, i, false); i++) {
        tx_call call = update_of(TX_OP_SGD, c, listed(c, 3, 0, i, false), listed(c, 3, 1, i, false));
        call.attrs.update.momentum = (float)tx_onnx_number(c, "alpha", 0.0);
        call.attrs.update.weight_decay = (float)tx_onnx_number(c, "norm_coefficient", 0.0);
        call.in[3] = tx_onnx_whole(listed(c, 3, 2, i, false));
        status = tx_onnx_call(c, &call);
        for (int32_t o = 0; o < 2 && !status; o++)
            status = expect_at(c, listed(c, 2, o, i, true), &call.out[o]);
        tx_call_free(&call);
    }
    return status;
}

/* At T = 0 ONNX does not correct the bias, as AdamW after many updates. ONNX adds weight decay to the gradient; two ops
 * do so before the update. */
tx_status tx_onnx_adam(tx_onnx_case *c)
{
    const tx_onnx_tensor *t = tx_onnx_find(c, "in1");
    if (!t || !t->value || t->value[0] != 0.0)
        return tx_onnx_cannot("its correction of the bias");
    tx_status status = TX_OK;
    for (int32_t i = 0; !status && listed(c, 4, 0, i, false); i++) {
        const tx_onnx_tensor *p = listed(c, 4, 0, i, false), *g = listed(c, 4, 1, i, false);
        tx_call decay = tx_onnx_begin(TX_OP_SCALE), sum = tx_onnx_begin(TX_OP_ADD);
        decay.attrs.alpha = (float)tx_onnx_number(c, "norm_coefficient", 0.0);
        decay.in[0] = tx_onnx_whole(p);
        TX_TRY(tx_onnx_call(c, &decay));
        sum.in[0] = tx_onnx_whole(g);
        sum.in[1] = tx_onnx_array(TX_F32, tx_onnx_shape(p), decay.out[0].value);
        tx_call_free(&decay);
        TX_TRY(tx_onnx_call(c, &sum));
        tx_call call = update_of(TX_OP_ADAMW, c, p, g);
        memcpy(call.in[1].value, sum.out[0].value, (size_t)p->count * sizeof(double));
        tx_call_free(&sum);
        call.attrs.update.beta1 = (float)tx_onnx_number(c, "alpha", 0.9);
        call.attrs.update.beta2 = (float)tx_onnx_number(c, "beta", 0.999);
        call.attrs.eps = (float)tx_onnx_number(c, "epsilon", 0.0);
        call.result[TX_RESULT_UPDATES] = 1e6;
        call.in[3] = tx_onnx_whole(listed(c, 4, 2, i, false));
        call.in[4] = tx_onnx_whole(listed(c, 4, 3, i, false));
        status = tx_onnx_call(c, &call);
        for (int32_t o = 0; o < 3 && !status; o++)
            status = expect_at(c, listed(c, 3, o, i, true), &call.out[o]);
        tx_call_free(&call);
    }
    return status;
}
