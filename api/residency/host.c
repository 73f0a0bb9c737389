/* SPDX-License-Identifier: Apache-2.0
 * Host ops of offloading: transfers between a file, host memory and the device. */
#include "api/plan/host.h"

#include "api/residency/swap.h"

/* Starts a transfer between the file and host memory. Memory of arena STAGING is free once the device's copies from and
 * to it are complete. */
tx_status tx_host_move_file(tx_model *model, const tx_command *c)
{
    const bool out = c->op == TX_OP_WRITE_FILE;
    const tx_operand *file = out ? &c->out[0] : &c->in[0], *memory = out ? &c->in[0] : &c->out[0];
    if (memory->arena == TX_ARENA_STAGING)
        TX_TRY(tx_finish_copies(model->engine));
    return tx_swap_begin(model->file.swap, out, model->arena[file->arena].filed[file->chunk] + file->offset,
                         tx_operand_host(model, memory), tx_operand_bytes(file));
}

/* The copy runs after all computation so far, and next to later computation. Data of a file must have been read. */
tx_status tx_host_copy_state(tx_model *model, const tx_command *c)
{
    const tx_engine *e = model->engine;
    const tx_operand *x = &c->in[0], *y = &c->out[0];
    tx_buffer *from = model->arena[x->arena].buffer[x->chunk], *to = model->arena[y->arena].buffer[y->chunk];
    if (x->arena == TX_ARENA_STAGING)
        TX_TRY(tx_swap_wait(model->file.swap, tx_operand_host(model, x), tx_operand_bytes(x)));
    TX_TRY(tx_order(e->backend, e->context, TX_QUEUE_COMPUTE, TX_QUEUE_TRANSFER));
    return e->backend->copy(e->context, TX_QUEUE_TRANSFER, from, x->offset, to, y->offset, tx_operand_bytes(x));
}

tx_status tx_host_wait_file(tx_model *model, const tx_command *c)
{
    return tx_swap_wait(model->file.swap, tx_operand_host(model, &c->in[0]), tx_operand_bytes(&c->in[0]));
}

tx_status tx_host_wait_copies(tx_model *model, const tx_command *c)
{
    (void)c;
    return tx_order(model->engine->backend, model->engine->context, TX_QUEUE_TRANSFER, TX_QUEUE_COMPUTE);
}
