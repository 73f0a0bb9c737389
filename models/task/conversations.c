/* SPDX-License-Identifier: Apache-2.0
 * Reads files of conversations. */
#include "models/task/conversations.h"

#include "models/tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

tx_status tx_conversations_open(tx_conversations *c)
{
    const tx_data_options *o = c->options;
    const int32_t eos = tx_tokenizer_end(o->tokenizer);
    TX_TRY(tx_rows_open(c->path, &c->rows));
    TX_TRY(tx_rows_index(c->rows));
    TX_TRY(tx_task_choose_range(o, tx_rows_count(c->rows), "samples", &c->begin, &c->end));
    c->plain.tokenizer = o->tokenizer;
    if (eos >= 0)
        TX_TRY(tx_tokenizer_piece(o->tokenizer, eos, false, &c->plain.eos, &c->plain.eos_size));
    return tx_encoder_create(o->tokenizer, &c->encoder);
}

void tx_conversations_close(tx_conversations *c)
{
    tx_rows_close(c->rows);
    tx_encoder_free(c->encoder);
    tx_conversation_free(&c->conversation);
    tx_chat_text_free(&c->text);
    tx_chat_free(c->chat);
}

bool tx_conversations_is_plain(const tx_conversations *c)
{
    return c->conversation.form == TX_CHAT_PLAIN && !c->options->set->chat_template;
}

static tx_status open_chat(const tx_data_options *o, tx_chat_form form, tx_chat **chat)
{
    tx_status status = tx_chat_create(o->set->chat_template, o->tokenizer, &o->report, chat);
    bool replaces = false;
    if (!status && o->set->chat_template && o->split == TX_DATA_TRAIN)
        status = tx_chat_replaces(*chat, &replaces);
    if (!status && (*chat)->frame.open)
        return tx_fail(TX_INVALID, "the chat template has no end of answers, which a model could learn: use another "
                                   "--chat_template");
    if (replaces)
        tx_reporter_print(&o->report,
                          "--chat_template %.60s replaces the model's own chat template, also in the saved folders",
                          o->set->chat_template);
    if (status == TX_NOT_FOUND && !o->set->chat_template && form == TX_CHAT_INSTRUCTION)
        status = tx_chat_create("alpaca", o->tokenizer, &o->report, chat);
    return status;
}

tx_status tx_conversations_open_chat(tx_conversations *c)
{
    if (c->chat || tx_conversations_is_plain(c))
        return TX_OK;
    const tx_status status = open_chat(c->options, c->conversation.form, &c->chat);
    c->wrong_template = status != TX_OK;
    return status;
}

tx_status tx_conversations_skip(tx_conversations *c, int64_t number, tx_status status)
{
    return c->wrong_template ? status : tx_rows_skip(c->rows, number, c->options->set->skip_bad, status);
}

void tx_conversations_report(const tx_conversations *c)
{
    const tx_reporter *report = &c->options->report;
    if (*c->conversation.ignored)
        tx_reporter_print(report, "%.800s: keys that TX ignores: %s", c->path, c->conversation.ignored);
    tx_rows_report(c->rows, report);
}

tx_status tx_conversations_begin(const tx_tokenizer *tokenizer, tx_ids *ids)
{
    const tx_template *t = &tokenizer->post_processor.of[0];
    for (size_t i = 0; i < t->count && t->item[i].id >= 0; i++) {
        TX_TRY(tx_ids_reserve(ids, 1));
        ids->id[ids->count++] = t->item[i].id;
    }
    return TX_OK;
}

void tx_conversations_give_chat(tx_conversations *c, tx_conversation_data *data)
{
    data->chat = c->chat;
    c->chat = NULL;
}

tx_status tx_conversations_encode(tx_conversations *c, bool asks, tx_ids *ids)
{
    ids->count = 0;
    if (!tx_conversations_is_plain(c)) {
        TX_TRY(tx_chat_render(c->chat, &c->conversation, asks, TX_CHAT_NONE, &c->text));
        return tx_chat_encode(c->chat, c->encoder, &c->text, ids, NULL);
    }
    tx_chat plain = c->plain;
    const char *said;
    size_t size;
    TX_TRY(tx_json_get_text(tx_conversation_message(&c->conversation, c->conversation.count - 1), "content", &said,
                            &size));
    const bool ends = plain.eos_size && size >= plain.eos_size &&
                      memcmp(said + size - plain.eos_size, plain.eos, plain.eos_size) == 0;
    if (asks || ends)
        plain.eos_size = 0;
    TX_TRY(tx_chat_render_plain(&plain, &c->conversation, &c->text));
    TX_TRY(tx_chat_encode(&plain, c->encoder, &c->text, ids, NULL));
    tx_ids whole = {0};
    tx_status status = tx_conversations_begin(plain.tokenizer, &whole);
    TX_THEN(status, tx_ids_reserve(&whole, ids->count));
    if (!status && ids->count)
        memcpy(whole.id + whole.count, ids->id, ids->count * sizeof *ids->id);
    whole.count += status ? 0 : ids->count;
    free(ids->id);
    *ids = whole;
    return status;
}

/* ---- Data ------------------------------------------------------------------------------------------------ */

void tx_conversation_data_begin(tx_conversation_data *data, const tx_data_options *options)
{
    data->ids = (tx_store){.folder = options->cache, .report = &options->report};
    data->eos = tx_tokenizer_end(options->tokenizer);
}

void tx_conversation_data_free(tx_conversation_data *data)
{
    tx_store_free(&data->ids);
    tx_chat_free(data->chat);
}

tx_status tx_conversation_data_save(const tx_samples *samples, const char *folder)
{
    const tx_chat *chat = ((const tx_conversation_data *)samples->data)->chat;
    return chat && !chat->is_own ? tx_chat_save(chat, folder) : TX_OK;
}

tx_text_end tx_conversation_data_end(const tx_samples *samples)
{
    const tx_conversation_data *d = samples->data;
    tx_text_end end = {.id = d->eos};
    if (d->chat)
        end.id = tx_chat_end_token(d->chat, &end.keeps_eos);
    return end;
}
