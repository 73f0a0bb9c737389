/* SPDX-License-Identifier: Apache-2.0
 * Attention: the choice of tiles that suit the device and fit its local memory. */
#include "backends/opencl/attention.h"
#include "backends/opencl/internal.h"

#include <stdio.h>
#include <string.h>

typedef struct tile {
    int rows, cols, group, micro;
} tile;

/* In the order of preference; the last fits every device. Score micro-tiles are 4x4, 8x4, 8x8 and 4x8
 * (kernels/attention_gpu_tile.cl). NVIDIA's work-items have the registers for 8x8, and its list begins there; others do
 * better with more items in flight. */
static const tile cpu_tiles[] = {{64, 64, 1, 8}, {32, 32, 1, 8}, {16, 16, 1, 8}, {8, 16, 1, 8}};
static const tile gpu_tiles[] = {{64, 64, 256, 4}, {64, 64, 128, 8}, {64, 64, 64, 8},  {32, 64, 64, 4},
                                 {64, 64, 128, 8}, {64, 64, 256, 4}, {32, 64, 128, 4}, {32, 32, 64, 4},
                                 {16, 32, 32, 4},  {8, 128, 64, 4},  {8, 64, 32, 4},   {8, 16, 8, 4}};
#define NVIDIA_FIRST 2

/* More floats than this in the registers of one item are likely to spill. */
#define MOST_FLOATS 160

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Tiles of kernels/attention_cpu_*.cl. */
static int64_t cpu_floats(const tile *t, tx_cl_attention_kernel kernel, int64_t d)
{
    const int64_t padded = tx_cl_blocks(d, 16) * 16, row_tiles = kernel == TX_CL_FORWARD ? 1 : 2;
    const int64_t column_tiles = kernel == TX_CL_FORWARD ? 3 : 4; /* with their transposes */
    return (row_tiles * t->rows + column_tiles * t->cols) * padded + row_tiles * t->rows * t->cols + 2 * t->cols;
}

/* Stage, scores and two floats a row of kernels/attention_gpu_tile.cl. */
static int64_t gpu_floats(const tile *t, tx_cl_attention_kernel kernel, int64_t d)
{
    const int64_t padded = tx_cl_blocks(d, 4) * 4;
    const int64_t wanted = padded <= 64 && kernel != TX_CL_GRAD_KV ? 16 : padded > 128 && t->rows == 8 ? 4 : 8;
    const int64_t terms = wanted < t->rows ? wanted : t->rows;
    const int64_t across = t->group / (t->rows / t->micro);
    const int64_t stage = most(2 * terms * padded + t->rows * across, 2 * 8 * (t->rows + t->cols + 8));
    return stage + t->rows * (t->cols + 4) + 2 * t->rows;
}

/* Rows of an item's micro-tile of the output: those that cost least multiply-adds and reads of local memory, a read
 * counted as four. */
static void choose_out_rows(tx_cl_attention_form *f, tx_cl_attention_kernel kernel, int64_t d)
{
    const int out = kernel == TX_CL_GRAD_KV ? f->cols : f->rows;
    int64_t least = INT64_MAX;
    for (int rows = 8; rows >= (kernel == TX_CL_GRAD_KV ? 4 : 1); rows /= 2) {
        const int high = out / rows;
        if (high < 2 || high > f->group)
            continue;
        const int64_t quads = tx_cl_blocks(tx_cl_blocks(d, 4), f->group / high),
                      cost = 16 * rows * quads + 4 * (rows + 4 * quads);
        if (cost >= least)
            continue;
        least = cost;
        f->out_rows = rows;
        f->floats = f->rows * f->cols / f->group + (kernel == TX_CL_GRAD_KV ? 2 : 1) * 4 * rows * quads;
    }
}

static tx_cl_attention_form make(const tile *t, bool cpu, tx_cl_attention_kernel kernel, int64_t d)
{
    tx_cl_attention_form f = {.rows = t->rows, .cols = t->cols, .group = t->group, .micro = t->micro, .cpu = cpu};
    if (cpu)
        snprintf(f.name, sizeof f.name, "cpu-%dx%d", t->rows, t->cols);
    else
        snprintf(f.name, sizeof f.name, "gpu-%dx%d-%d", t->rows, t->cols, t->group);
    if (!cpu)
        choose_out_rows(&f, kernel, d);
    f.local_bytes = 4 * (cpu ? cpu_floats(t, kernel, d) : gpu_floats(t, kernel, d));
    return f;
}

typedef enum verdict { SUITS, WASTES, CANNOT } verdict;

/* Whether a kernel should run in a form; if not, why. `lowest`: no form of the list has fewer rows. */
static verdict judge(const tx_context *context, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel,
                     const tx_cl_attention_form *f, bool lowest, char reason[96])
{
    const tx_cl_limits *limits = &context->limits;
    const int lines = kernel == TX_CL_GRAD_KV && !f->cpu ? f->cols : f->rows;
    const int64_t groups = tx_cl_blocks(a->T, lines) * a->B * (kernel == TX_CL_GRAD_KV ? a->kv_heads : a->heads);
    /* Reported local memory is not all ours: some drivers keep a little for arguments. */
    const int64_t wanted = f->local_bytes + 512;
    char name[24];
    snprintf(name, sizeof name, "%dx%d", f->rows, f->cols);
    reason[0] = '\0';
    if (!tx_cl_fits(limits, name, wanted, (size_t)f->group, reason, 96))
        return CANNOT;
    if (f->rows >= 2 * a->T && !lowest)
        snprintf(reason, 96, "%s is too high for %lld rows", name, (long long)a->T);
    else if (f->floats > MOST_FLOATS)
        snprintf(reason, 96, "%s needs too many registers", name);
    else if (!f->cpu && lines > 32 && a->T > 32 && groups < limits->compute_units)
        snprintf(reason, 96, "%s is too few for %d compute units", name, (int)limits->compute_units);
    return reason[0] ? WASTES : SUITS;
}

const tx_cl_attention_form *tx_cl_attention_named(const tx_cl_attention_forms *forms, const char *name)
{
    for (int i = 0; i < forms->count; i++)
        if (strcmp(forms->form[i].name, name) == 0)
            return &forms->form[i];
    return NULL;
}

static const tile *tiles_of(const tx_context *context, bool cpu, size_t *count)
{
    const size_t first = !cpu && strstr(context->info.vendor, "NVIDIA") ? NVIDIA_FIRST : 0;
    *count = (cpu ? sizeof cpu_tiles / sizeof *cpu_tiles : sizeof gpu_tiles / sizeof *gpu_tiles) - first;
    return (cpu ? cpu_tiles : gpu_tiles) + first;
}

/* Those of one kind of device. */
static void list_kind(const tx_context *context, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel, bool cpu,
                      tx_cl_attention_forms *forms)
{
    size_t count;
    const tile *tiles = tiles_of(context, cpu, &count);
    char reason[96];
    bool found = false;
    for (size_t i = 0; i < count && forms->count < TX_CL_ATTENTION_FORMS; i++) {
        const tx_cl_attention_form f = make(&tiles[i], cpu, kernel, a->d);
        const verdict says = judge(context, a, kernel, &f, tiles[i].rows == tiles[count - 1].rows, reason);
        if (i == 0)
            memcpy(forms->aside, reason, sizeof reason);
        if (says == CANNOT || tx_cl_attention_named(forms, f.name))
            continue;
        if (!found && (says == SUITS || forms->count == 0 || f.floats < forms->form[forms->best].floats))
            forms->best = forms->count;
        found = found || says == SUITS;
        forms->form[forms->count++] = f;
    }
}

tx_status tx_cl_attention_list(const tx_context *context, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel,
                               tx_cl_attention_forms *forms)
{
    *forms = (tx_cl_attention_forms){.count = 0};
    list_kind(context, a, kernel, a->cpu, forms);
    if (forms->count == 0 && a->cpu) /* too little local memory for the copies that CPU devices like: what GPUs do */
        list_kind(context, a, kernel, false, forms);
    return forms->count ? TX_OK
                        : tx_fail(TX_UNSUPPORTED, "heads of %d do not fit the %lld bytes of local memory of %s", a->d,
                                  (long long)context->limits.local_bytes, context->info.name);
}

bool tx_cl_attention_knows(const tx_context *context, const char *name)
{
    for (int cpu = context->limits.cpu; cpu >= 0; cpu--) {
        size_t count;
        const tile *tiles = tiles_of(context, cpu, &count);
        for (size_t i = 0; i < count; i++)
            if (strcmp(make(&tiles[i], cpu, TX_CL_FORWARD, 1).name, name) == 0)
                return true;
    }
    return false;
}

/* ---- Choice ------------------------------------------------------------------------------------------------- */

/* What decides which form is fastest; sizes by their upper powers of two. */
static void describe_class(const tx_cl_attention_job *a, tx_cl_attention_kernel kernel, char key[TX_CL_CHOICE_KEY])
{
    static const char *const names[] = {"forward", "dq", "dkv"};
    const tx_attrs *attrs = &a->command->attrs;
    const bool lengths = tx_present(&a->command->in[kernel == TX_CL_FORWARD ? 1 : 4]);
    snprintf(key, TX_CL_CHOICE_KEY, TX_CL_ATTENTION " %s d%d %d/%d b%d t%d%s%s%s", names[kernel], a->d, a->heads,
             a->kv_heads, tx_cl_class_of(a->B), tx_cl_class_of(a->T), attrs->causal ? " causal" : "",
             lengths ? " lengths" : "", attrs->p > 0.0f ? " dropout" : "");
}

/* By name, of those that can run; NULL: unknown or not among them. */
static const tx_cl_attention_form *by_name(const tx_cl_attention_forms *forms, const char *text)
{
    char name[TX_CL_CHOICE_NAME];
    if (!text)
        return NULL;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, " "), text); /* behind it stands a rate for people to read */
    return tx_cl_attention_named(forms, name);
}

/* The form that a class has been given before, which must run as it did then; at its first command the fastest by
 * measuring or by the table, else the best by how it suits. */
static tx_status choose_for_class(tx_context *context, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel,
                                  const tx_cl_attention_forms *forms, const tx_cl_attention_form **chosen)
{
    char key[TX_CL_CHOICE_KEY];
    describe_class(a, kernel, key);
    const char *before = tx_cl_choice_find(context, key);
    if (before) {
        *chosen = by_name(forms, before);
        return *chosen ? TX_OK : tx_fail(TX_UNSUPPORTED, "%s, chosen for %s, does not fit this device", before, key);
    }
    *chosen = context->tune ? tx_cl_attention_measure(context, a, kernel, forms, key) : NULL;
    if (!*chosen)
        *chosen = by_name(forms, tx_cl_table_get(context, key));
    if (!*chosen)
        *chosen = &forms->form[forms->best];
    return tx_cl_choice_keep(context, key, (*chosen)->name);
}

tx_status tx_cl_attention_choose(tx_context *context, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel,
                                 tx_cl_attention_form *form, char note[160])
{
    tx_cl_attention_forms forms;
    const tx_cl_attention_trial *trial = context->attention_trial;
    tx_status status = tx_cl_attention_list(context, a, kernel, &forms);
    if (status != TX_OK)
        return status;
    const tx_cl_attention_form *chosen = trial && trial->kernel == kernel ? by_name(&forms, trial->name) : NULL;
    if (!trial && !a->cached)
        status = choose_for_class(context, a, kernel, &forms, &chosen);
    if (status != TX_OK)
        return status;
    *form = chosen ? *chosen : forms.form[forms.best];
    int length = snprintf(note, 160, "%dx%d%s", form->rows, form->cols, a->cpu && !form->cpu ? " as on GPUs" : "");
    if (forms.aside[0])
        snprintf(note + length, 160 - (size_t)length, " (%s)", forms.aside);
    return TX_OK;
}
