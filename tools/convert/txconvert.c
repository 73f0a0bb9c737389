/* SPDX-License-Identifier: Apache-2.0
 * txconvert: converts model folders to GGUF files, and back. */
#include "tools/cli/alive.h"
#include "tools/cli/options.h"
#include "tx_convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *to;
    int32_t type; /* a tx_convert_type */
    tx_words from;
} settings;

#define WORD(name, word) "|" word
static const char type_words[] = TX_CONVERT_MAP(WORD);

static const tx_option options[] = {
    {TX_OPTION_TEXT, "to", offsetof(settings, to), .choices = "FILE.gguf|DIR",
     .help = "output: a GGUF file, or a folder with config.json, model.safetensors and tokenizer.json"},
    {TX_OPTION_CHOICE, "outtype", offsetof(settings, type), .choices = type_words + 1,
     .help = "type of the matrices in the output; q8_0 is for GGUF files only; f32 is exact"},
};

static const tx_option_spelling spellings[] = {{"--outfile", "to"}}; /* the name in llama.cpp's script */

static const settings defaults = {.type = TX_CONVERT_F32};

static const tx_cli program = {
    .name = "txconvert",
    .usage = "txconvert MODEL --to FILE.gguf|DIR [options]",
    .about = "Converts a model folder (GPT-2, Llama, Mistral, Qwen2, Qwen3) to a GGUF file for llama.cpp, or a GGUF "
             "file of types F32, F16, BF16 and Q8_0 to a folder that transformers and txtrain load.",
    .example = "  txconvert out --to out.gguf",
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

int main(int argc, char **argv)
{
    settings set = defaults;
    const int result = tx_options_parse(&program, argc, argv, &set);
    if (result != TX_GO_ON)
        return result;
    if (!set.to)
        return tx_complain(&program, TX_EXIT_USAGE, "--to is missing: give the file or folder to write");
    tx_alive *alive = tx_alive_start(&program, stderr, "converting");
    const tx_status status = tx_convert(set.from.word[0], set.to, (tx_convert_type)set.type,
                                        &(tx_reporter){.context = alive, .progress = tx_alive_progress});
    tx_alive_stop(alive);
    if (status)
        return tx_complain(&program, TX_EXIT_FAILURE, "%s", tx_error());
    tx_print_line(stdout, "%s: written", set.to);
    return tx_end(&program, 0);
}
