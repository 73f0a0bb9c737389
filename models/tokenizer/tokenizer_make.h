/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a tokenizer.json from a folder's older files, as transformers does: from vocab.txt, from a model of
 * SentencePiece, or from files with ranks of tokens. */
#ifndef TX_TOKENIZER_MAKE_H
#define TX_TOKENIZER_MAKE_H

#include "models/tokenizer/bpe.h"
#include "models/tokenizer/sentencepiece.h"

/* X(role): the special tokens that a class may have, in transformers' order. */
#define TX_ROLES_MAP(X) X(bos) X(eos) X(unk) X(sep) X(pad) X(cls) X(mask)

/* Their texts. NULL if the class has no such token. */
typedef struct tx_roles {
#define X(role) const char *role;
    TX_ROLES_MAP(X)
#undef X
} tx_roles;

/* A tokenizer.json and its parts. The configuration, an object, receives the defaults of the class. */
typedef struct tx_making {
    tx_json *json, *config;
    const tx_json *model_config; /* config.json, or NULL */
    tx_json *model, *vocab;      /* of `json` */
} tx_making;

/* The tokenizer's class without "Fast" at its end, which the configuration gets too: that of the configuration, of
 * config.json, or of its model type. "" means no class. */
tx_status tx_making_class(tx_making *m, char name[64]);
/* Parses the text of the JSON, and gets its model and vocabulary. */
tx_status tx_making_begin(tx_making *m, const char *text);
/* Sets a member of an object to a text of JSON. */
tx_status tx_making_set(tx_json *object, const char *key, const char *text);
/* Appends a text of JSON to a list. */
tx_status tx_making_append(tx_json *list, const char *text);
/* Adds a token that is in the vocabulary. */
tx_status tx_making_add(tx_making *m, const char *text, int64_t id, bool special);
/* Sets a key of the configuration unless it is there. */
tx_status tx_making_default(tx_making *m, const char *key, const char *text);
/* Sets the roles of the configuration that it does not have. */
tx_status tx_making_roles(tx_making *m, const tx_roles *roles);
/* Sets the post-processor of a tokenizer.json to an empty template. */
tx_status tx_template_begin(tx_json *json, tx_json **post);
/* Adds a token to the list "single" or "pair" of a template; with id -1 the text "A" or "B". */
tx_status tx_template_add(tx_json *post, const char *list, const char *text, int64_t id, int type);
/* Sets the post-processor. Both lists end with NULL. An item is "$A", "$B" or a role such as "cls_token". A digit of
 * `types` is the type of an item. */
tx_status tx_making_template(tx_making *m, const char *const *single, const char *single_types, const char *const *pair,
                             const char *pair_types);

/* Sets a post-processor that adds bos and eos, if the configuration has add_bos_token or add_eos_token. */
tx_status tx_making_ends(tx_making *m);

/* Make a tokenizer.json from vocab.txt, a model of SentencePiece, tekken.json and tiktoken.model. `m` has the
 * configuration. The caller frees `m->json`, also after a failure. */
tx_status tx_make_of_vocab(const char *data, size_t size, tx_making *m);
tx_status tx_make_of_spm(const char *data, size_t size, tx_making *m);
tx_status tx_make_of_tekken(const char *data, size_t size, tx_making *m);
tx_status tx_make_of_tiktoken(const char *data, size_t size, tx_making *m);

#endif
