/* SPDX-License-Identifier: Apache-2.0
 * Learning-rate schedules. */
#include "models/train/schedule.h"

#include "api/base/json.h"

#include <math.h>
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
    int64_t tenth = total_steps / 10;
    return (tx_schedule){
        .kind = kind,
        .peak = peak,
        .warmup_steps = kind == TX_SCHEDULE_CONSTANT ? 0 : warmup_steps,
        .total_steps = total_steps,
        .cycles = 0.5,
        .end = 1e-7,
        .power = 1.0,
        .decay_steps = tenth > 1 ? tenth : 1,
    };
}

/* ---- lr_scheduler_kwargs ------------------------------------------------------------------------ */

/* One key of the object; `kinds` has a bit for each kind of schedule that knows it. */
static tx_status adjust_key(tx_schedule *s, const tx_json *json, const char *key)
{
    const unsigned kind = 1u << s->kind, wsd = 1u << TX_SCHEDULE_WSD;
    const unsigned cosine = 1u << TX_SCHEDULE_COSINE, polynomial = 1u << TX_SCHEDULE_POLYNOMIAL;
    static const char *const decays[] = {
#define X(id, text) text,
        TX_DECAY_MAP(X)
#undef X
    };
    const char *name;
    if (strcmp(key, "num_cycles") == 0 && kind & (cosine | wsd))
        return tx_json_get_number(json, key, 0, 1e6, &s->cycles);
    if (strcmp(key, "lr_end") == 0 && kind & polynomial)
        return tx_json_get_number(json, key, 0, s->peak, &s->end);
    if (strcmp(key, "power") == 0 && kind & polynomial)
        return tx_json_get_number(json, key, 0, 100, &s->power);
    if (strcmp(key, "num_decay_steps") == 0 && kind & wsd)
        return tx_json_get_int(json, key, 0, s->total_steps, &s->decay_steps);
    if (strcmp(key, "min_lr_ratio") == 0 && kind & wsd)
        return tx_json_get_number(json, key, 0, 1, &s->least);
    if (strcmp(key, "decay_type") == 0 && kind & wsd) {
        TX_TRY(tx_json_get_string(json, key, &name));
        for (int i = 0; i < TX_DECAY_COUNT; i++)
            if (strcmp(name, decays[i]) == 0) {
                s->decay = (tx_decay_kind)i;
                return TX_OK;
            }
        return tx_fail(TX_INVALID, "decay_type: \"%.40s\" is not cosine, linear or 1-sqrt", name);
    }
    return tx_fail(TX_INVALID,
                   "%.40s is not a setting of %s (there are num_cycles of cosine, lr_end and power of "
                   "polynomial, num_decay_steps, min_lr_ratio, decay_type and num_cycles of wsd)",
                   key, tx_schedule_name(s->kind));
}

tx_status tx_schedule_adjust(tx_schedule *schedule, const char *text)
{
    tx_schedule made = *schedule;
    tx_json *json = NULL;
    TX_TRY(tx_json_parse(text, strlen(text), "lr_scheduler_kwargs", &json));
    tx_status status = TX_OK;
    if (tx_json_type_of(json) != TX_JSON_OBJECT)
        status = tx_fail(TX_INVALID, "not a JSON object");
    for (void *i = tx_json_first(json); i && !status; i = tx_json_next(json, i))
        status = adjust_key(&made, json, tx_json_key(i));
    tx_json_free(json);
    if (status)
        return tx_fail_in(status, "lr_scheduler_kwargs");
    *schedule = made;
    return TX_OK;
}

/* ---- The rate ------------------------------------------------------------------------------------- */

static const double pi = 3.14159265358979323846;

static double wsd_factor(const tx_schedule *s, int64_t step)
{
    int64_t decay = s->decay_steps, begin = s->total_steps - decay;
    if (begin < s->warmup_steps)
        begin = s->warmup_steps;
    if (step < s->warmup_steps)
        return (double)step / (double)s->warmup_steps * (1.0 - s->least) + s->least;
    if (step < begin)
        return 1.0;
    if (step >= begin + decay)
        return s->least;
    double progress = (double)(step - begin) / (double)decay, factor = 0.0;
    switch (s->decay) {
    case TX_DECAY_COSINE:
        factor = 0.5 * (1.0 + cos(pi * s->cycles * 2.0 * progress));
        break;
    case TX_DECAY_LINEAR:
        factor = 1.0 - progress;
        break;
    case TX_DECAY_SQRT:
        factor = 1.0 - sqrt(progress);
        break;
    case TX_DECAY_COUNT:
        break;
    }
    return fmax(0.0, factor * (1.0 - s->least) + s->least);
}

double tx_schedule_rate(const tx_schedule *s, int64_t step)
{
    int64_t warmup = s->warmup_steps, total = s->total_steps;
    if (s->kind == TX_SCHEDULE_WSD)
        return s->peak * wsd_factor(s, step);
    if (step < warmup)
        return s->peak * ((double)step / (double)warmup);
    int64_t span = total - warmup > 1 ? total - warmup : 1;
    double progress = (double)(step - warmup) / (double)span;
    switch (s->kind) {
    case TX_SCHEDULE_LINEAR:
        return s->peak * fmax(0.0, (double)(total - step) / (double)span);
    case TX_SCHEDULE_COSINE:
        return s->peak * fmax(0.0, 0.5 * (1.0 + cos(pi * s->cycles * 2.0 * progress)));
    case TX_SCHEDULE_POLYNOMIAL:
        return step > total ? s->end : (s->peak - s->end) * pow(1.0 - progress, s->power) + s->end;
    case TX_SCHEDULE_CONSTANT:
    case TX_SCHEDULE_CONSTANT_WITH_WARMUP:
    case TX_SCHEDULE_WSD:
    case TX_SCHEDULE_COUNT:
        break;
    }
    return s->peak;
}
