/* SPDX-License-Identifier: Apache-2.0
 * txconvert: converts model folders to GGUF files and distributed checkpoints, and back; combines adapters. */
#include "tools/cli/alive.h"
#include "tools/cli/options.h"
#include "tx_convert.h"

#include <stdio.h>

typedef struct settings {
    const char *to;
    int32_t type; /* a tx_convert_type */
    tx_calibration calibration;
    tx_words from;
    int32_t combination; /* a number of TX_COMBINATION_MAP */
    const char *weights;
    int32_t frequency;
    double density;
    int64_t rank, seed, shards;
} settings;

/* Most adapters of one command. */
#define ADAPTERS 64

#define WORD(name, word) "|" word
static const char type_words[] = TX_CONVERT_MAP(WORD);
static const char combination_words[] = TX_COMBINATION_MAP(WORD);

static const tx_option options[] = {
    {TX_OPTION_TEXT, "to", offsetof(settings, to), .choices = "FILE.gguf|DIR",
     .help = "output: a GGUF file, or a folder with config.json, model.safetensors and tokenizer.json"},
    {TX_OPTION_CHOICE, "outtype", offsetof(settings, type), .choices = type_words + 1,
     .help =
         "type of the matrices in the output; f32 is exact; types of 2 to 8 bits are for GGUF files only, and choose "
         "the type of each tensor as llama.cpp does"},
    {TX_OPTION_TEXT, "calibrate", offsetof(settings, calibration.text), .choices = "TEXT",
     .help =
         "a file of text, which the model reads: types of 2 to 6 bits round the weights of important inputs better"},
    {TX_OPTION_TEXT, "imatrix", offsetof(settings, calibration.file), .choices = "FILE",
     .help = "a file of llama-imatrix to use instead; with --calibrate, the GGUF file to write"},
    {TX_OPTION_TEXT, "device", offsetof(settings, calibration.device),
     .choices = "auto|cpu|opencl|opencl:N|opencl:NAME|gpu", .help = "with --calibrate: the device that reads the text"},
    {TX_OPTION_INTEGER, "threads", offsetof(settings, calibration.threads), 0, 4096, "N",
     "with --calibrate: threads of the cpu backend; 0 uses all cores of this process"},
    {TX_OPTION_INTEGER, "shards", offsetof(settings, shards), 1, 65536, "N",
     "write a distributed checkpoint of PyTorch (DCP), as N ranks of FSDP save it, to the folder --to"},
    {TX_OPTION_HEADING, .help = "several adapters (names of peft's add_weighted_adapter)"},
    {TX_OPTION_CHOICE, "combination_type", offsetof(settings, combination), .choices = combination_words + 1,
     .help = "how the adapters become one"},
    {TX_OPTION_TEXT, "weights", offsetof(settings, weights), .choices = "X,...",
     .help = "a weight for each adapter; default: 1 for all"},
    {TX_OPTION_REAL, "density", offsetof(settings, density), 0, 1, "X",
     "with ties, dare_linear, dare_ties and magnitude_prune: the fraction of values to keep"},
    {TX_OPTION_CHOICE, "majority_sign_method", offsetof(settings, frequency), .choices = "total|frequency",
     .help = "with ties and dare_ties: take the sign of the sum, or the sign of most adapters"},
    {TX_OPTION_INTEGER, "svd_rank", offsetof(settings, rank), 0, 1 << 16, "N",
     "with svd: the rank of the result; 0 means the greatest of the adapters"},
    {TX_OPTION_INTEGER, "seed", offsetof(settings, seed), 0, 1 << 30, "N", "with dare: seed of the random values"},
};

static const tx_option_spelling spellings[] = {{"--outfile", "to"}}; /* the name in llama.cpp's script */

static const settings defaults = {
    .type = TX_CONVERT_F32, .calibration.size = sizeof(tx_calibration), .density = 1, .seed = 42};

static const tx_cli program = {
    .name = "txconvert",
    .one_process = "start it without the launcher",
    .usage = "txconvert MODEL --to FILE.gguf|DIR [options]\n       txconvert ADAPTER... --to DIR [options]",
    .about = "Converts a model folder to a GGUF file for llama.cpp, or a GGUF "
             "file to a folder that transformers and txtrain load. Converts distributed "
             "checkpoints of PyTorch to model folders, and back. Combines several LoRA "
             "adapters into one.",
    .example = "  txconvert out --to out.gguf",
    .table = {TX_CLI_OPTIONS(options), TX_CLI_SPELLINGS(spellings)},
    .values = &defaults,
    .operand = "MODEL|ADAPTER",
    .operands = offsetof(settings, from),
    .operands_least = 1,
    .operands_most = ADAPTERS,
};

/* Refuses options that this command would not use. */
static int check(const settings *set)
{
    static const char one[] = "one MODEL", several[] = "several adapters", text[] = "--calibrate",
                      file[] = "a GGUF file or its folder";
    const settings *s = set, *d = &defaults;
    const bool combines = s->from.count > 1, reads = s->calibration.text, shards = s->shards > 0;
    const struct {
        const char *name, *needs;
        bool used, given;
    } uses[] = {{"outtype", one, !combines, s->type != d->type},
                {"outtype", file, !shards, s->type != d->type},
                {"shards", one, !combines, shards},
                {"calibrate", one, !combines, s->calibration.text},
                {"calibrate", file, !shards, s->calibration.text},
                {"imatrix", one, !combines, s->calibration.file},
                {"imatrix", file, !shards, s->calibration.file},
                {"device", text, reads, s->calibration.device},
                {"threads", text, reads, s->calibration.threads != d->calibration.threads},
                {"combination_type", several, combines, s->combination != d->combination},
                {"weights", several, combines, s->weights},
                {"density", several, combines, s->density < d->density},
                {"majority_sign_method", several, combines, s->frequency != d->frequency},
                {"svd_rank", several, combines, s->rank != d->rank},
                {"seed", several, combines, s->seed != d->seed}};
    if (!s->to)
        return tx_complain(&program, TX_EXIT_USAGE, "--to is missing: give the file or folder to write");
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++)
        if (uses[i].given && !uses[i].used)
            return tx_complain(&program, TX_EXIT_USAGE, "--%s is for %s: leave it out", uses[i].name, uses[i].needs);
    return TX_GO_ON;
}

static int combine(const settings *set)
{
    double weight[ADAPTERS];
    const tx_combination how = {sizeof how,         (const char *const *)set->from.word,
                                set->from.count,    set->weights ? weight : NULL,
                                set->combination,   set->density,
                                set->frequency,     set->rank,
                                (uint64_t)set->seed};
    if (set->weights && tx_options_numbers("weights", set->weights, set->from.count, weight))
        return tx_complain(&program, TX_EXIT_USAGE, "%s", tx_error());
    if (tx_combine_adapters(&how, set->to))
        return tx_complain(&program, TX_EXIT_FAILURE, "%s", tx_error());
    tx_print_line(stdout, "%s: written", set->to);
    return tx_end(&program, 0);
}

int main(int argc, char **argv)
{
    settings set = defaults;
    int result = tx_options_parse(&program, argc, argv, &set);
    if (result == TX_GO_ON)
        result = check(&set);
    if (result != TX_GO_ON)
        return result;
    if (set.from.count > 1)
        return combine(&set);
    tx_alive *alive = tx_alive_start(&program, stderr, "converting");
    const tx_reporter report = {.warn = tx_warn, .context = alive, .progress = tx_alive_progress};
    const tx_calibration *calibration = set.calibration.text || set.calibration.file ? &set.calibration : NULL;
    const tx_status status =
        set.shards > 0 ? tx_convert_distributed(set.from.word[0], set.to, set.shards, &report)
                       : tx_convert(set.from.word[0], set.to, (tx_convert_type)set.type, calibration, &report);
    tx_alive_stop(alive);
    if (status)
        return tx_complain(&program, TX_EXIT_FAILURE, "%s", tx_error());
    tx_print_line(stdout, "%s: written", set.to);
    return tx_end(&program, 0);
}
