/* SPDX-License-Identifier: Apache-2.0
 *
 * The forms of tiled attention: tiles that fit in the device's local memory, and how well they suit a command.
 */
#include "backends/opencl/attention/attention.h"
#include "backends/opencl/runtime/internal.h"

#include <stdio.h>
#include <string.h>

typedef struct tile {
    int rows, cols, group, micro;
} tile;

/* In order of preference; the last form fits every device. Score micro-tiles are 4x4, 8x4, 8x8 and 4x8
 * (attention_gpu_tile.cl). NVIDIA's work-items have enough registers for 8x8, so its list begins there. Other
 * devices are faster with more work-items in flight. */
static const tile cpu_tiles[] = {{64, 64, 1, 8}, {32, 32, 1, 8}, {16, 16, 1, 8}, {8, 16, 1, 8}};
static const tile gpu_tiles[] = {{64, 64, 256, 4}, {64, 64, 128, 8}, {64, 64, 64, 8},  {32, 64, 64, 4},
                                 {64, 64, 128, 8}, {64, 64, 256, 4}, {32, 64, 128, 4}, {32, 32, 64, 4},
                                 {16, 32, 32, 4},  {8, 128, 64, 4},  {8, 64, 32, 4},   {8, 16, 8, 4}};
#define NVIDIA_FIRST 2

/* More floats in the registers of a work-item are likely to spill. */
#define MAX_FLOATS 160

static int64_t max_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Floats in the tiles of attention_cpu_*.cl. */
static int64_t cpu_floats(const tile *t, tx_cl_attention_kernel kernel, int64_t d)
{
    const int64_t padded = tx_cl_blocks(d, 16) * 16, row_tiles = kernel == TX_CL_FORWARD ? 1 : 2;
    const int64_t column_tiles = kernel == TX_CL_FORWARD ? 3 : 4; /* including transposed copies */
    return (row_tiles * t->rows + column_tiles * t->cols) * padded + row_tiles * t->rows * t->cols + 3 * t->cols;
}

/* Floats in the buffer and scores of attention_gpu_tile.cl, and two for each row. */
static int64_t gpu_floats(const tile *t, tx_cl_attention_kernel kernel, int64_t d)
{
    const int64_t padded = tx_cl_blocks(d, 4) * 4;
    const int64_t wanted = padded <= 64 && kernel != TX_CL_GRAD_KV ? 16 : padded > 128 && t->rows == 8 ? 4 : 8;
    const int64_t terms = wanted < t->rows ? wanted : t->rows;
    const int64_t across = t->group / (t->rows / t->micro);
    const int64_t buffer = max_of(2 * terms * padded + t->rows * across, 2 * 8 * (t->rows + t->cols + 8));
    return buffer + t->rows * (t->cols + 4) + 2 * t->rows;
}

/* Chooses the rows of a work-item's micro-tile of the output that cost the fewest multiply-adds and reads of local
 * memory. A read counts as four multiply-adds. */
static void choose_out_rows(tx_cl_attention_form *f, tx_cl_attention_kernel kernel, int64_t d)
{
    const int out = kernel == TX_CL_GRAD_KV ? f->cols : f->rows;
    int64_t best_cost = INT64_MAX;
    for (int rows = 8; rows >= (kernel == TX_CL_GRAD_KV ? 4 : 1); rows /= 2) {
        const int high = out / rows;
        if (high < 2 || high > f->group)
            continue;
        const int64_t quads = tx_cl_blocks(tx_cl_blocks(d, 4), f->group / high),
                      cost = 16 * rows * quads + 4 * (rows + 4 * quads);
        if (cost >= best_cost)
            continue;
        best_cost = cost;
        f->out_rows = rows;
        f->floats = f->rows * f->cols / f->group + (kernel == TX_CL_GRAD_KV ? 2 : 1) * 4 * rows * quads;
    }
}

static tx_cl_attention_form make(const tx_cl_attention_kind *kind, const tile *t, tx_cl_attention_kernel kernel,
                                 int64_t d)
{
    const bool cpu = kind == &tx_cl_attention_cpu;
    tx_cl_attention_form f = {.kind = kind, .rows = t->rows, .cols = t->cols, .group = t->group, .micro = t->micro};
    f.lines = kernel == TX_CL_GRAD_KV && !cpu ? f.cols : f.rows;
    if (cpu) {
        snprintf(f.name, sizeof f.name, "cpu-%dx%d", t->rows, t->cols);
    } else {
        snprintf(f.name, sizeof f.name, "gpu-%dx%d-%d", t->rows, t->cols, t->group);
        choose_out_rows(&f, kernel, d);
    }
    f.local_bytes = 4 * (cpu ? cpu_floats(t, kernel, d) : gpu_floats(t, kernel, d));
    return f;
}

/* Returns the expected share of the best rate: 1 if only the order of the list matters. Less suitable forms get
 * smaller shares, higher with fewer registers, and the reason in `why`. Returns 0 if the form cannot run. `lowest`
 * is true if no form of the list has fewer rows. */
static double suits(const tx_cl_attention_job *a, tx_cl_attention_kernel kernel, const tx_cl_attention_form *f,
                    bool lowest, char why[TX_CL_WHY])
{
    const tx_cl_limits *limits = a->limits;
    const int64_t groups = tx_cl_blocks(a->T, f->lines) * a->B * (kernel == TX_CL_GRAD_KV ? a->kv_heads : a->heads);
    /* Some drivers use a little of the reported local memory for arguments. */
    const int64_t wanted = f->local_bytes + 512;
    char name[24];
    snprintf(name, sizeof name, "%dx%d", f->rows, f->cols);
    why[0] = '\0';
    if (!tx_cl_fits(limits, name, wanted, (size_t)f->group, why, TX_CL_WHY))
        return 0.0;
    if (f->rows >= 2 * a->T && !lowest)
        snprintf(why, TX_CL_WHY, "%s is too high for %lld rows", name, (long long)a->T);
    else if (f->floats > MAX_FLOATS)
        snprintf(why, TX_CL_WHY, "%s needs too many registers", name);
    else if (f->kind == &tx_cl_attention_gpu && f->lines > 32 && a->T > 32 && groups < limits->compute_units)
        snprintf(why, TX_CL_WHY, "%s is too few for %d compute units", name, (int)limits->compute_units);
    return why[0] ? 0.1 / (double)(1 + f->floats) : 1.0;
}

static const tile *tiles_of(const tx_context *context, const tx_cl_attention_kind *kind, int *count)
{
    const bool cpu = kind == &tx_cl_attention_cpu;
    const int first = !cpu && context->can.vendor == TX_CL_NVIDIA ? NVIDIA_FIRST : 0;
    *count = (int)(cpu ? sizeof cpu_tiles / sizeof *cpu_tiles : sizeof gpu_tiles / sizeof *gpu_tiles) - first;
    return (cpu ? cpu_tiles : gpu_tiles) + first;
}

static bool listed(const tx_cl_attention_forms *forms, const char *name)
{
    for (int i = 0; i < forms->count; i++)
        if (strcmp(forms->form[i].name, name) == 0)
            return true;
    return false;
}

/* CPU devices use the forms for GPUs if they have too little local memory for the preferred transposed copies. */
static void list(const tx_cl_attention_kind *kind, const tx_context *context, const tx_cl_attention_job *a,
                 tx_cl_attention_kernel kernel, tx_cl_attention_forms *forms)
{
    int count;
    const tile *tiles = tiles_of(context, kind, &count);
    if (kind == &tx_cl_attention_cpu ? !a->limits->cpu : a->limits->cpu && forms->count > 0)
        return;
    for (int i = 0; i < count; i++) {
        char why[TX_CL_WHY];
        tx_cl_attention_form f = make(kind, &tiles[i], kernel, a->d);
        f.share = suits(a, kernel, &f, tiles[i].rows == tiles[count - 1].rows, why);
        if (i == 0 && forms->count == 0 && !forms->rejected[0])
            memcpy(forms->rejected, why, sizeof why);
        if (f.share > 0.0 && !listed(forms, f.name))
            forms->form[forms->count++] = f;
    }
}

static bool knows(const tx_cl_attention_kind *kind, const tx_context *context, const char *name)
{
    int count;
    const tile *tiles = tiles_of(context, kind, &count);
    for (int i = 0; i < count && (kind != &tx_cl_attention_cpu || context->limits.cpu); i++)
        if (strcmp(make(kind, &tiles[i], TX_CL_FORWARD, 1).name, name) == 0)
            return true;
    return false;
}

static void options(const tx_context *context, const tx_cl_attention_form *f, char *text, size_t size)
{
    (void)context;
    snprintf(text, size, "-DVW=%d -DWG=%d -DROWS=%d -DCOLS=%d -DMR=%d -DAR=%d",
             f->kind == &tx_cl_attention_cpu ? 16 : 4, f->group, f->rows, f->cols, f->micro, f->out_rows);
}

#define KIND(name)                                                                                                \
    {                                                                                                             \
        .source = {name, name "_grad_q", name "_grad_kv"}, .local_argument = true, .appends = true, .list = list, \
        .knows = knows, .options = options                                                                        \
    }
const tx_cl_attention_kind tx_cl_attention_cpu = KIND("attention_cpu"), tx_cl_attention_gpu = KIND("attention_gpu");

/* Forms for matrix units come first. */
static const tx_cl_attention_kind *const kinds[] = {
#define TX_ATTENTION_KIND(name) &tx_cl_attention_##name,
#include "backends/opencl/extensions.def"
    &tx_cl_attention_cpu, &tx_cl_attention_gpu};
#define KINDS (sizeof kinds / sizeof kinds[0])

tx_status tx_cl_attention_list(const tx_context *context, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel,
                               tx_cl_attention_forms *forms)
{
    *forms = (tx_cl_attention_forms){.count = 0};
    for (size_t i = 0; i < KINDS; i++)
        kinds[i]->list(kinds[i], context, a, kernel, forms);
    return forms->count
               ? TX_OK
               : tx_fail(TX_UNSUPPORTED, "heads of size %d need more than the %lld bytes of local memory of %s", a->d,
                         (long long)context->limits.local_bytes, context->info.name);
}

bool tx_cl_attention_has_form(const tx_context *context, const char *name)
{
    for (size_t i = 0; i < KINDS; i++)
        if (kinds[i]->knows(kinds[i], context, name))
            return true;
    return false;
}
