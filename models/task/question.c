/* SPDX-License-Identifier: Apache-2.0
 * The task of extractive question answering: answers, metrics, rows, loss, predictions. Answers are found in the
 * outputs of windows and compared with the right ones as utils_qa.py and the metrics squad and squad_v2 of Hugging Face
 * do. */
#include "models/task/question.h"

#include "models/tokenizer/buffer.h"
#include "models/tokenizer/unicode.h"
#include "models/tokenizer/utf8.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Candidates for the first and the last token of an answer in each window (n_best_size). */
enum { CANDIDATES = 20 };
enum { EXACT, F1 };

/* ---- Answers ------------------------------------------------------------------------------------------- */

/* The positions of the greatest logits of a column, the greatest first. Returns their number. */
static int64_t find_best(const float *outputs, int64_t positions, int column, int64_t best[CANDIDATES])
{
    int64_t count = 0;
    for (int64_t t = 0; t < positions; t++) {
        const float value = outputs[2 * t + column];
        int64_t at = count;
        while (at > 0 && value > outputs[2 * best[at - 1] + column])
            at--;
        if (at == CANDIDATES)
            continue;
        count += count < CANDIDATES;
        memmove(best + at + 1, best + at, (size_t)(count - at - 1) * sizeof *best);
        best[at] = t;
    }
    return count;
}

static tx_offset answer_of(const tx_question_data *data, const tx_question *question, const float *outputs,
                           int64_t block)
{
    tx_offset answer = {0, 0};
    double best = -INFINITY, none = INFINITY;
    for (int64_t f = question->first; f < question->first + question->features; f++) {
        const float *of = outputs + 2 * f * block;
        const int64_t length = tx_text_samples_length(&data->texts, f, 0);
        const tx_offset *offset = data->offset + data->texts.end[f] - length;
        int64_t from[CANDIDATES], to[CANDIDATES];
        const int64_t begins = find_best(of, length, 0, from), ends = find_best(of, length, 1, to);
        const double empty = (double)of[0] + (double)of[1];
        none = empty < none ? empty : none;
        for (int64_t i = 0; i < begins; i++)
            for (int64_t k = 0; k < ends; k++) {
                const int64_t b = from[i], e = to[k];
                const double score = (double)of[2 * b] + (double)of[2 * e + 1];
                const bool in_context = offset[b].begin <= offset[b].end && offset[e].begin <= offset[e].end;
                if (!in_context || e < b || e - b + 1 > data->longest_answer || score <= best)
                    continue;
                best = score;
                answer = (tx_offset){offset[b].begin, offset[e].end};
            }
    }
    return data->unanswered && none > best ? (tx_offset){0, 0} : answer;
}

/* ---- Comparison of texts ------------------------------------------------------------------------------- */

static bool is_article(const char *word, size_t size)
{
    return (size == 1 && word[0] == 'a') || (size == 2 && memcmp(word, "an", 2) == 0) ||
           (size == 3 && memcmp(word, "the", 3) == 0);
}

static bool is_of_word(uint32_t code)
{
    return code == '_' || tx_unicode_is_letter(code) || tx_unicode_is_number(code);
}

/* Lower case without ASCII punctuation. */
static void lower(const char *text, size_t size, tx_buffer *out)
{
    for (size_t i = 0; i < size;) {
        uint32_t code;
        const size_t length = tx_utf8_read(text + i, size - i, &code);
        if (length && !(code < 0x80 && ispunct((int)code)))
            tx_unicode_lower(code, out);
        i += length ? length : 1;
    }
}

/* Writes the words of a text, each with a NUL at the end: lower case, without punctuation and articles. Returns their
 * number. */
static size_t normalize(const char *text, size_t size, tx_buffer *out)
{
    tx_buffer plain = {0};
    size_t words = 0;
    lower(text, size, &plain);
    for (size_t i = 0; i < plain.size;) {
        /* A maximal run of letters that is an article becomes a space; white space ends words. */
        uint32_t code = 0;
        size_t end = i, length = 0;
        while (end < plain.size && (length = tx_utf8_read(plain.data + end, plain.size - end, &code)) &&
               is_of_word(code))
            end += length;
        const bool article = end > i && is_article(plain.data + i, end - i);
        if (end > i && !article)
            tx_buffer_add(out, plain.data + i, end - i);
        const bool other = end == i;
        const size_t step = other ? (length ? length : 1) : 0;
        const bool space = article || (other && tx_unicode_is_space(code));
        if (other && !space)
            tx_buffer_add(out, plain.data + i, step);
        if (space && out->size && out->data[out->size - 1])
            tx_buffer_add(out, "", 1);
        i = end + step;
    }
    if (out->size && out->data[out->size - 1])
        tx_buffer_add(out, "", 1);
    for (size_t i = 0; i < out->size; i++)
        words += !out->data[i];
    free(plain.data);
    return words;
}

/* The F1 of the words of two normalized texts. */
static double f1_of(const tx_buffer *predicted, size_t predicted_words, const tx_buffer *truth, size_t words)
{
    size_t same = 0, index = 0;
    bool *used = calloc(words + 1, sizeof *used);
    if (!predicted_words || !words || !used) {
        free(used);
        return used ? predicted_words == words : (double)NAN;
    }
    for (size_t g = 0; g < predicted->size; g += strlen(predicted->data + g) + 1) {
        index = 0;
        for (size_t t = 0; t < truth->size; t += strlen(truth->data + t) + 1, index++)
            if (!used[index] && strcmp(predicted->data + g, truth->data + t) == 0) {
                used[index] = true;
                same++;
                break;
            }
    }
    free(used);
    const double precision = (double)same / (double)predicted_words, recall = (double)same / (double)words;
    return same ? 2.0 * precision * recall / (precision + recall) : 0.0;
}

static void compare(const char *predicted, size_t size, const char *truth, double *exact, double *f1)
{
    tx_buffer a = {0}, b = {0};
    const size_t predicted_words = normalize(predicted, size, &a), words = normalize(truth, strlen(truth), &b);
    const double same = f1_of(&a, predicted_words, &b, words);
    const bool equal = a.size == b.size && (!a.size || memcmp(a.data, b.data, a.size) == 0);
    *exact = equal ? 1.0 : *exact;
    *f1 = same > *f1 ? same : *f1;
    free(a.data);
    free(b.data);
}

static tx_status measure(const tx_samples *samples, const float *outputs, int64_t columns, double sums[TX_SUMS_MAX])
{
    const tx_question_data *d = samples->data;
    double *own = sums + TX_SUM_OWN;
    (void)columns; /* 2 for each position */
    for (int64_t i = 0; i < d->questions; i++) {
        const tx_question *q = &d->question[i];
        const tx_offset answer = answer_of(d, q, outputs, samples->block);
        double exact = 0.0, f1 = 0.0;
        for (size_t k = 0; k < q->answers; k++)
            compare(q->context + answer.begin, answer.end - answer.begin, q->answer[k], &exact, &f1);
        if (!q->answers)
            compare(q->context + answer.begin, answer.end - answer.begin, "", &exact, &f1);
        own[EXACT] += exact;
        own[F1] += f1;
    }
    own[EXACT] = 100.0 * own[EXACT] / (double)d->questions;
    own[F1] = 100.0 * own[F1] / (double)d->questions;
    return TX_OK;
}

static const tx_metric metrics[] = {
    TX_METRIC_LOSS, TX_METRIC_GREATER("eval_f1", F1), TX_METRIC_GREATER("eval_exact_match", EXACT), {.name = NULL}};

enum { LABELS = TX_TEXTS_OWN, MASK };

/* What padding adds to its logits. */
#define MASKED (-1e9f)

static const tx_field fields[] = {
    TX_TEXTS_FIELDS,
    [LABELS] = {"labels", TX_I32, 2, .padding = TX_IGNORE_LABEL},
    [MASK] = {"answer_mask", TX_F32, TX_FIELD_BLOCK, .padding = MASKED},
    {.name = NULL},
};

static tx_status row(const tx_samples *samples, int64_t number, const tx_batch *to)
{
    const tx_question_data *d = samples->data;
    TX_TRY(tx_text_samples_row(&d->texts, number, samples->block, to));
    const int64_t length = tx_text_samples_longest(samples, number);
    float *mask = to->field[MASK];
    for (int64_t t = 0; t < samples->block; t++)
        mask[t] = t < length ? 0.0f : MASKED;
    memcpy(to->field[LABELS], d->label + 2 * number, 2 * sizeof *d->label);
    return TX_OK;
}

/* The mean of the cross-entropies of the first and the last position, over the tokens of the row. (run_qa.py includes
 * padding.) */
static tx_tensor *loss(const tx_loss_operands *of, tx_tensor **kept)
{
    tx_graph *graph = of->graph;
    tx_tensor *output = of->output;
    (void)kept;
    if (!output)
        return NULL;
    const tx_shape *shape = tx_tensor_shape(output);
    const int64_t rows = shape->dim[0], block = shape->dim[1];
    tx_tensor *masked = tx_add(output, tx_broadcast(tx_find_input(graph, "answer_mask"), *shape, TX_AXIS_LAST));
    /* [rows, T, 2] -> [rows, 2, T] */
    tx_tensor *logits = tx_transpose(tx_reshape(masked, TX_SHAPE(rows, block, 2, 1)));
    logits = tx_reshape(logits, TX_SHAPE(rows, 2, block));
    return tx_mean_loss(
        tx_cross_entropy_smoothed(logits, tx_find_input(graph, "labels"), block, (float)of->set->smoothing));
}

static void keep(const float *output, int64_t columns, float *kept)
{
    memcpy(kept, output, (size_t)columns * sizeof *kept);
}

/* Writes the best answer of this feature. */
static tx_status predict(const tx_samples *samples, int64_t number, const tx_config *config, const float *output,
                         tx_file *file)
{
    const tx_question_data *d = samples->data;
    const tx_question *q = d->question;
    (void)config;
    while (number >= q->first + q->features)
        q++;
    tx_question one = *q;
    one.first = number;
    one.features = 1;
    /* `output` has the values of this feature only. */
    const tx_offset answer = answer_of(d, &one, output - 2 * number * samples->block, samples->block);
    for (size_t i = answer.begin; i < answer.end; i++) {
        const char byte = q->context[i] == '\n' || q->context[i] == '\t' ? ' ' : q->context[i];
        TX_TRY(tx_file_append(file, &byte, 1));
    }
    return TX_OK;
}

const tx_task tx_question_answering = {
    .name = "question answering",
    .head = TX_HEAD_QUESTION_ANSWERING,
    .of_texts = true,
    .data_size = sizeof(tx_question_data),
    .read = tx_question_data_read,
    .release = tx_question_data_release,
    .fields = fields,
    .row = row,
    .length = tx_text_samples_longest,
    .loss = loss,
    .keep = keep,
    .kept = 2,
    .measure = measure,
    .predict = predict,
    .metrics = metrics,
};
