/* SPDX-License-Identifier: Apache-2.0
 *
 * Instruction data: conversations, of which the model learns what the assistant says (supervised fine-tuning). Fields
 * input_ids and labels [rows, block], the labels already shifted, and attention_lengths [rows]; metrics loss and
 * perplexity over the labels. Packed, a row holds several samples, and position_ids and attention_starts [rows, block]
 * tell of each position its place in its own sample and where that begins. */
#ifndef TX_TASK_INSTRUCTION_H
#define TX_TASK_INSTRUCTION_H

#include "models/chat/chat.h"
#include "models/task/task.h"

/* Places of the fields. */
enum {
    TX_INSTRUCTION_INPUT_IDS,
    TX_INSTRUCTION_LABELS,
    TX_INSTRUCTION_LENGTHS,
    TX_INSTRUCTION_POSITION_IDS, /* packed */
    TX_INSTRUCTION_STARTS        /* packed */
};

extern const tx_task tx_instruction, tx_instruction_packed;

/* Whether the first object of a .jsonl or .json file is one of instruction data (instruction_kind.c); false also if it
 * cannot be read. TX_FORMAT if it is one that TX cannot learn from, such as ShareGPT's. */
tx_status tx_instruction_find(const char *path, bool *is);

/* ---- Data (instruction_data.c) ------------------------------------------------------------------------- */

typedef struct tx_instruction_data {
    tx_ids ids, labels; /* of all samples, one after the other */
    int64_t count;
    int64_t *end;   /* [count]: where a sample's ids end */
    int64_t rows;   /* of packed samples */
    int64_t *order; /* [count]: the samples row after row; NULL: each is a row */
    int64_t *last;  /* [rows]: where the samples of a row end in `order` */
    tx_chat *chat;  /* NULL: none was needed */
    int32_t eos;    /* eos_token's id, which ends texts without a template; -1: none */
    char digest[65];
} tx_instruction_data;

tx_status tx_instruction_open(const tx_task *task, const char *path, const tx_data_options *options,
                              tx_samples *samples);
void tx_instruction_close(const tx_samples *samples);
/* The chat template goes into a model's folder, unless it came from there. */
tx_status tx_instruction_save(const tx_samples *samples, const char *folder);

/* The token that ends an answer: the template's, or eos_token. */
tx_text_end tx_instruction_end(const tx_samples *samples);

/* ---- Packing (packing.c) ------------------------------------------------------------------------------- */

/* First-fit: the samples, in an order that depends on the seed and their number alone, go each to the first row of
 * `block` positions that has room for it. Sets rows, order and last. No sample is longer than `block`. */
tx_status tx_instruction_pack(tx_instruction_data *data, int64_t block, uint64_t seed);

#endif
