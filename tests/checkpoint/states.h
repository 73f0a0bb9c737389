/* SPDX-License-Identifier: Apache-2.0
 *
 * The checkpoints that the fault tests write. A version number determines every byte, so that a test can identify the
 * version of a checkpoint that it finds on the disk. */
#ifndef TX_TESTS_STATES_H
#define TX_TESTS_STATES_H

#include "api/base/file.h"
#include "models/files/checkpoint.h"
#include "models/files/folder.h"
#include "models/files/safetensors.h"
#include "tx_json.h"

#include <stdlib.h>
#include <string.h>

enum { STATE_WEIGHTS = 300, STATE_LOG = 700 };

static inline void state_fill(int version, float weights[STATE_WEIGHTS], char log[STATE_LOG])
{
    for (int i = 0; i < STATE_WEIGHTS; i++)
        weights[i] = (float)version + (float)i / 1024.0f;
    for (int i = 0; i < STATE_LOG; i++)
        log[i] = (char)('a' + (i * 7 + version) % 26);
}

/* A file of each kind of writer: streamed tensors, a text in pieces, JSON, and one in a folder that is empty. */
static inline tx_status state_write(const char *folder, int version)
{
    float weights[STATE_WEIGHTS];
    char log[STATE_LOG];
    state_fill(version, weights, log);
    const tx_st_tensor tensor = {.name = "w", .dtype = TX_ST_F32, .rank = 1, .dim = {STATE_WEIGHTS}};
    tx_st_writer *writer = NULL;
    tx_file *file = NULL;
    TX_TRY(tx_st_create(TX_PATH(folder, "model.safetensors"), &tensor, 1, &writer));
    tx_status status = tx_st_append(writer, weights, sizeof weights);
    if (status)
        tx_st_discard(writer);
    else
        status = tx_st_commit(writer);
    TX_THEN(status, tx_file_create(TX_PATH(folder, "log"), &file));
    TX_THEN(status, tx_file_append(file, log, STATE_LOG / 2));
    TX_THEN(status, tx_file_append(file, log + STATE_LOG / 2, STATE_LOG - STATE_LOG / 2));
    if (status)
        tx_file_discard(file);
    else
        status = tx_file_commit(file);
    tx_json *json = tx_json_object();
    TX_THEN(status, tx_json_set_int(json, "version", version));
    TX_THEN(status, tx_json_write(TX_PATH(folder, "state.json"), json, TX_JSON_PRETTY));
    TX_THEN(status, tx_folder_create(TX_PATH(folder, "module")));
    TX_THEN(status, tx_file_write(TX_PATH(folder, "module/empty"), "", 0));
    tx_json_free(json);
    return status;
}

/* A checkpoint of that version, whose tensors are staged if `stage` is not NULL. */
static inline tx_status state_save(const char *output, int64_t step, int version, tx_stage *stage)
{
    tx_checkpoint *checkpoint = NULL;
    tx_stage_used = stage;
    tx_status status = tx_checkpoint_begin(output, step, &checkpoint);
    TX_THEN(status, state_write(tx_checkpoint_folder(checkpoint), version));
    tx_stage_used = NULL;
    if (!status)
        return tx_checkpoint_commit(checkpoint);
    tx_checkpoint_discard(checkpoint);
    return status;
}

static inline bool state_equals(const char *folder, const char *name, const void *wanted, size_t wanted_size)
{
    char *path = TX_PATH(folder, name), *data = NULL;
    size_t size = 0;
    const bool same =
        tx_file_read(path, 1 << 20, &data, &size) == TX_OK && size == wanted_size && memcmp(data, wanted, size) == 0;
    free(data);
    return same;
}

static inline bool state_has_weights(const char *folder, const float weights[STATE_WEIGHTS])
{
    float found[STATE_WEIGHTS];
    tx_st_file *file = NULL;
    const bool same = tx_st_open(TX_PATH(folder, "model.safetensors"), &file) == TX_OK &&
                      tx_st_read_f32(file, 0, 0, STATE_WEIGHTS, found) == TX_OK &&
                      memcmp(found, weights, sizeof found) == 0;
    if (file)
        tx_st_close(file);
    return same;
}

/* Returns the version of the checkpoint in `folder`, or -1 if any byte differs. */
static inline int state_read(const char *folder)
{
    tx_json *json = NULL;
    int64_t version = -1;
    if (tx_json_read(TX_PATH(folder, "state.json"), 1 << 20, &json) == TX_OK)
        (void)tx_json_get_int(json, "version", 0, 1000, &version);
    tx_json_free(json);
    float weights[STATE_WEIGHTS];
    char log[STATE_LOG];
    state_fill((int)version, weights, log);
    return version >= 0 && state_has_weights(folder, weights) && state_equals(folder, "log", log, STATE_LOG) &&
                   state_equals(folder, "module/empty", "", 0)
               ? (int)version
               : -1;
}

#endif
