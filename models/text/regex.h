/* SPDX-License-Identifier: Apache-2.0
 *
 * Regular expressions of tokenizer files: Oniguruma's, which Hugging Face's tokenizers use, run by PCRE2. */
#ifndef TX_TEXT_REGEX_H
#define TX_TEXT_REGEX_H

#include "tx.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* What \w is in Rust's regular expressions, to stand in [...] of one of PCRE2's. */
#define TX_REGEX_WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}"

typedef struct tx_regex {
    char *pattern; /* as in the file */
    pcre2_code *code;
    bool compiled; /* to machine code */
} tx_regex;

/* Oniguruma's regular expression as one of PCRE2's (with PCRE2_UTF) that matches the same; TX_UNSUPPORTED where PCRE2
 * would understand it in another way. The caller frees. */
tx_status tx_regex_translate(const char *pattern, char **made);
/* Compiles a regular expression of PCRE2's, to machine code where that can be done. */
tx_status tx_regex_compile(const char *pattern, tx_regex *regex);
/* Translates and compiles. */
tx_status tx_regex_open(const char *pattern, tx_regex *regex);
void tx_regex_close(tx_regex *regex);

/* What one thread needs to match regular expressions. Those of a file from a stranger may take time that doubles with
 * each byte of the text, so there are limits on the steps and the memory that they may take. */
typedef struct tx_matcher tx_matcher;

tx_status tx_matcher_create(tx_matcher **matcher);
void tx_matcher_free(tx_matcher *matcher);
/* A text of `size` bytes comes next: its matches share the steps that it is worth. */
void tx_matcher_begin(tx_matcher *matcher, size_t size);
/* The next match from `from` on, in a text of whole characters; an empty one at the end where there is none.
 * TX_UNSUPPORTED where the steps are used up. */
tx_status tx_matcher_next(tx_matcher *matcher, const tx_regex *regex, const char *text, size_t size, size_t from,
                          size_t *begin, size_t *end);

#endif
