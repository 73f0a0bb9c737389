/* SPDX-License-Identifier: Apache-2.0
 * txcheck file: checks texts, conversations and labelled texts with txtrain's readers. */
#include "tools/bench/check_file.h"

#include "models/data/rows.h"
#include "models/task/instruction.h"
#include "models/task/preference.h"
#include "models/task/sequence.h"
#include "models/task/tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH 512 /* tokens of a row; longer texts are truncated */

/* Whether the first row of a .jsonl or .json file is a pair of preferences. */
static bool holds_preferences(const char *path)
{
    tx_json *row;
    if (tx_rows_first(path, &row))
        return false;
    const bool found = tx_json_has(row, "chosen") && tx_json_has(row, "rejected");
    tx_json_free(row);
    return found;
}

/* Opens the file as data of the task, with a byte tokenizer and a small model. */
static tx_status judge_task(const tx_task *task, const char *path)
{
    char text[256];
    const int length =
        snprintf(text, sizeof text,
                 "{\"model_type\": \"bert\", \"architectures\": [\"BertFor%sClassification\"], \"vocab_size\": 300, "
                 "\"hidden_size\": 8, \"num_hidden_layers\": 1, \"num_attention_heads\": 1, \"intermediate_size\": 8}",
                 task->head == TX_HEAD_TOKEN_CLASSIFICATION ? "Token" : "Sequence");
    tx_json *json = NULL;
    tx_config *config = NULL;
    tx_tokenizer *bytes = NULL;
    tx_samples samples;
    tx_status status = tx_json_parse(text, (size_t)length, "config", &json);
    TX_THEN(status, tx_config_of_json(json, &config));
    TX_THEN(status, tx_tokenizer_bytes(&bytes));
    const tx_job_settings set = {.chat_template = "chatml"};
    const tx_data_options options = {
        .set = &set, .config = config, .tokenizer = bytes, .block = LENGTH, .to = 100, .threads = 1};
    TX_THEN(status, tx_samples_open(task, path, &options, &samples));
    if (!status)
        tx_samples_close(&samples);
    tx_tokenizer_free(bytes);
    tx_config_free(config);
    return status;
}

static bool has_columns(const tx_rows *rows, const char *first, const char *second)
{
    return tx_rows_column(rows, first) >= 0 && (!second || tx_rows_column(rows, second) >= 0);
}

/* Returns the task whose columns the table has: sequence classification for the usual column names, or else a GLUE
 * task, or NULL. */
static const tx_task *task_of(const char *path)
{
    tx_rows *rows;
    const tx_task *task = NULL;
    if (tx_rows_open(path, &rows))
        return NULL;
    if (!tx_rows_columns(rows) && (has_columns(rows, "sentence", NULL) || has_columns(rows, "sentence1", "sentence2")))
        task = &tx_sequence_classification.task;
    for (const tx_sequence_task *t = tx_glue; t->task.name && !task; t++)
        if (has_columns(rows, t->first, t->second))
            task = &t->task;
    tx_rows_close(rows);
    return task;
}

tx_status tx_check_table(const char *path)
{
    const tx_task *task = task_of(path);
    return judge_task(task ? task : &tx_sequence_classification.task, path);
}

tx_status tx_check_text(const char *path)
{
    tx_tokenizer *bytes;
    tx_dataset *dataset;
    TX_TRY(tx_tokenizer_bytes(&bytes));
    /* All ids are accepted, because the file does not tell the size of its vocabulary. */
    tx_dataset_options options = {
        .size = sizeof options, .tokenizer = bytes, .vocab = INT32_MAX, .block = 2, .to = 100, .threads = 1};
    tx_status status = tx_dataset_open(path, &options, &dataset);
    if (!status)
        tx_dataset_free(dataset);
    tx_tokenizer_free(bytes);
    return status;
}

tx_status tx_check_rows(const char *path)
{
    tx_rows *rows = NULL;
    bool more = true;
    TX_TRY(tx_rows_open(path, &rows));
    tx_status status = TX_OK;
    while (!status && more)
        status = tx_rows_next(rows, &more);
    tx_rows_close(rows);
    return status;
}

tx_status tx_check_lines(const char *path)
{
    char reason[1024];
    bool instructs = false;
    if (tx_tokens_find(path))
        return judge_task(&tx_token_classification, path);
    if (holds_preferences(path))
        return judge_task(&tx_preference_dpo.task, path);
    TX_TRY(tx_instruction_find(path, &instructs));
    if (instructs)
        return judge_task(&tx_instruction, path);
    const tx_status status = tx_check_text(path);
    if (status != TX_FORMAT)
        return status;
    snprintf(reason, sizeof reason, "%s", tx_error()); /* saved: the table's reader sets another message */
    const tx_task *task = task_of(path);
    return task ? judge_task(task, path) : tx_fail(status, "%s", reason);
}
