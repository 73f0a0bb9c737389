/* SPDX-License-Identifier: Apache-2.0
 * Classification of texts and of words. */
#include "models/arch/labels.h"
#include "models/generate/passes.h"
#include "models/tx_classify.h"

#include "api/base/needs.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL_ROOM = 32 };

struct tx_classifier {
    tx_passes passes;
    tx_classifier_kind kind;
    char (*usual)[LABEL_ROOM]; /* [labels]: names of labels without one */
    tx_ids word;               /* of the current call: the word of each id, see tx_joined_words */
};

/* ---- Opening ------------------------------------------------------------------------------------------- */

/* As text_classification.py of transformers' pipelines chooses the function of the outputs. */
static tx_classifier_kind kind_of(const tx_config *config)
{
    if (config->architecture->head == TX_HEAD_TOKEN_CLASSIFICATION)
        return TX_CLASSIFIER_WORDS;
    if (config->problem == TX_PROBLEM_NUMBERS && tx_json_has(config->source, "problem_type"))
        return TX_CLASSIFIER_NUMBERS;
    return config->problem == TX_PROBLEM_MULTI_LABEL || config->labels == 1 ? TX_CLASSIFIER_MULTI_LABEL
                                                                            : TX_CLASSIFIER_ONE;
}

static tx_status open_model(const tx_lm_options *options, tx_classifier *c)
{
    TX_TRY(tx_passes_open(options, &c->passes));
    const tx_config *config = c->passes.lm->config;
    const tx_head head = config->architecture->head;
    if (head != TX_HEAD_SEQUENCE_CLASSIFICATION && head != TX_HEAD_TOKEN_CLASSIFICATION)
        return tx_fail(TX_UNSUPPORTED,
                       "%s: %s is no classifier: train one with txtrain, or give the folder of a model for sequence or "
                       "token classification",
                       c->passes.lm->folder, config->architecture->class_name);
    if (config->new_head)
        return tx_fail(TX_INVALID, "%s: the model has no weights of a classifier", c->passes.lm->folder);
    c->kind = kind_of(config);
    c->usual = malloc((size_t)config->labels * sizeof *c->usual);
    if (!c->usual)
        return tx_fail(TX_MEMORY, "no memory for %" PRId64 " labels", config->labels);
    for (int64_t i = 0; i < config->labels; i++)
        snprintf(c->usual[i], LABEL_ROOM, "LABEL_%" PRId64, i);
    return tx_passes_begin(&c->passes, 0);
}

tx_status tx_classifier_open(const tx_lm_options *options, tx_classifier **classifier)
{
    TX_NEEDS(options && classifier, TX_INVALID);
    tx_classifier *created = calloc(1, sizeof *created);
    const tx_status status = created ? open_model(options, created) : tx_fail(TX_MEMORY, "no memory for a classifier");
    return TX_RETURN(status, created, classifier, tx_classifier_free);
}

void tx_classifier_free(tx_classifier *classifier)
{
    if (!classifier)
        return;
    tx_passes_close(&classifier->passes);
    free(classifier->usual);
    free(classifier->word.id);
    free(classifier);
}

tx_classifier_kind tx_classifier_kind_of(const tx_classifier *classifier)
{
    TX_NEEDS(classifier, TX_CLASSIFIER_ONE);
    return classifier->kind;
}

int64_t tx_classifier_labels(const tx_classifier *classifier)
{
    TX_NEEDS(classifier, 0);
    return classifier->passes.lm->config->labels;
}

const char *tx_classifier_label(const tx_classifier *classifier, int64_t label)
{
    TX_NEEDS(classifier && label >= 0 && label < tx_classifier_labels(classifier), "");
    const char *name = tx_label_name(classifier->passes.lm->config, label);
    return name ? name : classifier->usual[label];
}

int64_t tx_classifier_chosen(const tx_classifier *classifier, const float *scores, int64_t after)
{
    TX_NEEDS(classifier && scores, -1);
    const int64_t labels = tx_classifier_labels(classifier);
    int64_t best = 0;
    if (classifier->kind == TX_CLASSIFIER_MULTI_LABEL) {
        while (++after < labels && !(scores[after] > 0.5f))
            ;
        return after < labels ? after : -1;
    }
    for (int64_t i = 1; i < labels; i++)
        best = scores[i] > scores[best] ? i : best;
    return classifier->kind == TX_CLASSIFIER_NUMBERS || after >= 0 ? -1 : best;
}

/* ---- Scores -------------------------------------------------------------------------------------------- */

typedef struct receiver {
    const tx_classifier *classifier;
    float *to;
    const size_t *word, *place; /* of each text: its first entry in the list of words, and its first row of scores */
} receiver;

static void take_text(void *context, int64_t index, const float *output)
{
    const receiver *r = context;
    const int64_t labels = tx_classifier_labels(r->classifier);
    float *to = r->to + index * labels;
    if (r->classifier->kind == TX_CLASSIFIER_NUMBERS)
        memcpy(to, output, (size_t)labels * sizeof *to);
    else
        tx_label_scores(output, labels, r->classifier->kind == TX_CLASSIFIER_MULTI_LABEL, to);
}

static size_t size_of(const char *text, size_t size)
{
    return size || !text ? size : strlen(text);
}

tx_status tx_classify(tx_classifier *classifier, tx_text_input *texts, int64_t count, float *scores)
{
    TX_NEEDS(classifier && (texts || !count) && (scores || !count), TX_INVALID);
    tx_passes *s = &classifier->passes;
    if (classifier->kind == TX_CLASSIFIER_WORDS)
        return tx_fail(TX_INVALID, "%s classifies words, not texts", s->lm->folder);
    tx_passes_clear(s);
    for (int64_t i = 0; i < count; i++) {
        tx_text_input *t = &texts[i];
        const size_t begin = s->ids.count;
        TX_TRY(tx_joiner_add(&s->joiner, t->text, size_of(t->text, t->size), t->second,
                             size_of(t->second, t->second_size), s->most, &s->ids, &s->types));
        t->tokens = (int64_t)(s->ids.count - begin);
        t->truncated = s->joiner.truncated;
        TX_TRY(tx_passes_add(s, 0));
    }
    return tx_passes_run(s, take_text, &(receiver){.classifier = classifier, .to = scores});
}

/* ---- Words --------------------------------------------------------------------------------------------- */

static void take_words(void *context, int64_t index, const float *output)
{
    const receiver *r = context;
    const int64_t labels = tx_classifier_labels(r->classifier);
    const size_t begin = r->word[index], end = r->word[index + 1];
    for (size_t i = begin; i < end; i++) {
        const int32_t word = r->classifier->word.id[i];
        if (word >= 0 && (i == begin || r->classifier->word.id[i - 1] != word))
            tx_label_scores(output + (int64_t)(i - begin) * labels, labels, false,
                            r->to + ((int64_t)r->place[index] + word) * labels);
    }
}

/* Adds the words of a text. The model input of a list without tokens has only special tokens. */
static tx_status add_words(tx_classifier *c, tx_words_input *t)
{
    tx_passes *s = &c->passes;
    const size_t begin = s->ids.count;
    bool used;
    tx_joiner_begin(&s->joiner);
    for (int64_t w = 0; w < t->count; w++)
        TX_TRY(tx_joiner_word(&s->joiner, t->word[w], strlen(t->word[w]), s->most, &used));
    TX_TRY(tx_joiner_end(&s->joiner, s->most, &(tx_joined_words){&s->ids, &s->types, &c->word}));
    t->tokens = (int64_t)(s->ids.count - begin);
    return tx_passes_add(s, 0);
}

static tx_status classify_words(tx_classifier *c, tx_words_input *texts, int64_t count, size_t *word, size_t *place,
                                float *scores)
{
    word[0] = place[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        TX_TRY(tx_fail_in(add_words(c, &texts[i]), "text %" PRId64, i + 1));
        word[i + 1] = c->word.count;
        place[i + 1] = place[i] + (size_t)texts[i].count;
    }
    for (size_t i = 0; i < place[count] * (size_t)tx_classifier_labels(c); i++)
        scores[i] = NAN;
    return tx_passes_run(&c->passes, take_words, &(receiver){c, scores, word, place});
}

tx_status tx_classify_words(tx_classifier *classifier, tx_words_input *texts, int64_t count, float *scores)
{
    TX_NEEDS(classifier && (texts || !count) && (scores || !count), TX_INVALID);
    tx_classifier *c = classifier;
    if (c->kind != TX_CLASSIFIER_WORDS)
        return tx_fail(TX_INVALID, "%s classifies texts, not words", c->passes.lm->folder);
    tx_passes_clear(&c->passes);
    c->word.count = 0;
    size_t *word = malloc(((size_t)count + 1) * sizeof *word), *place = malloc(((size_t)count + 1) * sizeof *place);
    const tx_status status = word && place ? classify_words(c, texts, count, word, place, scores)
                                           : tx_fail(TX_MEMORY, "no memory for %" PRId64 " texts", count);
    free(word);
    free(place);
    return status;
}
