/* SPDX-License-Identifier: Apache-2.0
 * Inserts the transfers of tensors that are resident only while nodes use them. The residency passes call it. */
#include "api/residency/visits.h"

#define MOST_AHEAD 2

tx_status tx_residency_open(tx_residency *r, tx_edit *edit, int32_t visits, int32_t pieces)
{
    r->edit = edit;
    r->end = r->graph->nodes;
    r->visit = tx_edit_alloc(edit, (size_t)visits + 1, sizeof *r->visit);
    r->piece = tx_edit_alloc(edit, (size_t)pieces, sizeof *r->piece);
    return tx_edit_check(edit);
}

tx_status tx_residency_move(const tx_residency *r, int32_t at, tx_op op, const tx_attrs *attrs, tx_tensor *in,
                            tx_tensor *out)
{
    const tx_node *like = &r->graph->node[at < r->end ? at : r->end - 1];
    tx_node node = {.op = op, .direction = like->direction, .block = like->block, .attrs = *attrs};
    node.in[0] = in;
    node.out[0] = out;
    return tx_edit_insert(r->edit, at, &node, out ? &out->producer : NULL);
}

/* Inserts a step's op for a piece, if the piece needs it. */
static tx_status insert_piece(const tx_residency *r, const tx_piece *p, int32_t at, tx_op op)
{
    const bool copied = p->staged != p->resident;
    const tx_attrs plain = TX_PLAIN;
    tx_tensor *host = p->staged ? p->staged : p->storage;
    switch (op) {
    case TX_OP_READ_FILE:
        if (p->staged && p->loads)
            return tx_residency_move(r, at, op, &plain, p->storage, p->staged);
        if (!p->staged || !copied)
            return TX_OK;
        return tx_residency_move(r, at, TX_OP_WAIT_FILE, &plain, p->staged,
                                 NULL); /* the last write from that memory is complete */
    case TX_OP_WAIT_FILE:
        return copied ? TX_OK : tx_residency_move(r, at, op, &plain, p->staged, NULL);
    case TX_OP_FETCH:
        return copied && p->loads ? tx_residency_move(r, at, op, &plain, host, p->resident) : TX_OK;
    case TX_OP_PUT_BACK:
        return copied && p->stores ? tx_residency_move(r, at, op, &plain, p->resident, host) : TX_OK;
    case TX_OP_WRITE_FILE:
        return p->staged && p->stores ? tx_residency_move(r, at, op, &plain, p->staged, p->storage) : TX_OK;
    default:
        return r->insert(r, op, (int32_t)(p - r->piece), at);
    }
}

/* Waits for copies: afterwards the visit's fetched pieces are on the device, and the memory of the stored pieces of the
 * visit before is free. */
static tx_status wait_for_copies(const tx_residency *r, int32_t visit)
{
    const int32_t begin = r->visit[visit].piece, end = visit < r->visits ? r->visit[visit + 1].piece : begin;
    tx_node node = {.op = TX_OP_WAIT_COPIES, .attrs = TX_PLAIN};
    int32_t stored = 0;
    for (int32_t i = visit > 0 ? r->visit[visit - 1].piece : begin; i < begin; i++)
        if (r->piece[i].stores)
            node.in[stored++] = r->piece[i].resident;
    const tx_node *like = &r->graph->node[r->visit[visit < r->visits ? visit : visit - 1].node];
    node.direction = like->direction;
    node.block = like->block;
    return begin < end || stored > 0 ? tx_edit_insert(r->edit, r->visit[visit].node, &node, NULL) : TX_OK;
}

/* Inserts a step at a visit. Visits below 0 prefetch the pieces of the first ones. */
static tx_status insert_step(const tx_residency *r, const tx_step *s, int32_t visit)
{
    const int32_t of = visit + s->ahead;
    const int32_t first = s->op == TX_OP_READ_FILE ? r->start : r->visit[0].node;
    const int32_t at = visit < 0 ? first : r->visit[visit].node + (s->op == TX_OP_PUT_BACK);
    if (s->op == TX_OP_WAIT_COPIES)
        return visit < 0 ? TX_OK : wait_for_copies(r, visit);
    if (of < 0 || of >= r->visits)
        return TX_OK;
    for (int32_t i = r->visit[of].piece; i < r->visit[of + 1].piece; i++)
        TX_TRY(insert_piece(r, &r->piece[i], at, s->op));
    return TX_OK;
}

tx_status tx_residency_insert(const tx_residency *r)
{
    for (int32_t visit = -MOST_AHEAD; visit <= r->visits && r->visits > 0; visit++)
        for (int32_t i = 0; i < r->steps; i++)
            TX_TRY(insert_step(r, &r->step[i], visit));
    return TX_OK;
}

tx_status tx_residency_read(const tx_residency *r, tx_use use, tx_tensor *resident, int64_t within)
{
    tx_node *node = &r->graph->node[use.node];
    const tx_tensor *was = node->in[use.operand];
    tx_tensor *now = tx_tensor_view(resident, 0, was->shape);
    if (!now)
        return r->graph->status;
    now->dtype = was->dtype;
    now->within = within;
    node->in[use.operand] = now;
    tx_node_rename(node);
    return TX_OK;
}
