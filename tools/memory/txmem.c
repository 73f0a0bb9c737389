/* SPDX-License-Identifier: Apache-2.0
 * txmem: reports which training configurations of a model fit in a given memory. */
#include "tools/memory/txmem.h"

#include "tools/cli/alive.h"
#include "tools/cli/options.h"
#include "tools/cli/output.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB 1048576.0
#define GIB 1073741824.0

typedef struct settings {
    tx_forecaster_options model; /* without its `ranks` */
    const char *memory, *card;
    int64_t block, ranks, zero_stage;
    uint32_t optimizers;
    int32_t offload_optimizer, offload_param;
    int64_t eval_rows, text, beams;
    bool json, writes;
} settings;

#define AT(field) offsetof(settings, field)
static const tx_option options[] = {
    {TX_OPTION_TEXT, "model", AT(model.model), .choices = "DIR|FILE|NAME",
     .help = "a model folder, a config.json, a GGUF file, or " TX_PRESETS},
    {TX_OPTION_TEXT, "memory", AT(memory), .choices = "BYTES",
     .help = "memory to fit in, such as 24GB, or 24 for 24GiB; default: the memory of the device"},
    {TX_OPTION_TEXT, "card", AT(card), .choices = "NAME",
     .help = "a card to fit in, such as 3090 or A100-80GB, without the memory that its driver and a desktop keep"},
    {TX_OPTION_INTEGER, "block_size", AT(block), 0, 1 << 24, "N",
     "tokens in a row; 0 means the model's positions, at most 1024"},
    {TX_OPTION_INTEGER, "per_device_eval_batch_size", AT(eval_rows), 0, 1 << 20, "N",
     "rows in an evaluation batch; 0 means no evaluations, or 8 with --predict_with_generate"},
    {TX_OPTION_FLAG, "predict_with_generate", AT(writes), .help = "evaluations also write a text for each source"},
    {TX_OPTION_INTEGER, "generation_max_length", AT(text), 0, 1 << 24, "N",
     "with --predict_with_generate: tokens of a text; 0 means 128"},
    {TX_OPTION_INTEGER, "generation_num_beams", AT(beams), 0, 256, "N",
     "with --predict_with_generate: number of beams; 0 as in txtrain"},
    {TX_OPTION_LIST, "optim", AT(optimizers), .choices = tx_optimizer_words + 1,
     .help = "optimizers in the table; default: one of each kind, and AdamW for adapters"},
    {TX_OPTION_CHOICE, "offload_optimizer", AT(offload_optimizer), .choices = "none|cpu|nvme",
     .help = "keep optimizer states in host memory (cpu) or in a file (nvme)"},
    {TX_OPTION_CHOICE, "offload_param", AT(offload_param), .choices = "none|cpu|nvme",
     .help = "keep weights in host memory (cpu) or in a file (nvme); two layers' weights are on the device at a time"},
    {TX_OPTION_INTEGER, "lora_r", AT(model.lora_r), 0, 1 << 16, "N",
     "train only a LoRA adapter of rank N; 0 trains all weights"},
    {TX_OPTION_TEXT, "lora_target_modules", AT(model.lora_target_modules), .choices = "NAME,...|all-linear",
     .help = "modules that get an adapter; default: peft's choice for the model"},
    {TX_OPTION_FLAG, "load_in_4bit", AT(model.load_in_4bit),
     .help = "with --lora_r: keep the frozen matrices of the blocks in 4 bits"},
    {TX_OPTION_FLAG, "bnb_4bit_use_double_quant", AT(model.double_quant),
     .help = "with --load_in_4bit: keep their scales in 8 bits"},
    {TX_OPTION_FLAG, "load_in_8bit", AT(model.load_in_8bit),
     .help = "with --lora_r: keep the frozen matrices of the blocks in 8 bits"},
    {TX_OPTION_INTEGER, "ranks", AT(ranks), 1, 1 << 16, "N", "predict the memory of one of N data-parallel ranks"},
    {TX_OPTION_INTEGER, "zero_stage", AT(zero_stage), 0, 3, "N", "with --ranks: ZeRO stage, as in txtrain"},
    {TX_OPTION_TEXT, "device", AT(model.device), .choices = "auto|cpu|opencl|opencl:N|opencl:NAME|gpu",
     .help = "device to plan for"},
    {TX_OPTION_FLAG, "json", AT(json), .help = "print the table as one JSON object"},
};
static const settings defaults = {.model = {.size = sizeof(tx_forecaster_options), .device = "auto"}, .ranks = 1};

static const tx_cli program = {
    .name = "txmem",
    .one_process = "start it without the launcher",
    .usage = "txmem --model DIR|FILE|NAME [--memory 8GiB] [txtrain's options or file]",
    .about = "Reports which batch sizes fit in a memory, by precision, gradient checkpointing and optimizer.\n"
             "It reads the options of txtrain, and files of them, and shows the rows of the table that they leave.\n"
             "It only plans and allocates nothing. Scratch memory of the device's kernels is not included: some MiB, "
             "more on CPUs that convert bf16 operands.",
    .example = "  txmem --model gpt2 --memory 8GiB",
    .table = {TX_CLI_OPTIONS(options)},
    .values = &defaults,
};

/* ---- Input -------------------------------------------------------------------------------------------------- */

/* The value of --memory or --card, or else the memory of the device. */
static tx_status find_memory(const settings *set, const tx_forecaster *forecaster, int64_t *memory)
{
    char *end = NULL;
    const double gib = set->memory ? strtod(set->memory, &end) : 0;
    if (set->card)
        return tx_mem_card(set->card, memory);
    if (end && !*end && gib > 0 && gib < 4096) { /* a number without a unit */
        *memory = (int64_t)(gib * GIB);
        return TX_OK;
    }
    if (set->memory)
        return tx_fail_in(tx_read_bytes(set->memory, memory), "--memory");
    *memory = tx_forecaster_memory(forecaster);
    return *memory > 0 ? TX_OK
                       : tx_fail(TX_NOT_FOUND, "%s does not report its memory: give --memory",
                                 tx_forecaster_device(forecaster)->id);
}

/* ---- Output ------------------------------------------------------------------------------------------------- */

static bool fits(const tx_mem_table *t, const tx_mem_row *row, int batch)
{
    return batch < row->batches && tx_memory_total(&row->memory[batch]) <= t->memory;
}

/* Bytes in the unit of the table. */
static double unit_of(const tx_mem_table *t)
{
    return (double)t->memory < 4 * GIB ? MIB : GIB;
}

static void print_row(const tx_mem_table *t, const tx_mem_row *row)
{
    printf("%-9s %-7s %-18s", row->precision, row->checkpointing, row->optimizer);
    for (int b = 0; b < TX_MEM_BATCHES; b++) {
        if (fits(t, row, b))
            printf(" %7.2f", (double)tx_memory_total(&row->memory[b]) / unit_of(t));
        else
            printf(" %7s", "-");
    }
    putchar('\n');
}

/* Writes the advice with the options of the model that txmem was given. Returns false if nothing fits. */
static bool advise(const settings *set, const tx_mem_table *t, char *text, size_t size)
{
    static const char *const places[] = {"none", "cpu", "nvme"};
    char chosen[256];
    const bool any = tx_mem_advice(t, chosen, sizeof chosen);
    *text = '\0';
    if (any)
        tx_list_add(text, size, " ", "%s", chosen);
    if (any && set->block)
        tx_list_add(text, size, " ", "--%s %" PRId64,
                    tx_forecaster_reads_sources(t->forecaster) ? "max_source_length" : "block_size", set->block);
    if (any && set->model.lora_r)
        tx_list_add(text, size, " ", "--lora_r %" PRId64, set->model.lora_r);
    if (any && set->model.lora_target_modules)
        tx_list_add(text, size, " ", "--lora_target_modules %s", set->model.lora_target_modules);
    if (any && set->model.load_in_4bit)
        tx_list_add(text, size, " ", "--load_in_4bit%s", set->model.double_quant ? " --bnb_4bit_use_double_quant" : "");
    if (any && set->model.load_in_8bit)
        tx_list_add(text, size, " ", "--load_in_8bit");
    if (any && set->offload_optimizer)
        tx_list_add(text, size, " ", "--offload_optimizer %s", places[set->offload_optimizer]);
    if (any && set->offload_param)
        tx_list_add(text, size, " ", "--offload_param %s", places[set->offload_param]);
    if (any && set->zero_stage)
        tx_list_add(text, size, " ", "--zero_stage %" PRId64, set->zero_stage);
    if (any && (set->writes || set->eval_rows))
        tx_list_add(text, size, " ", "--do_train --do_eval%s", set->writes ? " --predict_with_generate" : "");
    if (any && set->text)
        tx_list_add(text, size, " ", "--generation_max_length %" PRId64, set->text);
    if (any && set->beams)
        tx_list_add(text, size, " ", "--generation_num_beams %" PRId64, set->beams);
    if (any && set->eval_rows)
        tx_list_add(text, size, " ", "--per_device_eval_batch_size %" PRId64, set->eval_rows);
    return any;
}

static void print_table(const settings *set, const tx_mem_table *t)
{
    char advice[1024];
    const double unit = unit_of(t);
    printf("%s by rows of %" PRId64 " tokens in a micro-batch; - does not fit in %.2f\n", unit < GIB ? "MiB" : "GiB",
           t->block, (double)t->memory / unit);
    printf("%-9s %-7s %-18s", "", "ckpt", "optimizer");
    for (int b = 0; b < TX_MEM_BATCHES; b++)
        printf(" %7d", 1 << b);
    putchar('\n');
    int32_t hidden = 0;
    for (int32_t i = 0; i < t->rows; i++) {
        if (fits(t, &t->row[i], 0))
            print_row(t, &t->row[i]);
        else
            hidden++;
    }
    if (hidden)
        printf("%d of %d rows do not fit; --json has their bytes\n", (int)hidden, (int)t->rows);
    if (advise(set, t, advice, sizeof advice))
        printf("fits with: %s\n", advice);
    else if (set->model.load_in_4bit)
        puts("nothing fits: use a smaller model, a smaller --block_size or more memory");
    else
        puts("nothing fits: train an adapter of a model in 4 bits (--lora_r 16 --load_in_4bit), or use a smaller "
             "model, a smaller --block_size or more memory");
}

static tx_status add_cell(const tx_mem_table *t, const tx_mem_row *row, int batch, tx_json *cells)
{
    tx_status status = TX_OK;
    tx_json *cell = tx_json_pack("{s:s, s:s, s:s, s:I}", "precision", row->precision, "gradient_checkpointing",
                                 row->checkpointing, "optim", row->optimizer, "batch", INT64_C(1) << batch);
    for (int k = 0; k < TX_MEMORY_COUNT && !status; k++)
        status = tx_json_set_int(cell, tx_memory_name((tx_memory_kind)k), row->memory[batch].bytes[k]);
    TX_THEN(status, tx_json_set_int(cell, "total", tx_memory_total(&row->memory[batch])));
    TX_THEN(status, tx_json_set_bool(cell, "fits", fits(t, row, batch)));
    const tx_status added = tx_json_append(cells, cell);
    return status ? status : added;
}

static tx_status print_json(const settings *set, const tx_mem_table *t)
{
    char advice[1024];
    const bool any = advise(set, t, advice, sizeof advice);
    tx_json *cells = tx_json_array();
    tx_json *all = tx_json_pack("{s:I, s:I, s:I, s:s*, s:o}", "memory", t->memory, "block_size", t->block, "parameters",
                                tx_forecaster_params(t->forecaster), "advice", any ? advice : NULL, "plans", cells);
    tx_status status = all ? TX_OK : TX_MEMORY;
    for (int32_t i = 0; i < t->rows; i++)
        for (int b = 0; b < t->row[i].batches && !status; b++)
            status = add_cell(t, &t->row[i], b, cells);
    TX_THEN(status, tx_print_json(all));
    tx_json_free(all);
    return status;
}

/* ---- The program -------------------------------------------------------------------------------------------- */

static tx_status run(const settings *set, const tx_mem_run *trains, const tx_forecaster *forecaster, tx_mem_table *t)
{
    const int64_t positions = tx_forecaster_positions(forecaster);
    t->forecaster = forecaster;
    t->adapts = set->model.lora_r > 0;
    t->block = set->block ? set->block : positions < 1024 ? positions : 1024;
    t->offload = (tx_offload_place)set->offload_optimizer;
    t->offload_params = (tx_offload_place)set->offload_param;
    t->zero_stage = (int32_t)set->zero_stage;
    t->precision = trains->precision;
    t->checkpointing = trains->checkpointing;
    t->most_rows = trains->rows;
    t->eval_rows = set->eval_rows;
    t->writes = set->writes;
    t->text = set->text;
    t->beams = set->beams;
    /* The states of an adapter are small with every optimizer. */
    t->optimizers = set->optimizers ? set->optimizers : t->adapts ? 1u : tx_mem_all_optimizers();
    tx_status status = find_memory(set, forecaster, &t->memory);
    TX_THEN(status, tx_mem_fill(t));
    if (!status && set->json)
        return print_json(set, t);
    if (!status)
        print_table(set, t);
    return status;
}

/* Names the options of txtrain that change nothing here. */
static void report_unused(const tx_mem_run *trains)
{
    if (*trains->uncounted)
        tx_complain(&program, 0, "not counted: %s; txtrain --dry_run counts it", trains->uncounted);
    if (*trains->without_effect)
        tx_complain(&program, 0, "no effect on memory: %s", trains->without_effect);
}

static int plan(const settings *set, const tx_mem_run *trains)
{
    tx_forecaster *forecaster = NULL;
    tx_mem_table table = {0};
    tx_alive *alive = tx_alive_start(&program, stderr, "planning");
    tx_status status = tx_forecaster_open(&set->model, &forecaster);
    TX_THEN(status, run(set, trains, forecaster, &table));
    tx_alive_stop(alive);
    free(table.row);
    tx_forecaster_free(forecaster);
    return status ? tx_complain(&program, TX_EXIT_FAILURE, "%s", tx_error()) : 0;
}

/* Reads txmem's options, and those of txtrain. */
static int read_options(tx_option_values *txtrain, int argc, char **argv, settings *set, tx_option_values *own,
                        tx_mem_run *trains)
{
    tx_cli reads = program;
    reads.others = txtrain;
    *own = tx_options_values(&program, set);
    const int result = tx_options_read(&reads, argc, argv, own);
    if (result == TX_GO_ON && tx_mem_take(txtrain, own, trains))
        return tx_complain(&program, TX_EXIT_USAGE, "%s", tx_error());
    return result;
}

int main(int argc, char **argv)
{
    settings set = defaults;
    tx_job *job = NULL;
    tx_option_values own = {0};
    tx_mem_run trains;
    if (tx_job_create(&job))
        return tx_complain(&program, TX_EXIT_FAILURE, "%s", tx_error());
    int result = read_options(tx_job_options(job), argc, argv, &set, &own, &trains);
    const tx_misuse misuses[] = {
        {!set.model.model, "--model is missing: give a folder, a config.json, or gpt2, gpt2-medium, .."},
        {set.memory && set.card, "--memory and --card: give one of them"},
        {(set.model.load_in_4bit && !set.model.lora_r) || (set.model.double_quant && !set.model.load_in_4bit),
         "--load_in_4bit needs --lora_r, --bnb_4bit_use_double_quant needs both"},
        {set.model.load_in_8bit && (!set.model.lora_r || set.model.load_in_4bit),
         "--load_in_8bit needs --lora_r, without --load_in_4bit"},
        {(set.text || set.beams) && !set.writes,
         "--generation_max_length and --generation_num_beams need --predict_with_generate"},
        {set.zero_stage && set.ranks == 1, "--zero_stage needs --ranks: give the number of data-parallel ranks"},
    };
    if (result == TX_GO_ON)
        result = tx_complain_misuse(&program, misuses, sizeof misuses / sizeof misuses[0]);
    if (result == TX_GO_ON) {
        report_unused(&trains);
        set.model.ranks = (int32_t)set.ranks;
        result = tx_end(&program, plan(&set, &trains));
    }
    tx_option_values_free(&own);
    tx_job_free(job);
    return result;
}
