/* SPDX-License-Identifier: Apache-2.0
 * Opens the weights and files of a wrapper's folder. Called by find.c. */
#include "models/arch/wrapper.h"

#include "api/base/file.h"
#include "models/files/folder.h"

#include <stdio.h>
#include <string.h>

#define FILE_LIMIT ((int64_t)16 << 20)

/* The index of the tensor with this name in a text model, or -1. */
static int32_t find_tensor(const tx_wrapped *w, const char *text)
{
    char name[TX_WEIGHTS_NAME];
    for (int32_t i = 0; i < tx_weights_count(w->weights); i++)
        if (tx_wrapper_rename(w, tx_weights_tensor_at(w->weights, i)->name, name) && strcmp(name, text) == 0)
            return i;
    return -1;
}

/* Learns the files' form of names from that of the embedding, and whether they have an output head of its own. */
static tx_status read_form(tx_config *config)
{
    static const char embedding[] = "embed_tokens.weight";
    tx_wrapped *w = config->wrapped;
    const int32_t table = find_tensor(w, "model.embed_tokens.weight"), head = find_tensor(w, "lm_head.weight");
    if (table < 0)
        return TX_OK; /* reading the weights fails */
    const char *name = tx_weights_tensor_at(w->weights, table)->name;
    snprintf(w->prefix, sizeof w->prefix, "%.*s", (int)(strlen(name) - strlen(embedding)), name);
    if (head < 0 || !tx_arch_check_tied(w->weights, tx_weights_tensor_at(w->weights, head)->name, name))
        return TX_OK;
    return tx_config_override(config, "tie_word_embeddings=false");
}

tx_status tx_wrapper_open_folder(tx_config *config, const char *folder)
{
    tx_wrapped *w = config->wrapped;
    for (int i = 0; i < TX_WRAPPED_FILES; i++)
        if (tx_file_exists(TX_PATH(folder, tx_wrapped_names[i])))
            TX_TRY(tx_file_read(TX_PATH(folder, tx_wrapped_names[i]), FILE_LIMIT, &w->file[i].data, &w->file[i].size));
    return tx_weights_open(folder, &w->weights) ? TX_OK : read_form(config);
}
