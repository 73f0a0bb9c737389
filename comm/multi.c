/* SPDX-License-Identifier: Apache-2.0
 * The communicator of many ranks: windows of shared memory within a host, and messages between hosts and for all
 * other data. */
#include "api/base/environment.h"
#include "comm/common.h"
#include "comm/exchange.h"
#include "comm/heartbeat.h"
#include "comm/message.h"
#include "comm/queue.h"
#include "comm/window.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A path for data: through windows between groups of ranks that share them, or with each rank as its own group. */
typedef struct path {
    tx_comm_layout *layout;
    tx_group group; /* the group of this rank */
    tx_exchange *exchange;
} path;

typedef struct multi {
    tx_comm base;
    struct multi *next;           /* previous subgroup in the list of the parent */
    _Atomic(struct multi *) subs; /* subgroups, latest first */
    int32_t *opened; /* in a subgroup, by rank: its rank in the communicator that was opened; otherwise NULL */
    tx_transport *transport;
    tx_comm_rank *who;
    path shared_path, message_path;
    tx_window *marks; /* one tx_mark per rank of the group */
    tx_mark **mark;   /* by place */
    tx_window *windows;
    char **segment; /* by place: data of the current transfer */
    tx_messages *messages;
    atomic_int bucket;       /* bucket of the current transfer */
    atomic_llong begun;      /* transfers and messages so far */
    tx_comm_traffic traffic; /* bytes; written by the thread that executes transfers */
    atomic_llong sent, shared;
} multi;

extern const tx_comm_table tx_comm_mpi;

/* ---- Placement of ranks ---------------------------------------------------------------------- */

/* The information that each rank sends to all others when the communicator is opened. */
typedef struct introduction {
    int32_t lowest;     /* lowest rank on its host */
    int32_t max_shared; /* maximum number of ranks of a host that share memory, from its environment */
    char name[sizeof((tx_comm_rank *)0)->name];
} introduction;

/* Reads TX_COMM_SHM: the maximum number of ranks of a host that share memory. */
static tx_status read_max_shared(int32_t *max_shared)
{
    TX_TRY(tx_environment_count("TX_COMM_SHM", 0, INT32_MAX,
                                "the number of ranks of a host that may share memory, or 0 to disable it", max_shared));
    *max_shared = *max_shared > 1 ? *max_shared : 1;
    return TX_OK;
}

/* Collects the introductions of all ranks. Fails on all ranks if one of them cannot provide its own. */
static tx_status introduce(multi *c, introduction *all)
{
    introduction own = {0};
    tx_status status = read_max_shared(&own.max_shared);
    if (status)
        own.max_shared = -1;
    tx_status found = tx_transport_host(c->transport, own.name, sizeof own.name, &own.lowest);
    if (!found)
        found = tx_transport_gather(c->transport, &own, all, sizeof own);
    for (int32_t r = 0; r < c->base.size && !found && !status; r++)
        if (all[r].max_shared != own.max_shared)
            return tx_fail(TX_INVALID,
                           "TX_COMM_SHM of rank %" PRId32 " on %s differs from that of rank %" PRId32 " on %s", r,
                           all[r].name, c->base.rank, own.name);
    return status ? status : found;
}

/* Hosts and groups are numbered in the order of their lowest ranks. */
static tx_status find_groups(multi *c, const introduction *all, int32_t *group)
{
    int32_t hosts = 0, groups = 0;
    for (int32_t r = 0; r < c->base.size; r++) {
        int32_t local = 0, first = r; /* index on its host, and first rank of its group */
        for (int32_t other = r - 1; other >= 0; other--)
            local += all[other].lowest == all[r].lowest;
        for (int32_t other = r - 1, i = 0; other >= 0 && i < local % all[r].max_shared; other--)
            if (all[other].lowest == all[r].lowest) {
                first = other;
                i++;
            }
        memcpy(c->who[r].name, all[r].name, sizeof all[r].name);
        c->who[r].host = all[r].lowest == r ? hosts++ : c->who[all[r].lowest].host;
        group[r] = first == r ? groups++ : group[first];
        c->base.local_size += all[r].lowest == all[c->base.rank].lowest;
        if (r == c->base.rank)
            c->base.local_rank = local;
    }
    TX_TRY(tx_comm_layout_create(group, c->base.size, &c->shared_path.layout));
    for (int32_t r = 0; r < c->base.size; r++)
        group[r] = r;
    return tx_comm_layout_create(group, c->base.size, &c->message_path.layout);
}

static tx_status find_ranks(multi *c)
{
    const size_t size = (size_t)c->base.size;
    introduction *all = calloc(size, sizeof *all);
    int32_t *group = calloc(size, sizeof *group);
    c->who = calloc(size, sizeof *c->who);
    c->base.ranks = c->who;
    tx_status status = all && group && c->who ? TX_OK : tx_fail(TX_MEMORY, "no memory for the list of ranks");
    TX_THEN(status, introduce(c, all));
    TX_THEN(status, find_groups(c, all, group));
    free(all);
    free(group);
    return status;
}

/* ---- Opening and closing --------------------------------------------------------------------- */

/* Creates the marks of the group, in a window with one page per rank. */
static tx_status make_marks(multi *c)
{
    TX_TRY(tx_window_create(c->transport, c->shared_path.layout, c->who, (int64_t)sizeof(tx_mark), &c->marks));
    c->mark = calloc((size_t)c->marks->members, sizeof *c->mark);
    c->segment = calloc((size_t)c->marks->members, sizeof *c->segment);
    if (!c->mark || !c->segment)
        return tx_fail(TX_MEMORY, "no memory for a communicator");
    for (int32_t i = 0; i < c->marks->members; i++)
        c->mark[i] = (tx_mark *)(void *)c->marks->segment[i];
    atomic_store(&c->mark[c->marks->place]->waits_for, -1);
    return TX_OK;
}

static tx_status make_path(multi *c, path *w, tx_mark *const *mark)
{
    const tx_comm_layout *l = w->layout;
    const int32_t group = l->group[c->base.rank];
    w->group = (tx_group){.place = l->place[c->base.rank],
                          .size = l->start[group + 1] - l->start[group],
                          .member = l->member + l->start[group],
                          .mark = mark};
    return tx_exchange_create(l, c->transport, &w->group, &w->exchange);
}

static tx_status make_paths(multi *c)
{
    TX_TRY(make_marks(c));
    TX_TRY(make_path(c, &c->shared_path, c->mark));
    TX_TRY(make_path(c, &c->message_path, &c->mark[c->marks->place]));
    int32_t slots = tx_exchange_slots(c->message_path.exchange), others = tx_exchange_slots(c->shared_path.exchange);
    int64_t bytes = tx_exchange_message(c->message_path.exchange), more = tx_exchange_message(c->shared_path.exchange);
    bytes = bytes > more ? bytes : more;
    slots = slots > others ? slots : others;
    TX_TRY(tx_messages_create(c->transport, &c->shared_path.group, slots, bytes, &c->messages));
    return tx_transport_slots(c->transport, slots + TX_MESSAGE_SLOTS, bytes);
}

static void multi_close(tx_comm *comm)
{
    multi *c = (multi *)comm;
    if (!c)
        return;
    for (multi *sub = c->subs, *next; sub; sub = next) {
        next = sub->next;
        multi_close(&sub->base);
    }
    tx_queue_free(c->base.queue);
    tx_heartbeat_close(c->base.heartbeat);
    tx_transport_close(c->transport);
    while (c->windows) {
        tx_window *next = c->windows->next;
        tx_window_free(c->windows);
        c->windows = next;
    }
    tx_window_free(c->marks);
    tx_messages_free(c->messages);
    tx_exchange_free(c->shared_path.exchange);
    tx_exchange_free(c->message_path.exchange);
    free(c->shared_path.layout);
    free(c->message_path.layout);
    free(c->mark);
    free(c->segment);
    free(c->who);
    free(c->opened);
    free(c);
}

static tx_status make(tx_comm *comm, const tx_transfer *t);

/* Creates everything except the heartbeat from the transport. */
static tx_status gather(multi *c)
{
    TX_TRY(find_ranks(c));
    TX_TRY(make_paths(c));
    return tx_queue_create(&c->base, make);
}

static void set_rank(multi *c)
{
    c->base.rank = c->transport->rank;
    c->base.size = c->transport->size;
}

static tx_status join(multi *c, int *argc, char ***argv)
{
    const char *advice = "";
    TX_TRY(tx_transport_open(argc, argv, &c->transport, &advice));
    set_rank(c);
    TX_TRY(tx_launcher_check(c->base.size, advice, true));
    TX_TRY(gather(c));
    return tx_heartbeat_open(&c->base);
}

static tx_status make_multi(multi **created)
{
    *created = calloc(1, sizeof **created);
    if (!*created)
        return tx_fail(TX_MEMORY, "no memory for a communicator");
    (*created)->base.table = &tx_comm_mpi;
    atomic_init(&(*created)->bucket, -1);
    return TX_OK;
}

static tx_status multi_open(int *argc, char ***argv, tx_comm **comm)
{
    multi *created = NULL;
    TX_TRY(make_multi(&created));
    tx_status status = join(created, argc, argv);
    if (status)
        multi_close(&created->base);
    else
        *comm = &created->base;
    return status;
}

/* ---- Subgroups ------------------------------------------------------------------------------- */

static tx_status part(const multi *parent, int32_t colour, int32_t key, multi *c)
{
    const int32_t own = parent->opened ? parent->opened[parent->base.rank] : parent->base.rank;
    TX_TRY(tx_transport_split(parent->transport, colour, key, &c->transport));
    set_rank(c);
    TX_TRY(gather(c));
    c->opened = malloc((size_t)c->base.size * sizeof *c->opened);
    if (!c->opened)
        return tx_fail(TX_MEMORY, "no memory for a communicator");
    return tx_transport_gather(c->transport, &own, c->opened, sizeof own);
}

static tx_status multi_sub(tx_comm *parent, int32_t colour, int32_t key, tx_comm **sub)
{
    multi *p = (multi *)parent, *created = NULL;
    TX_TRY(tx_exchange_barrier(p->shared_path.exchange)); /* see multi_window */
    TX_TRY(make_multi(&created));
    tx_status status = part(p, colour, key, created);
    if (status) {
        multi_close(&created->base);
        return status;
    }
    created->next = p->subs;
    p->subs = created;
    *sub = &created->base;
    return TX_OK;
}

static tx_status multi_window(tx_comm *comm, int64_t bytes, void **memory)
{
    multi *c = (multi *)comm;
    tx_window *window = NULL;
    TX_TRY(tx_queue_check_empty(comm, "window"));
    /* Creating a window uses blocking MPI calls, which do not publish the rank that they wait for. */
    TX_TRY(tx_exchange_barrier(c->shared_path.exchange));
    TX_TRY(tx_window_create(c->transport, c->shared_path.layout, c->who, bytes, &window));
    window->next = c->windows;
    c->windows = window;
    *memory = window->segment[window->place];
    return TX_OK;
}

/* ---- Transfers ------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t digest, uint64_t value)
{
    digest = (digest ^ value) * 0x9E3779B97F4A7C15u;
    return digest ^ (digest >> 29);
}

/* Returns a digest of the parameters that must agree on all ranks of the group. */
static uint64_t digest_of(const tx_transfer *t, int32_t ranks, int64_t offset)
{
    uint64_t digest = mix(mix(0, (uint64_t)t->kind), (uint64_t)t->dtype);
    digest = mix(mix(digest, (uint64_t)t->wire), t->kind == TX_BROADCAST ? (uint64_t)t->root : 0);
    for (int32_t r = 0; t->shard && r <= ranks; r++)
        digest = mix(digest, (uint64_t)t->shard[r]);
    return mix(mix(digest, (uint64_t)t->count), (uint64_t)offset);
}

static tx_status make_in_window(multi *c, const tx_transfer *t, const tx_window *w)
{
    const int64_t offset = (char *)t->data - w->segment[w->place];
    for (int32_t i = 0; i < w->members; i++)
        c->segment[i] = w->segment[i] + offset;
    TX_TRY(tx_group_meet(&c->shared_path.group, digest_of(t, c->base.size, offset)));
    TX_TRY(tx_exchange_run(c->shared_path.exchange, t, c->segment, &c->traffic));
    return tx_group_barrier(&c->shared_path.group);
}

static tx_status make(tx_comm *comm, const tx_transfer *t)
{
    multi *c = (multi *)comm;
    char *data = t->data;
    atomic_store_explicit(&c->bucket, t->bucket, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->begun, 1, memory_order_relaxed);
    tx_status status = TX_OK;
    /* If every group has a single rank, the other path is used. */
    const bool shared = c->shared_path.layout->groups < c->base.size;
    const tx_window *w =
        shared ? tx_window_find(c->windows, t->data, t->count * (int64_t)tx_dtype_size(t->dtype)) : NULL;
    if (t->kind == TX_BARRIER)
        status = tx_exchange_barrier(c->shared_path.exchange);
    else if (t->count > 0)
        status = w ? make_in_window(c, t, w) : tx_exchange_run(c->message_path.exchange, t, &data, &c->traffic);
    atomic_fetch_add_explicit(&c->sent, c->traffic.sent, memory_order_relaxed);
    c->traffic.sent = 0;
    atomic_store_explicit(&c->shared, c->traffic.shared, memory_order_relaxed);
    return status;
}

/* ---- Messages -------------------------------------------------------------------------------- */

static tx_status multi_begin_message(tx_comm *comm, const tx_message *message, int32_t *request)
{
    multi *c = (multi *)comm;
    TX_TRY(tx_comm_check_message(comm, message));
    TX_TRY(tx_messages_begin(c->messages, message, request));
    atomic_fetch_add_explicit(&c->begun, 1, memory_order_relaxed);
    if (message->out)
        atomic_fetch_add_explicit(&c->sent, message->count * (int64_t)tx_dtype_size(message->dtype),
                                  memory_order_relaxed);
    return TX_OK;
}

static tx_status multi_wait_message(tx_comm *comm, int32_t request)
{
    return tx_messages_wait(((multi *)comm)->messages, request);
}

static tx_status multi_peer_all_reduce(tx_comm *comm, const float *data, float *sum, int64_t count)
{
    TX_TRY(tx_queue_check_empty(comm, "peer_all_reduce"));
    return tx_transport_all_reduce(((multi *)comm)->transport, data, sum, count);
}

/* ---- Status ---------------------------------------------------------------------------------- */

static void multi_traffic(const tx_comm *comm, tx_comm_traffic *traffic)
{
    const multi *c = (const multi *)comm;
    traffic->sent = atomic_load_explicit(&c->sent, memory_order_relaxed);
    traffic->shared = atomic_load_explicit(&c->shared, memory_order_relaxed);
    tx_queue_times(c->base.queue, &traffic->moving, &traffic->waited);
}

static bool multi_laggard(tx_comm *comm, tx_comm_laggard *laggard)
{
    multi *c = (multi *)comm;
    laggard->rank = tx_group_laggard(&c->shared_path.group);
    laggard->bucket = atomic_load_explicit(&c->bucket, memory_order_relaxed);
    laggard->begun = atomic_load_explicit(&c->begun, memory_order_relaxed);
    if (laggard->rank >= 0 && c->opened)
        laggard->rank = c->opened[laggard->rank];
    for (multi *sub = c->subs; sub; sub = sub->next) {
        tx_comm_laggard of_sub;
        multi_laggard(&sub->base, &of_sub);
        of_sub.begun += laggard->begun;
        if (laggard->rank < 0)
            *laggard = of_sub;
        laggard->begun = of_sub.begun; /* of all groups */
    }
    return laggard->rank >= 0;
}

const tx_comm_table tx_comm_mpi = {
    .name = "mpi",
    .open = multi_open,
    .close = multi_close,
    .sub = multi_sub,
    .window = multi_window,
    .begin = tx_queue_begin,
    .wait = tx_queue_wait,
    .background = tx_queue_background,
    .begin_message = multi_begin_message,
    .wait_message = multi_wait_message,
    .traffic = multi_traffic,
    .send_status = tx_heartbeat_send,
    .read_status = tx_heartbeat_read,
    .laggard = multi_laggard,
    .leave = tx_leave,
    .peer_all_reduce = multi_peer_all_reduce,
};
