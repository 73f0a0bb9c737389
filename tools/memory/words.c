/* SPDX-License-Identifier: Apache-2.0
 * Options of txtrain in txmem's command line, and names of cards. */
#include "tools/memory/txmem.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Options of txtrain ----------------------------------------------------------------------------- */

/* Those of txtrain's options that txmem has under another name. */
static const struct {
    const char *theirs, *own;
} same[] = {{"model_name_or_path", "model"},
            {"config_name", "model"},
            {"max_seq_length", "block_size"},
            {"max_source_length", "block_size"}};

/* Options that change the memory of a run in ways that txmem does not count. */
static const char *const uncounted[] = {"tensor_parallel",
                                        "pipeline_parallel",
                                        "context_parallel",
                                        "expert_parallel",
                                        "sequence_parallel",
                                        "activation_offloading",
                                        "lora_modules_to_save",
                                        "use_dora",
                                        "trainable_token_indices",
                                        "fsdp",
                                        "deepspeed",
                                        "teacher_model_name_or_path",
                                        "task_name",
                                        "optim_args"};

static const char *own_name(const tx_option_values *own, const char *name)
{
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        if (strcmp(same[i].theirs, name) == 0)
            return same[i].own;
    return tx_option_find(&own->table, name) ? name : NULL;
}

/* The text of a value. An object or array becomes JSON. */
static tx_status text_of(const tx_json *value, char *text, size_t size)
{
    const char *word;
    if (tx_json_type_of(value) == TX_JSON_STRING) {
        TX_TRY(tx_json_as_string(value, "option", &word));
        snprintf(text, size, "%s", word);
        return TX_OK;
    }
    char *json = tx_json_text(value, TX_JSON_LINE);
    if (!json)
        return TX_MEMORY;
    snprintf(text, size, "%s", json);
    free(json);
    return TX_OK;
}

/* Notes the options that choose rows of the table. False if `name` is another. */
static bool choose(const char *name, const char *text, tx_mem_run *run)
{
    const bool on = strcmp(text, "false") != 0 && strcmp(text, "none") != 0;
    if (strcmp(name, "bf16") == 0 || strcmp(name, "fp16") == 0) {
        if (on && !run->precision)
            run->precision = name[0] == 'b' ? "bf16" : "fp16";
    } else if (strcmp(name, "dtype") == 0) {
        run->precision = strcmp(text, "bfloat16") == 0 ? "pure bf16" : run->precision;
    } else if (strcmp(name, "gradient_checkpointing") == 0) {
        run->checkpointing = !on ? "none" : strcmp(text, "auto") == 0 ? "auto" : "blocks";
    } else if (strcmp(name, "per_device_train_batch_size") == 0) {
        sscanf(text, "%" SCNd64, &run->rows);
    } else {
        return false;
    }
    return true;
}

static bool is_uncounted(const char *name)
{
    for (size_t i = 0; i < sizeof uncounted / sizeof uncounted[0]; i++)
        if (strcmp(uncounted[i], name) == 0)
            return true;
    return false;
}

static tx_status take(const char *name, const tx_json *value, tx_option_values *own, tx_mem_run *run)
{
    char text[4096];
    const char *known = own_name(own, name);
    TX_TRY(text_of(value, text, sizeof text));
    if (choose(name, text, run))
        return TX_OK;
    if (!known) {
        char *list = is_uncounted(name) ? run->uncounted : run->without_effect;
        const size_t size = is_uncounted(name) ? sizeof run->uncounted : sizeof run->without_effect;
        tx_list_add(list, size, ", ", "--%s", name);
        return TX_OK;
    }
    return tx_option_given(own, tx_option_find(&own->table, known)->offset) ? TX_OK : tx_option_set(own, known, text);
}

tx_status tx_mem_take(const tx_option_values *txtrain, tx_option_values *own, tx_mem_run *run)
{
    tx_json *given = tx_option_json_given(txtrain);
    tx_status status = given ? TX_OK : tx_fail(TX_MEMORY, "no memory for options");
    *run = (tx_mem_run){0};
    for (void *i = given ? tx_json_first(given) : NULL; i && !status; i = tx_json_next(given, i))
        status = take(tx_json_key(i), tx_json_value(i), own, run);
    tx_json_free(given);
    return status;
}

/* ---- Cards ------------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    int gib;
    bool desktop;
} cards[] = {
#define CARD(name, gib, desktop) {name, gib, desktop},
#include "tools/memory/cards.def"
};

#define DRIVER 0.5  /* GiB that a driver keeps for a program: its context and the code of kernels */
#define DESKTOP 1.0 /* GiB of a desktop with a browser */

/* Copies a name in lower case without blanks, dashes and makers' words. */
static void plain_name(const char *name, char *plain, size_t size)
{
    static const char *const makers[] = {"nvidia", "geforce", "rtx",   "gtx",   "amd",
                                         "radeon", "rx",      "tesla", "intel", "arc"};
    size_t length = 0;
    for (; *name && length + 1 < size; name++)
        if (isalnum((unsigned char)*name))
            plain[length++] = (char)tolower((unsigned char)*name);
    plain[length] = '\0';
    for (size_t i = 0; i < sizeof makers / sizeof makers[0]; i++)
        if (strncmp(plain, makers[i], strlen(makers[i])) == 0) {
            memmove(plain, plain + strlen(makers[i]), strlen(plain + strlen(makers[i])) + 1);
            i = (size_t)-1; /* another may follow */
        }
}

tx_status tx_mem_card(const char *name, int64_t *bytes)
{
    char plain[64], list[640] = "";
    plain_name(name, plain, sizeof plain);
    for (size_t i = 0; i < sizeof cards / sizeof cards[0]; i++) {
        if (strcmp(plain, cards[i].name) == 0) {
            *bytes = (int64_t)(((double)cards[i].gib - DRIVER - (cards[i].desktop ? DESKTOP : 0.0)) * 1073741824.0);
            return TX_OK;
        }
        tx_list_add(list, sizeof list, ", ", "%s", cards[i].name);
    }
    return tx_fail(TX_NOT_FOUND, "--card %.40s: unknown; give --memory, or one of %s", name, list);
}
