/* SPDX-License-Identifier: Apache-2.0
 * Answers /tokenize and /detokenize in the forms of vLLM and of llama.cpp. The workers do it, without the batch. */
#include "tools/serve/txserve.h"

#include <inttypes.h>
#include <stdlib.h>

tx_status serve_read_ids(const tx_json *list, const char *what, int64_t limit, tx_ids *ids)
{
    TX_TRY(tx_ids_reserve(ids, tx_json_size(list)));
    for (size_t i = 0; i < tx_json_size(list); i++) {
        int64_t id;
        TX_TRY(tx_json_as_int(tx_json_at(list, i), what, 0, limit - 1, &id));
        ids->id[ids->count++] = (int32_t)id;
    }
    return TX_OK;
}

/* Encodes the prompt of vLLM's form, with special tokens by default, or the content of llama.cpp's, without. */
static tx_status encode(const serve_call *c, tx_ids *ids)
{
    bool adds = c->kind == SERVE_TOKENIZE, parses = true;
    const char *text;
    size_t size;
    tx_ids plain = {0}, types = {0};
    TX_TRY(tx_json_get_text(c->body, adds ? "prompt" : "content", &text, &size));
    TX_TRY(TX_JSON_OPTIONAL(bool, c->body, adds ? "add_special_tokens" : "add_special", &adds));
    TX_TRY(TX_JSON_OPTIONAL(bool, c->body, "parse_special", &parses));
    if (!adds)
        return tx_encoder_run(c->encoder, text, size, parses, ids);
    tx_status status = tx_encoder_run(c->encoder, text, size, parses, &plain);
    TX_THEN(status, tx_tokenizer_join(c->server->tokenizer, &plain, NULL, ids, &types));
    free(plain.id);
    free(types.id);
    return status;
}

tx_status serve_tokenize(serve_call *c)
{
    tx_ids ids = {0};
    tx_status status = c->kind == SERVE_TOKENIZE_CHAT ? serve_read_conversation(c, &ids) : encode(c, &ids);
    tx_json *list = tx_json_array();
    for (size_t i = 0; i < ids.count && !status; i++)
        status = tx_json_append_int(list, ids.id[i]);
    if (status)
        tx_json_free(list);
    else
        status = serve_write(c, tx_json_pack("{s:I, s:I, s:o}", "count", (int64_t)ids.count, "max_model_len",
                                             c->server->context, "tokens", list));
    free(ids.id);
    return status;
}

tx_status serve_detokenize(serve_call *c)
{
    tx_json *tokens;
    tx_ids ids = {0};
    char *bytes = NULL, *text = NULL;
    size_t size;
    TX_TRY(tx_json_get(c->body, "tokens", TX_JSON_ARRAY, &tokens));
    tx_status status = serve_read_ids(tokens, "tokens", tx_tokenizer_size(c->server->tokenizer), &ids);
    TX_THEN(status, tx_tokenizer_decode(c->server->tokenizer, ids.id, ids.count, false, &bytes, &size));
    TX_THEN(status, tx_utf8_replace(bytes, size, &text, &size));
    TX_THEN(status, serve_write(c, tx_json_pack("{s:s%, s:s%}", "prompt", text, size, "content", text, size)));
    free(text);
    free(bytes);
    free(ids.id);
    return status;
}
