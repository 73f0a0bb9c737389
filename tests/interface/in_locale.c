/* SPDX-License-Identifier: Apache-2.0
 * A host program that sets the locale of its environment: in_locale NAME=VALUE... trains with these options and
 * continues a text. Its own texts must have a decimal comma before and after. */
#include "models/tx_generate.h"
#include "models/tx_train.h"

#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static tx_status set(tx_job *job, char *option)
{
    char *value = strchr(option, '=');
    if (!value)
        return tx_fail(TX_INVALID, "%s has no value", option);
    *value = '\0';
    return tx_job_set(job, option, value + 1);
}

static void show(void *context, const char *line)
{
    (void)context;
    puts(line);
}

static void show_text(void *context, int64_t index, const char *bytes, size_t size)
{
    (void)context;
    (void)index;
    fwrite(bytes, 1, size, stdout);
}

static tx_status generate(const char *model)
{
    const tx_lm_options options = {.size = sizeof options, .model = model, .threads = 1};
    const tx_lm_listener listener = {.size = sizeof listener, .text = show_text};
    const tx_lm_prompt prompt = {.text = "the cat", .size = 7};
    tx_generation how;
    tx_lm *lm = NULL;
    tx_status status = tx_lm_open(&options, &lm);
    if (!status) {
        how = *tx_lm_generation(lm);
        how.max_new_tokens = 20;
    }
    TX_THEN(status, tx_lm_generate(lm, &prompt, 1, &how, &listener));
    tx_lm_free(lm);
    return status;
}

static bool has_comma(const char *wanted)
{
    char text[8];
    snprintf(text, sizeof text, "%.1f", 0.5);
    return text[1] == *wanted;
}

int main(int argc, char **argv)
{
    const tx_job_listener listener = {.size = sizeof listener, .note = show, .warn = show};
    const char *const wanted = argc > 1 ? argv[1] : "";
    tx_job *job = NULL;
    if (!setlocale(LC_ALL, "") || !has_comma(wanted)) {
        fprintf(stderr, "in_locale: the decimal point is not %s\n", wanted);
        return 77;
    }
    tx_status status = tx_job_create(&job);
    for (int i = 2; i < argc; i++)
        TX_THEN(status, set(job, argv[i]));
    TX_THEN(status, tx_job_listen(job, &listener));
    TX_THEN(status, tx_job_run(job));
    TX_THEN(status, generate("out"));
    tx_job_free(job);
    if (status)
        fprintf(stderr, "in_locale: %s\n", tx_error());
    return status || !has_comma(wanted);
}
