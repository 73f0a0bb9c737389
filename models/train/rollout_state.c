/* SPDX-License-Identifier: Apache-2.0
 * The part of a checkpoint that continues a generation batch: rollout.json. */
#include "models/train/rolling.h"

#include "models/tx_folder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "rollout.json"
#define LIMIT ((int64_t)1 << 34)
#define MOST ((int64_t)1 << 53)

/* Numbers of one kind: whole ones, fp32 or fp64. Tokens of a completion follow each other; NaN is null. */
typedef struct column {
    const char *name;
    int32_t *whole;
    int64_t *large;
    float *single;
    double *full;
    int64_t width;  /* of a completion in memory, */
    bool of_tokens; /* of which only its tokens are stored */
} column;
enum { COLUMNS = 7 };

static void list_columns(const tx_rollout *r, column columns[COLUMNS])
{
    const tx_policy_batch *b = &r->data->batch;
    const column all[COLUMNS] = {{"sample", .large = b->sample, .width = 1},
                                 {"length", .large = b->length, .width = 1},
                                 {"ids", .whole = b->ids, .width = b->most, .of_tokens = true},
                                 {"old", .single = b->old, .width = b->most, .of_tokens = true},
                                 {"reference", .single = b->reference, .width = b->most, .of_tokens = true},
                                 {"rewards", .full = b->rewards, .width = b->functions},
                                 {"kl", .full = b->kl, .width = 1}};
    memcpy(columns, all, sizeof all);
}

static tx_status add(tx_json *array, const column *c, int64_t at)
{
    if (c->whole || c->large)
        return tx_json_append_int(array, c->whole ? c->whole[at] : c->large[at]);
    const double value = c->single ? (double)c->single[at] : c->full[at];
    return isnan(value) ? tx_json_append_null(array) : tx_json_append_number(array, value);
}

static tx_status write_column(tx_json *json, const tx_policy_batch *b, const column *c)
{
    tx_json *array = tx_json_array();
    tx_status status = array ? TX_OK : tx_fail(TX_MEMORY, "no memory for a generation batch");
    for (int64_t i = 0; i < b->count; i++)
        for (int64_t t = 0; t < (c->of_tokens ? b->length[i] : c->width); t++)
            TX_THEN(status, add(array, c, i * c->width + t));
    if (!status)
        return tx_json_set(json, c->name, array);
    tx_json_free(array);
    return status;
}

static tx_status fill(const tx_rollout *r, tx_json *json)
{
    column columns[COLUMNS];
    tx_json *figures = tx_json_object();
    list_columns(r, columns);
    tx_status status = tx_json_set_int(json, "generation", r->generation);
    TX_THEN(status, tx_json_set_int(json, "num_tokens", r->tokens));
    for (int32_t i = 0; i < r->figures && !status; i++) {
        const tx_rollout_figure *f = &r->figure[i];
        tx_json *pair = tx_json_pack("[f, I]", f->sum, f->count);
        status = pair ? tx_json_set(figures, f->name, pair) : TX_MEMORY;
    }
    if (status)
        tx_json_free(figures);
    else
        status = tx_json_set(json, "figures", figures);
    for (int i = 0; i < COLUMNS; i++)
        TX_THEN(status, write_column(json, &r->data->batch, &columns[i]));
    return status;
}

tx_status tx_rollout_save(const tx_rollout *r, const char *folder)
{
    tx_json *json = tx_json_object();
    tx_status status = fill(r, json);
    TX_THEN(status, tx_json_write(TX_PATH(folder, FILE_NAME), json, TX_JSON_LINE));
    tx_json_free(json);
    return status;
}

/* ---- Reading ---------------------------------------------------------------------------------------------- */

static tx_status set(const column *c, int64_t at, const tx_json *value, int64_t most)
{
    int64_t whole = 0;
    double full = (double)NAN;
    if (c->whole || c->large) {
        TX_TRY(tx_json_as_int(value, c->name, 0, most, &whole));
        if (c->whole)
            c->whole[at] = (int32_t)whole;
        else
            c->large[at] = whole;
        return TX_OK;
    }
    if (tx_json_type_of(value) != TX_JSON_NULL)
        TX_TRY(tx_json_as_number(value, c->name, -HUGE_VAL, HUGE_VAL, &full));
    if (c->single)
        c->single[at] = (float)full;
    else
        c->full[at] = full;
    return TX_OK;
}

/* Reads a column, whose whole numbers are at most `most`. */
static tx_status read_column(const tx_json *json, const tx_policy_batch *b, const column *c, int64_t most)
{
    tx_json *array;
    size_t at = 0;
    TX_TRY(tx_json_get(json, c->name, TX_JSON_ARRAY, &array));
    for (int64_t i = 0; i < b->count; i++)
        for (int64_t t = 0; t < (c->of_tokens ? b->length[i] : c->width); t++)
            TX_TRY(set(c, i * c->width + t, tx_json_at(array, at++), most));
    return at == tx_json_size(array) ? TX_OK : tx_fail(TX_FORMAT, "%s: has too many numbers", c->name);
}

static tx_status read_figures(const tx_json *json, tx_rollout *r)
{
    tx_json *figures;
    TX_TRY(tx_json_get(json, "figures", TX_JSON_OBJECT, &figures));
    for (void *i = tx_json_first(figures); i; i = tx_json_next(figures, i)) {
        tx_rollout_figure *f = &r->figure[r->figures];
        const char *name = tx_json_key(i);
        if (r->figures == TX_ROLLOUT_FIGURES || strlen(name) >= sizeof f->name)
            return tx_fail(TX_FORMAT, "figures: are not those of this run");
        TX_TRY(tx_json_as_number(tx_json_at(tx_json_value(i), 0), name, -HUGE_VAL, HUGE_VAL, &f->sum));
        TX_TRY(tx_json_as_int(tx_json_at(tx_json_value(i), 1), name, 0, MOST, &f->count));
        strcpy(f->name, name);
        f->value = (double)NAN;
        r->figures++;
    }
    return TX_OK;
}

static tx_status read(const tx_json *json, tx_rollout *r)
{
    const tx_policy_data *d = r->data;
    column columns[COLUMNS];
    list_columns(r, columns);
    const int64_t most[COLUMNS] = {d->count - 1, d->batch.most, d->vocab - 1};
    TX_TRY(tx_json_get_int(json, "generation", 0, MOST, &r->generation));
    TX_TRY(tx_json_get_int(json, "num_tokens", 0, MOST, &r->tokens));
    TX_TRY(read_figures(json, r));
    for (int i = 0; i < COLUMNS; i++)
        TX_TRY(read_column(json, &d->batch, &columns[i], most[i]));
    for (int64_t i = 0; i < d->batch.count; i++)
        if (d->batch.length[i] < 1)
            return tx_fail(TX_FORMAT, "length: a completion has at least one token");
    return TX_OK;
}

tx_status tx_rollout_load(tx_rollout *r, const char *folder)
{
    tx_json *json = NULL;
    tx_status status = tx_json_read(TX_PATH(folder, FILE_NAME), LIMIT, &json);
    if (!status)
        status = tx_fail_in(read(json, r), "%s/%s", folder, FILE_NAME);
    tx_json_free(json);
    if (!status)
        tx_rollout_score(r);
    return status;
}
