/* SPDX-License-Identifier: Apache-2.0
 * Answers /v1/embeddings and /v1/classify: runs an encoder over the texts of a call. */
#include "tools/serve/txserve.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Sets the bytes of `count` numbers, little-endian, in base64 (RFC 4648). */
static tx_status set_base64(tx_json *object, const char *key, const float *number, int64_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t size = (size_t)count * sizeof *number;
    const unsigned char *byte = (const unsigned char *)number; /* TX runs on little-endian hosts only */
    char *text = malloc((size + 2) / 3 * 4 + 1), *to = text;
    if (!text)
        return tx_fail(TX_MEMORY, "out of memory");
    for (size_t i = 0; i < size; i += 3) {
        const size_t rest = size - i;
        const unsigned triple = (unsigned)byte[i] << 16 | (rest > 1 ? (unsigned)byte[i + 1] << 8 : 0u) |
                                (rest > 2 ? (unsigned)byte[i + 2] : 0u);
        *to++ = digits[triple >> 18];
        *to++ = digits[triple >> 12 & 63];
        *to++ = rest > 1 ? digits[triple >> 6 & 63] : '=';
        *to++ = rest > 2 ? digits[triple & 63] : '=';
    }
    *to = 0;
    const tx_status status = tx_json_set_string(object, key, text);
    free(text);
    return status;
}

static tx_status set_numbers(tx_json *object, const char *key, const float *number, int64_t count)
{
    tx_json *list = tx_json_array();
    tx_status status = tx_json_set(object, key, list);
    for (int64_t i = 0; i < count && !status; i++)
        status = tx_json_append_number(list, (double)number[i]);
    return status;
}

/* The chosen label; for several labels a list of those; null for numbers. */
static tx_status set_labels(const tx_classifier *classifier, const float *score, tx_json *object)
{
    const tx_classifier_kind kind = tx_classifier_kind_of(classifier);
    int64_t label = tx_classifier_chosen(classifier, score, -1);
    if (kind == TX_CLASSIFIER_NUMBERS)
        return tx_json_set_null(object, "label");
    if (kind == TX_CLASSIFIER_ONE)
        return tx_json_set_string(object, "label", tx_classifier_label(classifier, label));
    tx_json *list = tx_json_array();
    TX_TRY(tx_json_set(object, "label", list));
    for (; label >= 0; label = tx_classifier_chosen(classifier, score, label))
        TX_TRY(tx_json_append_string(list, tx_classifier_label(classifier, label)));
    return TX_OK;
}

static tx_status add_result(const serve_call *c, int64_t index, const float *row, int64_t width, tx_json *list)
{
    const serve_server *s = c->server;
    tx_json *object = tx_json_object();
    tx_status status = tx_json_append(list, object);
    TX_THEN(status, tx_json_set_int(object, "index", index));
    if (c->kind == SERVE_EMBED) {
        TX_THEN(status, tx_json_set_string(object, "object", "embedding"));
        TX_THEN(status,
                c->base64 ? set_base64(object, "embedding", row, width) : set_numbers(object, "embedding", row, width));
        return status;
    }
    TX_THEN(status, set_labels(s->classifier, row, object));
    TX_THEN(status, set_numbers(object, "probs", row, width));
    TX_THEN(status, tx_json_set_int(object, "num_classes", width));
    return status;
}

static tx_status write_results(serve_call *c, const float *results, int64_t width)
{
    tx_json *object = tx_json_object(), *list = tx_json_array();
    tx_status status = tx_json_set_string(object, "id", c->id);
    TX_THEN(status, tx_json_set_string(object, "object", "list"));
    TX_THEN(status, tx_json_set_int(object, "created", c->created));
    TX_THEN(status, tx_json_set_string(object, "model", c->server->name));
    TX_THEN(status, tx_json_set(object, "data", list));
    for (int64_t i = 0; i < c->inputs && !status; i++)
        status = add_result(c, i, results + i * width, width, list);
    TX_THEN(status, serve_set_usage(c, object));
    return serve_write(c, object, status);
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

tx_status serve_encode(serve_call *c)
{
    const serve_server *s = c->server;
    const int64_t width = c->kind == SERVE_EMBED ? tx_embedder_width(s->embedder) : tx_classifier_labels(s->classifier);
    float *results = malloc((size_t)(c->inputs * width) * sizeof *results);
    tx_status status = results ? TX_OK : tx_fail(TX_MEMORY, "out of memory");
    TX_THEN(status, c->kind == SERVE_EMBED ? tx_embed(s->embedder, c->input, c->inputs, NULL, results)
                                           : tx_classify(s->classifier, c->input, c->inputs, results));
    TX_THEN(status, check_inputs(c));
    TX_THEN(status, write_results(c, results, width));
    free(results);
    return status;
}
