/* SPDX-License-Identifier: Apache-2.0
 *
 * Inference with a GPT-2: logits of a sequence, and generation of texts, several at once. Both are created before the
 * weights are loaded, since building the graphs declares the parameters, and freed before the model. */
#ifndef TX_GENERATE_GENERATE_H
#define TX_GENERATE_GENERATE_H

#include "models/generate/decode.h"
#include "models/report.h"
#include "models/tx_generate.h"

/* ---- Logits of a sequence ------------------------------------------------------------------------ */

typedef struct tx_forward tx_forward;

/* Compiles the forward pass over one sequence of `count` tokens. */
tx_status tx_forward_create(tx_model *model, const tx_config *config, int64_t count, tx_forward **forward);
void tx_forward_free(tx_forward *forward);
/* logits [count, vocab_size], without padding, or as tx_lm_logits_shape says. Ids outside the vocabulary are refused.
 */
tx_status tx_forward_run(tx_forward *forward, const int32_t *ids, float *logits);

/* ---- Perplexity ------------------------------------------------------------------------------------ */

/* Perplexity over overlapping windows: window i holds max_length tokens from i * stride on. Each token is scored once,
 * in the first window that holds it after another token, and all scored tokens have equal weight. The perplexity is exp
 * of their mean loss. (Hugging Face's guide "Perplexity of fixed-length models" weights a window by one token too few.)
 */
typedef struct tx_perplexity tx_perplexity;

/* Create it before the weights are loaded, free it before the model. */
tx_status tx_perplexity_create(tx_model *model, const tx_config *config, const tx_perplexity_options *options,
                               tx_perplexity **perplexity);
void tx_perplexity_free(tx_perplexity *perplexity);
/* Of `count` ids, at least 2. */
tx_status tx_perplexity_run(tx_perplexity *perplexity, const int32_t *ids, int64_t count, tx_perplexity_result *result);

/* ---- Generation ------------------------------------------------------------------------------------ */

typedef struct tx_generator tx_generator;

typedef struct tx_generator_options {
    size_t size;     /* sizeof(tx_generator_options) */
    int64_t batch;   /* prompts at once */
    int64_t beams;   /* num_beams of the runs */
    int64_t prompt;  /* usual length of a prompt */
    int64_t context; /* most tokens of a prompt and its text, at most the model's positions */
    bool keep;       /* of one prompt at a time, without beams: see tx_lm_options.keep_cache */
} tx_generator_options;

tx_status tx_generator_create(tx_model *model, const tx_config *config, const tx_generator_options *options,
                              tx_generator **generator);
void tx_generator_free(tx_generator *generator);

/* Who takes the texts, and may end them. */
typedef struct tx_sink {
    /* Takes the next token of text `row`; the last may be one of eos_token_id. False ends that text. Tokens of beams
     * come when the best is known, those of a batch step by step. */
    bool (*emit)(void *context, int64_t row, int32_t id);
    /* Whether a text ends with the last of ids[0..count-1], prompt and new tokens. NULL: no text does. */
    bool (*ends)(void *context, const int32_t *ids, int64_t count);
    void *context;
} tx_sink;

/* Continues `count` prompts, 1 to batch of them, by at most tx_generation_limit each. `first` numbers the first text:
 * draws depend on it, so that a text is the same in whatever batch. */
tx_status tx_generator_run(tx_generator *generator, const tx_prompt *prompts, int64_t count, uint64_t first,
                           const tx_generation *how, const tx_sink *sink);

/* ---- How to generate (generation.c) ------------------------------------------------------------------ */

/* transformers' defaults; eos_token_id is that of the model (-1: none). */
tx_generation tx_generation_defaults(int64_t eos_token_id);
/* The same with all ids in config.json's eos_token_id, which may be a list. */
tx_status tx_generation_of_config(const tx_config *config, tx_generation *generation);
/* Overwrites what generation_config.json of the folder says, if there is one, by the names of the fields; seed and
 * stop_strings are the caller's. Keys that would change the text in a way that TX does not have are reported; others
 * (pad_token_id, use_cache
 * ...) are left alone. */
tx_status tx_generation_read(const char *folder, tx_generation *generation, const tx_reporter *reporter);
/* New tokens behind a prompt of so many; below 1 where max_length has no room for any, or nothing is said. */
int64_t tx_generation_limit(const tx_generation *generation, int64_t prompt);
bool tx_generation_ends(const tx_generation *generation, int32_t id);

#endif
