/* SPDX-License-Identifier: Apache-2.0
 * Writes model cards. */
#include "models/train/card.h"

#include "api/base/file.h"
#include "api/base/number.h"
#include "models/files/folder.h"
#include "models/tokenizer/utf8.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- text ----------------------------------------------------------------------------------------- */

/* Whether YAML reads the unquoted word as a string, not as a number, date, boolean or null. */
static bool is_plain(const char *text)
{
    static const char *const reserved[] = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"};
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++)
        if (strcasecmp(text, reserved[i]) == 0)
            return false;
    const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    if (!*text || !strchr(letters, *text))
        return false;
    for (; *text; text++)
        if (!strchr(letters, *text) && !strchr("0123456789_./-", *text))
            return false;
    return true;
}

/* Writes a string as a YAML scalar. Characters that YAML does not allow are escaped. */
static void put_yaml(FILE *to, const char *text)
{
    if (is_plain(text)) {
        fputs(text, to);
        return;
    }
    fputc('"', to);
    for (size_t size; *text; text += size) {
        uint32_t c = 0;
        size = tx_utf8_read(text, strnlen(text, TX_UTF8_MAX), &c);
        size += size == 0; /* all text here is valid UTF-8 */
        bool printable = (c >= 0x20 && c < 0x7f) || (c > 0xa0 && c < 0xd800 && c != 0x2028 && c != 0x2029) ||
                         (c >= 0xe000 && c < 0xfffe && c != 0xfeff) || c >= 0x10000;
        if (c == '"' || c == '\\')
            fprintf(to, "\\%c", (int)c);
        else if (printable)
            fwrite(text, 1, size, to);
        else
            fprintf(to, "\\u%04" PRIx32, c);
    }
    fputc('"', to);
}

/* Writes a string within a line of Markdown. */
static void put_markdown(FILE *to, const char *text)
{
    for (; *text; text++) {
        if (strchr("\\`*[]<>|", *text))
            fputc('\\', to);
        fputc((unsigned char)*text < 0x20 ? ' ' : *text, to);
    }
}

/* Whether the text can be a name on the hub, "gpt2" or "openai-community/gpt2", and is not the path of a file. */
static bool is_hub_name(const char *text)
{
    const char *slash = strchr(text, '/');
    return is_plain(text) && !tx_file_exists(text) &&
           (!slash || (slash[1] && slash[1] != '.' && !strchr(slash + 1, '/')));
}

/* The member of any type, or NULL if it is absent or null. */
static const tx_json *find(const tx_json *object, const char *key)
{
    return tx_json_has(object, key) ? tx_json_find(object, key) : NULL;
}

static const char *text_of(const tx_json *object, const char *key)
{
    const tx_json *value = find(object, key);
    const char *text;
    return value && !tx_json_as_string(value, key, &text) && *text ? text : NULL;
}

/* Writes an integer, or a number with four decimals as the Trainer does, or a string, which is how JSON holds NaN. */
static void put_value(FILE *to, const tx_json *value)
{
    double number;
    const char *text;
    if (value && !tx_json_as_number(value, "", -DBL_MAX, DBL_MAX, &number))
        tx_print(to, "%.*f", floor(number) == number ? 0 : 4, number);
    else if (value && !tx_json_as_string(value, "", &text))
        put_markdown(to, text);
    else
        fputs("No log", to);
}

/* %y is a string as a YAML scalar, %m a string in a line of Markdown, %s an unchanged string, %v a JSON value. */
static void print(FILE *to, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    for (; *format; format++)
        if (*format != '%')
            fputc(*format, to);
        else if (*++format == 'v')
            put_value(to, va_arg(args, const tx_json *));
        else if (*format == 'y')
            put_yaml(to, va_arg(args, const char *));
        else if (*format == 'm')
            put_markdown(to, va_arg(args, const char *));
        else
            fputs(va_arg(args, const char *), to);
    va_end(args);
}

/* ---- front matter ------------------------------------------------------------------------------------ */

static void put_front(FILE *to, const char *name, const tx_json *facts)
{
    const char *base = text_of(facts, "base_model"), *dataset = text_of(facts, "dataset");
    const tx_json *results = find(facts, "results"), *found = results ? find(results, "perplexity") : NULL;
    double perplexity;
    print(to, "---\nlibrary_name: %s\npipeline_tag: text-generation\n",
          find(facts, "adapter") ? "peft" : "transformers");
    if (base && is_hub_name(base))
        print(to, "base_model: %y\n", base);
    print(to, "tags:\n- generated_from_trainer\n- tx\n");
    if (dataset && is_hub_name(dataset))
        print(to, "datasets:\n- %y\n", dataset);
    print(to, "model-index:\n- name: %y\n", name);
    if (dataset && found && !tx_json_as_number(found, "perplexity", 0.0, DBL_MAX, &perplexity)) {
        print(to,
              "  results:\n  - task:\n      type: text-generation\n      name: Causal Language Modeling\n"
              "    dataset:\n      name: %y\n      type: %y\n"
              "    metrics:\n    - type: perplexity\n      name: Perplexity\n",
              dataset, dataset);
        tx_print(to, "      value: %.4f\n", perplexity);
    } else {
        print(to, "  results: []\n");
    }
    print(to, "---\n\n");
}

/* ---- sections ------------------------------------------------------------------------------------------ */

static void put_intro(FILE *to, const char *name, const tx_json *facts)
{
    const char *base = text_of(facts, "base_model"), *dataset = text_of(facts, "dataset");
    print(to,
          "<!-- TX wrote this model card from the data of the run. Proofread and complete it, then remove this "
          "comment. -->\n\n# %m\n\n",
          name);
    if (base && is_hub_name(base))
        print(to, "This model is a fine-tuned version of [%s](https://huggingface.co/%s)", base, base);
    else if (base)
        print(to, "This model is a fine-tuned version of %m", base);
    else
        print(to, "This model was trained from scratch");
    print(to, dataset ? " on the data of %m.\n" : " on an unknown dataset.\n", dataset);
}

/* Writes "eval_loss" as "Loss": the name without its prefix, capitalized. */
static void put_title(FILE *to, const char *key)
{
    const char *name = strncmp(key, "eval_", 5) == 0 && key[5] ? key + 5 : key;
    char first[2] = {*name >= 'a' && *name <= 'z' ? (char)(*name - 'a' + 'A') : *name};
    put_markdown(to, first);
    put_markdown(to, name + 1);
}

/* Timings are left out, since they say nothing about the model. */
static bool is_timing(const char *key)
{
    return strstr(key, "_runtime") || strstr(key, "_per_second");
}

static bool is_evaluation(const char *key)
{
    return strncmp(key, "eval_", 5) == 0 || strcmp(key, "perplexity") == 0;
}

/* Writes the results of the evaluation, or all others, one on a line. If there are any, `before` is written first. */
static void put_results(FILE *to, const tx_json *facts, bool evaluation, const char *before)
{
    const tx_json *results = find(facts, "results");
    bool any = false;
    for (void *i = results ? tx_json_first(results) : NULL; i; i = tx_json_next(results, i)) {
        const char *key = tx_json_key(i);
        if (is_evaluation(key) != evaluation || is_timing(key) || tx_json_type_of(tx_json_value(i)) == TX_JSON_NULL)
            continue;
        print(to, any ? "- " : "%s- ", before);
        any = true;
        if (evaluation)
            put_title(to, key);
        else
            put_markdown(to, key);
        print(to, ": %v\n", tx_json_value(i));
    }
}

static tx_status put_hyperparameters(FILE *to, const tx_json *facts)
{
    const tx_json *all = find(facts, "hyperparameters");
    print(to, "\n## Training procedure\n\n### Training hyperparameters\n\n"
              "The following hyperparameters were used during training:\n");
    for (void *i = all ? tx_json_first(all) : NULL; i; i = tx_json_next(all, i)) {
        const char *text;
        char *line = NULL;
        if (tx_json_as_string(tx_json_value(i), "", &text) &&
            !(text = line = tx_json_text(tx_json_value(i), TX_JSON_LINE)))
            return TX_MEMORY;
        print(to, "- %m: %m\n", tx_json_key(i), text);
        free(line);
    }
    return TX_OK;
}

/* Writes a row for each evaluation, with the last training loss that was logged before it. */
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
            print(to, "\n### Training results\n\n| Training Loss | Epoch | Step | Validation Loss |\n"
                      "|:-------------:|:-----:|:----:|:---------------:|\n");
        any = true;
        const tx_json *number = find(row, "step");
        if (number)
            tx_json_as_int(number, "step", 0, INT64_MAX, &step);
        print(to, "| %v | %v | ", loss, find(row, "epoch"));
        fprintf(to, "%" PRId64, step);
        print(to, " | %v |\n", evaluated);
    }
    put_results(to, facts, false, any ? "\n" : "\n### Training results\n\n");
}

static tx_status put_card(FILE *to, const char *name, const tx_json *facts)
{
    const char *device = text_of(facts, "device");
    put_front(to, name, facts);
    put_intro(to, name, facts);
    put_results(to, facts, true, "It achieves the following results on the evaluation set:\n");
    print(to, "\n## Model description\n\nMore information needed\n\n## Intended uses & limitations\n\n"
              "More information needed\n\n## Training and evaluation data\n\nMore information needed\n");
    TX_TRY(put_hyperparameters(to, facts));
    put_table(to, facts);
    print(to, "\n### Framework versions\n\n- TX %s\n", TX_VERSION);
    if (device)
        print(to, "- Device: %m\n", device);
    return TX_OK;
}

/* ---- the file ------------------------------------------------------------------------------------------ */

/* The last component of the folder's absolute path. Bytes of invalid UTF-8 become "_". The caller frees it. */
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
        return tx_fail(TX_INVALID, "%s: the facts of a model card are not an object", folder);
    char *text = NULL, *name = name_of(folder);
    size_t size = 0;
    FILE *to = name ? open_memstream(&text, &size) : NULL;
    tx_status status = to ? put_card(to, name, facts) : TX_MEMORY;
    bool whole = to && !ferror(to);
    if (to && fclose(to))
        whole = false;
    if (!status && !whole)
        status = TX_MEMORY;
    if (status == TX_MEMORY)
        tx_fail(status, "%s: no memory for the model card", folder);
    TX_THEN(status, tx_file_write(TX_PATH(folder, "README.md"), text, size));
    free(text);
    free(name);
    return status;
}
