/* SPDX-License-Identifier: Apache-2.0
 * The options of txgen, which override generation_config.json. */
#include "tools/generate/txgen.h"

#include <float.h>
#include <string.h>

#define AT(field) offsetof(txgen_settings, field)
static const tx_option options[] = {
#define LM_OPTION(KIND, name, member, least, most, choices, help) \
    {TX_OPTION_##KIND, #name, AT(lm.member), least, most, choices, help},
#include "tx_lm.def"
    {TX_OPTION_WORDS, "adapter", AT(adapter), 0, TXGEN_ADAPTERS, "DIR",
     "merge a LoRA adapter of peft or txtrain --lora_r into the weights; without --model, use the base model that the "
     "adapter names. Several adapters are combined as by peft's add_weighted_adapter"},
    {TX_OPTION_TEXT, "adapter_weights", AT(adapter_weights), .choices = "X,...",
     .help = "a weight for each adapter; default: 1 for all"},
    {TX_OPTION_CHOICE, "combination_type", AT(combination_type), .choices = "linear|cat|svd",
     .help = "how several adapters become one; cat is their exact sum. txconvert knows other ways"},
    {TX_OPTION_TEXT, "save_merged", AT(save_merged), .choices = "DIR",
     .help = "write the merged model to a folder, in --dtype, and exit"},
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
    {TX_OPTION_WORDS, "stop", AT(stop), .choices = "TEXT",
     .help = "end a text after the token that completes TEXT; can be repeated"},
    {TX_OPTION_TEXT, "json_schema", AT(json_schema), .choices = "JSON|FILE",
     .help = "texts are JSON that is valid by this schema; {} allows any JSON"},
    {TX_OPTION_TEXT, "grammar", AT(grammar), .choices = "GBNF|FILE",
     .help = "texts follow this grammar in llama.cpp's form"},
    {TX_OPTION_TEXT, "regex", AT(regex), .choices = "REGEX", .help = "the whole text matches this regular expression"},
#define SETTING(KIND, name, initial, least, most, choices, key, implies, help) \
    {TX_OPTION_##KIND, #name, AT(how.name), least, most, choices, help},
#define FILE_SETTING(...)
#define HEADING(text) {TX_OPTION_HEADING, .help = text},
#include "tx_generation.def"
    {TX_OPTION_WORDS, "dry_sequence_breakers", AT(breakers), 0, TXGEN_STOPS, "TEXT",
     "with dry_multiplier: repetitions begin anew at TEXT; can be repeated. Default: a line break, : \" and *; none "
     "means no texts"},
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
    {TX_OPTION_TEXT, "reference", AT(reference), .choices = "MODEL",
     .help = "with --perplexity: compare with this model of the same vocabulary, such as the one that was quantized: "
             "mean KL divergence, and how often the most likely token is the same; windows do not overlap and have 512 "
             "tokens"},
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
                                               {"--max_tokens", "max_new_tokens"},
                                               {"-j", "json_schema"},
                                               {"--json_schema_file", "json_schema"},
                                               {"--grammar_file", "grammar"},
                                               {"--dry_sequence_breaker", "dry_sequence_breakers"}};

static const txgen_settings defaults = {
    .lm = {.size = sizeof(tx_lm_options), .warn = tx_warn, .progress = tx_alive_progress},
    .combination_type = 1, /* cat */
    .how.size = sizeof(tx_generation),
#define SETTING(KIND, name, initial, ...) .how.name = initial,
#include "tx_generation.def"
};

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
    const bool ranks = tx_ranks_started() > 1, input = s->prompts && strcmp(s->prompts, "-") == 0;
    const bool text = s->prompt.count > 0 || s->prompts, ids = s->ids.count > 0, labels = s->classify || s->embed;
    tx_generation how = defaults.how;
    tx_generation_take(&how, given, offsetof(txgen_settings, how));
    const tx_misuse misuses[] = {
        {!s->lm.model && !s->adapter.count, "--model is missing: give a model folder"},
        {ranks && (labels || s->perplexity || s->logits || s->save_merged),
         "ranks divide a model only to continue texts: start --classify, --embed, --perplexity, --logits and "
         "--save_merged without the launcher"},
        {ranks && (s->lm.device_map || s->lm.offload_params || s->lm.load_in_4bit || s->lm.assistant_model),
         "ranks divide the model: leave out --device_map, --offload_param, --load_in_4bit and --assistant_model, or "
         "start it without the launcher"},
        {ranks && ((!text && !ids) || input), "standard input reaches only rank 0; give --prompt, --prompts FILE or "
                                              "--ids, or start it without the launcher"},
        {s->adapter.count > TXGEN_ADAPTERS, "--adapter: too many adapters: combine some of them by txconvert"},
        {s->adapter_weights && !s->adapter.count, "--adapter_weights needs --adapter"},
        {s->lm.device_map && s->lm.device, "--device and --device_map exclude each other"},
        {s->lm.device_map && s->lm.offload_params, "--offload_param and --device_map exclude each other"},
        {(s->lm.assistant_model || s->lm.cache_type) && (labels || s->perplexity || s->logits || s->save_merged),
         "--assistant_model and --cache_type are for texts: they exclude --classify, --embed, --perplexity, --logits "
         "and --save_merged"},
        {s->lm.assistant_model && s->lm.device_map, "--assistant_model and --device_map exclude each other"},
        {!s->lm.assistant_model && GIVEN(how.num_assistant_tokens), "--num_assistant_tokens needs --assistant_model"},
        {s->lm.offload_params == TX_OFFLOAD_FILE && !s->lm.offload_folder,
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
        {s->breakers.count > 0 && !(how.dry_multiplier > 0.0), "--dry_sequence_breakers needs --dry_multiplier"},
        {ids && s->stop.count > 0, "--stop and --ids exclude each other: stop strings need a tokenizer"},
        {(s->json_schema != NULL) + (s->grammar != NULL) + (s->regex != NULL) > 1,
         "--json_schema, --grammar and --regex exclude each other"},
        {(s->json_schema || s->grammar || s->regex) && (labels || ids || s->perplexity || s->save_merged),
         "--json_schema, --grammar and --regex are for texts: they exclude --ids, --classify, --embed, --perplexity "
         "and --save_merged"},
        {s->reference && !s->perplexity, "--reference needs --perplexity"},
        {s->reference && (s->stride > 0 || s->lm.batch_size > 0),
         "--reference measures one window at a time, without overlap: leave out --stride and --batch_size"},
        {(s->stride > 0 || s->max_length > 0) && !s->perplexity,
         "--stride and --max_length need --perplexity; use --max_new_tokens to limit the length of a text"},
        {s->lm.assistant_model && how.num_beams > 1, "--assistant_model and --num_beams exclude each other"},
        {s->lm.assistant_model && how.prompt_lookup_num_tokens > 0,
         "--assistant_model and --prompt_lookup_num_tokens exclude each other"},
        {tx_generation_check(&how) != TX_OK, tx_error()},
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
    if (GIVEN(how.do_sample) || GIVEN(how.temperature) || GIVEN(how.top_k) || GIVEN(how.top_p) || GIVEN(how.min_p) ||
        GIVEN(how.typical_p) || GIVEN(how.xtc_probability) || GIVEN(how.num_beams))
        return false;
    how->do_sample = true;
    how->temperature = 0.8;
    how->top_p = 0.95;
    return true;
}

void txgen_generation(const tx_option_values *given, tx_generation *how)
{
    const txgen_settings *set = given->values;
    tx_generation_take(how, given, offsetof(txgen_settings, how));
    how->seed = set->how.seed;
    how->stop_strings = set->stop.word;
    how->stop_count = set->stop.count;
}
