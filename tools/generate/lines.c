/* SPDX-License-Identifier: Apache-2.0
 * Classifies or embeds the texts of --prompt, --prompts or standard input, and prints a line of JSON for each. */
#include "tools/generate/txgen.h"

#include "tx_classify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Texts that are sorted by length together, in batches. */
#define WINDOW 32
#define DEFAULT_BATCH 32

/* The texts of a window, with the object of each output line. */
typedef struct window {
    const txgen_settings *set;
    tx_classifier *classifier; /* one of these two */
    tx_embedder *embedder;
    const char *prompt; /* of the embedder */
    tx_json **object;
    tx_text_input *text;
    tx_words_input *words;
    size_t count, most;
    float *score;
    size_t room, truncated;
    enum { UNKNOWN, TEXTS, JSON_LINES } form; /* of the lines */
} window;

static bool labels_words(const window *w)
{
    return w->classifier && tx_classifier_kind_of(w->classifier) == TX_CLASSIFIER_WORDS;
}

/* ---- Results ------------------------------------------------------------------------------------------- */

/* The number with the fewest digits that is the same float. */
static double shortest(float value)
{
    char text[32];
    for (int digits = 6; digits < 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            return strtod(text, NULL);
    }
    snprintf(text, sizeof text, "%.9g", (double)value);
    return strtod(text, NULL);
}

static tx_status add_embedding(const window *w, size_t index)
{
    const size_t width = (size_t)tx_embedder_width(w->embedder);
    tx_json *list = tx_json_array();
    TX_TRY(tx_json_set(w->object[index], "embedding", list));
    for (size_t i = 0; i < width; i++)
        TX_TRY(tx_json_append_number(list, shortest(w->score[index * width + i])));
    return TX_OK;
}

static tx_status add_scores(const window *w, size_t index)
{
    const tx_classifier *c = w->classifier;
    const tx_classifier_kind kind = tx_classifier_kind_of(c);
    const int64_t labels = tx_classifier_labels(c);
    const float *score = w->score + index * (size_t)labels;
    const int64_t chosen = tx_classifier_chosen(c, score, -1);
    tx_json *object = w->object[index], *list;
    if (kind == TX_CLASSIFIER_NUMBERS && labels == 1)
        return tx_json_set_number(object, "score", shortest(*score));
    if (kind == TX_CLASSIFIER_ONE) {
        TX_TRY(tx_json_set_string(object, "label", tx_classifier_label(c, chosen)));
        TX_TRY(tx_json_set_number(object, "score", shortest(score[chosen])));
    }
    if (kind == TX_CLASSIFIER_MULTI_LABEL) {
        list = tx_json_array();
        TX_TRY(tx_json_set(object, "labels", list));
        for (int64_t i = chosen; i >= 0; i = tx_classifier_chosen(c, score, i))
            TX_TRY(tx_json_append_string(list, tx_classifier_label(c, i)));
    }
    list = tx_json_object();
    TX_TRY(tx_json_set(object, "scores", list));
    for (int64_t i = 0; i < labels; i++)
        TX_TRY(tx_json_set_number(list, tx_classifier_label(c, i), shortest(score[i])));
    return TX_OK;
}

/* Adds the labels of the words of a text, null for words that the model does not see. */
static tx_status add_words(const window *w, size_t index, const float *score)
{
    const int64_t labels = tx_classifier_labels(w->classifier);
    tx_json *names = tx_json_array();
    TX_TRY(tx_json_set(w->object[index], "labels", names));
    tx_json *scores = tx_json_array();
    TX_TRY(tx_json_set(w->object[index], "scores", scores));
    for (int64_t i = 0; i < w->words[index].count; i++, score += labels) {
        const int64_t best = tx_classifier_chosen(w->classifier, score, -1);
        const bool seen = !isnan(*score);
        TX_TRY(seen ? tx_json_append_string(names, tx_classifier_label(w->classifier, best))
                    : tx_json_append_null(names));
        TX_TRY(seen ? tx_json_append_number(scores, shortest(score[best])) : tx_json_append_null(scores));
    }
    return TX_OK;
}

/* ---- Windows ------------------------------------------------------------------------------------------- */

static void clear(window *w)
{
    for (size_t i = 0; i < w->count; i++) {
        tx_json_free(w->object[i]);
        free((void *)(uintptr_t)w->words[i].word);
    }
    w->count = 0;
}

static tx_status compute(window *w, size_t rows)
{
    const bool words = labels_words(w);
    const int64_t width = w->embedder ? tx_embedder_width(w->embedder) : tx_classifier_labels(w->classifier);
    TX_TRY(tx_array_reserve(&w->score, &w->room, rows * (size_t)width, sizeof *w->score, "scores"));
    TX_TRY(w->embedder ? tx_embed(w->embedder, w->text, (int64_t)w->count, w->prompt, w->score)
           : words     ? tx_classify_words(w->classifier, w->words, (int64_t)w->count, w->score)
                       : tx_classify(w->classifier, w->text, (int64_t)w->count, w->score));
    const float *score = w->score;
    for (size_t i = 0; i < w->count; i++) {
        TX_TRY(w->embedder ? add_embedding(w, i) : words ? add_words(w, i, score) : add_scores(w, i));
        TX_TRY(tx_print_json(w->object[i]));
        score += w->words[i].count * width;
        w->truncated += w->text[i].truncated;
    }
    return txgen_flush();
}

static tx_status finish(window *w)
{
    size_t rows = 0;
    for (size_t i = 0; i < w->count; i++)
        rows += labels_words(w) ? (size_t)w->words[i].count : 1;
    const tx_status status = w->count ? compute(w, rows) : TX_OK;
    clear(w);
    return status;
}

/* ---- Lines --------------------------------------------------------------------------------------------- */

/* Finds the words of a line: its list, or the words of its text, which are added to the line. */
static tx_status find_words(tx_json *object, tx_words_input *words)
{
    static const char *const keys[] = {"tokens", "words", "text", NULL};
    const char *const *key = keys;
    tx_json *list = NULL;
    while (*key && !(list = tx_json_find(object, *key)))
        key++;
    if (!list)
        return tx_fail(TX_FORMAT, "there is no key tokens, words or text");
    if (tx_json_type_of(list) == TX_JSON_STRING) {
        const char *text;
        size_t size;
        TX_TRY(tx_json_get_text(object, *key, &text, &size));
        list = tx_json_array();
        TX_TRY(tx_json_set(object, "tokens", list));
        for (text += strspn(text, " \t"); *text; text += strspn(text, " \t")) {
            size = strcspn(text, " \t");
            TX_TRY(tx_json_append(list, tx_json_pack("s%", text, size)));
            text += size;
        }
    }
    const size_t count = tx_json_size(list);
    const char **word = count ? malloc(count * sizeof *word) : NULL;
    if (!word)
        return count ? tx_fail(TX_MEMORY, "no memory for %zu words", count) : tx_fail(TX_FORMAT, "there are no words");
    *words = (tx_words_input){.word = word, .count = (int64_t)count};
    for (size_t i = 0; i < count; i++)
        TX_TRY(tx_json_as_string(tx_json_at(list, i), "word", &word[i]));
    return TX_OK;
}

/* Finds the text, or the two texts, of a line. */
static tx_status find_text(const tx_json *object, tx_text_input *text)
{
    static const char *const keys[][2] = {{"text", "text_pair"}, {"sentence1", "sentence2"}, {"sentence", NULL}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (!tx_json_has(object, keys[i][0]))
            continue;
        TX_TRY(tx_json_get_text(object, keys[i][0], &text->text, &text->size));
        return keys[i][1] ? TX_JSON_OPTIONAL(text, object, keys[i][1], &text->second, &text->second_size) : TX_OK;
    }
    return tx_fail(TX_FORMAT, "there is no key text, sentence, or sentence1");
}

/* Adds a line to the window; it owns the object. Computes a full window. */
static tx_status take(window *w, tx_json *object)
{
    const size_t at = w->count++;
    w->object[at] = object;
    w->text[at] = (tx_text_input){0};
    w->words[at] = (tx_words_input){0};
    if (tx_json_type_of(object) != TX_JSON_OBJECT)
        return tx_fail(TX_FORMAT, "not an object");
    TX_TRY(labels_words(w) ? find_words(object, &w->words[at]) : find_text(object, &w->text[at]));
    return w->count == w->most ? finish(w) : TX_OK;
}

static tx_status take_text(window *w, const char *text, size_t size)
{
    tx_json *object = tx_json_object();
    const tx_status status = tx_json_set_text(object, "text", text, size);
    if (status)
        tx_json_free(object);
    return status ? status : take(w, object);
}

static tx_status take_line(void *context, const char *line, size_t size)
{
    window *w = context;
    tx_json *object = NULL;
    if (w->form == UNKNOWN)
        w->form = *line == '{' ? JSON_LINES : TEXTS;
    if (w->form == TEXTS)
        return take_text(w, line, size);
    TX_TRY(tx_json_parse_line(line, size, "JSON", &object));
    return take(w, object);
}

static tx_status take_file(window *w, const char *path)
{
    w->form = txgen_is_json_lines(path) ? JSON_LINES : strcmp(path, "-") == 0 ? UNKNOWN : TEXTS;
    return txgen_each_line(path, take_line, w);
}

/* ---- The program --------------------------------------------------------------------------------------- */

static tx_status work(window *w)
{
    const txgen_settings *set = w->set;
    tx_status status = TX_OK;
    w->object = malloc(w->most * sizeof *w->object);
    w->text = malloc(w->most * sizeof *w->text);
    w->words = malloc(w->most * sizeof *w->words);
    if (!w->object || !w->text || !w->words)
        return tx_fail(TX_MEMORY, "no memory for %zu texts", w->most);
    tx_alive_doing(set->alive, set->embed ? "embedding" : "classifying");
    for (int32_t i = 0; i < set->prompt.count && !status; i++)
        status = take_text(w, set->prompt.word[i], strlen(set->prompt.word[i]));
    if (!status && (set->prompts || !set->prompt.count))
        status = take_file(w, set->prompts ? set->prompts : "-");
    return status ? status : finish(w);
}

tx_status txgen_lines(const txgen_settings *settings, const tx_lm_options *options)
{
    const size_t batch = options->batch_size ? (size_t)options->batch_size : DEFAULT_BATCH;
    window w = {.set = settings, .most = WINDOW * batch};
    tx_status status =
        settings->embed ? tx_embedder_open(options, &w.embedder) : tx_classifier_open(options, &w.classifier);
    if (w.embedder)
        TX_THEN(status, tx_embedder_prompt(w.embedder, settings->prompt_name, &w.prompt));
    TX_THEN(status, work(&w));
    if (w.truncated)
        tx_print_line(stderr, "txgen: warning: %zu text%s truncated to the positions of the model", w.truncated,
                      w.truncated == 1 ? " was" : "s were");
    clear(&w);
    free(w.object);
    free(w.text);
    free(w.words);
    free(w.score);
    tx_classifier_free(w.classifier);
    tx_embedder_free(w.embedder);
    return status;
}
