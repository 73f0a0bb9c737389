/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores of written texts, each compared with a reference: ROUGE as the package rouge_score computes it, with its
 * tokenizer and stemmer, and BLEU as sacrebleu does by default. */
#ifndef TX_TASK_TEXT_SCORES_H
#define TX_TASK_TEXT_SCORES_H

#include "tx_base.h"

#include <stddef.h>

enum { TX_ROUGE_1, TX_ROUGE_2, TX_ROUGE_L, TX_ROUGE_LSUM, TX_ROUGES };
enum { TX_BLEU_ORDERS = 4 };

/* Sums over all texts. Begin with {0}. */
typedef struct tx_text_scores {
    double rouge[TX_ROUGES]; /* F1; sentences of ROUGE-Lsum are lines */
    /* n-grams of 1 to 4 words: those that the reference has too, and all; words of texts and of references. */
    double matches[TX_BLEU_ORDERS], grams[TX_BLEU_ORDERS], words, reference_words;
} tx_text_scores;

tx_status tx_text_scores_add(tx_text_scores *scores, const char *text, const char *reference);
/* BLEU of all texts together, 0 to 100. */
double tx_text_scores_bleu(const tx_text_scores *scores);

/* Replaces a word of lower-case ASCII letters and digits by its stem, which is not longer. Returns its size. */
size_t tx_stem(char *word, size_t size);

#endif
