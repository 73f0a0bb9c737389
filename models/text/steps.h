/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a tokenizer that are made of steps, as tokenizer.json names them: normalizer, pre-tokenizer, decoder.
 * Each part has a table of the kinds of steps that it knows; a Sequence is its steps, one after the other. */
#ifndef TX_TEXT_STEPS_H
#define TX_TEXT_STEPS_H

#include "models/text/buffer.h"
#include "models/text/regex.h"
#include "tx_json.h"

typedef enum tx_split_mode {
    TX_SPLIT_ISOLATED, /* matches and what lies between them */
    TX_SPLIT_REMOVED,
    TX_SPLIT_MERGED_WITH_PREVIOUS,
    TX_SPLIT_MERGED_WITH_NEXT,
    TX_SPLIT_CONTIGUOUS
} tx_split_mode;

/* Where a text gets a mark before it, if it begins with none. */
typedef enum tx_prepend { TX_PREPEND_NEVER, TX_PREPEND_FIRST, TX_PREPEND_ALWAYS } tx_prepend;

typedef struct tx_step tx_step;
typedef struct tx_spelling tx_spelling; /* decoder.c */

/* Appends to `out`, or its failure, what the step makes of a text of whole characters. */
typedef void tx_normalize(const tx_step *step, const char *text, size_t size, tx_buffer *out);
/* From the spelling's `in` to its `out`. */
typedef void tx_decode(const tx_step *step, tx_spelling *spelling);

/* A row of a part's table. */
typedef struct tx_step_kind {
    const char *name;
    tx_status (*read)(tx_step *step, const tx_json *json); /* NULL: there is nothing to read */
    tx_normalize *normalize;                               /* of normalizers; NULL: tx_step_replace_all */
    tx_decode *decode;                                     /* of decoders */
    int form;                                              /* of normalizers: a tx_unicode_form */
    const char *words; /* of pre-tokenizers: what is a word, all else being left out; NULL: `read` says it */
} tx_step_kind;

struct tx_step {
    const tx_step_kind *kind;
    tx_regex regex;     /* what Split and Replace look for; without code: nothing */
    char *text;         /* what Replace puts in its place; Prepend's text, a prefix, a mark; or NULL */
    tx_split_mode mode; /* of a pre-tokenizer with a regular expression */
    bool invert;        /* what lies between matches takes their part */
    bool mark;          /* of a pre-tokenizer: spaces become `text` */
    tx_prepend prepend; /* and it is put before the text */
    bool flag[4];       /* BertNormalizer's and others' options, in the order of their kind's reader */
    int64_t cut[2];     /* of the decoder Strip: characters at the beginning, at the end */
};

static inline bool tx_step_is(const tx_step *step, const char *kind)
{
    return strcmp(step->kind->name, kind) == 0;
}

#define TX_STEPS_MAX 16

typedef struct tx_steps {
    tx_step at[TX_STEPS_MAX];
    int32_t count;
} tx_steps;

/* Goes through a part, an object or NULL, or the objects of a Sequence in its member `list_key`: calls `read` for each,
 * with its type. */
typedef tx_status tx_component_reader(void *context, const tx_json *json, const char *type);
tx_status tx_component_read(const tx_json *part, const char *list_key, tx_component_reader *read, void *context);
/* Which of `count` names member `key` is; TX_UNSUPPORTED for another. */
tx_status tx_component_choice(const tx_json *json, const char *key, const char *const *names, size_t count,
                              size_t *choice);

/* Reads a part that is an object, or null. `list_key` names the member that holds a Sequence's steps. What is not among
 * the kinds is refused by its name. */
tx_status tx_steps_read(tx_steps *steps, const tx_json *part, const char *list_key, const tx_step_kind *kinds,
                        size_t count);
void tx_steps_free(tx_steps *steps);

/* For readers: the text of a key, which must be there. */
tx_status tx_step_text(tx_step *step, const tx_json *json, const char *key);
/* {"String": text} or {"Regex": expression} in member `pattern`. */
tx_status tx_step_pattern(tx_step *step, const tx_json *json);
/* Replace's pattern and content. */
tx_status tx_step_replace(tx_step *step, const tx_json *json);
/* Metaspace's mark, and when it is put before a text. */
tx_status tx_step_metaspace(tx_step *step, const tx_json *json);
/* Appends a text in which each match of the step's expression has become its text. The matcher has begun. */
void tx_step_replace_all(const tx_step *step, tx_matcher *matcher, const char *text, size_t size, tx_buffer *out);

/* ---- Normalizers, tokenizer.json's part of that name ----------------------------------------------- */

/* `json` may be NULL: no steps. */
tx_status tx_normalizer_read(tx_steps *steps, const tx_json *json);
/* Gives a BertNormalizer the options of tokenizer_config.json, as transformers' BertTokenizer does, whatever
 * tokenizer.json says. */
tx_status tx_normalizer_follow_bert(tx_steps *steps, const tx_json *config);
/* Makes a text of whole characters what the steps make of it, one after the other; it then lies in `scratch`.
 * The matcher has begun. */
tx_status tx_normalizer_run(const tx_steps *steps, tx_matcher *matcher, tx_buffer scratch[2], const char **text,
                            size_t *size);

#endif
