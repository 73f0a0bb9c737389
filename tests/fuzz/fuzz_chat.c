/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: a conversation, or a chat template in Jinja, whichever the bytes are. A message never writes a special
 * token, and none of its bytes is lost. */
#include "models/chat/chat.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static tx_tokenizer *bytes;
static tx_encoder *encoder;
static tx_chat *chat;

static void render(tx_conversation *conversation, bool asks)
{
    tx_chat_text text = {0};
    tx_ids ids = {0}, learnt = {0};
    char *back = NULL;
    size_t size = 0, ends = 0, wanted = 0;
    if (tx_chat_render(chat, conversation, asks, asks ? TX_CHAT_NONE : TX_CHAT_ANSWERS, &text) == TX_OK) {
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

/* Renders a conversation by the bytes as a template: a failure has a message. */
static void render_by(const char *data, size_t size)
{
    static const char said[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
                               "\"content\": \"b\"}], \"tools\": [{\"name\": \"f\", \"n\": [1, 2.5, null]}]}";
    tx_jinja *jinja = NULL;
    tx_json *values = NULL, *given = tx_json_object();
    tx_jinja_text text = {0};
    if (tx_jinja_parse(data, size, &jinja) == TX_OK) {
        FUZZ_CHECK(!tx_json_parse(said, sizeof said - 1, "said", &values));
        FUZZ_CHECK(!tx_json_set_string(given, "eos_token", "</s>"));
        const tx_status status = tx_jinja_render(jinja, values, given, &text);
        FUZZ_CHECK(status || text.flags.size == text.bytes.size);
        FUZZ_CHECK(!status || strstr(tx_error(), "chat template"));
    }
    tx_jinja_text_free(&text);
    tx_jinja_free(jinja);
    tx_json_free(values);
    tx_json_free(given);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tx_conversation conversation = {0};
    tx_json *json = NULL;
    FUZZ_CHECK(bytes || (!tx_tokenizer_bytes(&bytes) && !tx_encoder_create(bytes, &encoder) &&
                         !tx_chat_create("zephyr", bytes, NULL, &chat)));
    render_by((const char *)data, size);
    if (tx_json_parse_line((const char *)data, size, "line", &json))
        return 0;
    if (tx_conversation_read(json, size % 2 == 0, &conversation) == TX_OK)
        render(&conversation, size % 3 == 0);
    tx_conversation_free(&conversation);
    tx_json_free(json);
    return 0;
}
