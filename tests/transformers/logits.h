/* SPDX-License-Identifier: Apache-2.0
 *
 * The frame of programs that write the logits of fixed tokens (model_logits.c, cached_logits.c). */
#ifndef TX_TESTS_LOGITS_H
#define TX_TESTS_LOGITS_H

#include "api/base/file.h"
#include "models/arch/find.h"
#include "models/files/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 2, MOST = 512 }; /* rows, and at most so many tokens of each */

/* Writes columns 0..vocab-1 of logits [ROWS, length, padded] to FOLDER/logits.safetensors. */
static inline tx_status write_logits(const char *folder, const float *logits, int64_t length, int64_t vocab,
                                     int64_t padded)
{
    tx_st_tensor tensor = {.name = "logits", .dtype = TX_ST_F32, .rank = 3, .dim = {ROWS, length, vocab}};
    tx_st_writer *writer;
    char *path = tx_path_join(folder, "logits.safetensors");
    tx_status status = path ? tx_st_create(path, &tensor, 1, &writer) : TX_MEMORY;
    free(path);
    if (status)
        return status;
    for (int64_t row = 0; row < ROWS * length && !status; row++)
        status = tx_st_append(writer, logits + row * padded, (size_t)vocab * sizeof *logits);
    if (!status)
        return tx_st_commit(writer);
    tx_st_discard(writer);
    return status;
}

typedef tx_status logits_run(const tx_engine *engine, tx_model *model, const tx_config *config, char **argv);

/* Runs `run` on a new model of the folder argv[1]. Returns the program's exit status. */
static inline int on_model(const char *device, char **argv, logits_run *run)
{
    tx_engine_options options = {.size = sizeof options, .device = device};
    tx_config *config = NULL;
    tx_engine *engine = NULL;
    tx_model *model = NULL;
    tx_status status = tx_config_of_folder(argv[1], &config);
    TX_THEN(status, tx_engine_create(&options, &engine));
    TX_THEN(status, tx_model_create(engine, &model));
    TX_THEN(status, run(engine, model, config, argv));
    if (status)
        fprintf(stderr, "%s: %s\n", argv[0], tx_error());
    tx_model_free(model);
    if (engine)
        tx_engine_free(engine);
    tx_config_free(config);
    return status ? 1 : 0;
}

#endif
