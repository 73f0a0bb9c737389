/* SPDX-License-Identifier: Apache-2.0
 * tx_convert_distributed: converts model folders to distributed checkpoints of PyTorch, and back. */
#include "models/tx_convert.h"

#include "api/base/file.h"
#include "api/base/needs.h"
#include "models/files/dcp.h"
#include "models/files/folder.h"
#include "models/files/hub.h"
#include "models/tokenizer/bpe.h"

#include <inttypes.h>
#include <stdlib.h>

#define FILE_LIMIT ((int64_t)256 << 20)
#define RANKS_LIMIT 65536

static bool every(const void *context, const char *tensor)
{
    (void)context, (void)tensor;
    return true;
}

static tx_status write_folder(const tx_weights *weights, const char *to)
{
    const tx_weights_form form = {.files = weights, .is_copied = every};
    if (tx_file_exists(TX_PATH(to, TX_WEIGHTS_SINGLE)) || tx_file_exists(TX_PATH(to, TX_WEIGHTS_INDEX)))
        return tx_fail(TX_INVALID, "%s: already holds a model: choose another folder", to);
    TX_TRY(tx_folder_create(to));
    return tx_weights_save_as(NULL, &form, to, TX_WEIGHTS_SHARD);
}

static tx_status convert(const char *from, const char *to, int64_t ranks, const tx_reporter *report)
{
    tx_weights *weights;
    TX_TRY(tx_weights_open(from, &weights));
    tx_status status = ranks > 0 ? tx_dcp_write(weights, to, (int32_t)ranks, report) : write_folder(weights, to);
    for (size_t i = 0; !status && tx_tokenizer_file_name(i); i++)
        status = tx_folder_copy_file(from, to, tx_tokenizer_file_name(i), FILE_LIMIT);
    TX_THEN(status, tx_folder_copy_file(from, to, "generation_config.json", FILE_LIMIT));
    TX_THEN(status, tx_folder_copy_file(from, to, "config.json", FILE_LIMIT));
    if (!status && !tx_file_exists(TX_PATH(to, "config.json")))
        tx_reporter_print(report, "%s has no config.json: copy that of the model and its tokenizer to %s", from, to);
    tx_weights_close(weights);
    return status;
}

tx_status tx_convert_distributed(const char *from, const char *to, int64_t ranks, const tx_reporter *report)
{
    char *folder;
    TX_NEEDS(from && to, TX_INVALID);
    if (ranks < 0 || ranks > RANKS_LIMIT)
        return tx_fail(TX_INVALID, "tx_convert_distributed: %" PRId64 " ranks, at most %d are possible", ranks,
                       RANKS_LIMIT);
    TX_TRY(tx_hub_model(from, &folder));
    const tx_status status = convert(folder, to, ranks, report);
    free(folder);
    return status;
}
