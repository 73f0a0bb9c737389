/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks a plan for NaN and infinity, as transformers' DebugUnderflowOverflow does for modules. A run executes node by
 * node, the host computes the range of each operand and result, and the first NaN or infinity ends the run with a
 * report. It is slow; it costs nothing for plans that are not watched. */
#include "api/plan/plan.h"

#include "api/base/half.h"
#include "api/base/needs.h"
#include "api/base/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Nodes in a report, as many as in transformers. */
#define REPORTED 21
/* Bytes that are read from the device at a time. */
#define SLICE (INT64_C(4) << 20)

/* The range of magnitudes of a tensor's finite values. */
typedef struct range {
    bool known, nan, inf;
    float lowest, greatest;
} range;

/* The ranges of a watched plan's tensors. */
typedef struct tx_ranges {
    tx_watch watch; /* first, because plan->watch points to it */
    tx_reporter report;
    int32_t *node;       /* of each command */
    range *now, *before; /* by tensor: in this run, and in the last completed run */
    int32_t tensors;
    void *slice;
} tx_ranges;

/* ---- Names ---------------------------------------------------------------------------------------------- */

/* The operand names of ops.def: "(a, b, bias, z)". */
static const char *const operand_names[TX_OP_COUNT][2] = {
#define TX_OP(NAME, name, CLASS, CAST, min, n_in, n_out, in_place, adds, infer, grad, in, out) \
    [TX_OP_##NAME] = {#in, #out},
#include "ops.def"
};

/* Returns name k of the list and its length. */
static const char *operand_name(tx_op op, bool out, int k, int *length)
{
    const char *name = operand_names[op][out] + 1;
    for (; k > 0; k--)
        name += strcspn(name, ",") + 2;
    *length = (int)strcspn(name, ",)");
    return name;
}

/* Whether the output is scratch memory. */
static bool is_work(tx_op op, int k)
{
    int length;
    return strncmp(operand_name(op, true, k, &length), "work", 4) == 0;
}

/* Returns the name of the parameter or input that a tensor is, directly or through casts. */
static const char *name_of(const tx_graph *graph, const tx_tensor *t)
{
    while (t && !t->name && t->producer >= 0) {
        const tx_node *n = &graph->node[t->producer];
        t = tx_op_is_same(n->op) ? n->in[0] : NULL;
    }
    return t && t->name ? t->name : "";
}

static void describe(const tx_graph *graph, const tx_node *n, char *text, size_t size)
{
    char block[24] = "";
    if (n->block > 0)
        snprintf(block, sizeof block, "block %d ", (int)n->block);
    int used = snprintf(text, size, "%s%s %s", block, tx_op_info_of(n->op)->name, tx_direction_name(n->direction));
    for (int k = 0; k < TX_MAX_IN && used > 0 && (size_t)used < size; k++)
        if (n->in[k] && *name_of(graph, n->in[k]))
            used += snprintf(text + used, size - (size_t)used, " %s", name_of(graph, n->in[k]));
}

/* ---- Measuring ------------------------------------------------------------------------------------------ */

static void add_numbers(range *r, tx_dtype dtype, const void *data, int64_t count)
{
    const float *real = data;
    const uint16_t *half = data;
    for (int64_t i = 0; i < count; i++) {
        const float x = fabsf(dtype == TX_F32    ? real[i]
                              : dtype == TX_BF16 ? tx_bf16_to_f32(half[i])
                                                 : tx_f16_to_f32(half[i]));
        r->nan = r->nan || isnan(x);
        r->inf = r->inf || isinf(x);
        if (!isfinite(x))
            continue;
        r->lowest = x < r->lowest ? x : r->lowest;
        r->greatest = x > r->greatest ? x : r->greatest;
    }
}

static tx_status measure(const tx_plan *plan, tx_tensor *t)
{
    tx_ranges *w = (tx_ranges *)plan->watch;
    range r = {.known = true, .lowest = INFINITY};
    const int64_t bytes = tx_tensor_bytes(t), size = (int64_t)tx_dtype_size(t->dtype);
    const tx_arena_id arena = tx_tensor_root(t)->arena;
    for (int64_t at = 0; at < bytes; at += SLICE) {
        const int64_t now = bytes - at < SLICE ? bytes - at : SLICE;
        TX_TRY(tx_model_read_at(plan->model, arena, tx_tensor_address(t) + at, w->slice, now));
        add_numbers(&r, t->dtype, w->slice, now / size);
    }
    w->now[t->id] = r;
    return TX_OK;
}

static bool is_real(const tx_tensor *t)
{
    return t && (t->dtype == TX_F32 || t->dtype == TX_BF16 || t->dtype == TX_F16);
}

/* ---- Reports -------------------------------------------------------------------------------------------- */

static void report_line(const tx_ranges *w, const char *line)
{
    if (w->report.warn)
        w->report.warn(w->report.context, line);
}

static void report_range(const tx_ranges *w, const range *r, tx_op op, bool out, int k)
{
    char line[160];
    int length;
    const char *name = operand_name(op, out, k, &length);
    if (r->known)
        tx_format(line, sizeof line, "%8.2e %8.2e %s %.*s%s%s", r->greatest > 0 ? (double)r->lowest : 0.0,
                  r->inf ? (double)INFINITY : (double)r->greatest, out ? "output" : "input", length, name,
                  r->nan ? ", NaN" : "", r->inf ? ", infinite" : "");
    else
        snprintf(line, sizeof line, "       -        - %s %.*s", out ? "output" : "input", length, name);
    report_line(w, line);
}

static void report_node(const tx_plan *plan, const tx_node *n, const range *ranges)
{
    char text[512], line[560];
    describe(plan->graph, n, text, sizeof text);
    snprintf(line, sizeof line, "                  %s", text);
    report_line(((tx_ranges *)plan->watch), line);
    for (int k = 0; k < TX_MAX_IN; k++)
        if (is_real(n->in[k]))
            report_range(((tx_ranges *)plan->watch), &ranges[n->in[k]->id], n->op, false, k);
    for (int k = 0; k < TX_MAX_OUT; k++)
        if (is_real(n->out[k]) && !is_work(n->op, k))
            report_range(((tx_ranges *)plan->watch), &ranges[n->out[k]->id], n->op, true, k);
}

static tx_status report_all(const tx_plan *plan, int32_t command)
{
    const tx_ranges *w = (tx_ranges *)plan->watch;
    const tx_node *n = &plan->graph->node[w->node[command]];
    char text[512], line[128];
    const int32_t first = command + 1 > REPORTED ? command + 1 - REPORTED : 0;
    snprintf(line, sizeof line, "not finite in step %" PRIu32 ": the last %d nodes",
             plan->model->controls.word[TX_CONTROL_STEP].u32 + 1, (int)(command + 1 - first));
    report_line(w, line);
    report_line(w, "abs min  abs max  metadata");
    for (int32_t i = first; i <= command; i++)
        report_node(plan, &plan->graph->node[w->node[i]], w->now);
    report_line(w, "the last node in the last finite run:");
    report_node(plan, n, w->before);
    describe(plan->graph, n, text, sizeof text);
    return tx_fail(TX_INVALID,
                   "%s: NaN or infinity (see above); a lower learning rate or bf16 instead of fp16 may help", text);
}

/* ---- Runs ----------------------------------------------------------------------------------------------- */

/* With a loss scale, gradients may overflow; the scale adapts to that. */
static bool may_overflow(const tx_plan *plan, const tx_node *n)
{
    return n->direction == TX_BACKWARD && plan->model->controls.word[TX_CONTROL_GROWTH_INTERVAL].f32 > 0.0f;
}

static bool is_not_finite(const tx_ranges *w, const tx_tensor *t)
{
    return is_real(t) && (w->now[t->id].nan || w->now[t->id].inf);
}

static tx_status run_node(tx_plan *plan, int32_t command)
{
    const tx_model *model = plan->model;
    tx_ranges *w = (tx_ranges *)plan->watch;
    const tx_node *n = &plan->graph->node[w->node[command]];
    bool bad = false;
    for (int k = 0; k < TX_MAX_IN; k++) {
        if (is_real(n->in[k]) && !w->now[n->in[k]->id].known)
            TX_TRY(measure(plan, n->in[k]));
        bad = bad || is_not_finite(w, n->in[k]);
    }
    TX_TRY(model->engine->backend->run(plan->executable, command, 1, &model->controls, NULL));
    for (int k = 0; k < TX_MAX_OUT; k++)
        if (is_real(n->out[k]) && !is_work(n->op, k)) {
            TX_TRY(measure(plan, n->out[k]));
            bad = bad || is_not_finite(w, n->out[k]);
        }
    return bad && !may_overflow(plan, n) ? report_all(plan, command) : TX_OK;
}

static tx_status run(tx_plan *plan, int32_t first, int32_t end)
{
    tx_ranges *w = (tx_ranges *)plan->watch;
    if (first == 0)
        memset(w->now, 0, (size_t)w->tensors * sizeof *w->now);
    for (int32_t i = first; i < end; i++)
        TX_TRY(run_node(plan, i));
    if (end == plan->program.length)
        memcpy(w->before, w->now, (size_t)w->tensors * sizeof *w->now);
    return TX_OK;
}

static void free_ranges(tx_watch *watch)
{
    tx_ranges *ranges = (tx_ranges *)watch;
    free(ranges->node);
    free(ranges->now);
    free(ranges->before);
    free(ranges->slice);
    free(ranges);
}

tx_status tx_plan_watch(tx_plan *plan, const tx_reporter *report)
{
    TX_NEEDS(plan, TX_INVALID);
    if (plan->watch)
        plan->watch->free(plan->watch);
    plan->watch = NULL;
    if (!report)
        return TX_OK;
    if (plan->following)
        return tx_fail(TX_UNSUPPORTED, "plan %s runs on several devices: watch the model on one device", plan->name);
    if (plan->program.forward)
        return tx_fail(TX_UNSUPPORTED, "plan %s has no gradients; only plans with gradients are watched", plan->name);
    const tx_graph *graph = plan->graph;
    tx_ranges *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "no memory to watch a plan");
    made->watch = (tx_watch){run, free_ranges};
    made->report = *report;
    made->tensors = graph->tensors;
    made->node = calloc((size_t)graph->nodes + 1, sizeof *made->node);
    made->now = calloc((size_t)graph->tensors + 1, sizeof *made->now);
    made->before = calloc((size_t)graph->tensors + 1, sizeof *made->before);
    made->slice = malloc((size_t)SLICE);
    if (!made->node || !made->now || !made->before || !made->slice) {
        free_ranges(&made->watch);
        return tx_fail(TX_MEMORY, "no memory to watch a plan");
    }
    for (int32_t i = 0, command = 0; i < graph->nodes; i++) /* same order as in make_commands (compile.c) */
        if (tx_op_info_of(graph->node[i].op)->place == TX_ON_DEVICE)
            made->node[command++] = i;
    plan->watch = &made->watch;
    return TX_OK;
}
