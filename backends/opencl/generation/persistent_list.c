/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that a persistent launch may execute, and the list of their launches as persistent.cl reads it.
 */
#include "backends/opencl/generation/persistent.h"

#include <stdlib.h>
#include <string.h>

/* ---- Programs that may be launched so ------------------------------------------------------------------------ */

/* Sources whose kernels have no arrays in local memory except by TX_LOCAL, and read no sizes of their grids. */
static const struct {
    const char *name;
    bool alone; /* tx_cl_body */
} sources[] = {{"gemm_few", false},   {"attention_gpu", false}, {"attention_cpu", false}, {"norm", false},
               {"elementwise", true}, {"movement", true},       {"caches", true}};

/* Whether commands before command `index` write all of its input o, or part of it. */
static bool is_computed(const tx_executable *x, int32_t index, const tx_operand *o)
{
    bool computed = false;
    for (int32_t e = 0; e < index && !computed; e++)
        for (int k = 0; k < TX_MAX_OUT; k++)
            computed = computed || tx_cl_overlap(o, &x->commands[e].asked.out[k]);
    return computed;
}

/* Whether a run of all commands may be repeated after it stopped anywhere. Command `index` must not store over operands
 * that it or an earlier one read, except values that the program computes, and new rows of caches, which are not read
 * before. */
static bool repeats(const tx_executable *x, int32_t index)
{
    const tx_command *c = &x->commands[index].asked;
    bool good = c->attrs.accumulate == TX_STORE;
    for (int o = 0; o < TX_MAX_OUT && c->op != TX_OP_KV_APPEND; o++)
        for (int32_t e = 0; e <= index && tx_present(&c->out[o]); e++)
            for (int i = 0; i < TX_MAX_IN; i++) {
                const tx_operand *in = &x->commands[e].asked.in[i];
                good = good && (!tx_cl_overlap(&c->out[o], in) || is_computed(x, e, in));
            }
    return good;
}

/* Returns true if no output of a command is in the memory of an input, so that work-items may compute the same. */
static bool keeps_inputs(const tx_command *c)
{
    bool keeps = true;
    for (int o = 0; o < TX_MAX_OUT; o++)
        for (int i = 0; i < TX_MAX_IN; i++)
            keeps = keeps && !tx_cl_overlap(&c->out[o], &c->in[i]);
    return keeps;
}

/* Returns the number of a buffer from 1 on, and lists it. Returns 0 if there are too many. */
static int32_t memory_of(tx_cl_joint *j, const tx_cl_argument *a)
{
    int32_t i = 0;
    while (i < j->memories && (j->memory[i].arena != a->arena || j->memory[i].chunk != a->chunk))
        i++;
    if (i == TX_CL_MEMORIES || a->arena == TX_ARENA_RESULT) /* results are summed */
        return 0;
    j->memory[i].arena = a->arena;
    j->memory[i].chunk = a->chunk;
    j->memories += i == j->memories;
    return i + 1;
}

/* Returns the number of a kernel, and lists it; or -1. */
static int32_t body_of(tx_cl_joint *j, const tx_cl_command *c, int32_t step)
{
    const tx_cl_step *s = &c->steps[step];
    size_t source = 0;
    for (int32_t i = 0; i < j->bodies; i++) {
        const tx_cl_step *known = &j->body[i].command->steps[j->body[i].step];
        if (known->program == s->program && strcmp(known->name, s->name) == 0)
            return i;
    }
    while (source < sizeof sources / sizeof *sources && strcmp(sources[source].name, s->program->source) != 0)
        source++;
    if (source == sizeof sources / sizeof *sources || j->bodies == TX_CL_KERNELS)
        return -1;
    j->body[j->bodies] = (tx_cl_body){c, step, sources[source].alone};
    return j->bodies++;
}

/* Lists the kernels and buffers of a command. Returns a reason why it cannot be part of a persistent launch, or NULL.
 */
static const char *add_command(tx_cl_joint *j, const tx_cl_command *c)
{
    for (int32_t i = 0; i < c->step_count; i++, j->steps++) {
        const tx_cl_step *s = &c->steps[i];
        const int32_t body = s->fn || s->local[1] * s->local[2] > 1 ? -1 : body_of(j, c, i);
        if (body < 0)
            return "a kernel that was not written for it";
        if (!j->body[body].alone && s->local[0] > j->group)
            j->group = s->local[0];
    }
    for (int32_t i = 0; i < c->argument_count; i++)
        if (c->arguments[i].memory && !memory_of(j, &c->arguments[i]))
            return "too many buffers, or a sum that continues";
    return NULL;
}

const char *tx_cl_persistent_list(const tx_executable *x, tx_cl_joint *j)
{
    const char *why = tx_present(&x->commands[x->length - 1].asked.out[0]) ? NULL : "a last command without a result";
    *j = (tx_cl_joint){.group = x->context->limits.cpu ? 1 : 64};
    for (int32_t i = 0; i < x->length && !why; i++)
        why = !repeats(x, i) ? "a command that cannot be repeated" : add_command(j, &x->commands[i]);
    for (int32_t i = 0; i < x->length && !why; i++) {
        const tx_cl_command *c = &x->commands[i];
        for (int32_t k = 0; k < c->step_count && !keeps_inputs(&c->asked); k++)
            if (c->steps[k].local[0] < j->group && !j->body[body_of(j, c, k)].alone)
                why = "smaller work-groups that write over an input";
    }
    return why;
}

/* ---- The list of launches ------------------------------------------------------------------------------------ */

/* Returns the vectors of local memory that a step needs besides its arguments: the number that the driver reports, and
 * room for the ends of arrays. */
static size_t arrays_of(const tx_context *context, const tx_cl_step *s, size_t arguments)
{
    cl_ulong bytes = 0;
    clGetKernelWorkGroupInfo(s->kernel, context->device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof bytes, &bytes, NULL);
    return (bytes > arguments ? (size_t)(bytes - arguments) / TX_CL_POOL : 0) + 8;
}

/* Writes the words of a step, and returns their number. Sets *pool to the vectors of local memory that it needs. */
static int32_t write_step(const tx_executable *x, tx_cl_joint *j, const tx_cl_command *c, int32_t step, uint64_t *to,
                          size_t *pool)
{
    const tx_cl_step *s = &c->steps[step];
    const size_t local = s->has_local && s->local[0] < j->group ? s->local[0] : j->group;
    size_t held = 0, arguments = 0;
    int32_t at = TX_CL_HEAD;
    for (int32_t i = 0; i < c->argument_count; i++) {
        const tx_cl_argument *a = &c->arguments[i];
        if (a->step != step)
            continue;
        const int32_t words = tx_cl_words_of(a);
        if (a->type)
            memcpy(to + at, &c->words[a->at], (size_t)words * sizeof *to);
        else
            to[at] = a->memory ? (uint64_t)memory_of(j, a) : a->at < 0 ? held : 0;
        if (!a->memory && a->at < 0) {
            held += (a->size + TX_CL_POOL - 1) / TX_CL_POOL;
            arguments += a->size;
        }
        at += words;
    }
    const uint64_t head[TX_CL_HEAD] = {(uint64_t)body_of(j, c, step),
                                       (s->global[0] + local - 1) / local,
                                       s->global[1],
                                       s->global[2],
                                       held,
                                       local,
                                       s->global[0]};
    memcpy(to, head, sizeof head);
    *pool = held + arrays_of(x->context, s, arguments);
    return at;
}

uint64_t *tx_cl_persistent_words(const tx_executable *x, tx_cl_joint *j, size_t *count, size_t *pool)
{
    size_t most = (size_t)j->steps * (1 + TX_CL_HEAD), needed;
    for (int32_t i = 0; i < x->length; i++)
        most += (size_t)x->commands[i].argument_count + (size_t)x->commands[i].word_count;
    uint64_t *words = calloc(most, sizeof *words);
    int32_t s = 0;
    *count = (size_t)j->steps;
    *pool = 0;
    for (int32_t i = 0; words && i < x->length; i++)
        for (int32_t k = 0; k < x->commands[i].step_count; k++) {
            words[s++] = *count;
            *count += (size_t)write_step(x, j, &x->commands[i], k, words + *count, &needed);
            *pool = needed > *pool ? needed : *pool;
        }
    return words;
}
