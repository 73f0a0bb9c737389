/* SPDX-License-Identifier: Apache-2.0
 *
 * Prepares programs. If the driver refuses a launch or takes too long for it, prepares the command again in another
 * form, with smaller work-groups or more launches.
 */
#include "backends/opencl/runtime/internal.h"

#include "api/graph/op.h"
#include "backends/opencl/runtime/select.h"

#include <stdio.h>

static void narrow(tx_cl_limits *limits, size_t group)
{
    limits->narrowed = true;
    tx_cl_narrow(limits, group);
}

/* Returns the work-items in the largest work-group of a command. */
static size_t widest_of(const tx_cl_command *c)
{
    size_t widest = 0;
    for (int32_t i = 0; i < c->step_count; i++) {
        const size_t *local = c->steps[i].local, items = local[0] * local[1] * local[2];
        widest = items > widest ? items : widest;
    }
    return widest;
}

/* Adds to the command's variant that its work-groups are smaller than preferred. */
static void note_narrowed(tx_cl_builder *b)
{
    char text[480];
    snprintf(text, sizeof text, "%s, the driver refused work-groups of more than %zu",
             b->command->variant ? b->command->variant : "opencl", b->limits->max_group);
    tx_cl_variant(b, text);
}

/* Emits a command within limits. */
static tx_status emit(const tx_executable *x, tx_cl_command *c, const tx_cl_limits *limits, bool ahead)
{
    tx_cl_builder b = {.context = x->context, .limits = limits, .forced = x->forced, .ahead = ahead};
    tx_status status = tx_cl_emit(&b, c);
    if (status == TX_OK && limits->narrowed)
        note_narrowed(&b);
    status = status == TX_OK ? b.status : status;
    c->open = b.open || status != TX_OK;
    return status;
}

/* Makes the kernels of a command, after it is emitted again if it is open. If the driver refuses one of them (its
 * build, its creation or its work-group size), tries forms with smaller and smaller work-groups. */
static tx_status settle(const tx_executable *x, tx_cl_command *c, tx_cl_limits limits)
{
    char refusal[640];
    tx_status status = c->open ? emit(x, c, &limits, false) : TX_OK;
    TX_THEN(status, tx_cl_make_kernels(x, c));
    snprintf(refusal, sizeof refusal, "%s", status == TX_OK ? "" : tx_error());
    while (status == TX_DEVICE && widest_of(c) > 1) {
        narrow(&limits, widest_of(c) / 2);
        status = emit(x, c, &limits, false);
        TX_THEN(status, tx_cl_make_kernels(x, c));
    }
    if (status == TX_UNSUPPORTED && limits.narrowed) /* there is no smaller form */
        return tx_fail(TX_DEVICE, "%s", refusal);
    return status;
}

static const tx_cl_limits *limits_of(const tx_executable *x)
{
    return x->forced && x->forced->limits ? x->forced->limits : &x->context->limits;
}

static int32_t open_commands(const tx_executable *x)
{
    int32_t open = 0;
    for (int32_t i = 0; i < x->length; i++)
        open += x->commands[i].open;
    return open;
}

/* Emits all commands ahead of their selections, or those that are open. The selections test and measure candidates,
 * which is reported. */
static void emit_all(tx_executable *x, const tx_cl_limits *limits, bool ahead)
{
    const tx_reporter *report = ahead || x->forced ? NULL : x->context->report;
    const int32_t open = open_commands(x);
    int32_t done = 0;
    for (int32_t i = 0; i < x->length; i++) {
        if (!ahead && !x->commands[i].open)
            continue;
        if (report && report->progress)
            report->progress(report->context, "measuring kernels", done++, open);
        (void)emit(x, &x->commands[i], limits, ahead); /* it stays open after a failure */
    }
    if (report && report->progress && open > 0)
        report->progress(report->context, "measuring kernels", open, open);
}

/* Emits the commands, builds their programs, and makes their kernels. Commands are emitted a second time only if
 * trials must select their candidates first: then the programs of these trials are built already. */
static tx_status make_all(tx_executable *x, int64_t *scratch)
{
    const tx_cl_limits *limits = limits_of(x);
    const tx_cl_whole *whole = tx_cl_whole_of(x);
    tx_status status = TX_OK;
    do { /* again if a trial replaced the OpenCL context, which makes the earlier kernels useless */
        x->generation = x->context->generation;
        for (int ahead = 1; ahead >= 0; ahead--) {
            emit_all(x, limits, ahead != 0);
            if (whole && open_commands(x) == 0)
                TX_TRY(whole->want(x));
            tx_cl_compile(x->context);
        }
        *scratch = 0;
        for (int32_t i = 0; i < x->length && status == TX_OK; i++) {
            tx_cl_command *c = &x->commands[i];
            status = settle(x, c, *limits);
            *scratch = c->scratch > *scratch ? c->scratch : *scratch;
            if (status != TX_OK)
                tx_fail_in(status, "%s", tx_op_info_of(c->asked.op)->name);
        }
    } while (status == TX_OK && x->generation != x->context->generation);
    return status;
}

tx_status tx_cl_prepare(tx_context *context, const tx_program *program, tx_executable **executable,
                        int64_t *scratch_bytes)
{
    tx_executable *x = NULL;
    TX_TRY(tx_cl_make(context, program, &x));
    tx_status status = make_all(x, scratch_bytes);
    if (status == TX_OK)
        *executable = x;
    else
        tx_cl_destroy(x);
    return status;
}

/* Commands that were replaced return to their first form if the replacement needs too much scratch memory. */
tx_status tx_cl_bind_current(tx_executable *x, const tx_bindings *bindings)
{
    const tx_extent *space = &bindings->arena[TX_ARENA_SCRATCH];
    int64_t scratch = 0, held = space->chunks > 0 ? space->chunk[0]->bytes : 0;
    for (int32_t i = 0; i < x->length; i++)
        scratch = x->commands[i].scratch > scratch ? x->commands[i].scratch : scratch;
    if (x->generation != x->context->generation || scratch > held)
        TX_TRY(make_all(x, &scratch));
    if (scratch > held)
        return tx_fail(TX_DEVICE, "another form needs more scratch memory than there is; start again");
    return tx_cl_bind(x, bindings);
}

/* ---- Running commands ---------------------------------------------------------------------------------------- */

/* Replaces a bound command by a form within limits that has at least `launches` launches. Fails if there is none. */
static tx_status replace(const tx_executable *x, tx_cl_command *c, const tx_cl_limits *limits, int32_t launches)
{
    tx_cl_command other = {.asked = c->asked, .before = c->before, .after = c->after};
    (void)emit(x, &other, limits, true);
    tx_cl_compile(x->context);
    tx_status status = settle(x, &other, *limits);
    if (status == TX_OK && other.launches < launches)
        status = tx_fail(TX_UNSUPPORTED, "the command cannot be divided");
    if (status == TX_OK && other.scratch > x->scratch)
        status = tx_fail(TX_UNSUPPORTED, "a smaller form needs more scratch memory than there is");
    TX_THEN(status, tx_cl_bind_command(x, &other));
    tx_cl_clear(x->context, status == TX_OK ? c : &other);
    if (status == TX_OK)
        *c = other;
    return status;
}

/* Returns true if a partly executed command may be restarted, because it reads nothing that it writes. */
static bool can_restart(const tx_command *c)
{
    bool can = c->attrs.accumulate == TX_STORE;
    for (int i = 0; i < TX_MAX_IN; i++)
        for (int o = 0; o < TX_MAX_OUT; o++)
            can = can && !tx_cl_overlap(&c->in[i], &c->out[o]);
    return can;
}

tx_status tx_cl_replace_refused(tx_executable *x, tx_cl_command *c, bool began, tx_status status)
{
    char refusal[640];
    tx_cl_limits limits = *limits_of(x);
    const size_t widest = widest_of(c);
    if (widest < 2 || (began && !can_restart(&c->asked)))
        return status;
    snprintf(refusal, sizeof refusal, "%s", tx_error());
    narrow(&limits, widest / 2);
    return replace(x, c, &limits, 0) == TX_OK ? TX_OK : tx_fail(status, "%s", refusal);
}

bool tx_cl_is_watched(const tx_executable *x, const tx_cl_command *c)
{
    bool watched = c->runs == 1 && c->work > 0.0 && x->context->limits.launch_work > 0.0;
    /* CLBlast may use other kernels, with other bits, for parts. */
    for (int32_t i = 0; i < c->step_count; i++)
        watched = watched && !c->steps[i].fn;
    return watched;
}

void tx_cl_replace_slow(tx_executable *x, tx_cl_command *c, double seconds)
{
    const double each = seconds / (double)c->launches;
    tx_cl_limits limits = *limits_of(x);
    limits.launch_work = c->work / c->launches * TX_CL_LAUNCH_SECONDS / each;
    if (each > TX_CL_LAUNCH_SECONDS) /* otherwise keep the command unchanged */
        (void)replace(x, c, &limits, c->launches + 1);
}
