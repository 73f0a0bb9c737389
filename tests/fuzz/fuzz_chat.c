/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: a conversation, a chat template as JSON or in Jinja, whichever the bytes are. What is said never becomes
 * a special token, and no byte of it is lost. */
#include "models/chat/chat.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static tx_tokenizer *bytes;
static tx_encoder *encoder;
static tx_chat *chat;

static void render(const tx_conversation *conversation, bool asks)
{
    tx_chat_text text = {0};
    tx_ids ids = {0}, learnt = {0};
    char *back = NULL;
    size_t size = 0, ends = 0, wanted = 0;
    if (tx_chat_render(chat, conversation, asks, &text) == TX_OK) {
        FUZZ_CHECK(!tx_chat_encode(chat, encoder, &text, &ids, &learnt) && learnt.count == ids.count);
        for (size_t i = 0; i < ids.count; i++)
            ends += ids.id[i] == TX_BYTES_END;
        wanted = conversation->count; /* zephyr ends each turn so */
        FUZZ_CHECK(ends == wanted);
        FUZZ_CHECK(!tx_tokenizer_decode(bytes, ids.id, ids.count, false, &back, &size));
        FUZZ_CHECK(size == text.bytes.size && memcmp(back, text.bytes.data, size) == 0);
    }
    tx_chat_text_free(&text);
    free(ids.id);
    free(learnt.id);
    free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tx_chat_template template;
    tx_conversation conversation = {0};
    tx_json *json = NULL, *own = NULL;
    char *written = NULL;
    FUZZ_CHECK(bytes || (!tx_tokenizer_bytes(&bytes) && !tx_encoder_create(bytes, &encoder) &&
                         !tx_chat_create("zephyr", bytes, NULL, &chat)));
    if (tx_chat_jinja_read((const char *)data, size, &template, &own) == TX_OK && own)
        FUZZ_CHECK(!tx_chat_jinja_write(&template, &written));
    free(written);
    written = NULL;
    tx_json_free(own);
    if (tx_json_parse_line((const char *)data, size, "line", &json))
        return 0;
    if (tx_chat_template_read(json, &template) == TX_OK) {
        /* What was written is known again. */
        FUZZ_CHECK(!tx_chat_jinja_write(&template, &written));
        FUZZ_CHECK(!tx_chat_jinja_read(written, strlen(written), &template, &own));
        tx_json_free(own);
        free(written);
    }
    if (tx_conversation_read(json, size % 2 == 0, &conversation) == TX_OK)
        render(&conversation, size % 3 == 0);
    tx_conversation_free(&conversation);
    tx_json_free(json);
    return 0;
}
