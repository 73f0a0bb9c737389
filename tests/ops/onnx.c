/* SPDX-License-Identifier: Apache-2.0
 * Reads the ONNX backend node cases, runs those that TX's ops can say, and counts by op. */
#include "tests/ops/onnx.h"
#include "api/base/file.h"
#include "tests/ops/conformance.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MANIFEST_LIMIT (INT64_C(64) << 20)

/* ---- Cases -------------------------------------------------------------------------------------- */

tx_dtype tx_onnx_dtype(const tx_onnx_tensor *t)
{
    return t->dtype == TX_ST_F32    ? TX_F32
           : t->dtype == TX_ST_F16  ? TX_F16
           : t->dtype == TX_ST_BF16 ? TX_BF16
                                    : TX_DTYPE_COUNT;
}

const tx_onnx_tensor *tx_onnx_find(const tx_onnx_case *c, const char *role)
{
    size_t length = strlen(role);
    for (int32_t i = 0; i < c->tensors; i++)
        if (strncmp(c->tensor[i].name, role, length) == 0 && c->tensor[i].name[length] == ':')
            return &c->tensor[i];
    return NULL;
}

double tx_onnx_number(const tx_onnx_case *c, const char *attribute, double otherwise)
{
    double value = otherwise;
    if (tx_json_has(c->attributes, attribute) &&
        tx_json_get_number(c->attributes, attribute, -INFINITY, INFINITY, &value))
        return (double)NAN;
    return value;
}

static tx_status read_tensor(const tx_st_file *file, int32_t index, tx_onnx_tensor *t)
{
    const tx_st_tensor *from = tx_st_tensor_at(file, index);
    *t = (tx_onnx_tensor){.dtype = from->dtype, .rank = from->rank, .count = tx_st_elements(from)};
    snprintf(t->name, sizeof t->name, "%s", from->name);
    memcpy(t->dim, from->dim, sizeof t->dim);
    bool whole = from->dtype == TX_ST_I64;
    if ((!whole && tx_onnx_dtype(t) == TX_DTYPE_COUNT) || t->count == 0)
        return TX_OK;
    char *data = malloc((size_t)tx_st_bytes(from));
    t->value = malloc((size_t)t->count * sizeof *t->value);
    tx_status status = data && t->value ? TX_OK : tx_fail(TX_MEMORY, "onnx: no memory for %s", from->name);
    TX_THEN(status, tx_st_read(file, index, 0, t->count, data));
    if (!status && !whole)
        tx_number_decode(tx_onnx_dtype(t), data, t->count, t->value);
    for (int64_t i = 0; !status && whole && i < t->count; i++) {
        int64_t n;
        memcpy(&n, data + i * 8, sizeof n);
        t->value[i] = (double)n;
    }
    free(data);
    return status;
}

static void case_free(tx_onnx_case *c)
{
    for (int32_t i = 0; i < c->tensors; i++)
        free(c->tensor[i].value);
}

static tx_status case_read(const char *folder, const char *name, tx_onnx_case *c)
{
    char file_name[256];
    snprintf(file_name, sizeof file_name, "%s.safetensors", name);
    char *path = tx_path_join(folder, file_name);
    tx_st_file *file = NULL;
    tx_status status = path ? tx_st_open(path, &file) : TX_MEMORY;
    free(path);
    if (status)
        return status;
    if (tx_st_count(file) > TX_ONNX_TENSORS)
        status = tx_fail(TX_UNSUPPORTED, "more than %d tensors", TX_ONNX_TENSORS);
    for (int32_t i = 0; !status && i < tx_st_count(file); i++) {
        status = read_tensor(file, i, &c->tensor[i]);
        c->tensors = i + 1;
    }
    tx_st_close(file);
    return status;
}

/* ---- Help for the ops ------------------------------------------------------------------------------ */

tx_array tx_onnx_array(tx_dtype dtype, tx_shape shape, const double *value)
{
    tx_array a = {.dtype = dtype, .shape = shape};
    if (tx_array_allocate(&a, false) == TX_OK)
        memcpy(a.value, value, (size_t)a.count * sizeof *value);
    return a;
}

tx_status tx_onnx_call(const tx_onnx_case *c, tx_call *call)
{
    return tx_onnx_call_onto(c, call, NULL);
}

tx_status tx_onnx_call_onto(const tx_onnx_case *c, tx_call *call, const double *onto)
{
    tx_case places = {.flags = 0};
    tx_rig rig;
    tx_status status = TX_OK;
    for (int32_t i = 0; i < TX_MAX_IN; i++) {
        places.in[i].arena = TX_ARENA_PLANNED;
        if (!call->in[i].value) /* not given: absent */
            call->in[i].dtype = TX_DTYPE_COUNT;
    }
    status = tx_call_outputs(call);
    if (!status && onto)
        memcpy(call->out[0].value, onto, (size_t)call->out[0].count * sizeof *onto);
    TX_THEN(status, tx_rig_create(c->target, call, &places, false, &rig));
    if (status) {
        tx_call_free(call);
        return status;
    }
    status = tx_rig_upload(&rig, call, 0xFFFFFFFFu);
    TX_THEN(status, tx_rig_run(&rig, call));
    TX_THEN(status, tx_rig_check_untouched(&rig));
    for (int32_t o = 0; o < TX_MAX_OUT && !status; o++)
        if (tx_array_present(&call->out[o]))
            tx_number_decode(call->out[o].dtype, tx_rig_output(&rig, o), call->out[o].count, call->out[o].value);
    tx_rig_free(&rig);
    if (status)
        tx_call_free(call);
    return status;
}

/* The cases were computed in fp32 by NumPy: both sides err, each by a few units of the largest value. */
tx_status tx_onnx_expect_values(tx_onnx_case *c, const char *role, const double *want, const double *got, int64_t count)
{
    const tx_onnx_tensor *t = tx_onnx_find(c, role);
    if (!t || t->count != count)
        return tx_fail(TX_INTERNAL, "%s has %lld elements, the result %lld", role, t ? (long long)t->count : -1LL,
                       (long long)count);
    double most = 0.0;
    for (int64_t i = 0; i < count; i++)
        most = isfinite(want[i]) ? fmax(most, fabs(want[i])) : most;
    double tolerance = c->exact ? 0.0 : 16.0 * tx_number_epsilon(TX_F32) * most, share = c->exact ? 0.0 : 1e-6;
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(got[i] - want[i]) <= tolerance + share * fabs(want[i]) || got[i] == want[i] ||
              (isnan(got[i]) && isnan(want[i]))))
            return tx_fail(TX_INTERNAL, "%s: element %lld is %.9g, expected %.9g", role, (long long)i, got[i], want[i]);
    c->compared++;
    return TX_OK;
}

tx_status tx_onnx_expect(tx_onnx_case *c, const char *role, const double *got, int64_t count)
{
    const tx_onnx_tensor *t = tx_onnx_find(c, role);
    if (t && !t->value)
        return tx_fail(TX_UNSUPPORTED, "types that TX does not have");
    return tx_onnx_expect_values(c, role, t ? t->value : NULL, got, count);
}

double *tx_onnx_move_last(const tx_onnx_tensor *t, const bool axes[TX_ST_MAX_RANK], int64_t *inner)
{
    double *to = malloc((size_t)t->count * sizeof *to);
    int64_t stride[TX_ST_MAX_RANK], next = 1;
    *inner = 1;
    for (int pass = 1; pass >= 0; pass--) /* strides in `to`: moved dimensions innermost, the others outside */
        for (int32_t d = t->rank - 1; d >= 0; d--)
            if (axes[d] == (pass == 1)) {
                stride[d] = next;
                next *= t->dim[d];
                *inner = pass == 1 ? next : *inner;
            }
    for (int64_t i = 0; to && i < t->count; i++) {
        int64_t rest = i, at = 0;
        for (int32_t d = t->rank - 1; d >= 0; d--) {
            at += rest % t->dim[d] * stride[d];
            rest /= t->dim[d];
        }
        to[at] = t->value[i];
    }
    return to;
}

/* ---- The whole folder --------------------------------------------------------------------------------- */

static tx_onnx_count *count_of(tx_onnx_report *report, const char *op)
{
    for (int32_t i = 0; i < report->ops; i++)
        if (strcmp(report->op[i].op, op) == 0)
            return &report->op[i];
    if (report->ops == TX_ONNX_OPS)
        return NULL;
    tx_onnx_count *n = &report->op[report->ops++];
    snprintf(n->op, sizeof n->op, "%s", op);
    n->known = tx_onnx_known(op);
    return n;
}

/* Remembers why cases were left out: each reason once, while there is room. */
static void add_reason(tx_onnx_count *n, const char *reason)
{
    size_t used = strlen(n->reasons);
    if (!strstr(n->reasons, reason) && used + strlen(reason) + 3 < sizeof n->reasons)
        snprintf(n->reasons + used, sizeof n->reasons - used, "%s%s", used ? "; " : "", reason);
}

static tx_status run_case(const tx_target *target, const char *folder, const tx_json *line, tx_onnx_report *report)
{
    const char *name = NULL, *op = NULL;
    tx_json *attributes = NULL;
    tx_status status = tx_json_get_string(line, "case", &name);
    TX_THEN(status, tx_json_get_string(line, "op", &op));
    TX_THEN(status, tx_json_get(line, "attributes", TX_JSON_OBJECT, &attributes));
    if (status)
        return status;
    tx_onnx_count *n = count_of(report, op);
    if (!n)
        return tx_fail(TX_INTERNAL, "more than %d ONNX ops", TX_ONNX_OPS);
    n->cases++;
    if (!n->known)
        return TX_OK;
    tx_onnx_case c = {.target = target, .attributes = attributes};
    status = case_read(folder, name, &c);
    TX_THEN(status, tx_onnx_run(&c, op));
    if (!status && c.compared == 0)
        status = tx_fail(TX_INTERNAL, "nothing was compared");
    case_free(&c);
    if (status == TX_UNSUPPORTED) {
        add_reason(n, tx_error());
        return TX_OK;
    }
    n->run++;
    n->passed += status == TX_OK;
    if (status && !n->failure[0])
        snprintf(n->failure, sizeof n->failure, "%s: %.400s", name, tx_error());
    return TX_OK;
}

tx_status tx_conformance_onnx(const tx_target *target, const char *folder, tx_onnx_report *report)
{
    *report = (tx_onnx_report){0};
    char *path = tx_path_join(folder, "manifest.jsonl"), *text = NULL;
    size_t size = 0, at = 0;
    tx_status status = path ? tx_file_read(path, MANIFEST_LIMIT, &text, &size) : TX_MEMORY;
    while (!status && at < size) {
        tx_json *line = NULL;
        size_t used = 0;
        if (strchr(" \r\n", text[at])) {
            at++;
            continue;
        }
        status = tx_json_parse_prefix(text + at, size - at, path, &line, &used);
        if (status)
            break;
        status = run_case(target, folder, line, report);
        tx_json_free(line);
        at += used;
    }
    free(path);
    free(text);
    return status;
}
