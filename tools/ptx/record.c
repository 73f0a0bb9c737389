/* SPDX-License-Identifier: Apache-2.0
 *
 * Contexts without driver stand for cards, see record.h.
 */
#include "tools/ptx/record.h"

#include "backends/opencl/runtime/internal.h"
#include "backends/opencl/shipped/pack.h"
#include "backends/opencl/tune/tuner.h"

#include <stdlib.h>

/* A card of each generation that has matrix units for bf16. The multiprocessors decide about tiles. Older cards find
 * the programs that need no matrix units. */
static const struct card {
    const char *architecture;
    int32_t units;
} cards[] = {{"sm_80", 108}, {"sm_89", 128}, {"sm_90", 132}, {"sm_120", 170}};
#define CARDS (int)(sizeof cards / sizeof cards[0])

/* The oldest targets that have the instructions, and versions of PTX that drivers since 2017, 2020 and 2022 read. The
 * first row whose words are in the options applies. Exact GELU of results in fp32 is not compiled ahead: erfc of libclc
 * has branches, around which the sums of a product do not stay in registers. */
static const struct target {
    const char *word, *other, *processor, *version;
} targets[] = {{"-DEXACT=1", "-DY=f32", NULL, NULL},
               {"-DATOM=WGMMA", "", "sm_90", "ptx80"},
               {"-DATOM=", "", "sm_80", "ptx70"},
               {"", "", "sm_70", "ptx60"}};

static tx_status prepare(tx_context *context, const tx_program *program, tx_executable **executable, int64_t *scratch)
{
    TX_TRY(tx_cl_make(context, program, executable));
    tx_status status = TX_OK;
    for (int32_t i = 0; i < program->length && !status; i++) {
        tx_cl_builder b = {.context = context, .limits = &context->limits, .ahead = true};
        status = tx_cl_emit(&b, &(*executable)->commands[i]);
    }
    *scratch = 0;
    return status;
}

static void destroy(tx_executable *x)
{
    for (int32_t i = 0; i < x->length; i++)
        tx_cl_clear(x->context, &x->commands[i]);
    free(x->commands);
    free(x);
}

static tx_status finish(tx_context *context)
{
    (void)context;
    return TX_OK;
}

static const tx_backend recorder = {.version = TX_BACKEND_VERSION,
                                    .name = "opencl",
                                    .blocks = true,
                                    .prepare = prepare,
                                    .destroy = destroy,
                                    .finish = finish};

/* The limits are those that NVIDIA's driver reports. Libraries, which have programs of their own, are not used. */
static void describe(const struct card *card, tx_context *c)
{
    const int64_t gib = (int64_t)1 << 30;
    c->can = (tx_cl_capabilities){TX_CL_NVIDIA, "", true, true, true, 32, card->units};
    snprintf(c->can.architecture, sizeof c->can.architecture, "%s", card->architecture);
    c->limits = (tx_cl_limits){.max_group = 1024,
                               .max_item = {1024, 1024, 64},
                               .local_bytes = 48 << 10,
                               .max_allocation = 8 * gib,
                               .alignment = 512,
                               .lanes = 4,
                               .compute_units = card->units,
                               .launch_work = TX_CL_LAUNCH_SECONDS * 4e9 * card->units};
    c->info = (tx_device_info){.type = TX_DEVICE_GPU, .memory = 32 * gib, .max_allocation = 8 * gib};
    c->select = tx_cl_tuner_select;
}

tx_status tx_record_open(int card, tx_engine *engine)
{
    if (card >= CARDS)
        return TX_NOT_FOUND;
    tx_context *c = calloc(1, sizeof *c);
    *engine = (tx_engine){.backend = &recorder, .context = c, .threads = 1};
    if (!c || !(c->tuner = calloc(1, sizeof *c->tuner)))
        return tx_fail(TX_MEMORY, "out of host memory");
    describe(&cards[card], c);
    engine->device = c->info;
    return tx_cl_want_self_test(c);
}

void tx_record_close(tx_engine *engine)
{
    tx_cl_tuner_close(engine->context);
    tx_cl_release_programs(engine->context);
    free(engine->context);
}

void tx_record_tf32(tx_engine *engine, bool on)
{
    engine->context->tf32 = on;
}

static tx_status write_program(const struct target *t, const tx_cl_program *p, const tx_cl_recipe *recipe,
                               const char *folder, FILE *list)
{
    char path[1024], key[TX_PACK_KEY];
    const char *kernel = *p->kernel ? p->kernel : "all";
    snprintf(path, sizeof path, "%s/%s.%s.cl", folder, p->source, kernel);
    FILE *file = fopen(path, "w");
    const bool good = file && fputs(recipe->text, file) >= 0;
    if (!file || fclose(file) || !good)
        return tx_fail(TX_IO, "%s cannot be written", path);
    tx_pack_key(recipe->key, key);
    fprintf(list, "%s %s %s %s %s %s\n", key, t->processor, t->version, p->source, kernel, recipe->options);
    return TX_OK;
}

tx_status tx_record_write(const tx_engine *engine, const char *folder, FILE *list)
{
    for (const tx_cl_program *p = engine->context->programs; p; p = p->next) {
        const struct target *t = targets;
        tx_cl_recipe recipe = {0};
        while (!strstr(p->options, t->word) || !strstr(p->options, t->other))
            t++;
        tx_status status = t->processor ? tx_cl_write_recipe(engine->context, p, &recipe) : TX_OK;
        if (!status && t->processor)
            status = write_program(t, p, &recipe, folder, list);
        tx_cl_free_recipe(&recipe);
        TX_TRY(status);
    }
    return TX_OK;
}

int tx_record_count(const tx_engine *engine, FILE *to)
{
    int count = 0;
    for (const tx_cl_program *p = engine->context->programs; p; p = p->next, count++)
        if (to)
            fprintf(to, "    %s\t%s\t%s\n", p->source, *p->kernel ? p->kernel : "all", p->options);
    return count;
}
