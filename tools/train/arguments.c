/* SPDX-License-Identifier: Apache-2.0
 * txtrain's command line. */
#include "tools/train/arguments.h"

tx_cli tx_train_arguments(const tx_option_table *table)
{
    return (tx_cli){
        .name = "txtrain",
        .usage = "txtrain [OPTIONS.yaml|.json] --train_file FILE --output_dir DIR [options]",
        .about = "Trains GPT-2, Llama, Mistral, Qwen2 or Qwen3 on texts or conversations, or BERT on labelled texts,\n"
                 "and writes a Hugging Face model folder.\n"
                 "Options have the names of transformers' Trainer; - and _ in names are the same.",
        .options = table->option,
        .count = table->count,
        .spellings = table->spelling,
        .spelling_count = table->spelling_count,
    };
}
