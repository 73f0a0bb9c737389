/* SPDX-License-Identifier: Apache-2.0
 * Answers /v1/embeddings and /v1/classify: runs an encoder over the texts of a call. */
#include "tools/serve/txserve.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

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

tx_status serve_encode(serve_call *c)
{
    const serve_server *s = c->server;
    int64_t width = c->kind == SERVE_EMBED ? tx_embedder_width(s->embedder) : tx_classifier_labels(s->classifier);
    float *results = malloc((size_t)(c->inputs * width) * sizeof *results);
    tx_status status = results ? TX_OK : tx_fail(TX_MEMORY, "out of memory");
    TX_THEN(status, c->kind == SERVE_EMBED ? tx_embed(s->embedder, c->input, c->inputs, NULL, results)
                                           : tx_classify(s->classifier, c->input, c->inputs, results));
    TX_THEN(status, check_inputs(c));
    if (!status && c->dimensions)
        shorten(c, results, &width);
    TX_THEN(status, write_results(c, results, width));
    free(results);
    return status;
}
