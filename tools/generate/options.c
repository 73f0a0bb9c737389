/* SPDX-License-Identifier: Apache-2.0
 * The options of txgen, which override generation_config.json. */
#include "tools/generate/txgen.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#define AT(field) offsetof(txgen_settings, field)
static const tx_option options[] = {
    {TX_OPTION_TEXT, "model", AT(lm.model), .choices = "DIR|NAME",
     .help = "the model: a folder, a GGUF file, or a name to look up (docs/guides/inference.md)"},
    {TX_OPTION_WORDS, "adapter", AT(adapter), 0, TXGEN_ADAPTERS, "DIR",
     "merge a LoRA adapter of peft or txtrain --lora_r into the weights; without --model, use the base model that the "
     "adapter names. Several adapters are combined as by peft's add_weighted_adapter"},
    {TX_OPTION_TEXT, "adapter_weights", AT(adapter_weights), .choices = "X,...",
     .help = "a weight for each adapter; default: 1 for all"},
    {TX_OPTION_CHOICE, "combination_type", AT(combination_type), .choices = "linear|cat|svd",
     .help = "how several adapters become one; cat is their exact sum. txconvert knows other ways"},
    {TX_OPTION_TEXT, "save_merged", AT(save_merged), .choices = "DIR",
     .help = "write the merged model to a folder, in --dtype, and exit"},
    {TX_OPTION_TEXT, "device", AT(lm.device), .choices = "auto|cpu|opencl|opencl:N|opencl:NAME|gpu",
     .help = "device to compute on"},
    {TX_OPTION_TEXT, "device_map", AT(lm.device_map), .choices = "auto|DEVICE[=BLOCKS],...",
     .help = "divide the model's blocks among devices, instead of --device: opencl:0=8,cpu=4 gives the number of "
             "blocks; opencl:0,cpu fills each device in turn; auto uses all GPUs, then the cpu"},
    {TX_OPTION_CHOICE, "offload_param", AT(offload_param), .choices = "none|cpu|nvme",
     .help = "keep weights in host memory (cpu) or in a file in nvme_path (nvme), and copy each layer to the device "
             "for every pass"},
    {TX_OPTION_TEXT, "nvme_path", AT(lm.offload_folder), .choices = "DIR",
     .help = "a folder on a fast local disk for --offload_param nvme; the file is deleted at the end"},
    {TX_OPTION_INTEGER, "threads", AT(threads), 0, 4096, "N",
     "threads of the cpu backend; 0 uses all cores of this process"},
    {TX_OPTION_TEXT, "dtype", AT(lm.dtype), .choices = "float32|bfloat16|float16|auto",
     .help = "type of weights, caches and matrix products; auto uses the type in config.json. The default is float32, "
             "but keeps the quantised matrices of a GGUF file as they are; a given type converts them"},
    {TX_OPTION_TEXT, "cache_type", AT(lm.cache_type), .choices = "auto|q8_0",
     .help =
         "type of the model's cached keys and values: that of --dtype, or 8 bits in blocks of 32 for long contexts"},
    {TX_OPTION_FLAG, "load_in_4bit", AT(lm.load_in_4bit),
     .help = "keep the matrices of the blocks in 4 bits (NF4): a quarter of the memory of bfloat16, less exact"},
    {TX_OPTION_FLAG, "bnb_4bit_use_double_quant", AT(lm.double_quant),
     .help = "with --load_in_4bit: keep the scales in 8 bits"},
    {TX_OPTION_HEADING, .help = "text"},
    {TX_OPTION_WORDS, "prompt", AT(prompt), .choices = "TEXT",
     .help =
         "text to continue; can be repeated. Without a prompt, continue standard input, or each line of it if it is "
         "a terminal"},
    {TX_OPTION_TEXT, "prompts", AT(prompts), .choices = "FILE",
     .help = "file with a prompt per line, or {\"text\": ...} per line if it ends in .jsonl; - is standard input"},
    {TX_OPTION_FLAG, "chat", AT(chat),
     .help = "answer each line of standard input as a conversation; /reset starts a new one, /exit ends. Or answer "
             "each --prompt with text, or each conversation in --prompts (instruction data) with a line of JSON"},
    {TX_OPTION_TEXT, "chat_template", AT(chat_template), .choices = "NAME|FILE",
     .help =
         "chat template: chatml, qwen, qwen2, llama2, llama3, mistral, gemma, zephyr, alpaca, a .jinja file, or its "
         "text; default: the model's own"},
    {TX_OPTION_TEXT, "chat_template_kwargs", AT(chat_template_kwargs), .choices = "JSON",
     .help = "variables of the chat template, such as {\"enable_thinking\": false}"},
    {TX_OPTION_TEXT, "system", AT(system), .choices = "TEXT", .help = "system message at the start of a conversation"},
    {TX_OPTION_INTEGER, "batch_size", AT(lm.batch_size), 0, 4096, "N",
     "prompts, or windows of --perplexity, in a batch; 0 means 8 prompts, 32 texts of --classify and --embed, or 1 "
     "window. A single text is printed token by token"},
    {TX_OPTION_INTEGER, "max_new_tokens", AT(max_new_tokens), -1, 1 << 24, "N",
     "largest number of new tokens; -1 means up to max_length in generation_config.json, or else 200, within the "
     "model's positions"},
    {TX_OPTION_INTEGER, "min_new_tokens", AT(min_new_tokens), 0, 1 << 24, "N", "smallest number of new tokens"},
    {TX_OPTION_WORDS, "stop", AT(stop), .choices = "TEXT",
     .help = "end a text after the token that completes TEXT; can be repeated"},
    {TX_OPTION_HEADING, .help = "sampling and beam search (defaults: generation_config.json of the model, then these)"},
    {TX_OPTION_FLAG, "do_sample", AT(do_sample),
     .help =
         "sample tokens; implied by temperature, top_k or top_p, and, with temperature 0.8 and top_p 0.95, by a model "
         "without generation_config.json. Otherwise decoding is greedy"},
    {TX_OPTION_REAL, "temperature", AT(temperature), 0, FLT_MAX, "X",
     "divide the logits by X before sampling; 0 is greedy decoding"},
    {TX_OPTION_INTEGER, "top_k", AT(top_k), -1, 1 << 24, "N",
     "sample from the N most likely tokens; 0 or -1 means all"},
    {TX_OPTION_REAL, "top_p", AT(top_p), 0, 1, "X",
     "of these, sample from the smallest set of tokens with a total probability of X or more"},
    {TX_OPTION_REAL, "repetition_penalty", AT(repetition_penalty), 0, FLT_MAX, "X",
     "above 1: make tokens that already occur less likely"},
    {TX_OPTION_INTEGER, "seed", AT(seed), 0, (double)INT64_MAX, "N",
     "seed of sampling; the same seed gives the same text"},
    {TX_OPTION_INTEGER, "num_beams", AT(num_beams), 1, 256, "N", "beam search with N beams; 1 means no beam search"},
    {TX_OPTION_INTEGER, "prompt_lookup_num_tokens", AT(prompt_lookup_num_tokens), 0, TX_GENERATION_GUESSES, "N",
     "compute N more tokens at a time, guessed from what followed the last tokens before; for texts that repeat parts "
     "of their prompt, one at a time"},
    {TX_OPTION_TEXT, "assistant_model", AT(lm.assistant_model), .choices = "DIR|NAME",
     .help =
         "a smaller model with the same tokenizer: it guesses tokens, which the model computes in one pass. The text "
         "stays the same; one text at a time"},
    {TX_OPTION_INTEGER, "num_assistant_tokens", AT(num_assistant_tokens), 0, TX_GENERATION_GUESSES, "N",
     "with --assistant_model: tokens that it guesses for a pass"},
    {TX_OPTION_REAL, "length_penalty", AT(length_penalty), -FLT_MAX, FLT_MAX, "X",
     "with beams: above 0 favours longer texts"},
    {TX_OPTION_CHOICE, "early_stopping", AT(early_stopping), .choices = "false|true|never",
     .help = "with beams: true stops at N finished texts, never stops only when no text can improve"},
    {TX_OPTION_HEADING, .help = "ids instead of text (needs no tokenizer)"},
    {TX_OPTION_WORDS, "ids", AT(ids), .choices = "\"1 2 3\"",
     .help = "token ids to continue; can be repeated. Prints the new ids of each on a line"},
    {TX_OPTION_TEXT, "logits", AT(logits), .choices = "FILE",
     .help = "with --ids: run one forward pass and write tensor logits, F32 [1, T, vocab_size], as safetensors"},
    {TX_OPTION_HEADING, .help = "labels and embeddings of texts"},
    {TX_OPTION_FLAG, "classify", AT(classify),
     .help =
         "classify each --prompt, or each line of --prompts or standard input, as text or JSON (text and text_pair, "
         "sentence1 and sentence2, or a list of tokens); print a line of JSON with label and scores for each"},
    {TX_OPTION_FLAG, "embed", AT(embed),
     .help = "the same with an embedding of each text, from a folder of sentence-transformers or an encoder"},
    {TX_OPTION_TEXT, "prompt_name", AT(prompt_name), .choices = "NAME",
     .help = "with --embed: put this prompt of config_sentence_transformers.json before each text; default: its "
             "default_prompt_name"},
    {TX_OPTION_HEADING, .help = "perplexity of a text, computed as in Hugging Face's guide"},
    {TX_OPTION_TEXT, "perplexity", AT(perplexity), .choices = "FILE",
     .help = "measure the perplexity of this text with overlapping windows; texts of a .jsonl file are joined by empty "
             "lines"},
    {TX_OPTION_INTEGER, "stride", AT(stride), 0, 1 << 24, "N",
     "tokens between the starts of two windows; 0 means 512, or max_length if that is less"},
    {TX_OPTION_INTEGER, "max_length", AT(max_length), 0, 1 << 24, "N",
     "tokens of a window; 0 means the model's positions"},
};
#undef AT

static const tx_option_spelling spellings[] = {{"-m", "model"},
                                               {"-p", "prompt"},
                                               {"-n", "max_new_tokens"},
                                               {"--temp", "temperature"},
                                               {"--max_tokens", "max_new_tokens"}};

static const txgen_settings defaults = {
    .lm = {.size = sizeof(tx_lm_options), .device = "auto", .warn = tx_warn, .progress = tx_alive_progress},
    .max_new_tokens = -1,
    .top_k = 50,
    .num_beams = 1,
    .num_assistant_tokens = TX_GENERATION_ASSISTANT,
    .seed = 42,
    .combination_type = 1, /* cat */
    .temperature = 1.0,
    .top_p = 1.0,
    .repetition_penalty = 1.0,
    .length_penalty = 1.0};

const tx_cli txgen_program = {
    .name = "txgen",
    .usage = "txgen --model DIR [--prompt TEXT] [options]",
    .about = "Continues texts or conversations with a model, classifies or embeds texts, or measures perplexity.\n"
             "Options have the names of transformers; - and _ in names are the same.",
    .example = "  txgen --model out --prompt \"Once upon a time\" --max_new_tokens 50",
    .most_used = "model prompt prompts chat system max_new_tokens stop temperature top_p do_sample seed dtype "
                 "load_in_4bit adapter perplexity device",
    .table = {TX_CLI_OPTIONS(options), TX_CLI_SPELLINGS(spellings)},
    .values = &defaults,
};

#define GIVEN(field) tx_option_given(given, offsetof(txgen_settings, field))

/* Fails if options exclude each other, or need others. */
static int check(const txgen_settings *s, const tx_option_values *given)
{
    const bool text = s->prompt.count > 0 || s->prompts, ids = s->ids.count > 0, labels = s->classify || s->embed;
    const tx_misuse misuses[] = {
        {!s->lm.model && !s->adapter.count, "--model is missing: give a model folder"},
        {s->adapter.count > TXGEN_ADAPTERS, "--adapter: too many adapters: combine some of them by txconvert"},
        {s->adapter_weights && !s->adapter.count, "--adapter_weights needs --adapter"},
        {s->lm.device_map && GIVEN(lm.device), "--device and --device_map exclude each other"},
        {s->lm.device_map && s->offload_param, "--offload_param and --device_map exclude each other"},
        {(s->lm.assistant_model || s->lm.cache_type) && (labels || s->perplexity || s->logits || s->save_merged),
         "--assistant_model and --cache_type are for texts: they exclude --classify, --embed, --perplexity, --logits "
         "and --save_merged"},
        {s->lm.assistant_model && s->lm.device_map, "--assistant_model and --device_map exclude each other"},
        {!s->lm.assistant_model && GIVEN(num_assistant_tokens), "--num_assistant_tokens needs --assistant_model"},
        {s->offload_param == TX_OFFLOAD_FILE && !s->lm.offload_folder,
         "--offload_param nvme needs --nvme_path: give a folder on a fast disk of this host"},
        {s->lm.load_in_4bit && s->save_merged,
         "--load_in_4bit and --save_merged exclude each other: 4-bit models cannot be saved"},
        {s->lm.double_quant && !s->lm.load_in_4bit, "--bnb_4bit_use_double_quant needs --load_in_4bit"},
        {s->save_merged && (text || ids || s->perplexity),
         "--save_merged takes no prompts: it writes a model and exits"},
        {ids && text, "--ids and --prompt exclude each other"},
        {s->logits && s->ids.count != 1, "--logits needs exactly one --ids"},
        {s->perplexity && (text || ids), "--perplexity takes no prompts"},
        {s->chat && (ids || s->perplexity), "--chat excludes --ids and --perplexity"},
        {s->chat && s->prompt.count > 0 && s->prompts, "--chat: --prompt and --prompts exclude each other"},
        {!s->chat && (s->chat_template || s->system || s->chat_template_kwargs),
         "--chat_template, --chat_template_kwargs and --system need --chat"},
        {s->classify && s->embed, "--classify and --embed exclude each other"},
        {labels && (s->chat || ids || s->perplexity || s->save_merged),
         "--classify and --embed exclude --chat, --ids, --perplexity and --save_merged"},
        {s->prompt_name && !s->embed, "--prompt_name needs --embed"},
        {ids && s->stop.count > 0, "--stop and --ids exclude each other: stop strings need a tokenizer"},
        {(s->stride > 0 || s->max_length > 0) && !s->perplexity,
         "--stride and --max_length need --perplexity; use --max_new_tokens to limit the length of a text"},
    };
    return tx_complain_misuse(&txgen_program, misuses, sizeof misuses / sizeof misuses[0]);
}

int txgen_parse(int argc, char *const *argv, txgen_settings *settings, tx_option_values *given)
{
    *settings = defaults;
    *given = tx_options_values(&txgen_program, settings);
    const int result = tx_options_read(&txgen_program, argc, argv, given);
    return result == TX_GO_ON ? check(settings, given) : result;
}

/* Greedy texts of small models repeat themselves. */
bool txgen_sample(const tx_option_values *given, tx_generation *how)
{
    if (GIVEN(do_sample) || GIVEN(temperature) || GIVEN(top_k) || GIVEN(top_p) || GIVEN(num_beams))
        return false;
    how->do_sample = true;
    how->temperature = 0.8;
    how->top_p = 0.95;
    return true;
}

void txgen_generation(const tx_option_values *given, tx_generation *how)
{
    const txgen_settings *set = given->values;
#define TAKE(field) how->field = GIVEN(field) ? set->field : how->field
    TAKE(max_new_tokens);
    TAKE(min_new_tokens);
    TAKE(top_k);
    TAKE(num_beams);
    TAKE(prompt_lookup_num_tokens);
    TAKE(num_assistant_tokens);
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
        how->do_sample = how->temperature > 0.0;
#undef TAKE
#undef GIVEN
}
