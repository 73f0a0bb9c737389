/* SPDX-License-Identifier: Apache-2.0
 * txtrain's command line. */
#include "tools/train/arguments.h"

tx_cli tx_train_arguments(const tx_option_table *table)
{
    return (tx_cli){
        .name = "txtrain",
        .usage = "txtrain [OPTIONS.json|.yaml] --train_file FILE --output_dir DIR [options]",
        .about = "Trains a transformer (GPT-2, Llama, Qwen, Gemma, BERT and their relatives) on texts, conversations,\n"
                 "preferences or labelled texts, and writes a Hugging Face model folder.\n"
                 "Options have the names of transformers' Trainer; - and _ in names are the same.",
        .example = "  txtrain --train_file text.txt --output_dir out --max_steps 200",
        .most_used = "model_name_or_path train_file dataset_name task_name output_dir max_steps num_train_epochs "
                     "learning_rate per_device_train_batch_size gradient_accumulation_steps bf16 "
                     "gradient_checkpointing lora_r eval_strategy resume_from_checkpoint device",
        .table = *table,
    };
}
