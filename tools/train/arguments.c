/* SPDX-License-Identifier: Apache-2.0
 * txtrain's command line. */
#include "tools/train/arguments.h"

#include "models/job/settings.h"

tx_cli tx_train_arguments(void)
{
    static const tx_spelling spellings[] = {{"--lr", "learning_rate"},
                                            {"--epochs", "num_train_epochs"},
                                            {"--steps", "max_steps"},
                                            {"--batch_size", "per_device_train_batch_size"},
                                            {"--bs", "per_device_train_batch_size"},
                                            {"--grad_accum", "gradient_accumulation_steps"},
                                            {"--grad_clip", "max_grad_norm"},
                                            {"--warmup", "warmup_steps"},
                                            {"--wd", "weight_decay"},
                                            {"--model", "model_name_or_path"},
                                            {"--resume", "resume_from_checkpoint"},
                                            {"--max_length", "max_seq_length"},
                                            {"--chat_template_path", "chat_template"},
                                            {"--dataset_config", "dataset_config_name"},
                                            {"--dataset_num_proc", "preprocessing_num_workers"},
                                            {"--use_bnb_nested_quant", "bnb_4bit_use_double_quant"},
                                            {"-o", "output_dir"}};
    return (tx_cli){
        .name = "txtrain",
        .usage = "txtrain [ARGUMENTS.json] --train_file FILE --output_dir DIR [options]",
        .about = "Trains GPT-2, Llama, Mistral, Qwen2 or Qwen3 on a text or on conversations, or BERT on texts with\n"
                 "labels, and writes a Hugging Face model folder.\n"
                 "Options are those of transformers' Trainer; in their names - and _ are the same.",
        .options = tx_job_table.option,
        .count = tx_job_table.count,
        .spellings = spellings,
        .spelling_count = (int32_t)(sizeof spellings / sizeof spellings[0]),
    };
}
