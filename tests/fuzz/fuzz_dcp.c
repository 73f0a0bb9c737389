/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: a distributed checkpoint of one data file: four bytes with the length of `.metadata`, this file, and
 * `__0_0.distcp`. The tensors of an accepted one have parts within the files, and can be read from end to end unless
 * parts overlap. */
#include "models/files/safetensors.h"
#include "models/files/varint.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* Bytes that are read at a time. */
enum { LENGTH = 4, SOME = 64 };

static void check_tensor(const tx_st_file *file, int32_t index, size_t size)
{
    const tx_st_tensor *t = tx_st_tensor_at(file, index);
    const int64_t elements = tx_st_elements(t);
    int32_t found = -1;
    char data[SOME * sizeof(double)];
    FUZZ_CHECK(t->rank >= 0 && t->rank <= TX_ST_MAX_RANK && !tx_st_find(file, t->name, &found) && found == index);
    FUZZ_CHECK(elements >= 0 && elements <= (int64_t)(size * size)); /* parts may share data */
    for (int64_t at = 0, now; at < elements && at < (int64_t)size; at += now) {
        now = elements - at < SOME ? elements - at : SOME;
        const tx_status status = tx_st_read(file, index, at, now, data);
        FUZZ_CHECK(!status || (status == TX_FORMAT && strstr(tx_error(), "no part of the checkpoint")));
    }
    FUZZ_CHECK(tx_st_read(file, index, elements, 1, data) == TX_INVALID);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tx_st_file *file;
    const size_t length = size < LENGTH ? 0 : (size_t)tx_fixed_read(data, LENGTH);
    if (size < LENGTH || length > size - LENGTH)
        return 0;
    tx_fuzz_put(".metadata", data + LENGTH, length);
    tx_fuzz_put("__0_0.distcp", data + LENGTH + length, size - LENGTH - length);
    if (tx_fuzz_refused(tx_st_open(tx_fuzz_path(".metadata"), &file), ".metadata"))
        return 0;
    for (int32_t i = 0; i < tx_st_count(file); i++)
        check_tensor(file, i, size);
    tx_st_close(file);
    return 0;
}
