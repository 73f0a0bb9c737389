/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a tokenizer that consist of steps in tokenizer.json: normalizer, pre-tokenizer, decoder. Each part has a
 * table of its kinds of steps. A Sequence applies its steps in order. */
#ifndef TX_TOKENIZER_STEPS_H
#define TX_TOKENIZER_STEPS_H

#include "models/tokenizer/buffer.h"
#include "models/tokenizer/charsmap.h"
#include "models/tokenizer/regex.h"
#include "tx_json.h"

typedef enum tx_split_mode {
    TX_SPLIT_ISOLATED, /* matches and the texts between them */
    TX_SPLIT_REMOVED,
    TX_SPLIT_MERGED_WITH_PREVIOUS,
    TX_SPLIT_MERGED_WITH_NEXT,
    TX_SPLIT_CONTIGUOUS
} tx_split_mode;

/* When a mark is added before a text that does not begin with one. */
typedef enum tx_prepend { TX_PREPEND_NEVER, TX_PREPEND_FIRST, TX_PREPEND_ALWAYS } tx_prepend;

typedef struct tx_tokenizer_step tx_tokenizer_step;
typedef struct tx_spelling tx_spelling; /* decoder.c */

/* Appends the step's result for a text of whole characters to `out`, or sets its status. */
typedef void tx_normalize(const tx_tokenizer_step *step, const char *text, size_t size, tx_buffer *out);
/* Converts the spelling's `in` to its `out`. */
typedef void tx_decode(const tx_tokenizer_step *step, tx_spelling *spelling);

/* A row of a part's table. */
typedef struct tx_tokenizer_step_kind {
    const char *name;
    tx_status (*read)(tx_tokenizer_step *step, const tx_json *json); /* may be NULL */
    tx_normalize *normalize; /* of normalizers; NULL means tx_tokenizer_step_replace_all */
    tx_decode *decode;       /* of decoders */
    int form;                /* of normalizers: a tx_unicode_form */
    const char *words; /* of pre-tokenizers: matches words, the rest is removed; NULL if `read` sets the expression */
} tx_tokenizer_step_kind;

struct tx_tokenizer_step {
    const tx_tokenizer_step_kind *kind;
    tx_regex regex;     /* of Split and Replace; without code if there is none */
    char *text;         /* Replace's content, Prepend's text, a prefix or a mark; or NULL */
    tx_split_mode mode; /* of a pre-tokenizer with a regular expression */
    bool invert;        /* exchanges the roles of matches and the texts between them */
    bool mark;          /* of a pre-tokenizer: spaces are replaced by `text` */
    tx_prepend prepend; /* and when `text` is added before the text */
    bool flag[4];       /* BertNormalizer's and others' options, in the order of their kind's reader */
    int64_t cut[2];     /* of the decoder Strip: characters to remove at the beginning and at the end */
    tx_charsmap *map;   /* of Precompiled */
};

static inline bool tx_tokenizer_step_is(const tx_tokenizer_step *step, const char *kind)
{
    return strcmp(step->kind->name, kind) == 0;
}

#define TX_TOKENIZER_STEPS_MAX 16

typedef struct tx_tokenizer_steps {
    tx_tokenizer_step at[TX_TOKENIZER_STEPS_MAX];
    int32_t count;
    int32_t letters; /* of a pre-tokenizer: steps from this one on split the letters of bytes (bpe.h); 0 if none does */
} tx_tokenizer_steps;

/* Calls `read` with its type for a part, which is an object or NULL, or for each object of a Sequence in its member
 * `list_key`. */
typedef tx_status tx_component_reader(void *context, const tx_json *json, const char *type);
tx_status tx_component_read(const tx_json *part, const char *list_key, tx_component_reader *read, void *context);
/* Finds the value of member `key` among `count` names. TX_UNSUPPORTED for other values. */
tx_status tx_component_choice(const tx_json *json, const char *key, const char *const *names, size_t count,
                              size_t *choice);

/* Reads a part that is an object, or null. `list_key` is the member that holds a Sequence's steps. TX_UNSUPPORTED names
 * an unknown kind. */
tx_status tx_tokenizer_steps_read(tx_tokenizer_steps *steps, const tx_json *part, const char *list_key,
                                  const tx_tokenizer_step_kind *kinds, size_t count);
void tx_tokenizer_steps_free(tx_tokenizer_steps *steps);

/* Helpers for readers. Reads the text of a key, which must exist. */
tx_status tx_tokenizer_step_text(tx_tokenizer_step *step, const tx_json *json, const char *key);
/* {"String": text} or {"Regex": expression} in member `pattern`. */
tx_status tx_tokenizer_step_pattern(tx_tokenizer_step *step, const tx_json *json);
/* Reads Replace's pattern and content. */
tx_status tx_tokenizer_step_replace(tx_tokenizer_step *step, const tx_json *json);
/* Reads Metaspace's mark, and when it is added. */
tx_status tx_tokenizer_step_metaspace(tx_tokenizer_step *step, const tx_json *json);
/* Appends the text with each match of the step's expression replaced by its text. Call tx_matcher_begin before. */
void tx_tokenizer_step_replace_all(const tx_tokenizer_step *step, tx_matcher *matcher, const char *text, size_t size,
                                   tx_buffer *out);

/* ---- Normalizers, the member "normalizer" of tokenizer.json ---------------------------------------- */

/* Reads a normalizer. If `json` is NULL there are no steps. `*bytes` becomes true if it ends with ByteLevel, which is
 * then left to the pre-tokenizer. */
tx_status tx_normalizer_read(tx_tokenizer_steps *steps, const tx_json *json, bool *bytes);
/* Overrides the options of a BertNormalizer by those of tokenizer_config.json, as transformers' BertTokenizer does. */
tx_status tx_normalizer_follow_bert(tx_tokenizer_steps *steps, const tx_json *config);
/* Applies the steps to a text of whole characters. The result is in `scratch`. Call tx_matcher_begin before. `*first`
 * (may be NULL) becomes false if the result does not begin with the first character of the text or its replacement. */
tx_status tx_normalizer_run(const tx_tokenizer_steps *steps, tx_matcher *matcher, tx_buffer scratch[2],
                            const char **text, size_t *size, bool *first);

#endif
