/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: model.safetensors.index.json, next to two shards "a" and "b". An accepted index lists their tensors, all
 * of which can be read, and names no file outside the folder. */
#include "models/files/weights.h"
#include "tests/fuzz/fuzz.h"
#include "tx_json.h"

#include <string.h>

#define NAME "model.safetensors.index.json"

static void put_shard(const char *name, const char *header, size_t data_bytes)
{
    char file[256] = {0};
    size_t size = strlen(header);
    FUZZ_CHECK(8 + size + data_bytes <= sizeof file && size < 256);
    file[0] = (char)size;
    memcpy(file + 8, header, size);
    tx_fuzz_put(name, file, 8 + size + data_bytes);
}

/* The names of shards in an index that was accepted. */
static void check_names(const uint8_t *data, size_t size)
{
    tx_json *index, *map;
    const char *name;
    FUZZ_CHECK(!tx_json_parse((const char *)data, size, NAME, &index));
    FUZZ_CHECK(!tx_json_get(index, "weight_map", TX_JSON_OBJECT, &map));
    for (void *i = tx_json_first(map); i; i = tx_json_next(map, i)) {
        FUZZ_CHECK(!tx_json_as_string(tx_json_value(i), NAME, &name));
        FUZZ_CHECK(strcmp(name, "a") == 0 || strcmp(name, "b") == 0);
    }
    tx_json_free(index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool there;
    tx_weights *weights;
    if (!there) {
        put_shard("a", "{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8);
        put_shard(
            "b",
            "{\"y\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,2]},\"z\":{\"dtype\":\"BF16\",\"shape\":[],"
            "\"data_offsets\":[2,4]}}",
            4);
        there = true;
    }
    tx_fuzz_put(NAME, data, size);
    if (tx_fuzz_refused(tx_weights_open(tx_fuzz_folder(), &weights), tx_fuzz_folder()))
        return 0;
    FUZZ_CHECK(tx_weights_count(weights) <= 3);
    check_names(data, size);
    for (int32_t i = 0; i < tx_weights_count(weights); i++) {
        float first;
        const tx_st_tensor *t = tx_weights_tensor_at(weights, i);
        FUZZ_CHECK(strlen(t->name) == 1 && strchr("xyz", t->name[0]));
        FUZZ_CHECK(!tx_weights_read_f32(weights, i, 0, 1, &first) && first == 0);
    }
    tx_weights_close(weights);
    return 0;
}
