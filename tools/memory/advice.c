/* SPDX-License-Identifier: Apache-2.0
 * Chooses the configuration of txmem's advice. */
#include "tools/memory/txmem.h"

#include <stdio.h>
#include <string.h>

/* Configurations in the order of preference: speed first, then the exactness of the weights. */
static const struct {
    const char *precision, *checkpointing, *options;
    bool last_resort; /* 16-bit weights: only if a batch of one row does not fit otherwise */
} choices[] = {
    {"fp32", "none", "", false},
    {"bf16", "none", "--bf16 ", false},
    {"bf16", "auto", "--bf16 --gradient_checkpointing auto ", false},
    {"bf16", "blocks", "--bf16 --gradient_checkpointing ", false},
    {"pure bf16", "none", "--bf16 --dtype bfloat16 ", true},
    {"pure bf16", "auto", "--bf16 --dtype bfloat16 --gradient_checkpointing auto ", true},
    {"pure bf16", "blocks", "--bf16 --dtype bfloat16 --gradient_checkpointing ", true},
};
enum { CHOICES = sizeof choices / sizeof choices[0], STANDARD_BATCH = 8 /* of txtrain */ };

/* The largest batch that fits, at most that of the table or STANDARD_BATCH; 0 if none does. */
static int64_t batch_of(const tx_mem_table *t, const tx_mem_row *row)
{
    const int64_t most = t->most_rows ? t->most_rows : STANDARD_BATCH;
    int64_t batch = 0;
    for (int b = 0; b < row->batches && INT64_C(1) << b <= most; b++)
        if (tx_memory_total(&row->memory[b]) <= t->memory)
            batch = INT64_C(1) << b;
    return batch;
}

/* The row of a choice and an optimizer. NULL if the table has none. */
static const tx_mem_row *row_of(const tx_mem_table *t, int choice, const char *optimizer)
{
    for (int32_t i = 0; i < t->rows; i++)
        if (!strcmp(t->row[i].precision, choices[choice].precision) &&
            !strcmp(t->row[i].checkpointing, choices[choice].checkpointing) && !strcmp(t->row[i].optimizer, optimizer))
            return &t->row[i];
    return NULL;
}

bool tx_mem_advice(const tx_mem_table *t, char *text, size_t size)
{
    tx_optimizer_kind kind;
    const char *optimizer;
    for (int32_t i = 0; (optimizer = tx_optimizer_word(i, &kind)); i++) {
        int64_t batch = 0;
        int best = 0;
        for (int c = 0; c < CHOICES; c++) {
            if (choices[c].last_resort && batch > 0 && !choices[best].last_resort)
                break;
            const tx_mem_row *row = row_of(t, c, optimizer);
            const int64_t one = row ? batch_of(t, row) : 0;
            best = one > batch ? c : best;
            batch = one > batch ? one : batch;
        }
        if (batch > 0) {
            snprintf(text, size, "%s%s%s%s--per_device_train_batch_size %d", choices[best].options,
                     i > 0 ? "--optim " : "", i > 0 ? optimizer : "", i > 0 ? " " : "", (int)batch);
            if (t->most_rows > batch)
                tx_list_add(text, size, " ", "--gradient_accumulation_steps %d",
                            (int)((t->most_rows + batch - 1) / batch));
            return true;
        }
    }
    return false;
}
