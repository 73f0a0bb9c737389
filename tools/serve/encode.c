/* SPDX-License-Identifier: Apache-2.0
 * Answers /v1/embeddings, /v1/classify and /v1/rerank: reads the inputs of a call, and runs an encoder over them. */
#include "tools/serve/txserve.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Inputs --------------------------------------------------------------------------------------------- */

/* Makes room for the inputs, which are one text of the queue. */
static tx_status add_inputs(serve_call *c, size_t count)
{
    c->input = calloc(count, sizeof *c->input);
    c->text = calloc(1, sizeof *c->text);
    if (!c->input || !c->text)
        return tx_fail(TX_MEMORY, "out of memory");
    c->inputs = (int64_t)count;
    c->text->call = c;
    c->count = 1;
    return TX_OK;
}

/* Reads the ids of an input, which owns them. */
static tx_status read_ids(const tx_json *list, tx_text_input *to)
{
    tx_ids ids = {0};
    const tx_status status = serve_read_ids(list, "input", (int64_t)INT32_MAX + 1, &ids);
    to->ids = ids.id;
    to->size = ids.count;
    return status;
}

/* A text, ids, or an array of them. The body owns the texts. */
static tx_status read_texts(serve_call *c)
{
    const tx_json *input = tx_json_find(c->body, "input");
    const tx_json_type first = tx_json_type_of(tx_json_at(input, 0));
    const bool list = tx_json_type_of(input) == TX_JSON_ARRAY && first != TX_JSON_INTEGER;
    const size_t count = list ? tx_json_size(input) : 1;
    const char *format = "float";
    if (count < 1 || count > SERVE_INPUTS)
        return tx_fail(TX_INVALID, "input: %zu texts; a request may have 1 to %d", count, SERVE_INPUTS);
    TX_TRY(TX_JSON_OPTIONAL(string, c->body, "encoding_format", &format));
    c->base64 = strcmp(format, "base64") == 0;
    if (!c->base64 && strcmp(format, "float") != 0)
        return tx_fail(TX_INVALID, "encoding_format %.40s is not supported: use float or base64", format);
    if (c->kind == SERVE_EMBED)
        TX_TRY(TX_JSON_OPTIONAL(int, c->body, "dimensions", 1, tx_embedder_width(c->server->embedder), &c->dimensions));
    TX_TRY(add_inputs(c, count));
    for (size_t i = 0; i < count; i++) {
        tx_text_input *to = &c->input[i];
        const tx_json *item = list ? tx_json_at(input, i) : input;
        TX_TRY(tx_json_type_of(item) == TX_JSON_ARRAY && c->kind == SERVE_EMBED
                   ? read_ids(item, to)
                   : tx_json_as_text(item, "input", &to->text, &to->size));
        if (!to->size)
            return tx_fail(TX_INVALID, "input %zu is empty", i);
    }
    return TX_OK;
}

/* The pairs of a cross-encoder; or the texts to embed, the query last. The body owns the texts. */
static tx_status read_documents(serve_call *c)
{
    tx_json *documents;
    tx_text_input query = {0};
    const bool embeds = c->server->embedder;
    if (!embeds && tx_classifier_labels(c->server->classifier) != 1)
        return tx_fail(TX_UNSUPPORTED,
                       "the classifier has %" PRId64 " labels: to rank documents, serve a classifier "
                       "with one label, or an encoder with --task embed",
                       tx_classifier_labels(c->server->classifier));
    TX_TRY(tx_json_get_text(c->body, "query", &query.text, &query.size));
    TX_TRY(tx_json_get(c->body, "documents", TX_JSON_ARRAY, &documents));
    const size_t count = tx_json_size(documents);
    if (count < 1 || count > SERVE_INPUTS)
        return tx_fail(TX_INVALID, "documents: %zu texts; a request may have 1 to %d", count, SERVE_INPUTS);
    c->most = (int64_t)count;
    TX_TRY(TX_JSON_OPTIONAL(int, c->body, "top_n", 1, INT32_MAX, &c->most));
    c->most = c->most < (int64_t)count ? c->most : (int64_t)count;
    c->documents = true;
    TX_TRY(TX_JSON_OPTIONAL(bool, c->body, "return_documents", &c->documents));
    TX_TRY(add_inputs(c, count + embeds));
    for (size_t i = 0; i < count; i++) {
        tx_text_input text = {0}, *to = &c->input[i];
        const tx_json *item = tx_json_at(documents, i);
        TX_TRY(tx_fail_in(tx_json_type_of(item) == TX_JSON_OBJECT
                              ? tx_json_get_text(item, "text", &text.text, &text.size)
                              : tx_json_as_text(item, "a text", &text.text, &text.size),
                          "document %zu", i));
        if (!text.size || !query.size)
            return tx_fail(TX_INVALID, "document %zu, or the query, is empty", i);
        *to = embeds ? text
                     : (tx_text_input){
                           .text = query.text, .size = query.size, .second = text.text, .second_size = text.size};
    }
    if (embeds)
        c->input[count] = query;
    return TX_OK;
}

tx_status serve_read_inputs(serve_call *c)
{
    return c->kind == SERVE_RERANK ? read_documents(c) : read_texts(c);
}

/* ---- Results -------------------------------------------------------------------------------------------- */

/* The bytes of `count` numbers, little-endian, in base64 (RFC 4648). Like the next functions, returns NULL and sets the
 * message if it fails. */
static tx_json *base64_of(const float *number, int64_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t size = (size_t)count * sizeof *number;
    const unsigned char *byte = (const unsigned char *)number; /* TX runs on little-endian hosts only */
    char *text = malloc((size + 2) / 3 * 4), *to = text;
    for (size_t i = 0; i < size && text; i += 3) {
        const size_t rest = size - i;
        const unsigned triple = (unsigned)byte[i] << 16 | (rest > 1 ? (unsigned)byte[i + 1] << 8 : 0u) |
                                (rest > 2 ? (unsigned)byte[i + 2] : 0u);
        *to++ = digits[triple >> 18];
        *to++ = digits[triple >> 12 & 63];
        *to++ = rest > 1 ? digits[triple >> 6 & 63] : '=';
        *to++ = rest > 2 ? digits[triple & 63] : '=';
    }
    tx_json *result = tx_json_pack("s%", text, (size_t)(to - text));
    free(text);
    return result;
}

static tx_json *numbers_of(const float *number, int64_t count)
{
    tx_json *list = tx_json_array();
    for (int64_t i = 0; i < count; i++)
        if (tx_json_append_number(list, (double)number[i])) {
            tx_json_free(list);
            return NULL;
        }
    return list;
}

/* The chosen label; for several labels a list of those; null for numbers. */
static tx_json *label_of(const tx_classifier *classifier, const float *score)
{
    const tx_classifier_kind kind = tx_classifier_kind_of(classifier);
    int64_t label = tx_classifier_chosen(classifier, score, -1);
    if (kind == TX_CLASSIFIER_NUMBERS)
        return tx_json_pack("n");
    if (kind == TX_CLASSIFIER_ONE)
        return tx_json_pack("s", tx_classifier_label(classifier, label));
    tx_json *list = tx_json_array();
    for (; label >= 0; label = tx_classifier_chosen(classifier, score, label))
        if (tx_json_append_string(list, tx_classifier_label(classifier, label))) {
            tx_json_free(list);
            return NULL;
        }
    return list;
}

tx_json *serve_labels(const tx_classifier *classifier)
{
    tx_json *list = tx_json_array();
    for (int64_t i = 0; i < tx_classifier_labels(classifier); i++)
        if (tx_json_append_string(list, tx_classifier_label(classifier, i))) {
            tx_json_free(list);
            return NULL;
        }
    return list;
}

static tx_json *result_of(const serve_call *c, int64_t index, const float *row, int64_t width)
{
    if (c->kind == SERVE_EMBED)
        return tx_json_pack("{s:I, s:s, s:o}", "index", index, "object", "embedding", "embedding",
                            c->base64 ? base64_of(row, width) : numbers_of(row, width));
    return tx_json_pack("{s:I, s:o, s:o, s:I}", "index", index, "label", label_of(c->server->classifier, row), "probs",
                        numbers_of(row, width), "num_classes", width);
}

static tx_status write_results(serve_call *c, const float *results, int64_t width)
{
    tx_json *list = tx_json_array();
    for (int64_t i = 0; i < c->inputs; i++) {
        tx_json *result = result_of(c, i, results + i * width, width);
        if (!result || tx_json_append(list, result)) {
            tx_json_free(list);
            return TX_MEMORY;
        }
    }
    return serve_write(c, tx_json_pack("{s:s, s:s, s:I, s:s, s:o, s:o}", "id", c->id, "object", "list", "created",
                                       c->created, "model", c->server->name, "data", list, "usage", serve_usage(c)));
}

/* A text that is too long gets an error, because its result would not be that of the whole text. */
static tx_status check_inputs(serve_call *c)
{
    for (int64_t i = 0; i < c->inputs; i++) {
        c->prompt_tokens += c->input[i].tokens;
        if (c->input[i].truncated)
            return tx_fail(TX_INVALID, "input %" PRId64 " is longer than the model's %" PRId64 " tokens: shorten it", i,
                           c->input[i].tokens);
    }
    return TX_OK;
}

/* Keeps the first numbers of each embedding. As OpenAI's, one of length 1 keeps this length. */
static void shorten(const serve_call *c, float *results, int64_t *width)
{
    for (int64_t i = 0; i < c->inputs; i++) {
        double all = 0.0, kept = 0.0;
        const float *row = results + i * *width;
        for (int64_t k = 0; k < *width; k++) {
            all += (double)row[k] * (double)row[k];
            kept = k < c->dimensions ? all : kept;
        }
        const double scale = fabs(all - 1.0) < 1e-3 && kept > 0.0 ? 1.0 / sqrt(kept) : 1.0;
        for (int64_t k = 0; k < c->dimensions; k++)
            results[i * c->dimensions + k] = (float)(scale * (double)row[k]);
    }
    *width = c->dimensions;
}

/* ---- Ranks ---------------------------------------------------------------------------------------------- */

typedef struct rank {
    double score;
    int64_t index;
} rank;

/* The best first; equal ones in the order of the request. */
static int compare(const void *left, const void *right)
{
    const rank *a = left, *b = right;
    const int order = (a->score < b->score) - (a->score > b->score);
    return order ? order : (a->index > b->index) - (a->index < b->index);
}

/* The cosine of two embeddings; 0 if one is zero. */
static double cosine(const float *a, const float *b, int64_t width)
{
    double both = 0.0, left = 0.0, right = 0.0;
    for (int64_t i = 0; i < width; i++) {
        both += (double)a[i] * (double)b[i];
        left += (double)a[i] * (double)a[i];
        right += (double)b[i] * (double)b[i];
    }
    return left > 0.0 && right > 0.0 ? both / (sqrt(left) * sqrt(right)) : 0.0;
}

/* The first of the prompts that the model has; NULL stands for its default. */
static const char *prompt_of(const tx_embedder *embedder, const char *const names[2])
{
    const char *prompt = NULL;
    for (int i = 0; i < 2; i++)
        if (!tx_embedder_prompt(embedder, names[i], &prompt))
            return prompt;
    return NULL;
}

/* Embeds the documents and the query with the prompts for them, as encode_document and encode_query of
 * sentence-transformers. */
static tx_status embed_documents(serve_call *c, float *results)
{
    tx_embedder *e = c->server->embedder;
    const int64_t count = c->inputs - 1;
    const char *const of_document[] = {"document", "passage"}, *const of_query[] = {"query", "query"};
    TX_TRY(tx_embed(e, c->input, count, prompt_of(e, of_document), results));
    return tx_embed(e, c->input + count, 1, prompt_of(e, of_query), results + count * tx_embedder_width(e));
}

static tx_status write_ranks(serve_call *c, const float *results, int64_t width)
{
    const int64_t count = c->inputs - (c->server->embedder != NULL);
    tx_json *list = tx_json_array();
    rank *ranks = malloc((size_t)count * sizeof *ranks);
    tx_status status = ranks && list ? TX_OK : tx_fail(TX_MEMORY, "out of memory");
    for (int64_t i = 0; i < count && !status; i++) {
        const float *row = results + i * width;
        ranks[i] = (rank){c->server->embedder ? cosine(row, results + count * width, width) : (double)*row, i};
    }
    if (!status)
        qsort(ranks, (size_t)count, sizeof *ranks, compare);
    for (int64_t i = 0; i < c->most && !status; i++) {
        const tx_text_input *input = &c->input[ranks[i].index];
        const char *text = input->second ? input->second : input->text;
        tx_json *document = c->documents
                                ? tx_json_pack("{s:s%}", "text", text, input->second ? input->second_size : input->size)
                                : NULL;
        status = tx_json_append(list, tx_json_pack("{s:I, s:f, s:o*}", "index", ranks[i].index, "relevance_score",
                                                   ranks[i].score, "document", document));
    }
    free(ranks);
    if (!status)
        return serve_write(c, tx_json_pack("{s:s, s:s, s:s, s:o, s:o}", "id", c->id, "object", "list", "model",
                                           c->server->name, "results", list, "usage", serve_usage(c)));
    tx_json_free(list);
    return status;
}

tx_status serve_encode(serve_call *c)
{
    const serve_server *s = c->server;
    int64_t width = s->embedder ? tx_embedder_width(s->embedder) : tx_classifier_labels(s->classifier);
    float *results = malloc((size_t)(c->inputs * width) * sizeof *results);
    tx_status status = results ? TX_OK : tx_fail(TX_MEMORY, "out of memory");
    TX_THEN(status, !s->embedder              ? tx_classify(s->classifier, c->input, c->inputs, results)
                    : c->kind == SERVE_RERANK ? embed_documents(c, results)
                                              : tx_embed(s->embedder, c->input, c->inputs, NULL, results));
    TX_THEN(status, check_inputs(c));
    if (!status && c->dimensions)
        shorten(c, results, &width);
    TX_THEN(status, c->kind == SERVE_RERANK ? write_ranks(c, results, width) : write_results(c, results, width));
    free(results);
    return status;
}
