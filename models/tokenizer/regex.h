/* SPDX-License-Identifier: Apache-2.0
 *
 * Regular expressions of tokenizer files, in Oniguruma's syntax as Hugging Face's tokenizers use it, run by PCRE2. */
#ifndef TX_TOKENIZER_REGEX_H
#define TX_TOKENIZER_REGEX_H

#include "tx.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* \w of Rust's regular expressions, for use inside [...] of a PCRE2 expression. */
#define TX_REGEX_WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}"

typedef struct tx_regex {
    char *pattern; /* the original one in the file */
    pcre2_code *code;
    bool compiled; /* to machine code */
} tx_regex;

/* Translates Oniguruma's syntax to an equivalent PCRE2 expression (with PCRE2_UTF). TX_UNSUPPORTED if PCRE2 would match
 * differently. The caller frees. */
tx_status tx_regex_translate(const char *pattern, char **translated);
/* Compiles a PCRE2 expression, to machine code if possible. */
tx_status tx_regex_compile(const char *pattern, tx_regex *regex);
/* Translates and compiles. */
tx_status tx_regex_open(const char *pattern, tx_regex *regex);
/* Compiles an expression that matches runs of characters of one script. */
tx_status tx_regex_scripts(tx_regex *regex);
void tx_regex_close(tx_regex *regex);

/* The per-thread state of matching. An untrusted expression may take time that doubles with each byte of the text, so
 * steps and memory are limited. */
typedef struct tx_matcher tx_matcher;

tx_status tx_matcher_create(tx_matcher **matcher);
void tx_matcher_free(tx_matcher *matcher);
/* Sets the budget of steps for the matches in a text of `size` bytes. */
void tx_matcher_begin(tx_matcher *matcher, size_t size);
/* Finds the next match from `from` on, in a text of whole characters; an empty one at the end if there is none.
 * TX_UNSUPPORTED if the steps are used up. */
tx_status tx_matcher_next(tx_matcher *matcher, const tx_regex *regex, const char *text, size_t size, size_t from,
                          size_t *begin, size_t *end);

/* Whether a PCRE2 expression matches a whole text without line breaks. TX_UNSUPPORTED if it is not valid. */
tx_status tx_regex_fits(const char *pattern, const char *text, bool *fits);

#endif
