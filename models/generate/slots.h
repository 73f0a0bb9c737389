/* SPDX-License-Identifier: Apache-2.0
 *
 * The plans of generation: KV caches with a slot for each sequence, prefill plans that compute a piece of a prompt, and
 * decode plans that compute one token for each of some slots. */
#ifndef TX_GENERATE_SLOTS_H
#define TX_GENERATE_SLOTS_H

#include "models/arch/arch.h"

/* Ids of one sequence. */
typedef struct tx_prompt {
    const int32_t *ids;
    int64_t count;
} tx_prompt;

typedef struct tx_slots_options {
    int64_t count;        /* slots */
    int64_t context;      /* tokens of a slot */
    int64_t prompt;       /* usual length of a prompt; 0 if it varies and all logits of prompts may be needed */
    int64_t beams;        /* slots of a prompt; if there are several, each may continue another's cache */
    int64_t draft_tokens; /* more tokens that tx_slots_prefill computes for `all`; for tx_slots_mark at least 1 */
    bool q8_0;            /* caches in blocks of Q8_0, not in the type of activations */
    tx_dtype autocast;    /* type of products (tx_graph_autocast); an adapter decides it itself */
    tx_comm *ranks;       /* the tensor-parallel group that divides the model, or NULL */
    bool copies;          /* tx_slots_copy works; not for an encoder with a decoder */
    /* Without `prompt`: decode plans for 1, 2, 4, 8 .. slots, and not only 1, 4, 16 .., and pieces of prompts with
     * little padding. Equal on all ranks, whose devices may differ. */
    bool dense;
} tx_slots_options;

typedef struct tx_slots tx_slots;
struct tx_watchdog;
struct tx_adapter;

/* Building the graphs declares the parameters, so create slots before the weights are loaded, and free them before the
 * model. If an encoder reads prompts (T5), a computed prompt is the source of all slots of its beams, whose text begins
 * with one token. Such slots need options.prompt. */
tx_status tx_slots_create(tx_model *model, const tx_config *config, const tx_slots_options *options, tx_slots **slots);
void tx_slots_free(tx_slots *slots);
/* Finds the decode plans whose logits equal those of the smallest plan to the bit, and keeps only them, so a sequence
 * gets the same logits whatever the other slots do. If none of them has 8 rows, it keeps those that equal the largest,
 * unless the rows of the largest differ from each other. Call it once, after the weights are loaded. All slots then use
 * the first place of the configuration's bank, if it has one (tx_lora_bank_fill). */
tx_status tx_slots_prove(tx_slots *slots);

/* Computes the prompts of the slots 0..count-1 at once, while all others are empty. With options.prompt only. */
tx_status tx_slots_start(tx_slots *slots, const tx_prompt *prompts, int64_t count);
/* Computes the next piece of a prompt into a slot, from ids[first] on, and adds the piece's length to `*first`. The
 * slot's logits are valid when `*first` reaches count. `all` receives the logits of the piece's tokens, row by row with
 * *stride elements, until the next call; pass NULL if only the last are needed, or with options.prompt. */
tx_status tx_slots_prefill(tx_slots *slots, int64_t slot, const int32_t *ids, int64_t count, int64_t *first,
                           const float **all, int64_t *stride);
/* Appends tokens[i] to slots[i], `count` different slots with computed prompts. Other slots that have a prompt keep it.
 * With `sources` [all slots], only for beams, each slot i first continues the sequence of slot sources[i]. */
tx_status tx_slots_step(tx_slots *slots, const int32_t *slot, const int32_t *tokens, int64_t count,
                        const int32_t *sources);
/* Sets the adapter of a slot (bank.h), 0 for none. If it is another than that of the slot's cache, the cache is
 * emptied. TX_NOT_FOUND if the configuration's bank does not have it. */
tx_status tx_slots_adapt(tx_slots *slots, int64_t slot, int64_t adapter);
/* Length of the longest prefix that a prompt with this adapter (0 for none) shares with the tokens in a slot's cache,
 * without the prompt's last token, because its logits are needed. */
int64_t tx_slots_same(const tx_slots *slots, int64_t slot, int64_t adapter, const int32_t *ids, int64_t count);
/* The part of it that tx_slots_keep can keep: with recurrent layers none unless the prompt continues all of the tokens,
 * because states cannot go back. */
int64_t tx_slots_shared(const tx_slots *slots, int64_t slot, int64_t adapter, const int32_t *ids, int64_t count);
/* The part of it that the slot computed in the same pieces as this prompt would be, so that the bits are the same. With
 * recurrent layers all of the longest pieces or none. 0 with frequencies that depend on the length. */
int64_t tx_slots_begun(const tx_slots *slots, int64_t slot, int64_t adapter, const int32_t *ids, int64_t count);
/* Begins a slot with the first `count` tokens of slot `from`, as many as tx_slots_begun returned, which may be the same
 * slot. Another one only with options.copies. */
tx_status tx_slots_begin(tx_slots *slots, int64_t from, int64_t count, int64_t to);
/* Whether a slot has the caches of exactly this prompt with this adapter, maybe followed by other tokens. It does not
 * if later tokens changed them: states of recurrent layers, and keys whose frequencies depend on the length. */
bool tx_slots_holds(const tx_slots *slots, int64_t slot, int64_t adapter, const int32_t *ids, int64_t count);
/* Copies the first `count` tokens of slot `from`, which holds them, to `copies` other slots, with the same bits as if
 * these had computed them, and its adapter. Their logits are not set. Only with options.copies. */
tx_status tx_slots_copy(tx_slots *slots, int64_t from, int64_t count, const int32_t *to, int64_t copies);
/* Keeps the first `count` tokens of a slot, and forgets the others. With recurrent layers `count` is 0 or all. */
void tx_slots_keep(tx_slots *slots, int64_t slot, int64_t count);
/* The most tokens from position `first` on that tx_slots_prefill computes at once for `all`. */
int64_t tx_slots_scored(const tx_slots *slots, int64_t first);
/* Stores the states of the recurrent layers of a slot. They replace those of an earlier call. Without
 * options.draft_tokens it does nothing. */
tx_status tx_slots_mark(tx_slots *slots, int64_t slot);
/* Keeps the first `*count` tokens of a slot. With recurrent layers, if it has more, it keeps those of tx_slots_mark, or
 * none, and sets `*count` to their number; the caller computes the others again. */
tx_status tx_slots_go_back(tx_slots *slots, int64_t slot, int64_t *count);
/* Checks that the ranks divide the columns of `*logits`, and makes it a tensor that may be an output: this rank's
 * columns (ranks.c). */
tx_status tx_slots_divide(const tx_config *config, tx_tensor **logits);
/* Reads them, `rows` rows, and gathers those of all ranks into rows of `padded`, of which the first `vocab` are set. */
tx_status tx_slots_gather(tx_comm *ranks, tx_plan *plan, tx_tensor *logits, int64_t rows, int64_t vocab, int64_t padded,
                          float *to);
/* From now on rank 0 leads: its runs broadcast their inputs, and the other ranks compute them in tx_slots_follow. All
 * ranks call it, after tx_slots_prove. `watch` learns of each run (slots_run.c). */
tx_status tx_slots_lead(tx_slots *slots, struct tx_watchdog *watch);
/* Writes an adapter to a free place of the configuration's bank, on all ranks. TX_INVALID if it does not fit. */
tx_status tx_slots_load(tx_slots *slots, int64_t place, const struct tx_adapter *adapter);
/* Computes the runs of rank 0 until it calls tx_slots_dismiss. */
tx_status tx_slots_follow(tx_slots *slots);
/* Rank 0 shows the ranks that follow that it waits for requests. Without them, this and the next one do nothing.
 */
tx_status tx_slots_idle(tx_slots *slots);
tx_status tx_slots_dismiss(tx_slots *slots);
/* Logits [vocab_size] for the token after the last one of a slot. They live until the slot's next token. */
const float *tx_slots_logits(const tx_slots *slots, int64_t slot);
int64_t tx_slots_vocab(const tx_slots *slots);
/* Tokens of a slot. */
int64_t tx_slots_context(const tx_slots *slots);

#endif
