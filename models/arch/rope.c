/* SPDX-License-Identifier: Apache-2.0
 * Rotary embeddings (rope): settings of config.json (transformers, modeling_rope_utils) and the values for tx_rotary.
 */
#include "models/arch/rope.h"

#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

static const char *const types[] = {[TX_ROPE_DEFAULT] = "default",
                                    [TX_ROPE_LINEAR] = "linear",
                                    [TX_ROPE_DYNAMIC] = "dynamic",
                                    [TX_ROPE_LLAMA3] = "llama3",
                                    [TX_ROPE_YARN] = "yarn",
                                    [TX_ROPE_LONGROPE] = "longrope",
                                    [TX_ROPE_PROPORTIONAL] = "proportional"};

static tx_status read_type(const tx_json *json, tx_rope_type *type)
{
    const char *name = types[TX_ROPE_DEFAULT];
    const char *key = tx_json_has(json, "rope_type") ? "rope_type" : "type";
    if (tx_json_find(json, key))
        TX_TRY(tx_json_get_string(json, key, &name));
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i], strcmp(name, "su") == 0 ? "longrope" : name) == 0) {
            *type = (tx_rope_type)i;
            return TX_OK;
        }
    return tx_fail(TX_UNSUPPORTED,
                   "rope_type: \"%.40s\" is not one of default, linear, dynamic, llama3, yarn, longrope, proportional",
                   name);
}

/* A number that may be absent or null. */
static tx_status read_number(const tx_json *json, const char *key, double min, double *value)
{
    return TX_JSON_OPTIONAL(number, json, key, min, 1e12, value);
}

/* Reads one factor for each pair. */
static tx_status read_factors(const tx_json *json, const char *key, float factors[TX_MAX_ROTARY / 2], int32_t *pairs)
{
    tx_json *list;
    double number = 1;
    TX_TRY(tx_json_get(json, key, TX_JSON_ARRAY, &list));
    const size_t size = tx_json_size(list);
    if (size < 1 || size > TX_MAX_ROTARY / 2 || (*pairs && (size_t)*pairs != size))
        return tx_fail(TX_INVALID, "%s: %zu factors: expected 1 to %d, and as many short ones as long ones", key, size,
                       TX_MAX_ROTARY / 2);
    for (size_t i = 0; i < size; i++) {
        TX_TRY(tx_json_as_number(tx_json_at(list, i), key, 1e-6, 1e12, &number));
        factors[i] = (float)number;
    }
    *pairs = (int32_t)size;
    return TX_OK;
}

/* LongRoPE (Ding et al., 2024) as in Phi-3. */
static tx_status read_longrope(const tx_json *json, tx_rope_config *rope)
{
    rope->pairs = 0;
    rope->attention = rope->factor > 1 ? sqrt(1 + log(rope->factor) / log(rope->original)) : 1.0;
    TX_TRY(read_factors(json, "short_factor", rope->short_factor, &rope->pairs));
    TX_TRY(read_factors(json, "long_factor", rope->long_factor, &rope->pairs));
    return read_number(json, "attention_factor", 0, &rope->attention);
}

/* YaRN's temperature (Peng et al., 2023, section 3.4), and its variant with two settings. */
static tx_status read_attention(const tx_json *json, tx_rope_config *rope)
{
    double of_all = 0, one = 0;
    if (rope->type == TX_ROPE_LONGROPE)
        return read_longrope(json, rope);
    TX_TRY(read_number(json, "mscale", 0, &one));
    TX_TRY(read_number(json, "mscale_all_dim", 0, &of_all));
    const double grown = rope->type == TX_ROPE_YARN && rope->factor > 1 ? 0.1 * log(rope->factor) : 0.0;
    rope->attention = one > 0 && of_all > 0 ? (one * grown + 1) / (of_all * grown + 1) : grown + 1;
    return read_number(json, "attention_factor", 0, &rope->attention);
}

static tx_status check_whole(const tx_rope_config *rope, double rotated)
{
    return rotated == 1 || rope->partial || rope->type == TX_ROPE_PROPORTIONAL
               ? TX_OK
               : tx_fail(TX_UNSUPPORTED, "partial_rotary_factor: %g: this model type rotates whole heads", rotated);
}

/* `config` is the whole configuration. Older files store the original length there instead of in the scaling. */
static tx_status read_scaling(const tx_json *json, const tx_json *config, int64_t positions, tx_rope_config *rope)
{
    const bool yarn = rope->type == TX_ROPE_YARN;
    if (!rope->partial)
        rope->rotated = 1;
    rope->original = (double)positions;
    rope->truncate = true;
    rope->low = 1;
    rope->high = yarn ? 32 : 4;
    TX_TRY(read_number(json, "original_max_position_embeddings", 1, &rope->original));
    TX_TRY(read_number(config, "original_max_position_embeddings", 1, &rope->original));
    rope->factor = rope->type == TX_ROPE_PROPORTIONAL ? 1 : (double)positions / rope->original;
    TX_TRY(read_number(json, "factor", 1, &rope->factor));
    TX_TRY(read_number(json, yarn ? "beta_slow" : "low_freq_factor", 0, &rope->low));
    TX_TRY(read_number(json, yarn ? "beta_fast" : "high_freq_factor", 0, &rope->high));
    TX_TRY(TX_JSON_OPTIONAL(bool, json, "truncate", &rope->truncate));
    TX_TRY(read_number(json, "partial_rotary_factor", 0, &rope->rotated));
    TX_TRY(check_whole(rope, rope->rotated));
    /* YaRN has a ramp between equal factors, too, because pairs are whole numbers (Kimi K2). */
    if (rope->type != TX_ROPE_DEFAULT && !(rope->high > rope->low || (yarn && rope->high == rope->low)))
        return tx_fail(TX_INVALID, "rope_parameters: the high factor must be above the low one");
    return read_attention(json, rope);
}

tx_status tx_rope_read_settings(const tx_json *settings, const tx_json *config, int64_t positions, tx_rope_config *rope)
{
    TX_TRY(read_number(settings, "rope_theta", 1, &rope->theta));
    TX_TRY(read_type(settings, &rope->type));
    TX_TRY(read_scaling(settings, config, positions, rope));
    if (rope->alpha > 0 && rope->type == TX_ROPE_DYNAMIC && tx_json_has(settings, "alpha")) {
        rope->type = TX_ROPE_DEFAULT;
        return read_number(settings, "alpha", 1e-6, &rope->alpha);
    }
    if (rope->type == TX_ROPE_DYNAMIC) /* transformers ignores original_max_position_embeddings here */
        rope->original = (double)positions;
    return TX_OK;
}

tx_status tx_rope_read(const tx_json *json, int64_t positions, tx_rope_config *rope)
{
    const char *key = tx_json_has(json, "rope_scaling") ? "rope_scaling" : "rope_parameters";
    tx_json *settings;
    double whole = 1;
    TX_TRY(read_number(json, "rope_theta", 1, &rope->theta));
    TX_TRY(read_number(json, "partial_rotary_factor", 0, rope->partial ? &rope->rotated : &whole));
    TX_TRY(check_whole(rope, whole));
    if (tx_json_has(json, key)) {
        tx_status status = tx_json_get(json, key, TX_JSON_OBJECT, &settings);
        TX_THEN(status, tx_rope_read_settings(settings, json, positions, rope));
        return tx_fail_in(status, "%s", key);
    }
    if (rope->type == TX_ROPE_DYNAMIC)
        rope->original = (double)positions;
    return TX_OK;
}

tx_status tx_rope_write(const tx_rope_config *rope, tx_json *json)
{
    tx_json *parameters;
    if (!tx_json_has(json, "rope_parameters"))
        return tx_json_set_number(json, "rope_theta", rope->theta);
    TX_TRY(tx_json_get(json, "rope_parameters", TX_JSON_OBJECT, &parameters));
    if (tx_json_has(parameters, "full_attention"))
        TX_TRY(tx_json_get(parameters, "full_attention", TX_JSON_OBJECT, &parameters));
    return tx_json_set_number(parameters, "rope_theta", rope->theta);
}

/* The pair that makes `rotations` rotations within the original length. */
static double pair_of(const tx_rope_config *rope, double rotations, int64_t size)
{
    return (double)size * log(rope->original / (rotations * 2 * PI)) / (2 * log(rope->theta));
}

/* YaRN: pairs below `first` keep their frequency, pairs above `last` get the full scaling factor, with a ramp between.
 */
static void yarn(const tx_rope_config *rope, int64_t size, tx_rope *result)
{
    double first = pair_of(rope, rope->high, size), last = pair_of(rope, rope->low, size);
    if (rope->truncate) {
        first = floor(first);
        last = ceil(last);
    }
    first = fmax(first, 0);
    last = fmin(last, (double)size - 1);
    const double length = first == last ? 0.001 : last - first; /* as in transformers */
    result->ramp = (float)(-first / length);
    result->ramp_pair = (float)(1 / length);
    result->magnitude = (float)rope->attention;
}

/* The pairs of a head that "proportional" rotates. */
static int64_t pairs_of(const tx_rope_config *rope, int64_t size)
{
    return (int64_t)(rope->rotated * (double)size / 2);
}

int64_t tx_rope_parts(const tx_rope_config *rope, int64_t size)
{
    return size > TX_MAX_ROTARY ? size / 2 / pairs_of(rope, size) : 1;
}

/* Heads that are wider than tx_rotary allows. */
static tx_status check_wide(const tx_rope_config *rope, int64_t size)
{
    const int64_t pairs = rope->type == TX_ROPE_PROPORTIONAL ? pairs_of(rope, size) : size / 2;
    return pairs > 0 && 2 * pairs <= TX_MAX_ROTARY && size / 2 % pairs == 0
               ? TX_OK
               : tx_fail(TX_UNSUPPORTED,
                         "rope_parameters: %d rotating elements of a head of %d: more than %d, or a part that does not "
                         "divide the head, are not implemented",
                         (int)(2 * pairs), (int)size, TX_MAX_ROTARY);
}

/* The number of elements of a head that rotate. */
static int64_t rotated_of(const tx_rope_config *rope, int64_t size)
{
    return rope->partial ? (int64_t)(rope->rotated * (double)size) : size;
}

tx_status tx_rope_check(const tx_rope_config *rope, int64_t size)
{
    if (rope->rotated > 1)
        return tx_fail(TX_INVALID, "partial_rotary_factor: %g is more than 1", rope->rotated);
    if (size > TX_MAX_ROTARY)
        return check_wide(rope, size);
    const int64_t rotated = rotated_of(rope, size);
    if (rotated < 2 || rotated % 2 != 0)
        return tx_fail(TX_INVALID, "partial_rotary_factor: %d of the %d elements of a head: expected an even number",
                       (int)rotated, (int)size);
    if (rope->pairs != 0 && 2 * rope->pairs != rotated)
        return tx_fail(TX_INVALID, "rope_parameters: %d factors, but %d rotated elements of a head need half as many",
                       (int)rope->pairs, (int)rotated);
    return TX_OK;
}

/* Pairs that do not rotate get an infinite divisor. In wide heads those that rotate come first, with divisors that are
 * the powers of theta. They are rounded as tx_rotary does. */
static void proportional(const tx_rope_config *rope, int64_t size, tx_rope *result)
{
    const int64_t pairs = pairs_of(rope, size);
    const bool wide = size > TX_MAX_ROTARY;
    result->factor = 1;
    for (int64_t i = 0; i < (wide ? pairs : size / 2); i++)
        result->divisor[i] = i < pairs ? (float)rope->factor : INFINITY;
    if (!wide)
        return;
    for (int64_t i = 0; i < pairs; i++)
        result->divisor[i] *= (float)pow(rope->theta, (double)((float)(2 * i) / (float)size));
    result->theta = 1;
    result->rotated = (int32_t)(2 * pairs);
}

int64_t tx_rope_positions(const tx_rope_config *rope, int64_t positions)
{
    const double scaled = rope->type == TX_ROPE_DEFAULT ? 0 : rope->original * rope->factor;
    return (int64_t)fmin(fmax((double)positions, scaled), INT32_MAX);
}

/* The base of NTK-aware scaling: the slowest pair rotates `grown` times slower, the fastest keeps its frequency. A
 * single pair is not changed. */
static double stretched(const tx_rope_config *rope, int64_t size, int64_t length)
{
    const double grown = rope->factor * (double)length / rope->original - (rope->factor - 1);
    return grown > 1 && size > 2 ? rope->theta * pow(grown, (double)size / (double)(size - 2)) : rope->theta;
}

tx_rope tx_rope_of(const tx_rope_config *rope, int64_t head_size, int64_t length)
{
    const int64_t size = rotated_of(rope, head_size);
    double theta = rope->type == TX_ROPE_DYNAMIC ? stretched(rope, size, length) : rope->theta;
    if (rope->alpha > 0 && size > 2)
        theta *= pow(rope->alpha, (double)size / (double)(size - 2));
    tx_rope result = TX_ROPE((float)theta);
    result.rotated = size < head_size ? (int32_t)size : 0;
    if (rope->type == TX_ROPE_DEFAULT || rope->type == TX_ROPE_DYNAMIC)
        return result;
    result.factor = (float)rope->factor;
    if (rope->type == TX_ROPE_LINEAR)
        result.ramp = 1;
    if (rope->type == TX_ROPE_LLAMA3) {
        result.ramp = (float)(rope->high / (rope->high - rope->low));
        result.ramp_frequency = (float)(-rope->original / (2 * PI * (rope->high - rope->low)));
    }
    if (rope->type == TX_ROPE_YARN)
        yarn(rope, size, &result);
    if (rope->type == TX_ROPE_PROPORTIONAL)
        proportional(rope, size, &result);
    if (rope->type == TX_ROPE_LONGROPE) {
        result.factor = 1;
        result.magnitude = (float)rope->attention;
        memcpy(result.divisor, (double)length > rope->original ? rope->long_factor : rope->short_factor,
               sizeof result.divisor);
    }
    return result;
}
