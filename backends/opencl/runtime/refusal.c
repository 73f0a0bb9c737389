/* SPDX-License-Identifier: Apache-2.0
 *
 * Prepares programs. If the driver refuses a launch or takes too long for it, prepares the command again in another
 * form, with smaller work-groups or more launches.
 */
#include "backends/opencl/runtime/internal.h"

#include "api/graph/op.h"
#include "backends/opencl/runtime/select.h"

#include <stdio.h>
#include <stdlib.h>

/* Bounds on the form of commands, below the device's limits. */
typedef struct bounds {
    const struct tx_cl_forced *forced; /* the candidate that is being measured, or NULL */
    size_t group;                      /* maximum work-items of a work-group; 0 = the device's limit */
    double work;                       /* maximum operations of a launch; 0 = the limit of limits.c */
} bounds;

static void narrow(tx_cl_limits *limits, size_t group)
{
    limits->narrowed = true;
    tx_cl_narrow(limits, group);
}

/* Adds to the command's variant that its work-groups are smaller than preferred. */
static void note_narrowed(tx_cl_builder *b)
{
    char text[480];
    const tx_cl_command *own = &b->executable->commands[b->executable->length];
    snprintf(text, sizeof text, "%s, the driver refused work-groups of more than %zu",
             own->variant ? own->variant : "opencl", b->limits->max_group);
    tx_cl_variant(b, text);
}

/* Emits a command. If the driver refuses one of its kernels (its build, its creation or its work-group size), tries
 * forms with smaller and smaller work-groups. */
static tx_status emit_some(tx_cl_builder *b, tx_executable *x, const tx_command *c, tx_cl_limits *limits)
{
    const int32_t first = x->step_count;
    char refusal[640];
    tx_status status = tx_cl_emit(x, c, limits, b);
    snprintf(refusal, sizeof refusal, "%s", status == TX_OK ? "" : tx_error());
    while (status == TX_DEVICE && b->widest > 1) {
        narrow(limits, b->widest / 2);
        tx_cl_drop_steps(x, first);
        status = tx_cl_emit(x, c, limits, b);
    }
    if (status == TX_UNSUPPORTED && limits->narrowed) /* there is no smaller form */
        return tx_fail(TX_DEVICE, "%s", refusal);
    if (status == TX_OK && limits->narrowed)
        note_narrowed(b);
    return status == TX_OK ? b->status : status;
}

/* Adds the command, within bounds. */
static tx_status add(tx_executable *x, const tx_command *c, bounds within, int64_t *scratch)
{
    tx_cl_limits limits = x->forced && x->forced->limits ? *x->forced->limits : x->context->limits;
    const int32_t first = x->step_count;
    tx_cl_builder b;
    if (within.group)
        narrow(&limits, within.group);
    if (within.work > 0.0)
        limits.launch_work = within.work;
    tx_status status = emit_some(&b, x, c, &limits);
    tx_cl_command *made = &x->commands[x->length++];
    made->count = x->step_count - first;
    made->widest = b.widest;
    made->work = b.work;
    made->launches += made->count;
    *scratch = b.scratch > *scratch ? b.scratch : *scratch;
    return status == TX_OK ? TX_OK : tx_fail_in(status, "%s", tx_op_info_of(c->op)->name);
}

/* Emits the commands. A trial among them may replace the OpenCL context, which makes the earlier kernels useless. */
static tx_status add_all(tx_executable *x, int32_t length, const tx_command *commands, bounds within, int64_t *scratch)
{
    tx_status status = TX_OK;
    int32_t generation;
    do {
        generation = x->generation = x->context->generation;
        tx_cl_drop_steps(x, 0);
        for (x->length = 0; x->length < length && status == TX_OK;)
            status = add(x, commands ? &commands[x->length] : &x->commands[x->length].asked, within, scratch);
    } while (status == TX_OK && generation != x->context->generation);
    if (status == TX_OK && x->context->profile) {
        free(x->events);
        x->events = calloc((size_t)x->step_count + 1, sizeof *x->events);
        status = x->events ? TX_OK : tx_fail(TX_MEMORY, "out of host memory");
    }
    return status;
}

tx_status tx_cl_bind_current(tx_executable *x, const tx_bindings *bindings)
{
    const tx_extent *space = &bindings->arena[TX_ARENA_SCRATCH];
    const int32_t length = x->length;
    int64_t scratch = 0;
    if (x->generation == x->context->generation)
        return tx_cl_bind(x, bindings);
    tx_status status = add_all(x, length, NULL, (bounds){.forced = x->forced}, &scratch);
    x->length = length;
    if (status == TX_OK && scratch > (space->chunks > 0 ? space->chunk[0]->bytes : 0))
        status = tx_fail(TX_DEVICE, "another form needs more scratch memory than there is; start again");
    return status == TX_OK ? tx_cl_bind(x, bindings) : status;
}

static tx_status prepare(tx_context *context, const tx_program *program, bounds within, tx_executable **out,
                         int64_t *scratch)
{
    tx_executable *x = NULL;
    tx_status status = tx_cl_make(context, program->length, &x);
    *scratch = 0;
    if (status == TX_OK)
        x->forced = within.forced;
    TX_THEN(status, add_all(x, program->length, program->commands, within, scratch));
    if (status == TX_OK && within.forced && context->survey)
        status = tx_fail(TX_UNSUPPORTED, "a survey runs nothing");
    if (status == TX_OK)
        *out = x;
    else
        tx_cl_destroy(x);
    return status;
}

/* The first pass over the commands only collects the programs that they need. */
static tx_status prepare_ahead(tx_context *context, const tx_program *program, bounds within, tx_executable **out,
                               int64_t *scratch)
{
    if (tx_cl_survey_begin(context)) {
        tx_executable *none = NULL;
        if (prepare(context, program, within, &none, scratch) == TX_OK)
            tx_cl_destroy(none);
        tx_cl_compile_ahead(context);
    }
    return prepare(context, program, within, out, scratch);
}

tx_status tx_cl_prepare(tx_context *context, const tx_program *program, tx_executable **executable,
                        int64_t *scratch_bytes)
{
    const bounds within = {.forced = program->trial};
    return program->trial ? prepare(context, program, within, executable, scratch_bytes)
                          : prepare_ahead(context, program, within, executable, scratch_bytes);
}

/* ---- Running commands ---------------------------------------------------------------------------------------- */

/* Replaces a bound command by a form within bounds that has at least `launches` launches. Fails if there is none. */
static tx_status replace(tx_executable *x, tx_cl_command *c, bounds within, int32_t launches)
{
    const tx_program alone = {.length = 1, .commands = &c->asked};
    tx_executable *other = NULL;
    int64_t scratch;
    tx_status status = prepare_ahead(x->context, &alone, within, &other, &scratch);
    if (status == TX_OK && other->commands[0].launches < launches)
        status = tx_fail(TX_UNSUPPORTED, "the command cannot be divided");
    if (status == TX_OK && scratch > x->scratch)
        status = tx_fail(TX_UNSUPPORTED, "a smaller form needs more scratch memory than there is");
    TX_THEN(status, tx_cl_bind_alike(x, other));
    if (status == TX_OK)
        c->instead = other;
    else
        tx_cl_destroy(other);
    return status;
}

static bool overlap(const tx_operand *a, const tx_operand *b)
{
    return tx_present(a) && tx_present(b) && a->arena == b->arena && a->chunk == b->chunk &&
           a->offset < b->offset + tx_operand_bytes(b) && b->offset < a->offset + tx_operand_bytes(a);
}

/* Returns true if a partly executed command may be restarted, because it reads nothing that it writes. */
static bool can_restart(const tx_command *c)
{
    bool can = c->attrs.accumulate == TX_STORE;
    for (int i = 0; i < TX_MAX_IN; i++)
        for (int o = 0; o < TX_MAX_OUT; o++)
            can = can && !overlap(&c->in[i], &c->out[o]);
    return can;
}

tx_status tx_cl_replace_refused(tx_executable *x, tx_cl_command *c, bool began, tx_status status)
{
    char refusal[640];
    if (c->widest < 2 || (began && !can_restart(&c->asked)))
        return status;
    snprintf(refusal, sizeof refusal, "%s", tx_error());
    return replace(x, c, (bounds){.group = c->widest / 2}, 0) == TX_OK ? TX_OK : tx_fail(status, "%s", refusal);
}

bool tx_cl_is_watched(const tx_executable *x, const tx_cl_command *c)
{
    bool watched = c->runs == 1 && c->work > 0.0 && x->context->limits.launch_work > 0.0;
    /* CLBlast may use other kernels, with other bits, for parts. */
    for (int32_t i = c->first; i < c->first + c->count; i++)
        watched = watched && !x->steps[i].fn;
    return watched;
}

void tx_cl_replace_slow(tx_executable *x, tx_cl_command *c, double seconds)
{
    const double each = seconds / (double)c->launches;
    if (each > TX_CL_LAUNCH_SECONDS) /* otherwise keep the command unchanged */
        (void)replace(x, c, (bounds){.work = c->work / c->launches * TX_CL_LAUNCH_SECONDS / each}, c->launches + 1);
}
