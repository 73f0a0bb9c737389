/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of the tokenizer.json that is made from a model of SentencePiece, shared by the classes that use them. */
#ifndef TX_TOKENIZER_SPM_H
#define TX_TOKENIZER_SPM_H

#include "models/names.h"
#include "models/tokenizer/tokenizer_make.h"

/* Parts as texts of JSON. */
#define MARK "\xE2\x96\x81"
#define REPLACE(kind, pattern, content) \
    "{\"type\": \"Replace\", \"pattern\": {\"" kind "\": \"" pattern "\"}, \"content\": \"" content "\"}"
#define METASPACE(scheme, split) \
    "{\"type\": \"Metaspace\", \"replacement\": \"" MARK "\", \"prepend_scheme\": \"" scheme "\", \"split\": " split "}"
#define SEQUENCE(list, ...) "{\"type\": \"Sequence\", \"" list "\": [" __VA_ARGS__ "]}"
#define STRIP "{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}"
#define FALLBACK "{\"type\": \"ByteFallback\"}"
#define FUSE "{\"type\": \"Fuse\"}"

typedef struct tx_spm_making {
    tx_making to;
    const tx_spm *from;
    char **text;     /* of each piece, with a NUL */
    tx_named *names; /* of the pieces, sorted */
    tx_json *normalizers;
    bool user_defined; /* some pieces are */
} tx_spm_making;

tx_status tx_spm_name_pieces(tx_spm_making *m);
/* Adds control pieces as special tokens, and with `users` those of users as ordinary ones. */
tx_status tx_spm_add_pieces(tx_spm_making *m, bool users);
tx_status tx_spm_add_scored(tx_making *m, const char *text, double score);
/* Makes a model of pieces with scores. If `first` is not NULL, its tokens replace the first 3 pieces. */
tx_status tx_spm_make_unigram(tx_spm_making *m, const char *const *first, int64_t unk, bool fallback);
/* Makes a model of merges: from the scores, or with `ordered`, as classes do it, from the order of all pieces. */
tx_status tx_spm_make_bpe(tx_spm_making *m, const char *unk, bool fallback, bool ordered);
tx_status tx_spm_add_charsmap(tx_spm_making *m);
/* Makes the parts that follow from the settings of the model. */
tx_status tx_spm_make_parts(tx_spm_making *m, bool legacy);

#endif
