/* SPDX-License-Identifier: Apache-2.0
 * Puts rows of similar length into the same step. */
#include "models/task/loader.h"

#include "api/base/thread.h"

#include <inttypes.h>
#include <stdlib.h>

/* A group has BATCHES batches, or fewer so that there are GROUPS groups. */
enum { BATCHES = 50, GROUPS = 4 };

typedef struct entry {
    int64_t sample, place, length; /* `place` is the position in the shuffle */
} entry;

struct tx_grouping {
    tx_samples samples;
    int64_t group; /* entries */
    pthread_mutex_t mutex;
    bool valid;
    uint64_t epoch; /* of the entries, if `created` */
    entry entries[];
};

tx_status tx_grouping_create(const tx_samples *samples, int64_t batch, tx_grouping **grouping)
{
    const int64_t most = samples->count / GROUPS / batch, batches = most < 1 ? 1 : most < BATCHES ? most : BATCHES;
    tx_grouping *created = malloc(sizeof *created + (size_t)samples->count * sizeof *created->entries);
    if (!created)
        return tx_fail(TX_MEMORY, "no memory to group %" PRId64 " samples by length", samples->count);
    *created = (tx_grouping){.samples = *samples, .group = batches * batch, .mutex = PTHREAD_MUTEX_INITIALIZER};
    *grouping = created;
    return TX_OK;
}

void tx_grouping_free(tx_grouping *grouping)
{
    if (grouping)
        pthread_mutex_destroy(&grouping->mutex);
    free(grouping);
}

/* Descending by length. Rows of the same length keep the order of the shuffle. */
static int by_length(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    if (a->length != b->length)
        return a->length > b->length ? -1 : 1;
    return a->place < b->place ? -1 : 1;
}

static void make(tx_grouping *g, const tx_sample_order *order)
{
    const tx_samples *samples = &g->samples;
    entry *const all = g->entries, *longest = all;
    for (int64_t i = 0; i < samples->count; i++) {
        const int64_t sample = tx_sample_order_at(order, samples->count, i);
        all[i] = (entry){sample, i, samples->task->length(samples, sample)};
    }
    for (int64_t i = 0; i < samples->count; i += g->group) {
        const int64_t left = samples->count - i;
        qsort(all + i, (size_t)(left < g->group ? left : g->group), sizeof *all, by_length);
        longest = all[i].length > longest->length ? &all[i] : longest;
    }
    const entry first = all[0];
    all[0] = *longest;
    *longest = first;
    g->epoch = order->epoch;
    g->valid = true;
}

int64_t tx_grouping_at(tx_grouping *grouping, const tx_sample_order *order, int64_t place)
{
    pthread_mutex_lock(&grouping->mutex);
    if (!grouping->valid || grouping->epoch != order->epoch)
        make(grouping, order);
    const int64_t sample = grouping->entries[place].sample;
    pthread_mutex_unlock(&grouping->mutex);
    return sample;
}
