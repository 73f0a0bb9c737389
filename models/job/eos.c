/* SPDX-License-Identifier: Apache-2.0
 * Writes the token that ends answers to generation_config.json, config.json and the tokenizer's files, as TRL's
 * --eos_token does, so that other programs stop generating at it. */
#include "models/job/inputs.h"
#include "models/tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

#define ENDS "eos_token_id"

/* The model's generation_config.json. If it has none, the one that transformers derives from config.json. */
static tx_status read_generation(const tx_job_inputs *in, tx_json **json)
{
    const tx_config *config = in->config;
    const tx_json *ends = config->source ? tx_json_find(config->source, ENDS) : NULL;
    if (in->generation)
        return tx_json_parse(in->generation, strlen(in->generation), TX_JOB_GENERATION, json);
    *json = tx_json_object();
    if (config->bos_token_id >= 0)
        TX_TRY(tx_json_set_int(*json, "bos_token_id", config->bos_token_id));
    if (ends)
        return tx_json_set(*json, ENDS, tx_json_copy(ends));
    return config->eos_token_id >= 0 ? tx_json_set_int(*json, ENDS, config->eos_token_id) : TX_OK;
}

/* Inserts an id before those of eos_token_id, which is a number or a list, unless it is one of them. */
static tx_status add_end(tx_json *json, int64_t id, bool *added)
{
    const tx_json *ends = tx_json_has(json, ENDS) ? tx_json_find(json, ENDS) : NULL;
    const bool is_list = ends && tx_json_type_of(ends) == TX_JSON_ARRAY;
    const size_t count = is_list ? tx_json_size(ends) : ends != NULL;
    tx_json *list = tx_json_array();
    tx_status status = tx_json_append_int(list, id);
    *added = true;
    for (size_t i = 0; i < count && !status; i++) {
        const tx_json *one = is_list ? tx_json_at(ends, i) : ends;
        int64_t end;
        *added = *added && (tx_json_as_int(one, ENDS, 0, INT32_MAX, &end) || end != id);
        status = tx_json_append(list, tx_json_copy(one));
    }
    if (!status && *added)
        return tx_json_set(json, ENDS, list);
    tx_json_free(list);
    return status;
}

static tx_status set_end(tx_job *j, const tx_text_end *end, tx_json *json)
{
    tx_job_inputs *in = &j->inputs;
    const char *bytes;
    size_t size;
    bool added;
    TX_TRY(add_end(json, end->id, &added));
    if (!added)
        return TX_OK;
    char *text = tx_json_text(json, TX_JSON_PRETTY);
    if (!text)
        return TX_MEMORY;
    free(in->generation);
    in->generation = text;
    in->config->eos_token_id = end->id;
    if (!end->keeps_eos)
        TX_TRY(tx_tokenizer_set_end(in->tokenizer, end->id));
    TX_TRY(tx_tokenizer_piece(in->tokenizer, end->id, false, &bytes, &size));
    tx_job_note(j, "end     %.*s ends answers: the model is saved with it as eos_token", (int)size, bytes);
    return TX_OK;
}

tx_status tx_job_choose_end(tx_job *j)
{
    const tx_job_inputs *in = &j->inputs;
    tx_json *json = NULL;
    if (!in->train.count || !in->task->end)
        return TX_OK;
    const tx_text_end end = in->task->end(&in->train);
    if (end.id < 0)
        return TX_OK;
    tx_status status = read_generation(in, &json);
    TX_THEN(status, set_end(j, &end, json));
    tx_json_free(json);
    return status;
}
