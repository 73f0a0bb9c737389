/* SPDX-License-Identifier: Apache-2.0
 * Rotary positions as config.json describes them. */
#ifndef TX_MODELS_ROPE_H
#define TX_MODELS_ROPE_H

#include "tx.h"
#include "tx_json.h"

/* "rope_type" of "rope_parameters", or of "rope_scaling" as older files call it. */
typedef enum tx_rope_type {
    TX_ROPE_DEFAULT,
    TX_ROPE_LINEAR,
    TX_ROPE_DYNAMIC,
    TX_ROPE_LLAMA3,
    TX_ROPE_YARN,
    TX_ROPE_LONGROPE,
    TX_ROPE_PROPORTIONAL
} tx_rope_type;

typedef struct tx_rope_config {
    double theta;
    tx_rope_type type;
    double factor, original; /* how much longer texts may be than those of `original` positions */
    double low, high;        /* "llama3": low_freq_factor, high_freq_factor; "yarn": beta_slow, beta_fast */
    double attention;        /* "yarn", "longrope": what sines and cosines are times */
    double rotated;          /* "proportional": the share of the pairs that turn */
    int32_t pairs;           /* "longrope": of the factors by which pairs are slower, others in long texts; else 0 */
    float short_factor[TX_MAX_ROTARY / 2], long_factor[TX_MAX_ROTARY / 2];
    bool truncate; /* "yarn": the ramp begins and ends at whole pairs */
} tx_rope_config;

/* Reads what a config.json of a model of `positions` positions says; what is not there stays. Types and keys that
 * change the mathematics in a way that is not implemented are refused by name. */
tx_status tx_rope_read(const tx_json *json, int64_t positions, tx_rope_config *rope);
/* Writes theta where the file keeps it: in "rope_parameters" if there are any. */
tx_status tx_rope_write(const tx_rope_config *rope, tx_json *json);
/* INVALID where heads of `size` elements have other pairs than there are factors. */
tx_status tx_rope_check(const tx_rope_config *rope, int64_t size);
/* The longest text of a model whose max_position_embeddings is `positions`: scaling stretches the original length by
 * its factor. (Published files have in max_position_embeddings either the length before scaling or the one after it.)
 */
int64_t tx_rope_positions(const tx_rope_config *rope, int64_t positions);
/* What tx_rotary takes, for heads of `size` elements and texts, or caches, of at most `length` positions: "longrope"
 * has its long factors, and "dynamic" its larger base, where these are more than the original ones, as transformers
 * for a text of so many. */
tx_rope tx_rope_of(const tx_rope_config *rope, int64_t size, int64_t length);

#endif
