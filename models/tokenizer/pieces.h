/* SPDX-License-Identifier: Apache-2.0
 *
 * Merges of SentencePiece's BPE, which follow from the scores of its pieces. */
#ifndef TX_TOKENIZER_PIECES_H
#define TX_TOKENIZER_PIECES_H

#include "models/names.h"
#include "tx_json.h"

/* Maximum bytes of a piece. */
#define TX_PIECE_MOST 4096

/* Pieces by id. */
typedef struct tx_pieces {
    char *const *text;
    const tx_named *names; /* of the pieces, sorted */
    const double *score;
    const bool *normal; /* merges make only these pieces */
    size_t count;
    bool
        closed; /* both parts of a merge are normal too; among the merges of one piece the shorter left part is first */
} tx_pieces;

/* Appends the merges that make the pieces, best score first, to a list of pairs. If `closed` is false, the order of
 * equal scores is that of transformers' generate_merges: the longer left part is first, then the longer right part. */
tx_status tx_pieces_add_merges(const tx_pieces *pieces, tx_json *merges);
/* Appends a pair. Both parts have at most TX_PIECE_MOST bytes. */
tx_status tx_pieces_add_merge(const char *left, size_t left_size, const char *right, tx_json *merges);

#endif
