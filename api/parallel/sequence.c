/* SPDX-License-Identifier: Apache-2.0
 * Host ops of sequence parallelism: between products, each rank of a tensor group has a chunk of the positions. A whole
 * tensor has its samples in order, and each sample the chunks of all ranks. The window has the chunks by rank, as
 * shards. The host copies one piece for each sample and rank. */
#include "api/parallel/buckets.h"

typedef struct chunks {
    tx_comm *group;
    int64_t pieces, bytes; /* of the whole; of one piece */
    int64_t room;          /* bytes of a rank in the window */
    char *window;
} chunks;

static chunks chunks_of(const tx_model *model, const tx_operand *own, const tx_operand *w)
{
    tx_comm *group = model->mesh.tensor.comm;
    const int64_t samples = own->shape.dim[0];
    return (chunks){.group = group,
                    .pieces = samples * group->size,
                    .bytes = tx_operand_bytes(own) / samples,
                    .room = tx_operand_bytes(w) / group->size,
                    .window = tx_operand_host(model, w)};
}

static char *place(const chunks *c, int64_t piece)
{
    return c->window + piece % c->group->size * c->room + piece / c->group->size * c->bytes;
}

static tx_status exchange(const chunks *c, tx_collective kind, const tx_operand *w)
{
    const tx_dtype dtype = w->dtype == TX_F16 ? TX_BF16 : w->dtype; /* a gather only copies bits */
    return tx_comm_collect(c->group, kind, c->window, tx_operand_count(w), dtype, 0);
}

/* The host waits for the device, as in other sums. */
static tx_status scatter(const tx_model *model, const tx_operand *x, const tx_operand *y, const tx_operand *w)
{
    const chunks c = chunks_of(model, y, w);
    for (int64_t i = 0; i < c.pieces; i++)
        TX_TRY(tx_operand_read(model, x, i * c.bytes, place(&c, i), c.bytes));
    TX_TRY(exchange(&c, TX_REDUCE_SCATTER, w));
    return tx_operand_write(model, y, 0, place(&c, c.group->rank), tx_operand_bytes(y));
}

static tx_status gather(const tx_model *model, const tx_operand *x, const tx_operand *y, const tx_operand *w)
{
    const chunks c = chunks_of(model, x, w);
    TX_TRY(tx_operand_read(model, x, 0, place(&c, c.group->rank), tx_operand_bytes(x)));
    TX_TRY(exchange(&c, TX_ALL_GATHER, w));
    for (int64_t i = 0; i < c.pieces; i++)
        TX_TRY(tx_operand_write(model, y, i * c.bytes, place(&c, i), c.bytes));
    return TX_OK;
}

tx_status tx_host_tp_rows(tx_model *model, const tx_command *c)
{
    const tx_operand *x = &c->in[TX_IN(tp_reduce_scatter, x)], *y = &c->out[TX_OUT(tp_reduce_scatter, y)],
                     *w = &c->out[TX_OUT(tp_reduce_scatter, w)];
    return c->op == TX_OP_TP_REDUCE_SCATTER ? scatter(model, x, y, w) : gather(model, x, y, w);
}
