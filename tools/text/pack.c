/* SPDX-License-Identifier: Apache-2.0
 * Tokenises a corpus before a run. The files are prepared as training prepares them, so both find the same tokens. */
#include "tools/text/pack.h"

#include "models/data/prepare.h"
#include "models/files/hub.h"
#include "models/files/splits.h"
#include "models/names.h"
#include "models/text/buffer.h"
#include "tx_engine.h"

#include <stdlib.h>

static tx_status find_files(const char *const *files, int32_t count, tx_names *names)
{
    tx_buffer list = {0};
    for (int32_t i = 0; i < count; i++) {
        tx_buffer_add(&list, ",", i > 0);
        tx_buffer_add(&list, files[i], strlen(files[i]));
    }
    tx_buffer_add(&list, "", 1);
    tx_status status = list.status;
    TX_THEN(status, tx_data_files(list.data, names));
    free(list.data);
    return status;
}

static tx_status prepare(const tx_pack *pack, tx_names *names, const char *folder, char **path)
{
    const bool column = pack->text_column && strcmp(pack->text_column, "text") != 0;
    const char *first = names->name[0];
    tx_data_source source = {.files = *names};
    const tx_prepare_options options = {
        .text_columns = column ? pack->text_column : NULL,
        .delimiter = pack->delimiter,
        .rows = tx_ends_with(first, ".csv") || tx_ends_with(first, ".tsv"),
        .folder = folder,
        .report = pack->report,
    };
    return tx_data_prepare(&source, 1, &options, path);
}

tx_status tx_pack_files(const tx_pack *pack, const char *const *files, int32_t count, int64_t *tokens)
{
    char folder[TX_PATH_ROOM], *path = NULL;
    tx_names names = {0};
    tx_dataset *dataset = NULL;
    TX_TRY(tx_hub_cache(folder));
    const tx_dataset_options options = {
        .size = sizeof options,
        .tokenizer = pack->tokenizer,
        .vocab = tx_tokenizer_size(pack->tokenizer),
        .block = 2,
        .to = 100.0,
        .skip_bad = pack->skip_bad,
        .cache = folder,
        .part = pack->part,
        .bare_lines = pack->bare_lines,
        .threads = pack->threads ? (int32_t)pack->threads : tx_cores(),
        .report = pack->report,
    };
    tx_status status = find_files(files, count, &names);
    TX_THEN(status, prepare(pack, &names, folder, &path));
    TX_THEN(status, tx_dataset_open(path, &options, &dataset));
    if (!status)
        *tokens = tx_dataset_tokens(dataset);
    tx_dataset_free(dataset);
    tx_names_free(&names);
    free(path);
    return status;
}
