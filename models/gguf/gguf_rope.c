/* SPDX-License-Identifier: Apache-2.0
 * Rope settings in GGUF files. */
#include "models/gguf/gguf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PI 3.14159265358979323846
#define STILL 1e30f /* the divisor of pairs that do not rotate */
/* The published "llama3" settings. Files store only the resulting factors. */
#define LLAMA3_LOW 1
#define LLAMA3_HIGH 4
#define LLAMA3_ORIGINAL 8192
/* Defaults of "yarn". */
#define YARN_FAST 32
#define YARN_SLOW 1
#define NEAR 1e-9

/* Computes the frequency divisor of each pair (transformers, _compute_llama3_parameters). Pairs that rotate often
 * within the original length get 1, pairs that hardly rotate get rope->factor, and those between a smooth mix. */
void tx_gguf_rope_factors(const tx_rope_config *rope, int64_t pairs, float *factors)
{
    for (int64_t i = 0; i < pairs; i++)
        factors[i] = rope->type == TX_ROPE_PROPORTIONAL && (double)i >= rope->rotated * (double)pairs ? STILL : 1;
    if (rope->type != TX_ROPE_LLAMA3)
        return;
    for (int64_t i = 0; i < pairs; i++) {
        const double length = 2 * PI * pow(rope->theta, (double)i / (double)pairs), rotations = rope->original / length;
        const double smooth = (rotations - rope->low) / (rope->high - rope->low);
        factors[i] = (float)(smooth >= 1 ? 1 : smooth <= 0 ? rope->factor : 1 / ((1 - smooth) / rope->factor + smooth));
    }
}

double tx_gguf_yarn(double factor, double all)
{
    return (1 + 0.1 * log(factor)) / (1 + 0.1 * all * log(factor));
}

void tx_gguf_put_rope(tx_gguf_writer *writer, const char *architecture, const tx_rope_config *rope, int64_t size,
                      double usual)
{
    char key[TX_GGUF_KEY_ROOM];
#define KEY(rest) tx_gguf_key_of(key, architecture, "rope." rest)
    tx_gguf_put_int(writer, KEY("dimension_count"), size);
    /* The base of Hunyuan contains its alpha. */
    tx_gguf_put_number(writer, KEY("freq_base"), (double)tx_rope_of(rope, size, 1).theta);
    if (rope->type == TX_ROPE_LLAMA3) /* the factors contain the other settings */
        tx_gguf_put_int(writer, KEY("scaling.original_context_length"), (int64_t)rope->original);
    if (rope->type != TX_ROPE_LINEAR && rope->type != TX_ROPE_YARN)
        return;
    const char *type = rope->type == TX_ROPE_LINEAR ? "linear" : "yarn";
    tx_gguf_put_string(writer, KEY("scaling.type"), type, strlen(type));
    tx_gguf_put_number(writer, KEY("scaling.factor"), rope->factor);
    if (rope->type == TX_ROPE_LINEAR)
        return;
    tx_gguf_put_int(writer, KEY("scaling.original_context_length"), (int64_t)rope->original);
    if (!(fabs(rope->attention / usual - 1) < NEAR))
        tx_gguf_put_number(writer, KEY("scaling.attn_factor"), rope->attention / usual);
    if (rope->high != YARN_FAST)
        tx_gguf_put_number(writer, KEY("scaling.yarn_beta_fast"), rope->high);
    if (rope->low != YARN_SLOW)
        tx_gguf_put_number(writer, KEY("scaling.yarn_beta_slow"), rope->low);
}

/* ---- Reading ------------------------------------------------------------------------------------------ */

static tx_status copy_number(const tx_gguf_file *file, const char *key, tx_json *to, const char *name)
{
    double value;
    if (!tx_gguf_has(file, key))
        return TX_OK;
    TX_TRY(tx_gguf_get_number(file, key, &value));
    return tx_json_set_number(to, name, value);
}

/* Reads "llama3" factors. They must equal the ones that the published settings produce. */
static tx_status read_factors(double theta, double original, const float *factors, int64_t pairs, tx_json *scaling)
{
    tx_rope_config rope = {.theta = theta,
                           .type = TX_ROPE_LLAMA3,
                           .original = original,
                           .low = LLAMA3_LOW,
                           .high = LLAMA3_HIGH,
                           .factor = 1};
    float *own = malloc((size_t)pairs * sizeof *own);
    if (!own)
        return tx_fail(TX_MEMORY, "no memory for " TX_GGUF_ROPE_FACTORS);
    for (int64_t i = 0; i < pairs; i++)
        rope.factor = fmax(rope.factor, (double)factors[i]);
    tx_gguf_rope_factors(&rope, pairs, own);
    bool same = true;
    for (int64_t i = 0; i < pairs; i++)
        same = same && fabs((double)own[i] - (double)factors[i]) <= 1e-4 * (double)own[i];
    free(own);
    if (!same)
        return tx_fail(TX_UNSUPPORTED, TX_GGUF_ROPE_FACTORS ": not the factors of rope_type \"llama3\"");
    TX_TRY(tx_json_set_string(scaling, "rope_type", "llama3"));
    TX_TRY(tx_json_set_number(scaling, "factor", rope.factor));
    TX_TRY(tx_json_set_number(scaling, "low_freq_factor", rope.low));
    return tx_json_set_number(scaling, "high_freq_factor", rope.high);
}

/* Reads factors that say which pairs rotate: the first ones. */
static tx_status read_some(const float *factors, int64_t pairs, tx_json *scaling)
{
    int64_t count = 0, still = 0;
    for (; count < pairs && factors[count] == 1; count++)
        ;
    for (; count + still < pairs && factors[count + still] == STILL; still++)
        ;
    if (count + still < pairs)
        return tx_fail(TX_UNSUPPORTED, TX_GGUF_ROPE_FACTORS ": not 1 and then %g", (double)STILL);
    TX_TRY(tx_json_set_string(scaling, "rope_type", "proportional"));
    return tx_json_set_number(scaling, "partial_rotary_factor", (double)count / (double)pairs);
}

/* Reads the factor of sines and cosines of yarn, which follows from other keys if the file does not have it. */
static tx_status read_attention(const tx_gguf_file *file, const tx_gguf_family *family, tx_json *scaling)
{
    const char *architecture = family->architecture;
    char key[TX_GGUF_KEY_ROOM];
    double own, all = 0, factor = 1;
    if (tx_gguf_has(file, KEY("scaling.yarn_attn_factor")) ||
        (family->latent && tx_gguf_has(file, KEY("scaling.attn_factor"))))
        return tx_fail(TX_UNSUPPORTED, "%s is not supported", key);
    if (!tx_gguf_has(file, KEY("scaling.attn_factor")))
        return TX_OK;
    TX_TRY(tx_gguf_get_number(file, key, &own));
    TX_TRY(TX_GGUF_OPTIONAL(number, file, KEY("scaling.factor"), &factor));
    TX_TRY(TX_GGUF_OPTIONAL(number, file, KEY(TX_GGUF_YARN_ALL), &all));
    own *= tx_gguf_yarn(factor, all); /* single precision has no more digits */
    return tx_json_set_number(scaling, "attention_factor", round(own * 1e6) / 1e6);
}

static tx_status read_scaling(const tx_gguf_file *file, const tx_gguf_family *family, const char *type,
                              tx_json *scaling)
{
    const char *architecture = family->architecture;
    char key[TX_GGUF_KEY_ROOM];
    if (strcmp(type, "linear") != 0 && strcmp(type, "yarn") != 0)
        return tx_fail(TX_UNSUPPORTED, "rope.scaling.type: \"%.40s\" is not one of none, linear, yarn", type);
    TX_TRY(tx_json_set_string(scaling, "rope_type", type));
    TX_TRY(copy_number(file, KEY("scaling.factor"), scaling, "factor"));
    if (strcmp(type, "linear") == 0)
        return TX_OK;
    TX_TRY(read_attention(file, family, scaling));
    if (family->whole_ramp)
        TX_TRY(tx_json_set_bool(scaling, "truncate", false));
    TX_TRY(copy_number(file, KEY("scaling.yarn_beta_fast"), scaling, "beta_fast"));
    return copy_number(file, KEY("scaling.yarn_beta_slow"), scaling, "beta_slow");
}

static tx_status set_scaling(const tx_gguf_file *file, const tx_gguf_family *family, const float *factors,
                             int64_t pairs, double theta, tx_json *config)
{
    const char *architecture = family->architecture;
    char key[TX_GGUF_KEY_ROOM], *type = NULL;
    int64_t original = LLAMA3_ORIGINAL;
    TX_TRY(TX_GGUF_OPTIONAL(string, file, KEY("scaling.type"), &type, NULL));
    if (!factors && (!type || strcmp(type, "none") == 0)) {
        free(type);
        return TX_OK;
    }
    tx_json *scaling = tx_json_object(); /* `config` owns it before it is filled, so a failure leaks nothing */
    tx_status status = tx_json_set(config, "rope_scaling", scaling);
    if (tx_gguf_has(file, KEY("scaling.original_context_length")) || (factors && !family->some_pairs)) {
        TX_THEN(status, TX_GGUF_OPTIONAL(int, file, key, 1, 1 << 30, &original));
        TX_THEN(status, tx_json_set_int(scaling, "original_max_position_embeddings", original));
    }
    TX_THEN(status, factors && family->some_pairs ? read_some(factors, pairs, scaling)
                    : factors                     ? read_factors(theta, (double)original, factors, pairs, scaling)
                                                  : read_scaling(file, family, type, scaling));
    free(type);
    return status;
}

tx_status tx_gguf_get_rope(const tx_gguf_file *file, const tx_gguf_family *family, const float *factors, int64_t pairs,
                           tx_json *config)
{
    const char *architecture = family->architecture;
    char key[TX_GGUF_KEY_ROOM];
    int64_t rotated = 2 * pairs;
    double theta = 10000;
    if (tx_gguf_has(file, KEY("scaling.alpha")))
        return tx_fail(TX_UNSUPPORTED, "%s is not supported", key);
    TX_TRY(TX_GGUF_OPTIONAL(int, file, KEY("dimension_count"), 1, INT32_MAX, &rotated));
    if (rotated != 2 * pairs) /* refused by types that rotate whole heads */
        TX_TRY(tx_json_set_number(config, "partial_rotary_factor", (double)rotated / (double)(2 * pairs)));
    TX_TRY(TX_GGUF_OPTIONAL(number, file, KEY("freq_base"), &theta));
    TX_TRY(tx_json_set_number(config, "rope_theta", theta));
    return set_scaling(file, family, factors, pairs, theta, config);
}
