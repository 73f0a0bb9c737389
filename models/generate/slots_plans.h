/* SPDX-License-Identifier: Apache-2.0
 *
 * The struct of slots and their plans, shared by slots.c, slots_plans.c and slots_run.c. */
#ifndef TX_GENERATE_SLOTS_PLANS_H
#define TX_GENERATE_SLOTS_PLANS_H

#include "models/generate/source.h"

#define TX_SLOTS_PASSES 32
/* A plan for `length` tokens of each of `rows` slots. It returns `outputs` rows of logits. */
typedef struct tx_slots_pass {
    tx_graph *graph;
    tx_tensor *tokens, *positions, *slots, *spans, *sources, *rates, *chosen, *logits;
    tx_tensor *mask[TX_MAX_SECTIONS]; /* see tx_lora_bank_inputs */
    tx_plan *plan;
    int64_t rows, length, outputs;
} tx_slots_pass;

/* The first plan of each kind is the smallest. */
typedef struct tx_slots_passes {
    tx_slots_pass pass[TX_SLOTS_PASSES];
    int32_t count;
    int64_t padding; /* the most tokens that a piece of a prompt may lack of a plan's length */
} tx_slots_passes;

/* Copies caches or states of recurrent layers from slot to slot. Without `plan` slots are not copied. */
typedef struct tx_slots_copier {
    tx_graph *graph;
    tx_tensor *sources, *positions; /* of caches: [count] */
    tx_tensor *states;              /* sources of states: [count + spare] */
    tx_plan *plan;
} tx_slots_copier;

struct tx_slots {
    tx_slots_passes prefill, decode, score, start; /* at most one plan in `score` and `start` */
    tx_slots_copier copier, keeper;                /* keeper: only of states, for tx_slots_mark */
    tx_source *source;                             /* of an encoder; or NULL */
    int64_t count, context, vocab, padded, beams;  /* padded: vocabulary in memory */
    tx_comm *ranks;                                /* that divide the model; or NULL */
    bool varied, q8_0, recurs; /* recurs: a slot has states, which only continue after its last token */
    bool keeps;                /* the states after the last of the longest pieces of each slot */
    int64_t spare, marked;     /* more rows of states: if `keeps` one a slot, or one for tx_slots_mark, whose tokens */
    int32_t *marked_ids;       /* are these */
    int32_t *kept;             /* of each slot: tokens of the states that it keeps; 0 without */
    tx_dtype autocast;
    const tx_config *config;
    tx_model *model;
    int32_t *filled; /* of each slot: number of tokens in its cache */
    int32_t *held;   /* [count, context]: these tokens, and */
    int32_t *piece;  /* [count, context]: the length of the piece of a prompt that began there, or 0 */
    /* Rotary frequencies that depend on the length (tx_architecture.rates): their number or 0, those of each slot,
     * those of a plan's rows, and whether the keys in a slot have different ones. */
    int64_t pairs;
    float *rates, *row_rates;
    bool *mixed;
    int64_t *adapter;                            /* of each slot: that of its cache, or 0; */
    int32_t *place, *row_places;                 /* its place in the configuration's bank, or -1; those of rows */
    float *masks;                                /* of a plan's tokens */
    int32_t *new;                                /* scratch of a step: the token of each slot, or below 0 */
    int32_t *tokens, *positions, *rows, *chosen; /* inputs */
    int32_t *counts, *spans;                     /* of a plan's rows: tokens without padding; input spans */
    int32_t *states;                             /* inputs of copiers: sources of states */
    float *logits, *read;                        /* [count, padded]; output of a plan */
    int32_t *message;                            /* [message_size]: between ranks, once rank 0 leads; or NULL */
    int64_t message_size;
    struct tx_watchdog *watch; /* that learns of messages; or NULL */
};

/* The longest plan that `left` tokens of a prompt fill, perhaps with padding, or else the shortest. */
const tx_slots_pass *tx_slots_pass_for(const tx_slots_passes *of, int64_t left);
/* Remembers the tokens of a slot (slots_held.c). */
void tx_slots_hold(tx_slots *slots, int64_t slot, const int32_t *ids, int64_t count);
/* Marks the tokens at..end-1 as a piece of `length`, or as none: with `length` 0, or if padding follows, whose place
 * tokens of decode plans may take. A piece that starts before `first` changes parts of earlier ones. */
void tx_slots_mark_piece(tx_slots *slots, int64_t slot, int64_t first, int64_t at, int64_t end, int64_t length);
/* Keeps the states of row `from`, those after `count` tokens, so that a prompt can begin with them. */
tx_status tx_slots_keep_states(tx_slots *slots, int64_t from, int64_t slot, int64_t count);
void tx_slots_pass_free(const tx_slots_pass *pass);
/* Runs a plan on the inputs in the struct. `sources` is that of tx_slots_step (slots_run.c). */
tx_status tx_slots_run(tx_slots *slots, const tx_slots_pass *pass, const int32_t *sources);
/* Runs a copier: slot rows[i] is copied to slot i up to positions[i], and states[i] to the states of row i, for all of
 * them (slots_run.c). */
tx_status tx_slots_run_copies(tx_slots *slots, const tx_slots_copier *copier);

#endif
