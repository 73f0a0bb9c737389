/* SPDX-License-Identifier: Apache-2.0
 * Model cards. */
#include "models/train/card.h"

#include "api/base/file.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- text ----------------------------------------------------------------------------------------- */

/* The code point that `*text` begins with, which it is then moved past; all text here is valid UTF-8. */
static uint32_t next_point(const char **text)
{
    const uint8_t *at = (const uint8_t *)*text;
    int more = *at < 0xc0 ? 0 : *at < 0xe0 ? 1 : *at < 0xf0 ? 2 : 3;
    uint32_t point = more ? *at & (0x3fu >> more) : *at;
    for (int i = 1; i <= more && at[i]; i++)
        point = point << 6 | (at[i] & 0x3fu);
    *text += more + 1;
    return point;
}

/* Whether YAML takes the word as it stands for a string: no number, date, boolean or null. */
static bool is_plain(const char *text)
{
    static const char *const taken[] = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"};
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        if (strcasecmp(text, taken[i]) == 0)
            return false;
    const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    if (!*text || !strchr(letters, *text))
        return false;
    for (; *text; text++)
        if (!strchr(letters, *text) && !strchr("0123456789_./-", *text))
            return false;
    return true;
}

/* A string as a scalar of YAML. What a YAML file may not hold as it stands is escaped. */
static void put_yaml(FILE *to, const char *text)
{
    if (is_plain(text)) {
        fputs(text, to);
        return;
    }
    fputc('"', to);
    while (*text) {
        const char *start = text;
        uint32_t c = next_point(&text);
        bool printable = (c >= 0x20 && c < 0x7f) || (c > 0xa0 && c < 0xd800 && c != 0x2028 && c != 0x2029) ||
                         (c >= 0xe000 && c < 0xfffe && c != 0xfeff) || c >= 0x10000;
        if (c == '"' || c == '\\')
            fprintf(to, "\\%c", (int)c);
        else if (printable)
            fprintf(to, "%.*s", (int)(text - start), start);
        else
            fprintf(to, "\\u%04" PRIx32, c);
    }
    fputc('"', to);
}

/* A string within a line of Markdown. */
static void put_markdown(FILE *to, const char *text)
{
    for (; *text; text++) {
        if (strchr("\\`*[]<>|", *text))
            fputc('\\', to);
        fputc((unsigned char)*text < 0x20 ? ' ' : *text, to);
    }
}

/* Whether it can be a name on the hub, "gpt2" or "openai-community/gpt2", and nothing of that name lies here. */
static bool is_hub_name(const char *text)
{
    const char *slash = strchr(text, '/');
    return is_plain(text) && !tx_file_exists(text) &&
           (!slash || (slash[1] && slash[1] != '.' && !strchr(slash + 1, '/')));
}

/* The member, whatever its type; NULL where it is absent or null. */
static const tx_json *find(const tx_json *object, const char *key)
{
    for (void *i = tx_json_first(object); i; i = tx_json_next(object, i))
        if (strcmp(tx_json_key(i), key) == 0)
            return tx_json_type_of(tx_json_value(i)) == TX_JSON_NULL ? NULL : tx_json_value(i);
    return NULL;
}

static const char *text_of(const tx_json *object, const char *key)
{
    const tx_json *value = find(object, key);
    const char *text;
    return value && !tx_json_as_string(value, key, &text) && *text ? text : NULL;
}

/* A whole number, or one with four decimals, as the Trainer rounds; a string (NaN has no other form in JSON) as it is.
 */
static void put_value(FILE *to, const tx_json *value)
{
    double number;
    const char *text;
    if (value && !tx_json_as_number(value, "", -DBL_MAX, DBL_MAX, &number))
        fprintf(to, "%.*f", floor(number) == number ? 0 : 4, number);
    else if (value && !tx_json_as_string(value, "", &text))
        put_markdown(to, text);
    else
        fputs("No log", to);
}

/* ---- front matter ------------------------------------------------------------------------------------ */

static void put_front(FILE *to, const char *name, const tx_json *facts)
{
    const char *base = text_of(facts, "base_model"), *dataset = text_of(facts, "dataset");
    const tx_json *results = find(facts, "results"), *found = results ? find(results, "perplexity") : NULL;
    double perplexity;
    fputs("---\nlibrary_name: transformers\npipeline_tag: text-generation\n", to);
    if (base && is_hub_name(base)) {
        fputs("base_model: ", to);
        put_yaml(to, base);
        fputc('\n', to);
    }
    fputs("tags:\n- generated_from_trainer\n- tx\n", to);
    if (dataset && is_hub_name(dataset)) {
        fputs("datasets:\n- ", to);
        put_yaml(to, dataset);
        fputc('\n', to);
    }
    fputs("model-index:\n- name: ", to);
    put_yaml(to, name);
    if (dataset && found && !tx_json_as_number(found, "perplexity", 0.0, DBL_MAX, &perplexity)) {
        fputs("\n  results:\n  - task:\n      type: text-generation\n      name: Causal Language Modeling\n"
              "    dataset:\n      name: ",
              to);
        put_yaml(to, dataset);
        fputs("\n      type: ", to);
        put_yaml(to, dataset);
        fprintf(to, "\n    metrics:\n    - type: perplexity\n      name: Perplexity\n      value: %.4f\n", perplexity);
    } else {
        fputs("\n  results: []\n", to);
    }
    fputs("---\n\n", to);
}

/* ---- sections ------------------------------------------------------------------------------------------ */

static void put_intro(FILE *to, const char *name, const tx_json *facts)
{
    const char *base = text_of(facts, "base_model"), *dataset = text_of(facts, "dataset");
    fputs(
        "<!-- This model card was written by TX from what it knows of the run. Proofread and complete it, then remove "
        "this comment. -->\n\n# ",
        to);
    put_markdown(to, name);
    fputs(base ? "\n\nThis model is a fine-tuned version of " : "\n\nThis model was trained from scratch", to);
    if (base && is_hub_name(base)) {
        fprintf(to, "[%s](https://huggingface.co/%s)", base, base);
    } else if (base) {
        put_markdown(to, base);
    }
    fputs(" on ", to);
    if (dataset) {
        fputs("the data of ", to);
        put_markdown(to, dataset);
    } else {
        fputs("an unknown dataset", to);
    }
    fputs(".\n", to);
}

/* "eval_loss" as "Loss": the name without its prefix, its first letter large. */
static void put_title(FILE *to, const char *key)
{
    const char *name = strncmp(key, "eval_", 5) == 0 && key[5] ? key + 5 : key;
    char first[2] = {*name >= 'a' && *name <= 'z' ? (char)(*name - 'a' + 'A') : *name};
    put_markdown(to, first);
    put_markdown(to, name + 1);
}

/* How long it took says nothing of the model. */
static bool is_timing(const char *key)
{
    return strstr(key, "_runtime") || strstr(key, "_per_second");
}

static bool is_evaluation(const char *key)
{
    return strncmp(key, "eval_", 5) == 0 || strcmp(key, "perplexity") == 0;
}

/* The results of the evaluation, or all others, a line each; `before` comes first where there is one. */
static void put_results(FILE *to, const tx_json *facts, bool evaluation, const char *before)
{
    const tx_json *results = find(facts, "results");
    bool any = false;
    for (void *i = results ? tx_json_first(results) : NULL; i; i = tx_json_next(results, i)) {
        const char *key = tx_json_key(i);
        if (is_evaluation(key) != evaluation || is_timing(key) || tx_json_type_of(tx_json_value(i)) == TX_JSON_NULL)
            continue;
        if (!any)
            fputs(before, to);
        any = true;
        fputs("- ", to);
        if (evaluation)
            put_title(to, key);
        else
            put_markdown(to, key);
        fputs(": ", to);
        put_value(to, tx_json_value(i));
        fputc('\n', to);
    }
}

static tx_status put_hyperparameters(FILE *to, const tx_json *facts)
{
    const tx_json *all = find(facts, "hyperparameters");
    fputs("\n## Training procedure\n\n### Training hyperparameters\n\n"
          "The following hyperparameters were used during training:\n",
          to);
    for (void *i = all ? tx_json_first(all) : NULL; i; i = tx_json_next(all, i)) {
        const char *text;
        fputs("- ", to);
        put_markdown(to, tx_json_key(i));
        fputs(": ", to);
        if (!tx_json_as_string(tx_json_value(i), "", &text)) {
            put_markdown(to, text);
        } else {
            char *line = tx_json_text(tx_json_value(i), TX_JSON_LINE);
            if (!line)
                return TX_MEMORY;
            put_markdown(to, line);
            free(line);
        }
        fputc('\n', to);
    }
    return TX_OK;
}

/* A row for every evaluation, with the training loss logged before it. */
static void put_table(FILE *to, const tx_json *facts)
{
    const tx_json *log = find(facts, "log"), *loss = NULL;
    bool any = false;
    for (size_t i = 0; log && i < tx_json_size(log); i++) {
        const tx_json *row = tx_json_at(log, i);
        const tx_json *trained = find(row, "loss"), *evaluated = find(row, "eval_loss");
        int64_t step = 0;
        loss = trained ? trained : loss;
        if (!evaluated)
            continue;
        if (!any)
            fputs("\n### Training results\n\n| Training Loss | Epoch | Step | Validation Loss |\n"
                  "|:-------------:|:-----:|:----:|:---------------:|\n",
                  to);
        any = true;
        fputs("| ", to);
        put_value(to, loss);
        fputs(" | ", to);
        put_value(to, find(row, "epoch"));
        const tx_json *number = find(row, "step");
        if (number)
            tx_json_as_int(number, "step", 0, INT64_MAX, &step);
        fprintf(to, " | %" PRId64 " | ", step);
        put_value(to, evaluated);
        fputs(" |\n", to);
    }
    put_results(to, facts, false, any ? "\n" : "\n### Training results\n\n");
}

static tx_status put_card(FILE *to, const char *name, const tx_json *facts)
{
    const char *device = text_of(facts, "device");
    put_front(to, name, facts);
    put_intro(to, name, facts);
    put_results(to, facts, true, "It achieves the following results on the evaluation set:\n");
    fputs("\n## Model description\n\nMore information needed\n\n## Intended uses & limitations\n\n"
          "More information needed\n\n## Training and evaluation data\n\nMore information needed\n",
          to);
    TX_TRY(put_hyperparameters(to, facts));
    put_table(to, facts);
    fprintf(to, "\n### Framework versions\n\n- TX %s\n", TX_VERSION);
    if (device) {
        fputs("- Device: ", to);
        put_markdown(to, device);
        fputc('\n', to);
    }
    return TX_OK;
}

/* ---- the file ------------------------------------------------------------------------------------------ */

/* The last part of the folder's path; of "." and the like, of what they stand for. What is no UTF-8 becomes "_". The
 * caller frees it. */
static char *name_of(const char *folder)
{
    char *real = realpath(folder, NULL);
    const char *path = real ? real : folder, *slash = strrchr(path, '/');
    char *name = strdup(slash && slash[1] ? slash + 1 : path);
    tx_json *probe = tx_json_object();
    if (name && tx_json_set_string(probe, "name", name))
        for (char *at = name; *at; at++)
            *at = *at & 0x80 ? '_' : *at;
    tx_json_free(probe);
    free(real);
    return name;
}

tx_status tx_card_write(const char *folder, const tx_json *facts)
{
    if (tx_json_type_of(facts) != TX_JSON_OBJECT)
        return tx_fail(TX_INVALID, "%s: the facts of a model card are no object", folder);
    char *text = NULL, *name = name_of(folder), *path = tx_path_join(folder, "README.md");
    size_t size = 0;
    FILE *to = name && path ? open_memstream(&text, &size) : NULL;
    tx_status status = to ? put_card(to, name, facts) : TX_MEMORY;
    bool whole = to && !ferror(to);
    if (to && fclose(to))
        whole = false;
    if (!status && !whole)
        status = TX_MEMORY;
    if (status == TX_MEMORY)
        tx_fail(status, "%s: no memory for the model card", folder);
    TX_THEN(status, tx_file_write(path, text, size));
    free(text);
    free(name);
    free(path);
    return status;
}
