/* SPDX-License-Identifier: Apache-2.0
 * Tokenises a corpus before a run. The files are prepared as training prepares them, so both find the same tokens. */
#include "api/base/needs.h"
#include "models/data/prepare.h"
#include "models/files/hub.h"
#include "models/files/splits.h"
#include "models/tokenizer/buffer.h"
#include "models/tx_text.h"
#include "tx_engine.h"

#include <inttypes.h>
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

static tx_status prepare(const tx_pack_options *o, tx_names *names, const char *folder, char **path)
{
    const bool column = o->text_column && strcmp(o->text_column, "text") != 0;
    tx_data_source source = {.files = *names};
    const tx_prepare_options options = {
        .text_columns = column ? o->text_column : NULL,
        .delimiter = o->delimiter,
        .rows = true,
        .folder = folder,
        .report = o->report,
    };
    return tx_data_prepare(&source, 1, &options, path);
}

tx_status tx_pack(const char *const *files, int32_t count, const tx_pack_options *options, int64_t *tokens)
{
    const tx_pack_options *o = options;
    char folder[TX_PATH_ROOM], *path = NULL;
    tx_names names = {0};
    tx_dataset *dataset = NULL;
    TX_NEEDS(files && o && tokens && o->tokenizer, TX_INVALID);
    if (o->size != sizeof *o)
        return tx_fail(TX_INVALID, "pack: the options' size field is %zu, expected %zu", o->size, sizeof *o);
    if (count < 1 || o->part < 1 || o->threads < 0)
        return tx_fail(TX_INVALID,
                       "pack: files %" PRId32 " and the size of a part %" PRId64 " must be 1 or more, threads %" PRId32
                       " 0 or more",
                       count, o->part, o->threads);
    TX_TRY(tx_hub_cache(folder));
    const tx_dataset_options how = {
        .size = sizeof how,
        .tokenizer = o->tokenizer,
        .vocab = tx_tokenizer_size(o->tokenizer),
        .block = 2,
        .to = 100.0,
        .skip_bad = o->skip_bad,
        .cache = folder,
        .part = o->part,
        .bare_lines = o->bare_lines,
        .threads = o->threads ? o->threads : tx_cores(),
        .report = o->report,
    };
    tx_status status = find_files(files, count, &names);
    TX_THEN(status, prepare(o, &names, folder, &path));
    TX_THEN(status, tx_dataset_open(path, &how, &dataset));
    if (!status)
        *tokens = tx_dataset_tokens(dataset);
    tx_dataset_free(dataset);
    tx_names_free(&names);
    free(path);
    return status;
}
