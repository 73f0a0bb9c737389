/* SPDX-License-Identifier: Apache-2.0
 *
 * Constrained output: texts that follow a JSON schema, a regular expression or a grammar.
 *
 *     tx_vocabulary_create(tokenizer, &vocabulary);
 *     tx_grammar_create(&(tx_grammar_part){.kind = TX_GRAMMAR_SCHEMA, .json = schema}, 1, vocabulary, &grammar);
 *     how.grammar = grammar;
 *
 * Texts with these settings follow the grammar. An end-of-text id is allowed only at the end of a text of the grammar.
 * A text also ends if no token can follow, and at its limit of tokens. */
#ifndef TX_GRAMMAR_H
#define TX_GRAMMAR_H

#include "tx_json.h"
#include "tx_text.h"

TX_API_BEGIN

/* The bytes of a tokenizer's tokens. Special tokens have none, so no grammar allows them. Immutable once made. */
typedef struct tx_vocabulary tx_vocabulary;

/* The tokenizer must outlive it. The caller frees. */
tx_status tx_vocabulary_create(const tx_tokenizer *tokenizer, tx_vocabulary **vocabulary);
void tx_vocabulary_free(tx_vocabulary *vocabulary); /* NULL is fine */

/* Immutable once made: any number of threads may use one grammar at the same time. */
typedef struct tx_grammar tx_grammar;

typedef enum tx_grammar_kind {
    TX_GRAMMAR_TEXT,   /* `text` itself */
    TX_GRAMMAR_REGEX,  /* the texts that the whole regular expression `text` matches */
    TX_GRAMMAR_GBNF,   /* the texts of rule root of a grammar in llama.cpp's form */
    TX_GRAMMAR_CHOICE, /* one of the strings in the array `json` */
    TX_GRAMMAR_SCHEMA, /* JSON that is valid by the schema `json`; any JSON object if that is NULL */
    TX_GRAMMAR_OR      /* separates alternatives */
} tx_grammar_kind;

typedef struct tx_grammar_part {
    tx_grammar_kind kind;
    const char *text;
    const tx_json *json;
} tx_grammar_part;

/* Makes the grammar of all parts, one after another. A required call of one of two tools is, for example, text, schema,
 * text, OR, text, schema, text. JSON has at most one blank or one line break with up to 20 blanks between its tokens.
 * Objects have their properties in the order of the schema, and others only if additionalProperties allows them.
 * TX_INVALID if a part is malformed or too large, or if no text follows it; TX_UNSUPPORTED if TX cannot enforce it. The
 * message names the keyword and its place. The parts may be freed then; the vocabulary must outlive the grammar. The
 * caller frees. */
tx_status tx_grammar_create(const tx_grammar_part *parts, size_t count, const tx_vocabulary *vocabulary,
                            tx_grammar **grammar);
void tx_grammar_free(tx_grammar *grammar); /* NULL is fine */

TX_API_END

#endif
