/* SPDX-License-Identifier: Apache-2.0
 *
 * Classification and embedding of texts for programs that link the library. txgen --classify and --embed use these
 * calls.
 *
 *     tx_embedder *embedder = NULL;
 *     tx_lm_options options = {.size = sizeof options, .model = "all-MiniLM-L6-v2"};
 *     tx_text_input texts[2] = {{.text = "a fox"}, {.text = "a cat"}};
 *     float *vectors = NULL;
 *
 *     tx_status status = tx_embedder_open(&options, &embedder);
 *     if (!status)
 *         vectors = malloc((size_t)(2 * tx_embedder_width(embedder)) * sizeof *vectors);
 *     if (!status)
 *         status = tx_embed(embedder, texts, 2, NULL, vectors);
 *     if (status)
 *         fprintf(stderr, "%s\n", tx_error());
 *     tx_embedder_free(embedder);
 *
 * Both objects are opened with the options of a language model; batch_size is the number of texts in a forward pass,
 * and 0 means 32. A call may have any number of texts. They are sorted by length, so that batches have little padding,
 * and the results are in the order of the texts. A text's results do not depend on the other texts except for rounding.
 * The first call reads the weights. Only one thread at a time may use an object. */
#ifndef TX_CLASSIFY_H
#define TX_CLASSIFY_H

#include "tx_generate.h"

TX_API_BEGIN

/* A text, or a pair of texts. */
typedef struct tx_text_input {
    const char *text;
    size_t size;        /* bytes of text; 0 means up to its NUL */
    const char *second; /* the second text of a pair; NULL for a single text */
    size_t second_size; /* as `size` */
    int64_t tokens;     /* receives the number of tokens of the model input, special tokens included */
    bool truncated;     /* receives whether tokens were left out because the text is too long */
    const int32_t *ids; /* only for tx_embed: the model input, `size` ids, instead of a text; NULL for a text */
} tx_text_input;

/* ---- Classification ------------------------------------------------------------------------------------- */

typedef enum tx_classifier_kind {
    TX_CLASSIFIER_ONE,         /* one label for each text; scores are probabilities (softmax) */
    TX_CLASSIFIER_MULTI_LABEL, /* any number of labels; scores are probabilities of each label (sigmoid) */
    TX_CLASSIFIER_NUMBERS,     /* a regression; scores are the model's outputs */
    TX_CLASSIFIER_WORDS        /* one label for each word; scores are probabilities (softmax) */
} tx_classifier_kind;

typedef struct tx_classifier tx_classifier;

/* Opens a model for sequence or token classification. TX_UNSUPPORTED for other models. The kind follows from
 * problem_type and the number of labels in config.json, as in transformers' pipelines: one label without a problem_type
 * gives a sigmoid. The caller frees `*classifier`. */
tx_status tx_classifier_open(const tx_lm_options *options, tx_classifier **classifier);
void tx_classifier_free(tx_classifier *classifier); /* NULL is fine */
tx_classifier_kind tx_classifier_kind_of(const tx_classifier *classifier);
int64_t tx_classifier_labels(const tx_classifier *classifier);
/* The name of a label in id2label, or LABEL_n. It lives as long as the classifier. */
const char *tx_classifier_label(const tx_classifier *classifier, int64_t label);
/* The first label after `after` (-1 for the first of all) that the scores [labels] of a text or word choose, or -1. One
 * of kinds ONE and WORDS: the most likely. Any number of kind SEVERAL: those above 0.5, as in transformers' pipelines.
 * None of kind NUMBERS. */
int64_t tx_classifier_chosen(const tx_classifier *classifier, const float *scores, int64_t after);

/* Computes the scores of `count` texts: scores [count, labels]. Not for kind WORDS. TX_INVALID if a text has no
 * tokens. */
tx_status tx_classify(tx_classifier *classifier, tx_text_input *texts, int64_t count, float *scores);

/* The words of a text. */
typedef struct tx_words_input {
    const char *const *word; /* texts that end with a NUL */
    int64_t count;
    int64_t tokens; /* as in tx_text_input */
} tx_words_input;

/* Computes the scores of the words of `count` texts, those of the first token of each word: scores [sum of counts,
 * labels]. Words without tokens, and words after the model's last position, get NaN. Only for kind WORDS. */
tx_status tx_classify_words(tx_classifier *classifier, tx_words_input *texts, int64_t count, float *scores);

/* ---- Embedding ------------------------------------------------------------------------------------------ */

typedef struct tx_embedder tx_embedder;

/* Opens a folder of sentence-transformers: its transformer, pooling, normalization, max_seq_length and prompts. Other
 * modules are TX_UNSUPPORTED. A folder without modules.json gets mean pooling without normalization, and the user is
 * told. The caller frees `*embedder`. */
tx_status tx_embedder_open(const tx_lm_options *options, tx_embedder **embedder);
void tx_embedder_free(tx_embedder *embedder); /* NULL is fine */
/* The number of values of an embedding. */
int64_t tx_embedder_width(const tx_embedder *embedder);
/* The text of a prompt in config_sentence_transformers.json ("query: "). Pass NULL for the default prompt, which is ""
 * if there is none. TX_NOT_FOUND lists the names. It lives as long as the embedder. */
tx_status tx_embedder_prompt(const tx_embedder *embedder, const char *name, const char **prompt);

/* Computes the embeddings of `count` texts: embeddings [count, width]. `prompt` is put before each text; pass NULL for
 * the default prompt. */
tx_status tx_embed(tx_embedder *embedder, tx_text_input *texts, int64_t count, const char *prompt, float *embeddings);

TX_API_END

#endif
