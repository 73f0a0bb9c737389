/* SPDX-License-Identifier: Apache-2.0
 * The settings of generation (tx_generation.def): defaults, values and checks. */
#include "models/generate/generate.h"

#include "api/base/needs.h"
#include "models/options/option.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IN_FILE = 1, IMPLIES_SAMPLING = 2 };

#define ROW(KIND, name, initial, least, most, choices, key, implies, help) \
    {TX_OPTION_##KIND, #name, offsetof(tx_generation, name), least, most, choices, help},
#define SETTING(...) ROW(__VA_ARGS__)
static const tx_option settings[] = {
#include "models/tx_generation.def"
};
#define TRAITS(KIND, name, initial, least, most, choices, key, implies, help) (implies) * IMPLIES_SAMPLING
#define SETTING(...) IN_FILE | TRAITS(__VA_ARGS__),
#define OPTION_SETTING(...) TRAITS(__VA_ARGS__),
static const uint32_t traits[] = {
#include "models/tx_generation.def"
};
#define SETTING(KIND, name, initial, least, most, choices, key, implies, help) key,
static const char *const keys[] = {
#include "models/tx_generation.def"
};
enum { SETTINGS = sizeof settings / sizeof settings[0] };

tx_generation tx_generation_defaults(int64_t eos_token_id)
{
    tx_generation g = {
        .size = sizeof g,
#define SETTING(KIND, name, initial, ...) .name = initial,
#include "models/tx_generation.def"
    };
    if (eos_token_id >= 0)
        g.eos_token_id[g.eos_count++] = (int32_t)eos_token_id;
    return g;
}

int64_t tx_generation_limit(const tx_generation *g, int64_t prompt)
{
    return g->max_new_tokens >= 0 ? g->max_new_tokens : g->max_length - prompt;
}

int64_t tx_generation_least(const tx_generation *g, int64_t prompt)
{
    return g->min_new_tokens >= 0 ? g->min_new_tokens : g->min_length - prompt;
}

/* ---- Checks ------------------------------------------------------------------------------------------- */

static tx_status check_value(const tx_generation *g, const tx_option *o)
{
    const void *at = (const char *)g + o->offset;
    const bool number = o->kind == TX_OPTION_INTEGER || o->kind == TX_OPTION_REAL;
    const double value = o->kind == TX_OPTION_INTEGER ? (double)*(const int64_t *)at
                         : number                     ? *(const double *)at
                                                      : o->least;
    if (value >= o->least && value <= o->most)
        return TX_OK;
    return o->most >= FLT_MAX && value < o->least
               ? tx_fail(TX_INVALID, "%s: %.15g is below %g", o->name, value, o->least)
               : tx_fail(TX_INVALID, "%s: %.15g is not in %.15g..%.15g", o->name, value, o->least, o->most);
}

#define ADD(...) tx_list_add(wrong, sizeof wrong, "; ", __VA_ARGS__)

tx_status tx_generation_check(const tx_generation *g)
{
    TX_NEEDS(g, TX_INVALID);
    char wrong[1024] = "";
    if (g->size != sizeof *g)
        return tx_fail(TX_INVALID, "generation: the size field is %zu, expected %zu", g->size, sizeof *g);
    for (int i = 0; i < SETTINGS; i++)
        if (check_value(g, &settings[i]))
            ADD("%s", tx_error());
    if (g->max_length == 0)
        ADD("max_length: 0 is not above 0");
    if (g->repetition_penalty <= 0.0)
        ADD("repetition_penalty: %g is not above 0", g->repetition_penalty);
    if (g->eos_count < 0 || g->eos_count > TX_GENERATION_EOS)
        ADD("eos_count: %d is not in 0..%d", (int)g->eos_count, TX_GENERATION_EOS);
    for (int32_t i = 0; i < g->stop_count; i++)
        if (!g->stop_strings[i] || !g->stop_strings[i][0])
            ADD("stop_strings: string %d is empty", (int)i);
    for (int32_t i = 0; i < g->bias_count; i++)
        if (g->logit_bias[i].id < 0 || !(fabsf(g->logit_bias[i].bias) <= FLT_MAX))
            ADD("logit_bias: bias %d of id %d is not finite, or the id is negative", (int)i, (int)g->logit_bias[i].id);
    const bool invalid = *wrong;
    if (g->prompt_lookup_num_tokens > 0 && g->num_beams > 1)
        ADD("prompt_lookup_num_tokens with num_beams: use only one of them");
    if (g->grammar && g->num_beams > 1)
        ADD("a grammar or schema with num_beams: use only one of them");
    if (g->num_beams > 1 && g->do_sample)
        ADD("num_beams %" PRId64
            " with do_sample: beam search does not sample; set num_beams to 1 or do_sample to false",
            g->num_beams);
    return *wrong ? tx_fail(invalid ? TX_INVALID : TX_UNSUPPORTED, "%s", wrong) : TX_OK;
}

/* ---- Values ------------------------------------------------------------------------------------------- */

static const tx_option *find(const char *name)
{
    const tx_option_table table = {.option = settings, .count = SETTINGS};
    return tx_option_find(&table, name);
}

/* Stores the value of one member of JSON. */
static tx_status store_json(tx_generation *g, const tx_option *o, const char *key, const tx_json *value)
{
    void *at = (char *)g + o->offset;
    const char *word = "";
    bool flag;
    switch (o->kind) {
    case TX_OPTION_INTEGER:
        TX_TRY(tx_json_as_int(value, key, INT64_MIN, INT64_MAX, at));
        break;
    case TX_OPTION_REAL:
        TX_TRY(tx_json_as_number(value, key, -FLT_MAX, FLT_MAX, at));
        break;
    case TX_OPTION_FLAG:
        return tx_json_as_bool(value, key, at);
    default:
        if (tx_json_type_of(value) == TX_JSON_BOOL && !tx_json_as_bool(value, key, &flag))
            word = flag ? "true" : "false";
        else
            TX_TRY(tx_json_as_string(value, key, &word));
        *(int32_t *)at = tx_choice_find(o->choices, word, strlen(word));
        return *(int32_t *)at >= 0 ? TX_OK : tx_fail(TX_INVALID, "%s: must be one of %s", key, o->choices);
    }
    tx_option named = *o;
    named.name = key;
    return check_value(g, &named);
}

bool tx_generation_in_file(const char *name)
{
    const tx_option *o = find(name);
    return o && (traits[o - settings] & IN_FILE);
}

tx_status tx_generation_read_member(tx_generation *g, const char *name, const tx_json *value)
{
    tx_generation alone = tx_generation_defaults(-1); /* so that only this value can be wrong */
    TX_TRY(store_json(&alone, find(name), name, value));
    TX_TRY(tx_generation_check(&alone));
    return store_json(g, find(name), name, value);
}

tx_status tx_generation_read_body(tx_generation *g, const tx_json *body)
{
    TX_NEEDS(g && body, TX_INVALID);
    for (int i = 0; i < SETTINGS; i++)
        if (keys[i] && tx_json_has(body, keys[i]))
            TX_TRY(store_json(g, &settings[i], keys[i], tx_json_find(body, keys[i])));
    return TX_OK;
}

/* Reads the ids of "2,7", or none. */
static tx_status read_ends(const char *text, tx_generation *g)
{
    tx_generation result = *g;
    char *end = NULL;
    result.eos_count = 0;
    for (const char *at = text; *at; at = *end ? end + 1 : end) {
        const long long id = strtoll(at, &end, 10);
        if (end == at || (*end && *end != ',') || id < 0 || id > INT32_MAX)
            return tx_fail(TX_INVALID, "eos_token_id %s: give ids with commas between them", text);
        TX_TRY(tx_generation_add_end(&result, (int32_t)id, NULL, NULL));
    }
    *g = result;
    return TX_OK;
}

tx_status tx_generation_set(tx_generation *g, const char *name, const char *value)
{
    TX_NEEDS(g && name && value, TX_INVALID);
    tx_option_values to = {.table = {.option = settings, .count = SETTINGS}, .values = g};
    const tx_option *o = find(name);
    if (strcmp(name, "eos_token_id") == 0)
        return read_ends(value, g);
    if (!o) {
        tx_option_unknown(&to.table, "generation", name);
        return TX_NOT_FOUND;
    }
    TX_TRY(tx_option_store(&to, "generation", o, value));
    if (traits[o - settings] & IMPLIES_SAMPLING)
        g->do_sample = g->temperature > 0.0;
    return TX_OK;
}

void tx_generation_take(tx_generation *g, const tx_option_values *given, size_t at)
{
    TX_NEEDS(g && given, );
    bool implied = false;
    for (int i = 0; i < SETTINGS; i++) {
        const tx_option *o = &settings[i];
        const size_t size = o->kind == TX_OPTION_FLAG     ? sizeof(bool)
                            : o->kind == TX_OPTION_CHOICE ? sizeof(int32_t)
                                                          : 8;
        if (!tx_option_given(given, at + o->offset))
            continue;
        memcpy((char *)g + o->offset, (const char *)given->values + at + o->offset, size);
        implied = implied || (traits[i] & IMPLIES_SAMPLING);
    }
    if (implied && !tx_option_given(given, at + offsetof(tx_generation, do_sample)))
        g->do_sample = g->temperature > 0.0;
}

bool tx_generation_ends(const tx_generation *g, int32_t id)
{
    TX_NEEDS(g, false);
    for (int32_t i = 0; i < g->eos_count; i++)
        if (g->eos_token_id[i] == id)
            return true;
    return false;
}

tx_status tx_generation_add_end(tx_generation *g, int32_t id, const char *text, const char **stop)
{
    TX_NEEDS(g && (id >= 0 || (text && stop)), TX_INVALID);
    if (id >= 0 && tx_generation_ends(g, id))
        return TX_OK;
    if (id >= 0 && g->eos_count == TX_GENERATION_EOS)
        return tx_fail(TX_UNSUPPORTED, "eos_token_id already has %d ids, the most that are supported", g->eos_count);
    if (id >= 0) {
        g->eos_token_id[g->eos_count++] = id;
        return TX_OK;
    }
    for (int32_t i = 0; i < g->stop_count; i++)
        stop[i] = g->stop_strings[i];
    stop[g->stop_count++] = text;
    g->stop_strings = stop;
    return TX_OK;
}

tx_status tx_check_ids(const int32_t *ids, int64_t count, int64_t vocab)
{
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return tx_fail(TX_INVALID, "token %" PRId64 ": id %" PRId32 " is outside the vocabulary of %" PRId64, i,
                           ids[i], vocab);
    return TX_OK;
}
