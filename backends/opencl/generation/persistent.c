/* SPDX-License-Identifier: Apache-2.0
 *
 * Persistent launches. A token of a small model takes about 70 launches, which cost as much as their work. So one
 * launch executes all of them. The device runs all of its work-groups at a time. They walk a list of the launches that
 * the commands recorded, and wait for each other after each (persistent.cl). The results have the same bits.
 *
 * OpenCL does not promise that all work-groups run at a time. So a wait is limited. If a wait ends without success, all
 * groups leave, and the program is run by single launches, now and in later runs. It may be repeated because it only
 * overwrites its own results: see repeats().
 *
 * Its program is built before the first run, when the launches of all commands are known. The third run is a trial. It
 * compares the bits of the results, and the times with several numbers of work-groups. TX_OCL_PERSISTENT is 0 (off, the
 * default), 1 (on if the bits are the same) or auto (on GPUs with a fence for the whole device, if it is also faster).
 */
#include "backends/opencl/generation/persistent.h"

#include "api/base/hash.h"
#include "backends/opencl/runtime/select.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARM_RUNS 2   /* before the trial: they build, and replace slow commands */
#define LEAST_STEPS 8 /* fewer launches cost little */
#define TIMED_RUNS 3
#define MOST_EACH 4          /* work-groups of a compute unit */
#define TRIAL_POLLS 0x10000u /* about 50 ms on a GPU */
#define POLLS 0x100000u      /* about a second */
#define OWN_BYTES 256        /* at most, of local memory of persistent.cl itself */
#define ENTRY "persistent launch"

typedef enum state { NEW, OFF, ON } state;

typedef struct tx_cl_persistent {
    bool always; /* TX_OCL_PERSISTENT=1: slower ones, too */
    state state;
    int32_t runs, steps;
    cl_kernel kernel;
    cl_mem plan, flags; /* see persistent.cl */
    size_t group, groups;
    char entry[TX_CL_JOURNAL_NAME];
} tx_cl_persistent;

/* ---- Launches ------------------------------------------------------------------------------------------------ */

static tx_status make_buffers(tx_context *context, tx_cl_persistent *p, const uint64_t *words, size_t count)
{
    const cl_uint none[2] = {0};
    cl_int code;
    p->plan = clCreateBuffer(context->context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, count * sizeof *words,
                             (void *)(uintptr_t)words, &code);
    if (code == CL_SUCCESS)
        p->flags = clCreateBuffer(context->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof none,
                                  (void *)(uintptr_t)none, &code);
    return tx_cl_check(code, "clCreateBuffer");
}

static tx_status set_arguments(const tx_executable *x, tx_cl_persistent *p, const tx_cl_joint *j, size_t pool)
{
    const cl_int steps = p->steps;
    const cl_uint polls = TRIAL_POLLS;
    const struct {
        size_t size;
        const void *value;
    } first[] = {{sizeof p->plan, &p->plan},
                 {sizeof steps, &steps},
                 {sizeof p->flags, &p->flags},
                 {sizeof polls, &polls},
                 {pool * TX_CL_POOL, NULL}};
    cl_int code = CL_SUCCESS;
    for (cl_uint i = 0; i < 5 && code == CL_SUCCESS; i++)
        code = clSetKernelArg(p->kernel, i, first[i].size, first[i].value);
    for (cl_uint i = 0; i < (cl_uint)j->memories && code == CL_SUCCESS; i++)
        code = clSetKernelArg(p->kernel, 5 + i, sizeof(cl_mem), &x->memory[j->memory[i].arena][j->memory[i].chunk]);
    return tx_cl_check(code, "clSetKernelArg");
}

/* Names a persistent launch by its program, its work-groups and the values of its arguments. */
static void name_entry(const tx_executable *x, tx_cl_persistent *p, const char *text)
{
    uint64_t hash = tx_hash(TX_HASH_START, text, strlen(text));
    for (int32_t i = 0; i < x->length; i++) {
        const tx_cl_command *c = &x->commands[i];
        hash = tx_hash(hash, c->words, (size_t)c->word_count * sizeof *c->words);
        for (int32_t k = 0; k < c->step_count; k++)
            hash = tx_hash(hash, c->steps[k].global, sizeof c->steps[k].global);
    }
    snprintf(p->entry, sizeof p->entry, ENTRY " (%016" PRIx64 ")", hash);
}

/* Lists the kernels of a program and writes the text of its persistent launch, which the caller frees. */
static tx_status describe(const tx_executable *x, tx_cl_persistent *p, tx_cl_joint *j, char **text)
{
    const char *why = tx_cl_persistent_list(x, j);
    p->steps = j->steps;
    if (!why && p->steps < LEAST_STEPS)
        why = "few launches";
    if (why)
        return tx_fail(TX_UNSUPPORTED, "%s", why);
    TX_TRY(tx_cl_persistent_text(x->context, j, text));
    p->group = j->group;
    name_entry(x, p, *text);
    return tx_cl_journal_check(x->context, p->entry, strlen(ENTRY));
}

/* Builds the kernel, which takes over `text`, and the list of launches. */
static tx_status make(const tx_executable *x, tx_cl_persistent *p, tx_cl_joint *j, char *text)
{
    tx_context *context = x->context;
    tx_cl_program *program;
    size_t count, pool;
    TX_TRY(tx_cl_want_text(context, "persistent", text, "persistent", &program));
    tx_cl_compile(context); /* if a command was replaced since want() */
    TX_TRY(tx_cl_make_kernel(context, program, "persistent", &p->kernel));
    uint64_t *words = tx_cl_persistent_words(x, j, &count, &pool);
    tx_status status = words ? TX_OK : tx_fail(TX_MEMORY, "out of host memory");
    if (status == TX_OK && (int64_t)(pool * TX_CL_POOL) + OWN_BYTES > context->limits.local_bytes)
        status = tx_fail(TX_UNSUPPORTED, "it needs %zu bytes of local memory", pool * TX_CL_POOL);
    TX_THEN(status, make_buffers(context, p, words, count));
    TX_THEN(status, set_arguments(x, p, j, pool));
    free(words);
    return status;
}

static void set_polls(const tx_cl_persistent *p, cl_uint polls)
{
    clSetKernelArg(p->kernel, 3, sizeof polls, &polls);
}

/* Launches the program and waits. Sets *failed if its work-groups do not run at a time, or if the driver refuses them.
 */
static tx_status launch(tx_context *context, const tx_cl_persistent *p, bool *failed)
{
    const size_t global = p->groups * p->group;
    cl_uint flags[2] = {0};
    const cl_int code = tx_cl_enqueue(context, p->kernel, 1, &global, &p->group, NULL);
    if ((*failed = tx_cl_is_refusal(code)))
        return TX_OK;
    TX_TRY(tx_cl_check(code, "clEnqueueNDRangeKernel"));
    TX_TRY(tx_cl_check(clEnqueueReadBuffer(context->compute, p->flags, CL_FALSE, 0, sizeof flags, flags, 0, NULL, NULL),
                       "clEnqueueReadBuffer"));
    TX_TRY(tx_cl_check(tx_cl_wait_queue(context, context->compute, ENTRY), ENTRY));
    context->traffic.launches++;
    *failed = flags[0] != 0;
    if (!*failed)
        return TX_OK;
    memset(flags, 0, sizeof flags);
    TX_TRY(
        tx_cl_check(clEnqueueWriteBuffer(context->compute, p->flags, CL_FALSE, 0, sizeof flags, flags, 0, NULL, NULL),
                    "clEnqueueWriteBuffer"));
    return tx_cl_check(tx_cl_wait_queue(context, context->compute, NULL), "clEnqueueWriteBuffer");
}

/* ---- The trial ----------------------------------------------------------------------------------------------- */

/* Reads the last output of a program, which the caller frees. */
static tx_status read_result(const tx_executable *x, void **data, size_t *size)
{
    const tx_operand *o = &x->commands[x->length - 1].asked.out[0];
    *size = (size_t)tx_operand_bytes(o);
    if (!(*data = malloc(*size)))
        return tx_fail(TX_MEMORY, "out of host memory");
    const cl_int code = clEnqueueReadBuffer(x->context->compute, x->memory[o->arena][o->chunk], CL_FALSE,
                                            (size_t)o->offset, *size, *data, 0, NULL, NULL);
    TX_TRY(tx_cl_check(code, "clEnqueueReadBuffer"));
    return tx_cl_check(tx_cl_wait_queue(x->context, x->context->compute, NULL), "clEnqueueReadBuffer");
}

static tx_status time_launches(tx_executable *x, const tx_controls *controls, double *seconds)
{
    *seconds = INFINITY;
    for (int i = 0; i < TIMED_RUNS; i++) {
        const double start = tx_cl_now();
        TX_TRY(tx_cl_run_launches(x, 0, x->length, controls, NULL));
        TX_TRY(tx_cl_finish(x->context));
        *seconds = fmin(*seconds, tx_cl_now() - start);
    }
    return TX_OK;
}

/* Measures one number of work-groups. Sets *seconds to INFINITY if they do not run at a time, or if the results differ
 * from `expected`. */
static tx_status time_groups(tx_executable *x, const tx_cl_persistent *p, const void *expected, size_t size,
                             double *seconds)
{
    bool failed = false;
    void *data = NULL;
    size_t same;
    tx_status status = TX_OK;
    *seconds = INFINITY;
    for (int i = 0; i < TIMED_RUNS && !failed && status == TX_OK; i++) {
        const double start = tx_cl_now();
        status = launch(x->context, p, &failed);
        *seconds = fmin(*seconds, tx_cl_now() - start);
    }
    if (status == TX_OK && !failed)
        status = read_result(x, &data, &same);
    if (status != TX_OK || failed || memcmp(data, expected, size) != 0)
        *seconds = INFINITY;
    free(data);
    return status;
}

/* Chooses the number of work-groups, or none: single launches. */
static tx_status choose(tx_executable *x, tx_cl_persistent *p, const tx_controls *controls)
{
    const size_t units = (size_t)x->context->limits.compute_units;
    void *expected = NULL;
    double single, seconds, best = INFINITY;
    size_t size, chosen = 0;
    tx_status status = time_launches(x, controls, &single);
    TX_THEN(status, read_result(x, &expected, &size));
    const size_t most = x->context->info.type == TX_DEVICE_CPU ? 1 : MOST_EACH;
    for (size_t each = 1; each <= most && status == TX_OK; each *= 2) {
        p->groups = each * units;
        status = time_groups(x, p, expected, size, &seconds);
        if (!(seconds < best))
            break;
        best = seconds;
        chosen = p->groups;
    }
    free(expected);
    p->groups = chosen;
    p->state = chosen > 0 && (p->always || best < single) ? ON : OFF;
    return status;
}

/* ---- Runs ---------------------------------------------------------------------------------------------------- */

/* Whether persistent.cl has a fence for the whole device: on NVIDIA's GPUs, and with AMD's compiler. */
static bool has_fence(const tx_context *context)
{
    return context->info.type == TX_DEVICE_GPU &&
           (context->can.vendor == TX_CL_NVIDIA || strncmp(context->info.platform, "AMD", 3) == 0);
}

static tx_status read_setting(const tx_context *context, bool *on, bool *always)
{
    const char *setting = getenv("TX_OCL_PERSISTENT");
    const bool may = setting && strcmp(setting, "auto") == 0;
    *always = setting && strcmp(setting, "1") == 0;
    *on = *always || (may && has_fence(context));
    if (setting && *setting && !*always && !may && strcmp(setting, "0") != 0)
        return tx_fail(TX_INVALID, "TX_OCL_PERSISTENT=%.60s is invalid; use 0, 1 or auto", setting);
    return TX_OK;
}

static void warn(const tx_context *context, const char *why)
{
    char text[900];
    if (!context->report || !context->report->warn)
        return;
    snprintf(text, sizeof text, "tokens are computed by single launches instead of a persistent one: %.700s", why);
    context->report->warn(context->report->context, text);
}

/* Loads or stores the number of work-groups that an earlier start chose for this device; 0 for single launches. */
static bool load_choice(const tx_context *context, const tx_cl_persistent *p, uint32_t *groups)
{
    void *data;
    size_t size;
    if (!tx_cl_cache_load(context, p->entry, &data, &size))
        return false;
    const bool whole = size == sizeof *groups;
    if (whole)
        memcpy(groups, data, size);
    free(data);
    return whole;
}

static void store_choice(const tx_context *context, const tx_cl_persistent *p)
{
    const uint32_t groups = p->state == ON ? (uint32_t)p->groups : 0;
    tx_cl_cache_store(context, p->entry, &groups, sizeof groups);
}

static tx_status choose_once(tx_executable *x, tx_cl_persistent *p, const tx_controls *controls)
{
    const int entry = tx_cl_journal_begin(x->context, p->entry);
    const tx_status status = choose(x, p, controls);
    tx_cl_journal_end(x->context, entry, status != TX_OK);
    if (status == TX_OK && !p->always)
        store_choice(x->context, p);
    return status;
}

/* Decides how the program runs from now on. If the setting requires a persistent launch and there is none, warns. */
static tx_status try(tx_executable *x, tx_cl_persistent *p, const tx_controls *controls)
{
    tx_cl_joint j;
    char *text = NULL;
    uint32_t groups = 1;
    p->state = OFF;
    tx_status status = describe(x, p, &j, &text);
    const bool known = status == TX_OK && !p->always && load_choice(x->context, p, &groups);
    if (status != TX_OK || groups == 0)
        free(text);
    else
        status = make(x, p, &j, text);
    if (status != TX_OK && p->always && p->steps >= LEAST_STEPS)
        warn(x->context, tx_error());
    if (status != TX_OK || groups == 0)
        return TX_OK;
    if (known) {
        p->groups = groups;
        p->state = ON;
    } else {
        status = choose_once(x, p, controls);
        if (p->always && status == TX_OK && p->state == OFF)
            warn(x->context, "the device does not run its work-groups at a time, or the results differ");
    }
    set_polls(p, POLLS);
    return status;
}

/* Asks for the program, unless an earlier start found it slower. The trial reports why there is none. */
static tx_status want(tx_executable *x)
{
    bool on, always;
    tx_cl_joint j;
    tx_cl_program *program;
    char *text = NULL;
    uint32_t groups = 1;
    TX_TRY(read_setting(x->context, &on, &always));
    if (!on || x->context->single || x->length == 0)
        return TX_OK;
    tx_cl_persistent *p = x->persistent = x->persistent ? x->persistent : calloc(1, sizeof *p);
    if (!p)
        return tx_fail(TX_MEMORY, "out of host memory");
    p->always = always;
    if (describe(x, p, &j, &text) == TX_OK && (always || !load_choice(x->context, p, &groups) || groups > 0))
        return tx_cl_want_text(x->context, "persistent", text, "persistent", &program);
    free(text);
    return TX_OK;
}

static tx_status run(tx_executable *x, const tx_controls *controls, bool *done)
{
    bool failed = false;
    tx_cl_persistent *p = x->persistent;
    if (!p || x->context->single || p->state == OFF)
        return TX_OK;
    if (p->state == NEW && p->runs++ < WARM_RUNS)
        return TX_OK;
    if (p->state == NEW)
        TX_TRY(try(x, p, controls));
    if (p->state == OFF)
        return TX_OK;
    TX_TRY(launch(x->context, p, &failed));
    *done = !failed;
    if (failed) {
        x->context->single = true;
        tx_cl_journal_end(x->context, tx_cl_journal_begin(x->context, p->entry), true);
        warn(x->context, "the device did not run its work-groups at a time");
    }
    return TX_OK;
}

static void forget(tx_executable *x)
{
    tx_cl_persistent *p = x->persistent;
    if (!p)
        return;
    if (p->kernel && !x->context->hung)
        clReleaseKernel(p->kernel);
    if (p->plan && !x->context->hung)
        clReleaseMemObject(p->plan);
    if (p->flags && !x->context->hung)
        clReleaseMemObject(p->flags);
    *p = (tx_cl_persistent){.always = p->always};
}

const tx_cl_whole tx_cl_persistent_run = {.want = want, .run = run, .forget = forget};
