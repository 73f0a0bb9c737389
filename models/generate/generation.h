/* SPDX-License-Identifier: Apache-2.0
 *
 * How to generate: names, meanings and defaults as in transformers' GenerationConfig. */
#ifndef TX_GENERATE_GENERATION_H
#define TX_GENERATE_GENERATION_H

#include "models/report.h"
#include "tx.h"

#define TX_GENERATION_EOS 8

/* When beam search of a prompt ends: where no open beam is likely to beat the finished ones; as soon as there are
 * num_beams finished ones; only where none can. */
typedef enum tx_early_stopping { TX_EARLY_FALSE, TX_EARLY_TRUE, TX_EARLY_NEVER } tx_early_stopping;

typedef struct tx_generation {
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
} tx_generation;

/* transformers' defaults; eos_token_id is that of the model (-1: none). */
tx_generation tx_generation_defaults(int64_t eos_token_id);
/* Overwrites what generation_config.json of the folder says, if there is one: the fields above, but for seed, by their
 * names. Keys that would change the text in a way that TX does not have are reported; others (pad_token_id, use_cache
 * ...) are left alone. */
tx_status tx_generation_read(const char *folder, tx_generation *generation, const tx_reporter *reporter);
/* New tokens behind a prompt of so many; below 1 where max_length has no room for any, or nothing is said. */
int64_t tx_generation_limit(const tx_generation *generation, int64_t prompt);
/* Refuses what does not go together; names the field. */
tx_status tx_generation_check(const tx_generation *generation);
bool tx_generation_ends(const tx_generation *generation, int32_t id);

#endif
