/* SPDX-License-Identifier: Apache-2.0
 * Embeddings of texts, from folders of sentence-transformers and from plain encoders. */
#include "models/files/hub.h"
#include "models/generate/passes.h"
#include "models/tokenizer/buffer.h"
#include "models/tx_classify.h"

#include "api/base/needs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct tx_embedder {
    tx_passes passes;
    tx_pooling pooling;
    tx_buffer text; /* prompt and text */
};

/* Checks that each module takes the values of the one before. */
static tx_status check_dense(const tx_embedder *e)
{
    int64_t width = tx_pooling_width(&e->pooling, e->passes.lm->config->width);
    for (int32_t i = 0; i < e->pooling.dense_count; i++) {
        if (e->pooling.dense[i].in != width)
            return tx_fail(TX_FORMAT, "in_features of a module Dense is %" PRId64 ", but it gets %" PRId64 " values",
                           e->pooling.dense[i].in, width);
        width = e->pooling.dense[i].out;
    }
    return TX_OK;
}

/* Opens the transformer of a folder with the encoder's head. */
static tx_status open_model(tx_embedder *e, const char *folder, const tx_lm_options *options)
{
    tx_lm_options o = *options;
    TX_TRY(tx_pooling_read(folder, &e->pooling));
    o.model = *e->pooling.transformer ? TX_PATH(folder, e->pooling.transformer) : folder;
    TX_TRY(tx_passes_open(&o, &e->passes));
    TX_TRY(tx_config_set_head(e->passes.lm->config, TX_HEAD_STATES));
    e->passes.pooling = &e->pooling;
    TX_TRY(check_dense(e));
    TX_TRY(tx_passes_begin(&e->passes, e->pooling.max_seq_length));
    if (!e->pooling.given && o.warn)
        o.warn(o.context, "the model has neither modules.json of sentence-transformers nor pooling_type: an embedding "
                          "is the mean of the hidden states, not normalized");
    return TX_OK;
}

tx_status tx_embedder_open(const tx_lm_options *options, tx_embedder **embedder)
{
    TX_NEEDS(options && embedder, TX_INVALID);
    if (!options->model)
        return tx_fail(TX_INVALID, "tx_embedder_open: model is missing");
    char *folder = NULL;
    tx_embedder *created = calloc(1, sizeof *created);
    tx_status status =
        created ? tx_hub_model(options->model, &folder) : tx_fail(TX_MEMORY, "no memory for an embedder");
    TX_THEN(status, open_model(created, folder, options));
    free(folder);
    return TX_RETURN(status, created, embedder, tx_embedder_free);
}

void tx_embedder_free(tx_embedder *embedder)
{
    if (!embedder)
        return;
    tx_passes_close(&embedder->passes);
    tx_pooling_free(&embedder->pooling);
    free(embedder->text.data);
    free(embedder);
}

int64_t tx_embedder_width(const tx_embedder *embedder)
{
    TX_NEEDS(embedder, 0);
    return tx_dense_width(&embedder->pooling, embedder->passes.lm->config->width);
}

tx_status tx_embedder_prompt(const tx_embedder *embedder, const char *name, const char **prompt)
{
    TX_NEEDS(embedder && prompt, TX_INVALID);
    return tx_pooling_prompt(&embedder->pooling, name, prompt);
}

/* ---- Embedding ----------------------------------------------------------------------------------------- */

/* The number of the first tokens of a text that belong to the prompt, as sentence-transformers counts them. */
static tx_status count_prompt(tx_embedder *e, const char *prompt, int64_t *count)
{
    tx_passes *s = &e->passes;
    *count = 0;
    if (!*prompt || !e->pooling.skips_prompt)
        return TX_OK;
    TX_TRY(tx_joiner_add(&s->joiner, prompt, strlen(prompt), NULL, 0, s->most, &s->ids, &s->types));
    *count = (int64_t)(s->ids.count - (s->joiner.special[0] - s->joiner.before));
    tx_passes_clear(s);
    return TX_OK;
}

static tx_status add_text(tx_embedder *e, tx_text_input *text, const char *prompt, int64_t prompt_tokens)
{
    tx_passes *s = &e->passes;
    const size_t begin = s->ids.count;
    if (text->second)
        return tx_fail(TX_INVALID, "an embedding is of one text, not of a pair");
    if (text->ids) {
        text->truncated = (int64_t)text->size > s->most;
        text->tokens = text->truncated ? s->most : (int64_t)text->size;
        TX_TRY(tx_ids_reserve(&s->ids, (size_t)text->tokens));
        TX_TRY(tx_ids_reserve(&s->types, (size_t)text->tokens));
        memcpy(s->ids.id + s->ids.count, text->ids, (size_t)text->tokens * sizeof *text->ids);
        memset(s->types.id + s->types.count, 0, (size_t)text->tokens * sizeof *text->ids);
        s->ids.count += (size_t)text->tokens;
        s->types.count += (size_t)text->tokens;
        return tx_passes_add(s, 0);
    }
    tx_buffer_clear(&e->text);
    tx_buffer_add(&e->text, prompt, strlen(prompt));
    tx_buffer_add(&e->text, text->text, text->size ? text->size : strlen(text->text));
    TX_TRY(e->text.status);
    TX_TRY(tx_joiner_add(&s->joiner, e->text.data ? e->text.data : "", e->text.size, NULL, 0, s->most, &s->ids,
                         &s->types));
    text->tokens = (int64_t)(s->ids.count - begin);
    text->truncated = s->joiner.truncated;
    return tx_passes_add(s, prompt_tokens);
}

typedef struct receiver {
    const tx_embedder *embedder;
    float *to;
    size_t width;
    tx_status status;
} receiver;

static void take(void *context, int64_t index, const float *output)
{
    receiver *r = context;
    const tx_pooling *pooling = &r->embedder->pooling;
    float *to = r->to + (size_t)index * r->width;
    if (!pooling->dense_count)
        memcpy(to, output, r->width * sizeof *output);
    else
        TX_THEN(r->status,
                tx_dense_apply(pooling, output, tx_pooling_width(pooling, r->embedder->passes.lm->config->width), to));
}

tx_status tx_embed(tx_embedder *embedder, tx_text_input *texts, int64_t count, const char *prompt, float *embeddings)
{
    TX_NEEDS(embedder && (texts || !count) && (embeddings || !count), TX_INVALID);
    int64_t prompt_tokens = 0;
    receiver r = {embedder, embeddings, (size_t)tx_embedder_width(embedder), TX_OK};
    if (!prompt)
        TX_TRY(tx_embedder_prompt(embedder, NULL, &prompt));
    tx_passes_clear(&embedder->passes);
    TX_TRY(count_prompt(embedder, prompt, &prompt_tokens));
    for (int64_t i = 0; i < count; i++)
        TX_TRY(add_text(embedder, &texts[i], prompt, prompt_tokens));
    TX_TRY(tx_passes_run(&embedder->passes, take, &r));
    return r.status;
}
