/* SPDX-License-Identifier: Apache-2.0
 * The pooling of embeddings in GGUF files. */
#include "models/gguf/gguf.h"

#include <inttypes.h>
#include <stdlib.h>

#define POOLING "pooling_type"
/* llama.cpp has no such keys. Its programs always normalize embeddings, and its texts may have as many tokens as the
 * model has positions. */
#define NORMALIZE "sentence_transformers.normalize"
#define MAX_LENGTH "sentence_transformers.max_seq_length"

/* Modes by llama.cpp's numbers. */
#define FIRST 1
static const tx_pool_mode modes[] = {TX_POOL_MODES, TX_POOL_MEAN, TX_POOL_CLS, TX_POOL_LAST};
#define LAST ((int64_t)(sizeof modes / sizeof modes[0]) - 1)

tx_status tx_gguf_put_pooling(tx_gguf_writer *writer, const char *architecture, const tx_pooling *pooling)
{
    char key[TX_GGUF_KEY_ROOM];
    int64_t number = LAST;
    if (!pooling->given)
        return TX_OK;
    while (number >= FIRST && modes[number] != pooling->mode[0])
        number--;
    if (number < FIRST || pooling->modes > 1)
        return tx_fail(TX_UNSUPPORTED, "pooling_mode: llama.cpp computes only mean, cls and lasttoken, one of them");
    if (*pooling->transformer || pooling->skips_prompt)
        return tx_fail(TX_UNSUPPORTED, "modules.json: GGUF files can store neither include_prompt nor a transformer in "
                                       "a folder of its own");
    tx_gguf_put_int(writer, tx_gguf_key_of(key, architecture, POOLING), number);
    tx_gguf_put_bool(writer, NORMALIZE, pooling->normalize);
    if (pooling->max_seq_length)
        tx_gguf_put_int(writer, MAX_LENGTH, pooling->max_seq_length);
    return TX_OK;
}

static tx_status get_pooling(const tx_gguf_file *file, tx_pooling *pooling)
{
    char key[TX_GGUF_KEY_ROOM];
    int64_t number = 0;
    TX_TRY(tx_gguf_own_key(file, POOLING, key));
    TX_TRY(TX_GGUF_OPTIONAL(int, file, key, 0, UINT32_MAX, &number));
    if (number > LAST)
        return tx_fail(TX_UNSUPPORTED, "%s: %" PRId64 " is not implemented", key, number);
    pooling->given = number >= FIRST;
    if (pooling->given)
        pooling->mode[0] = modes[number];
    TX_TRY(TX_GGUF_OPTIONAL(bool, file, NORMALIZE, &pooling->normalize));
    return TX_GGUF_OPTIONAL(int, file, MAX_LENGTH, 1, INT32_MAX, &pooling->max_seq_length);
}

tx_status tx_gguf_get_pooling(const char *path, tx_pooling *pooling)
{
    tx_gguf_file *file = NULL;
    TX_TRY(tx_gguf_open(path, &file));
    const tx_status status = tx_fail_in(get_pooling(file, pooling), "%s", path);
    tx_gguf_close(file);
    return status;
}
