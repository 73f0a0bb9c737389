/* SPDX-License-Identifier: Apache-2.0
 *
 * Generation of text: what txgen does, for a program that links the library.
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
 *     tx_status status = tx_lm_open(&options, &lm);
 *     if (!status)
 *         status = tx_lm_generate(lm, &prompt, 1, NULL, &listener);
 *     if (status)
 *         fprintf(stderr, "%s\n", tx_error());
 *     tx_lm_free(lm);
 */
#ifndef TX_GENERATE_H
#define TX_GENERATE_H

#include "tx_text.h"

TX_API_BEGIN

/* ---- How to generate ------------------------------------------------------------------------------------ */

/* When beam search of a prompt ends: where no open beam is likely to beat the finished ones; as soon as there are
 * num_beams finished ones; only where none can. */
typedef enum tx_early_stopping { TX_EARLY_FALSE, TX_EARLY_TRUE, TX_EARLY_NEVER } tx_early_stopping;

#define TX_GENERATION_EOS 32

/* Names, meanings and defaults as in transformers' GenerationConfig. Begin with a copy of tx_lm_generation's. */
typedef struct tx_generation {
    size_t size;               /* sizeof(tx_generation) */
    int64_t max_new_tokens;    /* -1: not said */
    int64_t max_length;        /* of prompt and new tokens, where max_new_tokens is not said; -1: not said either */
    int64_t min_new_tokens;    /* no end of text before */
    bool do_sample;            /* draw; else the likeliest token */
    double temperature;        /* scores are divided by it; 0: the likeliest token */
    int64_t top_k;             /* draw among the k likeliest, and those that equal the k-th; 0: among all */
    double top_p;              /* and among the fewest whose probabilities reach p */
    double repetition_penalty; /* of tokens that are there already (Keskar et al., CTRL, 2019) */
    int64_t num_beams;
    double length_penalty; /* beams: sums of log-probabilities are divided by length to this power */
    tx_early_stopping early_stopping;
    uint64_t seed;                           /* the same seed, prompt and options give the same text */
    int32_t eos_token_id[TX_GENERATION_EOS]; /* ids that end a text */
    int32_t eos_count;
    const char *const *stop_strings; /* a text ends with the token that completes one; none is empty */
    int32_t stop_count;
} tx_generation;

/* Refuses what does not go together; names the field. */
tx_status tx_generation_check(const tx_generation *generation);

/* ---- A language model ----------------------------------------------------------------------------------- */

/* A model folder on a device: configuration, weights, tokenizer, generation_config.json. Weights are read by the first
 * call that computes, the tokenizer by the first one that has to do with text, so that ids need none. A call that needs
 * larger caches than those before (more texts at once, longer ones, another number of beams) compiles anew and reads
 * the weights again: see tx_lm_reserve. */
typedef struct tx_lm tx_lm;

typedef struct tx_lm_options {
    size_t size;        /* sizeof(tx_lm_options) */
    const char *model;  /* a folder, a GGUF file, or a name to look up, as txgen's --model */
    const char *device; /* as txgen's --device; NULL: "cpu" */
    int32_t threads;    /* of the cpu backend; 0: all that this process may use */
    int64_t batch_size; /* prompts at once; 0: 8. The texts are the same whatever it is */
    /* What weights and caches are kept and products made in: "float32", "bfloat16", "float16", or "auto", the type that
     * config.json names, float32 where it names none; NULL: float32. */
    const char *dtype;
    /* What the user should know and is no failure; may be NULL. tx_lm_open alone calls it. */
    void (*warn)(void *context, const char *message);
    void *context;
    const char *adapter; /* a folder of peft's whose adapter is added to the weights; NULL: none, or the one that
                          * `model` holds. `model` NULL: the adapter names it */
    /* The matrices of the blocks are kept in 4 bits (NF4), and their scales in 8. Without adapter. */
    bool load_in_4bit, double_quant;
    /* For conversations: of a prompt what it has in common with the beginning of the prompt and text before is not
     * computed again, where calls have one prompt each and no beams. Scores are then those of the whole but for
     * rounding, which depends on how a text came to be. */
    bool keep_cache;
    /* The blocks of the model divided among devices, as txgen's --device_map; in place of `device`. NULL: on that one
     */
    const char *device_map;
    /* Weights lie in the host's memory, or in a file in a folder: see tx_model_offload_params. Not with device_map */
    tx_offload_place offload_params;
    const char *offload_folder;
    /* As tx_reporter's, with the same `context`: kernels that are compiled, weights that are read. Any call may call
     * it, from any thread. It may be NULL. */
    void (*progress)(void *context, const char *what, int64_t done, int64_t total);
} tx_lm_options;

/* The caller frees it. It belongs to one thread at a time. */
tx_status tx_lm_open(const tx_lm_options *options, tx_lm **lm);
void tx_lm_free(tx_lm *lm); /* NULL is fine */

int64_t tx_lm_vocab_size(const tx_lm *lm);
/* Tokens that it can see at once. */
int64_t tx_lm_positions(const tx_lm *lm);
/* The devices that have blocks of the model and how many, as tx_lm_options.device_map names them, once something is
 * compiled; else, and on one device by `device`, "". Lives as long as `lm`; compiling anew writes it anew. */
const char *tx_lm_device_map(const tx_lm *lm);
/* How its folder says to generate: transformers' defaults, then generation_config.json. Lives as long as `lm`. */
const tx_generation *tx_lm_generation(const tx_lm *lm);

/* Whether max_length of `how` limits prompt and new tokens together: it is said, max_new_tokens is not, and the model
 * has positions for so many. */
bool tx_lm_is_limited(const tx_lm *lm, const tx_generation *how);

/* The tokenizer in the folder of the adapter or the model, opened by the first call. It lives as long as `lm`. */
tx_status tx_lm_tokenizer(tx_lm *lm, const tx_tokenizer **tokenizer);
/* The ids of `size` bytes of text as the model is given them: the texts of special tokens become their ids, and what
 * the tokenizer's post-processor adds is around them. `*count` may be 0. The caller frees `*ids` by free(). */
tx_status tx_lm_encode(tx_lm *lm, const char *text, size_t size, int32_t **ids, int64_t *count);

/* ---- Texts ---------------------------------------------------------------------------------------------- */

/* What is to be continued: ids, or a text where `ids` is NULL. An empty text begins with bos_token_id. */
typedef struct tx_lm_prompt {
    const char *text;
    size_t size; /* bytes of text; 0: up to its NUL */
    const int32_t *ids;
    int64_t count; /* of ids, at least 1 */
} tx_lm_prompt;

/* Who takes the texts, one after the other in the order of their prompts (`index` is the prompt's): the first of a
 * batch as it grows, the others behind it; with beams when the likeliest is known. Any function may be NULL. */
typedef struct tx_lm_listener {
    size_t size; /* sizeof(tx_lm_listener) */
    void *context;
    /* A text begins; what follows is new, without the prompt. */
    void (*begin)(void *context, int64_t index);
    /* Its next token; the last may be one of eos_token_id. */
    void (*token)(void *context, int64_t index, int32_t id);
    /* Its next bytes, whole UTF-8 characters wherever the tokens make up such; special tokens have none. */
    void (*text)(void *context, int64_t index, const char *bytes, size_t size);
    void (*end)(void *context, int64_t index);
    /* Asked for each new token: true ends all texts where they are. */
    bool (*stop)(void *context);
    /* New tokens of all texts, and the seconds that these took, compiling and reading weights left out. */
    void (*done)(void *context, int64_t tokens, double seconds);
} tx_lm_listener;

/* Continues `count` prompts, in batches; the text of prompt i depends on it, on i and on `how` (NULL: tx_lm_generation)
 * alone, but for its length where `how` says neither max_new_tokens nor a max_length that the model has positions for:
 * then all get 200 new tokens, with max_length as many as there are positions behind the longest prompt, and never more
 * than these. TX_OK also where the listener stopped it. */
tx_status tx_lm_generate(tx_lm *lm, const tx_lm_prompt *prompts, int64_t count, const tx_generation *how,
                         const tx_lm_listener *listener);
/* Compiles and reads the weights now, for calls of tx_lm_generate with up to `batch` prompts at once that may fill all
 * positions, with the beams of `how` (NULL: tx_lm_generation). */
tx_status tx_lm_reserve(tx_lm *lm, int64_t batch, const tx_generation *how);

/* ---- Measures ------------------------------------------------------------------------------------------- */

/* The shape of the scores of `count` ids: [1, count, vocab_size], or [1, labels] of a classifier. */
tx_status tx_lm_logits_shape(const tx_lm *lm, int64_t count, tx_shape *shape);
/* The scores of what follows each of `count` ids, at most the model's positions; of a masked language model those of
 * what stands there, of a classifier those of the labels of the whole text. */
tx_status tx_lm_logits(tx_lm *lm, const int32_t *ids, int64_t count, float *logits);
/* The same into a safetensors file, as the tensor "logits". */
tx_status tx_lm_logits_save(tx_lm *lm, const int32_t *ids, int64_t count, const char *path);

/* Perplexity of a text longer than the model's positions uses overlapping windows: window i holds max_length tokens
 * from i * stride on. Each window scores the tokens that no earlier window held, except a token without context at the
 * window's start. Each scored token has equal weight. */
typedef struct tx_perplexity_options {
    size_t size;        /* sizeof(tx_perplexity_options) */
    int64_t max_length; /* of a window; 0: the model's positions */
    int64_t stride;     /* 1 to max_length; 0: 512, or max_length where that is less */
    int64_t batch;      /* windows at once, 0: 1; the result is the same */
} tx_perplexity_options;

typedef struct tx_perplexity_result {
    double loss, perplexity;    /* mean negative log-likelihood, and exp of it */
    int64_t windows, tokens;    /* tokens: the divisor */
    int64_t max_length, stride; /* of the windows, as taken */
} tx_perplexity_result;

/* Of `count` ids, at least 2. `options` may be NULL. */
tx_status tx_lm_perplexity(tx_lm *lm, const int32_t *ids, int64_t count, const tx_perplexity_options *options,
                           tx_perplexity_result *result);

/* Writes the model, with its adapter in its weights, as a folder: configuration, weights of the type that was asked
 * for, tokenizer and generation_config.json where there are such. */
tx_status tx_lm_save(tx_lm *lm, const char *folder);

TX_API_END

#endif
