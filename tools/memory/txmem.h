/* SPDX-License-Identifier: Apache-2.0
 *
 * txmem: predicts the memory of training configurations and reports which of them fit. */
#ifndef TX_TOOLS_TXMEM_H
#define TX_TOOLS_TXMEM_H

#include "tx_train.h"

/* The number of micro-batch sizes in the table: 1, 2, 4, .. rows. */
#define TX_MEM_BATCHES 8

/* X(NAME, "word", blocks that are recomputed as a whole, blocks of which only cheap ops are recomputed) */
#define TX_MEM_CHECKPOINTING_MAP(X) \
    X(NONE, "none", 0, 0) X(CHEAP, "auto", 0, INT32_MAX) X(BLOCKS, "blocks", INT32_MAX, 0)

/* X(NAME, "word", type of matrix products, type of stored weights, precision that has the same plans) */
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

/* One training configuration and its predicted memory for each batch size. */
typedef struct tx_mem_row {
    const char *precision, *checkpointing, *optimizer;
    int32_t batches;                  /* batch sizes with a prediction: up to the first that does not fit */
    tx_memory memory[TX_MEM_BATCHES]; /* bytes, without scratch memory of the device's kernels */
} tx_mem_row;

typedef struct tx_mem_table {
    const tx_forecaster *forecaster;
    bool adapts;           /* only a LoRA adapter is trained */
    int64_t block, memory; /* tokens of a row; available bytes */
    tx_offload_place offload, offload_params;
    int32_t zero_stage;
    int64_t eval_rows, text, beams; /* as in tx_forecast_options */
    bool writes;
    uint32_t optimizers;                   /* a bit for each index of tx_optimizer_word */
    const char *precision, *checkpointing; /* only rows with these words; NULL means all */
    int64_t most_rows;                     /* of the advice; 0 means those of txtrain */
    tx_mem_row *row;
    int32_t rows;
} tx_mem_table;

/* Fills the table's rows, which the caller frees. Allocates nothing on the device. */
tx_status tx_mem_fill(tx_mem_table *table);
/* Writes the options of txtrain for the preferred configuration that fits: "--bf16 --per_device_train_batch_size 4".
 * Another optimizer than the default is only chosen if the default does not fit. Returns false if nothing fits. */
bool tx_mem_advice(const tx_mem_table *table, char *text, size_t size);
/* The run that options of txtrain describe. */
typedef struct tx_mem_run {
    const char *precision, *checkpointing;     /* words of the table; NULL if no option chooses them */
    int64_t rows;                              /* --per_device_train_batch_size, or 0 */
    char uncounted[512], without_effect[1024]; /* names of options, separated by commas */
} tx_mem_run;
/* Copies options of txtrain that txmem has, too, to `own`, unless they were given there. */
tx_status tx_mem_take(const tx_option_values *txtrain, tx_option_values *own, tx_mem_run *run);

/* Stores the memory that a card of this name, such as "RTX 3090", leaves to a program, without what its driver and a
 * desktop keep. Blanks, dashes and case do not matter. TX_NOT_FOUND names the cards. */
tx_status tx_mem_card(const char *name, int64_t *bytes);

/* The set with the first optimizer of each kind. */
uint32_t tx_mem_all_optimizers(void);

#endif
