/* SPDX-License-Identifier: Apache-2.0
 * Transfers between groups of ranks: messages and sums, chunk by chunk (exchange.h). */
#include "comm/exchange.h"
#include "api/base/arithmetic.h"
#include "comm/common.h"

#include <stdlib.h>

enum {
    LANES = 3,          /* chunks in progress */
    BUFFERS = 32 << 20, /* bytes of all buffers, unless the minimum chunk needs more */
    MIN_CHUNK = 1024,   /* elements */
    MAX_CHUNK = 1 << 17,
};

/* Buffers of one chunk, with 4 bytes per element. */
typedef struct lane {
    char *addends; /* this rank's piece: node sums of the other groups, by group */
    char *own;     /* this rank's piece: node sums of its own group, if they are rounded before the addition */
    char *result;  /* this rank's piece: the rounded result */
    char *nodes;   /* other pieces: node sums of this group, by piece */
    char *results; /* other pieces: their rounded results */
} lane;

struct tx_exchange {
    const tx_comm_layout *layout;
    tx_transport *transport;
    tx_group *group;
    int32_t mine;   /* index of this rank's group */
    int32_t *piece; /* owners of the other groups' pieces that this rank handles */
    int32_t pieces;
    int32_t chunk; /* elements */
    char *buffers;
    lane lane[LANES];
    tx_term *term; /* capacity: number of ranks */
    void **out;    /* capacity: number of group members plus one */
    tx_waiter waiter;
    /* The current transfer. */
    const tx_transfer *transfer;
    char *const *segment;
    tx_comm_traffic *traffic;
    bool sums, spreads;    /* steps 1 and 3 are needed */
    tx_dtype node, result; /* types in which node sums and results are sent */
    int64_t bytes;         /* bytes of a data element */
};

static int32_t others(const tx_exchange *e)
{
    return e->layout->groups - 1;
}

/* ---- Creation -------------------------------------------------------------------------------- */

void tx_exchange_free(tx_exchange *exchange)
{
    if (!exchange)
        return;
    free(exchange->buffers);
    free(exchange);
}

/* Allocates the buffers. The chunk has the same size on all ranks, regardless of the sizes of their groups. */
static tx_status make_buffers(tx_exchange *e)
{
    const tx_comm_layout *l = e->layout;
    const int64_t nodes = l->most_nodes, owners = l->size; /* pieces: one per rank */
    int32_t pieces = 0; /* maximum number of pieces that a rank handles for other groups */
    for (int32_t r = 0; r < l->size; r++) {
        int32_t handled = 0;
        for (int32_t owner = 0; owner < owners; owner++)
            handled += l->group[owner] != l->group[r] && tx_comm_layout_handler(l, l->group[r], owner) == r;
        pieces = handled > pieces ? handled : pieces;
    }
    const int64_t parts = l->node_count + nodes + 1 + pieces * nodes + pieces;
    int64_t chunk = BUFFERS / (int64_t)(LANES * parts * 4);
    chunk = tx_max(MIN_CHUNK, tx_min(chunk, MAX_CHUNK));
    e->chunk = (int32_t)(chunk / TX_PARAM_BLOCK * TX_PARAM_BLOCK);
    const size_t part = (size_t)e->chunk * 4;
    e->buffers = malloc(LANES * (size_t)parts * part);
    if (!e->buffers)
        return tx_fail(TX_MEMORY, "no memory for the communicator's buffers");
    char *at = e->buffers;
    for (int32_t i = 0; i < LANES; i++, at += (size_t)parts * part) {
        e->lane[i].addends = at;
        e->lane[i].own = at + (size_t)l->node_count * part;
        e->lane[i].result = e->lane[i].own + (size_t)nodes * part;
        e->lane[i].nodes = e->lane[i].result + part;
        e->lane[i].results = e->lane[i].nodes + (size_t)(pieces * nodes) * part;
    }
    return TX_OK;
}

tx_status tx_exchange_create(const tx_comm_layout *layout, tx_transport *transport, tx_group *group,
                             tx_exchange **exchange)
{
    const size_t size = (size_t)layout->size;
    tx_exchange *e = calloc(1, sizeof *e + size * (sizeof *e->term + sizeof *e->piece) + (size + 1) * sizeof *e->out);
    if (!e)
        return tx_fail(TX_MEMORY, "no memory for a communicator");
    e->layout = layout;
    e->transport = transport;
    e->group = group;
    e->mine = layout->group[transport->rank];
    e->term = (tx_term *)(e + 1);
    e->out = (void **)(e->term + size);
    e->piece = (int32_t *)(e->out + size + 1);
    /* Each rank sends first to the one after it, so that not all send to the same one. */
    for (int32_t i = 1; i < layout->size; i++) {
        const int32_t owner = (transport->rank + i) % layout->size;
        if (layout->group[owner] != e->mine && tx_comm_layout_handler(layout, e->mine, owner) == transport->rank)
            e->piece[e->pieces++] = owner;
    }
    tx_status status = layout->groups > 1 ? make_buffers(e) : TX_OK;
    return TX_RETURN(status, e, exchange, tx_exchange_free);
}

/* A lane has slots for incoming nodes, outgoing nodes, outgoing results and incoming results, in this order. */
static int32_t lane_slots(const tx_exchange *e)
{
    return 2 * (others(e) + e->pieces);
}

int32_t tx_exchange_slots(const tx_exchange *exchange)
{
    return LANES * lane_slots(exchange);
}

int64_t tx_exchange_message(const tx_exchange *exchange)
{
    return (int64_t)exchange->layout->most_nodes * exchange->chunk * 4;
}

/* ---- Waiting --------------------------------------------------------------------------------- */

/* Waits for the messages in these slots. */
static tx_status wait_for(tx_exchange *e, int32_t first, int32_t count)
{
    int32_t missing = -1;
    tx_waiter_begin(&e->waiter);
    tx_status status;
    while (!(status = tx_transport_test(e->transport, first, count, &missing)) && missing >= 0 &&
           !(status = tx_comm_abandoned()))
        tx_waiter_pause(&e->waiter, e->group, missing);
    tx_waiter_end(&e->waiter, e->group);
    return status;
}

/* The first rank of each group sends to those of all others. The waits therefore name the missing rank. */
tx_status tx_exchange_barrier(tx_exchange *e)
{
    const tx_comm_layout *l = e->layout;
    char nothing = 0;
    int32_t slot = 0;
    TX_TRY(tx_group_barrier(e->group));
    for (int32_t g = 0; g < l->groups && e->group->place == 0; g++) {
        const int32_t other = l->member[l->start[g]];
        if (g == e->mine)
            continue;
        TX_TRY(tx_transport_receive(e->transport, &nothing, 0, other, TX_TAG_BARRIER, slot++));
        TX_TRY(tx_transport_send(e->transport, &nothing, 0, other, TX_TAG_BARRIER, slot++));
    }
    TX_TRY(wait_for(e, 0, slot));
    return tx_group_barrier(e->group);
}

/* ---- Parts of a transfer --------------------------------------------------------------------- */

/* Returns chunk k of an owner's piece. */
static tx_comm_piece chunk_of(const tx_exchange *e, int32_t owner, int64_t k)
{
    tx_comm_piece p = tx_comm_layout_piece(e->layout, e->transfer, owner);
    if (e->layout->groups == 1) /* nothing is sent, so the piece is one chunk */
        return p;
    int64_t at = k * e->chunk;
    int64_t left = p.count > at ? p.count - at : 0;
    return (tx_comm_piece){p.first + at, left < e->chunk ? left : e->chunk};
}

static char *data_of(const tx_exchange *e, int32_t place, tx_comm_piece p)
{
    return e->segment[place] + p.first * e->bytes;
}

static bool root_in(const tx_exchange *e, int32_t group)
{
    return e->transfer->kind == TX_BROADCAST && e->layout->group[e->transfer->root] == group;
}

/* Returns true if `group` sends data to an owner in another group (step 1). */
static bool sends_addend(const tx_exchange *e, int32_t group)
{
    return e->sums || root_in(e, group);
}

/* Returns true if the owners in other groups send their results to `group` (step 3). */
static bool receives_result(const tx_exchange *e, int32_t group)
{
    return e->spreads && !root_in(e, group);
}

/* Returns the bytes of a group's contribution. */
static int64_t addend_bytes(const tx_exchange *e, int32_t group, tx_comm_piece p)
{
    return (e->sums ? e->layout->nodes[group] : 1) * tx_comm_bytes(p.count, e->node);
}

/* Returns the address of the addends of a group in a lane. */
static char *addends_of(const tx_exchange *e, const lane *s, int32_t group, tx_comm_piece p)
{
    int64_t before = 0;
    for (int32_t g = 0; g < group; g++)
        before += g == e->mine ? 0 : e->layout->nodes[g];
    return s->addends + before * tx_comm_bytes(p.count, e->node);
}

static tx_term segment_term(const tx_exchange *e, int32_t rank, tx_comm_piece p)
{
    return (tx_term){data_of(e, e->layout->place[rank], p), e->transfer->dtype, 1};
}

/* Sums this group's nodes into a buffer, in the type in which they are sent. */
static void sum_nodes(tx_exchange *e, tx_comm_piece p, char *buffer)
{
    for (int32_t n = 0; n < e->layout->node_count; n++) {
        const tx_comm_node *node = &e->layout->node[n];
        if (node->group != e->mine)
            continue;
        for (int32_t i = 0; i < node->count; i++)
            e->term[i] = segment_term(e, node->first + i, p);
        void *out = buffer + node->index * tx_comm_bytes(p.count, e->node);
        tx_comm_sum(e->term, node->count, &out, 1, p.count, e->node);
        e->traffic->shared += (node->count - 1) * p.count * e->bytes;
    }
}

/* Collects the terms of the whole sum: the nodes of the other groups and the data of this group's ranks. If the result
 * is rounded, this group's nodes replace its data. */
static int32_t all_terms(tx_exchange *e, const lane *s, tx_comm_piece p)
{
    const int64_t step = tx_comm_bytes(p.count, e->node);
    int32_t terms = 0;
    for (int32_t n = 0; n < e->layout->node_count; n++) {
        const tx_comm_node *node = &e->layout->node[n];
        const char *from = node->group == e->mine ? s->own : addends_of(e, s, node->group, p);
        if (node->group != e->mine || e->result != e->transfer->dtype)
            e->term[terms++] = (tx_term){from + node->index * step, e->node, node->count};
        else
            for (int32_t i = 0; i < node->count; i++)
                e->term[terms++] = segment_term(e, node->first + i, p);
    }
    return terms;
}

/* Collects the destinations of a chunk: the segments of the group. `except` is the place of the source segment, or
 * -1. */
static int32_t segments(tx_exchange *e, tx_comm_piece p, int32_t except)
{
    int32_t outs = 0;
    for (int32_t i = 0; i < e->group->size; i++)
        if (i != except)
            e->out[outs++] = data_of(e, i, p);
    e->traffic->shared += (outs - (except < 0)) * p.count * e->bytes;
    return outs;
}

/* Returns the place of the group's segment that receives a result first: that of root or of the handler. */
static int32_t source_of(const tx_exchange *e)
{
    return root_in(e, e->mine) ? e->layout->place[e->transfer->root] : e->group->place;
}

/* Copies a chunk from one segment of the group to the others. */
static void copy_from(tx_exchange *e, int32_t place, tx_comm_piece p)
{
    const tx_term from = {data_of(e, place, p), e->transfer->dtype, 1};
    int32_t outs = segments(e, p, place);
    tx_comm_sum(&from, 1, e->out, outs, p.count, e->transfer->dtype);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* Returns the first slot of chunk k. */
static int32_t slot_of(const tx_exchange *e, int64_t k)
{
    return (int32_t)(k % LANES) * lane_slots(e);
}

/* Returns a group's index among the other groups. */
static int32_t number_of(const tx_exchange *e, int32_t group)
{
    return group < e->mine ? group : group - 1;
}

static bool is_rounded(const tx_exchange *e)
{
    return e->result != e->transfer->dtype;
}

static tx_status send_to(tx_exchange *e, const void *data, int64_t bytes, int32_t to, int32_t tag, int32_t slot)
{
    e->traffic->sent += bytes;
    return tx_transport_send(e->transport, data, bytes, to, tag, slot);
}

/* Returns the address at which the result of another group's piece arrives: its final place, or a buffer if it is
 * rounded. */
static char *result_of(const tx_exchange *e, int64_t k, int32_t i, tx_comm_piece p)
{
    return is_rounded(e) ? e->lane[k % LANES].results + (size_t)i * (size_t)e->chunk * 4
                         : data_of(e, e->group->place, p);
}

/* Posts receives for the contributions of other groups to this rank's piece. */
static tx_status post_receives(tx_exchange *e, int64_t k)
{
    const lane *s = &e->lane[k % LANES];
    const tx_comm_piece p = chunk_of(e, e->transport->rank, k);
    for (int32_t g = 0; g < e->layout->groups && p.count > 0; g++) {
        if (g == e->mine || !sends_addend(e, g))
            continue;
        void *to = e->sums ? addends_of(e, s, g, p) : data_of(e, e->group->place, p);
        TX_TRY(tx_transport_receive(e->transport, to, addend_bytes(e, g, p),
                                    tx_comm_layout_handler(e->layout, g, e->transport->rank), TX_TAG_PARTIAL,
                                    slot_of(e, k) + number_of(e, g)));
    }
    return TX_OK;
}

/* Sends this group's contributions to pieces of other owners, and posts receives for the results. */
static tx_status send_addends(tx_exchange *e, int64_t k)
{
    const lane *s = &e->lane[k % LANES];
    for (int32_t i = 0; i < e->pieces; i++) {
        const tx_comm_piece p = chunk_of(e, e->piece[i], k);
        const int32_t slot = slot_of(e, k) + others(e) + i;
        if (p.count == 0)
            continue;
        char *nodes = s->nodes + (size_t)i * (size_t)e->layout->most_nodes * (size_t)e->chunk * 4;
        if (e->sums)
            sum_nodes(e, p, nodes);
        else if (root_in(e, e->mine))
            nodes = data_of(e, e->layout->place[e->transfer->root], p);
        if (sends_addend(e, e->mine))
            TX_TRY(send_to(e, nodes, addend_bytes(e, e->mine, p), e->piece[i], TX_TAG_PARTIAL, slot));
        if (receives_result(e, e->mine))
            TX_TRY(tx_transport_receive(e->transport, result_of(e, k, i, p), tx_comm_bytes(p.count, e->result),
                                        e->piece[i], TX_TAG_RESULT, slot + e->pieces + others(e)));
    }
    return TX_OK;
}

/* Computes the result of this rank's piece: the sum, the data of root, or its own data unchanged. */
static void make_result(tx_exchange *e, int64_t k, tx_comm_piece p)
{
    const lane *s = &e->lane[k % LANES];
    if (!e->sums) {
        copy_from(e, source_of(e), p);
        return;
    }
    if (is_rounded(e))
        sum_nodes(e, p, s->own);
    else
        e->traffic->shared += (e->group->size - 1) * p.count * e->bytes;
    int32_t terms = all_terms(e, s, p);
    if (is_rounded(e)) {
        void *out = s->result;
        tx_comm_sum(e->term, terms, &out, 1, p.count, e->result);
        e->term[0] = (tx_term){s->result, e->result, 1};
        terms = 1;
    }
    e->out[0] = data_of(e, e->group->place, p);
    int32_t outs = e->spreads ? segments(e, p, -1) : 1;
    tx_comm_sum(e->term, terms, e->out, outs, p.count, e->transfer->dtype);
}

/* Computes the result of this rank's piece from the received contributions and sends it. */
static tx_status finish(tx_exchange *e, int64_t k)
{
    const tx_comm_piece p = chunk_of(e, e->transport->rank, k);
    const int32_t first = slot_of(e, k);
    if (p.count == 0)
        return TX_OK;
    if (e->layout->groups > 1)
        TX_TRY(wait_for(e, first, others(e)));
    make_result(e, k, p);
    const void *from = is_rounded(e) ? e->lane[k % LANES].result : data_of(e, e->group->place, p);
    for (int32_t i = 1; i < e->layout->groups; i++) {
        const int32_t g = (e->mine + i) % e->layout->groups;
        if (receives_result(e, g))
            TX_TRY(send_to(e, from, tx_comm_bytes(p.count, e->result),
                           tx_comm_layout_handler(e->layout, g, e->transport->rank), TX_TAG_RESULT,
                           first + others(e) + e->pieces + number_of(e, g)));
    }
    return TX_OK;
}

/* Completes all messages of chunk k, and writes results of other owners' pieces to the group's segments. */
static tx_status complete(tx_exchange *e, int64_t k)
{
    if (e->layout->groups == 1)
        return TX_OK;
    TX_TRY(wait_for(e, slot_of(e, k) + others(e), lane_slots(e) - others(e)));
    for (int32_t i = 0; i < e->pieces && e->spreads; i++) {
        const tx_comm_piece p = chunk_of(e, e->piece[i], k);
        if (!is_rounded(e)) {
            copy_from(e, source_of(e), p);
            continue;
        }
        const tx_term from = {result_of(e, k, i, p), e->result, 1};
        int32_t outs = segments(e, p, -1);
        tx_comm_sum(&from, 1, e->out, outs, p.count, e->transfer->dtype);
    }
    return TX_OK;
}

/* ---- A transfer ------------------------------------------------------------------------------ */

static void begin(tx_exchange *e, const tx_transfer *t, char *const *segment, tx_comm_traffic *traffic)
{
    e->transfer = t;
    e->segment = segment;
    e->traffic = traffic;
    e->bytes = (int64_t)tx_dtype_size(t->dtype);
    e->sums = t->kind == TX_ALL_REDUCE || t->kind == TX_REDUCE_SCATTER;
    e->spreads = t->kind != TX_REDUCE_SCATTER;
    e->result = e->sums && e->layout->groups > 1 ? t->wire : t->dtype;
    e->node = e->result;
    if (e->sums && e->result == TX_BF16 && t->dtype == TX_BF16 && e->layout->node_count < e->layout->size)
        e->node = TX_F32; /* sums of 16-bit data are rounded once, at the end */
}

static int64_t chunks(const tx_exchange *e)
{
    if (e->layout->groups == 1)
        return 1;
    int64_t longest = 0;
    for (int32_t r = 0; r < e->layout->size; r++) {
        int64_t count = tx_comm_layout_piece(e->layout, e->transfer, r).count;
        longest = tx_max(count, longest);
    }
    return tx_ceil_div(longest, e->chunk);
}

tx_status tx_exchange_run(tx_exchange *e, const tx_transfer *transfer, char *const *segment, tx_comm_traffic *traffic)
{
    begin(e, transfer, segment, traffic);
    const int64_t count = chunks(e);
    for (int64_t k = 0; k < count + LANES - 1; k++) {
        if (k < count)
            TX_TRY(post_receives(e, k));
        if (k < count)
            TX_TRY(send_addends(e, k));
        if (k >= 1 && k - 1 < count)
            TX_TRY(finish(e, k - 1));
        if (k >= 2)
            TX_TRY(complete(e, k - 2));
    }
    return TX_OK;
}
