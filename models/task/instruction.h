/* SPDX-License-Identifier: Apache-2.0
 *
 * Instruction data: conversations in which the model learns the messages of the assistant (supervised fine-tuning). The
 * fields are input_ids and labels [rows, block], with shifted labels, and attention_lengths [rows]. The metrics are
 * loss and perplexity over the labels. A packed row holds several samples. Its fields position_ids and attention_starts
 * [rows, block] have each token's position in its sample, and the position at which that sample begins. */
#ifndef TX_TASK_INSTRUCTION_H
#define TX_TASK_INSTRUCTION_H

#include "models/task/conversations.h"

/* Indices of the fields. */
enum {
    TX_INSTRUCTION_INPUT_IDS,
    TX_INSTRUCTION_LABELS,
    TX_INSTRUCTION_LENGTHS,
    TX_INSTRUCTION_POSITION_IDS, /* packed */
    TX_INSTRUCTION_STARTS        /* packed */
};

extern const tx_task tx_instruction, tx_instruction_packed;

/* Whether the first object of a .jsonl or .json file is instruction data (instruction_kind.c). Also false if the file
 * cannot be read. TX_FORMAT if it is instruction data of an unsupported form. */
tx_status tx_instruction_find(const char *path, bool *is);

/* ---- Data (instruction_data.c) ------------------------------------------------------------------------- */

typedef struct tx_instruction_data {
    tx_conversation_data from;
    tx_store labels; /* of all ids */
    int64_t count;
    int64_t *end;   /* [count]: end of each sample's ids */
    int64_t rows;   /* of packed samples */
    int64_t *order; /* [count]: the samples, row after row; NULL if each is a row */
    int64_t *last;  /* [rows]: end of each row's samples in `order` */
} tx_instruction_data;

tx_status tx_instruction_data_read(tx_samples *samples, const char *path, const tx_data_options *options);
void tx_instruction_data_release(void *data);

#endif
