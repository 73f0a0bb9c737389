/* SPDX-License-Identifier: Apache-2.0
 * Rotary embeddings (rope) as config.json describes them. */
#ifndef TX_MODELS_ROPE_H
#define TX_MODELS_ROPE_H

#include "tx.h"
#include "tx_json.h"

/* The "rope_type" in "rope_parameters", which older files call "rope_scaling". */
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
    double factor, original; /* texts may be `factor` times longer than the original length, in positions */
    double low, high;        /* "llama3": low_freq_factor, high_freq_factor; "yarn": beta_slow, beta_fast */
    double attention;        /* "yarn", "longrope": factor of sines and cosines */
    double rotated;          /* partial_rotary_factor: the part of each head, or of its pairs, that rotates */
    bool partial;            /* the model type rotates the first elements of a head if `rotated` is below 1 */
    int32_t pairs;           /* "longrope": number of divisors in the next arrays; else 0 */
    float short_factor[TX_MAX_ROTARY / 2], long_factor[TX_MAX_ROTARY / 2];
    double alpha;  /* Hunyuan: NTK-aware scaling of theta by a constant, instead of "dynamic". Others have 0 */
    bool truncate; /* "yarn": round the ends of the ramp to whole pairs */
} tx_rope_config;

/* Reads the settings in the config.json of a model with `positions` positions. Absent keys leave the members unchanged.
 * TX_UNSUPPORTED names a type or key that TX does not implement. */
tx_status tx_rope_read(const tx_json *json, int64_t positions, tx_rope_config *rope);
/* Reads one object of settings in the same way; `config` is the whole file. */
tx_status tx_rope_read_settings(const tx_json *settings, const tx_json *config, int64_t positions,
                                tx_rope_config *rope);
/* Writes theta to the place that the file uses: "rope_parameters" if it exists. */
tx_status tx_rope_write(const tx_rope_config *rope, tx_json *json);
/* TX_INVALID if the number of factors, or the part that rotates, does not fit heads of `size` elements. TX_UNSUPPORTED
 * if heads of more than TX_MAX_ROTARY elements rotate otherwise than tx_rope_parts says. */
tx_status tx_rope_check(const tx_rope_config *rope, int64_t size);
/* Into how many equal parts half of a head is divided, of which the first rotates, in heads of more than TX_MAX_ROTARY
 * elements. The elements that rotate, the first parts of both halves, must be adjacent for tx_rotary. Returns 1 for
 * smaller heads, which need no other order. */
int64_t tx_rope_parts(const tx_rope_config *rope, int64_t size);
/* The longest text of a model whose max_position_embeddings is `positions`: scaling extends the original length by its
 * factor. (In published files max_position_embeddings is either the length before scaling or the one after it.) */
int64_t tx_rope_positions(const tx_rope_config *rope, int64_t positions);
/* The argument of tx_rotary for heads of `head_size` elements and texts or caches of at most `length` positions. As in
 * transformers, "longrope" uses its long factors and "dynamic" a larger base if `length` exceeds the original length.
 */
tx_rope tx_rope_of(const tx_rope_config *rope, int64_t head_size, int64_t length);

#endif
