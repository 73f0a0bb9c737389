/* SPDX-License-Identifier: Apache-2.0
 *
 * Inference: logits of a sequence, perplexity, and generation of several texts at once. Create these objects before the
 * weights are loaded, because building the graphs declares the parameters. Free them before the model. */
#ifndef TX_GENERATE_GENERATE_H
#define TX_GENERATE_GENERATE_H

#include "models/generate/slots.h"
#include "models/report.h"
#include "models/tx_generate.h"

/* ---- Logits of a sequence ------------------------------------------------------------------------ */

typedef struct tx_forward tx_forward;

/* Compiles the forward pass over one sequence of `count` tokens. */
tx_status tx_forward_create(tx_model *model, const tx_config *config, int64_t count, tx_forward **forward);
void tx_forward_free(tx_forward *forward);
/* Computes logits [count, vocab_size] without padding, or of the shape in tx_lm_logits_shape. Ids are checked. */
tx_status tx_forward_run(tx_forward *forward, const int32_t *ids, float *logits);

/* ---- Perplexity ------------------------------------------------------------------------------------ */

/* Perplexity over overlapping windows: window i holds max_length tokens from i * stride on. Each token is scored once,
 * in the first window that holds it after another token, and all scored tokens have equal weight. The perplexity is exp
 * of their mean loss. (Hugging Face's guide "Perplexity of fixed-length models" weights a window by one token too few.)
 */
typedef struct tx_perplexity tx_perplexity;

/* Create it before the weights are loaded, and free it before the model. */
tx_status tx_perplexity_create(tx_model *model, const tx_config *config, const tx_perplexity_options *options,
                               tx_perplexity **perplexity);
void tx_perplexity_free(tx_perplexity *perplexity);
/* Computes the perplexity of `count` ids, at least 2. */
tx_status tx_perplexity_run(tx_perplexity *perplexity, const int32_t *ids, int64_t count, tx_perplexity_result *result);

/* ---- Generation ------------------------------------------------------------------------------------ */

typedef struct tx_generator tx_generator;

typedef struct tx_generator_options {
    size_t size;          /* sizeof(tx_generator_options) */
    int64_t batch;        /* prompts at once */
    int64_t beams;        /* num_beams of the runs */
    int64_t prompt;       /* usual length of a prompt; 0 as in tx_slots_options */
    int64_t context;      /* maximum tokens of a prompt and its text, at most the model's positions */
    bool keep;            /* see tx_lm_options.keep_cache; only for one prompt without beams */
    int64_t draft_tokens; /* the largest prompt_lookup_num_tokens or, with a draft, num_assistant_tokens of the runs */
    tx_slots *draft;      /* a slot of a smaller model that drafts tokens, used until the generator is freed; or NULL */
    bool q8_0;            /* see tx_slots_options */
    /* Ranks that shard the weights (ZeRO stage 3) and call tx_generator_run together, with equal numbers of prompts for
     * an encoder, at most `batch`. They compute each step together, until the texts of all have ended. NULL for one
     * rank.
     */
    tx_comm *comm;
    tx_dtype autocast; /* see tx_slots_options */
    tx_comm *ranks;    /* see tx_slots_options */
    bool copies;       /* compute a prompt once for all texts of a run that follow each other with the same one */
} tx_generator_options;

tx_status tx_generator_create(tx_model *model, const tx_config *config, const tx_generator_options *options,
                              tx_generator **generator);
void tx_generator_free(tx_generator *generator);

/* The same as tx_slots_prove: afterwards no text depends on how many others are generated. For generators without a
 * usual length of prompts. */
tx_status tx_generator_prove(tx_generator *generator);

/* Receives the texts, and may end them. */
typedef struct tx_sink {
    /* Receives the next token of text `row`; the last one may be one of eos_token_id. Return false to end the text. The
     * tokens of texts arrive step by step, those of beams when the best text is known. */
    bool (*emit)(void *context, int64_t row, int32_t id);
    /* Returns true if a text ends with the last of ids[0..count-1], prompt and new tokens. NULL means never. */
    bool (*ends)(void *context, const int32_t *ids, int64_t count);
    /* Called once for each text that has begun, at its end. Return false to end all texts. NULL means nothing. */
    bool (*end)(void *context, int64_t row);
    void *context;
} tx_sink;

/* Continues `count` prompts by at most tx_generation_limit tokens each, as many at once as the generator has room for.
 * `first` is the number of the first text. Random numbers depend on it, so a text does not depend on its batch. */
tx_status tx_generator_run(tx_generator *generator, const tx_prompt *prompts, int64_t count, uint64_t first,
                           const tx_generation *how, const tx_sink *sink);

/* The numbers of draft tokens and of those that became part of a text. */
void tx_generator_draft_tokens(const tx_generator *generator, int64_t *drafted, int64_t *accepted);

/* ---- Settings and ids (generation.c, generation_file.c) ---------------------------------------------- */

/* transformers' defaults; eos_token_id is the model's, or -1. */
tx_generation tx_generation_defaults(int64_t eos_token_id);
/* Those of a model: the same with all ids of config.json's eos_token_id, then the settings in the folder's
 * generation_config.json or, if it has none or `folder` is NULL, in config.json. Warns of each value that TX does not
 * follow: the default then holds. Values that contradict each other are left to tx_generation_check, because the caller
 * may override them. Sets has_settings, unless it is NULL, to whether the model has settings of its own. */
tx_status tx_generation_read(const tx_config *config, const char *folder, const tx_reporter *reporter,
                             tx_generation *generation, bool *has_settings);
/* Whether generation_config.json may have a setting of tx_generation.def. */
bool tx_generation_in_file(const char *name);
/* Stores the value of such a setting. If it is invalid, the setting stays as it is. */
tx_status tx_generation_read_member(tx_generation *generation, const char *name, const tx_json *value);
/* Number of new tokens after a prompt of this length. It is below 1 if max_length leaves no room, or if nothing is set.
 */
int64_t tx_generation_limit(const tx_generation *generation, int64_t prompt);
/* Number of new tokens before which a text after a prompt of this length may not end. It may be below 0. */
int64_t tx_generation_least(const tx_generation *generation, int64_t prompt);
/* Fails if an id of a prompt or a text is outside the vocabulary. */
tx_status tx_check_ids(const int32_t *ids, int64_t count, int64_t vocab);

#endif
