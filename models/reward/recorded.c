/* SPDX-License-Identifier: Apache-2.0
 * Reads completions and their rewards from a file. */
#include "models/data/rows.h"
#include "models/reward/reward.h"

#include "api/base/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

tx_status tx_reward_add_name(const char *name, size_t size, tx_reward_names *names)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    char *own = names->name[names->count];
    if (names->count == TX_REWARDS_MAX)
        return tx_fail(TX_INVALID, "at most %d rewards", TX_REWARDS_MAX);
    if (size < 1 || size >= TX_REWARD_NAME || strspn(name, allowed) < size)
        return tx_fail(TX_INVALID, "\"%.*s\" is no name of 1 to %d letters, digits, _, - and .",
                       (int)(size < 80 ? size : 80), name, TX_REWARD_NAME - 1);
    snprintf(own, TX_REWARD_NAME, "%.*s", (int)size, name);
    for (int32_t k = 0; k < names->count; k++)
        if (strcmp(names->name[k], own) == 0)
            return tx_fail(TX_INVALID, "two rewards have the name %s", own);
    names->count++;
    return TX_OK;
}

tx_status tx_reward_weigh(const char *weights, tx_reward_names *names)
{
    int32_t count = 0;
    char *end = NULL;
    for (int32_t k = 0; k < names->count; k++)
        names->weight[k] = 1.0;
    for (const char *at = weights; at && *at; at = *end ? end + 1 : end, count++) {
        const double weight = tx_number_read(at, &end);
        if (end == at || (*end && *end != ',') || !isfinite(weight))
            return tx_fail(TX_INVALID, "--reward_weights %s: \"%.*s\" is not a number", weights, (int)strcspn(at, ","),
                           at);
        if (count < names->count)
            names->weight[count] = weight;
    }
    return !weights || count == names->count
               ? TX_OK
               : tx_fail(TX_INVALID, "--reward_weights %s: give one weight for each of the %" PRId32 " rewards",
                         weights, names->count);
}

/* The first object names the rewards. */
static tx_status read_names(const tx_json *rewards, tx_reward_names *names)
{
    for (void *i = tx_json_first(rewards); i; i = tx_json_next(rewards, i))
        TX_TRY(tx_fail_in(tx_reward_add_name(tx_json_key(i), strlen(tx_json_key(i)), names), "rewards"));
    return names->count ? TX_OK : tx_fail(TX_FORMAT, "rewards: expected a number, or null, for each name");
}

static tx_status read_rewards(const tx_json *rewards, const tx_reward_names *names, double *to)
{
    if (tx_json_size(rewards) != (size_t)names->count)
        return tx_fail(TX_FORMAT, "rewards: all objects must have the same names");
    for (int32_t k = 0; k < names->count; k++) {
        const tx_json *value = tx_json_find(rewards, names->name[k]);
        to[k] = (double)NAN;
        if (!value || tx_json_type_of(value) != TX_JSON_NULL)
            TX_TRY(tx_fail_in(tx_json_get_number(rewards, names->name[k], -1e30, 1e30, &to[k]), "rewards"));
    }
    return TX_OK;
}

static tx_status read_object(const tx_json *object, int64_t most, int64_t vocab, tx_recorded *r)
{
    tx_json *ids, *rewards;
    int64_t id;
    TX_TRY(tx_json_get(object, "completion_ids", TX_JSON_ARRAY, &ids));
    TX_TRY(tx_json_get(object, "rewards", TX_JSON_OBJECT, &rewards));
    const size_t count = tx_json_size(ids);
    if (count < 1 || count > (size_t)most)
        return tx_fail(TX_FORMAT, "completion_ids: %zu ids; a completion has 1 to %" PRId64, count, most);
    TX_TRY(tx_ids_reserve(&r->ids, count));
    for (size_t t = 0; t < count; t++) {
        TX_TRY(tx_json_as_int(tx_json_at(ids, t), "completion_ids", 0, vocab - 1, &id));
        r->ids.id[r->ids.count++] = (int32_t)id;
    }
    if (!r->count)
        TX_TRY(read_names(rewards, &r->names));
    double *grown = realloc(r->rewards, (size_t)((r->count + 1) * r->names.count) * sizeof *grown);
    int64_t *ends = grown ? realloc(r->end, (size_t)(r->count + 1) * sizeof *ends) : NULL;
    r->rewards = grown ? grown : r->rewards;
    r->end = ends ? ends : r->end;
    if (!grown || !ends)
        return tx_fail(TX_MEMORY, "no memory for completions");
    TX_TRY(read_rewards(rewards, &r->names, r->rewards + r->count * r->names.count));
    r->end[r->count++] = (int64_t)r->ids.count;
    return TX_OK;
}

tx_status tx_recorded_open(const char *path, int64_t most, int64_t vocab, tx_recorded *recorded)
{
    tx_rows *rows = NULL;
    const tx_json *object;
    *recorded = (tx_recorded){.count = 0};
    tx_status status = tx_rows_open(path, &rows);
    TX_THEN(status, tx_rows_index(rows));
    for (int64_t i = 0; !status && i < tx_rows_count(rows); i++) {
        status = tx_rows_read(rows, i, &object);
        TX_THEN(status, read_object(object, most, vocab, recorded));
        status = tx_rows_skip(rows, i, 0, status);
    }
    tx_rows_close(rows);
    return tx_fail_in(status, "--rollout_file %s", path);
}

void tx_recorded_close(tx_recorded *recorded)
{
    free(recorded->ids.id);
    free(recorded->end);
    free(recorded->rewards);
    *recorded = (tx_recorded){.count = 0};
}
