/* SPDX-License-Identifier: Apache-2.0
 * Reward models: opens a folder, and renders prompts with completions as TRL 1.16 does for its reward models
 * (GRPOTrainer._calculate_rewards). Conversations are rendered by the model's own chat template. Other texts follow one
 * another, without the special tokens that the tokenizer adds. */
#include "models/reward/reward.h"

#include "models/arch/find.h"
#include "models/arch/labels.h"
#include "models/chat/chat.h"
#include "models/files/hub.h"
#include "models/files/weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Opening ---------------------------------------------------------------------------------------------- */

/* Finds the label by its name or its number. */
static tx_status choose_label(tx_reward_model *m)
{
    const tx_config *c = m->config;
    char list[256] = "", usual[32];
    m->label = -1;
    if (c->labels == 1 && !*m->set.label)
        return TX_OK;
    for (int64_t i = 0; i < c->labels; i++) {
        const char *name = tx_label_name(c, i);
        snprintf(usual, sizeof usual, "LABEL_%" PRId64, i);
        name = name ? name : usual;
        tx_list_add(list, sizeof list, ", ", "%s", name);
        if (strcmp(m->set.label, name) == 0)
            m->label = i;
    }
    if (m->label >= 0 && c->labels > 1)
        return TX_OK;
    return c->labels == 1 ? tx_fail(TX_INVALID, "label: the model has one output, which is the reward: leave it out")
                          : tx_fail(TX_INVALID,
                                    "label: the model has several labels, and the reward is the probability of one: "
                                    "choose one in --reward_config: %s",
                                    list);
}

static tx_status open_config(const char *folder, int32_t number, tx_reward_model *m)
{
    TX_TRY(tx_hub_model(folder, &m->folder));
    TX_TRY(tx_config_of_folder(m->folder, &m->config));
    snprintf(m->prefix, sizeof m->prefix, TX_WEIGHTS_REWARD "%" PRId32 ".", number);
    m->config->teacher = m->prefix;
    if (m->config->architecture->head != TX_HEAD_SEQUENCE_CLASSIFICATION)
        return tx_fail(TX_UNSUPPORTED,
                       "a %s gives no rewards: give a model for sequence classification (txtrain --task_name reward "
                       "trains one)",
                       m->config->architecture->class_name);
    if (m->config->new_head)
        return tx_fail(TX_INVALID, "the model has no weights of a classifier");
    return choose_label(m);
}

/* Finds the greatest length. The usual one is at most the number of positions. */
static tx_status choose_length(tx_reward_model *m, int64_t most)
{
    const double wanted = m->set.max_length;
    const int64_t positions = m->config->positions;
    if (wanted > (double)positions)
        return tx_fail(TX_INVALID, "max_length: the model has %" PRId64 " positions", positions);
    m->most = wanted > 0.0 ? (int64_t)wanted : most < positions ? most : positions;
    return m->most > 0 ? TX_OK : tx_fail(TX_INVALID, "max_length: must be a number of tokens");
}

static tx_status open_text(tx_reward_model *m)
{
    TX_TRY(tx_tokenizer_open(m->folder, &m->tokenizer));
    if (tx_tokenizer_size(m->tokenizer) > m->config->vocab_size)
        return tx_fail(TX_INVALID, "its tokenizer has %" PRId64 " ids, but the model %" PRId64,
                       tx_tokenizer_size(m->tokenizer), m->config->vocab_size);
    TX_TRY(tx_encoder_create(m->tokenizer, &m->encoder));
    const tx_status status = tx_chat_create(NULL, m->tokenizer, NULL, &m->chat);
    return status == TX_NOT_FOUND ? TX_OK : status;
}

tx_status tx_reward_model_open(const char *folder, const tx_reward_settings *set, int32_t number, int64_t most,
                               tx_reward_model **model)
{
    tx_reward_model *m = calloc(1, sizeof *m);
    if (!m)
        return tx_fail(TX_MEMORY, "no memory for a reward model");
    m->set = *set;
    tx_status status = open_config(folder, number, m);
    TX_THEN(status, choose_length(m, most));
    TX_THEN(status, open_text(m));
    return TX_RETURN(status, m, model, tx_reward_model_free);
}

void tx_reward_model_free(tx_reward_model *m)
{
    if (!m)
        return;
    tx_chat_free(m->chat);
    tx_encoder_free(m->encoder);
    tx_tokenizer_free(m->tokenizer);
    tx_config_free(m->config);
    free(m->folder);
    free(m);
}

/* ---- Texts ------------------------------------------------------------------------------------------------ */

/* Scratch of rendering, and the ids of all texts. */
typedef struct texts {
    tx_conversation conversation;
    tx_chat_text text;
    tx_ids one, ids;
    int64_t *end;
} texts;

static tx_status render_chat(const tx_reward_model *m, const tx_reward_sample *s, texts *t)
{
    if (!m->chat)
        return tx_fail(TX_INVALID, "the prompt is a list of messages, but %s has no chat template", m->folder);
    TX_TRY(tx_conversation_read_side(s->object, NULL, &t->conversation));
    TX_TRY(tx_conversation_add(&t->conversation, "assistant", s->text, s->size));
    TX_TRY(tx_chat_render(m->chat, &t->conversation, false, TX_CHAT_NONE, &t->text));
    return tx_chat_encode(m->chat, m->encoder, &t->text, &t->one, NULL);
}

/* A prompt that is a text, or without a prompt only the completion. */
static tx_status render_text(const tx_reward_model *m, const tx_reward_sample *s, const tx_json *prompt, texts *t)
{
    const char *before = "";
    size_t size = 0;
    if (m->set.prompt)
        TX_TRY(tx_json_as_text(prompt, "prompt", &before, &size));
    char *all = malloc(size + s->size + 1);
    if (!all)
        return tx_fail(TX_MEMORY, "no memory for a text");
    memcpy(all, before, size);
    memcpy(all + size, s->text, s->size);
    t->one.count = 0;
    const tx_status status = m->set.special_tokens ? tx_encoder_text(m->encoder, all, size + s->size, &t->one)
                                                   : tx_encoder_run(m->encoder, all, size + s->size, true, &t->one);
    free(all);
    return status;
}

static tx_status add_text(const tx_reward_model *m, const tx_reward_sample *s, int64_t index, texts *t)
{
    const tx_json *prompt = tx_json_find(s->object, "prompt");
    const bool messages = m->set.prompt && prompt && tx_json_type_of(prompt) != TX_JSON_STRING;
    TX_TRY(messages ? render_chat(m, s, t) : render_text(m, s, prompt, t));
    if ((int64_t)t->one.count > m->most)
        return tx_fail(TX_INVALID,
                       "a prompt with its completion has %zu tokens, but %" PRId64
                       " are planned: give a greater max_length in --reward_config",
                       t->one.count, m->most);
    if (!t->one.count)
        return tx_fail(TX_INVALID, "a prompt with its completion has no tokens");
    TX_TRY(tx_ids_reserve(&t->ids, t->one.count));
    memcpy(t->ids.id + t->ids.count, t->one.id, t->one.count * sizeof *t->one.id);
    t->ids.count += t->one.count;
    t->end[index] = (int64_t)t->ids.count;
    return TX_OK;
}

tx_status tx_reward_model_ask(const tx_reward_model *model, tx_scorer *scorer, const tx_reward_sample *samples,
                              int64_t count, double *to, int64_t stride)
{
    texts t = {.end = malloc((size_t)count * sizeof *t.end)};
    tx_status status = t.end ? TX_OK : tx_fail(TX_MEMORY, "no memory for %" PRId64 " texts", count);
    for (int64_t i = 0; i < count && !status; i++)
        status = add_text(model, &samples[i], i, &t);
    TX_THEN(status, tx_scorer_run(scorer, t.ids.id, t.end, count, to, stride));
    tx_conversation_free(&t.conversation);
    tx_chat_text_free(&t.text);
    free(t.one.id);
    free(t.ids.id);
    free(t.end);
    return status;
}
