/* SPDX-License-Identifier: Apache-2.0
 *
 * Text generation for programs that link the library. txgen uses these calls.
 *
 *     static void show(void *context, int64_t index, const char *bytes, size_t size)
 *     {
 *         fwrite(bytes, 1, size, stdout);
 *     }
 *
 *     tx_lm *lm = NULL;
 *     tx_lm_prompt prompt = {.text = "Once upon a time"};
 *     tx_lm_options options = {.size = sizeof options, .model = "gpt2"};
 *     tx_lm_listener listener = {.size = sizeof listener, .text = show};
 *
 *     tx_status status = tx_lm_open(&options, &lm);
 *     if (!status)
 *         status = tx_lm_generate(lm, &prompt, 1, NULL, &listener);
 *     if (status)
 *         fprintf(stderr, "%s\n", tx_error());
 *     tx_lm_free(lm);
 */
#ifndef TX_GENERATE_H
#define TX_GENERATE_H

#include "tx_options.h"
#include "tx_parallel.h"
#include "tx_text.h"

TX_API_BEGIN

/* ---- How to generate ------------------------------------------------------------------------------------ */

/* When beam search of a prompt ends. FALSE: when no open beam is likely to beat the finished ones. TRUE: as soon as
 * num_beams beams are finished. NEVER: only when no open beam can beat the finished ones. */
typedef enum tx_early_stopping { TX_EARLY_FALSE, TX_EARLY_TRUE, TX_EARLY_NEVER } tx_early_stopping;

#define TX_GENERATION_EOS 32

/* Names, meanings and defaults as in transformers' GenerationConfig. Start with a copy of tx_lm_generation's. */
#define TX_GENERATION_DRAFT_TOKENS 7 /* most draft tokens: products of more than 8 rows may round in another way */
#define TX_GENERATION_ASSISTANT 3    /* default of num_assistant_tokens */

typedef struct tx_logit_bias {
    int32_t id;
    float bias;
} tx_logit_bias;

/* Texts at which repetitions begin anew (see tx_breakers_create). */
typedef struct tx_breakers tx_breakers;

typedef struct tx_generation {
    size_t size;               /* sizeof(tx_generation) */
    int64_t max_new_tokens;    /* -1 if unset */
    int64_t max_length;        /* prompt plus new tokens, used if max_new_tokens is unset; -1 if unset */
    int64_t min_new_tokens;    /* end-of-text ids are suppressed before; -1 if unset */
    int64_t min_length;        /* the same with the prompt's tokens, used if min_new_tokens is unset */
    bool do_sample;            /* sample; otherwise take the most likely token */
    double temperature;        /* divides the logits; 0 takes the most likely token */
    int64_t top_k;             /* sample among the k most likely tokens and ties with the k-th; 0 and -1 mean all */
    double top_p;              /* and among the smallest set of tokens whose probabilities reach p */
    double min_p;              /* and of these, those with at least so many times the largest probability */
    double typical_p;          /* and the locally typical ones (Meister et al., 2022); 1 means all */
    double xtc_probability;    /* how often XTC leaves out all but the least likely of the tokens of at least */
    double xtc_threshold;      /* this probability */
    double presence_penalty;   /* subtracted from the logits of new tokens that occurred already, as by OpenAI */
    double frequency_penalty;  /* the same for each occurrence */
    double repetition_penalty; /* for tokens that occurred already (Keskar et al., CTRL, 2019) */
    double dry_multiplier; /* above 0: a token that would continue a repetition of n tokens, all of them among the */
    double dry_base;       /* last dry_penalty_last_n, loses dry_multiplier * dry_base ^ (n - */
    int64_t dry_allowed_length; /* dry_allowed_length) from its logit, unless n is less than that (DRY, as by */
    int64_t dry_penalty_last_n; /* llama.cpp) */
    int64_t num_beams;
    /* The number of draft tokens, which are computed with the next token in one pass if only one text is generated.
     * They are the tokens after an earlier place of the last two tokens, or of the last one. Wrong ones are dropped. */
    int64_t prompt_lookup_num_tokens;
    int64_t num_assistant_tokens; /* the same for those of the assistant model; 0 uses none */
    double length_penalty;        /* beam search divides the sum of log-probabilities by the length to this power */
    tx_early_stopping early_stopping;
    uint64_t seed;                           /* the same seed, prompt and options give the same text */
    int32_t eos_token_id[TX_GENERATION_EOS]; /* ids that end a text */
    int32_t eos_count;
    const char *const *stop_strings; /* a text ends with the token that completes one; none is empty */
    int32_t stop_count;
    const tx_logit_bias *logit_bias; /* added to logits after the penalties; ids outside the vocabulary are refused */
    int32_t bias_count;
    const struct tx_grammar *grammar; /* that texts follow (tx_grammar.h), not with beams; or NULL */
    /* With dry_multiplier: no repetition reaches back over one of these texts. NULL uses those of llama.cpp: a line
     * break, ":", "\"" and "*", if the model has a tokenizer. */
    const tx_breakers *dry_breakers;
} tx_generation;

/* Compiles `count` texts of at most 40 bytes for dry_breakers; with none of them repetitions have any length. A text
 * that goes over several tokens is found if these are the ones that encode its rest. TX_INVALID if a text is empty or
 * longer. The caller frees. */
tx_status tx_breakers_create(const tx_tokenizer *tokenizer, const char *const *texts, int32_t count,
                             tx_breakers **breakers);
void tx_breakers_free(tx_breakers *breakers); /* NULL is fine */

/* Fails with TX_INVALID and the names of all fields whose values are invalid or contradict each other. */
tx_status tx_generation_check(const tx_generation *generation);
/* Sets one field by its name to a value as on txgen's command line: "temperature" to "0.7", "eos_token_id" to "2,7".
 * temperature, top_k, top_p, min_p, typical_p and xtc_probability request sampling; set do_sample after them to change
 * that. TX_NOT_FOUND if there is no such field (the message suggests the nearest one), TX_INVALID if it does not accept
 * the value. */
tx_status tx_generation_set(tx_generation *generation, const char *name, const char *value);
/* Sets the fields that the body of a request has by OpenAI's names, such as "max_tokens", and ignores other members. */
tx_status tx_generation_read_body(tx_generation *generation, const tx_json *body);
/* Sets the fields that were given as options of a program whose struct has a tx_generation at an offset. */
void tx_generation_take(tx_generation *generation, const tx_option_values *given, size_t offset);
/* True if a text ends with this id. */
bool tx_generation_ends(const tx_generation *generation, int32_t id);
/* Adds an end of texts, as tx_chat_end returns it: an id, or if that is below 0 a string. `stop` has room for one more
 * string than there are, and becomes stop_strings. TX_UNSUPPORTED if there is no room for the id. */
tx_status tx_generation_add_end(tx_generation *generation, int32_t id, const char *text, const char **stop);

/* ---- A language model ----------------------------------------------------------------------------------- */

/* A model folder on a device: configuration, weights, tokenizer, generation_config.json. The first call that computes
 * reads the weights. The first call that needs text reads the tokenizer, so calls with ids work without one. A call
 * that needs larger caches than the calls before (more or longer texts, another number of beams) recompiles and reads
 * the weights again. tx_lm_reserve avoids this. */
typedef struct tx_lm tx_lm;

typedef struct tx_lm_options {
    size_t size;        /* sizeof(tx_lm_options) */
    const char *model;  /* a folder, a GGUF file, or a name to find, as txgen's --model; NULL if `adapter` names it.
                         * An output_dir without a model gives its newest checkpoint, with a warning. */
    const char *device; /* as txgen's --device; see tx_device_find */
    int64_t threads;    /* of the cpu backend; 0 means all that this process may use */
    int64_t batch_size; /* prompts at once, 0 means 8; it does not change the texts */
    /* Type of weights, caches and matrix products: "float32", "bfloat16", "float16", or "auto" for the type that
     * config.json names (float32 if it names none). NULL means "auto". With "auto" on the cpu, matrices in a GGUF
     * file's blocks (Q8_0, Q4_0, Q4_K, Q6_K) stay as they are, and products of at most 8 rows round their inputs to 8
     * bits by block. The other types store the numbers that the blocks mean. */
    const char *dtype;
    /* Receives warnings. Only tx_lm_open calls it. It may be NULL. */
    void (*warn)(void *context, const char *message);
    void *context;
    /* A peft folder whose adapter is merged into the weights. NULL means the adapter in `model`, if there is one. */
    const char *adapter;
    /* Quantize the matrices of the blocks to 4 bits (NF4), and their scales to 8. Not with an adapter. */
    bool load_in_4bit, double_quant;
    /* For conversations: reuse the KV cache for the common prefix of a prompt with the previous prompt and its text.
     * Only for calls with one prompt and without beams. Logits then equal those of a full pass except for rounding,
     * which depends on how the text was split into calls. */
    bool keep_cache;
    /* Divides the blocks of the model among devices, as txgen's --device_map, and replaces `device`. NULL keeps all
     * blocks on `device`. */
    const char *device_map;
    /* Keeps the weights in host memory, or in a file in a folder: see tx_model_offload_params. Not with device_map. */
    tx_offload_place offload_params;
    const char *offload_folder;
    /* As tx_reporter's, with the same `context`: progress of compiling kernels and reading weights. Any call may use
     * it, from any thread. It may be NULL. */
    void (*progress)(void *context, const char *what, int64_t done, int64_t total);
    /* A smaller model with the same tokenizer, on the same device: it drafts the next num_assistant_tokens tokens of a
     * single text, and `model` computes them in one pass. The text stays the same. Not with beams, device_map or
     * prompt_lookup_num_tokens. NULL for none. */
    const char *assistant_model;
    /* Type of the model's caches of keys and values: "q8_0" rounds them to 8 bits in blocks of 32, as llama.cpp does,
     * if heads have a multiple of 32 elements. NULL and "auto" store them in the type of activations. */
    const char *cache_type;
    /* Ranks that divide the weights and caches (tensor parallelism) and make the same calls, which give the same texts
     * on all of them. `device` may then list one for each rank of a host; NULL means the cpu for several. Only for
     * texts of decoders, without device_map, offload_params, load_in_4bit and assistant_model. NULL for one process. */
    tx_comm *ranks;
} tx_lm_options;

/* Sets an option of tx_lm.def by its name to a value as on txgen's command line: "threads" to "2". A text is not
 * copied. TX_NOT_FOUND if there is no such option (the message suggests the nearest one), TX_INVALID if it does not
 * accept the value. */
tx_status tx_lm_set(tx_lm_options *options, const char *name, const char *value);
/* The caller frees `*lm`. Only one thread at a time may use it. */
tx_status tx_lm_open(const tx_lm_options *options, tx_lm **lm);
void tx_lm_free(tx_lm *lm); /* NULL is fine */

int64_t tx_lm_vocab_size(const tx_lm *lm);
/* The largest number of tokens in a context. */
int64_t tx_lm_positions(const tx_lm *lm);
/* Returns true if an encoder reads prompts as sources (T5), so that texts do not continue them. */
bool tx_lm_has_source(const tx_lm *lm);
/* The device in words, "opencl:0: NAME", with the reason if TX chose it. "" with tx_lm_options.device_map, and on a
 * machine without a GPU. */
const char *tx_lm_device(const tx_lm *lm);
/* The devices and their numbers of blocks, in the format of tx_lm_options.device_map. "" before the first compilation
 * and on a single `device`. It lives as long as `lm`; a recompilation overwrites it. */
const char *tx_lm_device_map(const tx_lm *lm);
/* The model's generation settings: transformers' defaults, then generation_config.json, or else config.json. They live
 * as long as `lm`. */
const tx_generation *tx_lm_generation(const tx_lm *lm);
/* Returns true if one of these files of the model or its adapter has settings. */
bool tx_lm_has_generation(const tx_lm *lm);

/* Returns true if max_length of `how` limits prompt and new tokens together: it is set, max_new_tokens is not, and the
 * model has at least max_length positions. */
bool tx_lm_is_limited(const tx_lm *lm, const tx_generation *how);

/* The tokenizer in the folder of the adapter or the model, opened by the first call. It lives as long as `lm`. */
tx_status tx_lm_tokenizer(tx_lm *lm, const tx_tokenizer **tokenizer);
/* Encodes `size` bytes of text as model input: texts of special tokens become their ids, and the tokenizer's
 * post-processor adds its special tokens. `*count` may be 0. The caller frees `*ids` by free(). */
tx_status tx_lm_encode(tx_lm *lm, const char *text, size_t size, int32_t **ids, int64_t *count);

/* ---- Texts ---------------------------------------------------------------------------------------------- */

/* A prompt: ids, or a text if `ids` is NULL. An empty text is replaced by bos_token_id. */
typedef struct tx_lm_prompt {
    const char *text;
    size_t size; /* bytes of text; 0 means up to its NUL */
    const int32_t *ids;
    int64_t count; /* number of ids, at least 1 */
} tx_lm_prompt;

/* Receives the texts, one after the other in the order of their prompts; `index` is the prompt's. The first text of a
 * batch arrives token by token, the others after it. With beams a text arrives when its search ends. Any function may
 * be NULL. */
typedef struct tx_lm_listener {
    size_t size; /* sizeof(tx_lm_listener) */
    void *context;
    /* A text begins. The calls that follow report new tokens only, not the prompt. */
    void (*begin)(void *context, int64_t index);
    /* The text's next token. The last one may be one of eos_token_id. */
    void (*token)(void *context, int64_t index, int32_t id);
    /* The text's next bytes, split between UTF-8 characters if the tokens form such. Special tokens have no bytes. */
    void (*text)(void *context, int64_t index, const char *bytes, size_t size);
    void (*end)(void *context, int64_t index);
    /* Called for each new token. Return true to end all texts immediately. */
    bool (*stop)(void *context);
    /* The number of new tokens of all texts, and the seconds spent, without compiling and reading weights. */
    void (*done)(void *context, int64_t tokens, double seconds);
} tx_lm_listener;

/* Continues `count` prompts, in batches; an encoder with a decoder (T5) writes a text for each. The text of prompt i
 * depends only on the prompt, i and `how`; pass NULL to use tx_lm_generation. If `how` sets neither max_new_tokens nor
 * a max_length within the model's positions, all texts of a call get the same number of new tokens: the positions left
 * after the longest prompt. Without max_length that number is at most 200. Returns TX_OK also if the listener stopped
 * it. */
tx_status tx_lm_generate(tx_lm *lm, const tx_lm_prompt *prompts, int64_t count, const tx_generation *how,
                         const tx_lm_listener *listener);
/* Compiles and reads the weights now, for calls of tx_lm_generate with up to `batch` prompts at once that may fill all
 * positions, with the number of beams in `how`. Pass NULL to use tx_lm_generation. */
tx_status tx_lm_reserve(tx_lm *lm, int64_t batch, const tx_generation *how);

/* ---- Measures ------------------------------------------------------------------------------------------- */

/* The shape of the logits of `count` ids: [1, count, vocab_size], or [1, labels] for a classifier. */
tx_status tx_lm_logits_shape(const tx_lm *lm, int64_t count, tx_shape *shape);
/* The logits of `count` ids, at most the model's positions. A causal model scores the next token at each position, a
 * masked language model the token at the position, a classifier the labels of the whole text. */
tx_status tx_lm_logits(tx_lm *lm, const int32_t *ids, int64_t count, float *logits);
/* Writes the same logits to a safetensors file, as the tensor "logits". */
tx_status tx_lm_logits_save(tx_lm *lm, const int32_t *ids, int64_t count, const char *path);

/* Perplexity of a text longer than the model's positions uses overlapping windows: window i holds max_length tokens
 * from i * stride on. Each window scores the tokens that no earlier window held, except a token without context at the
 * window's start. Each scored token has equal weight. */
typedef struct tx_perplexity_options {
    size_t size;        /* sizeof(tx_perplexity_options) */
    int64_t max_length; /* tokens of a window; 0 means the model's positions */
    int64_t stride;     /* 1 to max_length; 0 means 512, or max_length if that is less */
    int64_t batch;      /* windows at once, 0 means 1; it does not change the result */
} tx_perplexity_options;

typedef struct tx_perplexity_result {
    double loss, perplexity;    /* mean negative log-likelihood, and exp of it */
    int64_t windows, tokens;    /* `tokens` is the divisor of the mean */
    int64_t max_length, stride; /* the values used */
} tx_perplexity_result;

/* Computes the perplexity of `count` ids, at least 2. `options` may be NULL. */
tx_status tx_lm_perplexity(tx_lm *lm, const int32_t *ids, int64_t count, const tx_perplexity_options *options,
                           tx_perplexity_result *result);

/* The difference of a model's predictions from those of a reference, as means over the tokens of a text. */
typedef struct tx_divergence {
    double divergence;           /* Kullback-Leibler divergence of the model from the reference, in nats */
    double same;                 /* fraction of tokens for which both have the same most likely token */
    double loss, reference_loss; /* negative log-likelihoods */
    int64_t windows, tokens;     /* `tokens` is the divisor of the means */
    int64_t max_length;          /* the value used */
} tx_divergence;

/* Compares two models of one vocabulary on `count` ids, at least 2, in windows of `max_length` tokens that follow each
 * other (0 means 512, or the models' positions if they are fewer). The first token of a window is not scored.
 * TX_INVALID if the vocabularies differ in size. */
tx_status tx_lm_divergence(tx_lm *lm, tx_lm *reference, const int32_t *ids, int64_t count, int64_t max_length,
                           tx_divergence *result);

/* The costs of the last compilation: memory that the plans need, of it caches of keys and values, the weights' bytes in
 * memory, and the seconds that reading them took. `drafted` tokens were drafted since, and `accepted` of them are part
 * of texts. */
typedef struct tx_lm_usage {
    int64_t memory, caches, weights, assistant_memory;
    double seconds;
    int64_t drafted, accepted;
} tx_lm_usage;

/* All zero if nothing is compiled. */
tx_status tx_lm_measure(const tx_lm *lm, tx_lm_usage *usage);

/* Writes the model as a folder, with its adapter merged into its weights: configuration, weights in the type that
 * tx_lm_options.dtype chose, and tokenizer and generation_config.json if the model has them. */
tx_status tx_lm_save(tx_lm *lm, const char *folder);

TX_API_END

#endif
