/* SPDX-License-Identifier: Apache-2.0
 * Host ops (rows TX_HOST of ops.def), which the executor calls between device programs, and access to their operands.
 */
#ifndef TX_API_HOST_H
#define TX_API_HOST_H

#include "api/model/model.h"

#define TX_VIRTUAL(...)
#define TX_HOST(RUNS, host, ...) tx_status tx_host_##host(tx_model *model, const tx_command *command);
#include "ops.def"

/* The buffer of an operand, and its address on the host. */
static inline tx_buffer *tx_operand_buffer(const tx_model *model, const tx_operand *o)
{
    return model->arena[o->arena].buffer[o->chunk];
}

static inline char *tx_operand_host(const tx_model *model, const tx_operand *o)
{
    return (char *)model->engine->backend->map(tx_operand_buffer(model, o)) + o->offset;
}

/* Copy `bytes` of an operand, from byte `at` on, to or from the host. A read waits for the device. */
static inline tx_status tx_operand_read(const tx_model *model, const tx_operand *o, int64_t at, void *to, int64_t bytes)
{
    const tx_engine *e = model->engine;
    return e->backend->read(e->context, tx_operand_buffer(model, o), o->offset + at, to, bytes);
}

static inline tx_status tx_operand_write(const tx_model *model, const tx_operand *o, int64_t at, const void *from,
                                         int64_t bytes)
{
    const tx_engine *e = model->engine;
    return e->backend->write(e->context, TX_QUEUE_COMPUTE, tx_operand_buffer(model, o), o->offset + at, from, bytes);
}

/* Waits for the copies of the transfer queue so far. The host may then write to memory that they read. */
static inline tx_status tx_finish_copies(const tx_engine *e)
{
    tx_event *copied = NULL;
    TX_TRY(e->backend->mark(e->context, TX_QUEUE_TRANSFER, &copied));
    return e->backend->wait(e->context, copied);
}

#endif
