/* SPDX-License-Identifier: Apache-2.0
 * Learning-rate schedules. */
#include "models/train/schedule.h"

#include "models/options/option.h"
#include "tx_json.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

const char *tx_schedule_name(tx_schedule_kind kind)
{
    static const char *const name[] = {
#define X(id, text) text,
        TX_SCHEDULE_MAP(X)
#undef X
    };
    return kind < TX_SCHEDULE_COUNT ? name[kind] : "none";
}

tx_schedule tx_schedule_default(tx_schedule_kind kind, double peak, int64_t warmup_steps, int64_t total_steps)
{
    const int64_t tenth = total_steps / 10;
    const double none = (double)NAN;
    const bool greedy = kind == TX_SCHEDULE_GREEDY;
    return (tx_schedule){
        .kind = kind,
        .peak = peak,
        .warmup_steps =
            kind == TX_SCHEDULE_CONSTANT || kind == TX_SCHEDULE_REDUCE_ON_PLATEAU || greedy ? 0 : warmup_steps,
        .total_steps = total_steps,
        .num_cycles = kind == TX_SCHEDULE_COSINE_WITH_RESTARTS ? 1.0 : 0.5,
        .lr_end = 1e-7,
        .power = 1.0,
        .min_lr = greedy                                  ? 1e-3
                  : kind == TX_SCHEDULE_REDUCE_ON_PLATEAU ? 0.0
                                                          : none,
        .min_lr_rate = none,
        .warmup_lr_rate = none,
        .num_decay_steps = tenth > 1 ? tenth : 1,
        .num_stable_steps = -1,
        .timescale = warmup_steps ? warmup_steps : 10000,
        .warmup_type = TX_DECAY_LINEAR,
        .factor = greedy ? 0.95 : 0.1,
        .threshold = greedy ? 1e-6 : 1e-4,
        .threshold_mode = greedy ? TX_THRESHOLD_ABS : TX_THRESHOLD_REL,
        .patience = 10,
        .eps = 1e-8,
        .max_lr = 1.0,
        .reset_start = 500,
    };
}

bool tx_schedule_adapts(const tx_schedule *s)
{
    return s->kind == TX_SCHEDULE_REDUCE_ON_PLATEAU || s->kind == TX_SCHEDULE_GREEDY;
}

/* ---- lr_scheduler_kwargs ------------------------------------------------------------------------ */

enum setting_type { NUMBER, WHOLE, WORD };

#define OF(kind) (1u << TX_SCHEDULE_##kind)
#define MIN_LR (OF(COSINE_WITH_MIN_LR) | OF(COSINE_WARMUP_MIN_LR))
#define ADAPTS (OF(REDUCE_ON_PLATEAU) | OF(GREEDY))
#define SETTING(key) #key, offsetof(tx_schedule, key)

#define WORDS_OF(name, text) "|" text

/* The keys, the schedules that have them, and their bounds. */
static const struct setting {
    const char *key;
    size_t offset;
    unsigned kinds;
    enum setting_type type;
    double least, most;
    const char *words; /* of a WORD: "|min|max" */
} settings[] = {
    {SETTING(num_cycles), OF(COSINE) | OF(COSINE_WITH_RESTARTS) | MIN_LR | OF(WSD), NUMBER, 0, 1e6, NULL},
    {SETTING(lr_end), OF(POLYNOMIAL), NUMBER, 0, 1e6, NULL},
    {SETTING(power), OF(POLYNOMIAL), NUMBER, 0, 100, NULL},
    {SETTING(min_lr), MIN_LR | ADAPTS, NUMBER, 0, 1e6, NULL},
    {SETTING(min_lr_rate), MIN_LR, NUMBER, 0, 1, NULL},
    {SETTING(warmup_lr_rate), OF(COSINE_WARMUP_MIN_LR), NUMBER, 0, 1, NULL},
    {SETTING(timescale), OF(INVERSE_SQRT), WHOLE, 1, UINT32_MAX, NULL},
    {SETTING(num_decay_steps), OF(WSD), WHOLE, 0, UINT32_MAX, NULL},
    {SETTING(num_stable_steps), OF(WSD), WHOLE, 0, UINT32_MAX, NULL},
    {SETTING(min_lr_ratio), OF(WSD), NUMBER, 0, 1, NULL},
    {SETTING(warmup_type), OF(WSD), WORD, 0, 0, TX_DECAY_MAP(WORDS_OF)},
    {SETTING(decay_type), OF(WSD), WORD, 0, 0, TX_DECAY_MAP(WORDS_OF)},
    {SETTING(mode), ADAPTS, WORD, 0, 0, TX_MODE_MAP(WORDS_OF)},
    {SETTING(factor), ADAPTS, NUMBER, 0, 0.9999999, NULL},
    {SETTING(patience), ADAPTS, WHOLE, 0, UINT32_MAX, NULL},
    {SETTING(threshold), ADAPTS, NUMBER, 0, 1e300, NULL},
    {SETTING(threshold_mode), ADAPTS, WORD, 0, 0, TX_THRESHOLD_MAP(WORDS_OF)},
    {SETTING(cooldown), ADAPTS, WHOLE, 0, UINT32_MAX, NULL},
    {SETTING(eps), ADAPTS, NUMBER, 0, 1e6, NULL},
    {SETTING(max_lr), OF(GREEDY), NUMBER, 0, 1e6, NULL},
    {SETTING(warmup), OF(GREEDY), WHOLE, 0, UINT32_MAX, NULL},
    {SETTING(reset_start), OF(GREEDY), WHOLE, 1, UINT32_MAX, NULL},
};
enum { SETTINGS = sizeof settings / sizeof settings[0] };

/* Reads a word of "min|max" and stores its index in an enumeration. */
static tx_status read_word(const tx_json *json, const char *key, const char *words, void *at)
{
    const char *word;
    TX_TRY(tx_json_get_string(json, key, &word));
    const int place = tx_choice_find(words, word, strlen(word));
    if (place < 0)
        return tx_fail(TX_INVALID, "%s: \"%.40s\" is not one of %s", key, word, words);
    memcpy(at, &place, sizeof place);
    return TX_OK;
}

static tx_status refuse_key(const tx_schedule *s, const char *key)
{
    char has[256] = "";
    for (int i = 0; i < SETTINGS; i++)
        if (settings[i].kinds >> s->kind & 1)
            tx_list_add(has, sizeof has, ", ", "%s", settings[i].key);
    return tx_fail(TX_INVALID, "%.40s is not a setting of %s, which has %s", key, tx_schedule_name(s->kind),
                   *has ? has : "none");
}

static tx_status adjust_key(tx_schedule *s, const tx_json *json, const char *key)
{
    for (int i = 0; i < SETTINGS; i++) {
        const struct setting *t = &settings[i];
        void *at = (char *)s + t->offset;
        if (strcmp(key, t->key) != 0 || !(t->kinds >> s->kind & 1))
            continue;
        return t->type == WORD    ? read_word(json, key, t->words + 1, at)
               : t->type == WHOLE ? tx_json_get_int(json, key, (int64_t)t->least, (int64_t)t->most, at)
                                  : tx_json_get_number(json, key, t->least, t->most, at);
    }
    return refuse_key(s, key);
}

static tx_status check(const tx_schedule *s)
{
    const bool least = OF(COSINE_WITH_MIN_LR) >> s->kind & 1 || OF(COSINE_WARMUP_MIN_LR) >> s->kind & 1;
    if (least && isnan(s->min_lr) == isnan(s->min_lr_rate))
        return tx_fail(TX_INVALID, "%s needs either {\"min_lr\": X} or {\"min_lr_rate\": share of the peak}",
                       tx_schedule_name(s->kind));
    if (s->kind == TX_SCHEDULE_POLYNOMIAL && !(s->lr_end < s->peak))
        return tx_fail(TX_INVALID, "lr_end %g must be less than the learning rate %g", s->lr_end, s->peak);
    if (least && s->min_lr > s->peak)
        return tx_fail(TX_INVALID, "min_lr %g is more than the learning rate %g", s->min_lr, s->peak);
    return TX_OK;
}

tx_status tx_schedule_adjust(tx_schedule *schedule, const char *text)
{
    tx_schedule result = *schedule;
    tx_json *json = NULL;
    if (text)
        TX_TRY(tx_json_parse(text, strlen(text), "lr_scheduler_kwargs", &json));
    tx_status status = TX_OK;
    if (json && tx_json_type_of(json) != TX_JSON_OBJECT)
        status = tx_fail(TX_INVALID, "not a JSON object");
    for (void *i = json && !status ? tx_json_first(json) : NULL; i && !status; i = tx_json_next(json, i))
        status = adjust_key(&result, json, tx_json_key(i));
    tx_json_free(json);
    TX_THEN(status, check(&result));
    if (status)
        return tx_fail_in(status, "lr_scheduler_kwargs");
    *schedule = result;
    return TX_OK;
}

/* ---- The rate ------------------------------------------------------------------------------------- */

static const double pi = 3.14159265358979323846;

static double cosine(double cycles, double progress)
{
    return 0.5 * (1.0 + cos(pi * cycles * 2.0 * progress));
}

/* The functions from here on return a rate as a share of the peak. */
static double wsd(const tx_schedule *s, int64_t step)
{
    const int64_t stable =
        s->num_stable_steps >= 0 ? s->num_stable_steps : s->total_steps - s->warmup_steps - s->num_decay_steps;
    const int64_t begin = s->warmup_steps + (stable > 0 ? stable : 0);
    const bool rises = step < s->warmup_steps;
    if (!rises && step < begin)
        return 1.0;
    if (!rises && step >= begin + s->num_decay_steps)
        return s->min_lr_ratio;
    const double progress =
        rises ? (double)step / (double)s->warmup_steps : (double)(step - begin) / (double)s->num_decay_steps;
    double factor = 0.0;
    switch (rises ? s->warmup_type : s->decay_type) {
    case TX_DECAY_COSINE:
        factor = rises ? 0.5 * (1.0 - cos(pi * progress)) : cosine(s->num_cycles, progress);
        break;
    case TX_DECAY_LINEAR:
        factor = rises ? progress : 1.0 - progress;
        break;
    case TX_DECAY_SQRT:
        factor = 1.0 - sqrt(rises ? 1.0 - progress : progress);
        break;
    case TX_DECAY_COUNT:
        break;
    }
    return fmax(0.0, factor * (1.0 - s->min_lr_ratio) + s->min_lr_ratio);
}

/* The cosine from the peak to the minimum rate, after `passed` of `span` steps. */
static double cosine_to_minimum(const tx_schedule *s, double passed, double span)
{
    const double least = !isnan(s->min_lr_rate) ? s->min_lr_rate : s->peak > 0.0 ? s->min_lr / s->peak : 0.0;
    return fmax(0.0, cosine(s->num_cycles, passed / span) * (1.0 - least) + least);
}

static double warm_up(const tx_schedule *s, int64_t step)
{
    const double now = (double)step, warmup = (double)s->warmup_steps;
    if (s->kind == TX_SCHEDULE_CONSTANT) /* only schedule-free optimizers warm up */
        return (now + 1.0) / warmup;
    if (s->kind != TX_SCHEDULE_COSINE_WARMUP_MIN_LR)
        return now / warmup;
    return isnan(s->warmup_lr_rate) ? (now + 1.0) / warmup
                                    : s->warmup_lr_rate + (1.0 - s->warmup_lr_rate) * now / fmax(1.0, warmup - 1.0);
}

static double share(const tx_schedule *s, int64_t step)
{
    const double passed = (double)(step - s->warmup_steps);
    const double span = fmax(1.0, (double)(s->total_steps - s->warmup_steps)), progress = passed / span;
    switch (s->kind) {
    case TX_SCHEDULE_LINEAR:
        return fmax(0.0, (double)(s->total_steps - step) / span);
    case TX_SCHEDULE_COSINE:
        return fmax(0.0, cosine(s->num_cycles, progress));
    case TX_SCHEDULE_COSINE_WITH_RESTARTS:
        return progress >= 1.0 ? 0.0 : fmax(0.0, 0.5 * (1.0 + cos(pi * fmod(s->num_cycles * progress, 1.0))));
    case TX_SCHEDULE_COSINE_WITH_MIN_LR:
        return cosine_to_minimum(s, passed, span);
    case TX_SCHEDULE_COSINE_WARMUP_MIN_LR:
        return cosine_to_minimum(s, passed + 1.0, span);
    case TX_SCHEDULE_INVERSE_SQRT:
        return 1.0 / sqrt((double)(step + s->timescale - s->warmup_steps) / (double)s->timescale);
    case TX_SCHEDULE_POLYNOMIAL:
        return (step > s->total_steps ? s->lr_end : (s->peak - s->lr_end) * pow(1.0 - progress, s->power) + s->lr_end) /
               s->peak;
    case TX_SCHEDULE_CONSTANT:
    case TX_SCHEDULE_CONSTANT_WITH_WARMUP:
    case TX_SCHEDULE_WSD:
    case TX_SCHEDULE_REDUCE_ON_PLATEAU:
    case TX_SCHEDULE_GREEDY:
    case TX_SCHEDULE_COUNT:
        break;
    }
    return 1.0;
}

double tx_schedule_rate(const tx_schedule *s, int64_t step)
{
    return s->peak * (s->kind == TX_SCHEDULE_WSD ? wsd(s, step)
                      : step < s->warmup_steps   ? warm_up(s, step)
                                                 : share(s, step));
}
