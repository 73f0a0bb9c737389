/* SPDX-License-Identifier: Apache-2.0
 * Host ops that move rows to experts of other ranks and back. The host reads the number of rows of each rank and
 * expert. All-to-alls move contiguous rows: a rank's slots are sorted by expert and thus by the rank of the expert. The
 * receiving rank sorts them by expert and then by source rank. */
#include "api/parallel/buckets.h"

#include <inttypes.h>

/* The numbers of rows that move (tensor counts). */
typedef struct routed {
    int32_t ranks, own; /* ranks of the group; experts of each */
    int32_t *out;       /* rows of this rank by expert */
    int32_t *in;        /* by rank and local expert: rows to receive */
    int32_t *offset;    /* first row of each local expert, then the end of the last */
} routed;

static routed routed_of(const tx_model *model, const tx_operand *counts)
{
    const int32_t ranks = model->mesh.expert.size, experts = (int32_t)counts->shape.dim[1] - 1;
    int32_t *first = (int32_t *)(void *)tx_operand_host(model, counts);
    return (routed){ranks, experts / ranks, first, first + experts + 1, first + 2 * (experts + 1)};
}

static int64_t sum(const int32_t *count, int32_t counts)
{
    int64_t all = 0;
    for (int32_t i = 0; i < counts; i++)
        all += count[i];
    return all;
}

tx_status tx_host_share_routes(tx_model *model, const tx_command *c)
{
    const tx_parallel *p = model->parallel;
    const tx_operand *offsets = &c->in[TX_IN(share_routes, offsets)], *own = &c->out[TX_OUT(share_routes, own_offsets)];
    const routed r = routed_of(model, &c->out[TX_OUT(share_routes, counts)]);
    TX_TRY(tx_operand_read(model, offsets, 0, r.out, tx_operand_bytes(offsets)));
    for (int32_t i = 0; i < r.ranks * r.own; i++)
        r.out[i] = r.out[i + 1] - r.out[i];
    for (int32_t i = 0; i < 2 * r.ranks; i++)
        p->block[i] = r.own;
    TX_TRY(tx_comm_all_to_all(model->mesh.expert.comm,
                              &(tx_all_to_all){r.out, p->block, r.in, p->block + r.ranks, TX_I32}));
    r.offset[0] = 0;
    for (int32_t i = 0; i < r.own; i++) {
        r.offset[i + 1] = r.offset[i];
        for (int32_t rank = 0; rank < r.ranks; rank++)
            r.offset[i + 1] += r.in[rank * r.own + i];
    }
    return tx_operand_write(model, own, 0, r.offset, tx_operand_bytes(own));
}

/* Copies the rows of local experts between the device's order and the order by rank. */
static tx_status sort(const tx_model *model, const routed *r, const tx_operand *x, bool read, char *by_rank)
{
    const int64_t row = tx_dtype_bytes(x->dtype, x->shape.dim[1]);
    for (int32_t rank = 0; rank < r->ranks; rank++)
        for (int32_t i = 0; i < r->own; i++) {
            const int64_t bytes = r->in[rank * r->own + i] * row;
            int64_t at = r->offset[i];
            for (int32_t before = 0; before < rank; before++)
                at += r->in[before * r->own + i];
            if (bytes > 0)
                TX_TRY(read ? tx_operand_read(model, x, at * row, by_rank, bytes)
                            : tx_operand_write(model, x, at * row, by_rank, bytes));
            by_rank += bytes;
        }
    return TX_OK;
}

/* Fills rows of y from `rows` on with 0. */
static tx_status clear(const tx_model *model, const tx_operand *y, int64_t rows)
{
    const tx_engine *e = model->engine;
    const int64_t row = tx_dtype_bytes(y->dtype, y->shape.dim[1]), bytes = (y->shape.dim[0] - rows) * row;
    return bytes == 0 ? TX_OK
                      : e->backend->fill(e->context, tx_operand_buffer(model, y), y->offset + rows * row, 0, bytes);
}

/* Computes the elements to send to and receive from each rank, for rows of `width`. */
static void find_blocks(const tx_parallel *p, const routed *r, bool back, int64_t width)
{
    for (int32_t rank = 0; rank < r->ranks; rank++) {
        p->block[rank + (back ? r->ranks : 0)] = width * sum(r->out + rank * r->own, r->own);
        p->block[rank + (back ? 0 : r->ranks)] = width * sum(r->in + rank * r->own, r->own);
    }
}

/* Buffer w has the rows of local experts by rank. The rows by slot are in the tensor itself if the device shares the
 * host's memory, otherwise in w after those. */
tx_status tx_host_move_rows(tx_model *model, const tx_command *c)
{
    const tx_engine *e = model->engine;
    const tx_parallel *p = model->parallel;
    const bool back = c->op == TX_OP_EP_COLLECT, in_place = e->backend->host_memory;
    const tx_operand *x = &c->in[TX_IN(ep_dispatch, x)], *y = &c->out[TX_OUT(ep_dispatch, y)];
    const tx_operand *arrived = back ? x : y, *places = back ? y : x;
    const routed r = routed_of(model, &c->in[TX_IN(ep_dispatch, counts)]);
    const int64_t width = x->shape.dim[1], received = r.offset[r.own], sent = sum(r.out, r.ranks * r.own);
    char *by_rank = tx_operand_host(model, &c->out[TX_OUT(ep_dispatch, w)]);
    char *by_place = in_place ? tx_operand_host(model, places) : by_rank + tx_operand_bytes(arrived);
    if (received > arrived->shape.dim[0] || sent > places->shape.dim[0])
        return tx_fail(TX_INTERNAL, "%" PRId64 " rows arrive at the experts, but there is room for %" PRId64, received,
                       arrived->shape.dim[0]);
    find_blocks(p, &r, back, width);
    TX_TRY(e->backend->finish(e->context));
    if (back)
        TX_TRY(sort(model, &r, x, true, by_rank));
    else if (!in_place && sent > 0)
        TX_TRY(tx_operand_read(model, x, 0, by_place, tx_dtype_bytes(x->dtype, sent * width)));
    TX_TRY(tx_comm_all_to_all(model->mesh.expert.comm,
                              &(tx_all_to_all){back ? by_rank : by_place, p->block, back ? by_place : by_rank,
                                               p->block + r.ranks, x->dtype}));
    if (!back)
        TX_TRY(sort(model, &r, y, false, by_rank));
    else if (!in_place && sent > 0)
        TX_TRY(tx_operand_write(model, y, 0, by_place, tx_dtype_bytes(y->dtype, sent * width)));
    TX_TRY(clear(model, y, back ? sent : received));
    return e->backend->finish(e->context); /* other tensors reuse the memory */
}
