/* SPDX-License-Identifier: Apache-2.0
 * Reads and writes the labels of a classifier in config.json. */
#include "models/arch/labels.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The words of tx_problem. */
static const char *const problems[] = {"single_label_classification", "multi_label_classification", "regression"};

tx_status tx_labels_read(const tx_json *json, tx_config *config)
{
    enum { PROBLEMS = sizeof problems / sizeof problems[0] };
    tx_json *names;
    const char *word = problems[config->problem];
    int32_t problem = 0;
    TX_TRY(TX_JSON_OPTIONAL(string, json, "problem_type", &word));
    while (problem < PROBLEMS && strcmp(word, problems[problem]) != 0)
        problem++;
    if (problem == PROBLEMS)
        return tx_fail(TX_UNSUPPORTED, "problem_type: \"%.40s\" is not one of %s, %s, %s", word, problems[2],
                       problems[0], problems[1]);
    if (tx_json_has(json, "id2label")) {
        TX_TRY(tx_json_get(json, "id2label", TX_JSON_OBJECT, &names));
        const size_t count = tx_json_size(names);
        if (count < 1 || count > TX_LABELS_MOST)
            return tx_fail(TX_INVALID, "id2label: %zu labels: expected 1 to %d", count, TX_LABELS_MOST);
        config->labels = (int64_t)count;
    } else {
        TX_TRY(TX_JSON_OPTIONAL(int, json, "num_labels", 1, TX_LABELS_MOST, &config->labels));
    }
    const bool inferred = config->labels == 1 && !tx_json_has(json, "problem_type");
    config->problem = inferred ? TX_PROBLEM_NUMBERS : (tx_problem)problem;
    return TX_OK;
}

const char *tx_problem_name(tx_problem problem)
{
    return problems[problem];
}

const char *tx_label_name(const tx_config *config, int64_t label)
{
    char key[32], usual[32];
    const char *name;
    tx_json *names;
    snprintf(key, sizeof key, "%" PRId64, label);
    snprintf(usual, sizeof usual, "LABEL_%" PRId64, label);
    if (!config->source || tx_json_get(config->source, "id2label", TX_JSON_OBJECT, &names) ||
        tx_json_get_string(names, key, &name) || strcmp(name, usual) == 0)
        return NULL;
    return name;
}

void tx_label_scores(const float *logits, int64_t count, bool each, float *scores)
{
    double most = (double)logits[0], sum = 0.0;
    for (int64_t i = 0; i < count && each; i++)
        scores[i] = (float)(1.0 / (1.0 + exp(-(double)logits[i])));
    if (each)
        return;
    for (int64_t i = 1; i < count; i++)
        most = (double)logits[i] > most ? (double)logits[i] : most;
    for (int64_t i = 0; i < count; i++)
        sum += exp((double)logits[i] - most);
    for (int64_t i = 0; i < count; i++)
        scores[i] = (float)(exp((double)logits[i] - most) / sum);
}

tx_status tx_labels_set(tx_config *config, tx_problem problem, const char *const *names, int64_t count)
{
    tx_json *to_name = tx_json_object(), *to_id = tx_json_object();
    tx_status status = TX_OK;
    if (!config->source)
        config->source = tx_json_object();
    for (int64_t i = 0; i < count && !status; i++) {
        char key[32], usual[32];
        snprintf(key, sizeof key, "%" PRId64, i);
        snprintf(usual, sizeof usual, "LABEL_%" PRId64, i);
        status = tx_json_set_string(to_name, key, names ? names[i] : usual);
        TX_THEN(status, tx_json_set_int(to_id, names ? names[i] : usual, i));
    }
    if (status) {
        tx_json_free(to_name);
        tx_json_free(to_id);
        return status;
    }
    config->labels = count;
    status = tx_json_set(config->source, "id2label", to_name);
    const tx_status other = tx_json_set(config->source, "label2id", to_id); /* frees to_id also on failure */
    TX_THEN(status, other);
    TX_THEN(status, tx_problem_set(config, problem));
    return status;
}

bool tx_problem_is_open(const tx_config *config)
{
    return config->labels > 1 && !(config->source && tx_json_has(config->source, "problem_type"));
}

tx_status tx_problem_set(tx_config *config, tx_problem problem)
{
    if (!config->source)
        config->source = tx_json_object();
    config->problem = problem;
    return tx_json_set_string(config->source, "problem_type", problems[problem]);
}

int64_t tx_pad_token(const tx_config *config)
{
    int64_t id = -1;
    if (config->source && tx_json_has(config->source, "pad_token_id") &&
        tx_json_get_int(config->source, "pad_token_id", -1, INT32_MAX, &id))
        return -1;
    return id;
}

tx_status tx_pad_token_set(tx_config *config, int64_t id)
{
    if (!config->source)
        config->source = tx_json_object();
    return tx_json_set_int(config->source, "pad_token_id", id);
}

void tx_mark_last_token(const int32_t *ids, int64_t length, int64_t pad, int64_t block, float *last)
{
    int64_t at = length - 1;
    while (at > 0 && ids[at] == pad)
        at--;
    for (int64_t t = 0; t < block; t++)
        last[t] = t == at ? 1.0f : 0.0f;
}
