/* SPDX-License-Identifier: Apache-2.0
 * The options of txgen, and how they meet generation_config.json. */
#include "tools/generate/txgen.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#define FOREIGN(text, same, advice)                              \
    {                                                            \
        TX_OPTION_FOREIGN, text, .choices = same, .help = advice \
    }
#define AT(field) offsetof(txgen_settings, field)
static const tx_option options[] = {
    {TX_OPTION_TEXT, "model", AT(model), .choices = "DIR|NAME",
     .help = "model: a folder, a GGUF file, or a name to look up (docs/guides/inference.md)"},
    {TX_OPTION_TEXT, "adapter", AT(adapter), .choices = "DIR",
     .help =
         "a low-rank adapter as peft or txtrain --lora_r writes it, added to the model's weights; without --model to "
         "those of the model that it names"},
    {TX_OPTION_TEXT, "save_merged", AT(save_merged), .choices = "DIR",
     .help = "write model and adapter as one model folder, in --dtype, and end"},
    {TX_OPTION_TEXT, "device", AT(device), .choices = "cpu|opencl|opencl:N|opencl:NAME|gpu",
     .help = "where to compute"},
    {TX_OPTION_TEXT, "device_map", AT(device_map), .choices = "auto|DEVICE[=BLOCKS],...",
     .help =
         "divide the model among devices, in this order: as in opencl:0=8,cpu=4; without numbers, as in opencl:0,cpu, "
         "each takes what it has room for; auto: all GPUs, then the cpu. In place of --device"},
    {TX_OPTION_CHOICE, "offload_param", AT(offload_param), .choices = "none|cpu|nvme",
     .help =
         "cpu: the weights lie in the host's memory, from where each layer's come to the device for every pass; nvme: "
         "so in a file in nvme_path, for models larger than memory"},
    {TX_OPTION_TEXT, "nvme_path", AT(nvme_path), .choices = "DIR",
     .help = "a folder on a fast disk of this host, for offload_param nvme; nothing stays there"},
    {TX_OPTION_INTEGER, "threads", AT(threads), 0, 4096, "N",
     "threads of the cpu backend; 0: as many as there are cores for this process"},
    {TX_OPTION_TEXT, "dtype", AT(dtype), .choices = "float32|bfloat16|float16|auto",
     .help = "what weights and caches are kept and products made in; auto: as config.json says"},
    {TX_OPTION_FLAG, "load_in_4bit", AT(load_in_4bit),
     .help = "keep the matrices of the blocks in 4 bits (NF4): a quarter of the memory of bfloat16, less exact"},
    {TX_OPTION_FLAG, "bnb_4bit_use_double_quant", AT(double_quant), .help = "with --load_in_4bit: scales in 8 bits"},
    {TX_OPTION_HEADING, .help = "text"},
    {TX_OPTION_WORDS, "prompt", AT(prompt), .choices = "TEXT",
     .help =
         "what to continue; may be given several times. Without any: all of standard input, or each line where that "
         "is a terminal"},
    {TX_OPTION_TEXT, "prompts", AT(prompts), .choices = "FILE",
     .help = "a prompt a line, or {\"text\": ...} a line of a .jsonl file; -: standard input"},
    {TX_OPTION_FLAG, "chat", AT(chat),
     .help = "a conversation: each line of standard input is answered, /reset begins anew, /exit ends. Or an answer to "
             "each --prompt, or to each line of --prompts, which is instruction data, as a line of JSON"},
    {TX_OPTION_TEXT, "chat_template", AT(chat_template), .choices = "NAME|FILE",
     .help =
         "how a conversation becomes text: chatml, qwen, qwen2, llama2, llama3, mistral, gemma, zephyr, alpaca, or a "
         ".jinja file; otherwise the model's own"},
    {TX_OPTION_TEXT, "system", AT(system), .choices = "TEXT", .help = "what the system says before a conversation"},
    {TX_OPTION_INTEGER, "batch_size", AT(batch_size), 0, 4096, "N",
     "prompts, or windows of --perplexity, at once; 0: 8 prompts, 1 window. A single text is shown as it grows"},
    {TX_OPTION_INTEGER, "max_new_tokens", AT(max_new_tokens), -1, 1 << 24, "N",
     "tokens to add; -1: up to max_length of generation_config.json, else 200; or as many as the model has positions "
     "for"},
    {TX_OPTION_INTEGER, "min_new_tokens", AT(min_new_tokens), 0, 1 << 24, "N",
     "the text does not end before so many tokens"},
    {TX_OPTION_WORDS, "stop", AT(stop), .choices = "TEXT",
     .help = "ends a text with the token that completes TEXT; may be given several times"},
    {TX_OPTION_HEADING, .help = "choice of tokens (defaults: the model's generation_config.json, then these)"},
    {TX_OPTION_FLAG, "do_sample", AT(do_sample),
     .help = "draw tokens; also implied by temperature, top_k or top_p. Else always the likeliest"},
    {TX_OPTION_REAL, "temperature", AT(temperature), 0, FLT_MAX, "X", "below 1: likelier tokens; 0: the likeliest"},
    {TX_OPTION_INTEGER, "top_k", AT(top_k), 0, 1 << 24, "N", "draw among the N likeliest tokens; 0: among all"},
    {TX_OPTION_REAL, "top_p", AT(top_p), 0, 1, "X", "of these, draw among the fewest whose probabilities add up to X"},
    {TX_OPTION_REAL, "repetition_penalty", AT(repetition_penalty), 0, FLT_MAX, "X",
     "above 1: tokens that are there already become less likely"},
    {TX_OPTION_INTEGER, "seed", AT(seed), 0, (double)INT64_MAX, "N", "the same seed gives the same text"},
    {TX_OPTION_INTEGER, "num_beams", AT(num_beams), 1, 256, "N", "search for the likeliest text with N beams"},
    {TX_OPTION_REAL, "length_penalty", AT(length_penalty), -FLT_MAX, FLT_MAX, "X",
     "with beams: above 0 favours longer texts"},
    {TX_OPTION_CHOICE, "early_stopping", AT(early_stopping), .choices = "false|true|never",
     .help = "beams: true ends with N finished texts, never only where none can become better"},
    {TX_OPTION_HEADING, .help = "ids in place of text (needs no tokenizer)"},
    {TX_OPTION_WORDS, "ids", AT(ids), .choices = "\"1 2 3\"",
     .help = "token ids to continue; may be given several times. The new ids are printed, a line each"},
    {TX_OPTION_TEXT, "logits", AT(logits), .choices = "FILE",
     .help = "with --ids: one forward pass; writes tensor logits, F32 [1, T, vocab_size], as safetensors"},
    {TX_OPTION_HEADING, .help = "perplexity of a text, as Hugging Face's guide computes it"},
    {TX_OPTION_TEXT, "perplexity", AT(perplexity), .choices = "FILE",
     .help = "of this text, by windows that overlap (texts of a .jsonl file are joined by empty lines)"},
    {TX_OPTION_INTEGER, "stride", AT(stride), 0, 1 << 24, "N",
     "tokens from window to window; 0: 512, or max_length where that is less"},
    {TX_OPTION_INTEGER, "max_length", AT(max_length), 0, 1 << 24, "N", "tokens of a window; 0: the model's positions"},
    /* Of transformers' generate. */
    FOREIGN("torch_dtype", "float32", "its name is --dtype"),
    FOREIGN("stop_strings", NULL, "it is --stop, once for each string"),
    FOREIGN("num_return_sequences", "1", "give the prompt several times: each copy draws its own text"),
    FOREIGN("num_beam_groups", "1", "beams are not grouped"),
    FOREIGN("no_repeat_ngram_size", "0", "--repetition_penalty comes near"),
    FOREIGN("typical_p", "1.0", "use --top_p"),
    FOREIGN("min_p", NULL, "use --top_p"),
    FOREIGN("penalty_alpha", NULL, "use --top_k and --top_p"),
    FOREIGN("use_cache", "true", "keys and values are always cached"),
};
#undef FOREIGN
#undef AT

static const tx_option_spelling spellings[] = {{"-m", "model"},
                                               {"-p", "prompt"},
                                               {"-n", "max_new_tokens"},
                                               {"--temp", "temperature"},
                                               {"--max_tokens", "max_new_tokens"}};

static const txgen_settings defaults = {.device = "cpu",
                                        .dtype = "float32",
                                        .max_new_tokens = -1,
                                        .top_k = 50,
                                        .num_beams = 1,
                                        .seed = 42,
                                        .temperature = 1.0,
                                        .top_p = 1.0,
                                        .repetition_penalty = 1.0,
                                        .length_penalty = 1.0};

const tx_cli txgen_program = {
    .name = "txgen",
    .usage = "txgen --model DIR [--prompt TEXT] [options]",
    .about =
        "Continues texts or conversations with a model, or measures how well it predicts one. Options are named as in "
        "transformers; - and _ are the same in names.",
    .options = options,
    .count = (int32_t)(sizeof options / sizeof options[0]),
    .values = &defaults,
    .spellings = spellings,
    .spelling_count = (int32_t)(sizeof spellings / sizeof spellings[0]),
};

static int misuse(const char *message)
{
    return tx_complain(&txgen_program, TX_EXIT_USAGE, "%s", message);
}

int txgen_parse(int argc, char *const *argv, txgen_settings *settings, tx_option_values *given)
{
    *settings = defaults;
    *given = tx_options_values(&txgen_program, settings);
    int result = tx_options_read(&txgen_program, argc, argv, given);
    if (result != TX_GO_ON)
        return result;
    const txgen_settings *s = settings;
    bool text = s->prompt.count > 0 || s->prompts;
    if (!s->model && !s->adapter)
        return misuse("--model is missing: which model folder?");
    if (s->device_map && tx_option_given(given, offsetof(txgen_settings, device)))
        return misuse("--device and --device_map exclude each other");
    if (s->device_map && s->offload_param)
        return misuse("--offload_param and --device_map exclude each other");
    if (s->offload_param == TX_OFFLOAD_FILE && !s->nvme_path)
        return misuse("--offload_param nvme needs --nvme_path: a folder on a fast disk of this host");
    if (s->load_in_4bit && s->save_merged)
        return misuse("--load_in_4bit and --save_merged exclude each other: files have no 4 bits");
    if (s->double_quant && !s->load_in_4bit)
        return misuse("--bnb_4bit_use_double_quant needs --load_in_4bit");
    if (s->save_merged && (text || s->ids.count > 0 || s->perplexity))
        return misuse("--save_merged takes no prompts: it writes a model and ends");
    if (s->ids.count > 0 && text)
        return misuse("--ids and --prompt exclude each other");
    if (s->logits && s->ids.count != 1)
        return misuse("--logits needs --ids, once");
    if (s->perplexity && (text || s->ids.count > 0))
        return misuse("--perplexity takes no prompts");
    if (s->chat && (s->ids.count > 0 || s->perplexity))
        return misuse("--chat takes no --ids and no --perplexity");
    if (s->chat && s->prompt.count > 0 && s->prompts)
        return misuse("--chat takes --prompt or --prompts");
    if (!s->chat && (s->chat_template || s->system))
        return misuse("--chat_template and --system belong to --chat");
    if (s->ids.count > 0 && s->stop.count > 0)
        return misuse("--stop needs text: ids have no tokenizer");
    if ((s->stride > 0 || s->max_length > 0) && !s->perplexity)
        return misuse("--stride and --max_length belong to --perplexity; --max_new_tokens says how long a text may be");
    return TX_GO_ON;
}

tx_status txgen_generation(const tx_option_values *given, tx_generation *how)
{
    const txgen_settings *set = given->values;
#define GIVEN(field) tx_option_given(given, offsetof(txgen_settings, field))
#define TAKE(field) how->field = GIVEN(field) ? set->field : how->field
    TAKE(max_new_tokens);
    TAKE(min_new_tokens);
    TAKE(top_k);
    TAKE(num_beams);
    TAKE(temperature);
    TAKE(top_p);
    TAKE(repetition_penalty);
    TAKE(length_penalty);
    if (GIVEN(early_stopping))
        how->early_stopping = (tx_early_stopping)set->early_stopping;
    how->seed = (uint64_t)set->seed;
    how->stop_strings = set->stop.word;
    how->stop_count = set->stop.count;
    if (GIVEN(do_sample))
        how->do_sample = set->do_sample;
    else if (GIVEN(top_k) || GIVEN(temperature) || GIVEN(top_p))
        how->do_sample = true;
#undef TAKE
#undef GIVEN
    return tx_generation_check(how);
}
