/* SPDX-License-Identifier: Apache-2.0
 * txconvert: model folders to GGUF files, and back. */
#include "models/arch/gguf.h"
#include "models/arch/lora.h"
#include "models/files/hub.h"
#include "tools/cli/alive.h"
#include "tools/cli/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *to;
    int32_t type; /* a tx_gguf_dtype */
    tx_words from;
} settings;

static const tx_option options[] = {
    {TX_OPTION_TEXT, "to", offsetof(settings, to), .choices = "FILE.gguf|DIR",
     .help = "what is written: a GGUF file, or a folder with config.json, model.safetensors and tokenizer.json"},
    {TX_OPTION_CHOICE, "outtype", offsetof(settings, type), .choices = "f32|f16|q8_0|bf16",
     .help = "type of the matrices in it; q8_0 in GGUF files alone. f32 holds every value as it was"},
};

static const tx_option_spelling spellings[] = {{"--outfile", "to"}}; /* as llama.cpp's script has it */

static const settings defaults = {.type = TX_GGUF_F32};

static const tx_cli program = {
    .name = "txconvert",
    .usage = "txconvert MODEL --to FILE.gguf|DIR [options]",
    .about =
        "Writes a model folder (GPT-2, Llama, Mistral, Qwen2, Qwen3) as a GGUF file that llama.cpp runs, or a GGUF "
        "file of types F32, F16, BF16 and Q8_0 as a folder that transformers and txtrain load.",
    .options = options,
    .count = (int32_t)(sizeof options / sizeof options[0]),
    .values = &defaults,
    .spellings = spellings,
    .spelling_count = (int32_t)(sizeof spellings / sizeof spellings[0]),
    .operand = "MODEL",
    .operands = offsetof(settings, from),
    .operands_least = 1,
    .operands_most = 1,
};

static tx_status export(const settings *set, const tx_reporter *report)
{
    const char *from = set->from.word[0];
    char *folder;
    if (tx_lora_is_folder(from))
        return tx_fail(TX_UNSUPPORTED, "%s: an adapter; make a model of it first: txgen --adapter %s --save_merged DIR",
                       from, from);
    TX_TRY(tx_hub_model(from, &folder));
    const tx_status status = tx_gguf_export(folder, set->to, (tx_gguf_dtype)set->type, report);
    free(folder);
    return status;
}

static tx_status convert(const settings *set, const tx_reporter *report)
{
    const char *from = set->from.word[0];
    if (tx_gguf_is_name(from) == tx_gguf_is_name(set->to))
        return tx_fail(TX_INVALID, "one of %s and --to %s must be a file whose name ends with .gguf", from, set->to);
    if (tx_gguf_is_name(set->to))
        return export(set, report);
    if (set->type == TX_GGUF_Q8_0)
        return tx_fail(TX_INVALID, "--outtype q8_0: safetensors have no such type: f32, f16 or bf16");
    return tx_gguf_import(from, set->to,
                          set->type == TX_GGUF_F16    ? TX_F16
                          : set->type == TX_GGUF_BF16 ? TX_BF16
                                                      : TX_F32,
                          report);
}

int main(int argc, char **argv)
{
    settings set = defaults;
    const int result = tx_options_parse(&program, argc, argv, &set);
    if (result != TX_GO_ON)
        return result;
    if (!set.to)
        return tx_complain(&program, TX_EXIT_USAGE, "--to is missing: which file or folder is to be written?");
    tx_alive *alive = tx_alive_start(&program, stderr, "converting");
    const tx_status status = convert(&set, &(tx_reporter){.context = alive, .progress = tx_alive_progress});
    tx_alive_stop(alive);
    if (status)
        return tx_complain(&program, TX_EXIT_FAILURE, "%s", tx_error());
    tx_print_line(stdout, "%s: written", set.to);
    return tx_end(&program, 0);
}
