/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of SentencePiece, tokenizer.model: a message of Protocol Buffers with the pieces and their scores, and the
 * settings of the trainer and the normalizer. */
#ifndef TX_TOKENIZER_SENTENCEPIECE_H
#define TX_TOKENIZER_SENTENCEPIECE_H

#include "tx.h"

/* A part of the file; without a NUL at its end. */
typedef struct tx_spm_text {
    const char *data;
    size_t size;
} tx_spm_text;

/* Types of pieces, with the numbers of the format. */
typedef enum tx_spm_type {
    TX_SPM_NORMAL = 1,
    TX_SPM_UNKNOWN,
    TX_SPM_CONTROL,
    TX_SPM_USER_DEFINED,
    TX_SPM_UNUSED,
    TX_SPM_BYTE
} tx_spm_type;

typedef struct tx_spm_piece {
    tx_spm_text text;
    float score;
    tx_spm_type type;
} tx_spm_piece;

typedef enum tx_spm_kind { TX_SPM_UNIGRAM = 1, TX_SPM_BPE } tx_spm_kind;

/* X(name, field of TrainerSpec, its default): ids and options. */
#define TX_SPM_TRAINER(X)       \
    X(kind, 3, TX_SPM_UNIGRAM)  \
    X(whitespace_suffix, 24, 0) \
    X(byte_fallback, 35, 0)     \
    X(unk_id, 40, 0)            \
    X(bos_id, 41, 1)            \
    X(eos_id, 42, 2)
/* X(name, field of NormalizerSpec, its default). */
#define TX_SPM_NORMALIZER(X)          \
    X(add_dummy_prefix, 3, 1)         \
    X(remove_extra_whitespaces, 4, 1) \
    X(escape_whitespaces, 5, 1)

typedef struct tx_spm {
    tx_spm_piece *piece;
    size_t count, room;
    tx_spm_text charsmap; /* empty if there is none */
#define X(name, field, value) int32_t name;
    TX_SPM_TRAINER(X)
    TX_SPM_NORMALIZER(X)
#undef X
} tx_spm;

/* Reads the bytes of a file, which must outlive the result. TX_FORMAT if they are not a model. */
tx_status tx_spm_read(const char *data, size_t size, tx_spm *model);
void tx_spm_free(tx_spm *model);

#endif
