/* SPDX-License-Identifier: Apache-2.0
 *
 * txmem: the memory that ways to train a model take, and which of them fit. */
#ifndef TX_TOOLS_TXMEM_H
#define TX_TOOLS_TXMEM_H

#include "tx_train.h"

/* Rows of a micro-batch that are looked at: 1, 2, 4, .. */
#define TX_MEM_BATCHES 8

/* X(NAME, "word", whole segments, cheap ones): ways to checkpoint */
#define TX_MEM_CHECKPOINTING_MAP(X) \
    X(NONE, "none", 0, 0) X(CHEAP, "auto", 0, INT32_MAX) X(BLOCKS, "blocks", INT32_MAX, 0)

/* X(NAME, "word", type of products, type of stored weights, precision with the same plans) */
#define TX_MEM_PRECISION_MAP(X)      \
    X(FP32, "fp32", F32, F32, FP32)  \
    X(BF16, "bf16", BF16, F32, BF16) \
    X(FP16, "fp16", F16, F32, BF16)  \
    X(PURE, "pure bf16", BF16, BF16, PURE)

typedef enum tx_mem_precision {
#define X(name, ...) TX_MEM_##name,
    TX_MEM_PRECISION_MAP(X)
#undef X
        TX_MEM_PRECISIONS
} tx_mem_precision;

/* One way to train, and what came out of it for each batch that was looked at. */
typedef struct tx_mem_row {
    const char *precision, *checkpointing, *optimizer;
    int32_t batches;                  /* that were looked at: up to the first that does not fit */
    tx_memory memory[TX_MEM_BATCHES]; /* but for scratch of the device's kernels */
} tx_mem_row;

typedef struct tx_mem_table {
    const tx_forecaster *forecaster;
    bool adapts;           /* the model has an adapter, and is frozen */
    int64_t block, memory; /* tokens of a row; bytes that there are */
    tx_offload_place offload, offload_params;
    int32_t zero_stage;  /* how the ranks divide the model */
    uint32_t optimizers; /* a bit for each place of tx_optimizer_word */
    tx_mem_row *row;
    int32_t rows;
} tx_mem_table;

/* Fills the table's rows, which the caller frees. Allocates nothing on the device. */
tx_status tx_mem_fill(tx_mem_table *table);
/* One optimizer of each kind. */
uint32_t tx_mem_all_optimizers(void);

#endif
