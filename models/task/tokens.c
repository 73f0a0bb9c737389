/* SPDX-License-Identifier: Apache-2.0
 * The task of token classification: metrics, as seqeval computes them by default, rows and predictions. */
#include "models/task/tokens.h"

#include "models/arch/labels.h"
#include "models/names.h"
#include "models/task/sequence.h"
#include "models/task/tasks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PRECISION, RECALL, F1, ACCURACY };

/* The numbers of entities that are right, predicted and in the data; of words that are right, and of all. */
typedef struct counts {
    double right, predicted, real, right_words, words;
} counts;

/* ---- Tags ---------------------------------------------------------------------------------------------- */

/* The type of an entity in a label: the text after the first character, and after a hyphen in it. */
static const char *type_of(const char *name)
{
    const char *rest = name + (*name != '\0');
    while (((unsigned char)*rest & 0xC0) == 0x80) /* the other bytes of a character */
        rest++;
    const char *hyphen = strchr(rest, '-');
    const char *type = hyphen ? hyphen + 1 : rest;
    return *type ? type : "_";
}

/* The tags of the model's labels, and the tag after the last word of a text. The caller frees `*tags`. A label without
 * a name is a type of its own. */
static tx_status tags_of(const tx_config *config, tx_tag **tags)
{
    const int64_t labels = config->labels;
    tx_tag *created = malloc((size_t)(labels + 1) * sizeof *created);
    tx_named *type = malloc((size_t)(labels + 1) * sizeof *type);
    size_t types = 0, first = 0;
    for (int64_t i = 0; i < labels && created && type; i++) {
        const char *name = tx_label_name(config, i);
        created[i] = (tx_tag){name && *name && strchr("BIOES.", *name) ? *name : '?', (int32_t)i};
        if (name)
            type[types++] = (tx_named){type_of(name), (int32_t)i};
    }
    if (created && type) {
        created[labels] = (tx_tag){.position = 'O'};
        type[types++] = (tx_named){type_of("O"), (int32_t)labels};
        tx_named_sort(type, types);
    }
    for (size_t i = 0; i < types; i++) {
        first = strcmp(type[i].name, type[first].name) == 0 ? first : i;
        created[type[i].index].type = (int32_t)(labels + (int64_t)first);
    }
    const tx_status status = created && type ? TX_OK : tx_fail(TX_MEMORY, "no memory for %" PRId64 " labels", labels);
    free(type);
    return TX_RETURN(status, created, tags, free);
}

/* ---- Entities ------------------------------------------------------------------------------------------ */

/* The state of finding the entities of a text, word by word. */
typedef struct finder {
    tx_tag before;
    int64_t begin; /* the word at which the current entity begins */
} finder;

typedef struct entity {
    bool ends; /* before the current word */
    int64_t begin;
    int32_t type;
} entity;

static bool is_one_of(char position, const char *positions)
{
    return strchr(positions, position);
}

/* The rules of seqeval's end_of_chunk and start_of_chunk. */
static entity find(finder *f, tx_tag now, int64_t word)
{
    const char before = f->before.position;
    const bool differs = f->before.type != now.type;
    const bool ends = is_one_of(before, "ES") || (is_one_of(before, "BI") && is_one_of(now.position, "BSO")) ||
                      (!is_one_of(before, "O.") && differs);
    const bool starts = is_one_of(now.position, "BS") || (is_one_of(before, "ESO") && is_one_of(now.position, "EI")) ||
                        (!is_one_of(now.position, "O.") && differs);
    const entity found = {ends, f->begin, f->before.type};
    if (starts)
        f->begin = word;
    f->before = now;
    return found;
}

static void count_word(finder finders[2], tx_tag truth, tx_tag predicted_tag, int64_t word, counts *n)
{
    const entity real = find(&finders[0], truth, word), predicted = find(&finders[1], predicted_tag, word);
    n->real += real.ends;
    n->predicted += predicted.ends;
    n->right += real.ends && predicted.ends && real.begin == predicted.begin && real.type == predicted.type;
}

static tx_status measure(const tx_samples *samples, const float *outputs, int64_t columns, double sums[TX_SUMS_MAX])
{
    const tx_token_data *d = samples->data;
    const tx_tag before = {'O', -1};
    double *own = sums + TX_SUM_OWN;
    counts n = {0};
    int32_t *labels = malloc((size_t)samples->block * sizeof *labels);
    tx_status status = labels ? TX_OK : tx_fail(TX_MEMORY, "no memory for %" PRId64 " labels", samples->block);
    for (int64_t s = 0; s < samples->count && !status; s++) {
        const int64_t begin = tx_sample_begin(d->texts.end, s), length = d->texts.end[s] - begin;
        finder finders[2] = {{before, 0}, {before, 0}};
        int64_t word = 0;
        status = tx_store_read(&d->label, begin, length, labels);
        for (int64_t i = 0; i < length && !status; i++) {
            const int32_t predicted_tag = (int32_t)outputs[s * columns + i], truth = labels[i];
            if (truth == TX_IGNORE_LABEL)
                continue;
            count_word(finders, d->tag[truth], d->tag[predicted_tag], word++, &n);
            n.right_words += truth == predicted_tag;
            n.words++;
        }
        count_word(finders, d->tag[d->labels], d->tag[d->labels], word, &n);
    }
    own[PRECISION] = tx_task_ratio(n.right, n.predicted);
    own[RECALL] = tx_task_ratio(n.right, n.real);
    own[F1] = tx_task_ratio(2.0 * n.right, n.predicted + n.real);
    own[ACCURACY] = tx_task_ratio(n.right_words, n.words);
    free(labels);
    return status;
}

const tx_metric tx_token_metrics[] = {TX_METRIC_LOSS,
                                      TX_METRIC_GREATER("eval_precision", PRECISION),
                                      TX_METRIC_GREATER("eval_recall", RECALL),
                                      TX_METRIC_GREATER("eval_f1", F1),
                                      TX_METRIC_GREATER("eval_accuracy", ACCURACY),
                                      {.name = NULL}};

static const tx_field fields[] = {
    TX_TEXTS_FIELDS,
    [TX_TOKENS_LABELS] = {"labels", TX_I32, TX_FIELD_BLOCK, .padding = TX_IGNORE_LABEL},
    {.name = NULL},
};

static tx_status row(const tx_samples *samples, int64_t number, const tx_batch *to)
{
    const tx_token_data *d = samples->data;
    const int64_t length = tx_text_samples_longest(samples, number);
    int32_t *labels = to->field[TX_TOKENS_LABELS];
    TX_TRY(tx_text_samples_row(&d->texts, number, samples->block, to));
    tx_field_pad(&fields[TX_TOKENS_LABELS], labels + length, samples->block - length);
    return tx_store_read(&d->label, tx_sample_begin(d->texts.end, number), length, labels);
}

/* The label with the largest logit. Labels are exact in float. */
static void keep(const float *logits, int64_t labels, float *to)
{
    *to = (float)tx_task_best(logits, labels);
}

/* Writes the labels of a text's words, separated by spaces. */
static tx_status predict(const tx_samples *samples, int64_t number, const tx_config *config, const float *output,
                         tx_file *file)
{
    const tx_token_data *d = samples->data;
    const int64_t length = tx_text_samples_longest(samples, number);
    int32_t *first = malloc((size_t)length * sizeof *first);
    const char *space = "";
    tx_status status = first ? tx_store_read(&d->first, tx_sample_begin(d->texts.end, number), length, first)
                             : tx_fail(TX_MEMORY, "no memory for a text of %" PRId64 " tokens", length);
    for (int64_t i = 0; i < length && !status; i++) {
        if (!first[i])
            continue;
        status = tx_file_append(file, space, strlen(space));
        TX_THEN(status, tx_task_write_label(config, (int64_t)output[i], file));
        space = " ";
    }
    free(first);
    return status;
}

static tx_status read(tx_samples *samples, const char *path, const tx_data_options *options)
{
    tx_token_data *d = samples->own;
    TX_TRY(tx_token_data_read(samples, path, options));
    return tags_of(options->config, &d->tag);
}

/* A masked language model gets a new head for data with lists of words. */
tx_status tx_tokens_detect(const tx_task *task, const tx_task_signs *signs, bool *is)
{
    const bool new_head = signs->head == TX_HEAD_MASKED_LM && signs->path && signs->trains;
    *is = signs->head == task->head || (new_head && tx_tokens_find(signs->path));
    return TX_OK;
}

const tx_task tx_token_classification = {
    .name = "token classification",
    .head = TX_HEAD_TOKEN_CLASSIFICATION,
    .of_texts = true,
    .data_size = sizeof(tx_token_data),
    .read = read,
    .release = tx_token_data_release,
    .fields = fields,
    .row = row,
    .length = tx_text_samples_longest,
    .loss = tx_task_label_loss,
    .distills = true,
    .keep = keep,
    .kept = 1,
    .measure = measure,
    .predict = predict,
    .metrics = tx_token_metrics,
};
