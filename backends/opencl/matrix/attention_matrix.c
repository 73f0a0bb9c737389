/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention by matrix units: the forms of attention_matrix*.cl.
 */
#include "backends/opencl/attention/attention.h"
#include "backends/opencl/matrix/matrix.h"

#include <stdio.h>
#include <string.h>

#define RATE 4.0 /* relative to ordinary units */
#define TERMS 16 /* elements of a head in an instruction */

typedef struct matrix_form {
    tx_cl_attention_kernel kernel;
    const char *name, *atom;
    tx_cl_vendor vendor;
    int lanes, atom_lines, least, most, warps, own_atoms, others;
    bool held, paired;
} matrix_form;

static const matrix_form matrix_forms[] = {
#define TX_ATTENTION_MATRIX(kernel, ...) {TX_CL_##kernel, __VA_ARGS__},
#include "backends/opencl/matrix/attention_matrix.def"
};
#define FORMS (sizeof matrix_forms / sizeof matrix_forms[0])

static bool is_wgmma(const matrix_form *m)
{
    return strcmp(m->atom, "WGMMA") == 0;
}

/* Returns true if the device has the form's units. sm_100 and sm_120 have no wgmma. */
static bool runs_on(const tx_cl_capabilities *can, const matrix_form *m)
{
    return tx_cl_matrix_units(can, m->vendor, m->lanes) && (!is_wgmma(m) || strcmp(can->architecture, "sm_90") == 0);
}

/* Returns the elements of a step's block of other lines: along, transposed, or both if an atom cannot read one
 * block in both ways. */
static int64_t block_of(const matrix_form *m, int64_t d, bool along, bool turned)
{
    const int64_t beside = m->vendor == TX_CL_INTEL ? 1 : 8; /* padding of a line, for different banks */
    if (is_wgmma(m))                                         /* forward, two blocks of keys and three of values */
        return m->others * d * (turned && !along ? 3 : 2) / 2;
    if (m->vendor == TX_CL_NVIDIA)
        return m->others * (d + beside);
    return (along ? m->others * (d + beside) : 0) + (turned ? d * (m->others + beside) : 0);
}

/* Returns the local memory that attention_matrix*.cl use. */
static int64_t local_bytes(const matrix_form *m, int64_t own, int64_t d, bool dropout)
{
    const int64_t own_blocks = m->kernel == TX_CL_FORWARD ? 1 : 2;
    const int64_t stages = is_wgmma(m) && own_blocks == 2 ? 3 : m->vendor == TX_CL_NVIDIA ? 2 : 1;
    const int64_t own_block = own * (is_wgmma(m) ? d : d + 8);
    const int64_t blocks =
        stages * (m->kernel == TX_CL_FORWARD  ? block_of(m, d, true, false) + block_of(m, d, false, true)
                  : m->kernel == TX_CL_GRAD_Q ? block_of(m, d, true, false) + block_of(m, d, true, true)
                                              : 2 * block_of(m, d, true, true));
    const int64_t elements = !m->held ? own_blocks * own_block + blocks : own_block > blocks ? own_block : blocks;
    const int64_t kept = stages * (dropout ? own * m->others / 4 : 4);
    const int64_t passed = m->paired ? 4 * own * m->others : 0;
    return 2 * elements + kept + passed + (m->kernel == TX_CL_GRAD_KV ? 12 * stages * m->others : 0);
}

/* Returns true if all data that is moved in pieces of 16 bytes is aligned. */
static bool aligned(const tx_command *c)
{
    const bool backward = c->op == TX_OP_ATTENTION_GRAD;
    return c->in[0].offset % 16 == 0 && c->out[0].offset % 16 == 0 && (!backward || c->in[1].offset % 16 == 0);
}

/* Returns the expected share of the best rate of ordinary units, or 0 if the form does not support the command. */
static double suits(const tx_context *context, const tx_cl_attention_job *a, const matrix_form *m,
                    const tx_cl_attention_form *f, char why[TX_CL_WHY])
{
    tx_cl_limits limits = *a->limits;
    limits.local_bytes = tx_cl_matrix_local(context);
    if (!tx_cl_fits(&limits, m->name, f->local_bytes, (size_t)f->group, why, TX_CL_WHY))
        return 0.0;
    return RATE * (double)a->T / (double)(tx_cl_blocks(a->T, f->lines) * f->lines);
}

static bool offers(const tx_context *context, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel,
                   const matrix_form *m)
{
    return m->kernel == kernel && runs_on(&context->can, m) && a->d >= m->least && a->d <= m->most &&
           a->d % TERMS == 0 && a->d % m->atom_lines == 0;
}

/* Lists the forms for 16-bit operands and heads that are whole atoms, without caches, caps and sinks. */
static void list(const tx_cl_attention_kind *kind, const tx_context *context, const tx_cl_attention_job *a,
                 tx_cl_attention_kernel kernel, tx_cl_attention_forms *forms)
{
    const tx_attrs *attrs = &a->command->attrs;
    if ((a->type != TX_BF16 && a->type != TX_F16) || a->cached || !(attrs->scale > 0.0f) || !aligned(a->command) ||
        attrs->attention.cap > 0.0f || a->sinks)
        return;
    for (size_t i = 0; i < FORMS; i++) {
        const matrix_form *m = &matrix_forms[i];
        if (!offers(context, a, kernel, m))
            continue;
        const int own = m->warps * m->own_atoms * m->atom_lines / (m->paired ? 2 : 1);
        char why[TX_CL_WHY] = "";
        tx_cl_attention_form f = {.kind = kind,
                                  .rows = kernel == TX_CL_GRAD_KV ? m->others : own,
                                  .cols = kernel == TX_CL_GRAD_KV ? own : m->others,
                                  .lines = own,
                                  .group = m->warps * m->lanes,
                                  .local_bytes = local_bytes(m, own, a->d, attrs->draw.p > 0.0f),
                                  .sums = kernel != TX_CL_FORWARD && m->vendor != TX_CL_INTEL && a->window == 0 &&
                                          !a->starts,
                                  .own = m};
        snprintf(f.name, sizeof f.name, "%s", m->name);
        f.share = suits(context, a, m, &f, why);
        if (forms->count == 0 && !forms->rejected[0])
            memcpy(forms->rejected, why, sizeof why);
        if (f.share > 0.0)
            forms->form[forms->count++] = f;
    }
}

static bool knows(const tx_cl_attention_kind *kind, const tx_context *context, const char *name)
{
    (void)kind;
    for (size_t i = 0; i < FORMS; i++)
        if (strcmp(matrix_forms[i].name, name) == 0 && runs_on(&context->can, &matrix_forms[i]))
            return true;
    return false;
}

static void options(const tx_context *context, const tx_cl_attention_form *form, char *text, size_t size)
{
    const matrix_form *m = form->own;
    snprintf(text, size, "-DVW=4 -DEMULATED=0 -DATOM=%s -DWARPS=%d -DOWN_ATOMS=%d -DOTHERS=%d -DOWN_HELD=%d%s%s",
             tx_cl_matrix_atom(context, m->atom), m->warps, m->own_atoms, m->others, m->held,
             m->paired ? " -DPAIRED=1" : "", tx_cl_matrix_build(m->vendor));
}

const tx_cl_attention_kind tx_cl_attention_matrix = {
    .source = {"attention_matrix", "attention_matrix_grad_q", "attention_matrix_grad_kv"},
    .typed = true,
    .list = list,
    .knows = knows,
    .options = options};
