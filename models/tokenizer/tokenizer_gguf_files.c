/* SPDX-License-Identifier: Apache-2.0
 * Makes a tokenizer's files from the values of a GGUF file: from the tokenizer.json in it, or from its tokens. */
#include "models/tokenizer/bpe.h"
#include "models/tokenizer/tokenizer_gguf.h"

#include <stdlib.h>
#include <string.h>

#define KEY(rest) "tokenizer.ggml." rest

/* If `status` is TX_OK, makes the text of the JSON. Always frees the JSON. */
static tx_status write_text(tx_status status, tx_json *json, char **text, size_t *size)
{
    char *result = status ? NULL : tx_json_text(json, TX_JSON_PRETTY);
    tx_json_free(json);
    if (!result)
        return status ? status : TX_MEMORY;
    *text = result;
    *size = strlen(result);
    return TX_OK;
}

tx_status tx_gguf_tokenizer_text(const tx_gguf_file *file, char **text, size_t *size)
{
    tx_json *json = NULL;
    tx_status status = tx_gguf_get_string(file, "tokenizer.huggingface.json", text, size);
    if (status != TX_NOT_FOUND)
        return status;
    status = tx_tokenizer_json_of_gguf(file, &json);
    return write_text(status, json, text, size);
}

const tx_gguf_role tx_gguf_roles[] = {{KEY("bos_token_id"), "cls_token"},
                                      {TX_GGUF_SEPARATOR, "sep_token"},
                                      {TX_GGUF_MASK, "mask_token"},
                                      {KEY("unknown_token_id"), "unk_token"},
                                      {KEY("padding_token_id"), "pad_token"}};

/* Sets a role to the text of the token that a key names, if there is one. */
static tx_status add_role(const tx_gguf_file *file, const tx_tokenizer *t, const char *key, const char *role,
                          tx_json *json)
{
    int64_t id = -1;
    const char *text;
    size_t size;
    TX_TRY(TX_GGUF_OPTIONAL(int, file, key, 0, tx_tokenizer_size(t) - 1, &id));
    if (id < 0)
        return TX_OK;
    TX_TRY(tx_tokenizer_piece(t, (int32_t)id, false, &text, &size));
    const tx_token *token = &t->vocab.token[id];
    return tx_json_set_text(json, role, t->vocab.bytes.data + token->at, token->size);
}

tx_status tx_gguf_tokenizer_config(const tx_gguf_file *file, const tx_tokenizer *t, char **text, size_t *size)
{
    char *template = NULL, *tools = NULL;
    tx_json *json = tx_json_object();
    const bool words = t->model == &tx_word_piece, bert = words || tx_gguf_has(file, TX_GGUF_SEPARATOR);
    tx_status status = tx_json_set_string(json, "tokenizer_class", "PreTrainedTokenizerFast");
    TX_THEN(status, words ? TX_OK : add_role(file, t, KEY("bos_token_id"), "bos_token", json));
    TX_THEN(status, words ? TX_OK : add_role(file, t, KEY("eos_token_id"), "eos_token", json));
    for (int i = bert ? 0 : 1; i < TX_GGUF_ROLES; i++)
        TX_THEN(status, add_role(file, t, tx_gguf_roles[i].key, tx_gguf_roles[i].role, json));
    TX_THEN(status, tx_json_set_bool(json, "clean_up_tokenization_spaces", false));
    TX_THEN(status, TX_GGUF_OPTIONAL(string, file, "tokenizer.chat_template", &template, NULL));
    TX_THEN(status, TX_GGUF_OPTIONAL(string, file, "tokenizer.chat_template.tool_use", &tools, NULL));
    if (!status && template)
        status = tx_json_set(json, "chat_template",
                             !tools ? tx_json_pack("s", template)
                                    : tx_json_pack("[{s:s, s:s}, {s:s, s:s}]", "name", "default", "template", template,
                                                   "name", "tool_use", "template", tools));
    free(template);
    free(tools);
    return write_text(status, json, text, size);
}
