/* SPDX-License-Identifier: Apache-2.0
 * Times the steps of all ranks, and hashes their weights. */
#include "models/train/pace.h"

#include "api/base/hash.h"
#include "models/train/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    WARM = 1,   /* steps before anything is timed: the first compiles and packs */
    TRIALS = 3, /* steps with the thread, alternating with as many without it */
    BALANCE_AT = WARM + 3,
};

struct tx_pace {
    tx_comm *comm;
    tx_comm *used[3]; /* the communicators with transfers of gradients and weights */
    tx_model *model;  /* of the step in progress */
    tx_overlap overlap;
    bool balance, chosen, background;
    int64_t all_rows;
    int64_t *rows;           /* by rank */
    int64_t step;            /* since the pace was created */
    double began, waited;    /* start of the step in progress, and the communicator's waiting time before it */
    double trial[2][TRIALS]; /* seconds of a step without the thread, and with it */
    double sum;              /* seconds of own work in the steps since the last search for the slowest rank */
    int64_t timed;           /* number of those steps */
    double *all;             /* a value of each rank */
};

tx_status tx_pace_create(const tx_pace_ranks *ranks, tx_overlap overlap, bool balance, int64_t rows, int64_t all_rows,
                         tx_pace **pace)
{
    tx_comm *comm = ranks->all;
    tx_pace *created = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "no memory to time the ranks");
    *created = (tx_pace){.comm = comm,
                         .used = {comm, ranks->shards, ranks->replicate},
                         .overlap = overlap,
                         .balance = balance && comm->size > 1,
                         .all_rows = all_rows};
    created->rows = calloc((size_t)comm->size, sizeof *created->rows);
    created->all = calloc((size_t)comm->size, sizeof *created->all);
    tx_status status = created->rows && created->all ? TX_OK : tx_fail(TX_MEMORY, "no memory to time the ranks");
    if (!status) {
        created->rows[comm->rank] = rows;
        status = tx_comm_share(comm, created->rows, sizeof *created->rows);
    }
    if (status) {
        tx_pace_free(created);
        return status;
    }
    created->chosen = overlap != TX_OVERLAP_AUTO || comm->size == 1;
    *pace = created;
    return TX_OK;
}

void tx_pace_free(tx_pace *pace)
{
    if (!pace)
        return;
    free(pace->rows);
    free(pace->all);
    free(pace);
}

static double waited(const tx_pace *p)
{
    double sum = 0.0;
    for (int i = 0; i < 3 && p->used[i]; i++) {
        tx_comm_traffic traffic;
        p->used[i]->table->traffic(p->used[i], &traffic);
        sum += traffic.waited;
    }
    return sum;
}

/* Whether the step is one of WARM to WARM + 2 TRIALS - 1, every other one of which runs with the thread. */
static bool in_trial(const tx_pace *p)
{
    return !p->chosen && p->step >= WARM && p->step < WARM + 2 * TRIALS;
}

tx_status tx_pace_begin(tx_pace *p, tx_model *model)
{
    bool on = p->chosen ? p->overlap == TX_OVERLAP_YES : in_trial(p) && (p->step - WARM) % 2 == 0;
    if (on != p->background) {
        TX_TRY(tx_model_wait(model));
        for (int i = 0; i < 3 && p->used[i]; i++)
            TX_TRY(p->used[i]->table->background(p->used[i], on));
        p->background = on;
    }
    p->model = model;
    p->began = tx_now();
    p->waited = waited(p);
    return TX_OK;
}

static int compare(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

/* Gathers a value of each rank in p->all. */
static tx_status gather_values(tx_pace *p, double mine)
{
    p->all[p->comm->rank] = mine;
    TX_TRY(tx_model_wait(p->model));
    return tx_comm_share(p->comm, p->all, sizeof *p->all);
}

static tx_status add_up(tx_pace *p, double mine, double *sum)
{
    TX_TRY(gather_values(p, mine));
    *sum = 0.0;
    for (int32_t r = 0; r < p->comm->size; r++)
        *sum += p->all[r];
    return TX_OK;
}

static tx_status choose_overlap(tx_pace *p, tx_pace_news *news)
{
    for (int k = 0; k < 2; k++)
        qsort(p->trial[k], TRIALS, sizeof p->trial[k][0], compare);
    TX_TRY(add_up(p, p->trial[1][TRIALS / 2], &news->with));
    TX_TRY(add_up(p, p->trial[0][TRIALS / 2], &news->without));
    p->overlap = news->with < news->without ? TX_OVERLAP_YES : TX_OVERLAP_NO;
    p->chosen = true;
    news->overlap_chosen = true;
    news->overlap = p->overlap == TX_OVERLAP_YES;
    return TX_OK;
}

static tx_status divide_rows(tx_pace *p, double seconds, tx_pace_news *news)
{
    tx_status status = gather_values(p, (double)p->rows[p->comm->rank] / seconds);
    p->balance = false;
    TX_THEN(status, tx_pace_apportion(p->all, p->comm->size, p->all_rows, p->rows));
    news->shared = status == TX_OK;
    news->rows = p->rows;
    p->sum = 0.0;
    p->timed = 0;
    return status;
}

static tx_status find_slowest(tx_pace *p, tx_pace_news *news)
{
    TX_TRY(gather_values(p, p->sum / (double)p->timed));
    p->sum = 0.0;
    p->timed = 0;
    news->looked = true;
    news->slowest = 0;
    for (int32_t r = 1; r < p->comm->size; r++)
        if (p->all[r] > p->all[news->slowest])
            news->slowest = r;
    news->seconds = p->all[news->slowest];
    qsort(p->all, (size_t)p->comm->size, sizeof *p->all, compare);
    news->median = 0.5 * (p->all[p->comm->size / 2] + p->all[(p->comm->size - 1) / 2]);
    return TX_OK;
}

tx_status tx_pace_end(tx_pace *p, tx_pace_news *news)
{
    *news = (tx_pace_news){0};
    if (p->comm->size == 1)
        return TX_OK;
    double seconds = tx_now() - p->began, own = seconds - (waited(p) - p->waited);
    if (in_trial(p))
        p->trial[(p->step - WARM) % 2 == 0][(p->step - WARM) / 2] = seconds;
    if (p->step >= WARM) {
        p->sum += own > 1e-9 ? own : 1e-9;
        p->timed++;
    }
    p->step++;
    if (p->balance && p->step == BALANCE_AT)
        TX_TRY(divide_rows(p, p->sum / (double)p->timed, news));
    if (!p->chosen && p->step == WARM + 2 * TRIALS)
        TX_TRY(choose_overlap(p, news));
    if (p->timed >= TX_PACE_STEPS)
        TX_TRY(find_slowest(p, news));
    return TX_OK;
}

tx_status tx_pace_apportion(const double *weight, int32_t ranks, int64_t rows, int64_t *share)
{
    double total = 0.0;
    int64_t given = 0;
    if (rows < ranks)
        return tx_fail(TX_INVALID, "%" PRId64 " rows of a micro-batch are too few for %" PRId32 " ranks", rows, ranks);
    for (int32_t r = 0; r < ranks; r++)
        total += weight[r];
    for (int32_t r = 0; r < ranks; r++) {
        double exact = (double)rows * weight[r] / total;
        share[r] = exact < 1.0 ? 1 : (int64_t)exact;
        given += share[r];
    }
    while (given != rows) {
        const int64_t change = given < rows ? 1 : -1;
        int32_t best = -1;
        double most = 0.0;
        for (int32_t r = 0; r < ranks; r++) {
            double gap = ((double)rows * weight[r] / total - (double)share[r]) * (double)change;
            if (share[r] + change >= 1 && (best < 0 || gap > most)) {
                best = r;
                most = gap;
            }
        }
        share[best] += change;
        given += change;
    }
    return TX_OK;
}

/* Hashes all weights by whole words, which is four times as fast as by bytes. */
static tx_status hash_weights(tx_model *model, uint64_t *hash)
{
    enum { PIECE = 1 << 16 };
    float *words = malloc(PIECE * sizeof *words);
    tx_status status = words ? TX_OK : tx_fail(TX_MEMORY, "no memory to compare the weights");
    uint64_t h = TX_HASH_START;
    for (int32_t i = 0; i < tx_model_param_count(model) && !status; i++) {
        const char *name;
        const tx_param_spec *spec;
        status = tx_model_param(model, i, &name, &spec);
        int64_t count = status ? 0 : tx_shape_count(&spec->logical);
        for (int64_t at = 0; at < count && !status; at += PIECE) {
            int64_t now = count - at < PIECE ? count - at : PIECE;
            status = tx_model_read_range(model, TX_PARAM_WEIGHT, i, at, now, words);
            if (!status)
                h = tx_hash_words(h, words, now);
        }
    }
    free(words);
    *hash = h;
    return status;
}

char *tx_pace_shares_text(const int64_t *share, int32_t ranks)
{
    const size_t room = (size_t)ranks * 21 + 1; /* 20 characters of a number, and a comma */
    char *text = malloc(room);
    size_t used = 0;
    for (int32_t r = 0; text && r < ranks; r++)
        used += (size_t)snprintf(text + used, room - used, "%s%" PRId64, r ? "," : "", share[r]);
    return text;
}

tx_status tx_pace_compare_weights(tx_model *model, tx_comm *comm, const char *cause, uint64_t *hash)
{
    uint64_t mine;
    TX_TRY(tx_model_wait(model));
    TX_TRY(hash_weights(model, &mine));
    mine ^= tx_model_written(model); /* sharded weights are equal after the gather, so the writes are compared too */
    tx_status status;
    uint64_t *all = tx_comm_gather(comm, &mine, sizeof mine, &status);
    for (int32_t r = 1; r < comm->size && !status; r++)
        if (all[r] != all[0])
            status = tx_fail(
                TX_DEVICE, "rank %" PRId32 " on %s has other weights than rank 0 (%016" PRIx64 ", %016" PRIx64 "): %s",
                r, comm->ranks[r].name, all[r], all[0], cause);
    if (!status)
        *hash = all[0];
    free(all);
    return status;
}
