/* SPDX-License-Identifier: Apache-2.0
 *
 * The checkpoints that the fault tests write: every byte follows from a version number, so what is found on the disk
 * can be told to be one of them or none. */
#ifndef TX_TESTS_STATES_H
#define TX_TESTS_STATES_H

#include "api/base/file.h"
#include "api/base/json.h"
#include "models/files/safetensors.h"

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

/* A file of each kind of writer: streamed tensors, a text in pieces, JSON, and one that is empty. */
static inline tx_status state_write(const char *folder, int version)
{
    float weights[STATE_WEIGHTS];
    char log[STATE_LOG];
    state_fill(version, weights, log);
    char *paths[] = {tx_path_join(folder, "model.safetensors"), tx_path_join(folder, "log"),
                     tx_path_join(folder, "state.json"), tx_path_join(folder, "empty")};
    const tx_st_tensor tensor = {.name = "w", .dtype = TX_ST_F32, .rank = 1, .dim = {STATE_WEIGHTS}};
    tx_st_writer *writer = NULL;
    tx_file *file = NULL;
    tx_json *json = tx_json_object();
    tx_status status = paths[0] && paths[1] && paths[2] && paths[3] ? TX_OK : TX_MEMORY;
    if (!status)
        status = tx_st_create(paths[0], &tensor, 1, NULL, &writer);
    if (!status) {
        status = tx_st_append(writer, weights, sizeof weights);
        if (status)
            tx_st_discard(writer);
        else
            status = tx_st_commit(writer);
    }
    if (!status)
        status = tx_file_create(paths[1], &file);
    if (!status) {
        status = tx_file_append(file, log, STATE_LOG / 2);
        if (!status)
            status = tx_file_append(file, log + STATE_LOG / 2, STATE_LOG - STATE_LOG / 2);
        if (status)
            tx_file_discard(file);
        else
            status = tx_file_commit(file);
    }
    if (!status)
        status = tx_json_set_int(json, "version", version);
    if (!status)
        status = tx_json_write(paths[2], json, TX_JSON_PRETTY);
    if (!status)
        status = tx_file_write(paths[3], "", 0);
    tx_json_free(json);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        free(paths[i]);
    return status;
}

static inline bool state_equals(const char *folder, const char *name, const void *wanted, size_t wanted_size)
{
    char *path = tx_path_join(folder, name), *data = NULL;
    size_t size = 0;
    const bool same = path && tx_file_read(path, 1 << 20, &data, &size) == TX_OK && size == wanted_size &&
                      memcmp(data, wanted, size) == 0;
    free(path);
    free(data);
    return same;
}

static inline bool state_has_weights(const char *folder, const float weights[STATE_WEIGHTS])
{
    float found[STATE_WEIGHTS];
    char *path = tx_path_join(folder, "model.safetensors");
    tx_st_file *file = NULL;
    const bool same = path && tx_st_open(path, &file) == TX_OK &&
                      tx_st_read_f32(file, 0, 0, STATE_WEIGHTS, found) == TX_OK &&
                      memcmp(found, weights, sizeof found) == 0;
    if (file)
        tx_st_close(file);
    free(path);
    return same;
}

/* The version whose bytes `folder` holds, each of them; -1 where it is none. */
static inline int state_read(const char *folder)
{
    char *path = tx_path_join(folder, "state.json");
    tx_json *json = NULL;
    int64_t version = -1;
    if (path && tx_json_read(path, 1 << 20, &json) == TX_OK)
        (void)tx_json_get_int(json, "version", 0, 1000, &version);
    tx_json_free(json);
    free(path);
    float weights[STATE_WEIGHTS];
    char log[STATE_LOG];
    state_fill((int)version, weights, log);
    return version >= 0 && state_has_weights(folder, weights) && state_equals(folder, "log", log, STATE_LOG) &&
                   state_equals(folder, "empty", "", 0)
               ? (int)version
               : -1;
}

#endif
